"""Quality of all scans in one table, and exclusions by the configured cut-offs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.config import Config, Dataset, Quality
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.io.errors import DataError
from bolt.io.files import columns, read_columns, read_json, read_table, to_numbers, write_status, write_table
from bolt.io.series_files import read_series
from bolt.preprocess.quality.measures import MEASURES, motion_numbers

log = logging.getLogger("bolt")
MOTION = ("framewise_displacement", "std_dvars")
"""Columns of confounds, often among hundreds, that quality is judged by."""
RATINGS = ("keep", "unsure", "exclude")
"""What a person may say of a scan."""
QUALITY_COLUMNS: dict[str, str] = {
    **columns("cohort", "quality"),
    **{name: f"{m.description}{f' ({m.unit})' if m.unit else ''}" for name, m in MEASURES.items()},
}


def gather_quality(scans: pd.DataFrame, config: Config, layout: Layout, *, write: bool = True) -> pd.DataFrame:
    """Apply the cut-offs to every scan; write a ``status.json`` for each, and the table.

    For raw images the measures are those of preprocessing; for other sources, those available: displacement and DVARS
    of the confounds table, the mean displacement of the scan table, the coverage of ROIs.

    Parameters
    ----------
    scans : DataFrame
        The scan table; scans with an ``exclude_reason`` are skipped.
    config : Config
    layout : Layout
    write : bool
        Whether to write files; without, some scans are judged while others are made.

    Returns
    -------
    DataFrame
        `QUALITY_COLUMNS`, one row per scan; also written to ``layout.quality``, last of all.
    """
    if write:
        shutil.rmtree(layout.quality.parent, ignore_errors=True)  # removes statuses of former scans and cut-offs
    cutoffs, rated_bad = list(config.quality.cutoffs()), excluded_by_eye(config.quality.ratings)
    rows, n_unknown = [], dict.fromkeys((measure for _, measure, _ in cutoffs), 0)
    for scan in scans[scans.exclude_reason.isna()].itertuples():
        before, failure = layout.series_status(scan.scan_id), None
        if scan.kind == "series":
            before = Path(scan.bold).parent / "status.json"
        if scan.kind != "series" or before.is_file():  # of series, only downloaded ones have a status
            status = read_json(before)
            failure = None if status["state"] == "ok" else status  # the series could not be made or downloaded
        numbers = {} if failure else _numbers(scan, config, layout)
        if failure:
            state, reason = failure["state"], f"{failure['stage']}: {failure['reason']}"
        else:
            reasons = failed_cutoffs(numbers, config.quality)
            reasons += [f"rated 'exclude'{rated_bad[scan.scan_id]}"] if scan.scan_id in rated_bad else []
            for measure in n_unknown:
                n_unknown[measure] += measure not in numbers
            state, reason = "excluded" if reasons else "ok", "; ".join(reasons)
            if reasons:
                log.warning("%s is excluded: %s", scan.scan_id, reason)
            if write:
                problem = DataError(reason) if reasons else None
                write_status(layout.quality_status(scan.scan_id), state, "quality", problem)
        anatomy = folder_of(scan.t1w) if scan.kind == "raw" else None
        facts = {"scan_id": scan.scan_id, "subject": scan.subject, "anatomy": anatomy, "state": state, "reason": reason}
        rows.append({**facts, **{name: numbers.get(name) for name in MEASURES}})
    table = pd.DataFrame(rows, columns=list(QUALITY_COLUMNS))
    if write:
        for measure, count in n_unknown.items():
            if count:
                log.info("%s is unknown for %d of the scans, so its cut-off excludes none of them", measure, count)
        write_table(table, layout.quality, QUALITY_COLUMNS)
    return table


def excluded_by_eye(file: Path | None) -> dict[str, str]:
    """Read the scans that a person has rated ``exclude``, each with its note (": note") or "".

    Raises
    ------
    DataError
        A column is missing, a rating is unknown, or a scan is rated twice in different ways.
    """
    if file is None:
        return {}
    table = read_table(file, text=("scan_id", "rating", "note"))
    for column in ("scan_id", "rating"):
        if column not in table:
            raise DataError(f"column '{column}' is missing", where=file, hint="Save the ratings from the quality page")
    table = table.dropna(subset=["rating"]).reindex(columns=["scan_id", "rating", "note"]).drop_duplicates()
    unknown = sorted(set(table["rating"]) - set(RATINGS))
    if unknown:
        raise DataError(f"unknown rating '{unknown[0]}'", where=file, hint=f"Use {', '.join(RATINGS)}")
    several = table.groupby("scan_id")["rating"].nunique()
    if (several > 1).any():
        raise DataError(f"{several.idxmax()} has several ratings", where=file, hint="Keep one of them")
    bad = table[table["rating"] == "exclude"].fillna({"note": ""})
    return {row.scan_id: f": {row.note}" if row.note else "" for row in bad.itertuples()}


def failed_cutoffs(numbers: Mapping[str, Any], cutoffs: Quality) -> list[str]:
    """Describe each cut-off that a scan fails; unknown measures are not judged."""
    reasons = []
    for bound, name, cutoff in cutoffs.cutoffs():
        value = numbers.get(name)
        if value is None or pd.isna(value) or Quality.met(bound, cutoff, value):
            continue
        measure = MEASURES[name]
        unit = f" {measure.unit}" if measure.unit else ""
        side, meaning = "below" if bound == "min" else "above", f": {measure.beyond}" if measure.beyond else ""
        texts = [f"{value:.{digits}g}" for digits in range(2, 7)]
        shown = next((text for text in texts if float(text) != cutoff), f"{value!r}")  # distinguished from the cut-off
        reasons.append(f"{measure.label} {shown}{unit} is {side} the cut-off {cutoff:g}{meaning}")
    return reasons


def _numbers(scan: Any, config: Config, layout: Layout) -> dict[str, Any]:
    """Return the known measures of a scan."""
    numbers: dict[str, Any] = {"n_volumes": scan.n_volumes, "mean_fd": scan.mean_fd}
    if scan.kind == "raw":
        anatomy = folder_of(scan.t1w)
        numbers |= read_json(layout.anatomical(anatomy) / f"{prefix_of(anatomy)}desc-quality.json")
        numbers |= read_json(layout.functional(folder_of(scan.scan_id)) / f"{scan.scan_id}_desc-quality.json")
    elif isinstance(scan.confounds, str) and Path(scan.confounds).suffix == ".tsv":
        numbers |= motion_numbers(read_table(scan.confounds, columns=MOTION))
    if pd.isna(numbers["n_volumes"]):  # unknown before a scan is downloaded
        if scan.kind == "series":
            with suppress(DataError):  # the cache will exclude it with the reason
                numbers["n_volumes"] = len(read_series(scan.bold))
        else:
            sidecar = layout.series_file(scan.scan_id, next(iter(config.atlas_places))).with_suffix(".json")
            numbers["n_volumes"] = read_json(sidecar).get("NumberOfVolumes") if sidecar.is_file() else None
    if scan.kind != "series":
        covered = (read_columns(layout.coverage(scan.scan_id, atlas), ["covered"]) for atlas in config.atlas_places)
        numbers["coverage"] = min(float(np.nanmean(to_numbers(column))) for (column,) in covered)
    return {name: value for name, value in numbers.items() if name in MEASURES and not pd.isna(value)}


def is_judged(config: Config, dataset: Dataset) -> bool:
    """Return whether quality cut-offs apply.

    Only displacement and length are known for ready series, so one of these must have a cut-off, or scans were rated.
    """
    known = {measure for _, measure, _ in config.quality.cutoffs()} & {"mean_fd", "n_volumes"}
    return not dataset.ready_series or bool(known) or config.quality.ratings is not None
