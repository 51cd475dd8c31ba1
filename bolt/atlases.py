"""Atlases: find the label image, verify it, bring it onto a grid. ROIs go by label value, never by position.

An atlas is a folder with `atlas.yaml` (the keys of `AtlasFile`) and `labels.tsv` (value, name, network,
hemisphere, and centres x, y, z in mm). A user's own atlas is such a folder anywhere, given by its path.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn.image import resample_img
from pydantic import Field
from scipy.spatial import cKDTree

from bolt.config import ROOT, Keys, parse
from bolt.errors import ConfigError, DataError
from bolt.files import read_table, read_yaml, sha256
from bolt.volumes import check_image

ATLASES = ROOT / "atlases"
ATLAS_DIR = "BOLT_ATLAS_DIR"
LABEL_COLUMNS = ("value", "name", "network", "hemisphere")
SPHERE_AFFINE = np.array([[2.0, 0, 0, -90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
SPHERE_SHAPE = (91, 109, 91)  # the 2-mm grid of FSL's MNI152, left to right


class AtlasFile(Keys):
    """Keys of `atlas.yaml`."""

    name: str
    kind: Literal["image", "spheres"] = "image"
    spaces: list[str] = Field(min_length=1, description="reference spaces it may be used in (TemplateFlow's names)")
    description: str = ""
    file: str | None = Field(None, description="the publisher's file name (image)")
    templateflow: str | None = Field(None, description="path of the same image in a TemplateFlow home")
    url: str | None = Field(None, description="where the publisher offers it")
    sha256: list[str] = Field([], description="accepted checksums of the file; none: not compared (own atlas)")
    radius_mm: float | None = Field(None, gt=0, description="radius of the spheres")
    source: str = ""
    licence: str = ""
    citation: str = ""
    doi: str = ""


@dataclass(frozen=True)
class Atlas:
    """A verified label image and the names of its labels.

    Attributes
    ----------
    name : str
    spaces : list of str
        Reference spaces the labels are valid in.
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


def known_atlases() -> list[str]:
    """Names of the atlases that come with BolT, sorted."""
    return sorted(path.parent.name for path in ATLASES.glob("*/atlas.yaml"))


def describe_atlas(name: str) -> AtlasFile:
    """Read the `atlas.yaml` of an atlas by name, or of the folder that `name` is the path of."""
    path = atlas_folder(name) / "atlas.yaml"
    about = parse(AtlasFile, read_yaml(path), path)
    if about.name != path.parent.name:
        raise ConfigError(
            f"atlas '{about.name}' lies in folder '{path.parent.name}'", where=path, mend="Make them equal"
        )
    return about


def load_labels(name: str) -> pd.DataFrame:
    """The table of ROIs of an atlas, by value; the image is not needed.

    Raises
    ------
    DataError
        Where columns are missing, or values or names are empty or not unique.
    """
    path = atlas_folder(name) / "labels.tsv"
    labels = read_table(path, text=("name", "network", "hemisphere"))
    missing = [c for c in LABEL_COLUMNS if c not in labels]
    if missing:
        raise DataError(f"columns missing: {', '.join(missing)}", where=path, mend="Add them")
    if not pd.api.types.is_integer_dtype(labels["value"]) or (labels["value"] < 1).any():
        raise DataError("'value' must hold whole numbers from 1", where=path, mend="Correct the column")
    for column in ("value", "name"):
        twice = labels[column][labels[column].duplicated() | labels[column].isna()].unique()
        if len(twice):
            raise DataError(f"'{column}' empty or not unique: {_some(twice)}", where=path, mend="Correct the rows")
    return labels.sort_values("value", ignore_index=True)


def load_atlas(name: str, *, atlas_dir: Path | None = None, templateflow_home: Path | None = None) -> Atlas:
    """Find, verify and load an atlas.

    Parameters
    ----------
    name : str
        One of `known_atlases`, or the path of a folder with `atlas.yaml` and `labels.tsv`.
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
    about, labels = describe_atlas(name), load_labels(name)
    if about.kind == "spheres":
        image = _draw_spheres(about, labels, atlas_folder(name))
        digest = hashlib.sha256(np.asarray(image.dataobj).tobytes()).hexdigest()
    else:
        path = _find(about, atlas_folder(name), atlas_dir, templateflow_home)
        digest = sha256(path)
        if about.sha256 and digest not in about.sha256:
            raise DataError(
                f"this is not the file atlas '{about.name}' was described from (sha256 {digest}, "
                f"not {' or '.join(about.sha256)})",
                where=path,
                mend="Fetch the publisher's file again, or describe yours as an atlas of its own",
            )
        image = _read_labels(path)
        _compare(image, labels, path)
    return Atlas(about.name, about.spaces, labels, image, digest)


def check_space(atlas: Atlas, space: str) -> None:
    """Refuse an image in a space the atlas is not valid in (silent resampling would shift every ROI)."""
    if space not in atlas.spaces:
        raise DataError(
            f"atlas '{atlas.name}' is in {' or '.join(atlas.spaces)}, but the image is in {space}",
            mend="Choose an atlas of that space, or preprocess to the atlas's space",
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


def atlas_folder(name: str) -> Path:
    """The folder of an atlas by name, or the folder that `name` is the path of."""
    for folder in (ATLASES / name, Path(name)):
        if (folder / "atlas.yaml").is_file():
            return folder
    raise ConfigError(
        f"unknown atlas '{name}'",
        mend=f"Known: {', '.join(known_atlases())}; or give the path of a folder with atlas.yaml and labels.tsv",
    )


def _find(about: AtlasFile, folder: Path, atlas_dir: Path | None, templateflow_home: Path | None) -> Path:
    """Look where the user says, in the TemplateFlow home, then beside `atlas.yaml` (own and staged images)."""
    if about.file is None:
        raise ConfigError("key 'file' is missing", where=folder / "atlas.yaml", mend="Name the label image")
    named = atlas_dir or (Path(os.environ[ATLAS_DIR]) if os.environ.get(ATLAS_DIR) else None)
    home = templateflow_home or Path(os.environ.get("TEMPLATEFLOW_HOME") or Path.home() / ".cache" / "templateflow")
    names = [about.file, about.file.removesuffix(".gz")]
    places = [named / n for n in names] if named else []
    places += [home / about.templateflow] if about.templateflow else []
    places += [folder / n for n in names]
    for place in places:
        if place.is_file() and place.stat().st_size:  # TemplateFlow lists what it has not fetched as empty files
            return place
    ways = [f"put {about.file} into the folder that 'paths: atlas_dir' or {ATLAS_DIR} names ({named or 'now: none'})"]
    if about.templateflow:
        ways.append(f"fill the TemplateFlow home ({home}) with {about.templateflow}")
    ways.append(f"run `snakemake resources`, which stages it from {about.url}" if about.url else f"see {about.source}")
    raise DataError(f"no label image for atlas '{about.name}'", mend="Either " + "; or ".join(ways))


def _read_labels(path: Path) -> nib.Nifti1Image:
    image = check_image(path)
    data = np.squeeze(np.asarray(image.dataobj))
    if data.ndim != 3:
        raise DataError(f"an atlas is 3D, this image has shape {image.shape}", where=path, mend="Give a label image")
    labels = np.rint(data).astype(np.int32)  # int8 would wrap above 127
    if not np.array_equal(labels, data):
        raise DataError("voxels hold fractions, not labels", where=path, mend="Give a label image, not probabilities")
    return nib.Nifti1Image(labels, image.affine)


def _compare(image: nib.Nifti1Image, labels: pd.DataFrame, path: Path) -> None:
    found = set(np.unique(np.asarray(image.dataobj)).tolist()) - {0}
    listed = set(labels["value"].tolist())
    for values, text in ((found - listed, "in the image but not in labels.tsv"), (listed - found, "not in the image")):
        if values:
            raise DataError(f"label values {_some(sorted(values))} are {text}", where=path, mend="Make the two agree")


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
