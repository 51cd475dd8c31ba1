"""Power spectra of ROI series by network, and the share of power in frequency bands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.signal import welch

from bolt.config import Spectra
from bolt.io.errors import DataError
from bolt.io.files import columns
from bolt.series.cache import SeriesCache, volumes_of

log = logging.getLogger("bolt")
ALL = "all"
"""Name, in the network column, of the mean over all ROIs."""
STEP = 0.0025  # Hz: common frequency grid of scans of different length and repetition time
SPECTRUM_COLUMNS = columns("experiments", "spectrum")
BAND_COLUMNS = columns("experiments", "bands")


def spectra_of(
    cache: SeriesCache, settings: Spectra, file_of: Callable[[str], Path]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute power spectra of scans of a cache by Welch's method (1967, doi:10.1109/TAU.1967.1161901).

    It needs volumes at equal distances: scrubbed scans with gaps between theirs are left out, and joined scans.

    Each ROI's spectrum is divided by its power between the lowest and the highest frequency of the bands (or the lowest
    Nyquist frequency of all scans if that is lower), so that scans and atlases can be compared.

    Parameters
    ----------
    cache : SeriesCache
    settings : Spectra
    file_of : callable
        Returns the file of a scan's series, beside which its volumes are listed.

    Returns
    -------
    DataFrame
        `SPECTRUM_COLUMNS`, one row per network and frequency.
    DataFrame
        `BAND_COLUMNS`, one row per scan, network and band.

    Raises
    ------
    DataError
        There is no scan, or none with evenly spaced volumes; a repetition time is unknown, or too long for any band.
    """
    if not len(cache):
        raise DataError("the cache has no scans", where=cache.folder, hint="See exclusions.tsv for the reasons")
    even = [
        not isinstance(scan.get("joined"), str) and (np.diff(volumes_of(scan, file_of(scan["scan_id"]))) == 1).all()
        for _, scan in cache.index.iterrows()
    ]
    used = np.flatnonzero(even)
    if not len(used):
        hint = "Take spectra with a 'denoise' that drops no volumes, and with 'join_scans: none'"
        raise DataError("no scan has evenly spaced volumes", where=cache.folder, hint=hint)
    if len(used) < len(even):
        n_left = len(even) - len(used)
        log.warning("%d of %d scans are left out of the spectra: scrubbed, with gaps, or joined", n_left, len(even))
    frequencies = _grid(cache, settings, used)
    end = float(frequencies[-1] + STEP / 2)
    edges = {name: (low, min(high, end)) for name, (low, high) in settings.bands.items() if low < end}
    names = cache.rois["network"].fillna("").to_numpy(str)
    networks = {ALL: np.ones(len(names), bool)} | {n: names == n for n in sorted(set(names) - {""})}
    counts, rows = dict.fromkeys(networks, 0), []
    sums: dict[str, Any] = dict.fromkeys(networks, 0.0)
    squares: dict[str, Any] = dict.fromkeys(networks, 0.0)
    for scan, density in _densities(cache, settings, frequencies, used):
        for network, members in networks.items():
            finite = density[:, members & np.isfinite(density).all(0)]
            if not finite.shape[1]:
                continue
            mean = finite.mean(1)
            counts[network] += 1
            sums[network] += mean
            squares[network] += mean**2
            for band, (low, high) in edges.items():
                inside = (frequencies >= low) & (frequencies < high)
                share = mean[inside].sum() * STEP
                facts = {"network": network, "band": band, "low": low, "high": high, "share": share}
                rows.append({"scan_id": scan["scan_id"], "subject": scan["subject"], **facts})
    spectra = []
    for network, n in counts.items():
        if n:
            mean = sums[network] / n
            sd = np.sqrt(np.maximum(squares[network] / n - mean**2, 0))
            table = pd.DataFrame({"frequency": frequencies, "density": mean, "sd": sd})
            spectra.append(table.assign(network=network, n_scans=n, n_rois=int(networks[network].sum())))
    if not spectra:
        raise DataError("all series are constant", where=cache.folder, hint="Inspect the images")
    return pd.concat(spectra)[list(SPECTRUM_COLUMNS)], pd.DataFrame(rows)[list(BAND_COLUMNS)]


def _grid(cache: SeriesCache, settings: Spectra, used: NDArray[np.intp]) -> NDArray[np.floating]:
    """Return the bin centres (Hz) of the frequency grid, up to the highest frequency that every scan has."""
    scans = cache.index.iloc[used]
    unknown = scans["tr"].isna()
    if unknown.any():
        scan = scans.loc[unknown, "scan_id"].iloc[0]
        what = f"the repetition time of scan '{scan}' is unknown"
        raise DataError(what, where=cache.folder, hint="Set 'tr' of the dataset")
    low = min(band[0] for band in settings.bands.values())
    high = min(max(band[1] for band in settings.bands.values()), 0.5 / float(scans["tr"].max()))
    if high - low < STEP:
        what = f"the scans have no frequencies above {low:g} Hz"
        raise DataError(what, where=cache.folder, hint="Check their repetition times")
    return low + STEP * (np.arange(int((high - low) / STEP + 1e-6)) + 0.5)


def _densities(
    cache: SeriesCache, settings: Spectra, frequencies: NDArray[np.floating], used: NDArray[np.intp]
) -> Iterator[tuple[pd.Series, NDArray[np.floating]]]:
    """Yield each scan's row of the index and (frequencies, ROIs) spectra of unit area; NaN if an ROI is constant."""
    for i in used:
        scan, series = cache.index.iloc[i], cache.series(i)
        segment = min(len(series), round(settings.segment_seconds / scan["tr"]))
        measured, power = welch(series, 1 / scan["tr"], nperseg=segment, axis=0)
        # linear interpolation of all columns at once
        position = np.clip(np.interp(frequencies, measured, np.arange(len(measured))), 0, len(measured) - 1)
        below = np.minimum(position.astype(int), len(measured) - 2)
        weight = (position - below)[:, None]
        density = (1 - weight) * power[below] + weight * power[below + 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            yield scan, density / (density.sum(0) * STEP)
