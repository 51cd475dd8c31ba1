"""The hyper-parameter search: what it tried and chose, and how its two schemes compare if both were trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import load_model
from bolt.config.study import Study
from bolt.io.files import read_json
from bolt.report.figures import search as figure
from bolt.report.html import Block, Chapter, Picture, Table, Text
from bolt.report.runs import figure_folder
from bolt.report.tables import readable
from bolt.report.tables.numbers import number
from bolt.training.tuning.choice import read_trials

COURSE = (
    "Left: smallest validation loss so far, one line per fold; dots are single trials, except those beyond the axis or "
    "pruned. Right: all values tried (grey), the configured value (open diamond), and the value chosen in each fold "
    "(colour). If the chosen values scatter over the whole range, the setting matters little, or there are too few "
    "validation scans to tell."
)


def search_sections(study: Study) -> list[Chapter]:
    """Return one section per searched model and atlas."""
    sections = []
    for atlas in study.config.atlas_places:
        folder = study.layout.study(atlas, "any", 0).parents[1]
        for searched in sorted(path for path in folder.glob("*") if any(path.glob("fold-*/best.json"))):
            sections.append(_section(study, atlas, searched))
    return sections


def _section(study: Study, atlas: str, folder: Path) -> Chapter:
    files = {int(path.parent.name.removeprefix("fold-")): path for path in folder.glob("fold-*/best.json")}
    best = {fold: read_json(files[fold]) for fold in sorted(files)}
    trials = {fold: read_trials(files[fold].with_name("trials.tsv")) for fold in best}
    picture = figure_folder(study.layout) / f"{atlas}_{folder.name}_search.png"
    figure.draw(best, trials, picture)
    first = next(iter(best.values()))
    counts = f"{sum(map(len, trials.values()))} trials on {len(best)} folds"
    caption = (
        f"Hyper-parameters chosen by the search ({counts}; {first['n_validation']} validation scans in fold "
        f"{first['fold']}). The objective is the mean loss of the validation scans; test scans were not used."
    )
    blocks: list[Block] = [Table(chosen(best, trials), caption, folder), Picture(picture, COURSE)]
    return Chapter(f"Search of {folder.name} on {atlas}", blocks + _schemes(study, atlas, folder.name))


def chosen(best: Mapping[int, dict[str, Any]], trials: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return a row per setting: the configured value, the first fold's (scheme 'paper'), and the range over folds."""
    first = min(best)
    configured = trials[first].iloc[0]
    rows = []
    for name in [*best[first]["values"], "validation_loss"]:
        values = [found["values"].get(name, found.get(name)) for found in best.values()]
        rows.append(
            {
                "": name.replace("_", " ").split(".")[-1],
                "configured": number(configured[name]),
                f"fold {first} (scheme 'paper')": number(values[0]),
                "over folds": _summary(values),
            }
        )
    return pd.DataFrame(rows)


def _summary(values: list[Any]) -> str:
    """Return median and range of numbers, or the counts of words."""
    if any(isinstance(value, str) for value in values):
        counts = pd.Series(values).value_counts()
        return ", ".join(f"{value} ({count})" for value, count in counts.sort_index().items())
    low, median, high = (number(float(np.quantile(values, q))) for q in (0, 0.5, 1))
    return f"{median} ({low} to {high})"


def _schemes(study: Study, atlas: str, model: str) -> list[Block]:
    """Compare the test results of both schemes, if both were chosen and trained."""
    evaluated = {}
    for scheme in ("per-fold", "paper"):
        choice = study.layout.choice(atlas, scheme, model)
        if not choice.is_file():
            continue
        run = study.layout.run(atlas, load_model(str(choice)), study.config.seeds[0])
        if metrics := readable.read_evaluated(run.folder):
            evaluated[f"scheme '{scheme}'"] = metrics
    if len(evaluated) < 2:
        text = "Its two schemes are compared here once `models` names the files that both wrote, and they are trained."
        return [Text(text)]
    metric, unit, of = ("accuracy", 100, "percentage points of accuracy") if study.dataset.classes else ("r", 1, "in r")
    per_fold, paper = (
        table[table["state"] == "ok"].set_index("fold")[metric] * unit for table, _ in evaluated.values()
    )
    differences = (paper - per_fold).dropna()
    caption = (
        "Test results of both schemes. With scheme 'paper', one validation set chose for all folds, and its scans are "
        f"test scans of other folds. Scheme 'paper' minus 'per-fold', over {len(differences)} folds: "
        f"{differences.mean():+.2f} {of} on average ({differences.min():+.2f} to {differences.max():+.2f})."
    )
    return [Table(readable.comparison(evaluated), caption)]
