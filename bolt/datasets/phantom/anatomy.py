"""Heads of the phantom: the ICBM152 brain, deformed, positioned and put into a skull-like shell.

The template and the subjects are made from the same brain images (the ICBM152 2009a symmetric average that ships with
nilearn), but have different shells. World coordinates are in mm: right, anterior, superior.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import nibabel as nib
import numpy as np
from nilearn import datasets as nilearn_datasets
from scipy.ndimage import distance_transform_edt, gaussian_filter, map_coordinates, maximum_filter
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from bolt.config import Simulate
from bolt.datasets.phantom.signal import random_stream, rois
from bolt.io.errors import ConfigError

HEAD_CENTRE = np.array([0.0, -17.0, 8.0])  # mm
FIELD_T1W = (200.0, 236.0, 208.0)  # field of view, mm
REACH = 15.0  # mm: grey matter follows the nearest ROI centre up to this distance
CORE = 8.0  # mm: up to this distance all tissue follows the centre, because some centres are in white matter
KNOTS = 40.0  # mm between the control points of a deformation
SOURCES = np.array([[0.0, 42, -24], [-52, -24, -26], [52, -24, -26]])  # mm, template: sinus, ear canals
SOURCE_RADIUS = 12.0  # mm, standard deviation of their fields
LOSS = 0.9  # share of the signal that is lost at a source
WORLD = 280.0  # mm: side of the cube in which a deformation is defined


class Shell(NamedTuple):
    """Layers around the brain, from the inside out: thickness in mm and T1w intensities (white matter: 0.86)."""

    gap: float = 2.5
    skull: float = 6.0
    scalp: float = 6.0
    fluid: float = 0.15
    bone: float = 0.06
    fat: float = 1.0


class Head(NamedTuple):
    """A subject's head on the T1w grid, without noise.

    Attributes
    ----------
    affine : ndarray, (4, 4)
    t1w, epi : ndarray, (x, y, z)
        Contrast of each sequence, without noise, bias and gain; grey matter is 1 in `epi`.
    fluid, white : ndarray
        Proportion of cerebrospinal fluid and of white matter.
    roi : ndarray of int
        1 + index of the ROI whose series a voxel follows; 0: the mean of all ROIs.
    activity : ndarray
        Weight of that series in a voxel, 0 to 1.
    """

    affine: np.ndarray
    t1w: np.ndarray
    epi: np.ndarray
    fluid: np.ndarray
    white: np.ndarray
    roi: np.ndarray
    activity: np.ndarray


class Warp:
    """Map between a subject's T1w space and the template: ``t = y + u(y)``, ``y = affine @ s``.

    The displacement u is a cubic B-spline with uniformly distributed coefficients, whose absolute value stays below 0.4
    of the distance between knots; such a spline is one-to-one (Choi & Lee 2000, doi:10.1006/gmod.1999.0510).

    Parameters
    ----------
    settings : Simulate
        `warp_mm` is the root mean square of the length of u.
    subject : int

    Attributes
    ----------
    largest : float
        Bound on each component of u, mm.
    """

    def __init__(self, settings: Simulate, subject: int) -> None:
        rng = random_stream(settings, subject, "warp")
        rotation = Rotation.from_euler("xyz", np.clip(rng.normal(0, 4, 3), -8, 8), degrees=True).as_matrix()
        scaling = np.diag(rng.uniform(0.95, 1.05, 3))
        self.affine = np.eye(4)
        self.affine[:3, :3] = scaling @ rotation
        self.affine[:3, 3] = HEAD_CENTRE - self.affine[:3, :3] @ (HEAD_CENTRE + rng.uniform(-6, 6, 3))
        # 151/315, the integral of the squared cubic B-spline: share of the coefficients' variance that is kept per axis
        self.largest = settings.warp_mm / (151 / 315) ** 1.5
        n = round(WORLD / KNOTS) + 1
        self._coefficients = rng.uniform(-self.largest, self.largest, (3, n, n, n))

    def to_template(self, points: np.ndarray) -> np.ndarray:
        """Map world coordinates (..., 3) of the subject to those of the same tissue in the template."""
        moved = transform_points(self.affine, points)
        return moved + self._displacement(moved)

    def to_subject(self, points: np.ndarray) -> np.ndarray:
        """Invert `to_template` to 0.01 mm, by fixed-point iteration."""
        moved = points.copy()
        active = np.ones(points.shape[:-1], bool)
        for _ in range(50):
            before, found = moved[active], points[active] - self._displacement(moved[active])
            moved[active] = found
            active[active] = np.abs(found - before).max(-1) >= 0.005
            if not active.any():
                break
        return transform_points(np.linalg.inv(self.affine), moved)

    def _displacement(self, points: np.ndarray) -> np.ndarray:
        """Evaluate u with weights for all knots, because products of small matrices are faster than four knots each."""
        n = self._coefficients.shape[1]
        by_height = np.moveaxis(self._coefficients, 3, 1).reshape(3 * n, n * n)  # (component and z, x and y)
        knots = ((points.reshape(-1, 3) - HEAD_CENTRE + WORLD / 2) / KNOTS).T
        u = np.empty(knots.shape)
        for start in range(0, knots.shape[1], 2048):  # what fits in the processor's cache
            part = slice(start, start + 2048)
            distance = np.abs(knots[:, None, part] - np.arange(-1, n + 1)[:, None])  # (3, knots, points)
            far, near = np.maximum(2 - distance, 0), np.maximum(1 - distance, 0)
            weights = (far * far * far - 4 * near * near * near) / 6
            weights[:, [2, -3]] += weights[:, [0, -1]]  # the coefficients are mirrored beyond the outermost knots
            x, y, z = weights[:, 1:-1]
            columns = by_height @ (x[:, None] * y).reshape(n * n, -1)
            u[:, part] = (columns.reshape(3, n, -1) * z).sum(1)
        return u.T.reshape(points.shape)


def head_template(resolution: float) -> dict[str, nib.Nifti1Image]:
    """Make the phantom's template: ICBM152 2009a symmetric (space MNI152NLin2009aSym) in its own shell.

    Parameters
    ----------
    resolution : float
        Voxel size in whole millimetres.

    Returns
    -------
    dict
        T1w (whole head), brain_mask, gm (probability).

    Raises
    ------
    ConfigError
        The resolution is not whole; nilearn offers no other.
    """
    if resolution < 1 or resolution != round(resolution):
        what = f"the phantom's template needs a resolution in whole millimetres, not {resolution}"
        raise ConfigError(what, hint="Set 'resolution' to 2 or 4")
    step = round(resolution)
    maps, affine = icbm152(step)
    inside = maps["mask"] > 0
    t1w, _ = add_shell(maps["t1w"] * inside, inside, affine, Shell(), None)
    arrays = {"T1w": t1w * 1000, "brain_mask": inside.astype(np.uint8), "gm": maps["gm"] * inside}
    return {name: make_nifti(array, affine, "mni") for name, array in arrays.items()}


def icbm152(step: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the maps t1w, mask, gm and wm (x, y, z) at every `step`-th millimetre, and their affine.

    They equal nilearn's of that resolution, for which it fits a spline to those of 1 mm.
    """
    fetch = {
        "t1w": nilearn_datasets.load_mni152_template,
        "mask": nilearn_datasets.load_mni152_brain_mask,
        "gm": nilearn_datasets.load_mni152_gm_template,
        "wm": nilearn_datasets.load_mni152_wm_template,
    }
    images = {name: load(resolution=1).slicer[::step, ::step, ::step] for name, load in fetch.items()}
    return {name: np.asarray(image.dataobj, np.float32) for name, image in images.items()}, images["t1w"].affine


def make_head(settings: Simulate, subject: int, warp: Warp) -> Head:
    """Make a subject's head on a T1w grid of `settings.t1w_resolution`."""
    affine, shape = grid(settings.t1w_resolution, FIELD_T1W)
    maps, template_affine = _template_maps()
    points, to_voxel = world_coordinates(affine, shape), np.linalg.inv(template_affine)
    reachable = maximum_filter(maps["mask"], 2 * int(np.ceil(warp.largest / template_affine[0, 0])) + 3)
    moved = np.moveaxis(transform_points(to_voxel @ warp.affine, points), -1, 0)
    near = map_coordinates(reachable, moved, order=0, mode="nearest") > 0  # where the brain can be
    voxels = transform_points(to_voxel, warp.to_template(points[near])).T

    head = {name: np.zeros(shape, values.dtype) for name, values in maps.items()}
    for name, values in maps.items():
        head[name][near] = map_coordinates(values, voxels, order=0 if name == "roi" else 1)
    brain, grey, white = head["t1w"], head["gm"], head["wm"]
    inside = head["mask"] > 0.5
    rng = random_stream(settings, subject, "shell")
    shell = Shell(
        gap=rng.uniform(2, 4),
        skull=rng.uniform(4, 8),
        scalp=rng.uniform(3, 8),
        fluid=rng.uniform(0.1, 0.2),
        bone=rng.uniform(0.03, 0.1),
        fat=rng.uniform(0.75, 1.2),
    )
    t1w, scalp = add_shell(np.where(inside, brain, 0), inside, affine, shell, rng)
    fluid = np.clip(inside - grey - white, 0, 1)
    epi = inside * (grey + 0.8 * white + 1.3 * fluid) + 0.25 * scalp
    fluid, white = (share.astype(np.float32) for share in (fluid, white * inside))
    return Head(affine, t1w, epi.astype(np.float32), fluid, white, head["roi"], head["activity"] * inside)


def distorted(head: Head, warp: Warp, largest: float) -> Head:
    """Distort what EPI sees of a head as magnetic susceptibility does above the sinuses and the ear canals.

    Signal is shifted along the y axis (the phase encoding), denser or thinner as its neighbours move apart or together,
    and lost where the field is steepest. The field moves with the head.

    Parameters
    ----------
    head : Head
    warp : Warp
    largest : float
        Shift above a source, mm.
    """
    places = warp.to_template(world_coordinates(head.affine, head.t1w.shape))
    field = sum(np.exp(-((places - source) ** 2).sum(-1) / (2 * SOURCE_RADIUS**2)) for source in SOURCES)
    voxels = np.indices(head.t1w.shape, dtype=float)
    voxels[1] -= largest * field / head.affine[1, 1]
    density = np.gradient(voxels[1], axis=1) * (1 - LOSS * field)
    epi, fluid, white, activity = (
        map_coordinates(part, voxels, order=1) for part in (head.epi, head.fluid, head.white, head.activity)
    )
    roi = map_coordinates(head.roi, voxels, order=0)
    return head._replace(epi=(epi * density).astype(np.float32), fluid=fluid, white=white, roi=roi, activity=activity)


def add_shell(
    brain: np.ndarray, inside: np.ndarray, affine: np.ndarray, shell: Shell, rng: np.random.Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """Put fluid, bone and scalp around a brain.

    Parameters
    ----------
    brain : ndarray, (x, y, z)
        T1w intensities, zero outside.
    inside : ndarray of bool, (x, y, z)
    affine : ndarray, (4, 4)
    shell : Shell
    rng : Generator, optional
        Varies the thickness smoothly by a factor of 0.7 to 1.3; without it the shell is even.

    Returns
    -------
    ndarray, ndarray of bool
        T1w of the whole head; mask of the scalp.
    """
    voxel = nib.affines.voxel_sizes(affine)
    # a smoothed mask bridges sulci and the gap below the cerebellum, as a skull does
    hull = inside | (gaussian_filter(inside.astype(np.float32), 6 / voxel) > 0.4)
    depth = distance_transform_edt(~hull, sampling=voxel)
    if rng is not None:
        depth = depth / smooth_factor(affine, inside.shape, 0.3, rng)
    edges = np.cumsum([shell.gap, shell.skull, shell.scalp])
    layer = np.digitize(depth, edges)  # 0 fluid (and brain), 1 bone, 2 scalp, 3 air
    head = np.array([shell.fluid, shell.bone, shell.fat, 0.0])[layer]
    head = gaussian_filter(head, 0.8 / voxel)
    return np.where(inside, brain, head).astype(np.float32), layer == 2


def smooth_factor(affine: np.ndarray, shape: tuple[int, ...], amplitude: float, rng: np.random.Generator) -> np.ndarray:
    """Return a smooth random field (x, y, z) around 1 that varies by at most `amplitude` over some 100 mm."""
    coefficients = rng.uniform(1 - amplitude, 1 + amplitude, (6, 6, 6))
    axes = []  # on a grid, a spline is a product of one matrix per axis
    for axis, n in enumerate(shape):
        knots = (affine[axis, 3] + affine[axis, axis] * np.arange(n) - HEAD_CENTRE[axis]) / 70 + 2.5
        axes.append([map_coordinates(unit, [knots], order=3, prefilter=False, mode="nearest") for unit in np.eye(6)])
    return np.einsum("abc,ax,by,cz->xyz", coefficients, *axes, optimize=True)


def transform_points(affine: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Transform points (..., 3) by a (4, 4) matrix."""
    return points @ affine[:3, :3].T + affine[:3, 3]


def grid(resolution: float | np.ndarray, field: tuple[float, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return affine and shape of a field of view (mm) around the head's centre, in RAS order."""
    edges = np.broadcast_to(resolution, 3)
    shape = tuple(int(n) for n in np.ceil(np.array(field) / edges))
    affine = np.diag([*edges, 1.0])
    affine[:3, 3] = HEAD_CENTRE - edges * (np.array(shape) - 1) / 2
    return affine, shape


def world_coordinates(affine: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the world coordinates of all voxels: (x, y, z, 3)."""
    voxels = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), axis=-1)
    return transform_points(affine, voxels.astype(float))


def make_nifti(array: np.ndarray, affine: np.ndarray, code: str = "scanner") -> nib.Nifti1Image:
    """Make a NIfTI image with sform and qform in the space named by `code`, and units of mm and s."""
    nifti = nib.Nifti1Image(array, affine)
    nifti.set_sform(affine, code=code)
    nifti.set_qform(affine, code=code)
    nifti.header.set_xyzt_units("mm", "sec")
    return nifti


@lru_cache
def _template_maps() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return brain, tissue and ROI maps on the template's 2-mm grid, and its affine."""
    maps, affine = icbm152(2)
    centres = cKDTree(rois()[["x", "y", "z"]].to_numpy(float))
    distance, nearest = centres.query(world_coordinates(affine, maps["t1w"].shape))
    maps["roi"] = np.where(distance <= REACH, nearest + 1, 0).astype(np.int16)
    maps["activity"] = np.where(distance <= CORE, 1, maps["gm"]).astype(np.float32)
    return maps, affine
