"""Comparison of results on the phantom with its truth."""
