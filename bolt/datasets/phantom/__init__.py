"""The phantom: simulated raw data of which the truth is known."""
