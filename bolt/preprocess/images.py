"""Image I/O between nibabel and ANTs, output grids, and rigid transforms.

World coordinates are NIfTI's: millimetres, right-anterior-superior (RAS). ITK, and hence ANTs, uses LPS (the first two
axes are flipped); the conversion happens here and nowhere else. ANTsPy is imported here, without statsmodels, which it
imports for functions that are not used: in three quarters of the time.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import h5py
import nibabel as nib
import numpy as np
from scipy.spatial.transform import Rotation

from bolt.io.errors import DataError
from bolt.io.files import atomic
from bolt.io.resource_errors import refuse_full
from bolt.io.volumes import check_image

STAND_INS = {"statsmodels", "statsmodels.api", "statsmodels.formula", "statsmodels.formula.api"} - set(sys.modules)
sys.modules.update({name: ModuleType(name) for name in STAND_INS})
try:
    import ants
finally:  # also where ANTsPy is not installed
    for name in STAND_INS:
        del sys.modules[name]

Image: TypeAlias = ants.ANTsImage
FLIP = np.diag([-1.0, -1.0, 1.0, 1.0])
"""RAS to LPS, and back."""
SCANNER, MNI = 1, 4  # NIfTI's codes of coordinate systems
SHEAR_TOLERANCE = 1e-3
FINEST = 1 / 256
"""mm: displacements on disk are multiples of it, which deflates them to a fifth."""


def to_ants(data: np.ndarray, affine: np.ndarray) -> Image:
    """Convert an (X, Y, Z) array and its (4, 4) voxel-to-RAS affine to an ANTs image (float32).

    Raises
    ------
    DataError
        If the affine has shear: ITK supports only orthogonal grids.
    """
    lps = FLIP @ affine
    spacing = nib.affines.voxel_sizes(lps)
    refuse_shear(affine)
    return ants.from_numpy(
        np.asarray(data, dtype=np.float32),  # copied there into ITK's order
        origin=tuple(lps[:3, 3]),
        spacing=tuple(spacing),
        direction=lps[:3, :3] / spacing,
    )


def refuse_shear(affine: np.ndarray, path: str | Path | None = None) -> None:
    """Refuse a (4, 4) affine whose axes are not orthogonal; `path` is named in the error."""
    axes = affine[:3, :3] / nib.affines.voxel_sizes(affine)
    if np.abs(axes.T @ axes - np.eye(3)).max() > SHEAR_TOLERANCE:
        raise DataError("the affine has shear", where=path, hint="Resample the image to an orthogonal grid")


def affine_of(image: Image) -> np.ndarray:
    """Return the (4, 4) voxel-to-RAS affine of an ANTs image."""
    lps = np.eye(4)
    lps[:3, :3] = np.asarray(image.direction) * np.asarray(image.spacing)
    lps[:3, 3] = image.origin
    return FLIP @ lps


def load(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Load a 3D NIfTI file as an (X, Y, Z) float32 array, voxel order unchanged, and its affine.

    Trailing axes of length 1 are dropped.
    """
    image = nib.squeeze_image(check_image(path))
    return np.asarray(image.dataobj, dtype=np.float32), image.affine


def read(path: str | Path) -> Image:
    """Read a 3D NIfTI file as an ANTs image in the closest RAS voxel order; trailing axes of length 1 are dropped."""
    image = check_image(path)
    shape = image.shape[:3]
    data = np.asarray(image.dataobj, dtype=np.float32).reshape(shape)
    order = nib.io_orientation(image.affine)  # turned here as a view: nibabel would make a copy, in float64 if scaled
    affine = image.affine @ nib.orientations.inv_ornt_aff(order, shape)
    try:
        return to_ants(nib.apply_orientation(data, order), affine)
    except DataError as error:
        raise DataError(error.what, where=path, hint=error.hint) from None


def write(image: Image, path: str | Path, dtype: str = "float32", code: int = SCANNER, step: float = 1.0) -> None:
    """Write an ANTs image as NIfTI, as `save` does."""
    save(image.numpy(), affine_of(image), path, dtype, code, step)


def save(
    data: np.ndarray,
    affine: np.ndarray,
    path: str | Path,
    dtype: str = "float32",
    code: int = SCANNER,
    step: float = 1.0,
) -> None:
    """Write an (X, Y, Z) array as NIfTI with identical sform and qform.

    Parameters
    ----------
    data, affine
    path : path
    dtype : str
    code : int
        Coordinate system: `SCANNER` or `MNI`.
    step : float
        Integers are written as multiples of it (NIfTI's slope); images take a third of the space of float32.
    """
    data = np.asarray(data)
    if step != 1:
        limits = np.iinfo(dtype)
        data = np.clip(np.rint(data / step), limits.min, limits.max)  # or a value beyond them would wrap around
    nifti = nib.Nifti1Image(data.astype(dtype), affine)
    nifti.set_sform(affine, code)
    nifti.set_qform(affine, code)
    nifti.header.set_xyzt_units("mm", "sec")
    nifti.header.set_slope_inter(step, 0)
    with atomic(path) as temporary:
        nib.save(nifti, temporary)


def resample_to_spacing(image: Image, spacing: float) -> Image:
    """Resample an image to isotropic `spacing` (mm) from the same first voxel, by linear interpolation.

    The result is that of `ants.resample_image`, which takes five times as long and copies the image three times.
    """
    shape = [max(1, int(n * size / spacing + 0.5)) for n, size in zip(image.shape, image.spacing, strict=True)]
    values = interpolated(image.numpy(), [spacing / size for size in image.spacing], shape)
    return ants.from_numpy(values, origin=image.origin, spacing=(spacing,) * 3, direction=image.direction)


def interpolated(values: np.ndarray, steps: Sequence[float], shape: Sequence[int]) -> np.ndarray:
    """Interpolate an (X, Y, Z) array linearly, axis by axis, on a grid that starts at the same voxel.

    Parameters
    ----------
    values : (X, Y, Z) float32 array
        Continued beyond its end by its last value.
    steps : sequence of 3 floats
        Distance between points of the new grid, in voxels.
    shape : sequence of 3 ints
        Of the new grid.
    """
    values = values.T  # ITK's order in memory: blocks are copied, not single values
    for axis, step, length in zip((2, 1, 0), steps, shape, strict=True):
        last = values.shape[axis] - 1
        place = np.minimum(np.arange(length) * step, last)
        below = place.astype(int)
        along = [1, 1, 1]
        along[axis] = length
        share = (place - below).astype(np.float32).reshape(along)
        lower, values = values.take(below, axis), values.take(np.minimum(below + 1, last), axis)
        values -= lower  # in place: images are large
        values *= share
        values += lower
    return values.T


def grid(template: str | Path, resolution: float) -> tuple[tuple[int, int, int], np.ndarray]:
    """Return shape and affine of a grid over a template's field of view at `resolution` mm.

    At the template's own resolution this is the template's own grid, so that images match the atlases drawn on it
    voxel by voxel.
    """
    image = nib.as_closest_canonical(check_image(template))
    size = nib.affines.voxel_sizes(image.affine)
    if np.allclose(size, resolution, atol=1e-3):
        return image.shape[:3], image.affine
    zoom = resolution / size
    shape = tuple(int(n) for n in np.ceil(np.asarray(image.shape[:3]) / zoom - 1e-3))
    # the corner of the field of view, half a voxel outside the first voxel's centre, stays in place
    scale = np.eye(4)
    scale[:3, :3] = np.diag(zoom)
    scale[:3, 3] = (zoom - 1) / 2
    return shape, image.affine @ scale  # type: ignore[return-value]


def apply(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Map (..., 3) points by a (4, 4) matrix."""
    return points @ matrix[:3, :3].T + matrix[:3, 3]


def places_of_grid(shape: tuple[int, int, int], affine: np.ndarray, transforms: Sequence[str | Path]) -> np.ndarray:
    """Map the voxels of a grid through a chain of transforms.

    Parameters
    ----------
    shape, affine
        The grid.
    transforms : sequence of path
        ITK transforms, starting from the grid's own space: T1w to template, then BOLD to T1w, yield points in the BOLD.

    Returns
    -------
    (X, Y, Z, 3) float32 array
        RAS mm.
    """
    empty = to_ants(np.zeros(shape), affine)
    with tempfile.TemporaryDirectory() as folder:
        composed = ants.apply_transforms(empty, empty, [str(t) for t in transforms], compose=f"{folder}/")
        if composed is None:
            raise RuntimeError(f"{transforms} could not be composed")
        shift = ants.image_read(composed).numpy() @ FLIP[:3, :3]
    voxels = np.moveaxis(np.indices(shape, dtype=np.float32), 0, -1)
    return (apply(affine, voxels) + shift).astype(np.float32)


def mask_centre(mask: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return the centre of mass of an (X, Y, Z) bool mask, RAS mm."""
    counts = [mask.sum(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
    return apply(affine, np.array([count @ np.arange(len(count)) for count in counts]) / counts[0].sum())


def rigid_matrix(parameters: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return the (4, 4) matrix of a rigid transform, RAS mm.

    Parameters
    ----------
    parameters : (6,) array
        Translation (mm), and rotation (radians) about the fixed axes x, then y, then z.
    centre : (3,) array
        Centre of rotation, mm.
    """
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", parameters[3:]).as_matrix()
    matrix[:3, 3] = centre + parameters[:3] - matrix[:3, :3] @ centre
    return matrix


def rigid_parameters(matrix: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return the (6,) parameters of a rigid matrix: the inverse of `rigid_matrix`."""
    translation = matrix[:3, :3] @ centre + matrix[:3, 3] - centre
    return np.concatenate([translation, Rotation.from_matrix(matrix[:3, :3]).as_euler("xyz")])


def read_matrix(path: str | Path) -> np.ndarray:
    """Read an ITK linear transform as a (4, 4) RAS mm matrix from points of the fixed to points of the moving image."""
    transform = ants.read_transform(str(path))
    parameters, centre = np.asarray(transform.parameters), np.asarray(transform.fixed_parameters)
    lps = np.eye(4)
    lps[:3, :3] = parameters[:9].reshape(3, 3)
    lps[:3, 3] = parameters[9:] + centre - lps[:3, :3] @ centre
    return FLIP @ lps @ FLIP


def write_matrix(matrix: np.ndarray, path: str | Path, centre: np.ndarray | None = None) -> None:
    """Write a (4, 4) RAS matrix as an ITK linear transform (``.txt`` or ``.mat``).

    `centre` (RAS mm) is the centre of rotation for a registration that starts from it; the map does not depend on it.
    """
    lps = FLIP @ matrix @ FLIP
    itk_centre = FLIP[:3, :3] @ (np.zeros(3) if centre is None else centre)
    offset = lps[:3, :3] @ itk_centre + lps[:3, 3] - itk_centre
    transform = ants.new_ants_transform(transform_type="AffineTransform")
    transform.set_fixed_parameters(itk_centre)
    transform.set_parameters(np.concatenate([lps[:3, :3].ravel(), offset]))
    with atomic(path) as temporary:
        ants.write_transform(transform, str(temporary))
        refuse_full(temporary.parent)


def write_composite(transforms: Sequence[ants.ANTsTransform], path: str | Path) -> None:
    """Write ITK transforms, of which the last is applied to points first, as one deflated file (``.h5``).

    ITK reads compressed files but ANTsPy writes none: the file is repacked.
    """
    with atomic(path) as temporary, tempfile.TemporaryDirectory() as folder:
        plain = f"{folder}/composite.h5"
        ants.write_transform(ants.compose_ants_transforms(transforms), plain)
        with h5py.File(plain) as source, h5py.File(temporary, "w") as target:

            def repack(name: str, item: h5py.Group | h5py.Dataset) -> None:
                if isinstance(item, h5py.Dataset) and item.size > 100:  # a displacement field
                    field = np.rint(item[()] / FINEST) * FINEST
                    target.create_dataset(name, data=field, compression="gzip", shuffle=True)
                elif isinstance(item, h5py.Dataset):
                    target.create_dataset(name, data=item[()], dtype=item.dtype)

            source.visititems(repack)
        refuse_full(Path(path).parent)
