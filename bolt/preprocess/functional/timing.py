"""Timing within a scan: non-steady-state volumes at the start, and slice timing correction."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np

from bolt.io.bids import metadata_of
from bolt.io.errors import BoltWarning, DataError
from bolt.io.streams import iter_volumes

N_COMPARED = 50
"""Volumes at the start whose mean signals are compared."""
MAX_Z = 3.5
"""Modified z-score of the mean signal above which a volume is not in the steady state."""
MAX_SECONDS, MAX_VOLUMES, MAX_SHARE = 15.0, 10, 0.2
"""Seconds (about four times the T1 of CSF), volumes and share of a scan within which the steady state is reached."""
TAPS = 6
"""Volumes on each side used by the interpolation in time."""


def count_unsteady(bold: str | Path, n_volumes: int, tr: float) -> int:
    """Count the non-steady-state volumes at the start by their mean signal; warn if there are any.

    As in fMRIPrep, these are the successive volumes from the first whose modified z-score (Iglewicz & Hoaglin 1993,
    from the median absolute deviation) among the first `N_COMPARED` exceeds `MAX_Z`. No more are counted than T1
    saturation can explain (`most_unsteady`); what lasts longer has another reason, and is in the warning.

    Parameters
    ----------
    bold : path
        4D image; only its first volumes are read.
    n_volumes : int
        Volumes of the image.
    tr : float
        Seconds.
    """
    means = [float(volume.mean(dtype=np.float64)) for volume in islice(iter_volumes(bold), N_COMPARED)]
    n_unsteady, most = unsteady(np.asarray(means)), most_unsteady(n_volumes, tr)
    problem = f"the first {n_unsteady} volume(s) are not in the steady state and are dropped"
    if n_unsteady > most:
        problem = (
            f"the mean signal of the first {n_unsteady} volumes is an outlier, for longer than it takes to reach the "
            f"steady state: the first {most} are dropped; inspect the scan, or set the number to drop in 'preprocess: "
            "steady_state'"
        )
    if n_unsteady:
        warnings.warn(f"{bold}: {problem}", BoltWarning, stacklevel=2)
    return min(n_unsteady, most)


def most_unsteady(n_volumes: int, tr: float) -> int:
    """Return the largest plausible number of non-steady-state volumes (`MAX_SECONDS`, `MAX_VOLUMES`, `MAX_SHARE`)."""
    return min(int(np.ceil(MAX_SECONDS / tr)), MAX_VOLUMES, int(MAX_SHARE * n_volumes))


def unsteady(means: np.ndarray) -> int:
    """Count the outlying volumes at the start from the (T,) mean signals."""
    distance = np.abs(means - np.median(means))
    typical = np.median(distance)
    steady = np.flatnonzero(0.6745 * distance <= MAX_Z * typical)
    return int(steady[0]) if typical > 0 else 0


@dataclass(frozen=True)
class SliceTimes:
    """Acquisition times of the slices of a volume.

    Attributes
    ----------
    times : (S,) array
        Seconds since the volume's first excitation, in the order of the image's slices.
    axis : int
        Slice axis of the image.
    """

    times: np.ndarray
    axis: int

    @property
    def middle(self) -> float:
        """Return the midpoint of the acquisition, in seconds: half the TR if slices fill the TR."""
        return float(self.times.min() + self.times.max()) / 2


def read_slice_times(bold: str | Path, shape: tuple[int, int, int], tr: float) -> SliceTimes | None:
    """Read SliceTiming from the image's sidecar; None if it is missing or all slices are acquired at once.

    Parameters
    ----------
    bold : path
    shape : (X, Y, Z)
    tr : float
        Seconds.

    Raises
    ------
    DataError
        The times are not numbers, or do not match the image or the TR (milliseconds, for instance).
    """
    about = metadata_of(bold)
    slice_timing = about.get("SliceTiming")
    if slice_timing is None:
        return None
    hint = "Correct SliceTiming (seconds, one per slice) in the JSON sidecar, or set 'preprocess: slice_timing' to off"
    direction = str(about.get("SliceEncodingDirection", "k"))
    try:
        times, axis = np.asarray(slice_timing, dtype=float), "ijk".index(direction.removesuffix("-"))
    except (TypeError, ValueError):
        raise DataError("SliceTiming or SliceEncodingDirection cannot be read", where=bold, hint=hint) from None
    what = ""
    if times.shape != (shape[axis],):
        what = f"SliceTiming has {times.size} times for {shape[axis]} slices along {direction[0]}"
    elif not (np.isfinite(times).all() and times.min() >= 0):
        what = "SliceTiming has negative or missing times"
    elif times.max() > tr:
        what = f"SliceTiming reaches {times.max():g}, beyond the repetition time of {tr:g} s (is it in milliseconds?)"
    if what:
        raise DataError(what, where=bold, hint=hint)
    if np.ptp(times) == 0:
        return None
    return SliceTimes(times[::-1] if direction.endswith("-") else times, axis)


def slice_timed(
    volumes: Iterable[np.ndarray], slices: SliceTimes | None, tr: float, unsteady: int = 0
) -> Iterator[np.ndarray]:
    """Yield volumes as if all slices were acquired at once, at the midpoint of the acquisition.

    Each slice is shifted in time by a windowed sinc (Lanczos) over a sliding window of volumes, so memory does not
    grow with the scan. The first and last volumes are repeated at the ends. Non-steady-state volumes are passed on
    unchanged and do not contribute to the others.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
    slices : SliceTimes or None
        None: volumes are passed on unchanged.
    tr : float
        Seconds.
    unsteady : int
        Non-steady-state volumes at the start.

    Yields
    ------
    (X, Y, Z) float32 array
    """
    source = iter(volumes)
    yield from islice(source, None if slices is None else unsteady)
    first = next(source, None)
    if slices is None or first is None:
        return
    # what each volume of the window contributes to each slice
    delay = (slices.middle - slices.times) / tr
    distance = delay - np.arange(-TAPS, TAPS + 1)[:, None]
    weights = np.where(np.abs(distance) < TAPS, np.sinc(distance) * np.sinc(distance / TAPS), 0)
    weights /= weights.sum(axis=0)
    shape = [len(weights), 1, 1, 1]
    shape[1 + slices.axis] = len(delay)
    weights = weights.reshape(shape).astype(np.float32)
    window = deque([first] * (TAPS + 1), maxlen=2 * TAPS + 1)
    for volume in chain(source, repeat(None, TAPS)):
        window.append(window[-1] if volume is None else volume)
        if len(window) == window.maxlen:
            shifted = np.zeros(first.shape, dtype=np.float32)
            for weight, neighbour in zip(weights, window, strict=True):
                shifted += weight * neighbour
            yield shifted
