"""Atlases: their descriptions, label images and staging."""
