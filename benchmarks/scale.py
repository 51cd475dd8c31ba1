"""Measure time and memory of the stages that see all scans at once, on simulated cohorts of growing size.

    python -m benchmarks.scale --folder /tmp/scale --out benchmarks/scale.tsv

Each cohort is raw BIDS, one T1w and one BOLD image of a few voxels per subject, indexed by `bolt index`. What
preprocessing, parcellation and training would have left is then simulated (`simulated_results.py`), and each stage runs
once, as a command of its own. Finished stages are not rerun; a cohort is deleted when all its stages are finished. The
smallest cohort measures what a stage costs whatever the size. Needs 100 kB per scan, in small files.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.simulated_results import ATLAS, simulate_results, study_of, write_cohort
from bolt.config import ROOT
from bolt.io.files import read_json, write_json, write_table
from bolt.report.figures.style import MANY, MUTED, canvas
from bolt.workflow.run import named_files

SIZES = (40, 300, 1000, 3000, 10_000)
"""Scans; the smallest cohort stands for the start-up of each stage."""
STAGES = ("index", "dry run", "quality", "cache", "exclusions", "folds")
STAGES += ("quality-pages", "evaluate", "explanation", "report")
"""In the order in which a run needs them; files are simulated after the dry run."""
NOISE = 0.15
"""Share of the start-up by which processor time varies; growth below it has no slope."""
LAUNCHER = """
import json, resource, subprocess, sys, time
begin = time.perf_counter()
code = subprocess.call(sys.argv[1:], stdout=sys.stderr)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
sys.exit(code)
"""
"""A small process that starts the command: a new process counts the memory of the one that started it as its own."""
COLUMNS = {
    "stage": "Command; dry run: `snakemake -n` once the index exists, with all other work to be done",
    "scans": "Scans of the cohort, one per subject",
    "seconds": {"Description": "Wall time", "Units": "s"},
    "cpu_seconds": {"Description": "Processor time", "Units": "s"},
    "peak_mb": {"Description": "Peak memory of the largest process", "Units": "MB"},
    "slope": "Growth from the next smaller cohort in processor time without start-up: 1 is linear, 2 quadratic",
}


def command_of(stage: str, study: Path) -> list[str]:
    """Return the command of a stage."""
    if stage == "dry run":
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "8"]
        return [*command, "--configfile", "config.yaml", "--dry-run", "--quiet", "rules"]
    command = [sys.executable, "-m", "bolt", stage, "--config", "config.yaml"]
    layout, model = study_of(study).layout, next(iter(study_of(study).models))
    cache, run = layout.cache(ATLAS), layout.run(ATLAS, model, 0)
    excluded, warned = (cache / f"{name}.tsv" for name in ("exclusions", "warnings"))
    scans, manifest = {"scans": layout.scans}, cache / "manifest.json"
    predictions = [run.fold(fold) / "predictions.tsv" for fold in study_of(study).config.folds.of("")]
    of_cache = {"caches": manifest, "exclusions": excluded, "warnings": warned}
    inputs = {
        "cache": scans | {"rois": layout.rois(ATLAS), "quality": layout.quality},
        "exclusions": scans | of_cache,
        "folds": scans | {"caches": manifest, "exclusions": layout.exclusions},
        "evaluate": {"cache": manifest, "predictions": predictions},
    }
    outputs = {
        "cache": {"manifest": manifest, "exclusions": excluded},
        "exclusions": {"exclusions": layout.exclusions, "warnings": layout.warnings},
        "folds": {"folds": layout.folds},
        "evaluate": {"metrics": run.folder / "metrics.tsv", "balanced": run.folder / "balanced.tsv"},
    }
    options = {"cache": ["--atlas", ATLAS], "evaluate": ["--atlas", ATLAS, "--model", model, "--seed", "0"]}
    return [*command, *options.get(stage, []), *named_files(input=inputs.get(stage, {}), output=outputs.get(stage, {}))]


def measure(command: Sequence[str], folder: Path, log: Path) -> dict[str, float]:
    """Run a command in a folder; return its wall time, processor time and peak memory, with those of its children."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, *command], cwd=folder, env=environment, capture_output=True, text=True
    )
    log.write_text(done.stderr)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: see {log}")
    return dict(zip(("seconds", "cpu_seconds", "peak_mb"), json.loads(done.stdout), strict=True))


def run_cohort(n: int, folder: Path, keep: bool) -> list[dict[str, Any]]:
    """Return the measurements of all stages for `n` scans; those of finished stages are read."""
    study, done = folder / f"scans-{n}", folder / "measured"
    done.mkdir(parents=True, exist_ok=True)
    files = {stage: done / f"{n}_{stage.replace(' ', '-')}.json" for stage in STAGES}
    for stage, file in files.items():
        if file.is_file():
            continue
        if stage == "index":
            shutil.rmtree(study, ignore_errors=True)
            write_cohort(study, n)
        if stage == "quality" and not (simulated := study / "simulated").is_file():
            simulate_results(study)
            simulated.touch()
        measured = measure(command_of(stage, study), study, file.with_suffix(".log"))
        write_json({"stage": stage, "scans": n, **measured}, file)
        print(*(f"{name} {value:.1f}" for name, value in measured.items()), stage, n, flush=True)
    if not keep:
        shutil.rmtree(study, ignore_errors=True)
    return [read_json(file) for file in files.values()]


def with_slopes(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the table of `COLUMNS`, by stage; the smallest cohort is taken as the start-up."""
    table = pd.DataFrame(rows)
    table["stage"] = pd.Categorical(table["stage"], table["stage"].unique())
    table = table.sort_values(["stage", "scans"], ignore_index=True).astype({"stage": str})
    table["slope"] = np.nan
    for _, part in table.groupby("stage"):
        start_up = part["cpu_seconds"].iloc[0]
        above = part["cpu_seconds"] - start_up
        above = above.where(above > NOISE * start_up)
        table.loc[part.index[1:], "slope"] = np.diff(np.log(above)) / np.diff(np.log(part["scans"]))
    return table.round({"seconds": 1, "cpu_seconds": 1, "peak_mb": 0, "slope": 2})


def draw(table: pd.DataFrame, out: Path) -> None:
    """Draw processor time and peak memory of each stage against the number of scans; dotted: linear growth."""
    with canvas(out, height=3.6) as figure:
        axes = figure.subplots(1, 2)
        measures = {"cpu_seconds": "processor time (s)", "peak_mb": "peak memory (MB)"}
        for axis, (column, title) in zip(axes, measures.items(), strict=True):
            for (stage, part), colour in zip(table.groupby("stage", sort=False), MANY, strict=False):
                slope = part["slope"].iloc[-1]
                label = stage if np.isnan(slope) else f"{stage} ({slope:.2f})"
                axis.plot(part["scans"], part[column], "o-", ms=3, lw=1.2, color=colour, label=label)
            axis.set(xscale="log", yscale="log", xlabel="scans", ylabel=title)
            ends = np.array(axis.get_xlim())
            axis.plot(ends, ends * table[column].min() / ends[0], ":", color=MUTED, lw=1, label="linear")
            axis.set_xlim(ends)
        axes[1].axhline(8192, color=MUTED, lw=0.8, ls="--")
        axes[1].text(table["scans"].min(), 8192, "8 GB", color=MUTED, va="bottom", fontsize=8)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


def about(script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return machine, versions and command, for the file beside the table."""
    return {
        "date": date.today().isoformat(),
        "command": " ".join([f"python -m benchmarks.{script}", *arguments]),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure all cohorts, and write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="many small files: best on a fast disk")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--keep", action="store_true", help="keep the simulated cohorts")
    parser.add_argument("--out", type=Path, help="table (TSV); a figure is written beside it")
    options = parser.parse_args()
    rows = [row for n in sorted(options.sizes) for row in run_cohort(n, options.folder.resolve(), options.keep)]
    table = with_slopes(rows)
    print(table.to_string())
    if options.out:
        write_table(table, options.out, COLUMNS)
        write_json(about("scale", sys.argv[1:]), options.out.with_name(f"{options.out.stem}_run.json"))
        draw(table, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
