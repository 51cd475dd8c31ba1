"""Power spectra of ROI series by network, and the share of power in frequency bands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.signal import welch

from bolt.config import Spectra
from bolt.io.errors import DataError
from bolt.series.cache import SeriesCache

ALL = "all"
"""Name, in the network column, of the mean over all ROIs."""
STEP = 0.0025  # Hz: common frequency grid of scans of different length and repetition time
SPECTRUM_COLUMNS: dict[str, str | dict[str, str]] = {
    "network": "Network of the atlas, or all",
    "frequency": {"Description": "Frequency", "Units": "Hz"},
    "density": {
        "Description": "Power density relative to the total power on this grid, mean over scans",
        "Units": "1/Hz",
    },
    "sd": {"Description": "Standard deviation over scans (ddof 0)", "Units": "1/Hz"},
    "n_scans": "Number of scans with an ROI of this network",
    "n_rois": "Number of ROIs of this network",
}
BAND_COLUMNS: dict[str, str | dict[str, str]] = {
    "scan_id": "Scan",
    "subject": "Subject",
    "network": "Network of the atlas, or all",
    "band": "Frequency band",
    "low": {"Description": "Lowest frequency", "Units": "Hz"},
    "high": {"Description": "Highest frequency, at most the lowest Nyquist frequency of all scans", "Units": "Hz"},
    "share": "Share of the total power of all bands, mean over the ROIs of the network",
}


def spectra_of(cache: SeriesCache, settings: Spectra) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute power spectra of all scans of a cache by Welch's method (1967, doi:10.1109/TAU.1967.1161901).

    Each ROI's spectrum is divided by its power between the lowest and the highest frequency of the bands (or the lowest
    Nyquist frequency of all scans if that is lower), so that scans and atlases can be compared.

    Parameters
    ----------
    cache : SeriesCache
    settings : Spectra

    Returns
    -------
    DataFrame
        `SPECTRUM_COLUMNS`, one row per network and frequency.
    DataFrame
        `BAND_COLUMNS`, one row per scan, network and band.

    Raises
    ------
    DataError
        There is no scan, a repetition time is unknown, or the repetition time is too long for any band.
    """
    if not len(cache):
        raise DataError("the cache has no scans", where=cache.folder, hint="See exclusions.tsv for the reasons")
    frequencies = _grid(cache, settings)
    edges = _edges(settings, frequencies)
    names = cache.rois["network"].fillna("").to_numpy(str)
    networks = {ALL: np.ones(len(names), bool)} | {n: names == n for n in sorted(set(names) - {""})}
    totals = {network: _Mean() for network in networks}
    rows = []
    for scan, density in _densities(cache, settings, frequencies):
        for network, members in networks.items():
            finite = density[:, members & np.isfinite(density).all(0)]
            if not finite.shape[1]:
                continue
            mean = finite.mean(1)
            totals[network].add(mean)
            for band, (low, high) in edges.items():
                inside = (frequencies >= low) & (frequencies < high)
                share = mean[inside].sum() * STEP
                facts = {"network": network, "band": band, "low": low, "high": high, "share": share}
                rows.append({"scan_id": scan["scan_id"], "subject": scan["subject"], **facts})
    spectra = [
        pd.DataFrame({"frequency": frequencies, "density": total.mean, "sd": total.sd}).assign(
            network=network, n_scans=total.n, n_rois=int(networks[network].sum())
        )
        for network, total in totals.items()
        if total.n
    ]
    if not spectra:
        raise DataError("all series are constant", where=cache.folder, hint="Inspect the images")
    return pd.concat(spectra)[list(SPECTRUM_COLUMNS)], pd.DataFrame(rows)[list(BAND_COLUMNS)]


class _Mean:
    """Running mean and standard deviation of spectra."""

    def __init__(self) -> None:
        self.n, self._sum, self._squares = 0, np.zeros(1), np.zeros(1)

    def add(self, value: NDArray[np.floating]) -> None:
        self.n, self._sum, self._squares = self.n + 1, self._sum + value, self._squares + value**2

    @property
    def mean(self) -> NDArray[np.floating]:
        return self._sum / self.n

    @property
    def sd(self) -> NDArray[np.floating]:
        return np.sqrt(np.maximum(self._squares / self.n - self.mean**2, 0))


def _grid(cache: SeriesCache, settings: Spectra) -> NDArray[np.floating]:
    """Return the bin centres (Hz) of the frequency grid, up to the highest frequency that every scan has."""
    unknown = cache.index["tr"].isna()
    if unknown.any():
        scan = cache.index.loc[unknown, "scan_id"].iloc[0]
        raise DataError(
            f"the repetition time of scan '{scan}' is unknown", where=cache.folder, hint="Set 'tr' of the dataset"
        )
    low = min(band[0] for band in settings.bands.values())
    high = min(max(band[1] for band in settings.bands.values()), 0.5 / float(cache.index["tr"].max()))
    if high - low < STEP:
        raise DataError(
            f"the scans have no frequencies above {low:g} Hz", where=cache.folder, hint="Check their repetition times"
        )
    return low + STEP * (np.arange(int((high - low) / STEP + 1e-6)) + 0.5)


def _edges(settings: Spectra, frequencies: NDArray[np.floating]) -> dict[str, tuple[float, float]]:
    """Return the bands within the frequency grid, cut at its end."""
    end = float(frequencies[-1] + STEP / 2)
    return {name: (low, min(high, end)) for name, (low, high) in settings.bands.items() if low < end}


def _densities(
    cache: SeriesCache, settings: Spectra, frequencies: NDArray[np.floating]
) -> Iterator[tuple[pd.Series, NDArray[np.floating]]]:
    """Yield each scan's row of the index and (frequencies, ROIs) spectra of unit area; NaN if an ROI is constant."""
    for i in range(len(cache)):
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
