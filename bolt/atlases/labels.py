"""ROIs: their tables (in BolT's columns, those of BIDS, or a publisher's own), label images, and maps of weights.

Probabilistic atlases are 4D images with one map of weights per ROI; maps may overlap.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
import pandas as pd
from nibabel.arrayproxy import ArrayProxy

from bolt.atlases.description import atlas_folder, describe_atlas, find_labels
from bolt.io.bids import is_image, space_of, stem_of
from bolt.io.cifti import DLABEL, read_dlabel
from bolt.io.errors import DataError, readable, shorten_list
from bolt.io.files import columns, read_table, read_text, write_table, write_yaml
from bolt.io.names import is_name
from bolt.io.series_files import read_named_series
from bolt.io.streams import iter_volumes
from bolt.io.volumes import check_image, require_one_place

LABEL_COLUMNS = columns("atlases", "labels")
NAMES = {
    "value": ("value", "index", "component"),
    "name": ("name", "label", "difumo_names"),
    "network": ("network", "network_label", "yeo_networks7", "net name"),
    "hemisphere": ("hemisphere", "hemi", "side"),
}
"""Names of columns in BIDS tables (in lower case), in order of preference; DiFuMo's are TemplateFlow's."""
NONE = ("no network found", "n/a", "none", "nan", "")
NETWORKS = ("network", "network_label", "label_7network", "network_label_17network", "atlas_name")
"""Columns of XCP-D's tables that name networks, in order of preference."""
SIDES = {"l": "L", "lh": "L", "left": "L", "r": "R", "rh": "R", "right": "R", "m": "M", "midline": "M"}


def load_labels(name: str, *, atlas_dir: Path | None = None) -> pd.DataFrame:
    """Load an atlas's table of ROIs, sorted by value, without its image.

    Parameters
    ----------
    name, atlas_dir
        As in `bolt.atlases.image.load_atlas`.

    Raises
    ------
    DataError
        Columns are missing, or values or names are empty or not unique.
    """
    about = describe_atlas(name)
    if is_image(name) and about.labels is None:
        return labels_of_image(Path(name))
    path = find_labels(about, atlas_folder(name), atlas_dir)
    if about.labels is None:
        labels = read_table(path, text=("name", "network", "hemisphere"))
    else:
        labels = _bids_labels(path) if path.suffix == ".tsv" else _schaefer_labels(path)
    missing = [c for c in LABEL_COLUMNS if c not in labels]
    if missing:
        raise DataError(f"columns missing: {', '.join(missing)}", where=path, hint="Add them")
    if not pd.api.types.is_integer_dtype(labels["value"]) or (labels["value"] < 1).any():
        raise DataError("'value' must be a whole number from 1 on", where=path, hint="Correct the column")
    for column in ("value", "name"):
        invalid = labels[column][labels[column].duplicated() | labels[column].isna()].unique()
        if len(invalid):
            what = f"'{column}' empty or not unique: {shorten_list(invalid, 10)}"
            raise DataError(what, where=path, hint="Correct the rows")
    return labels.sort_values("value", ignore_index=True)


def count_rois(name: str, *, atlas_dir: Path | None = None) -> int | None:
    """Return an atlas's number of ROIs; before its publisher's labels are fetched, what the description begins with."""
    try:
        return len(load_labels(name, atlas_dir=atlas_dir))
    except DataError:
        stated = re.match(r"\d+", describe_atlas(name).description)
        return int(stated[0]) if stated else None


def labels_of_image(path: Path) -> pd.DataFrame:
    """Return the table of an image alone: ROIs are named by their values, or by the numbers of maps."""
    if stem_of(path).endswith("_probseg"):
        values = np.arange(1, read_maps(path).shape[3] + 1)
    else:
        values = np.unique(np.asarray(read_label_image(path).dataobj))
        if values[0] < 0 or values[-1] == 0:
            raise DataError("label values must be positive (0 is background)", where=path, hint="Give a label image")
        values = values[values > 0]
    return pd.DataFrame({"value": values, "name": values.astype(str), "network": None, "hemisphere": None})


def read_label_image(path: Path) -> nib.Nifti1Image:
    """Read a 3D image of whole numbers as int32 labels; NaN is background, as SPM writes it."""
    image = check_image(path)
    require_one_place(image, path)
    what, kinds = "the file is truncated or damaged", (OSError, EOFError, ValueError, zlib.error)
    with readable(path, *kinds, what=what, hint="Copy it again", text=False):
        data = np.nan_to_num(np.squeeze(np.asarray(image.dataobj)))
    if data.ndim != 3:
        raise DataError(f"expected a 3D image, but the shape is {image.shape}", where=path, hint="Give a label image")
    labels = np.rint(data).astype(np.int32)  # int8 would wrap above 127
    slope = cast(ArrayProxy, image.dataobj).slope
    off = slope / 2 if 0 < slope < 1 else 0.0  # whole numbers that were scaled are not quite whole, but as many
    if not np.allclose(labels, data, rtol=1e-6, atol=off) or (off and len(np.unique(labels)) < len(np.unique(data))):
        raise DataError("voxels are fractions, not labels", where=path, hint="Give a label image, not probabilities")
    return nib.Nifti1Image(labels, image.affine)


def read_maps(path: Path, n_rois: int | None = None) -> nib.Nifti1Image:
    """Open a 4D image of maps, without reading voxels.

    Raises
    ------
    DataError
        It is not 4D, or has not as many maps as the table has ROIs.
    """
    image = check_image(path)
    require_one_place(image, path)
    if len(image.shape) != 4:
        what = f"expected a 4D image with a map per ROI, but the shape is {image.shape}"
        raise DataError(what, where=path, hint="Give the maps, or describe a label image with 'kind: image'")
    if n_rois is not None and image.shape[3] != n_rois:
        what = f"{image.shape[3]} maps, but the table of labels has {n_rois} rows"
        raise DataError(what, where=path, hint="List the maps in their order, numbered from 1")
    return image


def iter_maps(image: nib.Nifti1Image) -> Iterator[np.ndarray]:
    """Yield the (X, Y, Z) float32 maps of an image from `read_maps`, one at a time; weights not finite become 0."""
    for values in iter_volumes(str(image.get_filename())):
        yield np.where(np.isfinite(values), values, np.float32(0))


def strongest(image: nib.Nifti1Image) -> nib.Nifti1Image:
    """Return a label image of maps: each voxel has the number (from 1) of its strongest map, 0 where all are 0 or less.

    A map that is nowhere the strongest keeps its peak, so that no ROI is lost.
    """
    labels = np.zeros(image.shape[:3], np.int32)
    highest = np.zeros(image.shape[:3], np.float32)
    peaks = []
    for number, values in enumerate(iter_maps(image), 1):
        better = values > highest
        labels[better], highest[better] = number, values[better]
        peaks.append(np.unravel_index(values.argmax(), values.shape))
    for number in np.setdiff1d(np.arange(1, len(peaks) + 1), labels):
        labels[peaks[number - 1]] = number
    return nib.Nifti1Image(labels, image.affine)


def weighted_sum(image: nib.Nifti1Image, values: Sequence[int], numbers: Sequence[float]) -> nib.Nifti1Image:
    """Return the sum of maps, each times its number.

    Parameters
    ----------
    image : nibabel image
        From `read_maps`.
    values : sequence of int
        Numbers of the maps, from 1.
    numbers : sequence of float
        One per value.
    """
    of_map = dict(zip(values, numbers, strict=True))
    total = np.zeros(image.shape[:3], np.float32)
    for value, weights in enumerate(iter_maps(image), 1):
        if of_map.get(value, 0):
            total += np.float32(of_map[value]) * weights
    return nib.Nifti1Image(total, image.affine)


def describe_names(source: Path, folder: Path) -> int:
    """Write ``atlas.yaml`` and ``labels.tsv`` of an atlas, from a file that names its ROIs.

    Parameters
    ----------
    source : Path
        A BIDS-Atlas table (``…_dseg.tsv``: index and label, as XCP-D writes it into ``atlases/``), or ROI series with
        named columns (text with a first row of names, ``.ptseries.nii``), or labels of greyordinates (``.dlabel.nii``).
    folder : Path
        Its name becomes that of the atlas.

    Returns
    -------
    int
        Number of ROIs.

    Raises
    ------
    DataError
        The file names no ROIs, or a name is missing or not unique; or the folder is there already.
    """
    name = folder.name
    if not is_name(name):
        raise DataError(f"'{name}' cannot be the name of an atlas", where=folder, hint="Use letters, digits, _ and -")
    if (folder / "atlas.yaml").exists():
        raise DataError("this atlas is described already", where=folder, hint="Give another --out, or remove it")
    networks = sides = None
    if source.name.endswith("_dseg.tsv"):
        table = read_text(source)
        if missing := [column for column in ("index", "label") if column not in table]:
            what = f"columns missing: {', '.join(missing)}; found {', '.join(table)}"
            raise DataError(what, where=source, hint="Give a BIDS table of labels (index, label)")
        numbers = pd.to_numeric(table["index"], errors="coerce")
        if (numbers.isna() | (numbers % 1 != 0)).any():
            raise DataError("'index' must hold whole numbers", where=source, hint="Correct the column")
        table = table[numbers > 0]  # 0: background
        values, names = numbers[numbers > 0].astype(int).tolist(), table["label"].tolist()
        networks = next((table[column].tolist() for column in NETWORKS if column in table), None)
        sides = table["hemisphere"].str[:1].str.upper().tolist() if "hemisphere" in table else None
    elif source.name.endswith(DLABEL):
        _, named, _ = read_dlabel(source)
        values, names = list(named), list(named.values())
    else:
        listed = read_named_series(source)[1]
        if listed is None:
            raise DataError("its columns have no names", where=source, hint="Give a file with a first row of names")
        values, names = list(range(1, len(listed) + 1)), listed
    if sides is None:  # read from names such as LH_Vis_1
        found = [re.match(r"(?:.*[_-])?([LR])H?(?:[_-]|$)", str(name)) for name in names]
        sides = [match[1] if match else None for match in found]
    labels = pd.DataFrame({"value": values, "name": names, "network": networks, "hemisphere": sides})
    for column in ("value", "name"):
        wrong = labels[column][labels[column].isna() | labels[column].duplicated()]
        if len(wrong):
            raise DataError(f"a {column} is missing or not unique: '{wrong.iloc[0]}'", where=source, hint="Correct it")
    about = {
        "name": name,
        "kind": "image",
        "spaces": [space_of(source) or "unknown"],
        "description": f"{len(labels)} ROIs, named by {source.name}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_table(labels.sort_values("value"), folder / "labels.tsv", LABEL_COLUMNS)
    write_yaml(about, folder / "atlas.yaml")
    return len(labels)


def _schaefer_labels(path: Path) -> pd.DataFrame:
    """Read the publisher's table without header: value, ``<k>Networks_<LH or RH>_<network>_…``, colour."""
    try:
        table = pd.read_csv(path, sep="\t", header=None, usecols=[0, 1], names=["value", "name"])
        parts = table["name"].str.extract(r"^\d+Networks_(?P<name>(?P<hemisphere>[LR])H_(?P<network>[^_]+).*)$")
    except (ValueError, AttributeError, UnicodeDecodeError):  # pandas' parser errors are ValueErrors
        parts = pd.DataFrame({"name": [None]})
    if parts.empty or parts.isna().any(axis=None):
        raise DataError("not the publisher's table of labels", where=path, hint="Fetch it again")
    return table[["value"]].join(parts[["name", "network", "hemisphere"]])


def _bids_labels(path: Path) -> pd.DataFrame:
    """Read a table with a header, as BIDS describes it (index, name or label, …).

    The background (0) is no ROI. Names that repeat get their value appended. The hemisphere is that of its column, else
    of a name such as ``LH_Vis_1``, ``Left Putamen`` or ``thal-rh-pulvinar``.
    """
    table = read_text(path)
    spelt = {str(column).lower(): column for column in reversed(table.columns)}
    found = {key: next((spelt[n] for n in names if n in spelt), None) for key, names in NAMES.items()}
    for key in ("value", "name"):
        if found[key] is None:
            what = f"no column for the ROIs' {key}: none of {', '.join(NAMES[key])} (found: {', '.join(table.columns)})"
            raise DataError(what, where=path, hint="Rename the column")
    labels = pd.DataFrame({key: table[column] if column else None for key, column in found.items()})
    labels["value"] = pd.to_numeric(labels["value"], errors="coerce")
    labels = labels[labels["value"] != 0].reset_index(drop=True)
    repeated = labels["name"].duplicated(keep=False) & labels["name"].notna()
    labels["name"] = labels["name"].where(~repeated, labels["name"] + " " + labels["value"].astype(str))
    network = labels["network"]
    labels["network"] = network.where(~network.astype(str).str.strip().str.lower().isin(NONE), None)
    given = labels["hemisphere"].astype(str).str.strip().str.lower().map(SIDES)
    labels["hemisphere"] = given.fillna(labels["name"].map(_side)).replace({np.nan: None})
    return labels


def _side(name: object) -> str | None:
    """Return the hemisphere that a name states, if it states one."""
    words = re.split(r"[^A-Za-z0-9]+", str(name).lower())
    sides = {SIDES.get(word) for word in words} & {"L", "R"}
    return sides.pop() if len(sides) == 1 else None
