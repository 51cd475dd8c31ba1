"""ROI series of the phantom: background, class-dependent events, and nothing static to tell the classes apart.

The informative ROIs share a signed pattern v. Every scan has `n_events` *events*, moments at which they follow it
together, +v in the positive class and -v in the negative one, and as many *decoys* at other times. A decoy moves them
the opposite way, while all other ROIs follow a pattern w of their own, with a sign drawn anew each time. So in either
class an informative ROI rises and falls equally often, by responses of one shape and one law of onset times: its
distribution is the same. Events and decoys add v vᵀ to the covariance, and (-v)(-v)ᵀ is the same matrix; the random
sign makes v and w uncorrelated. So the classes have equal variances, skews and covariances. They differ in which
polarity of v comes without w: in what happens at the moments of the events.
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
from bolt.io.files import read_table

STEP = 0.1  # seconds: grid on which the "continuous" series live
SPACING = 16.0  # seconds between onsets, so that two responses rarely merge
EVENT_COLUMNS = ["onset", "duration", "kind", "sign", "context"]
NETWORK = "default"  # the informative ROIs are drawn from this network


class Series(NamedTuple):
    """One scan's dynamics; background standard deviation 1.

    Attributes
    ----------
    values : ndarray, (time, rois)
        The series in the middle of every volume: what a perfect pipeline would recover.
    landmarks : ndarray of bool, (time,)
        Volumes in which the response to events (decoys do not count) exceeds half the peak of one event.
    response : ndarray, (time,)
        Response to the events, 1 at the peak of one, without the pattern.
    events : DataFrame
        onset (s), duration (s), kind (event, decoy), sign (of v), context (sign of w; 0 in events).
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
    pattern, context = patterns(settings)
    rng = stream(settings, subject, "events")
    response, rows = np.zeros(n), []
    for onset, duration, kind in _onsets(n * step, settings, rng):
        sign = 1 if positive == (kind == "event") else -1
        context_sign = 0 if kind == "event" else int(rng.choice([-1, 1]))
        shape = _response(round(duration / step), step)
        when = (round(onset / step) + np.arange(len(shape))) % n
        fine[when] += settings.event_amplitude * shape[:, None] * (sign * pattern + context_sign * context)
        if kind == "event":
            response[when] += shape
        # what runs over the end of the scan also began before its start
        starts = [onset] if onset + len(shape) * step <= n * step else [onset, onset - n * step]
        rows += [(round(start, 2), round(duration, 2), kind, sign, context_sign) for start in starts]

    middles = (np.arange(n_volumes) + 0.5) * tr
    response = interpolate(response, middles / step)
    events = pd.DataFrame(rows, columns=EVENT_COLUMNS).sort_values("onset", ignore_index=True)
    fine = fine.astype(np.float32)
    return Series(interpolate(fine, middles / step), response > 0.5, response, events, fine, step)


def patterns(settings: Simulate) -> tuple[np.ndarray, np.ndarray]:
    """Pattern v over the informative ROIs and w over all others; (rois,) each, entries -1, 0, 1."""
    planted = informative(settings)
    pattern, context = np.zeros(len(rois())), np.zeros(len(rois()))
    pattern[planted.index] = planted.sign
    others = np.flatnonzero(pattern == 0)
    context[others] = stream(settings, 0, "context").permutation(np.resize([1, -1], len(others)))
    return pattern, context


def _onsets(length: float, settings: Simulate, rng: np.random.Generator) -> list[tuple[float, float, str]]:
    """Onset (s), duration (s) and kind of a scan's events and decoys.

    Time is a circle as long as the scan, so that every position is equally likely to be hit, the edges too. On it the
    gaps are a fixed spacing plus a uniform division of the rest.
    """
    count = 2 * settings.n_events
    spacing = min(SPACING, 0.6 * length / count)
    gaps = spacing + (length - count * spacing) * rng.dirichlet(np.ones(count))
    onsets = (rng.uniform(0, length) + np.cumsum(gaps)) % length
    shortest, longest = settings.event_seconds
    durations = rng.uniform(shortest, longest, count)
    kinds = rng.permutation(np.resize(["event", "decoy"], count))
    return list(zip(onsets.tolist(), durations.tolist(), kinds.tolist(), strict=True))


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
