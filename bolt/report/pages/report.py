"""Gather what the workflow left behind, draw it, and hand it to the page.

Whatever is not there is not shown: ready ROI series have no registration, real data no truth table, and a
run that failed leaves a line in its table of folds.
"""

from __future__ import annotations

import platform
import time
from pathlib import Path

import pandas as pd
import yaml

from bolt import __version__
from bolt.config import Config, Dataset, Model, load_model
from bolt.config.layout import Layout
from bolt.datasets import TEXT_COLUMNS
from bolt.io.files import read_json, read_table
from bolt.io.series_files import kept_volumes
from bolt.jobs.provenance import commit
from bolt.jobs.versions import versions
from bolt.report.figures import plots
from bolt.report.html import Block, Picture, ReportData, Table, Text, figure_folder
from bolt.report.sections.cohort import cohort_section, with_lengths, with_motion
from bolt.report.sections.comparison import comparison
from bolt.report.sections.costs import costs_section
from bolt.report.sections.methods import cite, methods, preprocessing_texts
from bolt.report.sections.quality import quality_section
from bolt.report.sections.runs import run_section
from bolt.report.sections.search import search_sections
from bolt.report.sections.spaces import spaces_section
from bolt.report.tables import readable
from bolt.series.cache import SeriesCache


def collect(config: Config, dataset: Dataset, layout: Layout) -> ReportData:
    """Everything the report shows, from the files named in ``docs/architecture.md``.

    Pictures are drawn into ``figures`` beside the page.
    """
    scans = read_table(layout.scans, text=TEXT_COLUMNS)
    exclusions = _exclusions(layout, scans)
    used = scans[~scans["scan_id"].isin(exclusions["scan_id"])]
    models = [load_model(name) for name in config.models]
    used = with_lengths(with_motion(used, layout), layout, next(iter(config.atlas_places)))
    runs = [
        run_section(config, dataset, layout, atlas, model, seed)
        for atlas in config.atlas_places
        for model in models
        for seed in config.seeds
    ]
    together = comparison(config, dataset, layout, models)
    truth = layout.tables / "truth.tsv"
    words, references = cite(methods(config, dataset, models, preprocessing_texts(layout, used)))
    return ReportData(
        dataset=dataset.name,
        description=dataset.description,
        facts=_facts(config, dataset, layout, used, exclusions, models),
        truth=readable.truth(read_table(truth, text=("measure", "unit"))) if truth.is_file() else None,
        cohort=cohort_section(dataset, layout, used),
        exclusions=exclusions,
        quality=quality_section(config, layout),
        series=[
            *(block for atlas in config.atlas_places for block in _series(config, layout, atlas)),
            *spaces_section(layout, used["scan_id"], config.atlas_places),
        ],
        runs=[*([together] if together else []), *search_sections(config, dataset, layout), *runs],
        methods=words,
        references=references,
        provenance={
            "date": time.strftime("%Y-%m-%d %H:%M"),
            "BolT": __version__ + _commit(),
            "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            "packages": ", ".join(f"{name} {version}" for name, version in versions().items()),
        },
        costs=costs_section(layout),
        configuration=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
    )


def _exclusions(layout: Layout, scans: pd.DataFrame) -> pd.DataFrame:
    if layout.exclusions.is_file():
        return read_table(layout.exclusions, text=("scan_id", "stage", "reason")).fillna("")
    listed = scans.loc[scans["exclude_reason"].notna(), ["scan_id", "exclude_reason"]]
    return listed.rename(columns={"exclude_reason": "reason"}).assign(stage="index")


def _commit() -> str:
    known = commit()
    changed = ", changed since" if known["changed"] else ""
    return f" (commit {known['commit'][:10]}{changed})" if known["commit"] else ""


def _facts(
    config: Config, dataset: Dataset, layout: Layout, used: pd.DataFrame, exclusions: pd.DataFrame, models: list[Model]
) -> dict[str, str]:
    facts = {
        "scans used": f"{len(used)} of {len(used) + exclusions['scan_id'].nunique()}",
        "subjects": str(used["subject"].nunique()),
        **_predicted(dataset),
        "atlases": ", ".join(config.atlas_places),
        "models": ", ".join(model.name for model in models),
    }
    if used["site"].notna().any():
        facts["sites"] = str(used["site"].nunique())
    first = layout.run(next(iter(config.atlas_places)), models[0], config.seeds[0]).folder / "summary.json"
    pooled = read_json(first)["pooled"] if first.is_file() else None
    if pooled and dataset.classes is None:
        facts[f"r, {models[0].name}"] = readable.number(pooled["r"]["value"])
    elif pooled:
        facts[f"accuracy, {models[0].name}"] = f"{readable.percent(pooled['accuracy']['value'])} %"
    return facts


def _predicted(dataset: Dataset) -> dict[str, str]:
    if dataset.classes is None:
        return {"label": f"{dataset.label}, a number"}
    return {"classes": ", ".join(dataset.classes) if len(dataset.classes) < 4 else str(len(dataset.classes))}


def _series(config: Config, layout: Layout, atlas: str) -> list[Block]:
    if not (layout.cache(atlas) / "manifest.json").is_file():
        return [Text(f"{atlas}: no series were made.", warning=True)]
    cache = SeriesCache(layout.cache(atlas))
    blocks: list[Block] = []
    scan = cache.index.iloc[0]
    picture = figure_folder(layout) / f"{atlas}_series.png"
    series, title = cache.series(0), f"{scan['scan_id']} · {atlas}"
    volumes = kept_volumes(layout.series_file(scan["scan_id"], atlas), len(series))
    plots.example_series(series, cache.rois, float(scan["tr"]), picture, title=title, volumes=volumes)
    what = f"{atlas}: {cache.n_rois} ROIs, {len(cache)} scans."
    blocks.append(Picture(picture, f"{what} The z-scored series of one scan, ROIs grouped by network."))
    files = sorted(layout.series("*").parent.glob(f"*/*_atlas-{atlas}_coverage.tsv"))
    files = [f for f in files if f.stat().st_size]
    tables_found = [read_table(f) for f in files]
    if tables_found:
        shares = pd.concat([t.set_index("value")["coverage"] for t in tables_found], axis=1)
        spread = pd.DataFrame(
            {"median": shares.median(axis=1), "minimum": shares.min(axis=1), "maximum": shares.max(axis=1)}
        )
        picture = figure_folder(layout) / f"{atlas}_coverage.png"
        plots.coverage(spread, config.parcellate.coverage, picture)
        caption = f"{atlas}: share of each ROI inside the acquired field and the T1-derived brain mask."
        blocks.append(Picture(picture, f"{caption} ROIs below the threshold in a scan are not used there."))
    blocks.append(_uncovered(layout, atlas))
    return blocks + _series_warnings(layout, atlas, dict(zip(files, tables_found, strict=True)))


def _uncovered(layout: Layout, atlas: str) -> Block:
    table = read_table(layout.cache(atlas) / "coverage.tsv", text=("name",))
    lost = table[(table["n_uncovered"] > 0) | (table["n_constant"] > 0)]
    if lost.empty:
        return Text(f"{atlas}: every ROI is covered in every scan.")
    shown = pd.DataFrame(
        {
            "ROI": lost["name"],
            "scans without coverage": [
                f"{u} of {n}" for u, n in zip(lost["n_uncovered"], lost["n_scans"], strict=True)
            ],
            "scans with a constant series": [
                f"{c} of {n}" for c, n in zip(lost["n_constant"], lost["n_scans"], strict=True)
            ],
        }
    )
    return Table(shown, f"{atlas}: ROIs that some scans lack.", layout.cache(atlas) / "coverage.tsv")


def _series_warnings(layout: Layout, atlas: str, coverage: dict[Path, pd.DataFrame]) -> list[Block]:
    """What was wrong with voxels and series, and went on all the same."""
    constant = int(read_table(layout.cache(atlas) / "coverage.tsv", text=("name",))["n_constant"].sum())
    texts = []
    if constant:
        texts.append(f"{constant} series do not change over their scan: z-scored they are zeros, and say nothing.")
    damaged = {file.parent.name: int(t["n_nonfinite"].sum()) for file, t in coverage.items()}
    damaged = {scan: n for scan, n in damaged.items() if n}
    if damaged:
        worst = sorted(damaged, key=lambda scan: -damaged[scan])[:5]
        listed = ", ".join(f"{scan} ({damaged[scan]})" for scan in worst)
        texts.append(
            f"voxels of ROIs are NaN or infinite at some volume in {len(damaged)} scans, and left out of the mean: "
            f"{listed}{' and others' if len(damaged) > 5 else ''}."
        )
    return [Text(f"{atlas}: {text}", warning=True) for text in texts]
