"""Series with the same spectrum and the same correlations, but with nothing at its time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def phase_randomised(series: NDArray[np.floating], random: np.random.Generator) -> NDArray[np.floating]:
    """Turn the phase of every frequency by a random angle, the same in all ROIs.

    Power and cross spectra stay as they are, and with them mean, variance, autocorrelation and the covariance of the
    ROIs; what happens when is lost (Prichard and Theiler 1994, doi:10.1103/PhysRevLett.73.951).

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
    angles[0] = 0  # the mean is no oscillation
    if volumes % 2 == 0:
        angles[-1] = 0  # nor has the highest frequency a phase, where there is one of two volumes
    turned = np.fft.irfft(spectrum * np.exp(1j * angles)[:, None], n=volumes, axis=0)
    return turned.astype(series.dtype, copy=False)
