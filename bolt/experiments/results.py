"""Results of an experiment beside the paper's own values. All numbers are shares, not per cent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from bolt.config import Experiment
from bolt.config.study import Entry, paper_table
from bolt.evaluate.metrics import LOWER_IS_BETTER
from bolt.io.files import columns, read_table

RESULT_COLUMNS = columns("experiments", "results")
FAMILY_COLUMNS = columns("experiments", "families")


def paper_values(experiment: Experiment) -> pd.DataFrame | None:
    """Read the paper's own table of an experiment; adds ``dataset``, ``paper_mean`` and ``paper_sd``, in shares."""
    file = paper_table(experiment.name)
    if not file.is_file():
        return None
    table = read_table(file).rename(columns={"mean_percent": "paper_mean", "sd_percent": "paper_sd"})
    if "dataset" not in table:
        table["dataset"] = experiment.paper.dataset if experiment.paper else None
    shares = ["paper_mean", "paper_sd"]
    table[shares] = table[shares] / 100
    return table.astype({name: str for name in table if name not in shares})


def with_paper(table: pd.DataFrame, entries: Sequence[Entry], paper: pd.DataFrame | None) -> pd.DataFrame:
    """Add the paper's values of the same dataset and atlas, and whether they are inside our intervals."""
    known: dict[tuple[str, str, str, str], tuple[float, float]] = {}
    for entry in entries if paper is not None else []:
        key = {"dataset": entry.paper_dataset, "atlas": entry.atlas, **entry.paper}
        if paper is None or not entry.paper or not set(key) <= set(paper):
            continue
        rows = paper[np.logical_and.reduce([paper[column] == value for column, value in key.items()])]
        for row in rows.itertuples():
            known[entry.dataset, entry.atlas, entry.row, str(row.metric)] = (row.paper_mean, row.paper_sd)
    keys = list(zip(table["dataset"], table["atlas"], table["row"], table["metric"], strict=True))
    table = table.reindex(columns=list(RESULT_COLUMNS))
    table[["paper_mean", "paper_sd"]] = np.array([known.get(key, (np.nan, np.nan)) for key in keys]).reshape(-1, 2)
    numbers = [*table.loc[:, "mean":"sd_seeds_within"], *table.loc[:, "low":"no_skill"]]  # type: ignore[misc]
    table[numbers] = table[numbers].astype(float)
    table["difference"] = table["mean"] - table["paper_mean"]
    inside = table["paper_mean"].between(table["low"], table["high"]).map({True: "true", False: "false"})
    table["paper_inside"] = inside.where(table["difference"].notna() & table["low"].notna(), None)
    return table


def families(
    table: pd.DataFrame,
    family_of: Mapping[str, str],
    reference: str,
    column: str = "mean",
    reconstructed: Sequence[str] = (),
) -> pd.DataFrame:
    """Return how much better the reference is than the methods of each family, averaged over methods and atlases.

    Parameters
    ----------
    table : DataFrame
        ``dataset``, ``atlas``, ``row``, ``metric``, and the `column` of values; NaN if a row is incomplete.
    family_of : mapping
        Row to family; other rows are excluded.
    reference : str
        The row that others are compared with.
    column : str
    reconstructed : sequence of str
        Rows that are not the original methods; those in a mean are named beside it.

    Returns
    -------
    DataFrame
        `FAMILY_COLUMNS` without the paper's, in the order of `table` and of `family_of`.
    """
    keys = ["dataset", "atlas", "metric"]
    of_reference = table[table["row"] == reference].set_index(keys)[column]
    others = table[(table["row"] != reference) & table["row"].isin(family_of)]
    others = others.assign(family=others["row"].map(family_of))
    others["gain"] = of_reference.reindex(pd.MultiIndex.from_frame(others[keys])).to_numpy() - others[column].to_numpy()
    others["unknown"] = others["row"].where(others["row"].isin(reconstructed) & others["gain"].notna())
    grouped = others.groupby(["dataset", "family", "metric"], sort=False)
    gains = grouped["gain"].agg(improvement="mean", n_pairs="count", expected_pairs="size")
    names = grouped["unknown"].agg(lambda rows: "; ".join(dict.fromkeys(rows.dropna())) or None)
    gains = gains.assign(reconstructed=names).reset_index()
    family_order = {family: i for i, family in enumerate(dict.fromkeys(family_of.values()))}
    dataset_order = {name: i for i, name in enumerate(gains["dataset"].unique())}
    order = np.lexsort([gains["family"].map(family_order), gains["dataset"].map(dataset_order)])
    return gains.iloc[order].reset_index(drop=True)


def family_table(results: pd.DataFrame, entries: Sequence[Entry], reference: str) -> pd.DataFrame:
    """Return `FAMILY_COLUMNS` of an experiment; no rows if all methods are of one family.

    Only complete rows count, so that our average and the paper's are over the same rows, atlases and metrics. Rows that
    are not in the paper, on a dataset that is, form families of their own.
    """
    family_of = {entry.row: entry.model.family for entry in entries if entry.model.family and entry.row != reference}
    if len(set(family_of.values())) < 2 or reference not in set(results["row"]):
        return pd.DataFrame(columns=list(FAMILY_COLUMNS))
    results = results[~results["metric"].isin(LOWER_IS_BETTER)]
    keys, in_paper = ["dataset", "family", "metric"], results["paper_mean"].notna()
    metric_in_paper = in_paper.groupby([results["dataset"], results["metric"]]).transform("any")
    complete = results["n_folds"] == results["expected_folds"]
    counts = complete & (in_paper | ~metric_in_paper)
    shared = results.assign(mean=results["mean"].where(counts), paper_mean=results["paper_mean"].where(counts))
    new = ~in_paper.groupby([results[key] for key in ("dataset", "atlas", "row")]).transform("any")
    new &= in_paper.groupby(results["dataset"]).transform("any") & (results["row"] != reference)
    unknown = [e.row for e in entries if e.model.fidelity and e.model.fidelity.level == "reconstructed"]
    ours, theirs = (families(shared[~new], family_of, reference, column, unknown) for column in ("mean", "paper_mean"))
    theirs = theirs.rename(columns={"improvement": "paper_improvement"})[[*keys, "paper_improvement"]]
    others = results.assign(mean=results["mean"].where(complete))[new | (results["row"] == reference)]
    others = families(others, family_of, reference, reconstructed=unknown)
    others["family"] += ", not in the paper"
    parts = [part for part in (ours.merge(theirs, on=keys, how="left"), others) if len(part)]
    table = pd.concat(parts, ignore_index=True).reindex(columns=list(FAMILY_COLUMNS))
    order = {name: i for i, name in enumerate(dict.fromkeys(results["dataset"]))}
    return table.sort_values("dataset", key=lambda names: names.map(order), kind="stable", ignore_index=True)
