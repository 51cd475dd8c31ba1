"""Compare settings of BolT on the validation scans of ABIDE-I: ``abide_tuning*.tsv``.

    python -m benchmarks.abide_tuning RESULTS --scratch FOLDER [--rows NAME ...]

RESULTS is the folder ``results/abide1`` of a run of ``config/examples/abide1.yaml``, whose series and folds are read. Each
row of ``abide_tuning.yaml`` is trained on the training scans of each of the ten folds and predicts their validation
scans. Test scans are never read. Rows and folds that are in the tables are not trained again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from bolt.config import Model, load_config, load_experiment
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.experiments.entries import rows_of
from bolt.io.files import read_table, write_table
from bolt.packs.calibration import fit_temperature, with_temperature
from bolt.training.tuning.objective import Objective

HERE = Path(__file__).parent
NAME = "abide_tuning"
PREDICTIONS, TABLE = HERE / f"{NAME}_predictions.tsv", HERE / f"{NAME}.tsv"
KEYS = ["run", "fold"]
PREDICTION_COLUMNS = {
    "run": "run: name of the model and a hash of its settings",
    "fold": "outer fold",
    "scan_id": "validation scan",
    "label": "its diagnosis",
    "p_autism": "predicted probability of autism, six decimals",
}
TABLE_COLUMNS = {
    "row": "row of abide_tuning.yaml",
    "folds": "folds trained",
    "auc": "mean over folds of the area under the ROC curve",
    "difference": "mean over folds of the difference from the first row, on the same folds",
    "difference_se": "its standard error over folds",
    "accuracy": "share of scans classified correctly",
    "log_loss": "mean over scans",
    "log_loss_scaled": "with the temperature fitted to the same scans: how good the ranking of probabilities is",
    "temperature": "that temperature; above 1: the model is too sure",
}


def kept() -> pd.DataFrame:
    """Read what was predicted before."""
    if not PREDICTIONS.is_file():
        return pd.DataFrame(columns=list(PREDICTION_COLUMNS))
    return read_table(PREDICTIONS, text=("scan_id",))


def train(results: Path, rows: list[tuple[str, Model]], folds: list[int], scratch: Path) -> None:
    """Train what is missing, a fold of all rows after the other, and add it to the predictions."""
    config = load_config(results / "config.yaml")
    cache = Layout(config).cache(next(iter(config.atlas_places)))
    for fold in folds:
        for _, model in rows:
            before = kept()
            if ((before["run"] == model.run_name) & (before["fold"] == fold)).any():
                continue
            objective = Objective(cache, results / "folds.tsv", model, Study.of(config).dataset, fold, 0, "auto", 1)
            _, probability = objective.predict(model, scratch / model.run_name / f"fold-{fold}", lambda row: None)
            scans = objective.table[objective.table["role"] == "validation"]
            new = pd.DataFrame({"run": model.run_name, "fold": fold, "scan_id": scans["scan_id"]})
            new = new.assign(label=scans["label"], p_autism=probability[:, -1].round(6))
            tables = [table for table in (kept(), new) if len(table)]
            table = pd.concat(tables, ignore_index=True).sort_values([*KEYS, "scan_id"])
            write_table(table, PREDICTIONS, PREDICTION_COLUMNS)
            tabulate(rows_in_file(results))


def rows_in_file(results: Path) -> list[tuple[str, Model]]:
    """Return the rows of ``abide_tuning.yaml`` with their models."""
    experiment = load_experiment(str(HERE / f"{NAME}.yaml"))
    return [(row.row, model) for row, model in rows_of(experiment, load_config(results / "config.yaml"))]


def tabulate(rows: list[tuple[str, Model]]) -> None:
    """Write the table of all rows that were trained."""
    predictions = kept()
    table = [measures(row, predictions[predictions["run"] == model.run_name]) for row, model in rows]
    aucs = {row: folds for (row, _), (_, folds) in zip(rows, table, strict=True)}
    first = aucs[rows[0][0]]
    lines = []
    for (row, _), (line, folds) in zip(rows, table, strict=True):
        if len(folds):
            difference = (folds - first).dropna()
            error = difference.std() / np.sqrt(len(difference)) if len(difference) > 1 else float("nan")
            lines.append({"row": row, **line, "difference": difference.mean(), "difference_se": error})
    write_table(pd.DataFrame(lines)[list(TABLE_COLUMNS)].round(4), TABLE, TABLE_COLUMNS)


def measures(row: str, predictions: pd.DataFrame) -> tuple[dict[str, float], pd.Series]:
    """Return the measures of a row, and the AUC of each fold."""
    truth = (predictions["label"] == "autism").to_numpy().astype(int)
    probability = np.stack([1 - predictions["p_autism"], predictions["p_autism"]], axis=1).astype(float)
    by_fold = predictions.groupby("fold")
    aucs = by_fold.apply(lambda p: roc_auc_score(p["label"] == "autism", p["p_autism"]), include_groups=False)
    if predictions.empty:
        return {}, pd.Series(dtype=float)
    temperature = fit_temperature(probability, truth)

    def loss(p: np.ndarray) -> float:
        return -float(np.log(p[np.arange(len(truth)), truth].clip(1e-6)).mean())

    line = {"folds": len(aucs), "auc": aucs.mean(), "accuracy": ((probability[:, 1] > 0.5) == truth).mean()}
    line |= {"log_loss": loss(probability), "temperature": temperature}
    return line | {"log_loss_scaled": loss(with_temperature(probability, temperature))}, aucs


def main() -> None:
    """Train what is missing, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", metavar="NAME")
    parser.add_argument("--folds", nargs="+", type=int, default=list(range(10)))
    options = parser.parse_args()
    results = options.results.resolve()
    rows = rows_in_file(results)
    train(results, [row for row in rows if not options.rows or row[0] in options.rows], options.folds, options.scratch)
    tabulate(rows)


if __name__ == "__main__":
    main()
