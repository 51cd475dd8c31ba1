"""Metrics of predictions, calibration, and paired tests between models."""
