"""What the search of hyper-parameters tried and chose; and what its two schemes lead to, where both were trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import Config, Dataset, load_model
from bolt.config.layout import Layout
from bolt.io.files import read_json, read_table
from bolt.report.figures.style import INK, LINE, MANY, MUTED, canvas
from bolt.report.html import Block, Picture, Run, Table, Text, figure_folder
from bolt.report.tables import readable
from bolt.training.tuning.choice import read_trials

WIDE = 50
"""Positive values whose largest is so many times the smallest are drawn on a logarithmic axis."""


def search_sections(config: Config, dataset: Dataset, layout: Layout) -> list[Run]:
    """One section a model and atlas that was searched; none where nothing was."""
    sections = []
    for atlas in config.atlas_places:
        folder = layout.study(atlas, "any", 0).parents[1]
        for studies in sorted(path for path in folder.glob("*") if any(path.glob("fold-*/best.json"))):
            sections.append(_section(config, dataset, layout, atlas, studies))
    return sections


def _section(config: Config, dataset: Dataset, layout: Layout, atlas: str, studies: Path) -> Run:
    folders = {int(path.parent.name.removeprefix("fold-")): path.parent for path in studies.glob("fold-*/best.json")}
    found = {fold: read_json(folders[fold] / "best.json") for fold in sorted(folders)}
    trials = {fold: read_trials(folders[fold] / "trials.tsv") for fold in found}
    picture = figure_folder(layout) / f"{atlas}_{studies.name}_search.png"
    draw(found, trials, picture)
    caption = (
        "Left: smallest validation loss so far, a line each fold; dots are single trials, and those beyond the axis or "
        "ended early are not drawn. Right: every value that was tried (grey), the model's own (open diamond), and what "
        "each fold chose (colour). Where the colours scatter over the whole width, the choice matters little or the "
        "validation scans are too few to tell."
    )
    some = next(iter(found.values()))
    counts = f"{sum(len(table) for table in trials.values())} trials on {len(found)} folds"
    table = Table(
        chosen(found, trials),
        f"What the search chose ({counts}; {some['n_validation']} validation scans in fold {some['fold']}). The "
        "objective is the mean loss of the validation scans; test scans were not looked at.",
        studies,
    )
    run = Run(f"Search of {studies.name} on {atlas}", [table, Picture(picture, caption)])
    run.performance += _schemes(config, dataset, layout, atlas, studies.name)
    return run


def chosen(found: Mapping[int, dict[str, Any]], trials: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """A row a value: the model's own, the first fold's (scheme paper), and the spread over folds.

    Parameters
    ----------
    found : mapping
        Fold to ``best.json``.
    trials : mapping
        Fold to ``trials.tsv``.
    """
    first = min(found)
    own = trials[first].iloc[0]
    rows = []
    for name in [*found[first]["values"], "validation_loss"]:
        values = [best["values"][name] if name in best["values"] else best[name] for best in found.values()]
        rows.append(
            {
                "": name.replace("_", " ").split(".")[-1],
                "the model's own": readable.number(own[name]),
                f"fold {first} (scheme paper)": readable.number(values[0]),
                "over folds": _spread(values),
            }
        )
    return pd.DataFrame(rows)


def _spread(values: list[Any]) -> str:
    if any(isinstance(value, str) for value in values):
        counts = pd.Series(values).value_counts()
        return ", ".join(f"{value} ({count})" for value, count in counts.sort_index().items())
    low, middle, high = (readable.number(float(np.quantile(values, q))) for q in (0, 0.5, 1))
    return f"{middle} ({low} to {high})"


def draw(found: Mapping[int, dict[str, Any]], trials: Mapping[int, pd.DataFrame], out: Path) -> None:
    """The course of a search, and what was tried and chosen.

    Parameters
    ----------
    found, trials
        As in `chosen`.
    out : Path
    """
    names = list(next(iter(found.values()))["values"])
    with canvas(out, height=max(2.6, 0.75 * len(names) + 0.8)) as figure:
        grid = figure.add_gridspec(len(names), 2, width_ratios=(1, 1.15))
        _course(figure.add_subplot(grid[:, 0]), trials)
        for row, name in enumerate(names):
            axis = figure.add_subplot(grid[row, 1])
            tried = pd.concat([table[name] for table in trials.values()])
            if tried.dtype.kind in "if" and tried.min() > 0 and tried.max() > WIDE * tried.min():
                axis.set_xscale("log")
            axis.plot(tried, np.zeros(len(tried)), "|", ms=9, color=LINE, zorder=1)
            own = next(iter(trials.values()))[name].iloc[0]
            axis.plot([own], [0], "D", ms=8, mfc="none", mec=INK, zorder=3)
            for place, (fold, best) in enumerate(found.items()):
                height = 0.5 * ((place + 0.5) / len(found) - 0.5)  # equal choices side by side
                axis.plot([best["values"][name]], [height], "o", ms=4.5, color=MANY[fold % len(MANY)], zorder=2)
            axis.set(ylim=(-0.6, 0.6), yticks=[])
            axis.spines["left"].set_visible(False)
            axis.set_title(name.split(".")[-1].replace("_", " "), fontsize=8.5, fontweight="normal")


def _course(axis: Any, trials: Mapping[int, pd.DataFrame]) -> None:
    lowest, highest = np.inf, -np.inf
    for fold, table in trials.items():
        losses = table["validation_loss"].astype(float)
        colour = MANY[fold % len(MANY)]
        axis.plot(table["trial"], losses, "o", ms=2.5, mew=0, alpha=0.5, color=colour)
        best = losses.cummin().ffill()
        axis.step(table["trial"], best, where="post", lw=1.3, color=colour, label=f"fold {fold}")
        lowest, highest = min(lowest, losses.min()), max(highest, losses.median(), best.max())
    margin = 0.08 * max(highest - lowest, 1e-3)
    axis.set(xlabel="trial", ylabel="validation loss", ylim=(lowest - margin, highest + margin))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.tick_params(colors=MUTED)
    if len(trials) <= 5:
        axis.legend(loc="upper right")


def _schemes(config: Config, dataset: Dataset, layout: Layout, atlas: str, model: str) -> list[Block]:
    """Test results of both schemes side by side, where both were chosen and trained."""
    seed = config.seeds[0]
    judged = {}
    for scheme in ("per-fold", "paper"):
        choice = layout.choice(atlas, scheme, model)
        folder = layout.run(atlas, load_model(str(choice)), seed).folder if choice.is_file() else None
        if (
            folder is None
            or not (folder / "summary.json").is_file()
            or not read_json(folder / "summary.json")["pooled"]
        ):
            continue
        metrics = read_table(folder / "metrics.tsv", text=("fold", "state"))
        judged[f"scheme {scheme}"] = (metrics, read_json(folder / "summary.json")["pooled"])
    if len(judged) < 2:
        return [
            Text("Its two schemes are compared here once `models` names what both have written, and they are trained.")
        ]
    metric, unit = ("accuracy", 100) if dataset.classes else ("r", 1)
    each = [table[table["state"] == "ok"].set_index("fold")[metric] * unit for table, _ in judged.values()]
    differences = (each[1] - each[0]).dropna()
    what = "points of accuracy" if dataset.classes else "in r"
    caption = (
        "Test results of both schemes. With scheme paper one validation set chose for all folds, and its scans are "
        f"test scans of other folds. Scheme paper minus per-fold, over {len(differences)} folds: "
        f"{differences.mean():+.2f} {what} on average ({differences.min():+.2f} to {differences.max():+.2f})."
    )
    return [Table(readable.comparison(judged), caption)]
