"""What makes the preprocessed files a BIDS derivative dataset: its description, and a JSON file beside every image.

Files that the standard does not name (confounds, transforms, references, quality numbers, pages) are named as fMRIPrep
names them, and listed in ``.bidsignore`` as it lists them. Sources are given as BIDS URIs (``bids::`` here,
``bids:raw:`` there); the older key ``RawSources`` is deprecated.
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
from bolt.preprocess.bidsignore import write_bidsignore

BIDS_VERSION = "1.10.0"
README = """Preprocessed by BolT from the raw data named in dataset_description.json. Names and contents are described
in docs/preprocessing.md of the code; each image has a JSON file beside it.
"""
TEMPLATES = "https://templateflow.s3.amazonaws.com/tpl-{space}/tpl-{space}_res-02_T1w.nii.gz"
ICBM = "https://nist.mni.mcgill.ca/icbm-152-nonlinear-atlases-2009/"
REFERENCES = {"MNI152NLin2009aSym": ICBM}
"""Where spaces are published that TemplateFlow does not hold."""
DESCRIPTIONS = {
    "T1w": "T1-weighted image, bias field removed, RAS order",
    "bold": "BOLD, head motion removed, in one interpolation; zero more than 6 mm from the brain and beyond the field "
    "that every volume acquired",
    "boldref": "Reference of the BOLD series",
    "boldmap": "Temporal signal-to-noise ratio: mean over standard deviation in time",
    "mask": "Brain mask",
    "dseg": "Tissues: 1 grey matter, 2 white matter, 3 cerebrospinal fluid",
    "probseg": "Probability of a tissue",
    "xfm": "Transform of ITK; from-A_to-B resamples images of A on B's grid",
}


def describe_dataset(folder: Path, raw: Path, name: str) -> None:
    """Write ``dataset_description.json``, ``.bidsignore`` and ``README`` of a folder of derivatives.

    Every anatomical job does so, many at once: what is there already stays untouched.

    Parameters
    ----------
    folder : path
        ``results/<dataset>/derivatives``.
    raw : path
        The raw dataset; its name, DOI and licence are taken from its own description.
    name : str
        Of the dataset, where its description has none.
    """
    described = raw / "dataset_description.json"
    about = read_json(described) if described.is_file() else {}
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
    """Write a JSON file beside every image and transform.

    Parameters
    ----------
    paths : iterable of path
        Outputs in a folder of derivatives (``sub-…`` is in their path); tables are left out, they have their own.
    sources : iterable of path
        What they were made of, raw or preprocessed.
    **facts
        More keys; those in `ONLY` for certain files alone.
    """
    paths = list(paths)
    root = dataset_of(paths[0])
    made_of = [uri(source, root) for source in sources]
    for path in paths:
        if path.suffix == ".tsv" or not path.stat().st_size:
            continue
        suffix = path.name.split(".")[0].rsplit("_", 1)[-1]
        keys = {key: value for key, value in facts.items() if suffix in ONLY.get(key, (suffix,))}
        write_json({**_about(path, suffix), "Sources": made_of, **keys}, sidecar_of(path))


ONLY = {
    "Methods": ("T1w", "boldref"),  # the outputs that every way of preprocessing keeps
    **dict.fromkeys(("RepetitionTime", "TaskName", "StartTime", "SliceTimingCorrected"), ("bold",)),
}
"""Keys that only files of certain suffixes have."""


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
    """``….nii.gz`` → ``….json``."""
    return path.with_name(re.sub(r"\.(nii(\.gz)?|h5|txt)$", ".json", path.name))


def dataset_of(path: Path) -> Path:
    """Folder of the BIDS dataset that a file lies in: the one with its subject's folder."""
    for parent in path.parents:
        if parent.name.startswith("sub-"):
            return parent.parent
    return path.parent


def uri(path: Path, root: Path) -> str:
    """BIDS URI of a file, seen from the derivatives in `root`."""
    own = dataset_of(path.absolute())
    inside = path.absolute().relative_to(own).as_posix()
    return f"bids::{inside}" if own == root.absolute() else f"bids:raw:{inside}"


def task_of(path: Path) -> str:
    """The ``task-`` entity of a BIDS name."""
    found = re.search(r"_task-([A-Za-z0-9]+)", path.name)
    return found.group(1) if found else "unknown"


def methods_of(workflow: Workflow) -> list[str]:
    """Paragraphs that a workflow and those within it carry (``__desc__``), outer first."""
    own = " ".join(getattr(workflow, "__desc__", "").split())
    inner = sorted((node for node in workflow._graph.nodes() if isinstance(node, Workflow)), key=lambda w: w.name)
    return [text for text in [own, *(text for one in inner for text in methods_of(one))] if text]
