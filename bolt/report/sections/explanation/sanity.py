"""Does the importance go when what the model has learned goes? The cascade of random layers, and permuted labels."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from bolt.config import Config, Dataset, Model
from bolt.config.layout import Layout
from bolt.explain.trust.similarity import GONE
from bolt.io.files import read_table
from bolt.report.figures.style import INK, MANY, MUTED, canvas
from bolt.report.html import Block, Picture, Table, Text, figure_folder
from bolt.report.sections.explanation.verdicts import plain
from bolt.report.tables.readable import DASH

WHY = (
    "A curve of importance can look convincing and still say nothing about the model: any attention to windows follows "
    "the scan, and gives less to its ends. So what the model has learned is destroyed, and the importance of the same "
    "test scans is computed again for the class that the model had predicted (Adebayo et al. 2018, arXiv 1810.03292). "
    "If the curves stay alike, they do not show what was learned. Curves are compared by ranks (Spearman's ρ: 1 alike, "
    "0 unlike) after the mean curve of the other scans is removed, for position alone makes all curves alike."
)
CAPTION = (
    "How alike the importance of test scans stays while the model's layers get random weights. Left: one after the "
    "other, from the classifier down to the input, as in the cascade of the table. {right}Blue: ρ after the mean curve "
    "is removed, mean over {scans} test scans with 95 % interval over families; thin lines are folds. Orange: the same "
    f"without removing it. Grey band: |ρ| < {GONE}, where the cascade's end has to lie."
)
RIGHT = "Right: each layer alone. "
MEANS = {
    "passed": f"gone (|ρ| < {GONE}): passed",
    "not passed": "not gone: not passed",
    "not done": "not done",
}
CHECKS = {
    "cascade": "all layers random",
    "permuted labels": "model trained on permuted labels",
}
CURVES = (
    ("rho", "low", "high", MANY[0], "mean curve removed"),
    ("rho_raw", "raw_low", "raw_high", MANY[1], "mean curve not removed"),
)


def sanity_blocks(
    config: Config, dataset: Dataset, layout: Layout, atlas: str, model: Model, seed: int, stem: str
) -> list[Block]:
    """What is left of the importance when weights or labels are random; [] where it was not checked."""
    file = layout.run(atlas, model, seed).explanation / "sanity.tsv"
    if not file.is_file():
        return []
    table = read_table(file, text=("check", "layer", "fold", "verdict", "note"))
    if table.empty:
        return []
    blocks: list[Block] = [Text(WHY), *_judged(table)]
    cascade = table[(table["check"] == "cascade") & (table["fold"] == "all")]
    if len(cascade):
        picture = figure_folder(layout) / f"{stem}_sanity.png"
        draw_sanity(table, picture)
        right = RIGHT if "independent" in set(table["check"]) else ""
        blocks.append(Picture(picture, CAPTION.format(right=right, scans=f"{cascade['n_scans'].iloc[0]:.0f}")))
    caption = "Checks whose end is judged. ρ: mean over test scans with its 95 % interval over families."
    return [*blocks, Table(sanity_table(table), caption, file)]


def _judged(table: pd.DataFrame) -> list[Block]:
    """A sentence a check, as it came out."""
    found: list[Block] = []
    for row in table[table["verdict"].notna()].itertuples():
        name = CHECKS[str(row.check)]
        if row.verdict == "not done":
            found.append(Text(f"The {name} could not be looked at: {row.note}.", warning=True))
        elif row.verdict == "passed":
            found.append(Text(f"Passed: little of the importance is left with {_with(name)} (ρ = {plain(row.rho)})."))
        elif pd.isna(row.rho):
            words = "nothing is left to compare once the mean curve is removed: the importance tells position alone"
            found.append(Text(f"Not passed, with {_with(name)}: {words}.", warning=True))
        else:
            words = (
                f"the importance keeps ρ = {plain(row.rho)} with what it was. That much of it shows the scan or the "
                "model's build, and must not be read as something that was learned"
            )
            found.append(Text(f"Not passed: with {_with(name)} {words}.", warning=True))
    return found


def _with(name: str) -> str:
    return name if name.startswith("all") else f"a {name}"


def sanity_table(table: pd.DataFrame) -> pd.DataFrame:
    """For people: the ends of the checks, all folds together and each alone."""
    judged = table[table["verdict"].notna()]
    rows: list[dict[str, str]] = []
    for end in judged.itertuples():
        step = pd.notna(end.step)
        own = table[(table["check"] == end.check) & ((table["step"] == end.step) if step else True)]
        for row in own.itertuples():
            rows.append(
                {
                    "": CHECKS[str(end.check)] if row.fold == "all" else f"fold {row.fold}",
                    "ρ [95 %]": _interval(row.rho, row.low, row.high),
                    "mean curve not removed": _interval(row.rho_raw, row.raw_low, row.raw_high),
                    "test scans": f"{row.n_scans:.0f}",
                    "without ρ": f"{row.n_undefined:.0f}",
                    "the importance is": MEANS[str(row.verdict)] if pd.notna(row.verdict) else "",
                    "note": row.note if isinstance(row.note, str) and row.fold == "all" else "",
                }
            )
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[name for name in ("without ρ", "note") if frame[name].isin(["0", ""]).all()])


def draw_sanity(table: pd.DataFrame, out: Any) -> None:
    """ρ along the cascade with its interval, and of each layer alone.

    Parameters
    ----------
    table : DataFrame
        ``sanity.tsv``.
    out : Path
        Ends in ``.png``.
    """
    cascade = table[table["check"] == "cascade"]
    alone = table[(table["check"] == "independent") & (table["fold"] == "all")]
    permuted = table[(table["check"] == "permuted labels") & (table["fold"] == "all")]
    widths = [cascade["step"].nunique() + 1.2 * len(permuted), max(len(alone), 1)]
    with canvas(out, height=3.3) as figure:
        axes = figure.subplots(1, 2 if len(alone) else 1, sharey=True, squeeze=False,
                               width_ratios=widths if len(alone) else None)[0]  # fmt: skip
        _cascade(axes[0], cascade)
        if len(permuted):
            _permuted(axes[0], permuted, int(cascade["step"].max()))
        if len(alone):
            _alone(axes[1], alone)
        lowest = table[["low", "raw_low"]].min().min()
        for axis in axes:
            axis.axhspan(-GONE, GONE, color="#e3e7ec", lw=0, zorder=0, label=f"|ρ| < {GONE}")
            axis.axhline(0, color=MUTED, lw=0.8, zorder=1)
            axis.set_ylim(min(-0.3, lowest - 0.05), 1.08)
        axes[0].set_ylabel("rank correlation ρ\nwith the original importance")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def _cascade(axis: Axes, table: pd.DataFrame) -> None:
    for fold, part in table.groupby("fold"):
        ordered = part.sort_values("step")
        if fold == "all":
            for value, low, high, colour, label in CURVES:
                axis.fill_between(ordered["step"], ordered[low], ordered[high], color=colour, alpha=0.2, lw=0)
                axis.plot(ordered["step"], ordered[value], "o-", ms=4, lw=1.8, color=colour, label=label, zorder=3)
        else:
            axis.plot(ordered["step"], ordered["rho"], color=MANY[0], lw=0.7, alpha=0.45, zorder=2)
    steps = table[table["fold"] == "all"].sort_values("step")
    names = ["as trained", *steps["layer"].iloc[1:]]
    _names(axis, steps["step"].tolist(), names)
    axis.set_title("random from the classifier down to …")


def _permuted(axis: Axes, table: pd.DataFrame, last: int) -> None:
    """Beside the cascade, which it does not belong to."""
    place = last + 1.5
    axis.axvline(last + 0.75, color=MUTED, lw=0.8, ls=":")
    _points(axis, [place], table)
    ticks = [*axis.get_xticks(), place]
    _names(axis, ticks, [*(label.get_text() for label in axis.get_xticklabels()), "permuted labels"])


def _alone(axis: Axes, table: pd.DataFrame) -> None:
    _points(axis, range(len(table)), table)
    _names(axis, range(len(table)), table["layer"].tolist())
    axis.set_xlim(-0.5, len(table) - 0.5)
    axis.set_title("one layer random")


def _points(axis: Axes, places: Any, table: pd.DataFrame) -> None:
    for value, low, high, colour, _ in CURVES:
        axis.vlines(list(places), table[low], table[high], color=colour, lw=1.6, zorder=2)
        axis.plot(list(places), table[value], "o", ms=4.5, color=colour, zorder=3)


def _names(axis: Axes, places: Any, names: list[str]) -> None:
    axis.set_xticks(list(places), names, rotation=35, ha="right", rotation_mode="anchor", color=INK)


def _interval(value: float, low: float, high: float) -> str:
    return DASH if pd.isna(value) else f"{plain(value)} [{plain(low)}, {plain(high)}]"
