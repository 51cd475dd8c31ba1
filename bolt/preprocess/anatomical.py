"""The anatomical half: T1w to template, once a subject (or session)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from nipype import Node, Workflow
from nipype.interfaces.utility import IdentityInterface

from bolt.config import Registration
from bolt.errors import DataError
from bolt.files import keep, write_json
from bolt.preprocess import pictures, quality
from bolt.preprocess.anatomical_steps import BrainMask, Conform, Normalise
from bolt.preprocess.steps import run
from bolt.volumes import check_image


def init_anatomical_wf(settings: Registration, name: str = "anatomical") -> Workflow:
    """Workflow: bias field, brain mask, normalisation.

    Inputs (``inputnode``): t1w, template, template_mask. Outputs (``outputnode``): t1w (bias-corrected, RAS), mask,
    forward and inverse (composite transforms to the template and back), warped (T1w in template space).
    """
    workflow = Workflow(name)
    keys = settings.model_dump()
    source = Node(IdentityInterface(["t1w", "template", "template_mask"]), "inputnode")
    conform = Node(Conform(settings=keys), "conform")
    brain = Node(BrainMask(settings=keys), "brain")
    normalise = Node(Normalise(settings=keys), "normalise")
    result = Node(IdentityInterface(["t1w", "mask", "forward", "inverse", "warped"]), "outputnode")
    templates = [("template", "template"), ("template_mask", "template_mask")]
    workflow.connect(
        [
            (source, conform, [("t1w", "t1w")]),
            (source, brain, templates),
            (source, normalise, templates),
            (conform, brain, [("out", "t1w")]),
            (conform, normalise, [("out", "t1w")]),
            (brain, normalise, [("out", "mask")]),
            (conform, result, [("out", "t1w")]),
            (brain, result, [("out", "mask")]),
            (normalise, result, [(port, port) for port in ("forward", "inverse", "warped")]),
        ]
    )
    return workflow


def preprocess_anatomical(
    t1w: Path, template: Path, space: str, registration: Registration, out: Path, work: Path, *, prefix: str
) -> None:
    """Bring a T1w into template space; names of the outputs stand in `docs/architecture.md`.

    Parameters
    ----------
    t1w : path
        Raw T1-weighted image.
    template : path
        Folder of `bolt.templates.stage_template`.
    space : str
        The template's name, for the names of the outputs.
    registration : Registration
    out : path
        Folder ``anat``; pictures go to ``figures`` beside it.
    work : path
        Folder for intermediate files and crash dumps; removed at the end.
    prefix : str
        ``sub-01_`` or ``sub-01_ses-a_``.

    Raises
    ------
    DataError
        Where the image cannot be used (before the work, if that can be seen).
    """
    check_t1w(t1w)
    workflow = init_anatomical_wf(registration)
    workflow.inputs.inputnode.t1w = str(t1w.resolve())
    workflow.inputs.inputnode.template = str((template / "T1w.nii.gz").resolve())
    workflow.inputs.inputnode.template_mask = str((template / "brain_mask.nii.gz").resolve())
    made = run(workflow, work, where=t1w)
    names = anatomical_names(prefix, space)
    for port, name in names.items():
        keep(made[port], out / name)
    paths = {port: out / name for port, name in names.items()}
    numbers = quality.anatomical_numbers(paths, template)
    write_json(numbers, out / f"{prefix}desc-quality.json")
    pictures.draw_anatomical(paths, template, out.parent / "figures", prefix, space, numbers)
    shutil.rmtree(work)


def anatomical_names(prefix: str, space: str) -> dict[str, str]:
    """File names of the outputs, by the workflow's output."""
    return {
        "t1w": f"{prefix}desc-preproc_T1w.nii.gz",
        "mask": f"{prefix}desc-brain_mask.nii.gz",
        "forward": f"{prefix}from-T1w_to-{space}_mode-image_xfm.h5",
        "inverse": f"{prefix}from-{space}_to-T1w_mode-image_xfm.h5",
        "warped": f"{prefix}space-{space}_desc-preproc_T1w.nii.gz",
    }


def check_t1w(path: Path) -> None:
    """Refuse what is no whole, finite 3D image."""
    image = check_image(path)
    if len([n for n in image.shape if n > 1]) != 3:
        shape = "×".join(map(str, image.shape))
        raise DataError(f"a 3D T1w is due, but the shape is {shape}", where=path, mend="Give the anatomical image")
    try:
        data = np.asarray(image.dataobj, dtype=np.float32)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"the file is cut off or damaged ({error})", where=path, mend="Copy it again") from None
    if not np.isfinite(data).all():
        raise DataError(
            f"{int((~np.isfinite(data)).sum())} voxels are NaN or infinite",
            where=path,
            mend="Convert the image again from its source, or set these voxels to zero",
        )
    if data.max() <= data.min():
        raise DataError(f"all voxels are {data.min():g}", where=path, mend="Copy or convert the image again")
