"""Hyper-parameter search on the training and validation scans of a fold."""
