"""BolT: from raw 4D fMRI to the moments and regions that decided."""

__version__ = "0.1.0"
