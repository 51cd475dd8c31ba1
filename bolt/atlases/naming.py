"""An atlas known by the names of its ROIs: for ready series of an atlas that BolT does not describe."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from bolt.io.cifti import DLABEL, read_dlabel
from bolt.io.errors import DataError
from bolt.io.files import read_text, write_table, write_yaml
from bolt.io.names import is_name
from bolt.io.series_files import read_named_series

LABEL_COLUMNS = {
    "value": "Value of the ROI in the atlas image; else its number, counted from 1",
    "name": "ROI",
    "network": "Network or group of regions",
    "hemisphere": "L, R or M (midline)",
}
NETWORKS = ("network", "network_label", "label_7network", "network_label_17network", "atlas_name")
"""Columns of tables of labels that name networks, in order of preference."""


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
    labels = _labels_of(source)
    for column in ("value", "name"):
        wrong = labels[column][labels[column].isna() | labels[column].duplicated()]
        if len(wrong):
            raise DataError(f"a {column} is missing or not unique: '{wrong.iloc[0]}'", where=source, hint="Correct it")
    space = re.search(r"(?:space|tpl)-([A-Za-z0-9]+)", source.name)
    about = {
        "name": name,
        "kind": "image",
        "spaces": [space[1] if space else "unknown"],
        "description": f"{len(labels)} ROIs, named by {source.name}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_table(labels.sort_values("value"), folder / "labels.tsv", LABEL_COLUMNS)
    write_yaml(about, folder / "atlas.yaml")
    return len(labels)


def _labels_of(source: Path) -> pd.DataFrame:
    if source.name.endswith("_dseg.tsv"):
        return _of_table(source)
    if source.name.endswith(DLABEL):
        names = read_dlabel(source)[1]
        return _labels(list(names), list(names.values()), None, None)
    return _of_series(source)


def _of_table(path: Path) -> pd.DataFrame:
    """Read a BIDS-Atlas table of labels."""
    table = read_text(path)
    missing = [column for column in ("index", "label") if column not in table]
    if missing:
        raise DataError(
            f"columns missing: {', '.join(missing)}; found {', '.join(table)}",
            where=path,
            hint="Give a BIDS table of labels (index, label)",
        )
    values = pd.to_numeric(table["index"], errors="coerce")
    if (values.isna() | (values % 1 != 0)).any():
        raise DataError("'index' must hold whole numbers", where=path, hint="Correct the column")
    table = table[values > 0].assign(value=values[values > 0].astype(int), name=table["label"])  # 0: background
    networks = next((table[column] for column in NETWORKS if column in table), None)
    sides = table["hemisphere"].str[:1].str.upper() if "hemisphere" in table else None
    return _labels(table["value"].tolist(), table["name"].tolist(), networks, sides)


def _of_series(path: Path) -> pd.DataFrame:
    """Read the names of the columns of ROI series."""
    names = read_named_series(path)[1]
    if names is None:
        raise DataError("its columns have no names", where=path, hint="Give a file with a first row of names")
    return _labels(list(range(1, len(names) + 1)), names, None, None)


def _labels(values: list[int], names: list[str], networks: pd.Series | None, sides: pd.Series | None) -> pd.DataFrame:
    """Return the table of labels; a hemisphere that is not stated is read from the name, as in ``LH_Vis_1``."""
    if sides is None:
        found = [re.match(r"(?:.*[_-])?([LR])H?(?:[_-]|$)", name) for name in names]
        sides = pd.Series([match[1] if match else None for match in found])
    listed = None if networks is None else networks.tolist()
    return pd.DataFrame({"value": values, "name": names, "network": listed, "hemisphere": sides.tolist()})
