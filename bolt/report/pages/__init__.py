"""Whole pages: the report, the explanation, image quality, and the explanation of one scan."""
