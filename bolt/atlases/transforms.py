"""Label images carried over to another space by ITK composite transforms.

World coordinates are NIfTI's (RAS) outside this module, ITK's (LPS) within transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py
import nibabel as nib
import numpy as np
from scipy.ndimage import map_coordinates

from bolt.atlases.description import find_transform, verify_transform
from bolt.io.errors import DataError, readable
from bolt.io.files import atomic, sha256, write_json
from bolt.io.volumes import check_image

FLIP = np.diag([-1.0, -1.0, 1.0, 1.0])
"""ITK's coordinates (LPS) to NIfTI's (RAS), and back."""
GRID_MM = 1.0
"""Voxel size of the result if the transform has no grid of its own."""
Transform = Callable[[np.ndarray], np.ndarray]
"""Of (N, 3) points, LPS mm."""


def carry_over(
    image: nib.Nifti1Image, name: str, digest: str, source: str, target: str, home: Path | None, cache: Path | None
) -> tuple[nib.Nifti1Image, dict[str, str]]:
    """Carry a label image over from one space to another, or read the result of an earlier call.

    Parameters
    ----------
    image : nibabel image
        (X, Y, Z) labels in the source space.
    name, digest : str
        The atlas, and the sha256 of its image.
    source, target : str
        Spaces.
    home : Path, optional
        TemplateFlow home.
    cache : Path, optional
        Folder of results; their names contain the checksums of image and transform. Default: nothing is kept.

    Returns
    -------
    image : nibabel image
        As from `resample_labels`.
    provenance : dict
        From, Image (sha256), Transform (file), TransformSHA256, Interpolation.
    """
    transform = find_transform(source, target, home)
    facts = {
        "From": source,
        "ImageSHA256": digest,
        "Transform": transform.name,
        "TransformSHA256": sha256(transform),
        "Interpolation": "nearest neighbour",
    }
    key = f"{digest[:12]}{facts['TransformSHA256'][:12]}"
    kept = cache / f"{name}_space-{target}_from-{source}_desc-{key}_dseg.nii.gz" if cache else None
    if kept is not None and kept.is_file():
        earlier = check_image(kept)
        return nib.Nifti1Image(np.asarray(earlier.dataobj).astype(np.int32), earlier.affine), facts
    verify_transform(transform, source, target)
    carried = resample_labels(image, read_composite(transform))
    if kept is not None:
        write_json(facts, kept.with_name(kept.name.replace(".nii.gz", ".json")))
        with atomic(kept) as temporary:
            nib.save(carried, temporary)
    return carried, facts


@dataclass(frozen=True)
class Displacements:
    """Displacements of the points of a grid, interpolated linearly in between; beyond the grid there are none.

    Attributes
    ----------
    field : (X, Y, Z, 3) float32 array, LPS mm
    affine : (4, 4) array
        Voxel to LPS mm.
    """

    field: np.ndarray
    affine: np.ndarray

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Map (N, 3) points, LPS mm."""
        voxels = nib.affines.apply_affine(np.linalg.inv(self.affine), points).T
        shifts = [map_coordinates(self.field[..., axis], voxels, order=1, cval=0.0) for axis in range(3)]
        return points + np.stack(shifts, axis=-1)


def read_composite(path: Path) -> list[Transform]:
    """Read an ITK composite transform (``.h5``), in the order in which points go through it.

    Raises
    ------
    DataError
        The file cannot be read, or has a transform of another kind.
    """
    what, hint = "not readable as an ITK transform", "Fetch it again"
    with readable(path, OSError, KeyError, ValueError, what=what, hint=hint, text=False), h5py.File(path) as file:
        group = file["TransformGroup"]
        parts = [group[name] for name in sorted(group, key=int)]
        transforms = [_read_transform(part, path) for part in parts if not _kind(part).startswith("Composite")]
    return transforms[::-1]  # ITK applies the last one first


def _kind(part: h5py.Group) -> str:
    kind = part["TransformType"][0]
    return kind.decode() if isinstance(kind, bytes) else str(kind)


def _read_transform(part: h5py.Group, path: Path) -> Transform:
    # older versions of ITK misspell both names
    fixed, parameters = (
        part[name if name in part else name.replace("Transform", "Tranform")]
        for name in ("TransformFixedParameters", "TransformParameters")
    )
    fixed = np.asarray(fixed, float)
    kind = _kind(part).split("_")[0]
    if kind == "DisplacementFieldTransform":
        size = fixed[:3].astype(int)
        affine = np.eye(4)
        affine[:3, :3] = fixed[9:18].reshape(3, 3) * fixed[6:9]
        affine[:3, 3] = fixed[3:6]
        field = parameters[()].astype(np.float32).reshape(*size[::-1], 3)
        return Displacements(field.transpose(2, 1, 0, 3), affine)
    if kind in ("AffineTransform", "MatrixOffsetTransformBase"):
        values, matrix = np.asarray(parameters, float), np.eye(4)
        matrix[:3, :3] = values[:9].reshape(3, 3)
        matrix[:3, 3] = values[9:] + fixed - matrix[:3, :3] @ fixed  # `fixed` is the centre
        return partial(nib.affines.apply_affine, matrix)
    raise DataError(f"a transform of type {kind} cannot be applied", where=path, hint="Use TemplateFlow's transforms")


def resample_labels(image: nib.Nifti1Image, transforms: Sequence[Transform]) -> nib.Nifti1Image:
    """Resample a label image through transforms, by nearest neighbour.

    Parameters
    ----------
    image : nibabel image
        (X, Y, Z) labels.
    transforms : sequence
        From points of the result to points of the image.

    Returns
    -------
    nibabel image
        (X, Y, Z) int32 labels, on the grid of the first transform if it has one, else over the field of view of the
        image.
    """
    first = transforms[0] if transforms else None
    if isinstance(first, Displacements):
        shape, affine = first.field.shape[:3], FLIP @ first.affine
    else:
        corners = np.indices((2, 2, 2)).reshape(3, -1).T * np.array(image.shape) - 0.5
        world = nib.affines.apply_affine(image.affine, corners)
        affine = np.diag([GRID_MM, GRID_MM, GRID_MM, 1.0])
        affine[:3, 3] = world.min(axis=0) + GRID_MM / 2
        shape = tuple(int(n) for n in np.ceil(np.ptp(world, axis=0) / GRID_MM))
    labels, to_voxels = np.asarray(image.dataobj).astype(np.int32), np.linalg.inv(image.affine) @ FLIP
    result = np.zeros(shape, np.int32)
    plane_voxels = np.indices((*shape[:2], 1)).reshape(3, -1).T
    for z in range(shape[2]):
        points = nib.affines.apply_affine(FLIP @ affine, plane_voxels + np.array([0, 0, z]))
        for transform in transforms:
            points = transform(points)
        nearest = np.rint(nib.affines.apply_affine(to_voxels, points)).astype(int)
        within = ((nearest >= 0) & (nearest < labels.shape)).all(axis=1)
        plane = np.zeros(len(points), np.int32)
        plane[within] = labels[tuple(nearest[within].T)]
        result[:, :, z] = plane.reshape(shape[:2])
    return nib.Nifti1Image(result, affine)
