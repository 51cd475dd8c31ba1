"""What a run makes, as numbers: each stage counts its jobs by them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What a run makes, as far as it is known beforehand.

    Attributes
    ----------
    whole : bool
        Whether everything configured is made, and not experiments or a search alone.
    phantom, downloaded, judged, truth : bool
        Whether the dataset is simulated, is downloaded, has its scans judged by quality, has a known truth to compare
        with.
    n_scans, n_downloads, n_raw, n_anatomies, n_images, n_atlases : int
        Scans: all, to download, raw; T1w images to preprocess; scans whose ROI series are not there already; atlases.
    n_trainings, n_fits : int
        Jobs that train a model in epochs, and that fit one at once.
    n_evaluated, n_explained, n_mapped, n_timed, n_checked : int
        Runs of models that are judged, explained by landmarks, drawn on the brain, drawn over tasks, and whose
        explanation is checked. The oracle's are runs of their own, which are not checked.
    n_weighed_folds, n_explained_folds, n_checked_folds, n_inner : int
        Folds with importance weights, those of explained and of checked runs, and the inner folds of each.
    n_retrained : int
        Models trained again with another seed, as a control of these checks.
    permuted, sanity, faithfulness : bool
        Which checks of explanations are asked for.
    experiment_kinds : tuple of str
        Kinds of the experiments whose tables are made.
    n_searches, n_choices, n_shared_choices : int
        Folds on which hyper-parameters are searched, searches whose choice is written, and models for which one choice
        is written for all datasets and atlases.
    """

    whole: bool
    phantom: bool = False
    downloaded: bool = False
    judged: bool = False
    truth: bool = False
    n_scans: int = 0
    n_downloads: int = 0
    n_raw: int = 0
    n_anatomies: int = 0
    n_images: int = 0
    n_atlases: int = 0
    n_trainings: int = 0
    n_fits: int = 0
    n_evaluated: int = 0
    n_explained: int = 0
    n_mapped: int = 0
    n_timed: int = 0
    n_checked: int = 0
    n_weighed_folds: int = 0
    n_explained_folds: int = 0
    n_checked_folds: int = 0
    n_inner: int = 0
    n_retrained: int = 0
    permuted: bool = False
    sanity: bool = False
    faithfulness: bool = False
    experiment_kinds: tuple[str, ...] = ()
    n_searches: int = 0
    n_choices: int = 0
    n_shared_choices: int = 0
