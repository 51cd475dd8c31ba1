"""What a run of the workflow says about its models: how the series were made, the cohort, and how well they predict.

And which scans are of the training cohort. A scan is known by its series, whatever it is called, or by the name of its
subject or family: another scan of a person on whom a model was trained is not new to that model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.description import describe_atlas
from bolt.config import Dataset, load_config
from bolt.config.keys import parse
from bolt.config.study import Study
from bolt.evaluate.classes import class_arrays
from bolt.evaluate.metrics import fold_predictions, metrics_of, pooled
from bolt.folds.audit import same_name
from bolt.folds.check import name_contents
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_json, read_table, read_yaml
from bolt.models.parts.temperature import fit_temperature
from bolt.report.tables.numbers import scope_text
from bolt.series.cache import SeriesCache
from bolt.share.cohort import summarise_cohort
from bolt.training.ensembles import Member

TRAINED = "every model was trained on this "
"""Flag of predictions that say nothing about new scans, and are in no metric."""
IN_COHORT = "is in the training cohort"


@dataclass(frozen=True)
class RunPlace:
    """Where a folder of a run is in the results: ``runs/<atlas>/<variant>/<model>[/seed-<s>[/fold-<k>]]``."""

    results: Path
    atlas: str
    variant: str
    model: Path
    folder: Path

    @classmethod
    def of(cls, folder: Path) -> RunPlace:
        """Find the results that hold a folder of a run.

        Raises
        ------
        DataError
            It is not below a folder ``runs``, or the results lack their configuration.
        """
        path = folder.resolve()
        for model in (path, path.parent, path.parent.parent):
            if len(model.parents) > 4 and model.parents[2].name == "runs":
                results = model.parents[3]
                if not (results / "config.yaml").is_file():
                    raise DataError("no config.yaml in these results", where=results, hint="Run the workflow again")
                return cls(results, model.parents[1].name, model.parents[0].name, model, path)
        raise DataError(
            "not a run's folder", where=folder, hint="Give results/<dataset>/runs/<atlas>/<variant>/<model>"
        )

    @property
    def cache(self) -> SeriesCache:
        """Return the cache on which the models were trained."""
        return SeriesCache(self.results / "cache" / self.atlas / self.variant)

    @property
    def roles(self) -> pd.DataFrame:
        """Return the role of each scan (rows) in each fold (columns)."""
        folds = read_table(self.results / "folds.tsv", text=("scan_id",))
        return folds.pivot(index="scan_id", columns="fold", values="role")

    def folds(self) -> list[Path]:
        """Return the folders of the folds in the folder that was given, sorted: of all seeds, of one, or one fold."""
        places = (path.parent for path in self.model.glob("seed-*/fold-*/status.json"))
        return sorted(place for place in places if place.is_relative_to(self.folder))


def describe_run(place: RunPlace) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """Describe the models of a run by what the results say.

    Returns
    -------
    about : dict
        JSON: label, atlas, rois, series (how they were made), cohort, metrics, temperature, runs (`tested`: how many of
        all folds and scans the metrics are of, if not all).
    connectivity : (R (R - 1) / 2,) array
        Mean of the training cohort.

    Raises
    ------
    DataError
        No fold has finished, or a file of the results is missing or altered.
    """
    tests, done, failed = test_predictions(place)
    kept = place.folds()[0] / "config.yaml"  # where each fold keeps its dataset, whose own file may have moved
    study = Study(load_config(place.results / "config.yaml"), parse(Dataset, read_yaml(kept)["dataset"], kept))
    cache, roles, classes = place.cache, place.roles, study.dataset.classes
    in_folds = np.flatnonzero(cache.index["scan_id"].isin(roles.index))
    cohort, connectivity = summarise_cohort(cache, in_folds.tolist())
    atlas: dict[str, Any] = {"name": place.atlas, "sha256": None, "spaces": [], "source": "", "citation": "", "doi": ""}
    with suppress(BoltError):  # an atlas of one's own that has moved: what the series say is enough
        described = describe_atlas(study.config.atlas_places.get(place.atlas, place.atlas))
        atlas |= {key: getattr(described, key) for key in ("spaces", "source", "citation", "doi")}
    for scan in cache.index["scan_id"]:
        sidecar = place.results / "series" / place.variant / scan / f"{scan}_atlas-{place.atlas}_timeseries.json"
        if sidecar.is_file():
            atlas["sha256"] = read_json(sidecar).get("AtlasSHA256")
            break
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


def test_predictions(place: RunPlace) -> tuple[pd.DataFrame, int, int]:
    """Return the test predictions of all folds and seeds, and how many trainings finished and failed."""
    tests, failed = [], 0
    for folder in place.folds():
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
    keys = ("space", "resolution", "registration", "slice_timing", "steady_state", "output")
    return settings | {
        "made_by": made_by,
        "space": study.layout.space,
        "output": config.preprocess.output,
        "denoising": denoising,
        "coverage": config.parcellate.coverage,
        "signal": config.parcellate.signal,
        "preprocessing": {key: getattr(config.preprocess, key) for key in keys} if made_by == "BolT" else None,
    }


@dataclass(frozen=True)
class Known:
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
    series = {f"0{scan}": cohort.series(i) for i, scan in enumerate(cohort.index["scan_id"])}
    series |= {f"1{i}": cache.series(i) for i in range(len(cache))}
    same = name_contents(series)  # the first with the same content, so that of the cohort
    group = cohort.index["group"].fillna(cohort.index["subject"])
    scans_of, group_of = (
        cohort.index["scan_id"].groupby(group).agg(list),
        dict(zip(cohort.index["scan_id"], group, strict=True)),
    )
    families: dict[str, set[str]] = {}  # of the cohort, by each of their names
    for column in (cohort.index["subject"], group):
        for name, family in zip(column, group, strict=True):
            families.setdefault(same_name(name), set()).add(family)
    ours = list[tuple[str | None, set[str]]]()
    for i, row in enumerate(cache.index.itertuples()):
        first = same.get(f"1{i}", "1")
        twin = first[1:] if first.startswith("0") else None
        names = {same_name(row.subject), same_name(row.group if isinstance(row.group, str) else row.subject)}
        ours.append((twin, names))
        if twin is not None:  # a subject of whom one scan is recognised is, by any name
            for name in names:
                families.setdefault(name, set()).add(group_of[twin])
    found = []
    for (twin, names), subject in zip(ours, cache.index["subject"], strict=True):
        own: set[str] = set().union(*(families.get(name, set()) for name in names))
        relatives = sorted(scan for family in own for scan in scans_of[family])
        role = roles.reindex(relatives)
        untrained = np.array([(role[member.info["fold"]].dropna() == "test").all() for member in members], bool)
        flag = ""
        if not untrained.any():
            flag = TRAINED + ("scan" if twin else "subject")
        elif relatives and not twin:
            flag = f"subject '{subject}' {IN_COHORT}: predicted by models that were not trained on it (if it is "
            flag += "somebody else, rename it)"
        found.append(Known(untrained if untrained.any() else ~untrained, twin, flag))
    return found
