"""Atlases: load a verified label image, bring it onto a grid. ROIs go by label value, never by position.

An atlas is a folder with `atlas.yaml` and `labels.tsv` (value, name, network, hemisphere, and centres x, y, z in mm);
`bolt.atlases.description` knows what is in it and where the image is. Users give their own atlas by the path of such a
folder, or, on the command line, by a bare label image.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn.image import resample_img
from scipy.spatial import cKDTree

from bolt.atlases.description import AtlasFile, atlas_folder, describe_atlas, find_image, find_labels, verify_image
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table, sha256
from bolt.io.volumes import check_image, space_of

LABEL_COLUMNS = ("value", "name", "network", "hemisphere")
SPHERE_AFFINE = np.array([[2.0, 0, 0, -90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
SPHERE_SHAPE = (91, 109, 91)  # the 2-mm grid of FSL's MNI152, left to right


@dataclass(frozen=True)
class Atlas:
    """A verified label image and the names of its labels.

    Attributes
    ----------
    name : str
    spaces : list of str
        Reference spaces the labels are valid in; empty where a bare image declares none.
    labels : DataFrame
        value (int), name, network, hemisphere (L, R, M) and, where known, x, y, z; one row an ROI, by value.
    image : nibabel image
        (X, Y, Z) int32 label values; 0 is background.
    sha256 : str
        Of the file, or of the drawn labels (spheres).
    """

    name: str
    spaces: list[str]
    labels: pd.DataFrame
    image: nib.Nifti1Image
    sha256: str

    @cached_property
    def data(self) -> np.ndarray:
        return np.asarray(self.image.dataobj)

    @property
    def values(self) -> np.ndarray:
        return self.labels["value"].to_numpy()


def load_labels(name: str, *, atlas_dir: Path | None = None) -> pd.DataFrame:
    """The table of ROIs of an atlas, by value; the image is not needed.

    Parameters
    ----------
    name, atlas_dir
        As `load_atlas`.

    Raises
    ------
    DataError
        Where columns are missing, or values or names are empty or not unique.
    """
    about = describe_atlas(name)
    path = find_labels(about, atlas_folder(name), atlas_dir)
    labels = _schaefer_labels(path) if about.labels else read_table(path, text=("name", "network", "hemisphere"))
    missing = [c for c in LABEL_COLUMNS if c not in labels]
    if missing:
        raise DataError(f"columns missing: {', '.join(missing)}", where=path, hint="Add them")
    if not pd.api.types.is_integer_dtype(labels["value"]) or (labels["value"] < 1).any():
        raise DataError("'value' must hold whole numbers from 1", where=path, hint="Correct the column")
    for column in ("value", "name"):
        twice = labels[column][labels[column].duplicated() | labels[column].isna()].unique()
        if len(twice):
            raise DataError(f"'{column}' empty or not unique: {_some(twice)}", where=path, hint="Correct the rows")
    return labels.sort_values("value", ignore_index=True)


def load_atlas(name: str, *, atlas_dir: Path | None = None, templateflow_home: Path | None = None) -> Atlas:
    """Find, verify and load an atlas.

    Parameters
    ----------
    name : str
        One of `known_atlases`, the path of a folder with `atlas.yaml` and `labels.tsv`, or the path of a label image
        (``.nii``, ``.nii.gz``), whose values become the names of its ROIs.
    atlas_dir : Path, optional
        Folder with label images under their publishers' names; default: the variable BOLT_ATLAS_DIR.
    templateflow_home : Path, optional
        Default: the variable TEMPLATEFLOW_HOME, then ``~/.cache/templateflow``.

    Raises
    ------
    ConfigError
        The atlas is unknown.
    DataError
        No image is found (the message says all ways to supply one), its checksum is wrong, or its labels and
        the table differ.
    """
    if name.endswith((".nii", ".nii.gz")):
        return _bare_image(Path(name))
    about, labels = describe_atlas(name), load_labels(name, atlas_dir=atlas_dir)
    if about.kind == "spheres":
        image = _draw_spheres(about, labels, atlas_folder(name))
        digest = hashlib.sha256(np.asarray(image.dataobj).tobytes()).hexdigest()
    else:
        path = find_image(about, atlas_folder(name), atlas_dir, templateflow_home)
        digest = verify_image(about, path)
        image = _read_labels(path)
        _compare(image, labels, path)
    return Atlas(about.name, about.spaces, labels, image, digest)


def check_space(atlas: Atlas, space: str) -> None:
    """Refuse an image in a space the atlas is not valid in (silent resampling would shift every ROI)."""
    if space not in atlas.spaces:
        raise DataError(
            f"atlas '{atlas.name}' is in {' or '.join(atlas.spaces)}, but the image is in {space}",
            hint="Choose an atlas of that space, or preprocess to the atlas's space",
        )


def resample_to(atlas: Atlas, shape: tuple[int, int, int], affine: np.ndarray) -> np.ndarray:
    """The atlas on another grid, by nearest neighbour.

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
    image = resample_img(
        atlas.image, affine, shape, interpolation="nearest", copy=False, force_resample=False, copy_header=True
    )
    return np.asarray(image.dataobj).astype(np.int32)


def _bare_image(path: Path) -> Atlas:
    """A label image that nothing describes: ROIs are named by their values, the atlas by the file."""
    image = _read_labels(path)
    values = np.unique(np.asarray(image.dataobj))
    if values[0] < 0 or values[-1] == 0:
        raise DataError("labels must be positive, 0 is background", where=path, hint="Give a label image")
    values = values[values > 0]
    labels = pd.DataFrame({"value": values, "name": values.astype(str), "network": None, "hemisphere": None})
    stem = path.name.removesuffix(".gz").removesuffix(".nii")
    declared = space_of(path) or next(iter(re.findall(r"^tpl-([A-Za-z0-9]+)", stem)), None)
    return Atlas(re.sub("[^A-Za-z0-9]", "", stem), [declared] if declared else [], labels, image, sha256(path))


def _schaefer_labels(path: Path) -> pd.DataFrame:
    """The publisher's table: value, ``<k>Networks_<LH or RH>_<network>_…``, and a colour; no header."""
    try:
        table = pd.read_csv(path, sep="\t", header=None, usecols=[0, 1], names=["value", "name"])
        parts = table["name"].str.extract(r"^\d+Networks_(?P<name>(?P<hemisphere>[LR])H_(?P<network>[^_]+).*)$")
    except (ValueError, AttributeError, UnicodeDecodeError):  # pandas' parser errors are ValueErrors
        parts = pd.DataFrame({"name": [None]})
    if parts.empty or parts.isna().any(axis=None):
        raise DataError("not the publisher's table of labels", where=path, hint="Fetch it again")
    return table[["value"]].join(parts[["name", "network", "hemisphere"]])


def _read_labels(path: Path) -> nib.Nifti1Image:
    image = check_image(path)
    data = np.squeeze(np.asarray(image.dataobj))
    if data.ndim != 3:
        raise DataError(f"an atlas is 3D, this image has shape {image.shape}", where=path, hint="Give a label image")
    labels = np.rint(data).astype(np.int32)  # int8 would wrap above 127
    if not np.array_equal(labels, data):
        raise DataError("voxels hold fractions, not labels", where=path, hint="Give a label image, not probabilities")
    return nib.Nifti1Image(labels, image.affine)


def _compare(image: nib.Nifti1Image, labels: pd.DataFrame, path: Path) -> None:
    found = set(np.unique(np.asarray(image.dataobj)).tolist()) - {0}
    listed = set(labels["value"].tolist())
    for values, text in ((found - listed, "in the image but not in labels.tsv"), (listed - found, "not in the image")):
        if values:
            raise DataError(f"label values {_some(sorted(values))} are {text}", where=path, hint="Make the two agree")


def _draw_spheres(about: AtlasFile, labels: pd.DataFrame, folder: Path) -> nib.Nifti1Image:
    """Spheres on a 2-mm grid; a voxel in reach of two centres goes to the nearer one."""
    if about.radius_mm is None or not {"x", "y", "z"} <= set(labels):
        raise ConfigError("spheres need 'radius_mm' here and x, y, z in labels.tsv", where=folder / "atlas.yaml")
    voxels = np.indices(SPHERE_SHAPE).reshape(3, -1).T
    centres = cKDTree(labels[["x", "y", "z"]].to_numpy(float))
    places = nib.affines.apply_affine(SPHERE_AFFINE, voxels)
    reach = about.radius_mm + 1e-6  # a voxel at exactly the radius belongs to the sphere
    _, nearest = centres.query(places, distance_upper_bound=reach)
    values = np.append(labels["value"].to_numpy(), 0)[nearest]  # out of reach: one past the last centre
    image = nib.Nifti1Image(values.reshape(SPHERE_SHAPE).astype(np.int32), SPHERE_AFFINE)
    _compare(image, labels, folder / "labels.tsv")
    return image


def _some(values: object) -> str:
    listed = [str(v) for v in values]  # type: ignore[attr-defined]
    return ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
