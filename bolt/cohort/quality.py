"""The quality of all scans in one table, and who is left out for it, by declared cut-offs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import Config, Dataset, Quality
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_status, write_table
from bolt.io.series_files import read_series
from bolt.preprocess.quality.measures import MEASURES, motion_numbers

log = logging.getLogger("bolt")
QUALITY_COLUMNS = {
    "scan_id": "Scan",
    "subject": "Subject",
    "anatomy": "Folder of the T1w image below derivatives/",
    "state": "ok; excluded by a cut-off; failed before",
    "reason": "Why it is not ok",
    **{name: f"{m.description}{f' ({m.unit})' if m.unit else ''}" for name, m in MEASURES.items()},
}


def gather_quality(scans: pd.DataFrame, config: Config, layout: Layout) -> pd.DataFrame:
    """Judge every scan by what is known of it; a ``status.json`` each, and the table.

    Scans of raw images have the numbers of preprocessing; others what their source tells: displacement and DVARS
    of the confounds table, the mean displacement of the scan table, the coverage of ROIs.

    Parameters
    ----------
    scans : DataFrame
        The scan table; those with an ``exclude_reason`` are passed over.
    config : Config
    layout : Layout

    Returns
    -------
    DataFrame
        `QUALITY_COLUMNS`, one row a scan; written to ``layout.quality`` as well, at the very end.
    """
    folder = layout.quality.parent
    shutil.rmtree(folder, ignore_errors=True)  # statuses of scans and cut-offs that were
    cutoffs = list(config.quality.cutoffs())
    rows, unknown = [], dict.fromkeys((measure for _, measure, _ in cutoffs), 0)
    for scan in scans[scans.exclude_reason.isna()].itertuples():
        before = _status_before(scan, layout)
        numbers = {} if before else _numbers(scan, config, layout)
        state, reason = "ok", ""
        if before:
            state, reason = before["state"], f"{before['stage']}: {before['reason']}"
        else:
            reasons = judge(numbers, config.quality)
            for measure in unknown:
                unknown[measure] += measure not in numbers
            if reasons:
                state, reason = "excluded", "; ".join(reasons)
                log.warning("%s is left out: %s", scan.scan_id, reason)
            write_status(layout.quality_status(scan.scan_id), state, "quality", DataError(reason) if reason else None)
        anatomy = folder_of(scan.t1w) if scan.kind == "raw" else None
        facts = {"scan_id": scan.scan_id, "subject": scan.subject, "anatomy": anatomy, "state": state, "reason": reason}
        rows.append({**facts, **{name: numbers.get(name) for name in MEASURES}})
    for measure, count in unknown.items():
        if count:
            log.info("%s is not known of %d scans, so its cut-off leaves none of them out", measure, count)
    table = pd.DataFrame(rows, columns=list(QUALITY_COLUMNS))
    write_table(table, layout.quality, QUALITY_COLUMNS)
    return table


def displacement(file: Path) -> dict[str, float]:
    """Mean displacement in mm of every scan of which ``quality.tsv`` says one."""
    table = read_table(file, text=("scan_id",))
    return dict(table.set_index("scan_id")["mean_fd"].astype(float).dropna())


def judge(numbers: Mapping[str, Any], cutoffs: Quality) -> list[str]:
    """Each cut-off that a scan does not meet, in words; a number that is not known is not judged."""
    reasons = []
    for bound, name, cutoff in cutoffs.cutoffs():
        value = numbers.get(name)
        if value is None or pd.isna(value) or Quality.met(bound, cutoff, value):
            continue
        measure = MEASURES[name]
        unit = f" {measure.unit}" if measure.unit else ""
        side = "below" if bound == "min" else "above"
        meaning = f": {measure.beyond}" if measure.beyond else ""
        reasons.append(f"{measure.label} {_digits(value, cutoff)}{unit} is {side} the cut-off {cutoff:g}{meaning}")
    return reasons


def _digits(value: float, cutoff: float) -> str:
    """The number with as few digits as still tell it from the cut-off."""
    for digits in range(2, 7):
        text = f"{value:.{digits}g}"
        if float(text) != cutoff:
            return text
    return f"{value!r}"


def _status_before(scan: Any, layout: Layout) -> dict[str, Any] | None:
    """The status of a scan's series where they were not made."""
    path = layout.series_status(scan.scan_id)
    if scan.kind == "series":  # one that was downloaded has a status beside it
        path = Path(scan.bold).parent / "status.json"
        if not path.is_file():
            return None
    status: dict[str, Any] = read_json(path)
    return None if status["state"] == "ok" else status


def _numbers(scan: Any, config: Config, layout: Layout) -> dict[str, Any]:
    found: dict[str, Any] = {"n_volumes": scan.n_volumes, "mean_fd": scan.mean_fd}
    if scan.kind == "raw":
        anatomy = folder_of(scan.t1w)
        found |= read_json(layout.anatomical(anatomy) / f"{prefix_of(anatomy)}desc-quality.json")
        found |= read_json(layout.functional(folder_of(scan.scan_id)) / f"{scan.scan_id}_desc-quality.json")
    elif isinstance(scan.confounds, str) and Path(scan.confounds).suffix == ".tsv":
        found |= motion_numbers(read_table(scan.confounds))
    if pd.isna(found["n_volumes"]):  # not known before a scan was downloaded
        found["n_volumes"] = _length(scan, config, layout)
    if scan.kind != "series":
        found["coverage"] = min(_coverage(scan.scan_id, atlas, layout) for atlas in config.atlas_places)
    return {name: value for name, value in found.items() if name in MEASURES and not pd.isna(value)}


def _length(scan: Any, config: Config, layout: Layout) -> int | None:
    """Volumes of a scan: by the file that lies beside its series; of ready series, their own length."""
    if scan.kind != "series":
        sidecar = layout.series_file(scan.scan_id, next(iter(config.atlas_places))).with_suffix(".json")
        return read_json(sidecar).get("NumberOfVolumes") if sidecar.is_file() else None
    try:
        return len(read_series(scan.bold))
    except DataError:  # a cache leaves it out, and says why
        return None


def _coverage(scan_id: str, atlas: str, layout: Layout) -> float:
    return float(read_table(layout.coverage(scan_id, atlas))["covered"].mean())


def is_judged(config: Config, dataset: Dataset) -> bool:
    """Whether scans are judged by their quality: of ready series at most displacement and length are known, so there
    only when one of these has a cut-off."""
    known = {measure for _, measure, _ in config.quality.cutoffs()} & {"mean_fd", "n_volumes"}
    return not dataset.ready_series or bool(known)
