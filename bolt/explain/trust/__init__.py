"""Checks of explanations: sanity, faithfulness and stability."""
