"""The tables of an experiment as TSV, Markdown and LaTeX, and its figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Experiment
from bolt.evaluate.areas import FEWEST_PER_CLASS
from bolt.evaluate.classes import METRICS
from bolt.evaluate.intervals import FEWEST_GROUPS
from bolt.evaluate.metrics import LOWER_IS_BETTER
from bolt.evaluate.numbers import NUMBER_METRICS
from bolt.experiments.entries import Entry
from bolt.experiments.results import (
    FAMILY_COLUMNS,
    KEYS,
    RESULT_COLUMNS,
    SCOPE_COLUMNS,
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
from bolt.io.files import write_table
from bolt.report.experiments.paper_layout import as_in_paper
from bolt.report.figures.curve import draw_curves
from bolt.report.figures.forest import draw
from bolt.report.figures.performance import MOST, draw_sites, has_sites
from bolt.report.tables.baselines import baseline_warning, sees_brain, sees_covariates_only
from bolt.report.tables.markup import Sheet, write_sheets
from bolt.report.tables.numbers import (
    DASH,
    KINDS_OF_INTERVALS,
    RECONSTRUCTED,
    Formatter,
    decimal,
    estimate,
    joined,
    marked,
    mean_sd,
    metric_name,
    notes_of,
    number,
    p_value,
    part_text,
    percent,
    reconstructed,
    scopes_of,
    signed,
    with_marks,
)

TESTS_COLUMNS = {**KEYS, "reference": "Row that is tested against", **TEST_COLUMNS, **SCOPE_COLUMNS}
SPREADS = {"folds": "sd", "seeds": "sd_seeds", "the seeds of a fold": "sd_seeds_within"}
"""Source of spread to its column of the results."""
WITH_INTERVALS = "accuracy", "auc", "balanced_accuracy", "brier", "log_loss"
NOT_IN_PAPER = WITH_INTERVALS[2:]
BOLD = "Bold: the best row among those with all folds; models that see no brain data do not compete."
FIDELITY = (
    "Fidelity: exact, the architecture as published or as the paper states it; "
    "core, the defining layers as published, other parts adapted or second-hand; "
    "reconstructed, the architecture that the paper used is not known, so the row is not a result of the original."
)
TEST_NAMES = {"wilcoxon_p": "Wilcoxon", "corrected_t_p": "corrected t", "permutation_p": "permutation"}
TESTS_EXPLAINED = {
    "wilcoxon_p": "Wilcoxon assumes independent folds, although their training sets overlap.",
    "corrected_t_p": "The corrected t-test allows for the overlap of training sets between folds.",
    "permutation_p": "The permutation test exchanges predictions per participant, given these trained models.",
}


def write_experiment(experiment: Experiment, entries: list[Entry], out: Path) -> None:
    """Write the tables, text and figure of an experiment: curves for a sweep, else one line per row.

    `entries` are those of all datasets and atlases; rows keep their order.
    """
    found = [gather(entry) for entry in entries]
    numbers = [summaries(entry, runs) for entry, runs in zip(entries, found, strict=True)]
    results = with_paper(_of_all_scans(_joined(numbers, RESULT_COLUMNS)), entries, paper_values(experiment))
    tests = paired_tests(entries, found, experiment.reference)
    by_site = _joined([sites(entry, runs) for entry, runs in zip(entries, found, strict=True)], SITE_COLUMNS)
    families = family_table(results, entries, experiment.reference)
    write_table(tests, out / f"{experiment.name}_tests.tsv", TESTS_COLUMNS)
    write_table(by_site, out / f"{experiment.name}_sites.tsv", SITE_COLUMNS)
    write_table(families, out / f"{experiment.name}_families.tsv", FAMILY_COLUMNS)
    picture = out / f"{experiment.name}.png"
    if entries and all(entry.value is not None for entry in entries):
        draw_curves(results, entries, picture, key=experiment.sweeps[0].key if experiment.sweeps else "")
    else:
        draw(results, picture, reference=experiment.reference)
    sheets = [
        *as_in_paper(experiment, entries, results),
        *_sheets(experiment, entries, results, tests, families),
    ]
    scopes = {
        f"{row}, {name}, {atlas}": text
        for (name, atlas), part in results.groupby(["dataset", "atlas"], sort=False)
        for row, text in scopes_of(part).items()
    }
    tested = "".join(f". {text}" for text in joined(scopes))
    pictures = {picture.name: f"All rows with their 95 % intervals{tested}"}
    if has_sites(by_site):
        sites_picture = f"{experiment.name}_sites.png"
        unknown = _reconstructed(results)
        draw_sites(by_site, out / sites_picture, reference=experiment.reference, unknown=unknown)
        shown = f"{MOST} of {n} rows" if (n := by_site["row"].nunique()) > MOST else "Rows"
        pictures[sites_picture] = f"{shown} at each site with their 95 % intervals{tested}"
    write_sheets(experiment, sheets, out, pictures, first=1)
    write_table(results, out / f"{experiment.name}.tsv", RESULT_COLUMNS)


def _joined(tables: Sequence[pd.DataFrame], columns: dict[str, str]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(columns))


def _of_all_scans(results: pd.DataFrame) -> pd.DataFrame:
    """Count the scans of a dataset and atlas by the row that has most of them: others may learn from a share."""
    return results.assign(n_all_scans=results.groupby(["dataset", "atlas"])["n_all_scans"].transform("max"))


def _sheets(
    experiment: Experiment, entries: Sequence[Entry], results: pd.DataFrame, tests: pd.DataFrame, families: pd.DataFrame
) -> list[Sheet]:
    sheets = []
    for (dataset, atlas), part in results.groupby(["dataset", "atlas"], sort=False):
        tests_here = tests[(tests["dataset"] == dataset) & (tests["atlas"] == atlas)]
        rows = [entry for entry in entries if (entry.dataset, entry.atlas) == (dataset, atlas)]
        sheets.append(performance(f"{dataset}, {atlas}", part, rows, experiment.reference, tests_here))
        more = []
        if "brier" in set(part["metric"]) and part["mean"].notna().any():
            more.append(calibration(f"{dataset}, {atlas}: intervals, balance and probabilities", part, rows))
        if part["sd_seeds"].notna().any():
            more.append(spread(f"{dataset}, {atlas}: spread over folds and over seeds", part))
        if len(tests_here):
            more.append(paired(f"{dataset}, {atlas}: tests against {experiment.reference}", tests_here))
            more.append(fold_tests(f"{dataset}, {atlas}: tests of all metrics over folds", tests_here))
        sheets += [with_marks(sheet, _reconstructed(part)) for sheet in more]
    if len(families):
        of_rows = reconstructed({entry.row: entry.model.fidelity for entry in entries})
        sheets.append(family_sheet(families, experiment.reference, of_rows))
    return sheets


def performance(
    title: str, part: pd.DataFrame, entries: Sequence[Entry], reference: str, tests: pd.DataFrame | None = None
) -> Sheet:
    """Return mean ± sd over folds of the paper's metrics of one dataset and atlas, beside the paper's own values.

    `tests` are those against the reference, on which warnings of baselines rely.
    """
    metrics = METRICS if "accuracy" in set(part["metric"]) else NUMBER_METRICS
    with_paper_values = part["paper_mean"].notna().any()
    rows = []
    for row, values in part.groupby("row", sort=False):
        line = {"": row}
        if part["fidelity"].notna().any():
            line["fidelity"] = values["fidelity"].iloc[0] or DASH
        line["folds"] = _folds(values.iloc[0])
        for value in values[values["metric"].isin(metrics)].to_dict("records"):
            name = metric_name(value["metric"])
            line[name] = _mean_sd(value)
            if with_paper_values:
                line[f"{name}, paper"] = _paper(value)
        rows.append(line)
    caption = f"{'Per cent, mean' if metrics == METRICS else 'Mean'} ± standard deviation over folds{_of_seeds(part)}."
    if with_paper_values:
        caption += (
            " Beside it the paper's mean ± standard deviation, and in brackets our mean minus the paper's; * marks a "
            "mean of the paper outside our 95 % interval."
        )
    if "fidelity" in rows[0]:
        caption += f" {FIDELITY}{f' {DASH}: not stated.' if part['fidelity'].isna().any() else ''}"
    notes = [*joined(scopes_of(part)), *notes_of(_reconstructed(part)), *_notes(part)]
    notes += _baseline_notes(tests, entries, reference)
    return Sheet(title, pd.DataFrame(rows), f"{caption} {BOLD}", _best(part, entries, metrics), notes)


def spread(title: str, part: pd.DataFrame) -> Sheet:
    """Return the mean of each metric, and its standard deviation over folds and over seeds in columns of their own."""
    metrics = METRICS if "accuracy" in set(part["metric"]) else NUMBER_METRICS
    rows = []
    for row, values in part.groupby("row", sort=False):
        line = {"": row, "folds": _folds(values.iloc[0]), "seeds": number(values.iloc[0]["n_seeds"])}
        for value in values[values["metric"].isin(metrics)].to_dict("records"):
            name, shown = metric_name(value["metric"]), _format_of(value["metric"])
            line[f"{name}, mean"] = shown(value["mean"])
            line |= {f"{name}, sd over {source}": shown(value[column]) for source, column in SPREADS.items()}
        rows.append(line)
    caption = (
        "Folds differ in the scans that are tested, seeds in initial weights, crops and the order of batches. Standard "
        "deviations: over folds of the means over seeds (ddof 0), as in the paper; over seeds of the means over folds "
        "(ddof 1), the change if the whole cross-validation were repeated; and over the seeds of a fold (ddof 1, root "
        "mean variance over folds), the change if one fold were repeated."
    )
    return Sheet(title, pd.DataFrame(rows), caption, notes=joined(scopes_of(part)))


def calibration(title: str, part: pd.DataFrame, entries: Sequence[Entry]) -> Sheet:
    """Return the intervals of accuracy, AUC, and the metrics that the paper lacks."""
    rows = []
    for row, values in part.groupby("row", sort=False):
        metrics = values.set_index("metric")
        line = {"": row}
        for metric in WITH_INTERVALS:
            mean, low, high = metrics.loc[metric, ["mean", "low", "high"]]
            line[with_interval(metric)] = estimate({"value": mean, "low": low, "high": high}, _format_of(metric))
        of_brier = metrics.loc["brier"]
        before_after = of_brier[["calibration_error", "calibration_error_scaled"]].dropna()
        line["calibration error"] = " → ".join(map(number, before_after)) or DASH
        line["Brier score, scaled"] = number(of_brier["scaled"])
        rows.append(line)
    majority = part.loc[part["metric"] == "accuracy", "no_skill"].max()
    caption = (
        f"Mean over folds with its 95 % interval. {KINDS_OF_INTERVALS} Too few: fewer than {FEWEST_GROUPS} of them, or "
        f"(AUC) fewer than {FEWEST_PER_CLASS} in a class. Accuracies and AUC "
        f"in per cent; always predicting the most frequent class has an accuracy of {percent(majority)}. Lower "
        f"Brier scores and log losses are better. Calibration error: expected, of all test scans, before → after their "
        f"probabilities were scaled by a temperature fitted to each fold's validation scans. {BOLD}"
    )
    best = {(row, with_interval(metric)) for metric in NOT_IN_PAPER for row, _ in _best(part, entries, [metric])}
    return Sheet(title, pd.DataFrame(rows), caption, best, joined(scopes_of(part)))


def with_interval(metric: str) -> str:
    """Return the heading of a metric with its interval."""
    return f"{metric_name(metric)} [95 %]"


def paired(title: str, tests: pd.DataFrame) -> Sheet:
    """Return all three tests of accuracy side by side (of the absolute error, if the label is a number)."""
    of_classes = "accuracy" in set(tests["metric"])
    metric = "accuracy" if of_classes else "mae"
    shown = _format_of(metric)
    tests = tests[tests["metric"] == metric]
    frame = pd.DataFrame({"": tests["row"]})
    for name, n, n_all in (("folds", "n_folds", "expected_folds"), ("scans", "n_scans", "n_all_scans")):
        frame[name] = list(map(part_text, tests[n], tests[n_all]))
    frame["difference over folds"] = [signed(d, shown) for d in tests["difference"]]
    frame["over scans"] = [signed(d, shown) for d in tests["pooled_difference"]]
    done = [test for test in TEST_NAMES if tests[test].notna().any()]
    for test in done:
        name, pairs = TEST_NAMES[test], zip(tests[test], tests[f"{test}_holm"], strict=True)
        frame[f"{name}: p (Holm)"] = [f"{p_value(p)} ({p_value(h)})" if pd.notna(p) else DASH for p, h in pairs]
    caption = (
        f"{'Accuracy, per cent' if of_classes else 'Absolute error'}: reference minus row, on the folds and scans that "
        "both have, averaged over seeds. p-values are two-sided, in brackets Holm-corrected for the rows of this "
        f"table. {' '.join(TESTS_EXPLAINED[test] for test in done)}"
    ).rstrip()
    reasons = {row: note.split("; ") for row, note in zip(tests["row"], tests["note"].fillna(""), strict=True)}
    different = dict.fromkeys(filter(None, chain.from_iterable(reasons.values())))
    notes = [joined({row: why if why in its else "" for row, its in reasons.items()}) for why in different]
    return Sheet(title, frame, caption, notes=list(chain.from_iterable(notes)))


def fold_tests(title: str, tests: pd.DataFrame) -> Sheet:
    """Return the tests over folds of every metric, as far as they were done."""
    done = [test for test in ("wilcoxon_p", "corrected_t_p") if tests[test].notna().any()]
    rows = []
    for row, values in tests.groupby("row", sort=False):
        line = {"": row}
        for value in values.to_dict("records"):
            difference = signed(value["difference"], _format_of(value["metric"]))
            p = "; ".join(p_value(value[f"{test}_holm"]) for test in done)
            line[metric_name(value["metric"])] = f"{difference} ({p})" if p else difference
        rows.append(line)
    caption = (
        "Reference minus row, mean over folds (per cent, except for Brier score, log loss and metrics of numbers)."
    )
    if done:
        names = {"wilcoxon_p": "Wilcoxon", "corrected_t_p": "corrected resampled t-test"}
        named = "; ".join(names[test] for test in done)
        caption += f" In brackets two-sided p-values, Holm-corrected for the rows of each column: {named}."
    return Sheet(title, pd.DataFrame(rows), caption, notes=joined(scopes_of(tests)))


def family_sheet(families: pd.DataFrame, reference: str, unknown: Mapping[str, str] | None = None) -> Sheet:
    """Return by how much the reference outperforms each family of methods on average.

    `unknown` are the reconstructed rows, and what was reconstructed of each.
    """
    rows, notes, named = [], [], set()
    for (dataset, family), values in families.groupby(["dataset", "family"], sort=False):
        counts, name = values.iloc[0], f"{dataset}: {family}"
        found = [row for row in unknown or {} if row in _listed(values["reconstructed"])]
        if found:
            notes.append(f"{name} includes reconstructed methods ({', '.join(found)}), which are not the originals")
            named |= {*found}
        line = {
            "": marked(name, [name] if found else []),
            "rows × atlases": f"{counts['n_pairs']} of {counts['expected_pairs']}",
        }
        for value in values.to_dict("records"):
            paper = value["paper_improvement"]
            ours = signed(value["improvement"], _format_of(value["metric"]))
            line[metric_name(value["metric"])] = ours + (f" ({signed(paper, percent)})" if pd.notna(paper) else "")
        rows.append(line)
    caption = (
        f"{reference} minus the methods of a family, averaged over methods and atlases (only rows with all their "
        "folds); in brackets the same rows and atlases in the paper's table. Per cent."
    )
    notes += notes_of({row: note for row, note in (unknown or {}).items() if row in named})
    return Sheet(f"{reference} against families of methods", pd.DataFrame(rows), caption, notes=notes)


def _listed(names: pd.Series) -> set[str]:
    """Return the rows named in a column of `FAMILY_COLUMNS`."""
    return {name for text in names.dropna() for name in str(text).split("; ")}


def _mean_sd(value: dict[Any, Any]) -> str:
    """Return mean ± sd over folds; if several seeds ran, / sd over seeds."""
    shown = _format_of(value["metric"])
    text = mean_sd(value["mean"], value["sd"], shown)
    return text if pd.isna(value["sd_seeds"]) else f"{text} / {shown(value['sd_seeds'])}"


def _of_seeds(part: pd.DataFrame) -> str:
    """Return what follows ± in the caption, if several seeds ran."""
    return " (of means over seeds) / over seeds (of means over folds)" if part["sd_seeds"].notna().any() else ""


def _format_of(metric: str) -> Formatter:
    if metric in NUMBER_METRICS:
        return number
    return (lambda value: decimal(value, 3)) if metric in LOWER_IS_BETTER else percent


def _paper(value: dict[Any, Any]) -> str:
    paper = mean_sd(value["paper_mean"], value["paper_sd"])
    if paper == DASH or pd.isna(value["difference"]):
        return paper
    return f"{paper} ({signed(value['difference'], percent)}){'*' if value['paper_inside'] == 'false' else ''}"


def _folds(value: pd.Series) -> str:
    expected = value["expected_folds"]
    return f"{value['n_folds']} of {expected}" if expected else "not applicable"


def _best(part: pd.DataFrame, entries: Sequence[Entry], metrics: Sequence[str]) -> set[tuple[int, str]]:
    """Return the cells of the best complete rows that see the brain, including ties after rounding."""
    order, best = list(dict.fromkeys(part["row"])), set()
    competes = part["row"].isin([entry.row for entry in entries if sees_brain(entry.model)])
    competes &= part["n_folds"] == part["expected_folds"]
    for metric in metrics:
        rivals = part[competes & (part["metric"] == metric)].dropna(subset=["mean"])
        if len(rivals) > 1:
            means, shown = rivals["mean"], rivals["mean"].map(_format_of(metric))
            top = shown[means.idxmin() if metric in LOWER_IS_BETTER else means.idxmax()]
            best |= {(order.index(row), metric_name(metric)) for row in rivals.loc[shown == top, "row"]}
    return best


def _notes(part: pd.DataFrame) -> list[str]:
    """State why rows and folds are missing."""
    order = {row: i for i, row in enumerate(dict.fromkeys(part["row"]))}
    noted = part[part["note"].notna()].drop_duplicates(["row", "note"])
    lines = []
    for value in noted.sort_values("row", key=lambda rows: rows.map(order), kind="stable").to_dict("records"):
        without = f"without fold {value['missing_folds']}: " if value["n_folds"] else ""
        lines.append(f"{value['row']}: {without}{value['note']}".rstrip("."))
    return lines


def _reconstructed(part: pd.DataFrame) -> dict[str, str]:
    """Return the reconstructed rows of results, and what was reconstructed of each."""
    rows = part[part["fidelity"] == RECONSTRUCTED].drop_duplicates("row")
    return dict(zip(rows["row"], rows["fidelity_note"], strict=True))


def _baseline_notes(tests: pd.DataFrame | None, entries: Sequence[Entry], reference: str) -> list[str]:
    """Name the baselines without brain data that the reference does not outperform."""
    if tests is None:
        return []
    lines = [
        baseline_warning(entry.row, reference, tests[tests["row"] == entry.row])
        for entry in entries
        if sees_covariates_only(entry.model)
    ]
    return [line.rstrip(".") for line in lines if line]
