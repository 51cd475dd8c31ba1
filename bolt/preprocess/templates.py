"""Template heads: the spaces that images are brought into."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import nibabel as nib

from bolt.io.errors import ConfigError, DataError
from bolt.io.files import atomic

PHANTOM_SPACE = "MNI152NLin2009aSym"
"""The ICBM152 template that nilearn ships; it needs no download and serves the phantom."""
PARTS: dict[str, dict[str, Any]] = {
    "T1w": {"suffix": "T1w", "desc": None},
    "brain_mask": {"suffix": "mask", "desc": "brain"},
    "gm": {"suffix": "probseg", "label": "GM"},
}
"""What is taken of a TemplateFlow template, as its queries."""
OPTIONAL = {"gm"}


def stage_template(space: str, resolution: float, out: Path, templateflow_home: Path | None = None) -> None:
    """Write a template's whole head, brain mask and, where known, grey-matter probability.

    Parameters
    ----------
    space : str
        `PHANTOM_SPACE`, or a TemplateFlow identifier such as ``MNI152NLin6Asym``.
    resolution : float
        Voxel size wanted, mm. The phantom's template is made at it; of TemplateFlow's the finest that is not
        finer than 2 mm is preferred, since registration needs no more (the output grid is computed from it).
    out : path
        Folder for ``T1w.nii.gz``, ``brain_mask.nii.gz``, ``gm.nii.gz``.
    templateflow_home : path, optional
        Default: what TEMPLATEFLOW_HOME says.

    Raises
    ------
    ConfigError
        Where TemplateFlow does not know the space.
    DataError
        Where its files are not there and cannot be fetched.
    """
    out.mkdir(parents=True, exist_ok=True)
    if space == PHANTOM_SPACE:
        from bolt.datasets.phantom.dataset import head_template

        for part, image in head_template(resolution).items():
            with atomic(out / f"{part}.nii.gz") as temporary:
                nib.save(image, temporary)
        return
    for part, path in find_templateflow(space, templateflow_home).items():
        with atomic(out / f"{part}.nii.gz") as temporary:
            shutil.copyfile(path, temporary)


def find_templateflow(space: str, home: Path | None = None) -> dict[str, Path]:
    """Files of a TemplateFlow template by `PARTS`, all at one resolution; fetched where the machine may.

    Files that are in the home are taken without any network.
    """
    client = _client(home)
    where = client.cache.config.root
    known = client.cache.layout.get_templates()
    if space not in known:
        raise ConfigError(f"space '{space}' is unknown to TemplateFlow", where=where, hint=f"Known: {', '.join(known)}")
    for resolution in (2, 1):  # res-02 is 2 mm and res-01 is 1 mm in the MNI templates of TemplateFlow
        listed = {part: client.ls(space, resolution=resolution, extension=".nii.gz", **PARTS[part]) for part in PARTS}
        # an empty file stands for one that TemplateFlow has not fetched yet
        there = {part: paths[0] for part, paths in listed.items() if paths and paths[0].stat().st_size}
        if set(PARTS) - OPTIONAL <= set(there):
            return there
        if set(PARTS) - OPTIONAL <= {part for part, paths in listed.items() if paths}:
            return {part: _fetch(client, space, resolution, part) for part, paths in listed.items() if paths}
    raise DataError(f"no T1w and brain mask of '{space}' at 1 or 2 mm", where=where, hint=_fill(space, where))


def _client(home: Path | None) -> Any:
    os.environ.setdefault("TEMPLATEFLOW_AUTOUPDATE", "false")  # the index is not refreshed over the network
    from templateflow.client import TemplateFlowClient

    client = TemplateFlowClient(root=home) if home else TemplateFlowClient()
    client.cache.ensure()
    return client


def _fetch(client: Any, space: str, resolution: int, part: str) -> Path:
    try:
        found = client.get(space, resolution=resolution, extension=".nii.gz", **PARTS[part])
    except Exception as error:  # whatever the network says: refused, timed out, no route
        where = client.cache.config.root
        raise DataError(
            f"{part} of '{space}' is not there and cannot be fetched ({error})", where=where, hint=_fill(space, where)
        ) from None
    return Path(found[0] if isinstance(found, list) else found)


def _fill(space: str, home: Path) -> str:
    return (
        f'On a machine with network: TEMPLATEFLOW_HOME={home} python -c "from templateflow import api; '
        f"api.get('{space}', resolution=2, suffix=['T1w', 'mask'])\"; then copy the folder here"
    )
