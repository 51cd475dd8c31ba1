"""Judge predictions of ABIDE-I by anyone's model beside those that are kept of ours.

    python -m benchmarks.judge_abide THEIRS.tsv

THEIRS has scan_id, fold, and p_autism (or p): the probability of autism of each test scan of the ten folds in
``abide_benchmark_folds.tsv``. It is checked, and compared with each model of which ten folds are kept; no series are
needed. See ``docs/judging.md``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from benchmarks.abide_benchmark import FOLDS, PREDICTIONS
from bolt.config import Config, load_experiment
from bolt.evaluate.intervals import intervals
from bolt.evaluate.metrics import by_fold
from bolt.evaluate.paired import compare_all
from bolt.experiments.entries import rows_of
from bolt.io.errors import BoltError
from bolt.io.files import read_table
from bolt.models.parts.given import probabilities_of
from bolt.training.outputs import Classes

CLASSES = ["control", "autism"]


def committed_folds() -> pd.DataFrame:
    """Return the folds as ``folds.tsv`` has them, with site and label; every person has one scan."""
    table = read_table(FOLDS, text=("scan_id",)).melt(["scan_id", "site", "label"], var_name="fold", value_name="role")
    subject = {"subject": table["scan_id"], "group": table["scan_id"]}
    return table.assign(fold=table["fold"].str.removeprefix("fold_").astype(int), seed=0, **subject)


def kept_models(folds: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the probability of autism by fold and scan, of each row of the benchmark of which all folds are kept."""
    kept = {
        run: table.set_index(["fold", "scan_id"])["p_autism"] for run, table in read_table(PREDICTIONS).groupby("run")
    }
    rows = rows_of(load_experiment("abide_benchmark"), Config(dataset="abide1"))
    runs = {row.row: kept.get(model.run_name, ()) for row, model in rows}
    return {row: found for row, found in runs.items() if len(found) == (folds["role"] == "test").sum()}


def predictions(folds: pd.DataFrame, p_autism: pd.Series) -> pd.DataFrame:
    """Return a table like ``predictions.tsv``; only test scans have a prediction."""
    p = p_autism.reindex(pd.MultiIndex.from_frame(folds[["fold", "scan_id"]])).to_numpy()
    return folds.assign(**Classes(CLASSES).columns(pd.DataFrame({"p_control": 1 - p, "p_autism": p}).to_numpy()))


def judge(theirs: Path) -> pd.DataFrame:
    """Return a row for their model and for each of ours: metrics, and their advantage with p.

    Raises
    ------
    DataError
        As `bolt.models.parts.given.probabilities_of`.
    """
    folds = committed_folds()
    rows = {"theirs": predictions(folds, probabilities_of(theirs, CLASSES, folds)["p_autism"])}
    rows |= {row: predictions(folds, p) for row, p in kept_models(folds).items()}
    compared = compare_all(rows, "theirs", CLASSES).query("metric == 'auc'").set_index("row")
    found = []
    for row, table in rows.items():
        tests = table[table["role"] == "test"]
        low, high = intervals(tests, CLASSES, over_folds=True)["auc"]
        means = by_fold(tests, CLASSES).mean()[["accuracy", "auc", "brier"]]
        found.append({"model": row, **means, "auc_low": low, "auc_high": high})
    table = pd.DataFrame(found).set_index("model")
    table["theirs_minus_model_auc"], table["p_holm"] = compared["difference"], compared["corrected_t_p_holm"]
    return table.sort_values("auc", ascending=False)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("theirs", type=Path)
    try:
        print(judge(parser.parse_args().theirs).round(3).to_string(na_rep=""))
    except BoltError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
