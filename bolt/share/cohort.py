"""The cohort on which a model was trained: what the results of its run say of it, and how far a new scan is from it.

A scan is known by its series, whatever it is called, or by the name of its subject or family: another scan of a person
on whom a model was trained is not new to that model. What is kept of a cohort are numbers that describe no single
participant. The confound floor is what motion, age and sex alone would predict, learned from that cohort: a model that
does no better in a new cohort may have learned these instead of the brain.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.description import describe_atlas
from bolt.config import Dataset, load_config
from bolt.config.keys import parse
from bolt.config.study import Study
from bolt.datasets import COLUMNS
from bolt.evaluate.balanced import KNOWN, may_confound
from bolt.evaluate.metrics import fold_predictions, metrics_of, pooled
from bolt.evaluate.scores import class_arrays
from bolt.folds.audit import same_name
from bolt.folds.check import name_contents
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_json, read_table, read_yaml, sha256
from bolt.models.parts.calibration import fit_temperature
from bolt.report.numbers import scope_text
from bolt.series.cache import SeriesCache, connectivity_of
from bolt.share.estimators import estimator
from bolt.share.scans import GIVEN
from bolt.training.ensembles import Member, predict_each

log = logging.getLogger("bolt")

MIDDLE = (5, 25, 50, 75, 95)
"""Percentiles that are kept of age and motion; the extremes belong to single participants."""
PERCENTILES = range(1, 100)
NEAR = 1.5
"""Factor by which a repetition time may differ from all of the training cohort before a scan is refused."""
OUTSIDE = 99
"""Percentile of the training cohort beyond which a scan is flagged."""
CONFOUNDS = {"mean_fd": "motion", "age": "age", "sex": "sex"}
TRAINED = "every model was trained on this "
"""Flag of predictions that say nothing about new scans, and are in no metric."""
IN_COHORT = "is in the training cohort"


class RunPlace:
    """Where a folder of a run is in the results: ``runs/<atlas>/<variant>/<model>[/seed-<s>[/fold-<k>]]``.

    Attributes
    ----------
    results, model : Path
    atlas, variant : str

    Raises
    ------
    DataError
        It is not below a folder ``runs``, or the results lack their configuration.
    """

    def __init__(self, folder: Path) -> None:
        path = self.folder = folder.resolve()
        for model in (path, path.parent, path.parent.parent):
            if len(model.parents) > 4 and model.parents[2].name == "runs":
                self.model, self.results = model, model.parents[3]
                self.atlas, self.variant = model.parts[-3:-1]
                if not (self.results / "config.yaml").is_file():
                    what = "no config.yaml in these results"
                    raise DataError(what, where=self.results, hint="Run the workflow again")
                return
        hint = "Give results/<dataset>/runs/<atlas>/<variant>/<model>"
        raise DataError("not a run's folder", where=folder, hint=hint)

    @property
    def cache(self) -> SeriesCache:
        """Return the cache on which the models were trained."""
        return SeriesCache(self.results / "cache" / self.atlas / self.variant)

    @cached_property
    def roles(self) -> pd.DataFrame:
        """Return the role of each scan (rows) in each fold (columns)."""
        folds = read_table(self.results / "folds.tsv", text=("scan_id",))
        return folds.pivot(index="scan_id", columns="fold", values="role")

    @cached_property
    def folds(self) -> list[Path]:
        """Return the folders of the folds in the folder that was given, sorted: of all seeds, of one, or one fold."""
        known = [f"fold-{fold}" for fold in self.roles]
        places = (path.parent for path in self.model.glob("seed-*/fold-*/status.json") if path.parent.name in known)
        return of_present_split(sorted(place for place in places if place.is_relative_to(self.folder)))


def of_present_split(folds: list[Path]) -> list[Path]:
    """Leave out folds of a run that were trained on another ``folds.tsv`` than that of the results, and say so.

    The folder of a run keeps those of an earlier split whose numbers the present one does not have.
    """
    table = folds[0].resolve() / "../../../../../../folds.tsv" if folds else Path()
    if not table.is_file():
        return folds  # copied out of their results
    present, found = sha256(table), []
    for fold in folds:
        place = fold / "provenance.json"
        inputs = read_json(place).get("inputs", {}) if place.is_file() else {}
        if {present} >= {stated for name, stated in inputs.items() if Path(name).name == table.name}:
            found.append(fold)
        else:
            log.warning("%s: left out, for it was trained on an earlier split", fold)
    return found


def describe_run(place: RunPlace) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """Describe the models of a run by what the results say.

    Returns
    -------
    about : dict
        JSON: label, institutions, atlas, rois, series (how they were made), cohort, metrics, temperature, runs
        (`tested`: how many of all folds and scans the metrics are of, if not all).
    connectivity : (R (R - 1) / 2,) array
        Mean of the training cohort.

    Raises
    ------
    DataError
        No fold has finished, or a file of the results is missing or altered.
    """
    tests, done, failed = test_predictions(place)
    # where a finished fold keeps its dataset, whose own file may have moved
    kept = next(file for fold in place.folds if (file := fold / "config.yaml").is_file())
    study = Study(load_config(place.results / "config.yaml"), parse(Dataset, read_yaml(kept)["dataset"], kept))
    cache, roles, classes = place.cache, place.roles, study.dataset.classes
    in_folds = np.flatnonzero(cache.index["scan_id"].isin(roles.index))
    cohort, connectivity = summarise_cohort(cache, in_folds.tolist())
    atlas: dict[str, Any] = {"name": place.atlas, "sha256": None, "spaces": [], "source": "", "citation": "", "doi": ""}
    with suppress(BoltError):  # an atlas of one's own that has moved: what the series say is enough
        described = describe_atlas(study.config.atlas_places.get(place.atlas, place.atlas))
        atlas |= {key: getattr(described, key) for key in ("spaces", "source", "citation", "doi")}
    atlas["sha256"] = image_of(place.results / "series" / place.variant, cache.index["scan_id"], place.atlas)[1]
    summary = pooled(tests, classes)
    metrics: dict[str, Any] = {"scans": int(tests["scan_id"].nunique()), "groups": summary["n_groups"]}
    for name in metrics_of(classes):
        metrics[name] = {k: round(v, 4) if np.isfinite(v) else None for k, v in summary[name].items()}
    temperature = None
    if classes is not None:
        truth, _, probability = class_arrays(tests, classes)
        temperature = round(fit_temperature(probability, truth, tests["seed"].nunique()), 4)
    seeds = sorted(tests["seed"].unique().tolist())
    tested = scope_text(tests["fold"].nunique(), roles.shape[1], tests["scan_id"].nunique(), len(in_folds))
    about = {
        "dataset": study.dataset.name,
        "label": study.dataset.label,
        "institutions": study.dataset.institutions,
        "positive": classes[-1] if classes and len(classes) == 2 else None,
        "atlas": atlas,
        "rois": cache.rois.where(cache.rois.notna(), None).to_dict("list"),
        "series": series_facts(study, cache.manifest["settings"].get("Denoising")),
        "cohort": cohort,
        "scheme": study.config.folds.scheme,
        "runs": {"trained": done, "failed": failed, "seeds": seeds, "tested": tested},
        "metrics": metrics,
        "temperature": temperature,
    }
    return about, connectivity


def image_of(series: Path, scans: Iterable[str], atlas: str) -> tuple[Path | None, str | None]:
    """Return the first sidecar of the series of some scans, and the sha256 of the atlas's image that it states."""
    for scan in scans:
        sidecar = series / scan / f"{scan}_atlas-{atlas}_timeseries.json"
        if sidecar.is_file():
            return sidecar, read_json(sidecar).get("AtlasSHA256")
    return None, None


def test_predictions(place: RunPlace) -> tuple[pd.DataFrame, int, int]:
    """Return the test predictions of all folds and seeds, and how many trainings finished and failed."""
    tests, failed = [], 0
    for folder in place.folds:
        state, _, predictions = fold_predictions(folder)
        failed += state != "ok"
        if state == "ok":
            tests.append(predictions[predictions["role"] == "test"])
    if not tests:
        raise DataError("no fold has finished", where=place.model, hint="See the status.json of its folds")
    return pd.concat(tests, ignore_index=True), len(tests), failed


def series_facts(study: Study, denoising: dict[str, Any] | None) -> dict[str, Any]:
    """Return how the series were made, for those who make series of new scans."""
    config, dataset = study.config, study.dataset
    settings = {"uncovered": config.parcellate.uncovered, "crop": dataset.crop}
    if dataset.ready_series:
        return settings | {"made_by": "the dataset's authors", "space": None, "denoising": None}
    project = f"the Preprocessed Connectomes Project ({dataset.abide.pipeline})"
    made_by = {"fmriprep": "fMRIPrep", "hcp": "HCP", "abide": project}.get(dataset.source, "BolT")
    keys = ("space", "resolution", "registration", "slice_timing", "sbref", "average_t1w", "steady_state", "output")
    return settings | {
        "made_by": made_by,
        "space": study.layout.space,
        "output": config.preprocess.output,
        "denoising": denoising,
        "coverage": config.parcellate.coverage,
        "signal": config.parcellate.signal,
        "preprocessing": {key: getattr(config.preprocess, key) for key in keys} if made_by == "BolT" else None,
    }


class Known(NamedTuple):
    """What the training cohort has of a scan.

    Attributes
    ----------
    models : (models,) bool array
        Which models predict it: those that were not trained on its subject or family, or else all.
    twin : str or None
        The training cohort's scan with the same series.
    flag : str
        For the reader; empty if the scan is new, or predicted by models that were not trained on the same scan.
    """

    models: NDArray[np.bool_]
    twin: str | None = None
    flag: str = ""


def known_scans(members: Sequence[Member], place: RunPlace | None, cache: SeriesCache) -> list[Known]:
    """Compare scans with the training cohort; a pack (no place) has no scans of it, so that all are new to a pack.

    Parameters
    ----------
    members : sequence of Member
    place : RunPlace or None
        The results that hold the models.
    cache : SeriesCache
        Scans to predict.
    """
    if place is None:
        return [Known(np.ones(len(members), bool))] * len(cache)
    roles, cohort = place.roles, place.cache
    people = cohort.index[["scan_id", "subject", "group"]].set_index("scan_id")
    people["group"] = people["group"].fillna(people["subject"])
    series = {f"0{scan}": cohort.series(i) for i, scan in enumerate(people.index)}
    series |= {f"1{i}": cache.series(i) for i in range(len(cache))}
    same = name_contents(series.items())  # the first with the same content, so that of the cohort
    families: dict[str, set[str]] = {}  # of the cohort, by each of their names
    for person in people.itertuples():
        for name in _names(person):
            families.setdefault(name, set()).add(person.group)
    ours = list[tuple[str | None, set[str]]]()
    for i, row in enumerate(cache.index.itertuples()):
        first = same.get(f"1{i}", "1")
        twin = first[1:] if first.startswith("0") else None
        names = _names(row)
        ours.append((twin, names))
        if twin is not None:  # a subject of whom one scan is recognised is, by any name
            for name in names:
                families.setdefault(name, set()).add(people.at[twin, "group"])
    found = []
    for (twin, names), subject in zip(ours, cache.index["subject"], strict=True):
        own: set[str] = set().union(*(families.get(name, set()) for name in names))
        relatives = people.index[people["group"].isin(own)]
        role = roles.reindex(relatives)
        untrained = np.array([(role[member.info["fold"]].dropna() == "test").all() for member in members], bool)
        flag = ""
        if not untrained.any():
            flag = TRAINED + ("scan" if twin else "subject")
        elif len(relatives) and not twin:
            flag = f"subject '{subject}' {IN_COHORT}: predicted by models that were not trained on it (if it is "
            flag += "somebody else, rename it)"
        found.append(Known(untrained if untrained.any() else ~untrained, twin, flag))
    return found


def _names(person: Any) -> set[str]:
    """Return by what a person is known: its name, and that of its family, which may look like somebody's name."""
    group = person.group if isinstance(person.group, str) else person.subject
    group = group.removeprefix("family ")  # of `bolt.cohort.units.people`
    names = {same_name(person.subject), f"group {group}"}
    return names if group == person.subject else names | {f"family {same_name(group)}"}


def summarise_cohort(cache: SeriesCache, rows: Sequence[int]) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """Describe a training cohort.

    Parameters
    ----------
    cache : SeriesCache
    rows : sequence of int
        Scans of the cohort: a cache may have others, which are in no fold.

    Returns
    -------
    summary : dict
        Numbers of scans, subjects, and of scans by label, site and sex; percentiles of age (years), mean FD (mm) and
        of the distance to the mean connectivity of all other subjects; smallest and largest repetition time (s) and
        number of volumes.
    connectivity : (R (R - 1) / 2,) array
        Mean over scans.
    """
    index = cache.index.reindex(columns=[*COLUMNS, "length"]).iloc[list(rows)]
    connectivity = connectivity_of(cache, rows)
    mean = connectivity.mean(axis=0)
    distances = []
    for subject in index["subject"].unique():  # a scan is no nearer to a mean of which it is a part
        own = (index["subject"] == subject).to_numpy()
        others = (mean * len(own) - connectivity[own].sum(axis=0)) / max(1, (~own).sum())
        distances += [distance(scan, others) for scan in connectivity[own]]
    summary: dict[str, Any] = {"scans": len(index), "subjects": int(index["subject"].nunique())}
    for column in ("label", "site", "sex"):
        counts = index[column].dropna().astype(str).value_counts().sort_index()
        if column != "label" or len(counts) <= 20:  # a number has no classes to count
            summary[column] = {str(name): int(count) for name, count in counts.items()}
    for column in ("age", "mean_fd"):
        known = pd.to_numeric(index[column], errors="coerce").dropna()
        if len(known) >= 20:
            summary[column] = {str(p): round(float(np.percentile(known, p)), 3) for p in MIDDLE}
    tr = index["tr"].dropna().astype(float)
    summary["tr"] = [float(tr.min()), float(tr.max())] if len(tr) else None
    summary["volumes"] = [int(index["length"].min()), int(index["length"].max())]
    summary["distance"] = [round(float(d), 5) for d in np.percentile(distances, list(PERCENTILES))]
    return summary, mean.astype(np.float32)


def distance(connectivity: NDArray[np.floating], mean: NDArray[np.floating]) -> float:
    """Return 1 minus the correlation of a scan's connectivity with the training cohort's mean: 0 is the mean itself."""
    if not connectivity.size or connectivity.std() == 0 or mean.std() == 0:
        return 1.0
    return 1 - float(np.corrcoef(connectivity.astype(float), mean.astype(float))[0, 1])


def percentile(value: float, percentiles: list[float]) -> int:
    """Return below which percentile of the training cohort a value is, 0 to 100."""
    return int(np.searchsorted(percentiles, value)) + (value > percentiles[-1])


def span(ends: list[float]) -> str:
    """Return a range in words, such as ``2–2.2``."""
    low, high = ends
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def refusal(scan: Any, cohort: dict[str, Any]) -> str:
    """Return why a model must not be applied to a scan; empty if it may.

    Parameters
    ----------
    scan : named tuple
        A row of the table of scans.
    cohort : dict
        From `summarise_cohort`.
    """
    tr = cohort.get("tr")
    if tr and scan.tr == scan.tr and scan.tr is not None and not tr[0] / NEAR <= scan.tr <= tr[1] * NEAR:
        return (
            f"repetition time {scan.tr:g} s, but the model was trained at {span(tr)} s. Windows are counted in "
            "volumes, so it would see events at another speed. Use --any-tr to predict all the same"
        )
    return ""


def flags(scan: Any, n_uncovered: int, place: int | None, cohort: dict[str, Any]) -> list[str]:
    """Return in what a scan differs from the training cohort, in words.

    Parameters
    ----------
    scan : named tuple
        A row of the table of scans, with ``length``.
    n_uncovered : int
        ROIs without a signal.
    place : int or None
        Percentile of its distance, from `percentile`.
    cohort : dict
        From `summarise_cohort`; empty if unknown.
    """
    found = []
    if n_uncovered:
        found.append(f"{n_uncovered} ROIs without signal")
    if not cohort:
        return [*found, "training cohort unknown"]
    tr, (shortest, longest) = cohort.get("tr"), cohort["volumes"]
    if scan.tr is None or scan.tr != scan.tr:
        found.append("TR unknown")
    elif tr and not tr[0] * 0.99 <= scan.tr <= tr[1] * 1.01:
        found.append(f"TR {scan.tr:g} s, trained at {span(tr)} s")
    if not shortest <= scan.length <= longest:
        found.append(f"{scan.length} volumes, trained on {span([shortest, longest])}")
    for column, unit in (("mean_fd", "mm mean FD"), ("age", "years")):
        value, known = pd.to_numeric(getattr(scan, column), errors="coerce"), cohort.get(column)
        if known and value == value:
            low, high = known["5"], known["95"]
            margin = (high - low) / 4  # not far from the middle 90 % of the training cohort
            if not low - margin <= value <= high + margin:
                found.append(f"{value:.3g} {unit}, 90 % of the training cohort: {low:g}–{high:g}")
    site = getattr(scan, "site", None)
    if isinstance(site, str) and cohort.get("site") and site not in cohort["site"]:
        found.append(f"site '{site}' is new")
    if place is not None and place >= OUTSIDE:
        found.append(f"connectivity farther from the mean than {place} % of the training cohort")
    return found


def fit_floor(cache: SeriesCache, classes: list[str] | None) -> Member | None:
    """Fit a logistic regression of the label on all known confounds to a whole training cohort.

    Returns
    -------
    Member or None
        None if the label is a number, or no confound is known of most scans and differs between them.
    """
    scans = cache.index[cache.index["label"].isin(classes or [])]
    names = [name for name in CONFOUNDS if name in scans and may_confound(scans, name)]
    if not names or scans["label"].nunique() < len(classes or ()):
        return None
    model = estimator("motion_only", covariates=tuple(names))
    nothing = np.tile([[0.0], [1.0]], (len(scans), 1, 1))  # series, which this model does not read
    told = logging.getLogger("bolt.training.features")
    before, told.disabled = told.disabled, True
    try:
        fitted = model.fit(nothing, scans["label"].to_numpy(str), scans=scans[[c for c in GIVEN if c in names]])
    finally:
        told.disabled = before
    return fitted.members_[0]  # type: ignore[no-any-return]


def floor_name(member: Member) -> str:
    """Return what the floor's model reads, in words: ``motion, age and sex alone``."""
    names = [CONFOUNDS.get(name, name) for name in member.info["model"]["covariates"]]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) + " alone"


def predict_floor(member: Member, cache: SeriesCache) -> pd.DataFrame | None:
    """Predict scans by their confounds.

    Returns
    -------
    DataFrame or None
        predicted and ``p_<class>``, indexed by scan; None unless all of the model's confounds are known of most scans,
        and text (sex) is written as in the training cohort.
    """
    for column in member.info["covariates"]:
        values, levels = cache.index[column["column"]], column.get("levels")
        if (values.notna() if levels is None else values.isin(levels)).mean() < KNOWN:
            return None
    probability, classes = predict_each([member], cache)[0], member.info["classes"]
    table = pd.DataFrame(probability, columns=[f"p_{name}" for name in classes], index=cache.index["scan_id"])
    return table.assign(predicted=[classes[k] for k in probability.argmax(axis=1)])
