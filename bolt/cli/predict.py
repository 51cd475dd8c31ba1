"""The command ``bolt predict``: predictions for new scans by all models of a pack or a run.

Of images the workflow makes series like the model's.
"""

from __future__ import annotations

import argparse
import logging
from math import isnan
from pathlib import Path
from typing import Any

from bolt.atlases.description import describe_atlas
from bolt.cli.new_study import Wishes, from_here, source_of_folder, write_study
from bolt.cli.run_app import call_workflow
from bolt.config import known, load_denoise
from bolt.config.layout import Layout
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_table, write_json, write_table, write_yaml
from bolt.jobs.provenance import provenance, provenance_path
from bolt.share.explanation import explained_models
from bolt.share.models import Pack, read_pack
from bolt.share.one_scan import atlas_of, explain_predictions
from bolt.share.predict import (
    EXCLUDED,
    METRIC_COLUMNS,
    NewScans,
    column_descriptions,
    external_metrics,
    predict_scans,
    read_new_scans,
    read_results,
)

log = logging.getLogger("bolt")

NAME = "new"
"""Of the dataset that the workflow is given."""
LIGHTEST = "majority"
"""A model that is never trained here, and excludes no scan for its length."""


def predict(options: argparse.Namespace) -> None:
    """Run ``bolt predict MODEL SOURCE… --out TABLE``.

    Parameters
    ----------
    options : Namespace
        model, source (a list of paths), out, label, explain, tr, any_tr, atlas, work_dir, n_cpus, fetch.

    Raises
    ------
    ConfigError, DataError
        As `bolt.share.models.read_pack` and `bolt.share.predict`; no scan can be predicted.
    """
    if options.out.suffix != ".tsv":
        raise ConfigError(f"--out {options.out}: predictions are a table", hint="Give a name that ends in .tsv")
    if options.tr is not None and not 0.05 <= options.tr <= 30:
        raise ConfigError(f"--tr {options.tr:g} is no repetition time", hint="Give seconds, such as --tr 2")
    if options.out.exists() and any(path.exists() and path.samefile(options.out) for path in options.source):
        raise ConfigError(f"--out {options.out} is a source", hint="Give another name")
    pack = read_pack(options.model)
    if options.explain is not None:
        if pack.classes is None:
            raise ConfigError("--explain: the models predict a number, not classes", hint="Leave --explain out")
        explained_models(pack.estimator)
    scans = scans_to_predict(options, pack)
    table, excluded = predict_scans(pack, scans, any_tr=options.any_tr)
    for row in excluded.itertuples():
        log.warning("not predicted: %s: %s", row.scan_id, row.reason)
    out: Path = options.out
    write_table(excluded, out.with_name(f"{out.stem}_exclusions.tsv"), EXCLUDED)
    if table.empty:
        raise DataError(f"none of the {len(excluded)} scans can be predicted", hint="See the reasons above")
    write_table(table, out, column_descriptions(pack))
    files = [path for path in options.source if path.is_file()]
    write_json(provenance(files, stage="predict", models=len(pack.estimator.members_)), provenance_path(out))
    for ending in (".tsv", ".json"):
        out.with_name(f"{out.stem}_metrics{ending}").unlink(missing_ok=True)  # of earlier predictions
    if "label" in table:
        metrics = external_metrics(pack, table, scans)
        write_table(metrics, out.with_name(f"{out.stem}_metrics.tsv"), METRIC_COLUMNS)
        shown = metrics[metrics["metric"].isin(["accuracy", "auc", "r", "mae"])]
        for model, rows in shown.groupby("model", sort=False):
            values = [
                f"{row.metric} {row.value:.2f} ({'too few' if isnan(row.low) else f'{row.low:.2f}–{row.high:.2f}'})"
                for row in rows.itertuples()
            ]
            log.info("%s: %s", model, ", ".join(values))
    flagged = (table["flags"] != "").sum()
    log.info("%s: %d scans predicted, %d flagged, %d not predicted", out, len(table), flagged, len(excluded))
    if options.explain is not None:
        explain_predictions(pack, scans, table, options)


def scans_to_predict(options: argparse.Namespace, pack: Pack) -> NewScans:
    """Read or make the series of the scans to predict.

    Parameters
    ----------
    options : Namespace
        model, source, label, tr, atlas, out, work_dir, n_cpus, fetch.
    pack : Pack

    Raises
    ------
    ConfigError, DataError
        The source cannot be read; the atlas is not the model's; the workflow has failed.
    """
    folder = options.source[0]
    if not folder.is_dir():
        labels = atlas_of(pack, options.model, options.atlas, None).labels
        return read_new_scans(options.source, pack, options.tr, options.label, labels)
    if len(options.source) > 1:
        raise ConfigError("several sources, of which the first is a folder", hint="Give one folder, or files")
    if options.tr is not None:
        raise ConfigError("--tr: the images or results of a folder have their own", hint="Leave --tr out")
    if (folder / "cache").is_dir() and (folder / "config.yaml").is_file():
        return read_results(folder, pack, options.label)
    series = pack.about.get("series")
    if series is None or series["space"] is None:
        what = "how the model's series were made is unknown, so none can be made of images"
        raise ConfigError(what, where=options.model, hint="Make series yourself, and give these")
    made_by = {"bids": "BolT", "fmriprep": "fMRIPrep"}.get(source_of_folder(folder))
    if made_by is not None and made_by != series["made_by"]:
        log.warning("images preprocessed by %s; those of the training cohort by %s", made_by, series["made_by"])
    work = options.work_dir or options.out.with_name(f"{options.out.stem}_work")
    place, config, _ = write_study(work, NAME, folder, wishes_of(options, pack, work))
    for target in ["resources"] * options.fetch + ["series"]:
        if call_workflow(work, place, [target], options.n_cpus):
            what = "the series of these images could not be made"
            raise DataError(what, where=work, hint="See above; the same command resumes")
    layout = Layout(config)
    found = read_results(work / layout.results, pack, options.label)
    exclusions = read_table(work / layout.exclusions, text=("scan_id", "stage", "reason"))
    found.excluded += [(row.scan_id, f"{row.stage}: {row.reason}") for row in exclusions.itertuples()]
    return found


def wishes_of(options: argparse.Namespace, pack: Pack, work: Path) -> Wishes:
    """Return the settings with which the model's series were made; another denoising than ours is written to a file."""
    series, atlas = pack.about["series"], pack.atlas["name"]
    denoising, denoise = series["denoising"], "none"
    if denoising is not None:
        denoise = denoising["name"]
        if denoise not in known("denoising") or load_denoise(denoise).model_dump(mode="json") != denoising:
            path = (work / "denoise" / f"{denoise}.yaml").resolve()
            write_yaml({key: value for key, value in denoising.items() if key != "name"}, path)
            denoise = str(path)
    if options.atlas is not None:
        atlas = from_here("atlases", options.atlas)
    else:
        try:
            describe_atlas(atlas)
        except BoltError:
            raise ConfigError(
                f"the model's atlas '{atlas}' does not come with BolT", hint="Give its folder: --atlas FOLDER"
            ) from None
    signal = series.get("signal", 0)  # packs may have been made before it was asked for
    settings: dict[str, Any] = {
        "preprocess": {**(series["preprocessing"] or {}), "space": series["space"], "output": series["output"]},
        "parcellate": {"coverage": series["coverage"], "signal": signal, "uncovered": "zero"},
        "denoise": denoise,
    }
    classes, models = pack.classes or [], [LIGHTEST] if pack.classes else []
    return Wishes(label=options.label, classes=classes, atlases=[atlas], models=models, settings=settings)
