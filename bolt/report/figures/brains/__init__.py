"""Regions on the brain: pictures, views to turn, and networks."""
