"""Reliability: how often a model is right that says it is so sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bolt.evaluate.calibration import BINS
from bolt.report.figures.style import MANY, MUTED, canvas


def reliability(calibration: Mapping[str, Sequence[float]], out: Path) -> None:
    """Draw the share of right predictions against their probability, a dot a bin, and how many they are.

    Parameters
    ----------
    calibration : mapping
        `bolt.evaluate.calibration.reliability`.
    out : Path
        PNG; an SVG is written beside it.
    """
    counts = np.array(calibration["n_scans"])
    with canvas(out, height=2.6) as figure:
        axis, histogram = figure.subplots(1, 2)
        axis.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--")
        axis.plot(calibration["probability"], calibration["accuracy"], "o-", color=MANY[0], lw=1.2, ms=5)
        axis.set(ylabel="share that is right", ylim=(-0.03, 1.03), title="Calibration")
        histogram.bar(calibration["probability"], counts, width=0.8 / BINS, color=MANY[0])
        histogram.set(ylabel="test scans", title="How sure it is")
        left = max(0.0, min(calibration["probability"]) - 0.08)
        for panel in (axis, histogram):
            panel.set(xlabel="probability of the predicted class", xlim=(left, 1.03))
