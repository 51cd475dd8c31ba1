"""ROI means in the scan's own voxels: the atlas is carried to the scan, not the scan to the atlas.

Each voxel of the BOLD reference asks, through the inverse transforms (BOLD to T1w to template), which label of the
atlas lies there. In each volume it then looks at the acquired voxel that the head has moved it to. No brightness is
interpolated in space.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bolt.atlases.image import Atlas, check_space
from bolt.config import Denoise
from bolt.io.streams import iter_volumes
from bolt.io.volumes import BoldInfo, check_bold
from bolt.preprocess import images
from bolt.preprocess.functional.confounds import read_motion
from bolt.preprocess.functional.resample import places_of_grid
from bolt.preprocess.functional.timing import read_slice_times, slice_timed
from bolt.series.denoise import choose_confounds
from bolt.series.parcellate import Cleaning, Parcellated, finish, read_mask
from bolt.series.rois import Placed, average, place

NATIVE = "native"
"""What series of a scan's own voxels name as their space."""


@dataclass(frozen=True)
class Transforms:
    """What `bolt.preprocess` knows of a scan: files under the names in ``docs/architecture.md``.

    Attributes
    ----------
    forward, inverse : path
        From T1w to the template, and back.
    bold_to_t1w : path
    motion : path
        Head positions, one a volume.
    mask : path
        Brain in the BOLD's own voxels that every volume acquired.
    confounds : path
    """

    forward: Path
    inverse: Path
    bold_to_t1w: Path
    motion: Path
    mask: Path
    confounds: Path


def parcellate_native(
    image: Path,
    atlases: Sequence[Atlas],
    known: Transforms,
    *,
    space: str,
    denoise: Denoise,
    tr: float,
    threshold: float,
    slice_timing: bool,
) -> dict[str, Parcellated]:
    """Average a raw scan over the ROIs of atlases in one pass, in its own voxels.

    Parameters
    ----------
    image : path
        Raw 4D image.
    atlases : sequence of Atlas
    known : Transforms
    space : str
        The template's, which the atlases must be drawn in.
    denoise : Denoise
    tr : float
        Seconds.
    threshold : float
        Smallest coverage at which an ROI has a series.
    slice_timing : bool
        Bring slices to one time where SliceTiming is known.

    Returns
    -------
    dict of str to Parcellated
        By atlas name; as `bolt.series.parcellate.parcellate`.
    """
    info = check_bold(image, tr)
    for atlas in atlases:
        check_space(atlas, space)
    chosen = choose_confounds(known.confounds, denoise, info.n_volumes, image)
    inside = read_mask(known.mask, info)
    placed = _carry(atlases, info, inside, known)
    motion = read_motion(known.motion)
    unsteady = 0 if chosen.kept is None else int(chosen.kept[0])
    slices = read_slice_times(image, info.shape, tr) if slice_timing else None
    volumes = slice_timed(iter_volumes(image), slices, tr, unsteady)
    voxels = np.concatenate([one.voxels for one in placed])
    averaged = average(_followed(volumes, voxels, motion, info), info.n_volumes, placed)
    return finish(atlases, placed, averaged, Cleaning(image, info, NATIVE, chosen, denoise, threshold))


def _carry(atlases: Sequence[Atlas], info: BoldInfo, inside: np.ndarray, known: Transforms) -> list[Placed]:
    """The atlases on the grid of the BOLD reference, by nearest neighbour."""
    with tempfile.TemporaryDirectory() as folder:
        to_bold = Path(folder, "t1w_to_bold.txt")
        images.write_matrix(np.linalg.inv(images.read_matrix(known.bold_to_t1w)), to_bold)
        in_template = places_of_grid(info.shape, info.affine, [to_bold, known.inverse])
    placed = []
    for atlas in atlases:
        at = np.rint(images.apply(np.linalg.inv(atlas.image.affine), in_template)).astype(int)
        within = ((at >= 0) & (at < atlas.data.shape)).all(axis=-1)
        labels = np.zeros(info.shape, dtype=np.int32)
        labels[within] = atlas.data[tuple(at[within].T)]
        in_bold = places_of_grid(atlas.data.shape, atlas.image.affine, [known.forward, known.bold_to_t1w])
        own = images.apply(np.linalg.inv(info.affine), in_bold[atlas.data > 0])
        placed.append(place(atlas, labels, inside, own))
    return placed


def _followed(
    volumes: Iterator[np.ndarray], voxels: np.ndarray, motion: np.ndarray, info: BoldInfo
) -> Iterator[np.ndarray]:
    """(N,) values where the head has moved the voxels of the reference, of the nearest acquired voxel."""
    points = np.stack(np.unravel_index(voxels, info.shape, order="F"), axis=-1)
    to_voxels = np.linalg.inv(info.affine)
    for volume, position in zip(volumes, motion, strict=True):
        at = np.rint(images.apply(to_voxels @ position @ info.affine, points)).astype(int)
        yield volume[tuple(np.clip(at, 0, np.array(info.shape) - 1).T)]
