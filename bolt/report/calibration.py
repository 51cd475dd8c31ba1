"""Reliability: how often a model is right that says it is so sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bolt.report.style import LINE, MANY, WIDTH, canvas


def reliability(calibration: Mapping[str, Sequence[float]], out: Path) -> None:
    """Draw the share of right predictions against their probability, a dot a bin.

    Parameters
    ----------
    calibration : mapping
        `bolt.evaluate.calibration.reliability`.
    out : Path
        PNG; an SVG is written beside it.
    """
    counts = np.array(calibration["n_scans"])
    with canvas(out, width=WIDTH / 2, height=3.0) as figure:
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color=LINE, lw=1.2, ls="--")
        axis.plot(calibration["probability"], calibration["accuracy"], color=MANY[0], lw=1, alpha=0.5)
        sizes = 12 + 110 * counts / counts.max()
        axis.scatter(
            calibration["probability"], calibration["accuracy"], sizes, color=MANY[0], alpha=0.8, lw=0, zorder=3
        )
        axis.set(xlabel="probability of the predicted class", ylabel="share that is right", title="Calibration")
        left = max(0.0, min(calibration["probability"]) - 0.08)
        axis.set(xlim=(left, 1.03), ylim=(-0.03, 1.03))
