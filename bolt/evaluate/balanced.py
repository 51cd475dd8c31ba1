"""What performance would be if the classes were alike in motion, age, sex and site, from kept predictions.

Overlap weights (Li, Morgan and Zaslavsky 2018, doi:10.1080/01621459.2016.1260466): a scan counts by the probability of
the *other* class given its covariates (1 - e or e, where e is the propensity of the positive class). Both classes then
have the same distribution of the covariates, that of people who could be in either; they weigh the same.

The propensity is a logistic regression, fitted to other people than those it weights. Intervals are normal on the logit
scale, with the standard error of a bootstrap over groups that fits the propensity again, and the t quantile of the
effective sample size: percentiles miss the truth more often, as does scikit-learn's default penalty, which leaves
differences between the classes (``benchmarks/README.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit

from bolt.evaluate.intervals import NO_INTERVAL, quantile
from bolt.evaluate.metrics import fold_predictions
from bolt.evaluate.scores import Floats, Positions, class_arrays, model_of, ranking_of, scores, with_ranks
from bolt.io.files import columns, write_table

COVARIATES = {"mean_fd": "motion", "age": "age", "sex": "sex", "site": "site"}
METRICS = ("auc", "balanced_accuracy", "brier")
COLUMNS = columns("evaluate", "balanced")
ALL, BALANCED = "all scans with known covariates", "balanced"
"""Populations."""
KNOWN = 0.8
"""Share of the scans of which a covariate must be known; scans without it are left out."""
FEWEST = 15
"""Effective number of people in each class: with fewer, weights rest on a handful of them."""
LARGEST = {"mean_fd": 0.25, "age": 0.25, "sex": 0.1, "site": 0.1}
"""Weighted differences beyond which classes are not balanced: standardised for numbers (Stuart 2010,
doi:10.1214/09-STS313), of shares for a sex or a site."""
PENALTY = 0.1
"""Ridge penalty of the propensity, 1/C of scikit-learn."""
FOLDS = 5


def balanced(
    tests: pd.DataFrame, scans: pd.DataFrame, classes: Sequence[str], *, draws: int = 300, seed: int = 0
) -> pd.DataFrame:
    """Compute performance in all scans, in the balanced population, and within strata of motion and site.

    Parameters
    ----------
    tests : DataFrame
        Test rows of the ``predictions.tsv`` of all folds.
    scans : DataFrame
        scan_id, and those of `COVARIATES` that are known.
    classes : sequence of str
        Two, the last is the positive one.
    draws, seed : int
        Of the bootstrap.

    Returns
    -------
    DataFrame
        `COLUMNS`. Where the classes hardly overlap, the balanced population has no values, and `note` says why.
    """
    about = scans.set_index("scan_id").reindex(columns=list(COVARIATES))
    rows = tests.drop(columns=[*COVARIATES], errors="ignore").join(about, on="scan_id")
    used = [name for name in COVARIATES if may_confound(rows, name)]
    rows = rows.dropna(subset=used).reset_index(drop=True)
    used = [name for name in used if may_confound(rows, name)]  # what is left may be of one site
    names = ", ".join(COVARIATES[name] for name in used)
    group = np.unique(rows["group"].astype(str), return_inverse=True)[1]
    truth, predicted, probability = class_arrays(rows, classes)
    refusal = "" if used else "motion, age, sex and site are unknown, or the same in all scans"
    for k, name in enumerate(classes):
        if not refusal and (n := len(np.unique(group[truth == k]))) < FEWEST:
            refusal = f"{n} people with label {name} and known {names}, too few to balance (at least {FEWEST})"
    if refusal:
        return pd.DataFrame([{"population": BALANCED, "n_scans": len(rows), "note": refusal}], columns=list(COLUMNS))

    random, n = np.random.default_rng(seed), int(group.max()) + 1
    counts = np.vstack([np.ones(n), random.multinomial(n, np.full(n, 1 / n), size=draws)])[:, group].astype(float)
    counts = counts[(counts @ truth > 0) & (counts @ (1 - truth) > 0)]  # draws of both classes
    x, fold = design(rows, used), (random.permutation(n) % FOLDS)[group]
    e = propensity(x, truth, counts, fold)
    weight = _alike(counts * np.where(truth == 1, 1 - e, e), truth)
    sizes = {name: effective_size(weight[0], truth == k, group) for k, name in enumerate(classes)}
    refusal = _refusal(weight[0], truth, rows, used, sizes)

    def measured(population: str, weights: Floats, stratum: Positions, ranking: Floats | None = None) -> pd.DataFrame:
        values = scores(truth, predicted, probability, weights, stratum, ranking)
        n_effective = sum(effective_size(weights[0], truth == k, group) for k in (0, 1))
        ends = {metric: ends_of(values[metric], n_effective - 2) for metric in METRICS}
        facts = {"population": population, "covariates": "", "n_scans": len(rows), "effective_n": n_effective}
        found = [{"metric": m, "value": values[m][0], "low": ends[m][0], "high": ends[m][1]} for m in METRICS]
        return pd.DataFrame(found).assign(**facts)

    tables = [measured(ALL, _alike(counts, truth), model_of(rows))]
    tables.append(measured(BALANCED, weight, model_of(rows)).assign(covariates=names))
    if refusal:
        tables[1] = tables[1].assign(value=np.nan, low=np.nan, high=np.nan, note=refusal)
    ranking = ranking_of(with_ranks(rows, classes), classes)  # a stratum has too few scans per fold
    strata = {}
    if "mean_fd" in used:
        strata["tertiles of motion"] = pd.qcut(rows["mean_fd"], 3, labels=False, duplicates="drop").to_numpy()
    if "site" in used:
        strata["sites"] = np.unique(rows["site"].astype(str), return_inverse=True)[1]
    for name, stratum in strata.items():
        within = measured(f"within {name}", counts, stratum, ranking)
        tables.append(within[(within["metric"] == "auc") & within["value"].notna()])  # a site may have one class
    return pd.concat(tables, ignore_index=True).reindex(columns=list(COLUMNS))


def may_confound(rows: pd.DataFrame, name: str) -> bool:
    """Return whether a covariate of labelled scans is known and varies, and is not the label itself (as sex may be)."""
    values = rows[name].dropna()
    if len(values) < KNOWN * len(rows) or values.nunique() < 2:
        return False
    initials = [column.astype(str).str[0].str.lower() for column in (values, rows.loc[values.index, "label"])]
    return name != "sex" or not initials[0].equals(initials[1].rename(name))


def design(rows: pd.DataFrame, used: Sequence[str]) -> Floats:
    """Return the inputs of the propensity, (n, features): a constant, numbers and their squares, and categories.

    Motion is skewed, so its logarithm enters. Squares balance the variances, too: patients move more, and less alike.
    """
    inputs = [np.ones(len(rows))]
    for name in used:
        if name in ("mean_fd", "age"):
            values = rows[name].to_numpy(float)
            values = np.log(values.clip(1e-3)) if name == "mean_fd" else values
            z = (values - values.mean()) / values.std()
            inputs += [z, (z**2 - 1) / np.sqrt(2)]
        else:
            inputs += list(pd.get_dummies(rows[name].astype(str)).to_numpy(float).T)
    return np.stack(inputs, axis=1)


def propensity(x: Floats, truth: Positions, counts: Floats, fold: Positions) -> Floats:
    """Return the probability of the positive class given the covariates, predicted for each fold by the others.

    Parameters
    ----------
    x : float array (n, features)
        `design`.
    truth : int array (n,)
    counts : float array (draws, n)
        How often each scan is drawn.
    fold : int array (n,)

    Returns
    -------
    float array (draws, n)
    """
    e = np.empty_like(counts)
    for k in np.unique(fold):
        e[:, fold == k] = expit(logistic(x, truth, counts * (fold != k)) @ x[fold == k].T)
    return e


def logistic(x: Floats, truth: Positions, counts: Floats) -> Floats:
    """Fit ridge-penalised logistic regressions, one per weighting of the rows, by Newton's method; (draws, features).

    The constant, the first feature, is not penalised. scikit-learn's `LogisticRegression` gives the same, one fit at a
    time: 1,500 of them take six seconds, these half a second.
    """
    n_features = x.shape[1]
    squares = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    penalty = np.diag([1e-6] + [PENALTY] * (n_features - 1))
    beta = np.zeros((len(counts), n_features))
    for _ in range(20):
        e = expit(beta @ x.T)
        gradient = (counts * (truth - e)) @ x - beta @ penalty
        hessian = ((counts * e * (1 - e)) @ squares).reshape(-1, n_features, n_features) + penalty
        change = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        beta += change
        if abs(change).max() < 1e-6:
            break
    return beta


def _alike(weight: Floats, truth: Positions) -> Floats:
    """Scale weights, (draws, n), so that each class has a total of 1."""
    totals = np.where(truth == 1, (weight @ truth)[:, None], (weight @ (1 - truth))[:, None])
    return weight / totals


def effective_size(weight: Floats, chosen: NDArray[np.bool_], group: Positions) -> float:
    """Return Kish's effective number of groups among the chosen rows."""
    of_group = np.bincount(group[chosen], weight[chosen])
    return float(of_group.sum() ** 2 / (of_group**2).sum())


def ends_of(values: Floats, freedom: float) -> tuple[float, float]:
    """Return the interval of the first value, a share, from the others, its bootstrap draws."""
    if not np.isfinite(values[0]) or np.isfinite(values[1:]).sum() < 2:
        return NO_INTERVAL
    on_line = logit(values[np.isfinite(values)].clip(1e-3, 1 - 1e-3))
    half = quantile(max(freedom, 1)) * on_line[1:].std(ddof=1)
    return float(expit(on_line[0] - half)), float(expit(on_line[0] + half))


def _refusal(
    weight: Floats, truth: Positions, rows: pd.DataFrame, used: Sequence[str], sizes: Mapping[str, float]
) -> str:
    """Return why the balanced population says nothing, or ""."""
    sign, equal = np.where(truth == 1, 1, -1), _alike(np.ones((1, len(truth))), truth)[0]
    before, left = (
        {name: float(abs((each * sign) @ design(rows, [name])).max()) / LARGEST[name] for name in used}
        for each in (equal, weight)
    )
    smallest = min(sizes, key=lambda name: sizes[name])
    if sizes[smallest] < FEWEST:
        most = COVARIATES[max(before, key=lambda name: before[name])]
        few = f"effective n {sizes[smallest]:.0f} ({smallest}; at least {FEWEST})"
        return f"{' and '.join(sizes)} overlap too little, least of all in {most}: {few}"
    worst = max(left, key=lambda name: left[name])
    if left[worst] > 1:
        unit = "standard deviations" if worst in ("mean_fd", "age") else "in the share of one"
        still = f"after weighting they differ by {left[worst] * LARGEST[worst]:.2f} {unit} (at most {LARGEST[worst]})"
        return f"{' and '.join(sizes)} overlap too little in {COVARIATES[worst]}: {still}"
    return ""


def write_balanced(
    seed_folder: Path, classes: Sequence[str] | None, folds: Sequence[int], scans: pd.DataFrame, path: Path
) -> None:
    """Write `balanced` of a run's finished folds; no rows unless there are two classes.

    Parameters
    ----------
    seed_folder, classes, folds
        As in `bolt.evaluate.metrics.summarise`.
    scans : DataFrame
        As in `balanced`.
    path : Path
    """
    table = pd.DataFrame(columns=list(COLUMNS))
    read = [fold_predictions(seed_folder / f"fold-{fold}") for fold in folds]
    finished = [predictions for state, _, predictions in read if state == "ok"]
    if classes and len(classes) == 2 and finished:
        tests = pd.concat(finished, ignore_index=True)
        table = balanced(tests[tests["role"] == "test"], scans, classes)
    write_table(table, path, COLUMNS)
