"""Which function does a command's work."""

from __future__ import annotations

import argparse

from bolt.cli.command_table import COMMANDS
from bolt.io.resource_errors import explain_shortages
from bolt.workflow.stages import STAGES


def is_by_hand(options: argparse.Namespace) -> bool:
    """Return whether a command was called that is not a stage of the workflow."""
    command = COMMANDS.get(options.command)
    return command is not None and command.handles(options)


def run(options: argparse.Namespace) -> int:
    """Run a command and return its exit status."""
    if is_by_hand(options):
        return COMMANDS[options.command].run(options)
    from bolt.workflow.job import Job

    job = Job(options)
    with explain_shortages(job.layout.results, job.layout.work):
        STAGES[job.stage].work(job)
    return 0
