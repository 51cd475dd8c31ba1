"""BIDS metadata of the derivatives: the dataset description, and a JSON sidecar for every image.

Files that BIDS does not define (confounds, transforms, references, quality measures, pages) are named as in fMRIPrep
and listed in ``.bidsignore``. Sources are given as BIDS URIs (``bids::`` for derivatives, ``bids:raw:`` for the raw
dataset); the older key ``RawSources`` is deprecated. Texts are in ``sidecars.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bolt import __version__
from bolt.io.bids import space_of
from bolt.io.files import json_text, read_json, read_yaml, write_if_new, write_json
from bolt.io.volumes import check_image

TEXTS = read_yaml(Path(__file__).with_suffix(".yaml"))


def write_bidsignore(folder: Path) -> None:
    """Write ``.bidsignore``: what BIDS does not define, and empty files that stand in for outputs of failed images.

    Parameters
    ----------
    folder : path
        ``results/<dataset>/derivatives``.
    """
    empty = []
    for path in sorted(folder.glob("sub-*/**/[!.]*.nii.gz")):
        with suppress(FileNotFoundError):  # other jobs write to this folder at the same time
            if not path.stat().st_size:
                empty.append(f"{path.relative_to(folder).as_posix()}\n")
    write_if_new(TEXTS["bidsignore"] + "".join(empty), folder / ".bidsignore")


def describe_dataset(folder: Path, raw: Path, name: str) -> None:
    """Write ``dataset_description.json``, ``.bidsignore`` and ``README`` of a folder of derivatives.

    Every anatomical job calls this, many at once: existing files are left untouched.

    Parameters
    ----------
    folder : path
        ``results/<dataset>/derivatives``.
    raw : path
        The raw dataset; its name, DOI and licence are taken from its own description.
    name : str
        Name of the dataset, used if its description has none.
    """
    raw_description = raw / "dataset_description.json"
    about = read_json(raw_description) if raw_description.is_file() else {}
    source = {"URL": raw.resolve().as_uri()} | ({"DOI": about["DatasetDOI"]} if "DatasetDOI" in about else {})
    description = {
        "Name": f"{about.get('Name', name)}, preprocessed",
        "BIDSVersion": TEXTS["bids_version"],
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "BolT", "Version": __version__, "Description": "bolt.preprocess"}],
        "SourceDatasets": [source],
        "DatasetLinks": {"raw": raw.resolve().as_uri()},
        **{key: about[key] for key in ("License", "Authors") if about.get(key)},
    }
    write_if_new(json_text(description), folder / "dataset_description.json")
    write_bidsignore(folder)
    write_if_new(TEXTS["readme"], folder / "README")


def write_sidecars(paths: Iterable[Path], sources: Iterable[Path], **facts: Any) -> None:
    """Write a JSON sidecar for every image and transform.

    Parameters
    ----------
    paths : iterable of path
        Outputs in a folder of derivatives (``sub-…`` is in their path); tables are skipped, they have their own.
    sources : iterable of path
        Raw or preprocessed files from which they were made.
    **facts
        Additional keys; those under ``only`` in the texts are written for certain suffixes alone.
    """
    paths = list(paths)
    source_uris = [uri(source, dataset_of(paths[0])) for source in sources]
    for path in paths:
        if path.suffix == ".tsv" or not path.stat().st_size:
            continue
        suffix = path.name.split(".")[0].rsplit("_", 1)[-1]
        about: dict[str, Any] = {"Description": TEXTS["descriptions"].get(suffix, suffix)}
        if suffix != "xfm":
            about["SpatialReference"] = "orig"
            if space := space_of(path):
                folder = space.replace("_cohort-", "/cohort-")
                res = "2" if "_cohort-" in space else "02"  # as TemplateFlow writes them
                template = TEXTS["references"].get(space, TEXTS["templates"])
                about["SpatialReference"] = template.format(folder=folder, space=space, res=res)
            if suffix == "mask":
                about["Type"] = "Brain"
            elif suffix not in ("dseg", "probseg"):
                about["SkullStripped"] = False
            sizes = check_image(path).header.get_zooms()[:3]
            about["Resolution"] = "×".join(f"{size:.3g}" for size in sizes) + " mm"
        keys = {key: value for key, value in facts.items() if suffix in TEXTS["only"].get(key, (suffix,))}
        write_json({**about, "Sources": source_uris, **keys}, sidecar_of(path))


def sidecar_of(path: Path) -> Path:
    """Return the path of a file's JSON sidecar: ``….nii.gz`` → ``….json``."""
    return path.with_name(re.sub(r"\.(nii(\.gz)?|h5|txt)$", ".json", path.name))


def dataset_of(path: Path) -> Path:
    """Return the root of the BIDS dataset of a file: the folder that holds its subject's folder."""
    return next((parent.parent for parent in path.parents if parent.name.startswith("sub-")), path.parent)


def uri(path: Path, root: Path) -> str:
    """Return the BIDS URI of a file, relative to the derivatives in `root`."""
    dataset = dataset_of(path.absolute())
    inside = path.absolute().relative_to(dataset).as_posix()
    return f"bids::{inside}" if dataset == root.absolute() else f"bids:raw:{inside}"
