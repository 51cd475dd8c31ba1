"""Models and settings compared: the tables of an experiment as TSV, Markdown and LaTeX, in the paper's layout too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Experiment
from bolt.config.study import Entry
from bolt.evaluate.intervals import FEWEST_GROUPS, FEWEST_PER_CLASS
from bolt.evaluate.metrics import LOWER_IS_BETTER
from bolt.evaluate.results import SITE_COLUMNS, TESTS_COLUMNS, gather, paired_tests, sites, summaries
from bolt.evaluate.scores import METRICS, NUMBER_METRICS
from bolt.experiments.figures import draw_curves, draw_forest, metrics_of
from bolt.experiments.markup import CAPTIONS, notes_of, write_sheets
from bolt.experiments.results import FAMILY_COLUMNS, RESULT_COLUMNS, family_table, paper_values, with_paper
from bolt.explain.explainable import sees_brain
from bolt.io.files import write_table
from bolt.report import numbers
from bolt.report.figures.performance import MOST, draw_sites, has_sites
from bolt.report.html import all_words
from bolt.report.numbers import DASH, decimal, joined, metric_name, number, percent, reconstructed, scopes_of, signed
from bolt.report.tables import Sheet, baseline_warning, paired, sees_covariates_only

SPREADS = {"folds": "sd", "seeds": "sd_seeds", "the seeds of a fold": "sd_seeds_within"}
"""Source of spread to its column of the results."""
WITH_INTERVALS = "accuracy", "auc", "balanced_accuracy", "brier", "log_loss"
DATASETS = {"hcp_rest": "HCP-Rest", "hcp_task": "HCP-Task", "abide1": "ABIDE-I"}
"""The paper's datasets, in the order of its tables."""
ATLASES = {"schaefer400": "Schaefer", "aal116": "AAL"}
"""The paper's atlases, in the order of its tables."""
METRIC_HEADINGS = {"accuracy": "Acc. (%)", "recall": "Rec. (%)", "precision": "Prec. (%)", "auc": "AUC (%)"}
MARKS = {"yes": "✓", "no": "✗", "global": "✓ (G)", "local": "✓ (L)"}
"""Values of the paper's columns to what its tables print."""


def write_experiment(experiment: Experiment, entries: list[Entry], out: Path) -> None:
    """Write the tables, text and figure of an experiment: curves for a sweep, else one line per row.

    `entries` are those of all datasets and atlases; rows keep their order.
    """
    name, reference = experiment.name, experiment.reference
    found = [gather(entry) for entry in entries]
    results = _joined(map(summaries, entries, found), RESULT_COLUMNS)
    # others may learn from a share of the scans
    n_all_scans = results.groupby(["dataset", "atlas"])["n_all_scans"].transform("max")
    results = with_paper(results.assign(n_all_scans=n_all_scans), entries, paper_values(experiment))
    tests = paired_tests(entries, found, reference)
    by_site = _joined(map(sites, entries, found), SITE_COLUMNS)
    families = family_table(results, entries, reference)
    write_table(tests, out / f"{name}_tests.tsv", TESTS_COLUMNS)
    write_table(by_site, out / f"{name}_sites.tsv", SITE_COLUMNS)
    write_table(families, out / f"{name}_families.tsv", FAMILY_COLUMNS)
    if entries and all(entry.value is not None for entry in entries):
        key = experiment.sweeps[0].key if experiment.sweeps else ""
        draw_curves(results, entries, out / f"{name}.png", key=key)
    else:
        draw_forest(results, out / f"{name}.png", reference=reference)
    scopes = {
        f"{row}, {dataset}, {atlas}": text
        for (dataset, atlas), part in results.groupby(["dataset", "atlas"], sort=False)
        for row, text in scopes_of(part).items()
    }
    tested = "".join(f". {text}" for text in joined(scopes))
    pictures = {f"{name}.png": f"All rows with their 95 % intervals{tested}"}
    if has_sites(by_site):
        draw_sites(by_site, out / f"{name}_sites.png", reference=reference, unknown=_reconstructed(results))
        shown = f"{MOST} of {n} rows" if (n := by_site["row"].nunique()) > MOST else "Rows"
        pictures[f"{name}_sites.png"] = f"{shown} at each site with their 95 % intervals{tested}"
    sheets = as_in_paper(experiment, entries, results)
    for (dataset, atlas), part in results.groupby(["dataset", "atlas"], sort=False):
        place = f"{dataset}, {atlas}"
        of_place = tests[(tests["dataset"] == dataset) & (tests["atlas"] == atlas)]
        rows = [entry for entry in entries if (entry.dataset, entry.atlas) == (dataset, atlas)]
        sheets.append(performance(place, part, rows, reference, of_place))
        more = []
        if "brier" in set(part["metric"]) and part["mean"].notna().any():
            more.append(calibration(f"{place}: intervals, balance and probabilities", part, rows))
        if part["sd_seeds"].notna().any():
            more.append(spread(f"{place}: spread over folds and over seeds", part))
        if len(of_place):
            more.append(paired(f"{place}: tests against {reference}", of_place))
            more.append(fold_tests(f"{place}: tests of all metrics over folds", of_place))
        unknown = _reconstructed(part)
        for sheet in more:
            names = [numbers.marked(row, unknown) for row in sheet.frame[""]]
            notes = sheet.notes if names == list(sheet.frame[""]) else [*sheet.notes, numbers.LEGEND]
            sheets.append(replace(sheet, frame=sheet.frame.assign(**{"": names}), notes=notes))
    if len(families):
        of_rows = reconstructed({entry.row: entry.model.fidelity for entry in entries})
        sheets.append(family_sheet(families, reference, of_rows))
    write_sheets(experiment, sheets, out, pictures, first=1)
    write_table(results, out / f"{name}.tsv", RESULT_COLUMNS)


def _joined(tables: Iterable[pd.DataFrame], columns: Mapping[str, Any]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(columns))


def performance(
    title: str, part: pd.DataFrame, entries: Sequence[Entry], reference: str, tests: pd.DataFrame | None = None
) -> Sheet:
    """Return mean ± sd over folds of the paper's metrics of one dataset and atlas, beside the paper's own values.

    `tests` are those against the reference, on which warnings of baselines rely.
    """
    metrics = metrics_of(part)
    has_paper, has_seeds = part["paper_mean"].notna().any(), part["sd_seeds"].notna().any()
    rows = []
    for row, values in part.groupby("row", sort=False):
        line = {"": row}
        if part["fidelity"].notna().any():
            line["fidelity"] = values["fidelity"].iloc[0] or DASH
        line["folds"] = _folds(values.iloc[0])
        for value in values[values["metric"].isin(metrics)].to_dict("records"):
            name, shown = metric_name(value["metric"]), format_of(value["metric"])
            line[name] = numbers.mean_sd(value["mean"], value["sd"], shown)
            if pd.notna(value["sd_seeds"]):
                line[name] += f" / {shown(value['sd_seeds'])}"
            if has_paper:
                paper = numbers.mean_sd(value["paper_mean"], value["paper_sd"])
                if paper != DASH and pd.notna(value["difference"]):
                    outside = "*" if value["paper_inside"] == "false" else ""
                    paper += f" ({signed(value['difference'], percent)}){outside}"
                line[f"{name}, paper"] = paper
        rows.append(line)
    unit = "Per cent, mean" if metrics == METRICS else "Mean"
    captions = [CAPTIONS["performance"].format(unit=unit, seeds=CAPTIONS["of_seeds"] if has_seeds else "")]
    captions += [CAPTIONS["beside_paper"]] if has_paper else []
    if "fidelity" in rows[0]:
        captions.append(CAPTIONS["fidelity"])
        captions += [f"{DASH}: not stated."] if part["fidelity"].isna().any() else []
    notes = [*joined(scopes_of(part)), *notes_of(_reconstructed(part)), *_missing(part)]
    if tests is not None:
        baselines = [entry.row for entry in entries if sees_covariates_only(entry.model)]
        notes += [baseline_warning(row, reference, tests[tests["row"] == row]).rstrip(".") for row in baselines]
    best = _best_cells(part, entries, metrics)
    return Sheet(title, pd.DataFrame(rows), " ".join([*captions, CAPTIONS["bold"]]), best, list(filter(None, notes)))


def spread(title: str, part: pd.DataFrame) -> Sheet:
    """Return the mean of each metric, and its standard deviation over folds and over seeds in columns of their own."""
    metrics, rows = metrics_of(part), []
    for row, values in part.groupby("row", sort=False):
        line = {"": row, "folds": _folds(values.iloc[0]), "seeds": number(values.iloc[0]["n_seeds"])}
        for value in values[values["metric"].isin(metrics)].to_dict("records"):
            name, shown = metric_name(value["metric"]), format_of(value["metric"])
            line[f"{name}, mean"] = shown(value["mean"])
            line |= {f"{name}, sd over {source}": shown(value[column]) for source, column in SPREADS.items()}
        rows.append(line)
    return Sheet(title, pd.DataFrame(rows), CAPTIONS["spread"], notes=joined(scopes_of(part)))


def calibration(title: str, part: pd.DataFrame, entries: Sequence[Entry]) -> Sheet:
    """Return the intervals of accuracy, AUC, and the metrics that the paper lacks."""
    headings, rows = {metric: f"{metric_name(metric)} [95 %]" for metric in WITH_INTERVALS}, []
    for row, values in part.groupby("row", sort=False):
        metrics = values.set_index("metric")
        line = {"": row}
        for metric, heading in headings.items():
            mean, low, high = metrics.loc[metric, ["mean", "low", "high"]]
            line[heading] = numbers.estimate({"value": mean, "low": low, "high": high}, format_of(metric))
        of_brier = metrics.loc["brier"]
        before_after = of_brier[["calibration_error", "calibration_error_scaled"]].dropna()
        line["calibration error"] = " → ".join(map(number, before_after)) or DASH
        line["Brier score, scaled"] = number(of_brier["scaled"])
        rows.append(line)
    told = {"kinds": all_words()["intervals"]["kinds"], "groups": FEWEST_GROUPS, "per_class": FEWEST_PER_CLASS}
    majority = percent(part.loc[part["metric"] == "accuracy", "no_skill"].max())
    caption = CAPTIONS["calibration"].format(majority=majority, bold=CAPTIONS["bold"], **told)
    not_in_paper = [metric for metric in WITH_INTERVALS if metric not in METRICS]
    best = {(row, f"{name} [95 %]") for row, name in _best_cells(part, entries, not_in_paper)}
    return Sheet(title, pd.DataFrame(rows), caption, best, joined(scopes_of(part)))


def fold_tests(title: str, tests: pd.DataFrame) -> Sheet:
    """Return the tests over folds of every metric, as far as they were done."""
    names = {"wilcoxon_p": "Wilcoxon", "corrected_t_p": "corrected resampled t-test"}
    done = {test: name for test, name in names.items() if tests[test].notna().any()}
    rows = []
    for row, values in tests.groupby("row", sort=False):
        line = {"": row}
        for value in values.to_dict("records"):
            difference = signed(value["difference"], format_of(value["metric"]))
            p = "; ".join(numbers.p_value(value[f"{test}_holm"]) for test in done)
            line[metric_name(value["metric"])] = f"{difference} ({p})" if p else difference
        rows.append(line)
    caption = CAPTIONS["fold_tests"] + (CAPTIONS["fold_p"].format(tests="; ".join(done.values())) if done else "")
    return Sheet(title, pd.DataFrame(rows), caption, notes=joined(scopes_of(tests)))


def family_sheet(families: pd.DataFrame, reference: str, unknown: Mapping[str, str] | None = None) -> Sheet:
    """Return by how much the reference outperforms each family of methods on average.

    `unknown` are the reconstructed rows, and what was reconstructed of each.
    """
    rows, notes = [], []
    named: set[str] = set()
    for (dataset, family), values in families.groupby(["dataset", "family"], sort=False):
        counts, name = values.iloc[0], f"{dataset}: {family}"
        listed = {row for text in values["reconstructed"].dropna() for row in str(text).split("; ")}
        found = {row: note for row, note in (unknown or {}).items() if row in listed}
        if found:
            notes.append(f"{name} includes reconstructed methods ({', '.join(found)}), which are not the originals")
            named |= {*found}
        line = {
            "": numbers.marked(name, [name] if found else []),
            "rows × atlases": f"{counts['n_pairs']} of {counts['expected_pairs']}",
        }
        for value in values.to_dict("records"):
            paper = value["paper_improvement"]
            ours = signed(value["improvement"], format_of(value["metric"]))
            line[metric_name(value["metric"])] = ours + (f" ({signed(paper, percent)})" if pd.notna(paper) else "")
        rows.append(line)
    notes += notes_of({row: note for row, note in (unknown or {}).items() if row in named})
    title = f"{reference} against families of methods"
    return Sheet(title, pd.DataFrame(rows), CAPTIONS["families"].format(reference=reference), notes=notes)


def format_of(metric: str) -> numbers.Formatter:
    """Return how tables of experiments write a metric: per cent, but losses and metrics of numbers as they are."""
    if metric in NUMBER_METRICS:
        return number
    return (lambda value: decimal(value, 3)) if metric in LOWER_IS_BETTER else percent


def _folds(value: pd.Series) -> str:
    expected = value["expected_folds"]
    return f"{value['n_folds']} of {expected}" if expected else "not applicable"


def _best_rows(
    part: pd.DataFrame, entries: Sequence[Entry], metric: str, shown: numbers.Formatter | None = None
) -> list[str]:
    """Return the best complete rows that see the brain, including ties after rounding; none if there is only one."""
    competes = part["row"].isin([entry.row for entry in entries if sees_brain(entry.model)])
    competes &= (part["n_folds"] == part["expected_folds"]) & (part["metric"] == metric)
    rivals = part[competes].dropna(subset=["mean"])
    if len(rivals) < 2:
        return []
    means, texts = rivals["mean"], rivals["mean"].map(shown or format_of(metric))
    top = texts[means.idxmin() if metric in LOWER_IS_BETTER else means.idxmax()]
    return list(rivals.loc[texts == top, "row"])


def _best_cells(part: pd.DataFrame, entries: Sequence[Entry], metrics: Sequence[str]) -> set[tuple[int, str]]:
    order = list(dict.fromkeys(part["row"]))
    return {(order.index(row), metric_name(m)) for m in metrics for row in _best_rows(part, entries, m)}


def _missing(part: pd.DataFrame) -> list[str]:
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
    rows = part[part["fidelity"] == numbers.RECONSTRUCTED].drop_duplicates("row")
    return dict(zip(rows["row"], rows["fidelity_note"], strict=True))


# ---- the paper's layout --------------------------------------------------------------------------------------------
def dataset_titles(entries: Iterable[Entry]) -> dict[str, str]:
    """Return what the paper calls each dataset; its own name if it is none of the paper's, and both if two are."""
    papers = {entry.dataset: entry.paper_dataset for entry in entries}
    titles = {}
    for name, paper in papers.items():
        alone = list(papers.values()).count(paper) == 1
        titles[name] = DATASETS[paper] + ("" if alone else f" ({name})") if paper else name
    return titles


def in_papers_order(entries: Sequence[Entry], datasets: Iterable[str] = DATASETS) -> list[Entry]:
    """Sort entries as the paper does: its datasets, then others; within them its atlases, then others."""
    orders = list(datasets), list(ATLASES)

    def place(entry: Entry) -> tuple[int, ...]:
        names = entry.paper_dataset, entry.atlas
        return tuple(o.index(n) if n in o else len(o) for n, o in zip(names, orders, strict=True))

    return sorted(entries, key=place)


def two_decimals(mean: Any, sd: Any) -> str:
    """Return mean ± standard deviation in per cent with two decimals, as the paper has them."""
    return DASH if pd.isna(mean) else f"{decimal(100 * mean)} ± {decimal(100 * sd)}"


def as_in_paper(experiment: Experiment, entries: Sequence[Entry], results: pd.DataFrame) -> list[Sheet]:
    """Return an experiment's tables with the rows and columns of the paper's; none if it is no table of the paper.

    Where the paper's table has columns of settings, there is a table per dataset, with a row per atlas and setting;
    otherwise a table per atlas, with a row per method (reconstructed ones with †) and the metrics of each dataset.

    Parameters
    ----------
    experiment : Experiment
    entries : sequence of Entry
        Of all datasets and atlases.
    results : DataFrame
        `RESULT_COLUMNS`.
    """
    rows = in_papers_order([entry for entry in entries if entry.paper and entry.classes])
    if experiment.paper is None or not rows:
        return []
    settings = experiment.paper.columns
    tables: dict[str, list[Entry]] = {}
    for entry in rows:
        tables.setdefault(entry.dataset if settings else entry.atlas, []).append(entry)
    values = results.set_index(["dataset", "atlas", "row", "metric"])
    best = {
        (*place, metric): _best_rows(
            part, [e for e in rows if (e.dataset, e.atlas) == place], metric, lambda share: decimal(100 * share)
        )
        for place, part in results.groupby(["dataset", "atlas"])
        for metric in METRICS
    }
    sheets: list[Sheet] = []
    for place, here in tables.items():
        titles = dataset_titles(rows if settings else here)
        unknown = reconstructed({entry.row: entry.model.fidelity for entry in here})
        lines: dict[tuple[str, ...], dict[str, str]] = {}
        bold, missing = set(), []
        for entry in here:
            atlas, title = ATLASES.get(entry.atlas, entry.atlas), titles[entry.dataset]
            key: tuple[str, ...] = (entry.row,)
            names, before = {"": numbers.marked(entry.row, unknown)}, f"{title}: "
            if settings:
                key, before = (entry.atlas, entry.row), ""
                said = {heading: entry.paper[column] for column, heading in settings.items()}
                names = {"Atlas": atlas, **{heading: MARKS.get(text, text) for heading, text in said.items()}}
            line = lines.setdefault(key, names)
            for metric, heading in METRIC_HEADINGS.items():
                value = values.loc[(entry.dataset, entry.atlas, entry.row, metric)]
                line[before + heading] = two_decimals(value["mean"], value["sd"])
                if entry.row in best[entry.dataset, entry.atlas, metric]:
                    bold.add((list(lines).index(key), before + heading))
            accuracy = values.loc[(entry.dataset, entry.atlas, entry.row, "accuracy")]
            counts = [int(accuracy[n]) for n in ("n_folds", "expected_folds", "n_scans", "n_all_scans")]
            if why := entry.note or numbers.scope_text(*counts):
                missing.append(f"{title}, {atlas}, {entry.row}: {why}")
        frame = pd.DataFrame(list(lines.values())).fillna(DASH)
        caption = CAPTIONS["as_in_paper"].format(place="atlas" if settings else "dataset")
        if unknown and not settings:
            caption += f" {CAPTIONS['reconstructed']}"
        name = titles[place] if settings else f"{ATLASES.get(place, place)} atlas"
        sheets.append(Sheet(f"{experiment.paper.shows}: {name}", frame, caption, bold, [*notes_of(unknown), *missing]))
    return sheets
