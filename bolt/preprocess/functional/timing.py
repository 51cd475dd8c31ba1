"""Time within a scan: volumes before the steady state, and slices that are acquired one after another."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np

from bolt.io.errors import BoltWarning, DataError
from bolt.io.sidecars import metadata_of
from bolt.io.streams import iter_volumes

LOOKED_AT = 50
"""So many volumes at the start are compared."""
OUTLYING = 3.5
"""Modified z-score of a volume's mean signal above which it is before the steady state."""
SATURATING, MOST, LARGEST_SHARE = 15.0, 10, 0.2
"""Seconds, volumes and share of a scan within which a steady state is reached: some four times fluid's T1."""
TAPS = 6
"""Volumes on each side that the interpolation in time looks at."""


def count_unsteady(bold: str | Path, n_volumes: int, tr: float) -> int:
    """Volumes at the start whose mean signal has not reached the steady state; a warning where there are any.

    As fMRIPrep does: successive volumes from the first whose modified z-score (Iglewicz & Hoaglin 1993, from the
    median absolute deviation) among the first `LOOKED_AT` exceeds `OUTLYING`. Where there are more than saturation can
    last (`most_unsteady`), the signal has changed for another reason: none is counted, with a warning.

    Parameters
    ----------
    bold : path
        4D image; only its first volumes are read.
    n_volumes : int
        Of the image.
    tr : float
        Seconds.
    """
    means = [float(volume.mean(dtype=np.float64)) for volume in islice(iter_volumes(bold), LOOKED_AT)]
    found, most = unsteady(np.asarray(means)), most_unsteady(n_volumes, tr)
    if found > most:
        what = (
            f"the mean signal of the first {found} volumes stands out, too long for a steady state to be reached: all"
        )
        what += " are kept; look at the scan, or give the number to leave out in 'preprocess: steady_state'"
    elif found:
        what = f"the first {found} volume(s) are before the steady state and left out"
    else:
        return 0
    warnings.warn(f"{bold}: {what}", BoltWarning, stacklevel=2)
    return found if found <= most else 0


def most_unsteady(n_volumes: int, tr: float) -> int:
    """Volumes that can be before the steady state, by `SATURATING`, `MOST` and `LARGEST_SHARE`."""
    return min(int(np.ceil(SATURATING / tr)), MOST, int(LARGEST_SHARE * n_volumes))


def unsteady(means: np.ndarray) -> int:
    """The same from the (T,) mean signals."""
    distance = np.abs(means - np.median(means))
    typical = np.median(distance)
    steady = np.flatnonzero(0.6745 * distance <= OUTLYING * typical)
    return int(steady[0]) if typical > 0 else 0


@dataclass(frozen=True)
class SliceTimes:
    """When the slices of a volume are acquired.

    Attributes
    ----------
    times : (S,) array
        Seconds since the volume's first excitation, in the order of the image's slices.
    axis : int
        Of the image, along which the slices lie.
    """

    times: np.ndarray
    axis: int

    @property
    def middle(self) -> float:
        """Seconds after which half of the slices are acquired; where slices fill the TR, its middle."""
        return float(self.times.min() + self.times.max()) / 2


def read_slice_times(bold: str | Path, shape: tuple[int, int, int], tr: float) -> SliceTimes | None:
    """SliceTiming of the image's sidecar; None where it is not known, or all slices are acquired at once.

    Parameters
    ----------
    bold : path
    shape : (X, Y, Z)
    tr : float
        Seconds.

    Raises
    ------
    DataError
        The times are no numbers, or do not fit the image or the TR (milliseconds, say).
    """
    about = metadata_of(bold)
    stated = about.get("SliceTiming")
    if stated is None:
        return None
    hint = "Correct SliceTiming (seconds, one a slice) in the JSON sidecar, or set 'preprocess: slice_timing' to off"
    direction = str(about.get("SliceEncodingDirection", "k"))
    try:
        times, axis = np.asarray(stated, dtype=float), "ijk".index(direction.removesuffix("-"))
    except (TypeError, ValueError):
        raise DataError("SliceTiming or SliceEncodingDirection cannot be read", where=bold, hint=hint) from None
    if times.shape != (shape[axis],):
        raise DataError(
            f"SliceTiming has {times.size} times for {shape[axis]} slices along {direction[0]}", where=bold, hint=hint
        )
    if not (np.isfinite(times).all() and times.min() >= 0):
        raise DataError("SliceTiming holds negative or missing times", where=bold, hint=hint)
    if times.max() > tr:
        raise DataError(
            f"SliceTiming reaches {times.max():g}, beyond the repetition time of {tr:g} s: milliseconds?",
            where=bold,
            hint=hint,
        )
    if np.ptp(times) == 0:
        return None
    return SliceTimes(times[::-1] if direction.endswith("-") else times, axis)


def slice_timed(
    volumes: Iterable[np.ndarray], slices: SliceTimes | None, tr: float, unsteady: int = 0
) -> Iterator[np.ndarray]:
    """Volumes as if all slices were acquired at once, in the middle.

    Each slice is shifted in time by a windowed sinc (Lanczos) over a sliding window of volumes, so memory does not
    grow with the scan. At both ends the last volume stands for those beyond. Volumes before the steady state pass
    as they are, and have no part in the others.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
    slices : SliceTimes or None
        None: the volumes pass as they are.
    tr : float
        Seconds.
    unsteady : int
        Volumes at the start before the steady state.

    Yields
    ------
    (X, Y, Z) float32 array
    """
    source = iter(volumes)
    if slices is None:
        yield from source
        return
    yield from islice(source, unsteady)
    weights = _weights(slices, tr)
    first = next(source, None)
    if first is None:
        return
    window = deque([first] * (TAPS + 1), maxlen=2 * TAPS + 1)
    for volume in chain(source, repeat(None, TAPS)):
        window.append(window[-1] if volume is None else volume)
        if len(window) == window.maxlen:
            shifted = np.zeros(first.shape, dtype=np.float32)
            for weight, held in zip(weights, window, strict=True):
                shifted += weight * held
            yield shifted


def _weights(slices: SliceTimes, tr: float) -> np.ndarray:
    """(2 TAPS + 1, 1, 1, S) or with S along the slices' axis: what each volume of the window adds to a slice."""
    late = (slices.middle - slices.times) / tr
    away = late - np.arange(-TAPS, TAPS + 1)[:, None]
    weights = np.where(np.abs(away) < TAPS, np.sinc(away) * np.sinc(away / TAPS), 0)
    weights /= weights.sum(axis=0)
    shape = [len(weights), 1, 1, 1]
    shape[1 + slices.axis] = len(late)
    return weights.reshape(shape).astype(np.float32)
