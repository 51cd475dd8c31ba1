"""Compare settings of BolT within the training sides of ABIDE-I's folds: ``abide_tuning*.tsv``.

    python -m benchmarks.abide_tuning [RESULTS --scratch FOLDER [--rows NAME ...]]

Without RESULTS it trains nothing, and writes the table of what is kept. RESULTS is the folder ``results/abide1`` of a
run of ``config/examples/abide1.yaml``, whose series and folds are read. The training side of each of its ten outer
folds is split again, into an inner training, validation and test part; each row of ``abide_tuning.yaml`` is trained on
the first, may choose by the second, and is compared with the others on the third. The test scans of an outer fold are
not read in that fold, but each is in the training sides of the nine others. Rows and folds that are in the tables are
not trained again.

`POOLS` combine the predictions of rows as `bolt.models.ensemble` does, fitted to the inner validation scans. They were
computed after the final run (abide_tuned.py), and chose nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from bolt.config import ROOT, Model, load_config, load_experiment
from bolt.config.study import Study
from bolt.experiments.entries import rows_of
from bolt.folds.splits import FOLD_COLUMNS, make_inner_folds
from bolt.io.files import read_table, write_table
from bolt.models.ensemble import Ensemble
from bolt.models.parts.calibration import fit_temperature, with_temperature
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds

HERE = Path(__file__).parent
NAME = "abide_tuning"
PREDICTIONS, TABLE = HERE / f"{NAME}_predictions.tsv", HERE / f"{NAME}.tsv"
INNER = 10  # parts of a training side, of which the first is tested
EQUAL = 1e9  # so strong a prior that weights are equal
LINEAR = ("ridge", "tangent")
POOLS = {
    "pool: ridge, tangent": (LINEAR, EQUAL),
    "pool: start, ridge, tangent": (("start", *LINEAR), EQUAL),
    "pool: kept together, ridge, tangent": (("kept together", *LINEAR), EQUAL),
    "the same, prior 100": (("kept together", *LINEAR), 100),
    "the same, free weights": (("kept together", *LINEAR), 0),
}
KEYS = {
    "fold": "outer fold",
    "scan_id": "scan of its training side",
    "role": "inner role: validation or test",
    "label": "diagnosis",
}
RUN = "predicted probability of autism by this run (name of the model and a hash of its settings), five decimals"
TABLE_COLUMNS = {
    "row": "row of abide_tuning.yaml, or a pool of rows (with equal weights unless it says otherwise)",
    "folds": "outer folds whose training side was split and trained on",
    "auc": "area under the ROC curve of the inner test scans, mean over folds",
    "difference": "difference from the first row on the same folds, mean",
    "difference_se": "its standard error over folds",
    "accuracy": "share of inner test scans classified correctly",
    "log_loss": "of the inner test scans, mean",
    "log_loss_scaled": "the same with a temperature fitted to the fold's inner validation scans",
    "temperature": "geometric mean of these temperatures; above 1: the model is too sure",
}


def kept() -> pd.DataFrame:
    """Read what was predicted before: a row per run and scan, with the columns of `KEYS`, ``run`` and ``p_autism``."""
    if not PREDICTIONS.is_file():
        return pd.DataFrame(columns=[*KEYS, "run", "p_autism"])
    table = read_table(PREDICTIONS, text=("scan_id",))
    return table.melt(list(KEYS), var_name="run", value_name="p_autism").dropna(subset="p_autism")


def keep(predictions: pd.DataFrame) -> None:
    """Write predictions, a column per run."""
    wide = predictions.pivot(index=list(KEYS), columns="run", values="p_autism").round(5).reset_index()
    write_table(wide, PREDICTIONS, KEYS | dict.fromkeys(wide.columns.difference(list(KEYS)), RUN))


def rows_in_file() -> list[tuple[str, Model]]:
    """Return the rows of ``abide_tuning.yaml`` with their models."""
    experiment = load_experiment(str(HERE / f"{NAME}.yaml"))
    return [(row.row, model) for row, model in rows_of(experiment, load_config(ROOT / "config/examples/abide1.yaml"))]


def split(results: Path, fold: int, scratch: Path) -> Path:
    """Write the inner split of an outer fold; it has the number of the outer fold, so that seeds differ."""
    study = Study.of(load_config(results / "config.yaml"))
    folds = read_table(results / "folds.tsv", text=("scan_id", "subject", "group"))
    scans = read_table(results / "scans.tsv", text=("scan_id", "subject", "group"))
    scans = scans[scans["scan_id"].isin(folds["scan_id"])]
    inner = make_inner_folds(folds, scans, fold, study.config.folds, INNER)
    first = inner[inner["fold"] == inner["fold"].min()].assign(fold=fold)
    outer_test = folds.loc[(folds["fold"] == fold) & (folds["role"] == "test"), "scan_id"]
    assert not first["scan_id"].isin(outer_test).any()
    path = scratch / f"folds-{fold}.tsv"
    write_table(first, path, FOLD_COLUMNS)
    return path


def train(results: Path, rows: list[tuple[str, Model]], folds: list[int], scratch: Path) -> None:
    """Train what is missing, a fold of all rows after the other, and add it to the predictions."""
    study = Study.of(load_config(results / "config.yaml"))
    cache = study.layout.cache(next(iter(study.config.atlas_places)))
    for fold in folds:
        parts = split(results, fold, scratch)
        for _, model in rows:
            before = kept()
            if ((before["run"] == model.run_name) & (before["fold"] == fold)).any():
                continue
            training = Training(fold, 0, scratch / model.run_name / f"fold-{fold}")
            (error,) = train_folds(cache, parts, model, study.dataset, [training], threads=1, progress=False)
            if error:
                raise error
            table = read_table(training.folder / "predictions.tsv", text=("scan_id",)).query("role != 'train'")
            table = table.assign(run=model.run_name)[list(before)]
            keep(pd.concat([part for part in (before, table) if len(part)]))
            tabulate()


def pool(members: list[pd.DataFrame], prior: float) -> pd.DataFrame:
    """Combine the predictions of several rows, fold by fold."""
    table = members[0][list(KEYS)].reset_index(drop=True)
    each = [table.merge(member, on=list(KEYS))["p_autism"] for member in members]
    features = np.stack([column for p in each for column in (1 - p, p)], axis=1)
    pooled: NDArray[np.floating] = np.zeros(len(table))
    for _, fold in table.groupby("fold"):
        known = fold.index[fold["role"] == "validation"]
        ensemble = Ensemble(1, 2, prior=prior)
        ensemble.fit(features[known], (table["label"][known] == "autism").to_numpy(int), known.to_numpy())
        pooled[fold.index] = ensemble.probabilities(features[fold.index])[:, 1]
    return table.assign(p_autism=pooled)


def tabulate() -> None:
    """Write the table of all rows that were trained, and of their pools."""
    by_run = dict(list(kept().groupby("run")))
    tables = {row: by_run[model.run_name] for row, model in rows_in_file() if model.run_name in by_run}
    pools = {title: pool([tables[row] for row in rows], prior) for title, (rows, prior) in POOLS.items()}
    measured = {row: measures(table) for row, table in (tables | pools).items()}
    first = next(iter(measured.values()))["auc"]
    lines = []
    for row, by_fold in measured.items():
        difference = (by_fold["auc"] - first).dropna()
        line = {"row": row, "folds": len(by_fold), **by_fold.mean().to_dict()}
        line |= {"difference": difference.mean(), "difference_se": difference.std() / np.sqrt(len(difference))}
        lines.append(line | {"temperature": np.exp(np.log(by_fold["temperature"]).mean())})
    write_table(pd.DataFrame(lines)[list(TABLE_COLUMNS)].round(4), TABLE, TABLE_COLUMNS)


def measures(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return the measures of a row in each fold."""
    lines = {}
    for fold, table in predictions.groupby("fold"):
        parts = dict(list(table.groupby("role")))
        (known, known_truth), (probability, truth) = (
            (np.stack([1 - part["p_autism"], part["p_autism"]], axis=1), (part["label"] == "autism").to_numpy(int))
            for part in (parts["validation"], parts["test"])
        )
        temperature = fit_temperature(known, known_truth)
        scaled = with_temperature(probability, temperature)
        lines[fold] = {
            "auc": roc_auc_score(truth, probability[:, 1]),
            "accuracy": float(((probability[:, 1] > 0.5) == truth).mean()),
            "log_loss": log_loss(truth, probability),
            "log_loss_scaled": log_loss(truth, scaled),
            "temperature": temperature,
        }
    return pd.DataFrame(lines).T


def main() -> None:
    """Train what is missing, if results are given, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--rows", nargs="+", metavar="NAME")
    parser.add_argument("--folds", nargs="+", type=int, default=list(range(10)))
    options = parser.parse_args()
    if options.results:
        if not options.scratch:
            parser.error("--scratch is needed")
        rows = [row for row in rows_in_file() if not options.rows or row[0] in options.rows]
        train(options.results.resolve(), rows, options.folds, options.scratch)
    tabulate()
    print(read_table(TABLE).to_string(index=False))


if __name__ == "__main__":
    main()
