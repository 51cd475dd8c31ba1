"""Settings for all tests: one thread a process, no network, no display."""

import os

for variable in ("OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TEMPLATEFLOW_AUTOUPDATE", "false")
os.environ.setdefault("NIPYPE_NO_ET", "1")
os.environ.setdefault("MPLBACKEND", "agg")
