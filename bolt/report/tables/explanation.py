"""Tables of the explanation page.

Landmark regressions as read from files, and the paper's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config.study import paper_table
from bolt.evaluate.classes import METRICS
from bolt.explain.tasks import COURSE
from bolt.explain.trust.faithfulness import CONTROLS, difference_columns
from bolt.explain.trust.similarity import GONE
from bolt.explain.weights import CONTROL_WEIGHTS, UNBIASED
from bolt.io.files import read_table, read_yaml
from bolt.report.tables.numbers import DASH, decimal, interval, mean_sd, metric_name, number, p_value, shown_as, signed

TASK_KEYS = list(COURSE)
NAMES: dict[str, Any] = read_yaml(Path(__file__).parents[1] / "explanation.yaml")
ORDERS: dict[str, str] = NAMES["orders"]
CONTROL_NAMES: dict[str, str] = NAMES["control_names"]
REPLACED_BY: dict[str, str] = NAMES["replaced_by"]
SANITY_CHECKS: dict[str, str] = NAMES["sanity_checks"]
SUMMARIES = ("mean", "lowest", "highest")
"""Rows of ``stability.tsv`` over all pairs."""


def landmark_table(table: pd.DataFrame, paper: pd.DataFrame, *, expected: int) -> pd.DataFrame:
    """Return mean ± sd over folds of the landmark regressions (``landmarks.tsv``), the paper's values below.

    `expected` are all folds of the cross-validation, of each seed in the table.
    """
    keys = ["fold", "importance", "tokens", "level"]
    indexed = table[table["fold"].isin(["mean", "sd"])].set_index(keys).sort_index()
    by_scan, by_subject = (indexed.xs(level, level="level")[list(METRICS)] for level in ("scan", "subject"))
    rows = []
    for level, level_name in NAMES["levels"].items():
        if level == "scan" and by_scan.equals(by_subject):
            continue
        for (tokens, volumes), importance in product(NAMES["volumes"].items(), ("fitted", "none", "inner")):
            if ("mean", importance, tokens, level) not in indexed.index:
                continue
            mean, sd = (indexed.loc[(fold, importance, tokens, level)] for fold in ("mean", "sd"))
            name = NAMES["unseen"].format(volumes=volumes) if importance == "inner" else volumes
            values = {metric_name(m): mean_sd(mean[m], sd[m], shown_as(m)) for m in METRICS}
            folds = f"{mean['n_test']:.0f} of {expected}"
            rows.append({"prediction per": level_name, "volumes": name, **values, "folds": folds})
    for tokens, part in paper.groupby("tokens", sort=False):
        known = part.set_index("metric")
        values = {metric_name(m): mean_sd(known.at[m, "mean"], known.at[m, "sd"], shown_as(m)) for m in METRICS}
        rows.append({"prediction per": "the paper", "volumes": str(tokens), **values, "folds": DASH})
    return pd.DataFrame(rows)


def selected_rois(table: pd.DataFrame) -> pd.DataFrame:
    """Return the selected ROIs of every class (``roi_weights.tsv``)."""
    selected = table[table["selected"].astype(bool)]
    return pd.DataFrame(
        {
            "class": selected["class"],
            "rank": selected["rank"].map(number),
            "ROI": selected["name"],
            "network": selected["network"].fillna(DASH),
            "hemisphere": selected["hemisphere"].fillna(DASH),
            "weight (log odds per SD)": [
                f"{w:.2f} ± {s:.2f}" for w, s in zip(selected["weight"], selected["weight_sd"], strict=True)
            ],
            "odds ratio − 1": selected["importance"].map(lambda v: number(v, 2)),
            "selected in folds (%)": selected["selection_frequency"].map(lambda v: f"{100 * v:.0f}"),
            "same sign on control volumes": [_agreeing(row) for row in selected.to_dict("records")],
        }
    )


def _agreeing(row: dict[Any, Any]) -> str:
    """Name the unbiased controls in which the weight of a ROI has the same sign."""
    names = [name for name in UNBIASED if row[CONTROL_WEIGHTS[name]] * row["weight"] > 0]
    return "both" if len(names) == len(UNBIASED) else ", ".join(names) or "none"


def sign_counts(table: pd.DataFrame) -> str:
    """State for how many selected ROIs the weight keeps its sign in both unbiased controls, and in each control."""
    selected = table[table["selected"].astype(bool)]
    kept = {name: (selected[column] * selected["weight"] > 0).sum() for name, column in CONTROL_WEIGHTS.items()}
    counts = ", ".join(f"{kept[name]} with {NAMES['control_volumes'][name]}" for name in UNBIASED)
    turned = f"{kept['wrong class']} with volumes chosen for the wrong class, which are expected to reverse it"
    return f"{selected['sign_agrees'].astype(bool).sum()} of {len(selected)} ({counts}; {turned})"


def selected_networks(table: pd.DataFrame) -> pd.DataFrame:
    """Return the networks with selected ROIs, per class (``networks.tsv``)."""
    selected = table[table["n_selected"] > 0]
    return pd.DataFrame(
        {
            "class": selected["class"],
            "network": selected["network"].fillna(DASH),
            "selected ROIs": [f"{s} of {n}" for s, n in zip(selected["n_selected"], selected["n_rois"], strict=True)],
        }
    )


def strongest_connections(table: pd.DataFrame, places: Mapping[int, str]) -> pd.DataFrame:
    """Return the strongest connections of every class (``connections.tsv``), ROIs with their places, by label value."""
    shown = {"class": table["class"]} if table["class"].nunique() > 1 else {}
    shown["rank"] = table["rank"].map(number)
    for end, title in (("a", "ROI"), ("b", "other ROI")):
        where = table[f"value_{end}"].map(places)
        shown[title] = table[f"name_{end}"].where(where.isna(), table[f"name_{end}"] + " " + where)
        if table[f"network_{end}"].notna().any():
            shown["network" if end == "a" else "its network"] = table[f"network_{end}"].fillna(DASH)
    shown["correlation"] = table["r"].map(lambda r: f"{r:+.2f}".replace("-", "−"))
    shown["p (corrected)"] = table["p"].map(p_value)
    shown["same sign in folds (%)"] = table["same_sign"].map(lambda share: f"{100 * share:.0f}")
    return pd.DataFrame(shown)


def alignment_table(aligned: pd.DataFrame) -> pd.DataFrame:
    """Return how importance is distributed over event types (``tasks_alignment.tsv``)."""
    keys = list(aligned[TASK_KEYS].itertuples(index=False, name=None))
    names = task_titles(list(dict.fromkeys(keys)))
    return pd.DataFrame(
        {
            "task": [names[key] for key in keys],
            "events": aligned["trial_type"],
            "time (%)": [f"{100 * share:.0f}" for share in aligned["share_of_time"]],
            "importance (%)": [f"{100 * share:.0f}" for share in aligned["share_of_importance"]],
            "ratio": [f"{ratio:.2f}" for ratio in aligned["ratio"]],
            "by position alone": [decimal(ratio) for ratio in aligned["ratio_untrained"]],
            "p (Holm-corrected)": [p_value(p) for p in aligned["p_holm"]],
            "scans": aligned["n_scans"].astype(str),
        }
    )


def task_titles(keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Name each class, task and run by what tells it apart from the others of its class."""
    named = {}
    for name, task, run in keys:
        same_class = [key for key in keys if key[0] == name]
        parts = [name]
        parts += [task] if task and task != name and len({key[1] for key in same_class}) > 1 else []
        parts += [f"run {run}"] if run and len({key[2] for key in same_class if key[1] == task}) > 1 else []
        named[name, task, run] = " · ".join(parts)
    return named


def stability_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return agreement between folds and between seeds: a row per class, and one for importance."""
    groups = table.groupby(["between", "what", "class"], sort=False, dropna=False)
    rows = []
    for (between, what, name), part in groups:
        summary = part[part["one"].isin(SUMMARIES)].set_index("one")
        n_pairs = len(part) - len(summary)
        mean = summary.loc["mean"]
        pairs = f"{n_pairs} pair{'s' * (n_pairs != 1)} of {between}"
        if what == "halves":
            pairs = f"{n_pairs} split{'s' * (n_pairs != 1)}{' (two seeds)' if between == 'seeds' else ''}"
        kind = NAMES["agreement"][what]
        rows.append(
            {
                "": kind if pd.isna(name) else f"{kind}, {name}",
                "between": pairs,
                "correlation": _mean_and_range(summary["pearson"]),
                "permuted labels [95 % below]": _null(mean["pearson_null"], mean["pearson_null_high"]),
                "p": p_value(mean["p"]),
                "rank correlation": _mean_and_range(summary["spearman"]),
                "mean curve not removed": _mean_and_range(summary["spearman_raw"]),
                "Dice": decimal(mean["dice"]),
                "Dice, permuted [95 % below]": _null(mean["dice_null"], mean["dice_null_high"]),
                "same class (%)": DASH if pd.isna(mean["same_class"]) else f"{100 * mean['same_class']:.0f}",
            }
        )
    frame = pd.DataFrame(rows)
    return frame[[column for column in frame if (frame[column] != DASH).any()]]


def _null(mean: Any, high: Any) -> str:
    return DASH if pd.isna(mean) else f"{decimal(mean)} [{decimal(high)}]"


def _mean_and_range(values: pd.Series) -> str:
    if values["lowest"] == values["highest"]:
        return decimal(values["mean"])
    return interval(values["mean"], values["lowest"], values["highest"], decimal)


def sanity_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the outcome of the sanity checks, over all folds and per fold (``sanity.tsv``)."""
    rows: list[dict[str, str]] = []
    for end in table[table["verdict"].notna()].itertuples():
        same = table["check"] == end.check
        if pd.notna(end.step):
            same &= table["step"] == end.step
        for row in table[same].itertuples():
            over_all, contrast, verdict = row.fold == "all", "", ""
            if pd.notna(getattr(row, "contrast", None)):  # by how much the model trained again exceeds what remains
                contrast = interval(row.contrast, row.contrast_low, row.contrast_high, signed)
            if pd.notna(row.verdict):
                verdict = NAMES["sanity_verdicts"][str(row.verdict)].format(gone=GONE)
            rows.append(
                {
                    "": SANITY_CHECKS[str(end.check)] if over_all else f"fold {row.fold}",
                    "ρ [95 %]": interval(row.rho, row.low, row.high, decimal),
                    "mean curve not removed": interval(row.rho_raw, row.raw_low, row.raw_high, decimal),
                    "test scans": f"{row.n_scans:.0f}",
                    "without ρ": f"{row.n_undefined:.0f}",
                    "beyond what remains": contrast,
                    "importance": verdict,
                    "note": row.note if isinstance(row.note, str) and over_all else "",
                }
            )
    frame = pd.DataFrame(rows)
    optional = ("without ρ", "beyond what remains", "note")
    return frame.drop(columns=[name for name in optional if frame[name].isin(["0", ""]).all()])


def area_table(areas: pd.DataFrame) -> pd.DataFrame:
    """Return the area under each curve and its differences from the controls (``faithfulness_areas.tsv``)."""

    def shown(row: dict[Any, Any], columns: Sequence[str], sign: str = "") -> str:
        value, low, high = (row[column] for column in columns)
        return interval(value, low, high, lambda v: decimal(v, 3, sign))

    rows = []
    for row in areas.to_dict("records"):
        better = {control: row[f"better_than_{control}"] for control in CONTROLS}
        beaten = ", ".join(control for control, answer in better.items() if answer == "yes") or "none"
        rows.append(
            {
                "": f"{row['direction']}, {REPLACED_BY[row['replacement']]}",
                "order": ORDERS[row["order"]],
                "area [95 %]": shown(row, ("area", "low", "high")),
                **{f"minus {control} [95 %]": shown(row, difference_columns(control), "+") for control in CONTROLS},
                "better than": DASH if all(map(pd.isna, better.values())) else beaten,
            }
        )
    return pd.DataFrame(rows)


def read_landmarks(file: Path) -> pd.DataFrame:
    """Read ``landmarks.tsv`` or ``subsets.tsv``."""
    return read_table(file, text=("fold", "importance", "tokens", "level"))


def paper_of(dataset: str | None, atlas: str) -> pd.DataFrame:
    """Return the paper's own values as shares: tokens, metric, mean, sd; empty for what the paper does not have.

    Parameters
    ----------
    dataset : str or None
        Which of the paper's datasets, the key `paper` of a dataset's file.
    atlas : str
    """
    table = read_table(paper_table("landmarks"))
    values = table[(table["dataset"] == dataset) & (table["atlas"] == atlas)]
    values = values.assign(mean=values["mean_percent"] / 100, sd=values["sd_percent"] / 100)
    return values[["tokens", "metric", "mean", "sd"]]
