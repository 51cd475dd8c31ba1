"""Explain one scan by one checkpoint, without a dataset or a configuration."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.explain.given_scan import GivenScan, read_info, read_scan, target_of
from bolt.explain.importance import load_bolt
from bolt.explain.maps import paint, write_map
from bolt.explain.one_scan import ScanExplanation, explain_scan
from bolt.io.errors import ConfigError
from bolt.io.files import write_json, write_table
from bolt.jobs.provenance import provenance
from bolt.report.pages.one_scan import write_one_scan

log = logging.getLogger("bolt")

MAP = "desc-contribution_statmap"
VOLUME_COLUMNS = {
    "volume": "volume of the acquisition, from 0",
    "seconds": "its time since the first volume; n/a if the repetition time is unknown",
    "importance": "importance of the volume for the explained class (Algorithm 1), not negative",
    "relative": "importance divided by the scan's mean (1: an average volume)",
}
LANDMARK_COLUMNS = {"rank": "1 is the most important volume", **VOLUME_COLUMNS}
ROI_COLUMNS = {
    "rank": "1 is the ROI with the largest absolute contribution",
    "value": "label value of the ROI in the atlas's image",
    "name": "ROI",
    "network": "network of the ROI",
    "hemisphere": "hemisphere of the ROI",
    "contribution": "integrated gradients from the ROI's mean to its values at the landmarks, log odds of the "
    "explained class; above 0: evidence for it. All ROIs add up to log_odds - log_odds_without of explanation.json",
    "mean_z": "mean of the z-scored series at the landmarks: the activity itself, independent of the model",
}


def explain_given_scan(options: argparse.Namespace) -> None:
    """Run ``bolt explain --checkpoint DIR --series FILE --out DIR``.

    Parameters
    ----------
    options : Namespace
        checkpoint, series, out, events, tr, class_name, atlas, labels, standardize, tokens, hrf_shift, config (None:
        that of the results which hold the checkpoint, if there is one).

    Raises
    ------
    ConfigError, DataError
        As `bolt.explain.given_scan.read_info`, `target_of` and `read_scan`; nothing has been written then.
    """
    if options.series is None or options.out is None:
        example = "bolt explain --checkpoint fold-0 --series scan.npy --out explained"
        raise ConfigError("one scan needs --series and --out", hint=f"As in: {example}")
    if options.tokens < 1:
        raise ConfigError(f"--tokens {options.tokens}: no landmarks", hint="Give 1 or more, such as 5")
    info = read_info(options.checkpoint)
    target = target_of(info, options.class_name)
    scan = read_scan(options, info)
    explanation = explain_scan(load_bolt(options.checkpoint)[0], scan.series, target, options.tokens)
    for note in scan.notes:
        log.warning(note)
    inputs = [options.series, options.checkpoint / "checkpoint.safetensors", options.events]
    about = {"fold": info["fold"], "seed": info["seed"], "model": info["model"]["name"]}
    made_from = provenance([file for file in inputs if file is not None], **about)
    facts = facts_of(info["classes"], scan, explanation) | {
        "standardized": options.standardize,
        "provenance": made_from,
    }
    write_explanation(scan, explanation, facts, options.out, shift=options.hrf_shift)


def write_explanation(
    scan: GivenScan, explanation: ScanExplanation, facts: dict[str, Any], out: Path, *, shift: float = 0.0
) -> None:
    """Write tables, map, page and, last, ``explanation.json`` of one scan; `facts` are from `facts_of`."""
    volumes, landmarks, rois = tables = tables_of(scan, explanation)
    write_table(volumes, out / "importance.tsv", VOLUME_COLUMNS)
    write_table(landmarks, out / "landmarks.tsv", LANDMARK_COLUMNS)
    write_table(rois, out / "rois.tsv", ROI_COLUMNS)
    for suffix in (".nii.gz", ".json"):
        (out / f"{MAP}{suffix}").unlink(missing_ok=True)
    image = None
    if scan.image is not None:
        image = paint(scan.image, rois["value"].to_numpy(int), rois["contribution"].to_numpy(np.float32))
        about = {"Units": "log odds", "Class": facts["explained"], "Space": scan.space}
        write_map(image, out / f"{MAP}.nii.gz", {"Description": ROI_COLUMNS["contribution"], **about})
    write_one_scan(scan, facts, tables, image, out, shift=shift)
    write_json(facts, out / "explanation.json")
    log.info("%s (probability %.3f): %s", facts["explained"], facts["probability"], out / "index.html")


def tables_of(scan: GivenScan, explanation: ScanExplanation) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return volumes, landmarks and ROIs: columns of `VOLUME_COLUMNS`, `LANDMARK_COLUMNS` and `ROI_COLUMNS`."""
    weights, contributions = explanation.weights.astype(float), explanation.contributions
    volumes = pd.DataFrame(
        {
            "volume": scan.volumes,
            "seconds": scan.volumes * (np.nan if scan.tr is None else scan.tr),
            "importance": weights,
            "relative": weights / (weights.mean() or 1),
        }
    )
    landmarks = volumes.iloc[explanation.landmarks]
    rois = scan.rois.assign(contribution=contributions, mean_z=scan.series[explanation.landmarks].mean(axis=0))
    rois = rois.iloc[np.argsort(-np.abs(contributions), kind="stable")]
    landmarks, rois = (t.reset_index(drop=True).assign(rank=np.arange(1, len(t) + 1)) for t in (landmarks, rois))
    return volumes, landmarks[list(LANDMARK_COLUMNS)], rois[list(ROI_COLUMNS)]


def facts_of(classes: list[str], scan: GivenScan, explanation: ScanExplanation) -> dict[str, Any]:
    """Return the content of ``explanation.json``, but for ``standardized`` and ``provenance``."""
    probabilities, landmarks = explanation.probabilities.tolist(), tables_of(scan, explanation)[1]
    return {
        "explained": classes[explanation.target],
        "probability": probabilities[explanation.target],
        "predicted": classes[explanation.probabilities.argmax()],
        "probabilities": dict(zip(classes, probabilities, strict=True)),
        "landmarks": (landmarks if scan.tr else landmarks.drop(columns="seconds")).to_dict("list"),
        "log_odds": explanation.log_odds,
        "log_odds_without": explanation.log_odds_without,
        "sum_of_contributions": float(explanation.contributions.sum()),
        "n_volumes": len(scan.series),
        "n_rois": scan.series.shape[1],
        "tr": scan.tr,
        "tested": None if scan.tested is None else dict(zip(("right", "scans"), scan.tested, strict=True)),
        "atlas": scan.atlas or None,
        "map": f"{MAP}.nii.gz" if scan.image is not None else None,
        "notes": scan.notes,
    }
