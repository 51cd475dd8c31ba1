"""Template heads: the spaces to which images are normalised."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import nibabel as nib

from bolt.io.errors import ConfigError, DataError
from bolt.io.files import atomic

PHANTOM_SPACE = "MNI152NLin2009aSym"
"""The ICBM152 template that nilearn ships: used for the phantom, because it needs no download."""
PARTS: dict[str, dict[str, Any]] = {
    "T1w": {"suffix": "T1w", "desc": None},
    "brain_mask": {"suffix": "mask", "desc": "brain"},
    "gm": {"suffix": "probseg", "label": "GM"},
}
"""Files taken from a TemplateFlow template, as queries."""
OPTIONAL = {"gm"}


def stage_template(space: str, resolution: float, out: Path, templateflow_home: Path | None = None) -> None:
    """Write a template's whole head, brain mask and, if available, grey-matter probability.

    Parameters
    ----------
    space : str
        `PHANTOM_SPACE`, or a TemplateFlow identifier such as ``MNI152NLin6Asym``.
    resolution : float
        Voxel size (mm) at which the phantom's template is made. TemplateFlow's templates are taken at 2 mm if possible,
        else at 1 mm: registration needs no finer one, and the output grid is computed from it.
    out : path
        Folder for ``T1w.nii.gz``, ``brain_mask.nii.gz``, ``gm.nii.gz``.
    templateflow_home : path, optional
        Default: TEMPLATEFLOW_HOME.

    Raises
    ------
    ConfigError
        The space is unknown to TemplateFlow.
    DataError
        Its files are missing and cannot be fetched.
    """
    out.mkdir(parents=True, exist_ok=True)
    if space == PHANTOM_SPACE:
        from bolt.datasets.phantom.anatomy import head_template

        for part, image in head_template(resolution).items():
            with atomic(out / f"{part}.nii.gz") as temporary:
                nib.save(image, temporary)
        return
    for part, path in find_templateflow(space, templateflow_home).items():
        with atomic(out / f"{part}.nii.gz") as temporary:
            shutil.copyfile(path, temporary)


def find_templateflow(space: str, home: Path | None = None) -> dict[str, Path]:
    """Find the `PARTS` of a TemplateFlow template, all at one resolution; fetch missing ones if the network allows.

    Files already in the home are used without any network access.
    """
    os.environ.setdefault("TEMPLATEFLOW_AUTOUPDATE", "false")  # do not refresh the index over the network
    from templateflow.client import TemplateFlowClient

    client = TemplateFlowClient(root=home) if home else TemplateFlowClient()
    client.cache.ensure()
    root = client.cache.config.root
    template, _, cohort = space.partition("_cohort-")
    known = client.cache.layout.get_templates()
    if template in known:  # one that has cohorts is a template for each
        cohorts = client.cache.layout.get(template=template, return_type="id", target="cohort")
        known = [f"{template}_cohort-{number}" for number in cohorts] or [template]
    if space not in known:
        raise ConfigError(f"space '{space}' is unknown to TemplateFlow", where=root, hint=f"Known: {', '.join(known)}")
    hint = (
        f'On a machine with network access: TEMPLATEFLOW_HOME={root} python -c "from templateflow import api; '
        f"api.get('{template}', cohort={cohort or None}, resolution=2, suffix=['T1w', 'mask'])\"; then copy it here"
    )
    required = set(PARTS) - OPTIONAL
    for resolution in (2, 1):  # res-02 is 2 mm and res-01 is 1 mm in TemplateFlow's MNI templates
        kind = {"resolution": resolution, "cohort": int(cohort) if cohort else None, "extension": ".nii.gz"}
        query = {part: kind | PARTS[part] for part in PARTS}
        listed = {part: paths[0] for part in PARTS if (paths := client.ls(template, **query[part]))}
        # TemplateFlow leaves an empty file for each file not fetched yet
        fetched = {part: path for part, path in listed.items() if path.stat().st_size}
        if required <= set(fetched):
            return fetched
        if required <= set(listed):
            for part in listed:
                try:
                    client.get(template, **query[part])
                except Exception as error:  # any network failure: refused, timed out, no route
                    what = f"{part} of '{space}' is missing and cannot be fetched ({error})"
                    raise DataError(what, where=root, hint=hint) from None
            return listed
    raise DataError(f"no T1w and brain mask of '{space}' at 1 or 2 mm", where=root, hint=hint)
