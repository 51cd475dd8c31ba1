"""Running the workflow in a folder of a test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from bolt.config import ROOT
from tests.forks import run_module


def command(*arguments: str, config: Path, cores: int = 2) -> list[str]:
    here = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", str(config), "--cores", str(cores)]
    profile = ["--workflow-profile", str(ROOT / "workflow/profiles/default")]
    return [sys.executable, "-m", "snakemake", *here, *profile, *arguments]


def snakemake(
    folder: Path,
    *arguments: str,
    config: Path,
    env: dict[str, str] | None = None,
    timeout: float = 2400,
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in `folder`; its output and that of jobs are in `.stdout`.

    It and its jobs are forks that need not import anything, or else `fresh`: new interpreters, seconds slower each.
    """
    words = command(*arguments, config=config)
    if not fresh:
        return run_module(words[2:], folder, env, timeout)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(words, cwd=folder, env=os.environ | (env or {}), timeout=timeout, check=False, **streams)


def write_yaml(path: Path, data: dict) -> Path:
    path.write_text(yaml.safe_dump(data))
    return path


TINY_MODEL = {
    "model": "bolt",
    "hyper": {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 10},
    "training": {"epochs": 2, "warmup_epochs": 1, "batch_size": 4},
}


QUICK_EXPLANATION = {"sanity": {"draws": 0, "permuted": False}, "faithfulness": {"scans": 0}}
"""For runs in which the costly checks of an explanation are not what is tested."""


def series_dataset(folder: Path, n_subjects: int = 12, n_rois: int = 160, **config: object) -> Path:
    """Write random ROI series of two classes with a table, and a configuration that uses them; returns its path."""
    rng = np.random.default_rng(0)
    (folder / "series").mkdir(parents=True)
    rows = []
    for i in range(n_subjects):
        np.save(folder / "series" / f"sub-{i:02d}_task-rest.npy", rng.standard_normal((40 + i % 3, n_rois)))
        rows.append({"subject": f"sub-{i:02d}", "file": f"sub-{i:02d}_task-rest.npy", "dx": "ab"[i % 2], "age": 20 + i})
    pd.DataFrame(rows).to_csv(folder / "series" / "scans.tsv", sep="\t", index=False)
    data = {"source": "series", "path": "series/scans.tsv", "label": "dx", "classes": ["a", "b"], "age": "age"}
    dataset = write_yaml(folder / "mine.yaml", data | {"tr": 2.0, "crop": 30})
    model = write_yaml(folder / "tiny.yaml", TINY_MODEL)
    keys: dict = {"dataset": str(dataset), "models": [str(model)], "atlases": ["dosenbach160"], "folds": {"outer": 3}}
    return write_yaml(folder / "config.yaml", keys | config)


def results(folder: Path, name: str) -> dict[str, bytes]:
    """Contents of all files called `name` under results/, by path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted((folder / "results").rglob(name))}


def half_written(folder: Path) -> list[Path]:
    """Temporary files that a killed job left where results are kept, apart from a training's own."""
    return [p for p in (folder / "results").rglob(".*") if p.is_file() and p.name != ".bidsignore"]
