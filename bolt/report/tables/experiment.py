"""The tables of an experiment, for machines (TSV) and for people (Markdown, LaTeX), and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Experiment
from bolt.evaluate.classes import METRICS
from bolt.evaluate.metrics import LOWER_IS_BETTER
from bolt.evaluate.numbers import NUMBER_METRICS
from bolt.experiments.entries import Entry
from bolt.experiments.results import (
    FAMILY_COLUMNS,
    KEYS,
    RESULT_COLUMNS,
    SITE_COLUMNS,
    TEST_COLUMNS,
    family_table,
    gather,
    paired_tests,
    paper_values,
    sites,
    summaries,
    with_paper,
)
from bolt.io.files import write_table, write_text
from bolt.report.figures.curve import draw_curves
from bolt.report.figures.forest import draw
from bolt.report.sections.floor import floor_sentence, is_floor, sees_brain
from bolt.report.tables.markup import Sheet, latex, markdown
from bolt.report.tables.readable import DASH, NAMES, number, p_value, percent

NEW = "balanced_accuracy", "brier", "ece"
SHORT = {**NAMES, "balanced_accuracy": "balanced accuracy", "brier": "Brier", "ece": "calibration error"}
BOLD = "Bold: the best of the rows with all their folds; what sees nothing of the brain does not compete."
TEST_NAMES = {"wilcoxon_p": "Wilcoxon", "corrected_t_p": "corrected t", "permutation_p": "permutation"}


def write_experiment(experiment: Experiment, entries: list[Entry], out: Path) -> None:
    """Write everything that is to be seen of an experiment.

    ``<name>.tsv`` (`RESULT_COLUMNS`), ``<name>_tests.tsv``, ``<name>_sites.tsv``, ``<name>_families.tsv``, each with
    its sidecar; ``<name>.md``, ``<name>.tex``; ``<name>.png`` and ``.svg``: curves where all
    rows lie on lines, else a line a row.

    Parameters
    ----------
    experiment : Experiment
    entries : list of Entry
        Of all datasets and atlases; rows stand in this order.
    out : Path
        Folder.
    """
    found = [gather(entry) for entry in entries]
    numbers = [summaries(entry, own) for entry, own in zip(entries, found, strict=True)]
    empty = pd.DataFrame(columns=list(RESULT_COLUMNS))
    results = with_paper(pd.concat(numbers, ignore_index=True) if numbers else empty, entries, paper_values(experiment))
    tests = paired_tests(entries, found, experiment.reference)
    by_site = [sites(entry, own) for entry, own in zip(entries, found, strict=True)]
    by_site = [table for table in by_site if len(table)]
    families = family_table(results, entries, experiment.reference)
    name = experiment.name
    write_table(tests, out / f"{name}_tests.tsv", {**KEYS, "reference": "Row that is tested against", **TEST_COLUMNS})
    site_table = pd.concat(by_site) if by_site else pd.DataFrame(columns=list(SITE_COLUMNS))
    write_table(site_table, out / f"{name}_sites.tsv", SITE_COLUMNS)
    write_table(families, out / f"{name}_families.tsv", FAMILY_COLUMNS)
    if entries and all(entry.value is not None for entry in entries):
        draw_curves(results, entries, out / f"{name}.png", key=experiment.sweeps[0].key if experiment.sweeps else "")
    else:
        draw(results, out / f"{name}.png", reference=experiment.reference)
    sheets = _sheets(experiment, entries, results, tests, families)
    head = f"# {experiment.title}\n\n{experiment.description}\n\n![All rows with their 95 % intervals]({name}.png)\n"
    write_text("\n".join([head, *map(markdown, sheets)]), out / f"{name}.md")
    texts = [latex(sheet, f"tab:{name}-{i}") for i, sheet in enumerate(sheets, start=1)]
    write_text("% \\usepackage{booktabs,graphicx}\n\n" + "\n".join(texts), out / f"{name}.tex")
    write_table(results, out / f"{name}.tsv", RESULT_COLUMNS)


def _sheets(
    experiment: Experiment, entries: Sequence[Entry], results: pd.DataFrame, tests: pd.DataFrame, families: pd.DataFrame
) -> list[Sheet]:
    sheets = []
    for (dataset, atlas), part in results.groupby(["dataset", "atlas"], sort=False):
        own = tests[(tests["dataset"] == dataset) & (tests["atlas"] == atlas)]
        rows = [entry for entry in entries if (entry.dataset, entry.atlas) == (dataset, atlas)]
        sheets.append(performance(f"{dataset}, {atlas}", part, rows, experiment.reference))
        if "brier" in set(part["metric"]) and part["mean"].notna().any():
            sheets.append(beyond(f"{dataset}, {atlas}: balance, calibration and intervals", part, rows))
        if len(own):
            sheets.append(paired(f"{dataset}, {atlas}: tests against {experiment.reference}", own))
            sheets.append(fold_tests(f"{dataset}, {atlas}: tests of all metrics over folds", own))
    if len(families):
        sheets.append(family_sheet(families, experiment.reference))
    return sheets


def performance(title: str, part: pd.DataFrame, entries: Sequence[Entry], reference: str) -> Sheet:
    """Mean ± sd over folds of the paper's metrics, the paper's values beside; best whole row in bold.

    Parameters
    ----------
    title : str
    part : DataFrame
        `RESULT_COLUMNS`, of one dataset and atlas.
    entries : sequence of Entry
        The same rows.
    reference : str
        The row that the floor is held against.
    """
    metrics = METRICS if "accuracy" in set(part["metric"]) else NUMBER_METRICS
    beside = part["paper_mean"].notna().any()
    rows = []
    for row, values in part.groupby("row", sort=False):
        line = {"": row, "folds": _folds(values.iloc[0])}
        for value in values[values["metric"].isin(metrics)].to_dict("records"):
            title_of, shown = SHORT.get(value["metric"], value["metric"]), _shown(value["metric"])
            line[title_of] = _spread(value["mean"], value["sd"], shown)
            if beside:
                line[f"{title_of}, paper"] = _paper(value)
        rows.append(line)
    caption = f"{'Per cent, mean' if metrics == METRICS else 'Mean'} ± standard deviation over folds."
    if beside:
        caption += (
            " Beside it the paper's mean ± standard deviation, in brackets ours minus the paper's; * marks a mean "
            "of the paper outside our 95 % interval."
        )
    caption += f" {BOLD}"
    notes = [*_notes(part), *_floor(part, entries, reference)]
    return Sheet(title, pd.DataFrame(rows), caption, _best(part, entries, metrics), notes)


def beyond(title: str, part: pd.DataFrame, entries: Sequence[Entry]) -> Sheet:
    """Accuracy and AUC with their intervals, and the metrics that the paper does not have."""
    rows = []
    for row, values in part.groupby("row", sort=False):
        own = values.set_index("metric")
        line = {"": row}
        for metric in ("accuracy", "auc"):
            line[f"{SHORT.get(metric, metric)} [95 %]"] = _interval(own.loc[metric])
        line |= {SHORT[m]: _spread(own.loc[m, "mean"], own.loc[m, "sd"], _shown(m)) for m in NEW}
        rows.append(line)
    skill = part.loc[part["metric"] == "accuracy", "no_skill"].max()
    caption = (
        "Left: per cent, mean over folds with its 95 % bootstrap interval over families "
        f"(else subjects); always guessing the most frequent class has an accuracy of {percent(skill)}. Right: mean ± "
        "standard deviation over folds; of Brier score and calibration error less is better. " + BOLD
    )
    return Sheet(title, pd.DataFrame(rows), caption, _best(part, entries, NEW))


def paired(title: str, tests: pd.DataFrame) -> Sheet:
    """All three tests of accuracy side by side (of numbers: of the absolute error)."""
    metric = "accuracy" if "accuracy" in set(tests["metric"]) else "mae"
    own, shown = tests[tests["metric"] == metric], _shown(metric)
    frame = pd.DataFrame({"": own["row"], "folds": own["n_folds"].map(str), "scans": own["n_scans"].map(str)})
    frame["difference over folds"] = own["difference"].map(lambda d: _signed(d, shown))
    frame["over scans"] = own["pooled_difference"].map(lambda d: _signed(d, shown))
    for test, name in TEST_NAMES.items():
        frame[f"{name}: p (Holm)"] = [f"{_p(p)} ({_p(h)})" for p, h in zip(own[test], own[f"{test}_holm"], strict=True)]
    caption = (
        f"{'Accuracy' if metric == 'accuracy' else 'Absolute error'}{', per cent' if metric == 'accuracy' else ''}: "
        "reference minus row, on the folds and scans that both have. p two-sided, in brackets corrected for the rows "
        "of this table. Wilcoxon takes folds for independent, which they are not (their training sets overlap); the "
        "corrected t-test allows for that; the permutation test flips persons, given these trained models."
    )
    notes = [
        f"{row}: {note}" for row, note in zip(own["row"], own["note"], strict=True) if isinstance(note, str) and note
    ]
    return Sheet(title, frame, caption, notes=notes)


def fold_tests(title: str, tests: pd.DataFrame) -> Sheet:
    """The tests over folds of every metric."""
    rows = []
    for row, values in tests.groupby("row", sort=False):
        line = {"": row}
        for value in values.to_dict("records"):
            name = SHORT.get(value["metric"], value["metric"])
            p = f"{_p(value['wilcoxon_p_holm'])}; {_p(value['corrected_t_p_holm'])}"
            line[name] = f"{_signed(value['difference'], _shown(value['metric']))} ({p})"
        rows.append(line)
    caption = (
        "Reference minus row, mean over folds (per cent; Brier score, calibration error and metrics of numbers as they "
        "are). In brackets p, two-sided and corrected by Holm for the rows of each column: Wilcoxon; corrected "
        "resampled t-test."
    )
    return Sheet(title, pd.DataFrame(rows), caption)


def family_sheet(families: pd.DataFrame, reference: str) -> Sheet:
    """By how much the reference beats each family of methods on average."""
    rows = []
    for (dataset, family), values in families.groupby(["dataset", "family"], sort=False):
        counts = values.iloc[0]
        line = {"": f"{dataset}: {family}", "rows × atlases": f"{counts['n_pairs']} of {counts['expected_pairs']}"}
        for value in values.to_dict("records"):
            theirs = (
                f" ({_signed(value['paper_improvement'], percent)})" if pd.notna(value["paper_improvement"]) else ""
            )
            line[SHORT.get(value["metric"], value["metric"])] = (
                _signed(value["improvement"], _shown(value["metric"])) + theirs
            )
        rows.append(line)
    caption = (
        f"{reference} minus the methods of a family, averaged over them and the atlases (rows with all their folds "
        "alone); in brackets the same rows and atlases from the paper's table. Per cent."
    )
    return Sheet(f"{reference} against families of methods", pd.DataFrame(rows), caption)


def _shown(metric: str) -> Any:
    if metric in NUMBER_METRICS:
        return number
    return (lambda value: DASH if pd.isna(value) else f"{value:.3f}") if metric in LOWER_IS_BETTER else percent


def _spread(mean: float, sd: float, shown: Any) -> str:
    return DASH if pd.isna(mean) else f"{shown(mean)} ± {shown(sd)}"


def _interval(value: pd.Series) -> str:
    if pd.isna(value["mean"]):
        return DASH
    return f"{percent(value['mean'])} [{percent(value['low'])}, {percent(value['high'])}]"


def _signed(value: float, shown: Any) -> str:
    return DASH if pd.isna(value) else ("−" if value < 0 else "+") + shown(abs(value))


def _p(value: float) -> str:
    return DASH if pd.isna(value) else p_value(value)


def _paper(value: dict[str, Any]) -> str:
    if pd.isna(value["paper_mean"]):
        return DASH
    theirs = f"{percent(value['paper_mean'])} ± {percent(value['paper_sd'])}"
    if pd.isna(value["difference"]):
        return theirs
    return f"{theirs} ({_signed(value['difference'], percent)}){'*' if value['paper_inside'] == 'false' else ''}"


def _folds(value: pd.Series) -> str:
    due = value["expected_folds"]
    return f"{value['n_folds']} of {due}" if due else "not applicable"


def _best(part: pd.DataFrame, entries: Sequence[Entry], metrics: Sequence[str]) -> set[tuple[int, str]]:
    """Cells of the best whole rows that see the brain (also those that look alike once rounded)."""
    order, best = list(dict.fromkeys(part["row"])), set()
    competes = part["row"].isin([entry.row for entry in entries if sees_brain(entry.model)])
    competes &= part["n_folds"] == part["expected_folds"]
    for metric in metrics:
        whole = part[competes & (part["metric"] == metric)].dropna(subset=["mean"])
        if len(whole) > 1:
            shown, less = whole["mean"].map(_shown(metric)), metric in LOWER_IS_BETTER
            top = shown[whole["mean"].idxmin() if less else whole["mean"].idxmax()]
            best |= {(order.index(row), SHORT.get(metric, metric)) for row in whole.loc[shown == top, "row"]}
    return best


def _notes(part: pd.DataFrame) -> list[str]:
    """Why rows and folds are missing."""
    order = {row: i for i, row in enumerate(dict.fromkeys(part["row"]))}
    said = part[part["note"].notna()].drop_duplicates(["row", "note"])
    lines = []
    for value in said.sort_values("row", key=lambda rows: rows.map(order), kind="stable").to_dict("records"):
        without = f"without fold {value['missing_folds']}: " if value["n_folds"] else ""
        lines.append(f"{value['row']}: {without}{value['note']}".rstrip("."))
    return lines


def _floor(part: pd.DataFrame, entries: Sequence[Entry], reference: str) -> list[str]:
    """What has no brain and does as well as the reference."""
    named = part[part["metric"].isin(("accuracy", "auc"))].rename(columns={"mean": "value"})
    intervals = {
        row: values.set_index("metric")[["value", "low", "high"]].to_dict("index")
        for row, values in named.groupby("row")
    }
    if not len(intervals.get(reference, {})):
        return []
    lines = [
        floor_sentence(entry.row, intervals[entry.row], reference, intervals[reference])
        for entry in entries
        if is_floor(entry.model) and entry.row in intervals
    ]
    return [line.rstrip(".") for line in lines if line]
