"""Base class of the workflow steps, and running a workflow.

The steps call ANTsPy (nipype's own interfaces call the ANTs programs, which the Python package does not include). A
step reads files, calls functions of the modules beside it, and writes files into its node's folder.
"""

from __future__ import annotations

import os

os.environ.setdefault("NIPYPE_NO_ET", "1")  # no usage reports over the network

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
    """A nipype interface whose work is one method, `work`."""

    problems: ClassVar[list[BoltError]] = []
    """Errors raised inside nodes: nipype keeps only the text of an exception."""

    def work(self, folder: Path) -> dict[str, Any]:
        """Compute the outputs from the inputs; write files into `folder`."""
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
    """Run a workflow serially in `folder` (crash dumps are left there) and return the values of its ``outputnode``.

    Raises
    ------
    BoltError
        Bad data found inside a node; attributed to the file `where` unless the error names another.
    """
    shutil.rmtree(folder / workflow.name, ignore_errors=True)  # nipype would reuse results of code that has changed
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
    # nipype removes identity nodes such as the outputnode from the graph it runs
    edges = workflow._graph.in_edges(workflow.get_node("outputnode"), data=True)
    return {port: getattr(results[node.name], out) for node, _, edge in edges for out, port in edge["connect"]}


class SettingsInput(BaseInterfaceInputSpec):
    """Inputs of a step that depends on registration settings."""

    settings = traits.Dict(mandatory=True, desc="keys of bolt.config.Registration")


class ImageOutput(TraitedSpec):
    """Output of a step that makes one file."""

    out = File(exists=True)
