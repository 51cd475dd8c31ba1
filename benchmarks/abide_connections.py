"""Connections that go with kept predictions of ABIDE-I (``abide_connections.tsv``).

    python -m benchmarks.abide_connections RUN/results/abide1/cache/cc200/ready --out FOLDER

The cache is that of a run of ``config/examples/abide1.yaml`` or of ``abide_benchmark.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from benchmarks.abide_benchmark import HERE
from benchmarks.judge_abide import CLASSES, committed_folds, kept_models, predictions
from bolt.explain.connections import ALPHA, write_connections
from bolt.io.files import read_table, write_status, write_table
from bolt.report.pages.verdicts import connected, questions
from bolt.series.cache import SeriesCache
from bolt.training.outputs import write_predictions

COLUMNS = {
    "model": "Row of `abide_benchmark`, or BolT + linear models (`abide_tuned.py`, seed 0)",
    "n_significant": f"Connections with corrected p < {ALPHA} for prediction and label, of the 100 listed",
    "largest": "Largest of their absolute correlations with the prediction",
    "between_folds": "Correlation of maps of regions, mean over pairs of folds",
    "all_folds": "What the map of all folds would correlate with that of as many other people (Spearman–Brown)",
}


def main() -> None:
    """Write the table, and each model's connections below the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    folds, rows = committed_folds(), []
    tuned = read_table(HERE / "abide_tuned_predictions.tsv", text=("scan_id",)).query("scheme == 'folds'")
    hybrid = tuned.astype({"fold": int}).set_index(["fold", "scan_id"])["BolT + linear models, seed 0"]
    models = {"BolT + linear models": hybrid} | kept_models(folds)
    for name in ("BolT + linear models", "Ridge", "BolT"):
        out = options.out / name
        for fold, table in predictions(folds, models[name]).groupby("fold"):
            write_predictions(table, out / f"fold-{fold}/predictions.tsv")
            write_status(out / f"fold-{fold}/status.json", "ok", "train")
        write_connections(SeriesCache(options.cache), out, range(10), CLASSES, out)
        table = read_table(out / "connections.tsv").query("p < @ALPHA")
        agree = connected(read_table(out / "connection_stability.tsv"), **questions()["connections"]["thresholds"])
        about = {"model": name, "n_significant": len(table), "largest": table["r"].abs().max()}
        maps = agree.facts["maps"] if agree else {"pearson": None, "all_folds": None}
        rows.append(about | {"between_folds": maps["pearson"], "all_folds": maps["all_folds"]})
    write_table(pd.DataFrame(rows), HERE / "abide_connections.tsv", COLUMNS, digits=3)
    print(pd.DataFrame(rows).to_string())


if __name__ == "__main__":
    main()
