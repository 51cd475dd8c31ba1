"""Explanation by hand: one checkpoint, one scan, no dataset and no configuration."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from bolt.explain.given_scan import Scan, read_info, read_scan, target_of
from bolt.explain.one_scan import OneScan, explain_scan
from bolt.explain.regions import paint
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import atomic, write_json, write_table
from bolt.jobs.provenance import provenance
from bolt.models.bolt import BolT
from bolt.report.pages.one_scan import write_one_scan
from bolt.training.checkpoint import load_checkpoint

log = logging.getLogger("bolt")

MAP = "desc-contribution_statmap.nii.gz"
VOLUME_COLUMNS = {
    "volume": "volume of the acquisition, from 0",
    "seconds": "its time from the first volume; n/a where the repetition time is not known",
    "importance": "weight of Algorithm 1 for the class that is explained, not negative",
    "relative": "the same over the scan's mean (1: an average volume)",
}
LANDMARK_COLUMNS = {"rank": "1 is the most important volume", **VOLUME_COLUMNS}
ROI_COLUMNS = {
    "rank": "1 moves the log odds most, in either direction",
    "value": "label value of the ROI in the atlas's image",
    "name": "ROI",
    "network": "network of the ROI",
    "hemisphere": "hemisphere of the ROI",
    "contribution": "integrated gradients from the ROI's mean to its values at the landmarks, log odds of the class "
    "that is explained; above 0: speaks for it. All ROIs add up to log_odds - log_odds_without of explanation.json",
    "mean_z": "mean of the z-scored series at the landmarks: the activity itself, which no model decided",
}


def explain_by_hand(options: argparse.Namespace) -> None:
    """The command ``bolt explain --checkpoint DIR --series FILE --out DIR``.

    Parameters
    ----------
    options : Namespace
        checkpoint, series, out, events, tr, class_name, atlas, labels, standardize, tokens, hrf_shift, config (None:
        that of the results in which the checkpoint lies, where there is one).

    Raises
    ------
    ConfigError, DataError
        As `bolt.explain.given_scan.read_info`, `target_of` and `read_scan`; nothing is written then.
    """
    if options.series is None or options.out is None:
        raise ConfigError(
            "one scan needs --series and --out",
            hint="As in: bolt explain --checkpoint fold-0 --series scan.npy --out explained",
        )
    if options.tokens < 1:
        raise ConfigError(f"--tokens {options.tokens}: no landmark", hint="Give 1 or more, such as 5")
    info = read_info(options.checkpoint)
    target = target_of(info, options.class_name)
    scan = read_scan(options, info)
    model, _ = load_checkpoint(options.checkpoint)
    if not isinstance(model, BolT):  # the registry says so of its name
        raise DataError("not a BolT", where=options.checkpoint)
    found = explain_scan(model, scan.series, target, options.tokens)
    for note in scan.notes:
        log.warning(note)
    volumes, landmarks, rois = tables_of(scan, found)
    write_table(volumes, options.out / "importance.tsv", VOLUME_COLUMNS)
    write_table(landmarks, options.out / "landmarks.tsv", LANDMARK_COLUMNS)
    write_table(rois, options.out / "rois.tsv", ROI_COLUMNS)
    facts = facts_of(options, info, scan, found, landmarks)
    image = _paint(scan, found, options.out / MAP, facts["explained"])
    write_one_scan(scan, found, facts, (volumes, landmarks, rois), image, options.out, shift=options.hrf_shift)
    write_json(facts, options.out / "explanation.json")
    log.info("%s (probability %.3f): %s", facts["explained"], facts["probability"], options.out / "index.html")


def tables_of(scan: Scan, found: OneScan) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Volumes, landmarks and ROIs: columns of `VOLUME_COLUMNS`, `LANDMARK_COLUMNS` and `ROI_COLUMNS`."""
    weights = found.weights.astype(float)
    volumes = pd.DataFrame(
        {
            "volume": scan.volumes,
            "seconds": scan.volumes * (np.nan if scan.tr is None else scan.tr),
            "importance": weights,
            "relative": weights / (weights.mean() or 1),
        }
    )
    landmarks = volumes.iloc[found.landmarks].reset_index(drop=True)
    landmarks.insert(0, "rank", np.arange(1, len(landmarks) + 1))
    rois = scan.rois.assign(contribution=found.contributions, mean_z=scan.series[found.landmarks].mean(axis=0))
    rois = rois.iloc[np.argsort(-np.abs(found.contributions), kind="stable")].reset_index(drop=True)
    rois.insert(0, "rank", np.arange(1, len(rois) + 1))
    return volumes, landmarks, rois[list(ROI_COLUMNS)]


def facts_of(
    options: argparse.Namespace, info: dict[str, Any], scan: Scan, found: OneScan, landmarks: pd.DataFrame
) -> dict[str, Any]:
    """What ``explanation.json`` holds."""
    classes = info["classes"]
    files = [options.series, options.checkpoint / "checkpoint.safetensors"]
    files += [options.events] if options.events is not None else []
    return {
        "explained": classes[found.target],
        "probability": float(found.probabilities[found.target]),
        "predicted": classes[int(found.probabilities.argmax())],
        "probabilities": dict(zip(classes, found.probabilities.tolist(), strict=True)),
        "landmarks": landmarks.to_dict("list") if scan.tr else landmarks.drop(columns="seconds").to_dict("list"),
        "log_odds": found.log_odds,
        "log_odds_without": found.log_odds_without,
        "sum_of_contributions": float(found.contributions.sum()),
        "n_volumes": len(scan.series),
        "n_rois": scan.series.shape[1],
        "tr": scan.tr,
        "standardized": options.standardize,
        "tested": None if scan.tested is None else dict(zip(("right", "scans"), scan.tested, strict=True)),
        "atlas": scan.atlas or None,
        "map": MAP if scan.image is not None else None,
        "notes": scan.notes,
        "provenance": provenance(files, fold=info["fold"], seed=info["seed"], model=info["model"]["name"]),
    }


def _paint(scan: Scan, found: OneScan, path: Path, name: str) -> nib.Nifti1Image | None:
    """Write the contributions as a map in the atlas's space, where its image is known."""
    sidecar = path.with_name(path.name.replace(".nii.gz", ".json"))
    for old in (path, sidecar):
        old.unlink(missing_ok=True)
    if scan.image is None:
        return None
    image = paint(scan.image, scan.rois["value"].to_numpy(int), found.contributions.astype(np.float32))
    with atomic(path) as temporary:
        nib.save(image, temporary)
    about = {"Description": ROI_COLUMNS["contribution"], "Units": "log odds", "Class": name, "Space": scan.space}
    write_json(about, sidecar)
    return image
