"""Explain one scan by trained models, without a dataset or a configuration."""

from __future__ import annotations

import argparse
import logging
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.api.explanation import explain_members, require_importance
from bolt.api.loading import load
from bolt.api.saved import ABOUT
from bolt.api.scans import SeriesInMemory, scan_table
from bolt.atlases.labels import LABEL_COLUMNS, load_labels
from bolt.config import Paths, load_config
from bolt.explain.given_scan import GivenScan, ModelAtlas, find_atlas, read_scan, target_of
from bolt.explain.weights import paint, write_map
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import write_json, write_table
from bolt.jobs.provenance import provenance
from bolt.packs.facts import RunPlace, test_predictions
from bolt.packs.known import TRAINED, known_scans
from bolt.packs.pack import Pack, read_pack
from bolt.packs.sources import subject_of
from bolt.report.pages.one_scan import write_one_scan
from bolt.training.ensembles import predict_each

if TYPE_CHECKING:
    from bolt.explain.one_scan import ScanExplanation

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
    """Run ``bolt explain MODEL SCAN --out DIR``.

    Parameters
    ----------
    options : Namespace
        model, scan, out, events, tr, class_name, atlas, labels, standardize, tokens, hrf_shift.

    Raises
    ------
    ConfigError, DataError
        There is no model that can be explained; as `bolt.explain.given_scan`. Nothing has been written then.
    """
    if options.tokens < 1:
        raise ConfigError(f"--tokens {options.tokens}: no landmarks", hint="Give 1 or more, such as 5")
    pack = read_models(options.model)
    members = pack.estimator.members_
    rois = members[0].info["rois"]
    target = target_of(pack.classes or [], options.class_name)
    atlas = find_atlas(options, rois, known_atlas(pack))
    scan = read_scan(options, rois, max(member.shortest for member in members), atlas)
    name = options.scan.name.removesuffix(options.scan.suffix)
    cache = SeriesInMemory([scan.series], scan_table(1).assign(scan_id=name, subject=subject_of(name)))
    model = _untrained(pack, cache, scan)
    if target is None:
        target = int(predict_each(model.members_, cache, model.device).mean(axis=0)[0].argmax())
    explanation = explain_members(model, cache.series(0), target, options.tokens)
    for note in scan.notes:
        log.warning(note)
    scan.tested = _tested(pack)
    inputs = [options.scan, *([options.events] if options.events else [])]
    made_from = provenance(inputs, model=model.configuration.name, models=len(model.members_))
    facts = facts_of(pack.classes or [], scan, explanation)
    facts |= {"scan": name, "standardized": options.standardize, "provenance": made_from}
    write_explanation(scan, explanation, facts, options.out, shift=options.hrf_shift)


def read_models(folder: Path) -> Pack:
    """Read a pack, an estimator saved from Python, or the models of a run or a fold, also outside its results.

    Raises
    ------
    ConfigError, DataError
        There is no model, or none that can be explained.
    """
    place = None
    if not (folder / ABOUT).is_file():
        with suppress(DataError):  # a copy of a fold, outside its results
            place = RunPlace.of(folder)
    pack = read_pack(folder) if (folder / ABOUT).is_file() else Pack(load(folder), place=place)
    if pack.classes is None:
        raise ConfigError("these models predict a number, but what is explained is a class", hint="Give a classifier")
    require_importance(pack.estimator)
    return pack


def known_atlas(pack: Pack) -> ModelAtlas:
    """Return what models say of their atlas."""
    name, place, paths, labels = "", "", Paths(), None
    if pack.place is not None:
        name = place = pack.place.atlas
        with suppress(BoltError):  # a configuration of another version
            config = load_config(pack.place.results / "config.yaml")
            place, paths = config.atlas_places.get(name, name), config.paths
    elif pack.about:
        name = place = pack.about["atlas"]["name"]
        labels = pd.DataFrame(pack.about["rois"]).reindex(columns=list(LABEL_COLUMNS))
    elif (names := getattr(pack.estimator, "feature_names_in_", None)) is not None:
        labels = pd.DataFrame({"value": pack.estimator.members_[0].info["rois"], "name": names})
        labels = labels.reindex(columns=list(LABEL_COLUMNS))
    with suppress(BoltError):  # all ROIs of the atlas, of which models may have left out some
        labels = load_labels(place, atlas_dir=paths.atlas_dir) if place else labels
    return ModelAtlas(name, place, labels, paths)


def using(estimator: Any, used: NDArray[np.bool_]) -> Any:
    """Return an estimator of some of its models."""
    some = copy(estimator)
    some.members_ = [member for member, use in zip(estimator.members_, used, strict=True) if use]
    return some


def _untrained(pack: Pack, cache: SeriesInMemory, scan: GivenScan) -> Any:
    """Return the models that were not trained on a scan, else all; note what the training cohort has of it."""
    if pack.place is None:
        return pack.estimator
    try:
        known = known_scans(pack, cache)[0]
    except BoltError as error:
        scan.notes.append(f"Whether the models were trained on this scan cannot be told: {error}")
        return pack.estimator
    if known.flag:
        advice = ": trust the probability less than for a new scan" * known.flag.startswith(TRAINED)
        scan.notes.append(f"{known.flag[0].upper()}{known.flag[1:]}{advice}.")
    elif known.twin:
        used = f"{known.models.sum()} of {len(known.models)} models that were not trained on it"
        scan.notes.append(f"This is scan '{known.twin}' of the training cohort: used are the {used}.")
    return using(pack.estimator, known.models)


def _tested(pack: Pack) -> tuple[int, int] | None:
    """Return how many test scans the models classified correctly, and of how many; None if that is unknown."""
    if pack.place is not None:
        with suppress(BoltError):
            tests = test_predictions(pack.place)[0]
            return int((tests["label"] == tests["predicted"]).sum()), len(tests)
    metrics = pack.about.get("metrics", {})
    return (round(metrics["accuracy"]["value"] * metrics["scans"]), metrics["scans"]) if metrics else None


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
