"""ROI series of the phantom: background, class-dependent events, and nothing static to tell the classes apart.

Every scan has `n_events` synchronous transients, in which all informative ROIs follow one signed pattern
at once, and in each informative ROI as many asynchronous ones, at times of its own and of the opposite
sign. In the positive class the synchronous pattern is +v, in the negative class -v. So within either class
an informative ROI sees equally many responses up and down, of one shape and one law of onset times: its
distribution is the same in both classes. The synchronous events add v vᵀ, and (-v)(-v)ᵀ is the same matrix,
so all covariances are the same too. The classes differ in moments of odd order over several ROIs alone,
that is, in what happens at the moments when the regions move together.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from nilearn.glm.first_level import glover_hrf
from scipy.spatial.distance import cdist

from bolt.config import ROOT, Simulate
from bolt.files import read_table

STEP = 0.1  # seconds: grid on which the "continuous" series live
SPACING = 16.0  # seconds between synchronous onsets, so that two responses rarely merge
NETWORK = "default"  # the informative ROIs are drawn from this network


class Series(NamedTuple):
    """One scan's dynamics; background standard deviation 1.

    Attributes
    ----------
    values : ndarray, (time, rois)
        The series in the middle of every volume: what a perfect pipeline would recover.
    landmarks : ndarray of bool, (time,)
        Volumes in which the synchronous response exceeds half the peak of one event.
    response : ndarray, (time,)
        Synchronous response (1 at the peak of one event), without the pattern.
    events : DataFrame
        onset (s), duration (s), kind (sync, async), roi (value in the atlas; 0: all informative), sign.
    fine : ndarray, (moments, rois)
        The series every `step` seconds.
    step : float
    """

    values: np.ndarray
    landmarks: np.ndarray
    response: np.ndarray
    events: pd.DataFrame
    fine: np.ndarray
    step: float

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """Series at any times of the scan, linearly interpolated: (*times, rois)."""
        return interpolate(self.fine, seconds / self.step)


def interpolate(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Linear interpolation along the first axis at fractional `places`; (*places, *rest of values), float32."""
    places = np.clip(places, 0, len(values) - 1)
    low = np.minimum(places.astype(int), len(values) - 2)
    share = (places - low).reshape(*places.shape, *[1] * (values.ndim - 1))
    return ((1 - share) * values[low] + share * values[low + 1]).astype(np.float32)


def stream(settings: Simulate, subject: int, purpose: str) -> np.random.Generator:
    """A random stream of its own for each subject and purpose, whatever the order of the work."""
    return np.random.default_rng([settings.seed, subject, zlib.crc32(purpose.encode())])


@lru_cache
def rois() -> pd.DataFrame:
    """The atlas's table: value, name, network, hemisphere, x, y, z."""
    return read_table(ROOT / "atlases" / "dosenbach160" / "labels.tsv", text=("name", "network", "hemisphere"))


def informative(settings: Simulate) -> pd.DataFrame:
    """The ROIs that take part in the events: rows of `rois` with a column `sign` (+1 or -1).

    As many signs of one kind as of the other (one more, where the number is odd), so that the mean over the
    brain says nothing either.
    """
    rng = stream(settings, 0, "informative")
    candidates = rois().index[rois().network == NETWORK]
    chosen = np.sort(rng.choice(candidates, settings.n_informative, replace=False))
    signs = rng.permutation(np.resize([1, -1], len(chosen)))
    return rois().loc[chosen].assign(sign=signs)


def make_series(settings: Simulate, subject: int, site: int, positive: bool) -> Series:
    """Draw one scan's series.

    Parameters
    ----------
    settings : Simulate
    subject : int
        Number of the subject; chooses the random streams.
    site : int
        0 or 1: TR and length.
    positive : bool
        Whether the subject belongs to the positive class.
    """
    tr, n_volumes = settings.tr[site], settings.n_volumes[site]
    n = round(tr * n_volumes / STEP)
    step = tr * n_volumes / n
    fine = _background(n, step, stream(settings, subject, "background"))
    pattern = informative(settings)
    sign = pattern.sign.to_numpy() * (1 if positive else -1)
    rng = stream(settings, subject, "events")

    sync, rows = _transients(n, step, settings, rng, "sync", 0, 1 if positive else -1)
    fine[:, pattern.index] += settings.event_amplitude * sync[:, None] * sign
    for column, roi, s in zip(pattern.index, pattern.value, sign, strict=True):
        lone, more = _transients(n, step, settings, rng, "async", roi, -int(s))
        fine[:, column] -= settings.event_amplitude * s * lone
        rows += more

    middles = (np.arange(n_volumes) + 0.5) * tr
    response = interpolate(sync, middles / step)
    events = pd.DataFrame(rows).sort_values(["kind", "roi", "onset"], ascending=[False, True, True], ignore_index=True)
    fine = fine.astype(np.float32)
    return Series(interpolate(fine, middles / step), response > 0.5, response, events, fine, step)


def _transients(
    n: int, step: float, settings: Simulate, rng: np.random.Generator, kind: str, roi: int, sign: int
) -> tuple[np.ndarray, list[dict]]:
    """Responses, peak 1, to `n_events` brief boxcars at random times; and the rows of the events' table.

    Time is a circle as long as the scan: an event whose response runs over the end also began before the
    start. Thereby every position in the scan is equally likely to be hit, the edges too, and every scan has
    the same number of responses. On the circle the gaps are a fixed spacing plus a uniform division of the rest.
    """
    length, count = n * step, settings.n_events
    spacing = min(SPACING, 0.6 * length / count)
    gaps = spacing + (length - count * spacing) * rng.dirichlet(np.ones(count))
    onsets = np.sort((rng.uniform(0, length) + np.cumsum(gaps)) % length)
    response, rows = np.zeros(n), []
    shortest, longest = settings.event_seconds
    for onset, duration in zip(onsets, rng.uniform(shortest, longest, count), strict=True):
        shape = _response(round(duration / step), step)
        np.add.at(response, (round(onset / step) + np.arange(len(shape))) % n, shape)
        started = [onset] if onset + len(shape) * step <= length else [onset, onset - length]
        event = {"duration": round(duration, 2), "kind": kind, "roi": roi, "sign": sign}
        rows += [{"onset": round(t, 2), **event} for t in started]
    return response, rows


@lru_cache(maxsize=256)
def _response(boxcar: int, step: float) -> np.ndarray:
    """Haemodynamic response to a boxcar of so many steps, peak 1 (Glover 1999, doi:10.1006/nimg.1998.0419)."""
    response = np.convolve(np.ones(boxcar), glover_hrf(step, oversampling=1, time_length=28.0))
    return response / response.max()


def _background(n: int, step: float, rng: np.random.Generator) -> np.ndarray:
    """Resting fluctuations (moments, rois): 0.01-0.1 Hz, correlated by network, distance and globally."""
    padded = n + round(60 / step)  # a Fourier series repeats; the part cut off hides that
    frequency = np.fft.rfftfreq(padded, step)
    frequency = frequency[frequency < 0.5]  # there is nothing beyond
    shape = frequency / (frequency + 0.01) / np.sqrt(1 + (frequency / 0.08) ** 6)
    waves = _mixing(rng) @ (rng.standard_normal((2, len(rois()), len(shape))) * shape)
    scale = padded / 2 / np.sqrt((shape**2).sum())  # to an expected variance of 1
    return scale * np.fft.irfft(waves[0] + 1j * waves[1], padded)[:, :n].T


def _mixing(rng: np.random.Generator) -> np.ndarray:
    """Square root of a subject's correlation matrix: 85 % shared by all subjects, 15 % his own."""
    own = rng.standard_normal((len(rois()), 8))
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    return np.linalg.cholesky(0.85 * _correlation() + 0.15 * own @ own.T)


@lru_cache
def _correlation() -> np.ndarray:
    """Correlation that all subjects share: global 0.15, same network 0.3, distance 0.35 at 0 mm, own 0.2."""
    centres = rois()[["x", "y", "z"]].to_numpy(float)
    network = rois().network.to_numpy()
    near = np.exp(-cdist(centres, centres) / 25)
    return 0.15 + 0.3 * (network[:, None] == network) + 0.35 * near + 0.2 * np.eye(len(network))
