"""Explanations of single scans as folders: tables, a map, a page and ``explanation.json``.

By ``bolt explain``, of a scan that is given without a dataset or a configuration, and by ``bolt predict --explain``.
"""

from __future__ import annotations

import argparse
import logging
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn import plotting
from numpy.typing import NDArray

from bolt.atlases.image import load_atlas
from bolt.atlases.labels import LABEL_COLUMNS, load_labels
from bolt.config import Paths, load_config, nearest
from bolt.datasets.bids_series import series_tr
from bolt.explain.tasks import COURSE, Course, block_table, curve_table, event_masks, on_grid, read_events
from bolt.explain.weights import paint, write_map
from bolt.io.bids import atlas_name, is_image
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import columns, read_table, write_json, write_table
from bolt.io.series_files import is_constant, kept_volumes, sidecar_of
from bolt.io.volumes import require_tr
from bolt.jobs.provenance import provenance
from bolt.report.figures.series import TimeCourse, draw_course, time_course
from bolt.report.figures.style import canvas
from bolt.report.figures.trust import colour_map
from bolt.report.html import write_page
from bolt.series.cache import zscore
from bolt.share.cohort import TRAINED, known_scans, test_predictions
from bolt.share.explanation import explain_scan, explained_models
from bolt.share.models import Pack, read_pack
from bolt.share.predict import NewScans, read_sidecar, series_for_model, subject_of
from bolt.share.scans import SeriesInMemory, class_name, roi_table, scan_table

log = logging.getLogger("bolt")

VOLUME_COLUMNS, ROI_COLUMNS = columns("share", "volumes"), columns("share", "rois")
LANDMARK_COLUMNS = {"rank": "1 is the most important volume", **VOLUME_COLUMNS}
MAP = "desc-contribution_statmap"
RELATIVE = "importance / mean"
NO_TEMPLATE = ("native", "assumed")
"""What series say of their space where it is not that of a template."""
TOKENS = 5
"""Landmarks at which contributions are computed for predictions, as in `bolt explain` by default."""
LISTED = 12
"""ROIs in the page's table."""
DRAWN = 0.1
"""Share of the ROIs, the strongest, in the picture of the map; the map itself has all."""


@dataclass
class GivenScan:
    """A scan as a model reads it.

    Attributes
    ----------
    name : str
    series : (T, R) float32 array
        z-scored.
    volumes : (T,) int array
        Volumes of the acquisition that the rows are.
    tr : float or None
        Seconds.
    space : str or None
        Of the series; None if unknown.
    files : list of Path
        That were read.
    standardized : bool
        Whether the series were z-scored here.
    events : DataFrame or None
    shift : float
        Seconds by which events are drawn later.
    rois : DataFrame
        value, name, network, hemisphere of the R columns.
    atlas : str
        Its name; empty if unknown.
    image : label image or None
        In `image_space`.
    tested : dict or None
        Numbers of test scans: those that the model classified right, and all its scans.
    notes : list of str
        Warnings for the reader.
    """

    name: str
    series: NDArray[np.float32]
    volumes: NDArray[np.integer]
    tr: float | None
    space: str | None = None
    files: list[Path] = field(default_factory=list)
    standardized: bool = True
    events: pd.DataFrame | None = None
    shift: float = 0.0
    rois: pd.DataFrame = field(default_factory=pd.DataFrame)
    atlas: str = ""
    image: nib.Nifti1Image | None = None
    image_space: str = ""
    tested: dict[str, int] | None = None
    notes: list[str] = field(default_factory=list)


class ModelAtlas(NamedTuple):
    """The atlas of a model: its name and place, its ROIs if they are known, and the paths for finding its image."""

    name: str
    place: str
    labels: pd.DataFrame | None
    paths: Paths


def explain_given_scan(options: argparse.Namespace) -> None:
    """Run ``bolt explain MODEL SCAN --out DIR``.

    Parameters
    ----------
    options : Namespace
        model, scan, out, events, tr, class_name, atlas, labels, standardize, tokens, hrf_shift.

    Raises
    ------
    ConfigError, DataError
        There is no model that can be explained; the scan does not fit it. Nothing has been written then.
    """
    if options.tokens < 1:
        raise ConfigError(f"--tokens {options.tokens}: no landmarks", hint="Give 1 or more, such as 5")
    pack = read_pack(options.model, describe=False)
    classes, target = pack.classes, options.class_name
    if classes is None:
        raise ConfigError("these models predict a number, but what is explained is a class", hint="Give a classifier")
    explained_models(pack.estimator)
    if target is not None and target not in classes:
        hint = f"Its classes: {', '.join(classes)}{nearest(target, classes)}"
        raise ConfigError(f"--class {target}: the model has no such class", hint=hint)
    scan = read_scan(options, pack, atlas_of(pack, options.model, options.atlas, options.labels))
    used = np.ones(len(pack.estimator.members_), bool)
    if pack.place is not None:
        subject = subject_of(scan.name)
        about = scan_table(1).assign(scan_id=scan.name, subject=subject, group=subject)
        try:
            (known,) = known_scans(pack.estimator.members_, pack.place, SeriesInMemory([scan.series], about))
        except BoltError as error:
            scan.notes.append(f"Whether the models were trained on this scan cannot be told: {error}")
        else:
            used = known.models
            if known.flag:
                advice = ": trust the probability less than for a new scan" * known.flag.startswith(TRAINED)
                scan.notes.append(f"{known.flag[0].upper()}{known.flag[1:]}{advice}.")
            elif known.twin:
                of_models = f"{used.sum()} of {len(used)} models that were not trained on it"
                scan.notes.append(f"This is scan '{known.twin}' of the training cohort: used are the {of_models}.")
        with suppress(BoltError):
            tests = test_predictions(pack.place)[0]
            accuracy, n_scans = (tests["label"] == tests["predicted"]).mean(), tests["scan_id"].nunique()
            scan.tested = {"right": round(accuracy * n_scans), "scans": n_scans}  # of all seeds
    elif metrics := pack.about.get("metrics"):
        right = round(metrics["accuracy"]["value"] * metrics["scans"])
        scan.tested = {"right": right, "scans": metrics["scans"]}
    for note in scan.notes:
        log.warning(note)
    write_explanation(scan, pack, used, target, options.out, options.tokens)


def explain_predictions(pack: Pack, scans: NewScans, table: pd.DataFrame, options: argparse.Namespace) -> None:
    """Explain the predicted class of every predicted scan, in ``<explain>/<scan_id>``.

    Parameters
    ----------
    pack : Pack
        Of BolT models on series alone.
    scans : NewScans
    table : DataFrame
        From `bolt.share.predict.predict_scans`.
    options : Namespace
        model, explain, atlas.
    """
    assert scans.cache is not None, "there is a prediction"
    atlas = atlas_of(pack, options.model, options.atlas, None)
    known, predicted = known_scans(pack.estimator.members_, pack.place, scans.cache), table.set_index("scan_id")
    for i, row in enumerate(scans.cache.index.itertuples()):
        if row.scan_id in predicted.index:
            series = scans.cache.series(i)
            tr = None if np.isnan(row.tr) else float(row.tr)
            space = pack.about.get("series", {}).get("space")
            scan = GivenScan(str(row.scan_id), series, scans.volumes[i], tr, space)
            scan.notes += filter(None, [predicted.at[row.scan_id, "flags"]])
            add_atlas(scan, pack, atlas)
            target = predicted.at[row.scan_id, "predicted"]
            write_explanation(scan, pack, known[i].models, target, options.explain / scan.name, TOKENS)


def atlas_of(pack: Pack, model: Path, given: str | None, labels: Path | None) -> ModelAtlas:
    """Return the atlas that was given on the command line, or else what is known of the models'.

    Parameters
    ----------
    pack : Pack
    model : Path
        Its folder.
    given : str, optional
        Name, folder or image of an atlas.
    labels : Path, optional
        Table of its ROIs.

    Raises
    ------
    DataError
        The atlas that was given lacks an ROI of the model, or cannot be read.
    """
    values, place, paths = pack.rois, (given or "").rstrip("/"), Paths()
    name = where = pack.atlas["name"] if pack.place is None else pack.place.atlas
    known: pd.DataFrame | None = None
    if pack.place is not None:
        with suppress(BoltError):  # a configuration of another version, or no cache
            config = load_config(pack.place.results / "config.yaml")
            where, paths = config.atlas_places.get(name, name), config.paths
            known = pack.place.cache.rois
    elif pack.about:
        known = pd.DataFrame(pack.about["rois"]).reindex(columns=list(LABEL_COLUMNS))
    elif (names := getattr(pack.estimator, "feature_names_in_", None)) is not None:
        known = pd.DataFrame({"value": values, "name": names}).reindex(columns=list(LABEL_COLUMNS))
    if labels is not None:
        name, where, known = place, place, read_table(labels, text=("name", "network", "hemisphere"))
        missing = [column for column in LABEL_COLUMNS if column not in known]
        if missing:
            raise DataError(f"columns missing: {', '.join(missing)}", where=labels, hint="Add them")
        known = known.sort_values("value", ignore_index=True)  # as those of the model
    elif place:
        name, where, known = atlas_name(place), place, load_labels(place, atlas_dir=paths.atlas_dir)
    elif where:
        with suppress(BoltError):  # all ROIs of the atlas, of which models may have left out some
            of_atlas = load_labels(where, atlas_dir=paths.atlas_dir)
            known = of_atlas if set(values) <= set(of_atlas["value"]) else known
    absent = [] if known is None else sorted(set(values) - set(known["value"]))
    if absent and (place or labels is not None):
        problem = f"the model was trained on an ROI with the value {absent[0]}, which atlas '{name or labels}' lacks"
        hint = "Give the atlas that the model was trained with, or none: ROIs are then named by their values"
        raise DataError(problem, where=model, hint=hint)
    return ModelAtlas(name, where, None if absent else known, paths)


def add_atlas(scan: GivenScan, pack: Pack, atlas: ModelAtlas) -> None:
    """Add the ROIs of the model and, for the map, the atlas's image in the space of the series, or a note why not."""
    scan.atlas, scan.rois = atlas.name, roi_table(pack.rois)
    if atlas.labels is not None:
        of_value = atlas.labels.set_index("value", drop=False)
        scan.rois = of_value.loc[pack.rois, list(LABEL_COLUMNS)].reset_index(drop=True)
    if not atlas.place:
        scan.notes.append("No map: the atlas is not known. Name it with --atlas.")
        return
    places = {"atlas_dir": atlas.paths.atlas_dir, "templateflow_home": atlas.paths.templateflow_home}
    try:
        described = load_atlas(atlas.place, space=scan.space, **places)
    except BoltError as error:
        scan.notes.append(f"No map: {error}")
        return
    if set(pack.rois) <= set(described.labels["value"]):
        scan.image, scan.image_space = described.image, next(iter(described.spaces), "")
    else:
        scan.notes.append(f"No map: the image of atlas '{atlas.name}' has other ROIs than the model.")


def read_scan(options: argparse.Namespace, pack: Pack, atlas: ModelAtlas) -> GivenScan:
    """Read the scan of ``bolt explain``.

    Parameters
    ----------
    options : Namespace
        scan, events, tr, standardize.
    pack : Pack
    atlas : ModelAtlas
        From `atlas_of`.

    Raises
    ------
    ConfigError, DataError
        As `bolt.io.series_files.read_series`; the ROIs or the length do not fit the model; all series are constant;
        events without a repetition time.
    """
    path: Path = options.scan
    if is_image(path.name):
        hint = f"Make its series first: bolt parcellate {path} --atlas {atlas.name or 'ATLAS'} --out series.npy"
        raise DataError("an image, but what is explained are ROI series", where=path, hint=hint)
    about = read_sidecar(path, pack)
    if "Atlas" in about and atlas.name not in ("", about["Atlas"]):
        problem = f"these series are of atlas '{about['Atlas']}', but the model was trained on '{atlas.name}'"
        hint = f"Make series with '{atlas.name}' (bolt parcellate IMAGE --atlas {atlas.name} --out series.npy)"
        raise DataError(problem, where=sidecar_of(path), hint=hint)
    series = series_for_model(path, pack, atlas.name, atlas.labels)
    tr = series_tr(path, None) if options.tr is None else options.tr
    if options.tr is not None and not options.tr > 0:
        raise ConfigError(f"--tr {tr:g}: a repetition time is positive", hint="Give seconds, such as --tr 2")
    tr = None if tr is None else require_tr(tr, path)
    if options.events is not None and tr is None:
        raise ConfigError("--events needs the repetition time", hint="Give it in seconds, such as --tr 2")
    space = None if about.get("Space") in NO_TEMPLATE else about.get("Space")
    scan = GivenScan(path.name.removesuffix(path.suffix), series, kept_volumes(path, len(series)), tr, space, [path])
    if options.events is not None:
        scan.events, scan.shift = read_events(options.events), options.hrf_shift
        scan.files.append(options.events)
    add_atlas(scan, pack, atlas)
    standardize(scan, options.standardize)
    return scan


def standardize(scan: GivenScan, wanted: bool) -> None:
    """Z-score as the cache does, if that is wanted, and note what is unusual about the ROIs."""
    uncovered = np.isnan(scan.series).any(axis=0)
    values = np.where(uncovered, 0, scan.series)
    constant, notes = is_constant(values), []
    for problem, which in (("not covered", uncovered), ("constant", constant & ~uncovered)):
        if which.any():
            names = ", ".join(scan.rois["name"][which][:5])
            notes.append(f"{which.sum()} of {len(scan.rois)} ROIs are {problem} and are set to zero: {names}.")
    scan.standardized = wanted
    scan.series = zscore(scan.series) if wanted else values.astype(np.float32)
    alive = scan.series[:, ~constant]
    if np.abs(alive.mean(axis=0)).max() > 0.2 or np.abs(alive.std(axis=0) - 1).max() > 0.2:
        notes.append("The series are not z-scored, but the model was trained on series that are.")
    scan.notes[:0] = notes


def write_explanation(
    scan: GivenScan, pack: Pack, used: NDArray[np.bool_], target: str | None, out: Path, n_landmarks: int
) -> None:
    """Explain a scan; write tables, map, page and, last, ``explanation.json``.

    Parameters
    ----------
    scan : GivenScan
    pack : Pack
    used : (models,) bool array
        Which of its models predict the scan.
    target : str or None
        The class to explain; None: the predicted one.
    out : Path
        Folder.
    n_landmarks : int
    """
    estimator, classes = copy(pack.estimator), pack.classes or []
    estimator.members_ = [member for member, use in zip(estimator.members_, used, strict=True) if use]
    wanted = None if target is None else estimator.classes_[classes.index(target)]
    explanation = explain_scan(estimator, SeriesInMemory([scan.series], scan_table(1)), wanted, n_landmarks)
    weights, contributions = explanation.importance.astype(float), explanation.contributions
    volumes = pd.DataFrame({"volume": scan.volumes, "seconds": scan.volumes * (scan.tr or np.nan)})
    volumes = volumes.assign(importance=weights, relative=weights / (weights.mean() or 1))
    landmarks = volumes.iloc[explanation.landmarks]
    rois = scan.rois.assign(contribution=contributions, mean_z=scan.series[explanation.landmarks].mean(axis=0))
    rois = rois.iloc[np.argsort(-np.abs(contributions), kind="stable")]
    landmarks, rois = (t.reset_index(drop=True).assign(rank=np.arange(1, len(t) + 1)) for t in (landmarks, rois))
    landmarks, rois = landmarks[list(LANDMARK_COLUMNS)], rois[list(ROI_COLUMNS)]
    probabilities = dict(zip(classes, explanation.probabilities.tolist(), strict=True))
    explained = class_name(explanation.target)
    facts = {  # of explanation.json
        "explained": explained,
        "probability": probabilities[explained],
        "predicted": classes[explanation.probabilities.argmax()],
        "probabilities": probabilities,
        "landmarks": (landmarks if scan.tr else landmarks.drop(columns="seconds")).to_dict("list"),
        "log_odds": explanation.log_odds,
        "log_odds_without": explanation.log_odds_without,
        "sum_of_contributions": float(contributions.sum()),
        "n_volumes": len(scan.series),
        "n_rois": scan.series.shape[1],
        "tr": scan.tr,
        "tested": scan.tested,
        "atlas": scan.atlas or None,
        "map": f"{MAP}.nii.gz" if scan.image is not None else None,
        "notes": scan.notes,
        "scan": scan.name,
        "standardized": scan.standardized,
        "provenance": provenance(scan.files, model=estimator.configuration.name, models=len(estimator.members_)),
    }
    write_table(volumes, out / "importance.tsv", VOLUME_COLUMNS)
    write_table(landmarks, out / "landmarks.tsv", LANDMARK_COLUMNS)
    write_table(rois, out / "rois.tsv", ROI_COLUMNS)
    of_earlier_calls = [f"{name}{suffix}" for name in ("events", "map") for suffix in (".png", ".svg", ".pdf")]
    for name in (f"{MAP}.nii.gz", f"{MAP}.json", *of_earlier_calls):
        (out / name).unlink(missing_ok=True)
    if scan.image is not None:
        image = paint(scan.image, rois["value"].to_numpy(int), rois["contribution"].to_numpy(np.float32))
        described = {"Units": "log odds", "Class": explained, "Space": scan.image_space}
        write_map(image, out / f"{MAP}.nii.gz", {"Description": ROI_COLUMNS["contribution"], **described})
        if contributions.any():
            # of two classes, the positive one is red, as in the report
            draw_map(image, rois["contribution"].abs(), colour_map(classes[::-1], explained), out / "map.png")
    draw_time(scan, volumes["relative"].to_numpy(), explanation.landmarks, explained, out)
    listed = rois.head(LISTED).astype(object)
    shown = listed.where(listed.notna(), None).to_dict("records")
    write_page("one_scan.html", out / "index.html", facts=facts, drawn=DRAWN, rois=shown)
    write_json(facts, out / "explanation.json")
    log.info("%s (probability %.3f): %s", explained, facts["probability"], out / "index.html")


def draw_time(scan: GivenScan, weights: NDArray[np.floating], rows: NDArray[np.integer], name: str, out: Path) -> None:
    """Draw the importance of a class, divided by the scan's mean, with the landmarks (`rows`) and with the events."""
    tr = scan.tr or np.nan
    shown = TimeCourse(weights, np.sort(rows), tr, scan.volumes)
    time_course(shown, scan.series, scan.rois, out / "importance.png", label=RELATIVE)
    if scan.events is not None and scan.tr is not None:
        course = Course(dict.fromkeys(COURSE, ""), [name], tr, on_grid(weights, scan.volumes)[None], [scan.events])
        with canvas(out / "events.png", height=1.8) as figure:
            axis, key = figure.subplots(1, 2, width_ratios=[5.5, 1])
            draw_course(axis, key, curve_table(course), block_table(course, event_masks(course, scan.shift)))
            axis.set(xlabel="time (s)", ylabel=RELATIVE)


def draw_map(image: nib.Nifti1Image, sizes: pd.Series, colours: str, out: Path) -> None:
    """Draw the strongest contributions, painted on the atlas, in a glass brain and in slices."""
    threshold = float(sizes.nlargest(max(1, round(DRAWN * len(sizes)))).min()) * (1 - 1e-5)
    limit = float(sizes.max())
    look = {"threshold": threshold, "vmin": -limit, "vmax": limit, "cmap": colours, "annotate": False}
    with canvas(out, height=3.5, layout=None) as figure:
        upper, lower = figure.add_axes((0.0, 0.46, 1.0, 0.54)), figure.add_axes((0.0, 0.0, 0.9, 0.4))
        glass = plotting.plot_glass_brain(image, axes=upper, display_mode="lyrz", plot_abs=False, **look)
        slices = plotting.plot_stat_map(image, axes=lower, display_mode="z", cut_coords=6, colorbar=False, **look)
        for display in (glass, slices):
            display.annotate(size=8)
