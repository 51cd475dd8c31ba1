"""Tables of ROIs: value, name, network and hemisphere, in BolT's columns, those of BIDS, or a publisher's own."""

from __future__ import annotations

import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd

from bolt.atlases.description import atlas_folder, describe_atlas, find_labels
from bolt.atlases.maps import read_maps
from bolt.io.bids_names import is_image, stem_of
from bolt.io.errors import DataError
from bolt.io.files import read_table
from bolt.io.text import shorten_list
from bolt.io.volumes import check_image, require_one_place

LABEL_COLUMNS = ("value", "name", "network", "hemisphere")
NAMES = {
    "value": ("value", "index", "component"),
    "name": ("name", "label", "difumo_names"),
    "network": ("network", "network_label", "yeo_networks7", "net name"),
    "hemisphere": ("hemisphere", "hemi", "side"),
}
"""Names of columns in BIDS tables (in lower case), in order of preference; DiFuMo's are TemplateFlow's."""
NONE = ("no network found", "n/a", "none", "nan", "")
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
            raise DataError(
                f"'{column}' empty or not unique: {shorten_list(invalid, 10)}", where=path, hint="Correct the rows"
            )
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
    """Read a 3D image of whole numbers as int32 labels."""
    image = check_image(path)
    require_one_place(image, path)
    data = np.squeeze(np.asarray(image.dataobj))
    if data.ndim != 3:
        raise DataError(f"expected a 3D image, but the shape is {image.shape}", where=path, hint="Give a label image")
    labels = np.rint(data).astype(np.int32)  # int8 would wrap above 127
    if not np.array_equal(labels, data):
        raise DataError("voxels are fractions, not labels", where=path, hint="Give a label image, not probabilities")
    return nib.Nifti1Image(labels, image.affine)


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
    table = read_table(path, text=tuple(c for c in _header(path) if c.lower() not in NAMES["value"]))
    columns = {str(column).lower(): column for column in reversed(table.columns)}
    found = {key: next((columns[n] for n in names if n in columns), None) for key, names in NAMES.items()}
    for key in ("value", "name"):
        if found[key] is None:
            raise DataError(
                f"no column for the ROIs' {key}: none of {', '.join(NAMES[key])} (found: {', '.join(table.columns)})",
                where=path,
                hint="Rename the column",
            )
    labels = pd.DataFrame({key: table[column] if column else None for key, column in found.items()})
    labels = labels[labels["value"] != 0].reset_index(drop=True)
    repeated = labels["name"].duplicated(keep=False) & labels["name"].notna()
    labels["name"] = labels["name"].where(~repeated, labels["name"] + " " + labels["value"].astype(str))
    network = labels["network"]
    labels["network"] = network.where(~network.astype(str).str.strip().str.lower().isin(NONE), None)
    given = labels["hemisphere"].astype(str).str.strip().str.lower().map(SIDES)
    labels["hemisphere"] = given.fillna(labels["name"].map(_side)).replace({np.nan: None})
    return labels


def _header(path: Path) -> list[str]:
    return path.open(encoding="utf-8-sig").readline().rstrip("\r\n").split("\t")


def _side(name: object) -> str | None:
    """Return the hemisphere that a name states, if it states one."""
    words = re.split(r"[^A-Za-z0-9]+", str(name).lower())
    sides = {SIDES[word] for word in words if word in ("lh", "rh", "left", "right") or word in (words[-1:] and "lr")}
    return sides.pop() if len(sides) == 1 else None
