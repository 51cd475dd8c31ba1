"""Settings for all tests: one thread a process that waits asleep, no network, no display."""

import os

for variable in ("OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads starve the other test
os.environ.setdefault("TEMPLATEFLOW_AUTOUPDATE", "false")
os.environ.setdefault("NIPYPE_NO_ET", "1")
os.environ.setdefault("MPLBACKEND", "agg")


def pytest_collection_modifyitems(items):
    """The longest file first, so that of two processes neither waits long for the other at the end."""
    items.sort(key=lambda item: item.path.name != "test_demo.py")
