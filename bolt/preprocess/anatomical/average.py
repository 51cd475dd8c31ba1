"""Averaging of the T1w images of a session: noise falls with the square root of their number."""

from __future__ import annotations

import numpy as np

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess.antspy import ants
from bolt.preprocess.registration import align, clip_intensity

MIN_CORRELATION = 0.8
"""Least correlation with the first image, within the head, of another image of the same head and contrast."""


def aligned(image: ants.ANTsImage, first: ants.ANTsImage, settings: Registration) -> ants.ANTsImage:
    """Bring a bias-corrected T1w to the place and the intensity of another one, rigidly, by mutual information.

    Returns
    -------
    ANTs image
        On the grid of `first`, scaled to its intensity.

    Raises
    ------
    DataError
        The images differ: other contrast, artefacts, or another head.
    """
    mask = ants.threshold_image(first, "Otsu", 1)
    head = mask.numpy() > 0
    moved, _ = align(clip_intensity(first), clip_intensity(image), mask, settings, image)
    values, expected = moved.numpy()[head].astype(float), first.numpy()[head].astype(float)
    r = np.corrcoef(values, expected)[0, 1]
    if not r >= MIN_CORRELATION:
        raise DataError(f"it differs from the session's first T1w (correlation {r:.2f} within the head)")
    return moved * float(values @ expected / (values @ values))
