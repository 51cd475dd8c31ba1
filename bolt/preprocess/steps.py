"""What all steps of the workflows share: an interface of nipype whose work is one method, and running a workflow.

The steps themselves call ANTsPy. (nipype's own interfaces call ANTs' programs, which the Python package lacks.)
A step reads files, calls functions of the modules beside it, and writes files into its node's folder.
"""

from __future__ import annotations

import os

os.environ.setdefault("NIPYPE_NO_ET", "1")  # no phoning home

import logging
import shutil
from pathlib import Path
from typing import Any, ClassVar

from nipype import Workflow
from nipype.interfaces.base import BaseInterfaceInputSpec, File, SimpleInterface, TraitedSpec, traits
from nipype.pipeline.engine.nodes import NodeExecutionError

from bolt.io.errors import BoltError
from bolt.jobs.progress import at_step


class Interface(SimpleInterface):
    """A step whose work is `work`, a method from inputs to a dictionary of outputs."""

    problems: ClassVar[list[BoltError]] = []
    """What bad data raised inside a node: nipype keeps only the text of an exception."""

    def work(self, folder: Path) -> dict[str, Any]:
        raise NotImplementedError

    def _run_interface(self, runtime: Any) -> Any:
        folder = Path(runtime.cwd)
        at_step(f"{folder.parent.name}.{folder.name}")
        try:
            self._results.update(self.work(folder))
        except BoltError as error:
            Interface.problems.append(error)
            raise
        return runtime


def run(workflow: Workflow, folder: Path, where: Path) -> dict[str, Any]:
    """Run a workflow serially in `folder`, where a crash leaves its dump; return its ``outputnode``'s values.

    Raises
    ------
    BoltError
        Bad data found inside a node; `where` is the file it is put down to unless the error names one.
    """
    shutil.rmtree(folder / workflow.name, ignore_errors=True)  # nipype would keep results of code that has changed
    folder.mkdir(parents=True, exist_ok=True)
    workflow.base_dir = str(folder.resolve())
    workflow.config["execution"] = {"crashdump_dir": str(folder.resolve()), "stop_on_first_crash": "true"}
    workflow.config["execution"]["remove_unnecessary_outputs"] = "false"
    for name in ("nipype.workflow", "nipype.interface", "nipype.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    Interface.problems.clear()
    try:
        graph = workflow.run(plugin="Linear")
    except NodeExecutionError:
        if not Interface.problems:
            raise
        problem = Interface.problems[0]
        raise type(problem)(problem.what, where=problem.where or where, hint=problem.hint) from None
    results = {node.name: node.result.outputs for node in graph.nodes()}
    ends = workflow._graph.in_edges(workflow.get_node("outputnode"), data=True)  # nipype drops identity nodes in a run
    return {port: getattr(results[node.name], made) for node, _, edge in ends for made, port in edge["connect"]}


class SettingsInput(BaseInterfaceInputSpec):
    settings = traits.Dict(mandatory=True, desc="keys of bolt.config.Registration")


class ImageOutput(TraitedSpec):
    out = File(exists=True)
