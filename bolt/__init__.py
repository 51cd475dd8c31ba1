"""BolT: from raw 4D fMRI to the time points and regions that drive the prediction."""

import time

__version__ = "0.1.0"

BEGUN = time.monotonic()
"""When this process began, as nearly as it knows: the start of a job's duration."""
