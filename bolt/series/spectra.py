"""Power spectra of ROI series, by network, and the share of the power in bands of frequency."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.signal import welch

from bolt.config import Spectra
from bolt.io.errors import DataError
from bolt.series.cache import SeriesCache

log = logging.getLogger(__name__)

ALL = "all"
"""In the column of networks: the mean over all ROIs."""
STEP = 0.0025  # Hz: grid that the spectra of scans of different length and repetition time are brought to
SPECTRUM_COLUMNS: dict[str, str | dict[str, str]] = {
    "network": "Network of the atlas, or all",
    "frequency": {"Description": "Frequency", "Units": "Hz"},
    "density": {"Description": "Power density as a share of the power on this grid, mean over scans", "Units": "1/Hz"},
    "sd": {"Description": "Standard deviation between scans (ddof 0)", "Units": "1/Hz"},
    "n_scans": "Scans with an ROI of this network",
    "n_rois": "ROIs of this network",
}
BAND_COLUMNS: dict[str, str | dict[str, str]] = {
    "scan_id": "Scan",
    "subject": "Subject",
    "network": "Network of the atlas, or all",
    "band": "Band of frequency",
    "low": {"Description": "Its lowest frequency", "Units": "Hz"},
    "high": {"Description": "Its highest frequency, or what the repetition times of the scans reach", "Units": "Hz"},
    "share": "Share of the power of all bands together, mean over the ROIs of the network",
}


def spectra_of(cache: SeriesCache, settings: Spectra) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Welch's power spectra of all scans of a cache (Welch 1967, doi:10.1109/TAU.1967.1161901).

    Each ROI's spectrum is divided by its own power between the lowest and the highest frequency of the bands (or the
    lowest of the scans' Nyquist frequencies, where that is lower), so that scans and atlases can be compared.

    Parameters
    ----------
    cache : SeriesCache
    settings : Spectra

    Returns
    -------
    DataFrame
        `SPECTRUM_COLUMNS`: a row a network and frequency.
    DataFrame
        `BAND_COLUMNS`: a row a scan, network and band.

    Raises
    ------
    DataError
        No scan; one whose repetition time is not known; scans so slow that no band is reached.
    """
    if not len(cache):
        raise DataError("the cache holds no scan", where=cache.folder, hint="exclusions.tsv says why each was left out")
    frequencies = _grid(cache, settings)
    edges = _edges(settings, frequencies)
    names = cache.rois["network"].fillna("").to_numpy(str)
    networks = {ALL: np.ones(len(names), bool)} | {n: names == n for n in sorted(set(names) - {""})}
    totals = {network: _Mean() for network in networks}
    rows = []
    for scan, density in _densities(cache, settings, frequencies):
        for network, own in networks.items():
            known = density[:, own & np.isfinite(density).all(0)]
            if not known.shape[1]:
                continue
            mean = known.mean(1)
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
        raise DataError("no series changes over its scan", where=cache.folder, hint="Look at the images")
    return pd.concat(spectra)[list(SPECTRUM_COLUMNS)], pd.DataFrame(rows)[list(BAND_COLUMNS)]


class _Mean:
    """Mean and standard deviation of spectra that come one by one."""

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
    """Middles of the steps from the lowest to the highest frequency that every scan has, Hz."""
    unknown = cache.index["tr"].isna()
    if unknown.any():
        scan = cache.index.loc[unknown, "scan_id"].iloc[0]
        raise DataError(
            f"the repetition time of scan '{scan}' is not known", where=cache.folder, hint="Set 'tr' of the dataset"
        )
    low = min(band[0] for band in settings.bands.values())
    high = min(max(band[1] for band in settings.bands.values()), 0.5 / float(cache.index["tr"].max()))
    if high - low < STEP:
        raise DataError(
            f"the scans hold no frequency above {low:g} Hz", where=cache.folder, hint="Check their repetition times"
        )
    return low + STEP * (np.arange(int((high - low) / STEP + 1e-6)) + 0.5)


def _edges(settings: Spectra, frequencies: NDArray[np.floating]) -> dict[str, tuple[float, float]]:
    """The bands that the grid reaches, cut where it ends."""
    end = float(frequencies[-1] + STEP / 2)
    return {name: (low, min(high, end)) for name, (low, high) in settings.bands.items() if low < end}


def _densities(
    cache: SeriesCache, settings: Spectra, frequencies: NDArray[np.floating]
) -> Iterator[tuple[pd.Series, NDArray[np.floating]]]:
    """Each scan's row of the index and the spectra of its ROIs, (frequencies, rois), of area 1; NaN where constant."""
    for i in range(len(cache)):
        scan, series = cache.index.iloc[i], cache.series(i)
        segment = min(len(series), round(settings.segment_seconds / scan["tr"]))
        found, power = welch(series, 1 / scan["tr"], nperseg=segment, axis=0)
        # a linear interpolation of all columns at once
        place = np.clip(np.interp(frequencies, found, np.arange(len(found))), 0, len(found) - 1)
        below = np.minimum(place.astype(int), len(found) - 2)
        share = (place - below)[:, None]
        density = (1 - share) * power[below] + share * power[below + 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            yield scan, density / (density.sum(0) * STEP)
