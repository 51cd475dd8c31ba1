"""Simulations of the verdicts of the report: their false positives and their power."""
