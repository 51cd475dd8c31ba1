"""Loading of verified label images and their tables of ROIs, which are matched by label value, never by position.

An atlas is a folder with `atlas.yaml` and `labels.tsv` (value, name, network, hemisphere, and centres x, y, z in mm),
which `bolt.atlases.description` reads. Users give their own atlas as the path of such a folder or, on the command line,
as a label image alone.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import nibabel as nib
import numpy as np
import pandas as pd

from bolt.atlases import description
from bolt.atlases.labels import labels_of_image, load_labels, read_label_image, read_maps, strongest
from bolt.io.bids import atlas_name, is_image, space_of, stem_of, table_of
from bolt.io.errors import ConfigError, DataError, shorten_list
from bolt.io.files import sha256

if TYPE_CHECKING:
    from bolt.config import Paths
    from bolt.config.study import Study

SPHERE_AFFINE = np.array([[2.0, 0, 0, -90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
SPHERE_SHAPE = (91, 109, 91)  # the 2-mm grid of FSL's MNI152, left to right


@dataclass(frozen=True)
class Atlas:
    """A verified label image and the names of its labels.

    Attributes
    ----------
    name : str
    spaces : list of str
        Spaces in which the labels are valid; empty for a label image alone whose name declares none.
    labels : DataFrame
        value (int), name, network, hemisphere (L, R, M) and, where known, x, y, z; one row per ROI, sorted by value.
    image : nibabel image
        (X, Y, Z) int32 label values; 0 is background. Or (X, Y, Z, R) maps of weights, not loaded, whose numbers from 1
        are the values.
    sha256 : str
        Checksum of the file, or of the labels if they were drawn (spheres) or carried over from another space.
    carried : dict
        How the image was carried over (`bolt.atlases.transforms.carry_over`); empty if it was not.
    """

    name: str
    spaces: list[str]
    labels: pd.DataFrame
    image: nib.Nifti1Image
    sha256: str
    carried: dict[str, str] = field(default_factory=dict)

    @property
    def is_maps(self) -> bool:
        """Return whether the ROIs are maps of weights, which may overlap."""
        return len(self.image.shape) == 4

    @cached_property
    def label_image(self) -> nib.Nifti1Image:
        """Return the label image; of maps, the strongest one in each voxel."""
        return strongest(self.image) if self.is_maps else self.image

    @cached_property
    def data(self) -> np.ndarray:
        """Return the label values as an (X, Y, Z) array."""
        return np.asarray(self.image.dataobj)

    @property
    def values(self) -> np.ndarray:
        """Return the label values of the ROIs, sorted."""
        return self.labels["value"].to_numpy()


def load_atlas(
    name: str,
    *,
    space: str | None = None,
    atlas_dir: Path | None = None,
    templateflow_home: Path | None = None,
    cache: Path | None = None,
) -> Atlas:
    """Find, verify and load an atlas.

    Parameters
    ----------
    name : str
        One of `known_atlases`, the path of a folder with `atlas.yaml` and `labels.tsv`, of a BIDS atlas (a folder, or
        an image with a table beside it), or of a label image alone, whose values become the names of its ROIs.
    space : str, optional
        Space in which it is needed: its image for that space or, if it has none, another carried over by TemplateFlow's
        transform. Default: its first image.
    atlas_dir : Path, optional
        Folder with label images under their publishers' names; default: environment variable BOLT_ATLAS_DIR.
    templateflow_home : Path, optional
        Default: environment variable TEMPLATEFLOW_HOME, then ``~/.cache/templateflow``.
    cache : Path, optional
        Folder for images carried over; default: they are not kept.

    Raises
    ------
    ConfigError
        The atlas is unknown.
    DataError
        No image is found (the hint lists all ways to supply one), its checksum is wrong, its labels and the table
        differ, or it cannot be carried over to the space.
    """
    home = templateflow_home
    if is_image(name) and table_of(name) is None:  # ROIs are named by their values, the atlas by the file
        path, stem = Path(name), stem_of(name)
        declared = space_of(path)
        image = read_maps(path) if stem.endswith("_probseg") else read_label_image(path)
        labels = labels_of_image(path)
        atlas = Atlas(atlas_name(path), [declared] if declared else [], labels, image, sha256(path))
    else:
        atlas = _atlas_of_folder(name, space, atlas_dir, home)
    if space is None or space in atlas.spaces or not atlas.spaces:
        return atlas
    source = None if atlas.is_maps else description.source_for(atlas.spaces, space, home)
    if source is None:
        raise description.refuse_space(atlas.name, atlas.spaces, space, home)
    from bolt.atlases.transforms import carry_over  # most atlases need no h5py

    image, facts = carry_over(atlas.image, atlas.name, atlas.sha256, source, space, home, cache)
    _require_same_labels(image, atlas.labels, Path(facts["Transform"]))
    return replace(atlas, spaces=[space], image=image, sha256=_digest(image), carried=facts)


def atlas_of(study: Study, name: str) -> Atlas:
    """Return an atlas of a study's configuration, with its image in the study's space."""
    return _configured_atlas(study.config.atlas_places[name], study.space, study.config.paths)


@lru_cache(maxsize=4)
def _configured_atlas(place: str, space: str | None, paths: Paths) -> Atlas:
    """Load an atlas once for all models and seeds."""
    return load_atlas(
        place,
        space=space,
        atlas_dir=paths.atlas_dir,
        templateflow_home=paths.templateflow_home,
        cache=paths.carried_atlases,
    )


def _atlas_of_folder(name: str, space: str | None, atlas_dir: Path | None, templateflow_home: Path | None) -> Atlas:
    """Load the image of an atlas for a space, or the one that can be carried there."""
    about, labels = description.describe_atlas(name), load_labels(name, atlas_dir=atlas_dir)
    if about.kind == "spheres":
        image = _draw_spheres(about, labels, description.atlas_folder(name))
        return Atlas(about.name, about.spaces, labels, image, _digest(image))
    if space is not None and space not in about.spaces:
        space = description.source_for(about.spaces, space, templateflow_home) if about.kind == "image" else None
    path = description.find_image(about, description.atlas_folder(name), atlas_dir, templateflow_home, space)
    digest = description.verify_image(about, path, space)
    if about.kind == "maps":
        if labels["value"].tolist() != list(range(1, len(labels) + 1)):
            raise DataError("the values of maps must be 1, 2, 3 …", where=path, hint="Number the rows of the table so")
        image = read_maps(path, len(labels))
    else:
        image = read_label_image(path)
        _require_same_labels(image, labels, path)
    spaces = [other for other in about.spaces if about.image_in(other) == about.image_in(space)]
    return Atlas(about.name, spaces, labels, image, digest)


def _digest(image: nib.Nifti1Image) -> str:
    return hashlib.sha256(np.asarray(image.dataobj).tobytes()).hexdigest()


def check_space(atlas: Atlas, space: str) -> None:
    """Refuse an image in a space in which the atlas is not valid: resampling would silently shift every ROI."""
    if space not in atlas.spaces:
        raise description.refuse_space(atlas.name, atlas.spaces, space, None)


def resample_to(atlas: Atlas, shape: tuple[int, int, int], affine: np.ndarray) -> np.ndarray:
    """Resample an atlas to another grid, by nearest neighbour.

    Parameters
    ----------
    atlas : Atlas
    shape : (X, Y, Z)
    affine : (4, 4) array

    Returns
    -------
    (X, Y, Z) int32 array
        Label values; 0 outside the atlas.
    """
    return resample(atlas.data.astype(np.int32), atlas.image.affine, shape, affine, order=0)


def resample(
    data: np.ndarray, own: np.ndarray, shape: tuple[int, int, int], affine: np.ndarray, order: int
) -> np.ndarray:
    """Resample an (X, Y, Z) array with the affine `own` to another grid, as nilearn does; 0 outside.

    `order` is that of the interpolation: 0 is nearest neighbour, 1 linear.
    """
    if data.shape == tuple(shape) and np.allclose(affine, own):
        return data
    from scipy import linalg  # the import of nilearn, which calls the same functions, takes longer than the work
    from scipy.ndimage import affine_transform

    matrix, offset = nib.affines.to_matvec(linalg.inv(own) @ affine)
    is_diagonal = np.all(np.diag(np.diag(matrix)) == matrix)  # computed faster, and along each axis separately
    matrix = np.diag(matrix) if is_diagonal else matrix
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*has changed in SciPy 0.18")  # of a diagonal given as a vector
        return affine_transform(data, matrix, offset, tuple(shape), order=order)


def _require_same_labels(image: nib.Nifti1Image, labels: pd.DataFrame, path: Path) -> None:
    drawn = set(np.unique(np.asarray(image.dataobj)).tolist()) - {0}
    listed = set(labels["value"].tolist())
    for values, text in ((drawn - listed, "in the image but not in labels.tsv"), (listed - drawn, "not in the image")):
        if values:
            what = f"label values {shorten_list(sorted(values), 10)} are {text}"
            raise DataError(what, where=path, hint="Make the two agree")


def _draw_spheres(about: description.AtlasFile, labels: pd.DataFrame, folder: Path) -> nib.Nifti1Image:
    """Draw spheres on a 2-mm grid; a voxel within two spheres belongs to the nearer centre."""
    if about.radius_mm is None or not {"x", "y", "z"} <= set(labels):
        what = "spheres need 'radius_mm' in this file and x, y, z in labels.tsv"
        raise ConfigError(what, where=folder / "atlas.yaml")
    from scipy.spatial import cKDTree  # only spheres wait for it

    centres = labels[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if not (placed := np.isfinite(centres).all(axis=1)).all():
        what = f"x, y or z is missing or no number: {shorten_list(labels['name'][~placed])}"
        raise DataError(what, where=folder / "labels.tsv", hint="Give the centres of the spheres in mm")
    limit = about.radius_mm + 1e-6  # so that a voxel at exactly the radius is inside
    tree = cKDTree(centres)
    near = np.zeros(SPHERE_SHAPE, dtype=bool)  # boxes around the spheres: most of the grid is far from all of them
    middles, reach = nib.affines.apply_affine(np.linalg.inv(SPHERE_AFFINE), centres), limit / SPHERE_AFFINE[0, 0]
    firsts, ends = (np.maximum(edges, 0).astype(int) for edges in (middles - reach, middles + reach + 1))
    for first, end in zip(firsts, ends, strict=True):
        near[tuple(map(slice, first, end))] = True
    positions = nib.affines.apply_affine(SPHERE_AFFINE, np.argwhere(near))
    _, nearest = tree.query(positions, distance_upper_bound=limit)
    drawn = np.zeros(SPHERE_SHAPE, dtype=np.int32)
    drawn[near] = np.append(labels["value"].to_numpy(), 0)[nearest]  # beyond the radius, nearest is one past the last
    image = nib.Nifti1Image(drawn, SPHERE_AFFINE)
    _require_same_labels(image, labels, folder / "labels.tsv")
    return image
