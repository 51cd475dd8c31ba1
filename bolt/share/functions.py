"""The functions under the commands: ROI means, folds, leaks, the comparison with chance, a plot, simulated series."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bolt.io.errors import BoltWarning, DataError, LeakError, shorten_list
from bolt.share.scans import as_series, one_per_scan, require_plain, scan_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def parcellate(
    image: Any,
    atlas: str | Path,
    *,
    mask: str | Path | None = None,
    confounds: pd.DataFrame | str | Path | None = None,
    denoise: str | None = None,
    tr: float | None = None,
    coverage: float = 0.5,
    space: str | None = None,
) -> NDArray[np.float32]:
    """Average a 4D image over the ROIs of an atlas.

    Parameters
    ----------
    image : path or nibabel image
        4D, in the atlas's space; read volume by volume.
    atlas : str or path
        Name (``bolt atlases`` lists them), folder with `atlas.yaml` and `labels.tsv`, or label image.
    mask : path, optional
        Image on the same grid; voxels where it is zero are excluded from all means.
    confounds : DataFrame or path, optional
        One row per volume; without `denoise` all columns are regressed out.
    denoise : str, optional
        A strategy in `config/denoise`, or the path of such a file.
    tr : float, optional
        Seconds; default: from the image's JSON files, else from the header.
    coverage : float
        Smallest share of an ROI's voxels with signal, inside the field of view and the mask, at which it has a series.
    space : str, optional
        Reference space of an image that does not declare one, such as ``MNI152NLin6Asym``. The atlas's image is the one
        for this space.

    Returns
    -------
    (T, R) float32 array
        Denoised, not z-scored; a column per ROI in the order of the atlas's labels. A column of NaN is an ROI that is
        not covered, which is warned of. `bolt.series.parcellate.parcellate` returns coverage and metadata, too.

    Raises
    ------
    ConfigError
        An unknown atlas or strategy.
    DataError
        The image cannot be read or is in another space; mask or confounds do not fit; no ROI is covered.
    """
    from bolt.atlases.image import load_atlas
    from bolt.io.bids import sidecar_tr
    from bolt.series.denoise import strategy
    from bolt.series.parcellate import known_space
    from bolt.series.parcellate import parcellate as parcellate_atlases

    with ExitStack() as stack:
        if not isinstance(image, str | Path):  # one in memory is written to a temporary file
            import nibabel as nib

            if not isinstance(image, nib.spatialimages.SpatialImage):
                raise DataError(f"a {type(image).__name__}, not an image", hint="Give a path, or an image of nibabel")
            if origin := image.get_filename():  # of an image that was read from a file
                space, tr = known_space(origin, space), sidecar_tr(origin) if tr is None else tr
            path = Path(stack.enter_context(TemporaryDirectory(prefix="bolt-"))) / "image.nii"
            nib.save(image, path)
            image = path
        space = known_space(image, space)
        loaded = load_atlas(str(atlas), space=space)
        result = parcellate_atlases(
            image,
            [loaded],
            mask=mask,
            confounds=confounds,
            denoise=strategy(denoise, confounds is not None),
            tr=tr,
            threshold=coverage,
            space=space,
        )[loaded.name]
    uncovered = np.isnan(result.series).any(axis=0)
    if uncovered.any():
        names = shorten_list(result.coverage["name"][uncovered])
        warnings.warn(f"{uncovered.sum()} ROIs are not covered, NaN: {names}", BoltWarning, stacklevel=2)
    return result.series


class Fold(NamedTuple):
    """Positions of the scans of one fold, sorted.

    Attributes
    ----------
    train, validation, test : int arrays
    """

    train: NDArray[np.integer]
    validation: NDArray[np.integer]
    test: NDArray[np.integer]


def folds(
    y: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    sites: ArrayLike | None = None,
    outer: int = 10,
    validation: float = 0.1,
    seed: int = 0,
    scheme: Literal["kfold", "leave-site-out"] = "kfold",
) -> list[Fold]:
    """Split scans for nested cross-validation, as the workflow does.

    Test and validation parts are stratified by label and site, and no group is on two sides of a split. Every scan is
    tested once.

    Parameters
    ----------
    y : (scans,) array
        Classes; or floating-point numbers, which are stratified by quarters.
    groups : (scans,) array, optional
        Families, or else subjects; by default each scan is one of its own.
    sites : (scans,) array, optional
        Needed for ``leave-site-out``, which tests one site per fold (set `outer` to their number).
    outer : int
        Number of folds.
    validation : float
        Share of all groups in the validation part.
    seed : int
    scheme : {"kfold", "leave-site-out"}

    Returns
    -------
    list of Fold
        ``[(fold.train, fold.test) for fold in folds(y)]`` is what scikit-learn takes as ``cv``.

    Raises
    ------
    DataError
        A class has fewer groups than there are folds, there is only one class, or sites are missing.
    """
    from bolt.config import Folds
    from bolt.config.keys import parse
    from bolt.folds.splits import make_folds, quarters

    labels = one_per_scan(y, np.size(y), "labels")
    keys = {"scheme": scheme, "outer": outer, "validation": validation, "seed": seed}
    settings = parse(Folds, keys, "folds")
    scans = _scans(len(labels), groups, sites)
    numbers = labels.dtype.kind == "f"
    scans["label"] = quarters(pd.Series(labels)).astype("category") if numbers else [str(label) for label in labels]
    require_plain(scans["label"], "labels")
    table = make_folds(scans, settings)
    table["position"] = table["scan_id"].astype(int)
    parts = {key: rows["position"].to_numpy() for key, rows in table.groupby(["fold", "role"])}
    return [Fold(*(np.sort(parts[fold, role]) for role in ("train", "validation", "test"))) for fold in range(outer)]


def check_leaks(
    folds: Iterable[Sequence[ArrayLike]],
    groups: ArrayLike | None = None,
    *,
    sites: ArrayLike | None = None,
    series: Sequence[ArrayLike] | None = None,
) -> None:
    """Refuse folds in which a group, or the same recording, is on two sides of a split.

    Parameters
    ----------
    folds : iterable of (train, test) or (train, validation, test)
        Positions of scans, from `folds`, from scikit-learn (``cv.split(X, y, groups)``), or your own.
    groups : (scans,) array, optional
        Families or subjects. ``sub-01``, ``01`` and ``1`` are one subject.
    sites : (scans,) array, optional
        No site may be on two sides of a split.
    series : list of (time, rois) arrays, optional
        Series that correlate above 0.999 are one recording, under whatever names. Columns of DataFrames are put in the
        order of the first one's by their names; anything else is read by position.

    Raises
    ------
    LeakError
        Names the first case of each kind.
    DataError
        There is no fold; a fold has other parts, or a position beyond the scans; `groups`, `sites` and `series` differ
        in length; DataFrames in `series` name other columns than the first, or one twice.
    """
    from bolt.folds.audit import HINT, find_leaks
    from bolt.folds.check import name_contents

    remedy = "Give (train, test) or (train, validation, test)"
    try:
        folds = [tuple(fold) for fold in folds]  # an iterator, which is read twice
    except TypeError:
        raise DataError("not folds", hint=remedy) from None
    if not folds:
        raise DataError("no folds", hint=remedy)
    lengths = [len(values) for values in (groups, sites, series) if values is not None]  # type: ignore[arg-type]
    if len(set(lengths)) > 1:
        counts = " and ".join(map(str, lengths))
        raise DataError(f"groups, sites and series of {counts} scans", hint="Give one per scan")
    used = [np.asarray(part) for fold in folds for part in fold]
    n = lengths[0] if lengths else 1 + max((int(part.max()) for part in used if part.size), default=-1)
    rows = []
    for number, fold in enumerate(folds):
        if len(fold) not in (2, 3):
            raise DataError(f"fold {number}: {len(fold)} parts", hint=remedy)
        names = ("train", "test") if len(fold) == 2 else ("train", "validation", "test")
        for role, positions in zip(names, map(np.asarray, fold), strict=True):
            if positions.dtype.kind not in "iu" or (positions.size and not 0 <= positions.min() <= positions.max() < n):
                raise DataError(f"the {role} part of fold {number} is not positions of {n} scans", hint="Count from 0")
            rows += [(f"{i:08d}", str(number), role) for i in positions]
    table = pd.DataFrame(rows, columns=["scan_id", "fold", "role"])
    scans = _scans(n, groups, sites)
    kinds = ["scan_id"] + ["group"] * (groups is not None) + ["site"] * (sites is not None)
    contents = {}
    if series is not None:
        contents["series"] = name_contents(zip(scans["scan_id"], as_series(series)[0], strict=True))
    leaks = find_leaks(table, scans, kinds, contents)
    if leaks:
        raise LeakError("; ".join(map(str, leaks)), hint=HINT)


def _scans(n: int, groups: Any, sites: Any) -> pd.DataFrame:
    """Return a table of scans that are named by their positions."""
    table = scan_table(n)
    for column, values in (("group", groups), ("site", sites)):
        if values is None:
            continue
        array = np.asarray(values)
        if array.shape != (n,):
            raise DataError(f"{column}s have shape {array.shape} for {n} scans", hint="Give one per scan")
        values = pd.Series([None if pd.isna(value) else str(value) for value in array], dtype=object)
        table[column] = values.where(values.notna(), table["subject"]) if column == "group" else values
    return table.assign(subject=table["group"])


def compare_with_chance(
    predictions: pd.DataFrame | str | Path | Sequence[str | Path], classes: Sequence[str] | None = None
) -> dict[str, Any]:
    """Compare predictions with chance, as the report does and with the same p.

    Parameters
    ----------
    predictions : DataFrame, path, or sequence of paths
        The ``predictions.tsv`` of all folds of a run, or their rows of all roles; or the folder of a seed (``seed-0``)
        that holds them. Of your own predictions: scan_id, subject, group, fold, seed, role, label, predicted and, of
        classes, a column ``p_<class>`` for each.
    classes : sequence of str, optional
        The last of two is the positive one; by default in the order of the columns. Without such columns labels are
        numbers.

    Returns
    -------
    dict
        As `bolt.evaluate.chance.compare_with_chance`, whose module describes the procedure: ``value`` (mean AUC or
        correlation over folds), ``p``, ``bar``, and more.

    Raises
    ------
    DataError
        There are no predictions, or a fold without test or training scans.
    """
    from bolt.evaluate.chance import compare_with_chance as compare
    from bolt.evaluate.metrics import read_predictions

    if isinstance(predictions, pd.DataFrame):
        rows = predictions
    else:
        given = [predictions] if isinstance(predictions, str | Path) else predictions
        files: list[Path] = []
        for path in map(Path, given):
            files += sorted(path.glob("fold-*/predictions.tsv")) if path.is_dir() else [path]
        if not files:
            raise DataError("no fold-*/predictions.tsv", where=str(predictions), hint="Give the folder of a seed")
        rows = pd.concat(map(read_predictions, files), ignore_index=True)
    trained = rows["role"] == "train"
    tests = rows.assign(n_train=trained.groupby([rows["fold"], rows["seed"]]).transform("sum"))[rows["role"] == "test"]
    if tests.empty or not (tests["n_train"] > 0).all():  # NaN where fold or seed is missing
        raise DataError("a fold without training or test scans", hint="Give the rows of all roles (column 'role')")
    found = [str(column)[2:] for column in rows if str(column).startswith("p_")]
    return compare(tests, list(classes or found) or None)


def plot_importance(
    importance: ArrayLike, *, tr: float | None = None, n_landmarks: int = 5, ax: Axes | None = None
) -> Axes:
    """Plot the importance of a scan's volumes over time, and shade the most important ones.

    Parameters
    ----------
    importance : (time,) array
        From ``importance`` of an estimator; drawn relative to its mean.
    tr : float, optional
        Repetition time in seconds; by default the axis counts volumes.
    n_landmarks : int
        Number of volumes that are shaded.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
    """
    import matplotlib.pyplot as plt

    from bolt.explain.landmarks import top_tokens
    from bolt.report.figures.series import TimeCourse, draw_importance
    from bolt.report.figures.style import RC

    if tr is not None and not tr > 0:
        raise DataError(f"tr is {tr}", hint="Give seconds, such as 2.0")
    weights = np.asarray(importance, float)
    if weights.ndim != 1 or not len(weights) or not np.isfinite(weights).all():
        raise DataError(f"importance has shape {weights.shape} or values that are not finite", hint="Give (time,)")
    with plt.rc_context(RC):
        if ax is None:
            ax = plt.subplots(figsize=(7.2, 2.2), layout="constrained")[1]
        shown, tokens = weights / (weights.mean() or 1), top_tokens(weights, n_landmarks)
        draw_importance(ax, TimeCourse(shown, tokens, tr or np.nan, np.arange(len(weights))))
        ax.set(ylabel="importance / mean", xlabel="time (s)" if tr else "volume")
    return ax


class Simulated(NamedTuple):
    """Simulated ROI series with known truth.

    Attributes
    ----------
    series : list of (time, rois) arrays
        Scans of two lengths; ROIs are those of the atlas ``dosenbach160``.
    y : (scans,) array
        ``control`` or ``patient``.
    tr : (scans,) array
        Repetition time in seconds.
    landmarks : list of (time,) bool arrays
        Volumes at the events that distinguish the classes.
    rois : DataFrame
        value, name, network, hemisphere, and ``sign``: 1 or -1 in ROIs that take part in the events, else 0.
    """

    series: list[NDArray[np.float32]]
    y: NDArray[np.str_]
    tr: NDArray[np.floating]
    landmarks: list[NDArray[np.bool_]]
    rois: pd.DataFrame


def simulate(n_scans: int = 24, seed: int = 0, *, event_amplitude: float = 4.0) -> Simulated:
    """Simulate ROI series of two classes that differ in transient events alone, for examples and for trying things out.

    Means, variances and covariances are the same in both classes (`bolt.datasets.phantom.signal`).

    Parameters
    ----------
    n_scans : int
        One scan per subject.
    seed : int
        Equal seeds give equal series.
    event_amplitude : float
        Peak of the response to an event, in standard deviations of the background.

    Returns
    -------
    Simulated
    """
    from bolt.config import Simulate
    from bolt.config.keys import parse
    from bolt.datasets.phantom import simulate_series
    from bolt.datasets.phantom.signal import informative, rois

    keys = {"n_subjects": n_scans, "seed": seed, "event_amplitude": event_amplitude}
    settings = parse(Simulate, keys, "simulate")
    people, series = simulate_series(n_scans, settings)
    planted = informative(settings)["sign"]
    return Simulated(
        [scan.values for scan in series],
        np.array(["patient" if person.positive else "control" for person in people]),
        np.array([settings.tr[person.site] for person in people]),
        [scan.landmarks for scan in series],
        rois()[["value", "name", "network", "hemisphere"]].assign(sign=planted).fillna({"sign": 0}),
    )
