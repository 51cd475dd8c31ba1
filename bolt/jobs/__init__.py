"""What surrounds a stage's work: its outcome, limits, provenance and cost."""
