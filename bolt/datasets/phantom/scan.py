"""Scans of the phantom: head motion, and the T1w and BOLD images of a head."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import binary_dilation, gaussian_filter, gaussian_filter1d, map_coordinates, spline_filter
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.spatial.transform import Rotation

from bolt.config import Simulate
from bolt.datasets.phantom.anatomy import HEAD_CENTRE, Head, grid, smooth_factor, transform_points, world_coordinates
from bolt.datasets.phantom.signal import Series, random_stream

FIELD_BOLD = (190.0, 224.0)  # field of view within a slice, mm
RADIUS = 50.0  # mm: head radius in framewise displacement (Power 2012, doi:10.1016/j.neuroimage.2011.10.018)
UNIT = 1000.0  # intensity of grey matter in BOLD, of bright fat in T1w
AUTOCORRELATION = 0.3  # of the noise from one volume to the next
T1 = 1.3  # s: of grey matter at 3 T; time constant of spin history
SLOW_WAVES = 3  # independent time courses of slow physiology
LEAK = 0.3  # share of slow physiology in grey matter; white matter and fluid have 1


def rigid(parameters: np.ndarray) -> np.ndarray:
    """Return matrices (..., 4, 4) of rigid parameters (..., 6).

    The parameters are translations (mm), then rotations (radians) about the x, y and z axes, in this order, around the
    head's centre.
    """
    matrices = np.zeros((*parameters.shape[:-1], 4, 4))
    rotation = Rotation.from_euler("xyz", parameters[..., 3:].reshape(-1, 3)).as_matrix()
    matrices[..., :3, :3] = rotation.reshape(*parameters.shape[:-1], 3, 3)
    matrices[..., :3, 3] = HEAD_CENTRE + parameters[..., :3] - matrices[..., :3, :3] @ HEAD_CENTRE
    matrices[..., 3, 3] = 1
    return matrices


def framewise_displacement(parameters: np.ndarray) -> np.ndarray:
    """Return Power's framewise displacement (time,) in mm of rigid parameters (time, 6); the first is 0."""
    steps = np.abs(np.diff(parameters, axis=0, prepend=parameters[:1]))
    return steps[:, :3].sum(1) + RADIUS * steps[:, 3:].sum(1)


def head_motion(settings: Simulate, n_volumes: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rigid parameters (time, 6) relative to the first volume: slow drifts, and jerks of 1-2 mm that decay.

    The drifts are scaled so that the mean framewise displacement is 0.7 to 1.3 times `settings.motion_fd`; there are
    none if the jerks alone reach it.
    """
    units = np.array([1, 1, 1, 1 / RADIUS, 1 / RADIUS, 1 / RADIUS])
    slow = gaussian_filter1d(rng.standard_normal((n_volumes, 6)), 4, axis=0) * units
    sudden = np.zeros((n_volumes, 6))
    first = min(5, n_volumes // 4)
    for start in rng.choice(np.arange(first, n_volumes), min(settings.jerks, n_volumes - first), replace=False):
        direction = rng.standard_normal(6)
        size = rng.uniform(1, 2) * direction / np.abs(direction).sum() * units
        sudden[start:] += size * np.exp(-np.arange(n_volumes - start)[:, None] / rng.uniform(2, 5))
    target = settings.motion_fd * rng.uniform(0.7, 1.3)

    def excess(scale: float) -> float:
        return framewise_displacement(scale * slow + sudden).mean() - target

    if target == 0:
        return np.zeros((n_volumes, 6))
    scale = brentq(excess, 0, 1000) if excess(0) < 0 else 0.0
    parameters = scale * slow + sudden
    return parameters - parameters[0]


def repositioning(rng: np.random.Generator) -> np.ndarray:
    """Draw rigid parameters (6,) of the head's motion between the T1w and the first BOLD volume."""
    return np.concatenate([rng.uniform(-3, 3, 3), np.radians(rng.uniform(-3, 3, 3))])


def slice_times(n_slices: int, tr: float) -> np.ndarray:
    """Return the acquisition time of each slice in s after the start of a volume: interleaved, even slices first."""
    order = np.concatenate([np.arange(0, n_slices, 2), np.arange(1, n_slices, 2)])
    times = np.empty(n_slices)
    times[order] = np.arange(n_slices) * tr / n_slices
    return times


def scan_t1w(head: Head, gain: float, rng: np.random.Generator) -> np.ndarray:
    """Simulate the T1w image: bias field of ±25 %, Rician noise of 2 % of white matter."""
    clean = head.t1w * smooth_factor(head.affine, head.t1w.shape, 0.4, rng)
    noise = 0.017 * rng.standard_normal((2, *clean.shape))
    return (UNIT * gain * np.hypot(clean + noise[0], noise[1])).astype(np.float32)


def scan_bold(
    head: Head, series: Series, to_volume: np.ndarray, settings: Simulate, site: int, subject: int
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate the BOLD image.

    Parameters
    ----------
    head : Head
    series : Series
    to_volume : ndarray, (time, 4, 4)
        T1w world coordinates to the scanner's, in every volume.
    settings : Simulate
    site : int
    subject : int
        Selects the random generators.

    Returns
    -------
    ndarray, (x, y, z, time)
        float32.
    ndarray, (4, 4)
        Affine.
    """
    rng = random_stream(settings, subject, "bold")
    tr, n_volumes = settings.tr[site], settings.n_volumes[site]
    resolution = _voxel_edges(settings, site)
    affine, shape = grid(resolution, (*FIELD_BOLD, settings.field_height))
    points = world_coordinates(affine, shape)
    times = np.arange(n_volumes)[:, None] * tr + slice_times(shape[2], tr)  # (time, slices)
    blur = 0.42 * resolution / settings.t1w_resolution  # point spread as wide as a voxel
    # splines are exact enough for sub-voxel motion; activity, 2 % of the image, is averaged over 8 points
    base = spline_filter(gaussian_filter(head.epi, blur), order=3)
    fluid, white = gaussian_filter(head.fluid, blur), gaussian_filter(head.white, blur)
    to_voxel = np.linalg.inv(head.affine) @ np.linalg.inv(to_volume)  # (time, 4, 4)

    first = np.moveaxis(transform_points(to_voxel[0], points), -1, 0)
    fluid, white = (map_coordinates(share, first, order=1) for share in (fluid, white))
    pulsation = 0.2 + fluid
    brain = binary_dilation(map_coordinates(gaussian_filter(head.activity, blur), first, order=1) > 0.02)
    somewhere = binary_dilation(map_coordinates(base, first, order=3, prefilter=False) > 0.002, iterations=2)
    corners = resolution / 4 * np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1]), axis=-1).reshape(8, 1, 3)
    of_head, of_brain, slices = points[somewhere], points[brain], np.nonzero(brain)[2]
    weight = (head.epi * head.activity * settings.signal_percent / 100).astype(np.float32).ravel()
    rois = series.at(times)
    at_slices = np.concatenate([rois.mean(-1, keepdims=True), rois], axis=-1)  # all other tissue follows the mean
    column = head.roi.ravel()
    _, n_y, n_z = head.roi.shape
    step = np.array([n_y * n_z, n_z, 1.0])  # to flat indices; what leaves the field follows air at another edge

    out = np.empty((*shape, n_volumes), np.float32)
    for v in range(n_volumes):
        volume = np.zeros(shape, np.float32)
        voxels = transform_points(to_voxel[v], of_head).T
        volume[somewhere] = map_coordinates(base, voxels, order=3, prefilter=False)
        inner = transform_points(to_voxel[v], of_brain) + corners @ to_voxel[v, :3, :3].T
        nearest = (np.rint(inner) @ step).astype(int)
        responses = at_slices[v].take(slices * at_slices.shape[2] + column.take(nearest, mode="clip"))
        volume[brain] += (weight.take(nearest, mode="clip") * responses).mean(0)
        out[..., v] = volume
    course = np.linspace(-1, 1, n_volumes)  # of a slow, spatially varying drift of about 1 % over the scan
    courses = np.stack([course, course**2 - 1 / 3]) * rng.normal(0, 0.01, (2, 1))
    fields = np.stack([smooth_factor(affine, shape, 0.8, rng) for _ in courses], axis=-1)
    out *= 1 + (fields @ courses).astype(np.float32)
    if settings.physiology_percent:
        share = LEAK * (1 - fluid - white) + fluid + white
        out *= 1 + settings.physiology_percent / 100 * _slow_waves(affine, share, times.mean(1), settings, subject)
    if settings.spin_history_percent:
        out *= 1 - settings.spin_history_percent / 100 * _spin_history(points, to_volume, tr)
    out += pulsation[..., None] * out.clip(0) * _pulse(times, rng)
    sd = 1 / rng.uniform(settings.tsnr[0], settings.tsnr[1])
    noise = rng.standard_normal(out.shape, dtype=np.float32) * np.float32(sd)
    noise[..., 1:] *= np.float32(np.sqrt(1 - AUTOCORRELATION**2))
    out += lfilter([1.0], np.array([1.0, -AUTOCORRELATION], np.float32), noise, axis=-1).astype(np.float32)
    out *= smooth_factor(affine, shape, 0.25, rng)[..., None]
    return np.abs(out) * np.float32(UNIT * settings.gain[site]), affine


def scan_sbref(head: Head, position: np.ndarray, settings: Simulate, site: int, subject: int) -> np.ndarray:
    """Simulate the single-band reference (x, y, z) of a scan whose first volume has the (4, 4) `position`.

    The head is up to 1 mm and 1 degree away from there. Contrast between tissues is twice that of the scan.
    """
    rng = random_stream(settings, subject, "sbref")
    nearby = rigid(np.concatenate([rng.uniform(-0.6, 0.6, 3), np.radians(rng.uniform(-0.6, 0.6, 3))]))
    resolution = _voxel_edges(settings, site)
    affine, shape = grid(resolution, (*FIELD_BOLD, settings.field_height))
    to_voxel = np.linalg.inv(head.affine) @ np.linalg.inv(nearby @ position)
    voxels = np.moveaxis(transform_points(to_voxel, world_coordinates(affine, shape)), -1, 0)
    base = gaussian_filter(head.epi**2, 0.42 * resolution / settings.t1w_resolution)
    clean = map_coordinates(base, voxels, order=3) * smooth_factor(affine, shape, 0.25, rng)
    return np.abs(clean + 0.005 * rng.standard_normal(shape)) * UNIT * settings.gain[site]


def _voxel_edges(settings: Simulate, site: int) -> np.ndarray:
    """Return the edges (3,) of a BOLD voxel in mm."""
    edge = settings.bold_resolution[site]
    return np.array([edge, edge, settings.slice_thickness or edge])


def _pulse(times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw breathing and heartbeat (1 % and 0.7 % of the intensity of fluid) at the slice times: (slices, time)."""
    waves = [(0.010, rng.uniform(0.22, 0.35)), (0.007, rng.uniform(0.9, 1.2))]
    phases = rng.uniform(0, 2 * np.pi, len(waves))
    return sum(a * np.sin(2 * np.pi * f * times + p) for (a, f), p in zip(waves, phases, strict=True)).T.astype("f4")


def _slow_waves(
    affine: np.ndarray, share: np.ndarray, times: np.ndarray, settings: Simulate, subject: int
) -> np.ndarray:
    """Draw slow physiology, as from breathing depth and heart rate: (x, y, z, time), sd about 1 where `share` is 1.

    A few time courses below 0.15 Hz, each with its own smooth map, that white matter and fluid share with grey matter.
    """
    rng = random_stream(settings, subject, "physiology")
    step = times[1] - times[0]
    courses = gaussian_filter1d(rng.standard_normal((SLOW_WAVES, len(times))), 2.0 / step, axis=1, mode="wrap")
    courses -= courses.mean(1, keepdims=True)
    courses /= courses.std(1, keepdims=True) * np.sqrt(SLOW_WAVES)
    maps = np.stack([smooth_factor(affine, share.shape, 0.9, rng) for _ in range(SLOW_WAVES)], axis=-1)
    return (share[..., None] * (maps @ courses)).astype(np.float32)


def _spin_history(points: np.ndarray, to_volume: np.ndarray, tr: float) -> np.ndarray:
    """Return how far (mm) tissue has moved across slices, decaying with T1: (x, y, z, time).

    Tissue that has changed slice is excited out of turn, and is brighter or darker until it reaches the steady state
    again (Friston et al. 1996, doi:10.1002/mrm.1910350312); here in proportion to the distance.
    """
    from_first = np.linalg.inv(to_volume[0])
    height = np.stack([transform_points(position @ from_first, points)[..., 2] for position in to_volume], -1)
    moved = np.diff(height, axis=-1, prepend=height[..., :1])
    return lfilter([1.0], [1.0, -np.exp(-tr / T1)], moved, axis=-1).astype(np.float32)
