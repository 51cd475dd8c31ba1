"""What a run of the workflow says about its models: how the series were made, the cohort, and how well they predict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config import Dataset, load_config
from bolt.config.keys import parse
from bolt.config.study import Study
from bolt.evaluate.classes import class_arrays
from bolt.evaluate.metrics import fold_predictions, metrics_of, pooled
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_json, read_table, read_yaml
from bolt.models.parts.temperature import fit_temperature
from bolt.packs.cohort import summarise_cohort
from bolt.report.tables.numbers import scope_text
from bolt.series.cache import SeriesCache


@dataclass
class Facts:
    """What is known of a model besides its weights.

    Attributes
    ----------
    about : dict
        JSON: label, atlas, rois, series (how they were made), cohort, metrics, temperature, runs (`tested`: how many of
        all folds and scans the metrics are of, if not all).
    connectivity : (R (R - 1) / 2,) array
        Mean of the training cohort.
    """

    about: dict[str, Any]
    connectivity: NDArray[np.float32]


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

    def folds(self) -> list[Path]:
        """Return the folders of the folds in the folder that was given, sorted: of all seeds, of one, or one fold."""
        places = (path.parent for path in self.model.glob("seed-*/fold-*/status.json"))
        return sorted(place for place in places if place.is_relative_to(self.folder))


def describe_run(place: RunPlace) -> Facts:
    """Describe the models of a run by what the results say.

    Raises
    ------
    DataError
        No fold has finished, or a file of the results is missing or altered.
    """
    tests, done, failed = test_predictions(place)
    study, cache = _study(place), place.cache
    classes, roles = study.dataset.classes, roles_in(place)
    in_folds = np.flatnonzero(cache.index["scan_id"].isin(roles.index))
    tested = tests["fold"].nunique(), roles.shape[1], tests["scan_id"].nunique(), len(in_folds)
    cohort, connectivity = summarise_cohort(cache, in_folds.tolist())
    about: dict[str, Any] = {
        "dataset": study.dataset.name,
        "label": study.dataset.label,
        "positive": classes[-1] if classes and len(classes) == 2 else None,
        "atlas": _atlas(place, study, cache),
        "rois": cache.rois.where(cache.rois.notna(), None).to_dict("list"),
        "series": series_facts(place, study),
        "cohort": cohort,
        "scheme": study.config.folds.scheme,
        "runs": {
            "trained": done,
            "failed": failed,
            "seeds": sorted(tests["seed"].unique().tolist()),
            "tested": scope_text(*tested),
        },
        "metrics": _metrics(tests, classes),
        "temperature": None if classes is None else _temperature(tests, classes),
    }
    return Facts(about, connectivity)


def _study(place: RunPlace) -> Study:
    """Read the run's configuration, and the dataset's as each fold keeps it: its own file may have moved."""
    kept = read_yaml(place.folds()[0] / "config.yaml")["dataset"]
    return Study(load_config(place.results / "config.yaml"), parse(Dataset, kept, place.folds()[0] / "config.yaml"))


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
    table = pd.concat(tests, ignore_index=True)
    return table, len(tests), failed


def _metrics(tests: pd.DataFrame, classes: list[str] | None) -> dict[str, Any]:
    """Return each metric over all test scans with its 95 % interval, and how many scans and groups there are."""
    summary = pooled(tests, classes)
    metrics: dict[str, Any] = {"scans": int(tests["scan_id"].nunique()), "groups": summary["n_groups"]}
    for name in metrics_of(classes):
        metrics[name] = {k: round(v, 4) if np.isfinite(v) else None for k, v in summary[name].items()}
    return metrics


def _temperature(tests: pd.DataFrame, classes: list[str]) -> float:
    truth, _, probability = class_arrays(tests, classes)
    return round(fit_temperature(probability, truth, tests["seed"].nunique()), 4)


def _atlas(place: RunPlace, study: Study, cache: SeriesCache) -> dict[str, Any]:
    """Return name, checksum and source of the atlas, as far as the results or the atlas's own files tell."""
    from bolt.atlases.description import describe_atlas

    about: dict[str, Any] = {"name": place.atlas, "sha256": None, "spaces": [], "source": "", "citation": "", "doi": ""}
    try:
        described = describe_atlas(study.config.atlas_places.get(place.atlas, place.atlas))
        about |= {key: getattr(described, key) for key in ("spaces", "source", "citation", "doi")}
    except BoltError:  # an atlas of one's own that has moved: what the series say is enough
        pass
    for scan in cache.index["scan_id"]:
        sidecar = place.results / "series" / place.variant / scan / f"{scan}_atlas-{place.atlas}_timeseries.json"
        if sidecar.is_file():
            return about | {"sha256": read_json(sidecar).get("AtlasSHA256")}
    return about


def series_facts(place: RunPlace, study: Study) -> dict[str, Any]:
    """Return how the series were made, for those who make series of new scans."""
    config, dataset = study.config, study.dataset
    settings = {"uncovered": config.parcellate.uncovered, "crop": dataset.crop}
    if dataset.ready_series:
        return settings | {"made_by": "the dataset's authors", "space": None, "denoising": None}
    denoising = place.cache.manifest["settings"].get("Denoising")
    project = f"the Preprocessed Connectomes Project ({dataset.abide.pipeline})"
    made_by = {"fmriprep": "fMRIPrep", "hcp": "HCP", "abide": project}.get(dataset.source, "BolT")
    keys = ("space", "resolution", "registration", "slice_timing", "steady_state", "output")
    preprocessing = {key: getattr(config.preprocess, key) for key in keys} if made_by == "BolT" else None
    return settings | {
        "made_by": made_by,
        "space": study.layout.space,
        "output": config.preprocess.output,
        "denoising": denoising,
        "coverage": config.parcellate.coverage,
        "signal": config.parcellate.signal,
        "preprocessing": preprocessing,
    }


def roles_in(place: RunPlace) -> pd.DataFrame:
    """Return the role of each scan (rows) in each fold (columns) of a run's results."""
    folds = read_table(place.results / "folds.tsv", text=("scan_id",))
    return folds.pivot(index="scan_id", columns="fold", values="role")
