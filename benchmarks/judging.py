"""Judge vectors beside simple models: processor time on ABIDE-I, and how often equal ones are called better.

    python -m benchmarks.judging SERIES --out FOLDER [--columns 1024] [--simulations 200]

SERIES contains the phenotypes and ``cc200_nofilt_noglobal_871.npz``, of which the vectors are random projections of
connectivity. Writes ``judging.tsv`` of this folder.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.config import ROOT, Folds
from bolt.evaluate.paired import compare_all
from bolt.folds.splits import make_folds
from bolt.io.files import read_table, write_table
from bolt.models.registry import create_model
from bolt.report.tables import standing
from bolt.series.cache import connectivity
from bolt.training.outputs import Classes
from tests.abide import write_series
from tests.caches import scan_table

COLUMNS = {"what": "What was measured", "value": "Its value", "unit": "Unit of the value"}
CLASSES, EFFECT = ["A", "B"], 0.1


def write_vectors(table: Path, n_columns: int) -> Path:
    """Write random projections of the connectivity of the series in a table."""
    scans, random = read_table(table, text=("scan_id",)), np.random.default_rng(0)
    features = np.stack([connectivity(np.load(table.parent / name)) for name in scans["file"]])
    projection = random.standard_normal((features.shape[1], n_columns), np.float32) / np.sqrt(features.shape[1])
    np.savez(table.parent / "vectors.npz", scan_id=scans["scan_id"].to_numpy(str), features=features @ projection)
    return table.parent / "vectors.npz"


def judge(series: Path, out: Path, n_columns: int) -> list[tuple[str, float, str]]:
    """Run `bolt run` with vectors, from a table of series to the report; return wall and processor time, and AUCs."""
    table = write_series(series, out / "series")
    vectors, environment = write_vectors(table, n_columns), os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bolt", "run", str(table), str(out / "run"), "group", "--label", "diagnosis"]
    command += ["--atlas", "cc200", "--features", str(vectors), "--n-cpus", "1"]
    command += ["--set", f"paths.atlas_dir={series.parent / 'atlases'}"]
    start = time.perf_counter()
    subprocess.run(command, check=True, env=environment)
    wall, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [
        ("wall time of all of bolt run", wall, "s"),
        ("processor time of all of bolt run", used.ru_utime + used.ru_stime, "s"),
    ]
    for metrics in sorted((out / "run/results").rglob("seed-0/metrics.tsv")):
        found = read_table(metrics, text=("fold",)).set_index("fold")
        rows.append((f"AUC of {metrics.parts[-3].rsplit('-', 1)[0]}, mean over folds", found.loc["mean", "auc"], "1"))
    return rows


def said(seed: int, n: int = 80, n_columns: int = 100) -> str:
    """Return what is said of vectors that are as good as those of ridge: both hold the label in equal noise."""
    random, labels = np.random.default_rng(seed), np.arange(n) % 2
    scans = scan_table([CLASSES[label] for label in labels])
    folds, target, tables = make_folds(scans, Folds(outer=10, seed=seed)), Classes(CLASSES), {}
    for name, model in (("Ridge", "ridge"), ("vectors", "features")):
        direction = np.sign(random.standard_normal(n_columns)) * EFFECT
        inputs = (random.standard_normal((n, n_columns)) + np.outer(2 * labels - 1, direction)).astype(np.float32)
        rows = []
        for fold, part in folds.groupby("fold"):
            roles = scans["scan_id"].map(part.set_index("scan_id")["role"])
            fitted, train = create_model(model, 20, 2), (roles == "train").to_numpy()
            fitted.fit(inputs[train], labels[train], scans["group"].to_numpy()[train], seed)
            predicted = target.columns(fitted.probabilities(inputs))
            rows.append(scans.assign(role=roles, fold=fold, seed=0, **predicted))
        tables[name] = pd.concat(rows, ignore_index=True)
    return standing(compare_all(tables, "vectors", CLASSES))  # differences are vectors minus Ridge


def main() -> None:
    """Measure both and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--simulations", type=int, default=200)
    options = parser.parse_args()
    rows = judge(options.series.resolve(), options.out.resolve(), options.columns)
    verdicts = pd.Series([said(seed) for seed in range(options.simulations)])
    for word in ("better", "worse"):
        share = 100 * verdicts.str.startswith(f"clearly {word}").mean()
        rows.append((f"'clearly {word}' of {options.simulations} equal simulated models", share, "%"))
    table = pd.DataFrame(rows, columns=list(COLUMNS)).round(3)
    write_table(table, Path(__file__).with_suffix(".tsv"), COLUMNS)
    print(table.to_string(index=False), platform.processor(), sep="\n")


if __name__ == "__main__":
    main()
