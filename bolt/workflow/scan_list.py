"""The list of scans that a run starts from: what `index` writes, and what is shown before a run."""

from __future__ import annotations

import pandas as pd

from bolt.config.study import Study
from bolt.datasets import index
from bolt.datasets.participants import require_classes
from bolt.folds.splits import make_folds, strata
from bolt.models.suitability import check_covariate_values


def list_scans(study: Study, *, learns: bool, minimum_volumes: int) -> pd.DataFrame:
    """List the scans of a dataset, and find out now what would fail hours later.

    Parameters
    ----------
    study : Study
    learns : bool
        Whether models are trained, which need labels, covariates and folds.
    minimum_volumes : int
        As for `bolt.datasets.index`.

    Returns
    -------
    DataFrame
        `bolt.datasets.COLUMNS`, with the reason for each exclusion.

    Raises
    ------
    BoltError
        The dataset cannot be indexed; its usable scans are too few for the models or the folds.
    """
    scans = index(study.config, study.dataset, minimum_volumes)
    usable = scans[scans.exclude_reason.isna()]
    check_covariate_values(study.models.values(), usable)
    if learns:  # too few subjects of a class are reported here, too
        require_classes(usable, study.dataset, study.dataset.where)
        make_folds(strata(usable, study.dataset), study.config.folds)
    return scans


def can_be_listed(study: Study) -> bool:
    """Return whether the scans can be listed before a run downloads or simulates anything."""
    dataset = study.dataset
    simulated = dataset.source == "phantom" and (dataset.path / "dataset_description.json").is_file()
    return simulated or dataset.source in ("bids", "fmriprep", "series", "bids_series")
