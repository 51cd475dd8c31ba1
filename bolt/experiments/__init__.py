"""Experiments: models or settings compared in one table."""
