"""Models that predict a label from a scan, one file per model, and what they share."""
