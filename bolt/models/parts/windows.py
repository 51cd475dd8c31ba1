"""Windows that are given in seconds, as volumes; without torch, so that the report can tell what they were."""

from __future__ import annotations


def stride_volumes(stride_seconds: float, tr: float) -> int:
    """Return how many volumes after one another windows begin: at least one."""
    return max(1, round(stride_seconds / tr))


def window_volumes(
    window_seconds: float, stride_seconds: float, tr: float, crop: int | None = None, least_windows: int = 1
) -> int:
    """Return the length of a window in volumes, at least 2.

    Parameters
    ----------
    window_seconds, stride_seconds : float
    tr : float
        Seconds between volumes.
    crop : int, optional
        Length of a training crop in volumes. The window is shortened until a crop holds `least_windows`, but not below
        half of the crop.
    least_windows : int
    """
    volumes = round(window_seconds / tr)
    if crop is not None:
        volumes = min(volumes, max(crop - (least_windows - 1) * stride_volumes(stride_seconds, tr), crop // 2))
    return max(2, volumes)
