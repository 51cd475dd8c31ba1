"""Which function does a command's work."""

from __future__ import annotations

import argparse

from bolt.cli.command_table import COMMANDS
from bolt.io.resource_errors import explain_shortages
from bolt.workflow.stages import STAGES


def run(options: argparse.Namespace) -> int:
    """Run a command and return its exit status."""
    if not hasattr(options, "stage"):
        return COMMANDS[options.command].run(options)
    from bolt.workflow.job import Job

    job = Job(options)
    with explain_shortages(job.layout.results, job.layout.work):
        STAGES[job.stage].work(job)
    return 0
