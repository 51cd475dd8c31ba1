"""Trained models for others: packed with what they were trained on, and applied to new scans."""
