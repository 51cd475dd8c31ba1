"""Explanations: which volumes and regions drive a prediction."""
