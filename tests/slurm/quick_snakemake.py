"""`snakemake` with an impatient SLURM executor: as the command, but that it never waits to be polite.

The executor pauses five seconds before it submits a job, and looks at the queue ten seconds later each time that no job
has ended. No setting shortens either, and for a test's jobs of seconds that is most of the time. Everything else, and
all that runs inside a job, is as ever.
"""

import sys
import time
from types import SimpleNamespace

import snakemake_executor_plugin_slurm as plugin
from snakemake.cli import main

plugin.time = SimpleNamespace(time=time.time, sleep=lambda seconds: None)
plugin.Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)

if __name__ == "__main__":
    sys.exit(main())
