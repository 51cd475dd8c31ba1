"""ROI series of the phantom: background and class-dependent events, without static differences between classes.

The informative ROIs share a signed pattern v. Every scan has `n_events` *events*, at which they follow this pattern
together, +v in the positive class and -v in the negative one, and as many *decoys* at other times. At a decoy they move
the opposite way, while all other ROIs follow a pattern w with a random sign. So in both classes an informative ROI
rises and falls equally often, by responses of the same shape and the same distribution of onsets: its values have the
same distribution. Events and decoys add v vᵀ to the covariance, and (-v)(-v)ᵀ is the same matrix; the random sign makes
v and w uncorrelated. Thus the classes have equal variances, skews and covariances, and differ only in which sign of v
occurs without w: in what happens during the events.
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

STEP = 0.1  # seconds: time step of the "continuous" series
SPACING = 16.0  # seconds between onsets, so that responses rarely overlap
EVENT_COLUMNS = ["onset", "duration", "kind", "sign", "context"]
NETWORK = "default"  # the informative ROIs are drawn from this network


class Series(NamedTuple):
    """The simulated series of one scan, with a background of standard deviation 1.

    Attributes
    ----------
    values : ndarray, (time, rois)
        Series in the middle of every volume: what a perfect pipeline would recover.
    landmarks : ndarray of bool, (time,)
        Volumes in which the response to events (without decoys) exceeds half the peak of one event.
    response : ndarray, (time,)
        Response to the events without the pattern; 1 at the peak of one event.
    events : DataFrame
        onset (s), duration (s), kind (event, decoy), sign (of v), context (sign of w; 0 in events).
    fine : ndarray, (moments, rois)
        Series every `step` seconds.
    step : float
    """

    values: np.ndarray
    landmarks: np.ndarray
    response: np.ndarray
    events: pd.DataFrame
    fine: np.ndarray
    step: float

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """Interpolate the series linearly at any times of the scan: (*times, rois)."""
        return interpolate(self.fine, seconds / self.step)


def interpolate(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Interpolate linearly along the first axis at fractional positions: (*positions, *rest of values), float32."""
    positions = np.clip(positions, 0, len(values) - 1)
    low = np.minimum(positions.astype(int), len(values) - 2)
    share = (positions - low).reshape(*positions.shape, *[1] * (values.ndim - 1))
    return ((1 - share) * values[low] + share * values[low + 1]).astype(np.float32)


def random_stream(settings: Simulate, subject: int, purpose: str) -> np.random.Generator:
    """Return an independent random generator for a subject and purpose, whatever the order of the work."""
    return np.random.default_rng([settings.seed, subject, zlib.crc32(purpose.encode())])


@lru_cache
def rois() -> pd.DataFrame:
    """Read the atlas's table: value, name, network, hemisphere, x, y, z."""
    return read_table(ROOT / "atlases" / "dosenbach160" / "labels.tsv", text=("name", "network", "hemisphere"))


def informative(settings: Simulate) -> pd.DataFrame:
    """Draw the ROIs that take part in the events: rows of `rois` with a column `sign` (+1 or -1).

    Both signs are equally frequent (up to one ROI), so that the mean over the brain is uninformative, too.
    """
    rng = random_stream(settings, 0, "informative")
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
        Number of the subject; selects the random generators.
    site : int
        0 or 1; sets TR and length.
    positive : bool
        Whether the subject belongs to the positive class.
    """
    tr, n_volumes = settings.tr[site], settings.n_volumes[site]
    n = round(tr * n_volumes / STEP)
    step = tr * n_volumes / n
    fine = _background(n, step, random_stream(settings, subject, "background"))
    pattern, context = patterns(settings)
    rng = random_stream(settings, subject, "events")
    response, rows = np.zeros(n), []
    for onset, duration, kind in _onsets(n * step, settings, rng):
        sign = 1 if positive == (kind == "event") else -1
        context_sign = 0 if kind == "event" else int(rng.choice([-1, 1]))
        shape = _response(round(duration / step), step)
        when = (round(onset / step) + np.arange(len(shape))) % n
        fine[when] += settings.event_amplitude * shape[:, None] * (sign * pattern + context_sign * context)
        if kind == "event":
            response[when] += shape
        # a response that runs over the end of the scan also begins before its start
        starts = [onset] if onset + len(shape) * step <= n * step else [onset, onset - n * step]
        rows += [(round(start, 2), round(duration, 2), kind, sign, context_sign) for start in starts]

    middles = (np.arange(n_volumes) + 0.5) * tr
    response = interpolate(response, middles / step)
    events = pd.DataFrame(rows, columns=EVENT_COLUMNS).sort_values("onset", ignore_index=True)
    fine = fine.astype(np.float32)
    return Series(interpolate(fine, middles / step), response > 0.5, response, events, fine, step)


def patterns(settings: Simulate) -> tuple[np.ndarray, np.ndarray]:
    """Draw pattern v over the informative ROIs and w over all others: (rois,) each, entries -1, 0, 1."""
    planted = informative(settings)
    pattern, context = np.zeros(len(rois())), np.zeros(len(rois()))
    pattern[planted.index] = planted.sign
    others = np.flatnonzero(pattern == 0)
    context[others] = random_stream(settings, 0, "context").permutation(np.resize([1, -1], len(others)))
    return pattern, context


def _onsets(length: float, settings: Simulate, rng: np.random.Generator) -> list[tuple[float, float, str]]:
    """Draw onset (s), duration (s) and kind of a scan's events and decoys.

    Time is a circle as long as the scan, so that every position is equally likely, including the edges. Gaps are a
    fixed spacing plus a uniform division of the remaining time.
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
    """Return the response to a boxcar of this many steps, with peak 1 (Glover 1999, doi:10.1006/nimg.1998.0419)."""
    response = np.convolve(np.ones(boxcar), glover_hrf(step, oversampling=1, time_length=28.0))
    return response / response.max()


def _background(n: int, step: float, rng: np.random.Generator) -> np.ndarray:
    """Draw resting fluctuations (moments, rois): 0.01-0.1 Hz, correlated globally, by network and by distance."""
    padded = n + round(60 / step)  # a Fourier series is periodic; dropping a part hides that
    frequency = np.fft.rfftfreq(padded, step)
    frequency = frequency[frequency < 0.5]  # power beyond is negligible
    shape = frequency / (frequency + 0.01) / np.sqrt(1 + (frequency / 0.08) ** 6)
    waves = _mixing(rng) @ (rng.standard_normal((2, len(rois()), len(shape))) * shape)
    scale = padded / 2 / np.sqrt((shape**2).sum())  # for an expected variance of 1
    return scale * np.fft.irfft(waves[0] + 1j * waves[1], padded)[:, :n].T


def _mixing(rng: np.random.Generator) -> np.ndarray:
    """Return the square root of a subject's correlation matrix: 85 % shared by all subjects, 15 % individual."""
    individual = rng.standard_normal((len(rois()), 8))
    individual /= np.linalg.norm(individual, axis=1, keepdims=True)
    return np.linalg.cholesky(0.85 * _correlation() + 0.15 * individual @ individual.T)


@lru_cache
def _correlation() -> np.ndarray:
    """Return the shared correlation matrix: global 0.15, same network 0.3, distance 0.35 at 0 mm, diagonal 0.2."""
    centres = rois()[["x", "y", "z"]].to_numpy(float)
    network = rois().network.to_numpy()
    near = np.exp(-cdist(centres, centres) / 25)
    return 0.15 + 0.3 * (network[:, None] == network) + 0.35 * near + 0.2 * np.eye(len(network))
