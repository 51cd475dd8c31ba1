"""Performance had the classes been alike (`bolt.evaluate.balanced`): simulated cohorts with known values, and ABIDE-I.

python -m benchmarks.balanced simulate [--runs 200]     # writes balanced.tsv
python -m benchmarks.balanced abide PHENOTYPES.csv      # writes balanced_abide.tsv from kept predictions

In the simulation people differ in motion (log-normal), age, sex and site, all of which may go with the label and with
the score of a model; the known value is that of 400,000 people, weighted by their true propensity.
"""

from __future__ import annotations

from argparse import ArgumentParser
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

from bolt.evaluate.balanced import BALANCED, METRICS, balanced
from bolt.evaluate.scores import scores
from bolt.io.files import write_table

HERE = Path(__file__).parent
CLASSES = ["control", "patient"]


class Case(NamedTuple):
    """How strongly the score depends on the label, both on covariates, and the number of sites."""

    signal: float
    of_label: float
    of_score: float
    sites: int = 3


CASES = {
    "signal": Case(1, 0, 1),
    "confounding": Case(0, 1, 1),
    "both": Case(1, 1, 1),
    "strong confounding, 15 sites": Case(0, 2, 1.5, 15),
    "very strong confounding": Case(0, 5, 1),
}
COLUMNS = {
    "case": "what the score depends on: label (signal), covariates that also go with the label (confounding), or both",
    "n": "people",
    "runs": "simulated cohorts",
    "refused": "cohorts whose classes hardly overlapped",
    "raw_auc": "AUC of 400,000 people",
    "true_auc": "AUC of 400,000 people, weighted by their true overlap weights",
    "bias_auc": "mean of the balanced AUC minus the true one",
    "width_auc": "mean width of its 95 % interval",
    "covered_auc": "share of the intervals that contain the true value, of the cohorts that were not refused",
    "covered_balanced_accuracy": "the same",
    "covered_brier": "the same",
    "contains_half": "share of the intervals of the AUC that contain 0.5",
    "covered_by_raw": "share of the intervals of the AUC of all scans that contain the true balanced value",
}


def simulate(case: Case, n: int, random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Return test predictions, scans and the true propensity of n people."""
    motion, age, site, sex = (*random.normal(size=(2, n)), random.integers(0, case.sites, n), random.integers(0, 2, n))
    of_site = 0.6 * (site % 3 - 1)
    e = expit(case.of_label * (motion + 0.4 * age + 0.5 * (sex - 0.5) + of_site))
    y = (random.random(n) < e).astype(int)
    score = case.signal * (y - 0.5) + case.of_score * (0.6 * motion + 0.3 * age + of_site / 2) + random.normal(size=n)
    p, scan = expit(score), np.arange(n).astype(str)
    tests = pd.DataFrame({"scan_id": scan, "group": scan, "fold": random.permutation(n) % 5, "seed": 0})
    tests["label"], tests["predicted"] = (np.array(CLASSES)[k] for k in (y, (p > 0.5).astype(int)))
    scans = pd.DataFrame({"scan_id": scan, "mean_fd": np.exp(0.6 * motion - 2), "age": 20 + 6 * age})
    scans["sex"], scans["site"] = np.array(["F", "M"])[sex], site.astype(str)
    return tests.assign(p_control=1 - p, p_patient=p), scans, e


def truth(case: Case, n: int = 400_000) -> tuple[dict[str, float], float]:
    """Return the metrics of the balanced population, and the AUC of everybody."""
    tests, _, e = simulate(case, n, np.random.default_rng(0))
    y, called = ((tests[name] == CLASSES[1]).to_numpy(int) for name in ("label", "predicted"))
    weight = np.stack([np.where(y == 1, 1 - e, e), np.ones(n)])
    weight /= np.where(y == 1, (weight @ y)[:, None], (weight @ (1 - y))[:, None])
    found = scores(y, called, tests[["p_control", "p_patient"]].to_numpy(), weight)
    return {metric: found[metric][0] for metric in METRICS}, found["auc"][1]


def simulated(runs: int) -> None:
    """Write `COLUMNS` after each case and size."""
    known, rows = {name: truth(case) for name, case in CASES.items()}, []
    for n, (name, case) in product((60, 200, 800), CASES.items()):
        kept = []
        for run in range(runs):
            tests, scans, _ = simulate(case, n, np.random.default_rng([n, run]))
            kept.append(judged(balanced(tests, scans, CLASSES, draws=100, seed=run), known[name][0]))
        found = [row for row in kept if row]
        about = {"case": name, "n": n, "runs": runs, "refused": runs - len(found)}
        about |= {"raw_auc": known[name][1], "true_auc": known[name][0]["auc"]}
        rows.append(about | (pd.DataFrame(found).astype(float).mean().to_dict() if found else {}))
        print(rows[-1], flush=True)
        write_table(pd.DataFrame(rows).reindex(columns=list(COLUMNS)), HERE / "balanced.tsv", COLUMNS, digits=3)


def judged(table: pd.DataFrame, known: dict[str, float]) -> dict[str, float]:
    """Compare the intervals of one cohort with the known values; {} if it was refused."""
    found, raw = table[table["population"] == BALANCED].set_index("metric"), table.iloc[0]
    if found["value"].isna().any():
        return {}
    low, high = found["low"], found["high"]
    row = {f"covered_{metric}": low[metric] <= known[metric] <= high[metric] for metric in METRICS}
    row |= {"bias_auc": found["value"]["auc"] - known["auc"], "width_auc": high["auc"] - low["auc"]}
    row["covered_by_raw"] = raw["low"] <= known["auc"] <= raw["high"]
    return row | {"contains_half": low["auc"] <= 0.5 <= high["auc"]}


def abide(phenotypes: Path) -> pd.DataFrame:
    """Return the table of each model of which test predictions of ABIDE-I are kept."""
    facts = pd.read_csv(phenotypes)
    facts = facts[facts["FILE_ID"] != "no_filename"]
    scans = pd.DataFrame({"scan_id": facts["FILE_ID"], "mean_fd": facts["func_mean_fd"], "age": facts["AGE_AT_SCAN"]})
    scans["sex"], scans["site"] = facts["SEX"].map({1: "M", 2: "F"}), facts["SITE_ID"]
    label = facts.set_index("FILE_ID")["DX_GROUP"].map({1: "autism", 2: "control"})
    kept = pd.read_csv(HERE / "abide_benchmark_predictions.tsv", sep="\t", dtype={"scan_id": str})
    tuned = pd.read_csv(HERE / "abide_tuned_predictions.tsv", sep="\t", dtype={"scan_id": str}).query(
        "scheme == 'folds'"
    )
    for column, run in (("BolT + linear models, seed 0", "bolt_hybrid"), ("BolT (tuned), seed 0", "bolt_tuned")):
        kept = pd.concat([kept, tuned[["scan_id", "fold"]].assign(run=run, p_autism=tuned[column])])
    tables = []
    for run, tests in kept.groupby("run"):
        p = tests["p_autism"]
        tests = tests.assign(group=tests["scan_id"], seed=0, label=tests["scan_id"].map(label), p_control=1 - p)
        tests = tests.assign(predicted=np.where(p > 0.5, "autism", "control"))
        tables.append(balanced(tests, scans, ["control", "autism"]).assign(run=run))
        print(tables[-1].drop(columns=["covariates"]).to_string(), flush=True)
    return pd.concat(tables, ignore_index=True)


def main() -> None:
    """Run one of the two."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["simulate", "abide"])
    parser.add_argument("phenotypes", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    if options.what == "simulate":
        simulated(options.runs)
    else:
        from bolt.evaluate.balanced import COLUMNS as OF_TABLE

        described = {"run": "name of the model and a hash of its settings", **OF_TABLE}
        table = abide(options.phenotypes)[list(described)]
        write_table(table, HERE / "balanced_abide.tsv", described, digits=4)


if __name__ == "__main__":
    main()
