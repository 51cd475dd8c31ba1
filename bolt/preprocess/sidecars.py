"""BIDS metadata of the derivatives: the dataset description, and a JSON sidecar for every image.

Files that BIDS does not define (confounds, transforms, references, quality measures, pages) are named as in fMRIPrep
and listed in ``.bidsignore``. Sources are given as BIDS URIs (``bids::`` for derivatives, ``bids:raw:`` for the raw
dataset); the older key ``RawSources`` is deprecated.

The ``.bidsignore`` file of the derivatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nipype import Workflow

from bolt import __version__
from bolt.io.files import json_text, read_json, write_if_new, write_json
from bolt.io.volumes import check_image, space_of

IGNORED = """*.html
figures
*_xfm.*
*_boldref.*
*_boldmap.*
*_timeseries.*
*desc-quality.json
*status.json
*crash.txt
*provenance.json
"""
"""Files whose names BIDS does not define; fMRIPrep lists the same kinds."""


def write_bidsignore(folder: Path) -> None:
    """Write ``.bidsignore``: `IGNORED`, and the empty files that stand in for the outputs of failed images.

    Parameters
    ----------
    folder : path
        ``results/<dataset>/derivatives``.
    """
    empty = sorted(path for path in folder.glob("sub-*/**/[!.]*.nii.gz") if _is_empty(path))
    lines = "".join(f"{path.relative_to(folder).as_posix()}\n" for path in empty)
    write_if_new(IGNORED + lines, folder / ".bidsignore")


def _is_empty(path: Path) -> bool:
    try:
        return not path.stat().st_size
    except FileNotFoundError:  # other jobs write to this folder at the same time
        return False


BIDS_VERSION = "1.10.0"
README = """Preprocessed by BolT from the raw data named in dataset_description.json. File names and contents are
described in docs/preprocessing.md of the code; each image has a JSON sidecar.
"""
TEMPLATES = "https://templateflow.s3.amazonaws.com/tpl-{space}/tpl-{space}_res-02_T1w.nii.gz"
ICBM = "https://nist.mni.mcgill.ca/icbm-152-nonlinear-atlases-2009/"
REFERENCES = {"MNI152NLin2009aSym": ICBM}
"""Where spaces are published that TemplateFlow lacks."""
DESCRIPTIONS = {
    "T1w": "T1-weighted image, bias-corrected, RAS order",
    "bold": "BOLD series, corrected for head motion, resampled in one interpolation; zero more than 6 mm from the "
    "brain and outside the field of view (acquired in at least 95 % of the volumes)",
    "boldref": "Reference of the BOLD series",
    "boldmap": "Temporal signal-to-noise ratio: mean over standard deviation in time",
    "mask": "Brain mask",
    "dseg": "Tissue segmentation: 1 grey matter, 2 white matter, 3 cerebrospinal fluid",
    "probseg": "Tissue probability",
    "xfm": "ITK transform; from-A_to-B resamples images of A onto the grid of B",
}
ONLY = {
    "Methods": ("T1w", "boldref"),  # the outputs written in every mode of preprocessing
    **dict.fromkeys(("RepetitionTime", "TaskName", "StartTime", "SliceTimingCorrected"), ("bold",)),
}
"""Keys that apply only to files with certain suffixes."""


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
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "BolT", "Version": __version__, "Description": "bolt.preprocess"}],
        "SourceDatasets": [source],
        "DatasetLinks": {"raw": raw.resolve().as_uri()},
        **{key: about[key] for key in ("License", "Authors") if about.get(key)},
    }
    write_if_new(json_text(description), folder / "dataset_description.json")
    write_bidsignore(folder)
    write_if_new(README, folder / "README")


def write_sidecars(paths: Iterable[Path], sources: Iterable[Path], **facts: Any) -> None:
    """Write a JSON sidecar for every image and transform.

    Parameters
    ----------
    paths : iterable of path
        Outputs in a folder of derivatives (``sub-…`` is in their path); tables are skipped, they have their own.
    sources : iterable of path
        Raw or preprocessed files from which they were made.
    **facts
        Additional keys; those in `ONLY` are written for certain suffixes alone.
    """
    paths = list(paths)
    root = dataset_of(paths[0])
    source_uris = [uri(source, root) for source in sources]
    for path in paths:
        if path.suffix == ".tsv" or not path.stat().st_size:
            continue
        suffix = path.name.split(".")[0].rsplit("_", 1)[-1]
        keys = {key: value for key, value in facts.items() if suffix in ONLY.get(key, (suffix,))}
        write_json({**_about(path, suffix), "Sources": source_uris, **keys}, sidecar_of(path))


def _about(path: Path, suffix: str) -> dict[str, Any]:
    about: dict[str, Any] = {"Description": DESCRIPTIONS.get(suffix, suffix)}
    if suffix == "xfm":
        return about
    space = space_of(path)
    about["SpatialReference"] = "orig" if space is None else REFERENCES.get(space, TEMPLATES.format(space=space))
    if suffix == "mask":
        about["Type"] = "Brain"
    elif suffix not in ("dseg", "probseg"):
        about["SkullStripped"] = False
    sizes = check_image(path).header.get_zooms()[:3]
    about["Resolution"] = "×".join(f"{size:.3g}" for size in sizes) + " mm"
    return about


def sidecar_of(path: Path) -> Path:
    """Return the path of a file's JSON sidecar: ``….nii.gz`` → ``….json``."""
    return path.with_name(re.sub(r"\.(nii(\.gz)?|h5|txt)$", ".json", path.name))


def dataset_of(path: Path) -> Path:
    """Return the root of the BIDS dataset of a file: the folder that holds its subject's folder."""
    for parent in path.parents:
        if parent.name.startswith("sub-"):
            return parent.parent
    return path.parent


def uri(path: Path, root: Path) -> str:
    """Return the BIDS URI of a file, relative to the derivatives in `root`."""
    dataset = dataset_of(path.absolute())
    inside = path.absolute().relative_to(dataset).as_posix()
    return f"bids::{inside}" if dataset == root.absolute() else f"bids:raw:{inside}"


def task_of(path: Path) -> str:
    """Return the ``task-`` entity of a BIDS name."""
    match = re.search(r"_task-([A-Za-z0-9]+)", path.name)
    return match.group(1) if match else "unknown"


def methods_of(workflow: Workflow) -> list[str]:
    """Return the methods paragraphs (``__desc__``) of a workflow and its nested workflows, outer first."""
    paragraph = " ".join(getattr(workflow, "__desc__", "").split())
    nested = sorted((node for node in workflow._graph.nodes() if isinstance(node, Workflow)), key=lambda w: w.name)
    return [text for text in [paragraph, *(text for inner in nested for text in methods_of(inner))] if text]
