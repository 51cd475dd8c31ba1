"""BolT: from raw 4D fMRI to the moments and regions that decided."""

import time

__version__ = "0.1.0"

BEGUN = time.monotonic()
"""When this process began, as nearly as it knows: for what a job took."""
