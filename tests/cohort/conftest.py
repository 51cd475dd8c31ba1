"""Fewer draws than for people: enough for what tests assert."""

import pytest


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr("bolt.cohort.association.N_PERMUTATIONS", 999)
    monkeypatch.setattr("bolt.cohort.association.N_BOOTSTRAPS", 199)
