"""Surrogate series with the spectrum and correlations of a scan, but other timing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def phase_randomised(series: NDArray[np.floating], random: np.random.Generator) -> NDArray[np.floating]:
    """Rotate the phase of every frequency by a random angle that is the same in all ROIs.

    Power and cross spectra are kept, and with them mean, variance, autocorrelation and covariance of the ROIs; timing
    is lost (Prichard and Theiler 1994, doi:10.1103/PhysRevLett.73.951).

    Parameters
    ----------
    series : float array (time, rois)
    random : numpy.random.Generator

    Returns
    -------
    float array (time, rois)
        In the precision of `series`.
    """
    volumes = len(series)
    spectrum = np.fft.rfft(series, axis=0)
    angles = random.uniform(0, 2 * np.pi, len(spectrum))
    angles[0] = 0  # the mean has no phase
    if volumes % 2 == 0:
        angles[-1] = 0  # nor has the Nyquist frequency
    rotated = np.fft.irfft(spectrum * np.exp(1j * angles)[:, None], n=volumes, axis=0)
    return rotated.astype(series.dtype, copy=False)
