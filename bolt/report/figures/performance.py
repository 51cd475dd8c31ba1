"""How well models predict: search, training, metrics, calibration, sites, and models compared; who is in a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bolt.evaluate.scores import BINS, METRICS
from bolt.report.figures.style import INK, LINE, MANY, MUTED, WIDTH, canvas, class_colours
from bolt.report.numbers import LEGEND, TOO_FEW, marked, metric_name
from bolt.report.tables import Evaluated

ROW = 0.27  # inches of height
STRIPE = "#f2f4f7"
MOST = 5
"""Rows that are drawn at each site; more cannot be told apart."""
NO_SKILL = {"auc": 0.5, "r": 0.0}
LOGARITHMIC_FROM = 50
"""Ratio of the largest to the smallest positive value that a search tried from which its axis is logarithmic."""


def search(best: Mapping[int, dict[str, Any]], trials: Mapping[int, pd.DataFrame], out: Path) -> None:
    """Draw the validation loss of all trials of a search, and the values tried and chosen, by fold."""
    names = list(next(iter(best.values()))["values"])
    configured = next(iter(trials.values())).iloc[0]
    with canvas(out, height=max(2.6, 0.75 * len(names) + 0.8)) as figure:
        grid = figure.add_gridspec(len(names), 2, width_ratios=(1, 1.15))
        axis: Any = figure.add_subplot(grid[:, 0])
        lowest, highest = np.inf, -np.inf
        for fold, table in trials.items():
            losses, colour = table["validation_loss"].astype(float), MANY[fold % len(MANY)]
            so_far = losses.cummin().ffill()
            axis.plot(table["trial"], losses, "o", ms=2.5, mew=0, alpha=0.5, color=colour)
            axis.step(table["trial"], so_far, where="post", lw=1.3, color=colour, label=f"fold {fold}")
            lowest, highest = min(lowest, losses.min()), max(highest, losses.median(), so_far.max())
        margin = 0.08 * max(highest - lowest, 1e-3)
        axis.set(xlabel="trial", ylabel="validation loss", ylim=(lowest - margin, highest + margin))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.tick_params(colors=MUTED)
        if len(trials) <= 5:
            axis.legend(loc="upper right")
        for row, name in enumerate(names):
            axis = figure.add_subplot(grid[row, 1])
            tried = pd.concat([table[name] for table in trials.values()])
            if tried.dtype.kind in "if" and tried.min() > 0 and tried.max() > LOGARITHMIC_FROM * tried.min():
                axis.set_xscale("log")
                axis.xaxis.set_major_formatter("{x:g}")  # the default writes formulae
                axis.xaxis.set_minor_formatter("")
            axis.plot(tried, np.zeros(len(tried)), "|", ms=9, color=LINE, zorder=1)
            axis.plot([configured[name]], [0], "D", ms=8, mfc="none", mec=INK, zorder=3)
            for place, (fold, found) in enumerate(best.items()):
                height = 0.5 * ((place + 0.5) / len(best) - 0.5)  # equal choices above each other
                axis.plot([found["values"][name]], [height], "o", ms=4.5, color=MANY[fold % len(MANY)], zorder=2)
            axis.set(ylim=(-0.6, 0.6), yticks=[])
            axis.spines["left"].set_visible(False)
            axis.set_title(name.split(".")[-1].replace("_", " "), fontsize=8.5, fontweight="normal")


def training_curves(histories: Mapping[int, pd.DataFrame], out: Path) -> None:
    """Draw ``history.tsv`` of each fold: loss and accuracy (r² of numbers), thin for folds, thick for their mean."""
    colours = {"train": MANY[0], "validation": MANY[1]}
    metric = "r2" if any("train_r2" in history for history in histories.values()) else "accuracy"
    with canvas(out, height=2.6) as figure:
        axes = figure.subplots(1, 2)
        for axis, what in zip(axes, ("loss", metric), strict=True):
            for part, colour in colours.items():
                column = f"{part}_{what}"
                curves = [h.set_index("epoch")[column] for h in histories.values() if column in h]
                for curve in curves:
                    axis.plot(curve.index, curve, color=colour, lw=0.7, alpha=0.35)
                if curves:
                    mean = pd.concat(curves, axis=1).mean(axis=1)
                    axis.plot(mean.index, mean, color=colour, lw=2, label=part)
            axis.set(xlabel="epoch", title={"r2": "r²"}.get(what, what.capitalize()))
            axis.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes[0].set_ylim(bottom=0)
        axes[1].set_ylim(0 if metric == "accuracy" else -1, 1.03)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


def performance(table: pd.DataFrame, pooled: Mapping[str, Any], out: Path) -> None:
    """Draw metrics of folds and of all test scans with 95 % intervals, ROC curve, and confusion matrix."""
    curve = pooled.get("roc")
    with canvas(out, height=3.1) as figure:
        axes = figure.subplots(1, 3 if curve else 2, width_ratios=[1.35, 1, 1] if curve else [1.2, 1])
        folds = table[table["state"] == "ok"]
        for i, metric in enumerate(METRICS):
            spread = np.linspace(-0.12, 0.12, len(folds)) if len(folds) > 1 else np.zeros(len(folds))
            axes[0].plot(folds[metric], i + 0.22 + spread / 2, "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0])
            _estimate(axes[0], pooled[metric], i - 0.12)
        for metric, no_skill in (("accuracy", pooled["majority_accuracy"]), ("auc", 0.5)):
            row = METRICS.index(metric)
            axes[0].vlines(no_skill, row - 0.4, row + 0.45, color=MANY[1], ls="--", lw=1.2)
        axes[0].set_yticks(range(len(METRICS)), [metric_name(metric) for metric in METRICS])
        axes[0].set(ylim=(3.5, -0.6), xlim=(-0.03, 1.03), title="Test scans")
        keys = [
            axes[0].plot([], [], "D-", ms=5, lw=1.6, color=INK, label="all test scans, with 95 % interval")[0],
            axes[0].plot([], [], "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0], label="one fold")[0],
            axes[0].plot([], [], color=MANY[1], ls="--", lw=1, label="no skill (largest class; coin toss)")[0],
        ]
        figure.legend(handles=keys, loc="outside lower left", ncols=3)
        if curve:
            axes[1].plot([0, 1], [0, 1], color=LINE, lw=1, ls="--")
            axes[1].plot(curve["false_positive_rate"], curve["true_positive_rate"], color=MANY[0], lw=1.8)
            axes[1].set(xlabel="false positive rate", ylabel="true positive rate", title="ROC")
            axes[1].set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        counts, classes = np.array(pooled["confusion"]), pooled["classes"]
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        few, two = len(classes) <= 3, len(classes) == 2
        axes[-1].imshow(share, cmap="Blues", vmin=0, vmax=1)
        for (row, column), n in np.ndenumerate(counts):
            look: Any = {"color": "white" if share[row, column] > 0.55 else INK, "fontsize": 8.5 if few else 7.5}
            text = f"{n}\n{share[row, column]:.0%}" if few else str(n)
            axes[-1].text(column, row, text, ha="center", va="center", **look)
        axes[-1].set_xticks(range(len(classes)), classes, rotation=0 if two else 45, ha="center" if two else "right")
        axes[-1].set_yticks(range(len(classes)), classes, rotation=90 if two else 0, va="center")
        axes[-1].set(xlabel="predicted", ylabel="true", title="Confusion")
        axes[-1].tick_params(length=0)


def _estimate(axis: Axes, value: Mapping[str, Any], y: float) -> None:
    """Draw a value, if it is known, with its interval, or with the words that there are too few groups for one."""
    if value["value"] is None:
        return
    axis.plot(value["value"], y, "D", ms=5, color=INK)
    if value["low"] is None:
        right = value["value"] > 0.5
        place: Any = {"xytext": (-7 if right else 7, 0), "ha": "right" if right else "left", "va": "center"}
        axis.annotate(TOO_FEW, (value["value"], y), textcoords="offset points", fontsize=6.5, **place)
    else:
        axis.hlines(y, value["low"], value["high"], color=INK, lw=1.6)


def predicted_numbers(pooled: Mapping[str, Any], out: Path, label: str = "label") -> None:
    """Draw predicted against true numbers of all test scans (``pooled`` of ``summary.json``)."""
    truth, predicted = np.array(pooled["truth"]), np.array(pooled["predicted"])
    ends = (min(truth.min(), predicted.min()), max(truth.max(), predicted.max()))
    with canvas(out, width=WIDTH / 2, height=3.1) as figure:
        axis = figure.subplots()
        axis.plot(ends, ends, color=LINE, lw=1, ls="--")
        axis.plot(truth, predicted, "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0])
        axis.set(xlabel=f"true {label}", ylabel=f"predicted {label}", title="Test scans")


def reliability(calibration: Mapping[str, Sequence[float]], out: Path) -> None:
    """Draw the fraction of correct predictions against their probability (`bolt.evaluate.scores.reliability`)."""
    counts, probability = np.array(calibration["n_scans"]), np.array(calibration["probability"])
    with canvas(out, height=2.6) as figure:
        axis, histogram = figure.subplots(1, 2)
        axis.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--")
        axis.plot(probability, calibration["accuracy"], "o-", color=MANY[0], lw=1.2, ms=5)
        axis.set(ylabel="fraction correct", ylim=(-0.03, 1.03), title="Calibration")
        bins = np.minimum(np.floor(probability * BINS), BINS - 1)
        histogram.bar(bins / BINS, counts, width=1 / BINS, align="edge", color=MANY[0], edgecolor="white", lw=0.7)
        histogram.set(ylabel="test scans", title="Confidence")
        left = BINS // 2 / BINS if probability.min() >= 0.5 else 0.0  # of two classes, the predicted one has the half
        for panel in (axis, histogram):
            panel.set(xlabel="probability of the predicted class", xlim=(left - 0.02, 1.02))


def comparison(runs: Mapping[str, Evaluated], out: Path) -> None:
    """Draw accuracy and AUC of several runs by title: all test scans with 95 % intervals, and folds."""
    with canvas(out, height=1.0 + 0.38 * len(runs)) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, metric, title in zip(axes, ("accuracy", "auc"), ("Accuracy", "AUC"), strict=True):
            for i, (table, pooled) in enumerate(runs.values()):
                folds = table.loc[table["state"] == "ok", metric]
                axis.plot(folds, np.full(len(folds), i + 0.2), "o", ms=3.5, mew=0, alpha=0.5, color=MANY[0])
                _estimate(axis, pooled[metric], i - 0.1)
                no_skill = pooled["majority_accuracy"] if metric == "accuracy" else 0.5
                axis.vlines(no_skill, i - 0.4, i + 0.4, color=MANY[1], ls="--", lw=1.2)
            axis.set(ylim=(len(runs) - 0.5, -0.5), xlim=(-0.03, 1.03), title=title)
        axes[0].set_yticks(range(len(runs)), list(runs))


class Row(NamedTuple):
    """A model in `overview`: ``pooled`` of its ``summary.json``, and whether it sees the brain and has all folds."""

    name: str
    pooled: Mapping[str, Any]
    sees_brain: bool
    complete: bool


def overview(rows: Sequence[Row], metric: str, out: Path) -> None:
    """Draw one metric of all models, best first, with 95 % intervals."""
    known = [row for row in rows if row.pooled[metric]["value"] is not None]
    known.sort(key=lambda row: -row.pooled[metric]["value"])
    no_skill = 0.5 if metric == "auc" else 0.0
    with canvas(out, width=4.6, height=0.75 + 0.27 * max(len(known), 1)) as figure:
        axis = figure.subplots()
        axis.axvline(no_skill, color=MUTED, ls="--", lw=1)
        for y, row in enumerate(known):
            found, colour = row.pooled[metric], MANY[0] if row.sees_brain else MUTED
            if found["low"] is not None:
                axis.hlines(y, found["low"], found["high"], color=colour, lw=2)
            axis.plot(found["value"], y, "D", ms=5, color=colour, mfc=colour if row.complete else "white")
            place: Any = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8.5}
            axis.annotate(f"{found['value']:.2f}", (1.02, y), color=colour, **place)
        lows = [row.pooled[metric][end] for row in known for end in ("low", "value")]
        left = min([no_skill - 0.1, *(low - 0.03 for low in lows if low is not None)])
        axis.set_yticks(range(len(known)), [row.name for row in known])
        axis.set(ylim=(len(known) - 0.5, -0.5), xlim=(left, 1.015), xlabel=metric_name(metric))
        axis.tick_params(axis="y", length=0)


def cohort(scans: pd.DataFrame, classes: Sequence[str], out: Path) -> None:
    """Draw the label against site, sex, age and head motion, as far as they are known."""
    colours = class_colours(classes)
    panels = {"site": "Scans by site", "sex": "Scans by sex", "age": "Age", "mean_fd": "Head motion"}
    names = [name for name in panels if name in scans and scans[name].notna().any()] or ["task"]
    units = {"age": "years", "mean_fd": "mean FD (mm)"}
    many_sites = len(names) > 1 and "site" in names and scans["site"].nunique() > 4  # these get a row of their own
    others = [name for name in names if name != "site"] if many_sites else names
    rows: Any = [["site"] * len(others), others] if many_sites else [others]
    with canvas(out, height=4.6 if many_sites else 2.6) as figure:
        axes = figure.subplot_mosaic(rows)
        for column in names:
            axis = axes[column]
            if column in units:
                _strip(axis, scans, column, colours)
                axis.set_ylabel(units[column])
            else:
                _counts(axis, scans, column, colours)
            axis.set_title(panels.get(column, "Scans"))
        handles = [axes[names[0]].plot([], [], "s", color=c, label=name)[0] for name, c in colours.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(classes), 7))


def _counts(axis: Axes, scans: pd.DataFrame, column: str, colours: Mapping[str, str]) -> None:
    table = pd.crosstab(scans[column].fillna("unknown").astype(str), scans["label"].astype(str))
    shown = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index[:30]]
    bottom = np.zeros(len(shown))
    for name, colour in colours.items():
        heights = shown[name].to_numpy() if name in shown else np.zeros(len(shown))
        bars = axis.bar(np.arange(len(shown)), heights, bottom=bottom, color=colour, width=0.7)
        if len(shown) <= 5:
            texts = [str(h) if h > 0.06 * shown.sum(axis=1).max() else "" for h in heights]  # only where it fits
            axis.bar_label(bars, texts, label_type="center", color="white", fontsize=8)
        bottom += heights
    axis.set_xticks(range(len(shown)), shown.index)
    if len(shown) > 4 or sum(map(len, shown.index)) > 16:
        axis.tick_params(axis="x", labelsize=7.5)
        axis.set_xticks(range(len(shown)), shown.index, rotation=45, ha="right", rotation_mode="anchor")
    axis.set_ylabel("scans")
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if len(table) > len(shown):
        axis.set_xlabel(f"{len(table) - len(shown)} smaller ones not shown")


def _strip(axis: Axes, scans: pd.DataFrame, column: str, colours: Mapping[str, str]) -> None:
    random = np.random.default_rng(0)
    for i, (name, colour) in enumerate(colours.items()):
        values = pd.to_numeric(scans.loc[scans["label"].astype(str) == name, column], errors="coerce").dropna()
        size, alpha = (3, 0.55) if len(values) < 200 else (2, 0.35)
        axis.plot(i + random.uniform(-0.22, 0.22, len(values)), values, "o", ms=size, alpha=alpha, mew=0, color=colour)
        if len(values):
            axis.hlines(values.median(), i - 0.32, i + 0.32, color=INK, lw=1.6, zorder=3)
    axis.set_xticks([])
    axis.set_xlim(-0.6, len(colours) - 0.4)
    known = pd.to_numeric(scans[column], errors="coerce").dropna()
    if column == "mean_fd" and known.min() > 0 and known.max() > 8 * known.median():  # a few large values
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif column == "mean_fd":
        axis.set_ylim(bottom=0)


def has_sites(by_site: pd.DataFrame) -> bool:
    """Return whether a table of sites has anything to draw."""
    return bool(by_site.loc[by_site["metric"].isin(NO_SKILL), "pooled"].notna().any())


def draw_sites(by_site: pd.DataFrame, out: Path, *, reference: str = "", unknown: Collection[str] = ()) -> None:
    """Draw the AUC (of numbers: r) at each site with its 95 % interval, of `MOST` rows.

    Parameters
    ----------
    by_site : DataFrame
        `bolt.evaluate.results.SITE_COLUMNS`; at least one row.
    out : Path
    reference : str
        Row that is drawn whatever its place; the others in their order.
    unknown : collection of str
        Reconstructed rows, which are marked.
    """
    seen = by_site[by_site["metric"].isin(NO_SKILL)]
    rows = sorted(dict.fromkeys(seen["row"]), key=lambda row: row != reference)[:MOST]
    names = [marked(row, unknown) for row in rows]
    parts = list(seen[seen["row"].isin(rows)].groupby(["dataset", "atlas"], sort=False))
    height = max(part["site"].nunique() for _, part in parts) * (ROW + 0.05 * len(rows)) + 1.3
    with canvas(out, width=min(5.5 * len(parts) + 1, 12), height=height) as figure:
        axes = figure.subplots(1, len(parts), squeeze=False)[0]
        for axis, (key, part) in zip(axes, parts, strict=True):
            _panel(axis, part, rows)
            axis.set_title(", ".join(key))
        keys = [axes[0].plot([], [], "D-", ms=4, lw=1.4, color=MANY[i], label=name)[0] for i, name in enumerate(names)]
        keys.append(axes[0].plot([], [], "--", lw=0.9, color=INK, label="no skill")[0])
        keys.append(axes[0].plot([], [], "D", ms=4, mfc="white", color=INK, label="too few for an interval")[0])
        title = "test scans of a site, 95 % interval" + ("" if names == rows else f"; {LEGEND}")
        figure.legend(handles=keys, loc="outside lower center", ncols=3, title=title)


def _panel(axis: Axes, part: pd.DataFrame, rows: list[str]) -> None:
    """Draw one dataset and atlas; the largest site is on top."""
    sizes = part.groupby("site")["n_scans"].max().sort_values(ascending=False, kind="stable")
    for i in range(0, len(sizes), 2):
        axis.axhspan(i - 0.5, i + 0.5, color=STRIPE, lw=0, zorder=0)
    offsets: Any = dict(zip(rows, np.linspace(-0.3, 0.3, len(rows)) if len(rows) > 1 else [0.0], strict=True))
    for value in part.dropna(subset="pooled").itertuples():
        y, colour = list(sizes.index).index(value.site) + offsets[value.row], MANY[rows.index(value.row)]
        known = np.isfinite(value.low)
        low, high = (value.low, value.high) if known else (value.pooled, value.pooled)
        axis.hlines(y, low, high, color=colour, lw=1.4)
        axis.plot(value.pooled, y, "D", ms=3.6, color=colour, mfc=colour if known else "white", zorder=3)
    metric = part["metric"].iloc[0]
    axis.axvline(NO_SKILL[metric], color=INK, ls="--", lw=0.9, zorder=1)
    axis.set_yticks(range(len(sizes)), [f"{site} ({n} scan{'s' * (n != 1)})" for site, n in sizes.items()])
    axis.set_ylim(len(sizes) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel(metric_name(metric))
