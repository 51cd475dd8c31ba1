"""Functions as steps of nipype workflows, and running a workflow.

The steps call ANTsPy (nipype's own interfaces call the ANTs programs, which the Python package does not include). A
step reads files, calls functions of the modules beside it, and writes files into its node's folder.
"""

from __future__ import annotations

import os

os.environ.setdefault("NIPYPE_NO_ET", "1")  # no usage reports over the network

import inspect
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nipype import Node, Workflow
from nipype.interfaces.base import DynamicTraitedSpec, SimpleInterface
from nipype.interfaces.io import add_traits
from nipype.interfaces.utility import IdentityInterface
from nipype.pipeline.engine.nodes import NodeExecutionError

from bolt.io.errors import BoltError
from bolt.jobs.progress import at_step


class Step(SimpleInterface):
    """A nipype interface whose work is a function.

    Parameters
    ----------
    function : callable
        Takes the node's folder and inputs by name, and returns the outputs; an input with a default may be left out.
    outputs : str
        Names of the outputs, which no other step of the workflow shares.
    **inputs
        Those that are known when the workflow is built.
    """

    input_spec = output_spec = DynamicTraitedSpec
    problems: ClassVar[list[BoltError]] = []
    """Errors raised inside nodes: nipype keeps only the text of an exception."""

    def __init__(self, function: Callable[..., dict[str, Any]], outputs: str, **inputs: Any) -> None:
        super().__init__()
        self.function, self.ports = function, outputs.split()
        names = list(inspect.signature(function).parameters)[1:]
        self.open = [name for name in names if name not in inputs]
        add_traits(self.inputs, names)
        self.inputs.trait_set(**inputs)

    def _outputs(self) -> Any:
        return add_traits(super()._outputs(), self.ports)

    def _run_interface(self, runtime: Any) -> Any:
        folder = Path(runtime.cwd)
        at_step(f"{folder.parent.name}.{folder.name}")
        try:
            self._results.update(self.function(folder, **self.inputs.get_traitsfree()))
        except BoltError as error:
            Step.problems.append(error)
            raise
        return runtime


def connected(name: str, inputs: Sequence[str], **steps: Step) -> Workflow:
    """Return a workflow of steps, in which equal names are connected.

    An input of a step is the one of the workflow that has its name (which `run` sets), else the output of another step.
    """
    workflow, given = Workflow(name), Node(IdentityInterface(inputs), "inputnode")
    nodes = [Node(interface, step) for step, interface in steps.items()]
    sources = {port: node for node in nodes for port in node.interface.ports} | dict.fromkeys(inputs, given)
    for node in nodes:
        for port in node.interface.open:
            if port in sources:
                workflow.connect(sources[port], port, node, port)
    return workflow


def run(workflow: Workflow, folder: Path, where: Path, **inputs: Any) -> dict[str, Any]:
    """Run a workflow serially in `folder` (crash dumps are left there) and return all outputs of its steps, by name.

    Raises
    ------
    BoltError
        Bad data found inside a node; attributed to the file `where` unless the error names another.
    """
    workflow.get_node("inputnode").inputs.trait_set(**inputs)
    shutil.rmtree(folder / workflow.name, ignore_errors=True)  # nipype would reuse results of code that has changed
    folder.mkdir(parents=True, exist_ok=True)
    workflow.base_dir = str(folder.resolve())
    workflow.config["execution"] = {"crashdump_dir": str(folder.resolve()), "stop_on_first_crash": "true"}
    workflow.config["execution"]["remove_unnecessary_outputs"] = "false"
    for name in ("nipype.workflow", "nipype.interface", "nipype.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    Step.problems.clear()
    try:
        graph = workflow.run(plugin="Linear")
    except NodeExecutionError:
        if not Step.problems:
            raise
        problem = Step.problems[0]
        raise type(problem)(problem.what, where=problem.where or where, hint=problem.hint) from None
    return {name: value for node in graph.nodes() for name, value in node.result.outputs.get().items()}
