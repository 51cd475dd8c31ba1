"""The commands of the benchmarks' README can start."""

from __future__ import annotations

import re
from importlib import import_module

from bolt.config import ROOT

TEXT = (ROOT / "benchmarks/README.md").read_text()


def test_every_benchmark_of_the_readme_can_be_imported():
    named = set(re.findall(r"python -m benchmarks\.(\w+)", TEXT))
    assert len(named) > 15 and "python benchmarks/" not in TEXT
    for name in named:
        import_module(f"benchmarks.{name}")
