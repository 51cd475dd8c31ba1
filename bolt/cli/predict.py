"""The command ``bolt predict``: predictions for new scans by all models of a pack or a run."""

from __future__ import annotations

import argparse
import logging
from math import isnan
from pathlib import Path

import pandas as pd

from bolt.api.explanation import require_importance
from bolt.cli.explain_predictions import explain_predictions
from bolt.cli.predict_source import scans_to_predict
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import write_json, write_table
from bolt.jobs.provenance import provenance, provenance_path
from bolt.packs.pack import Pack, read_pack
from bolt.packs.predict import EXCLUDED, METRIC_COLUMNS, column_descriptions, external_metrics, predict_scans, wanted_by
from bolt.packs.sources import NewScans

log = logging.getLogger("bolt")


def predict(options: argparse.Namespace) -> None:
    """Run ``bolt predict MODEL SOURCE… --out TABLE``.

    Parameters
    ----------
    options : Namespace
        model, source (a list of paths), out, label, explain, tr, any_tr, atlas, work_dir, n_cpus, fetch.

    Raises
    ------
    ConfigError, DataError
        As `bolt.packs.pack.read_pack` and `bolt.packs.sources`; no scan can be predicted.
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
        require_importance(pack.estimator)
    scans = scans_to_predict(options, pack, wanted_by(pack))
    table = write_predictions(pack, scans, options.out, any_tr=options.any_tr, inputs=options.source)
    if options.explain is not None:
        explain_predictions(pack, scans, table, options)


def write_predictions(pack: Pack, scans: NewScans, out: Path, *, any_tr: bool, inputs: list[Path]) -> pd.DataFrame:
    """Predict scans; write the table, the scans that are not predicted and, with labels, the metrics."""
    table, excluded = predict_scans(pack, scans, any_tr=any_tr)
    for row in excluded.itertuples():
        log.warning("not predicted: %s: %s", row.scan_id, row.reason)
    write_table(excluded, out.with_name(f"{out.stem}_exclusions.tsv"), EXCLUDED)
    if table.empty:
        raise DataError(f"none of the {len(excluded)} scans can be predicted", hint="See the reasons above")
    write_table(table, out, column_descriptions(pack))
    files = [path for path in inputs if path.is_file()]
    write_json(provenance(files, stage="predict", models=len(pack.estimator.members_)), provenance_path(out))
    if "label" in table:
        metrics = external_metrics(pack, table, scans)
        write_table(metrics, out.with_name(f"{out.stem}_metrics.tsv"), METRIC_COLUMNS)
        log_metrics(metrics)
    flagged = (table["flags"] != "").sum()
    log.info("%s: %d scans predicted, %d flagged, %d not predicted", out, len(table), flagged, len(excluded))
    return table


def log_metrics(metrics: pd.DataFrame) -> None:
    """Log the first metrics of each model."""
    for model, rows in metrics.groupby("model", sort=False):
        shown = rows[rows["metric"].isin(["accuracy", "auc", "r", "mae"])]
        values = [
            f"{row.metric} {row.value:.2f} ({'too few' if isnan(row.low) else f'{row.low:.2f}–{row.high:.2f}'})"
            for row in shown.itertuples()
        ]
        log.info("%s: %s", model, ", ".join(values))
