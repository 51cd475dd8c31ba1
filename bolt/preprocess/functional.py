"""The functional half: BOLD to the output space, once a scan."""

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
from bolt.preprocess.anatomical import anatomical_names
from bolt.preprocess.functional_steps import Coregister, HeadMotion, Reference, Resample
from bolt.preprocess.steps import run
from bolt.volumes import check_bold, check_image, iter_volumes

INPUTS = ["bold", "t1w", "t1w_mask", "t1w_to_space", "template"]
OUTPUTS = ["bold", "mask", "reference", "tsnr", "confounds", "motion", "bold_to_t1w", "dice"]
OUTPUTS += ["native_reference", "native_mask"]


def init_functional_wf(settings: Registration, resolution: float, tr: float, name: str = "functional") -> Workflow:
    """Workflow: reference, head motion, BOLD to T1w, one interpolation to the output space.

    Inputs (``inputnode``): bold, t1w and t1w_mask (of the anatomical half), t1w_to_space (transform), template (image).
    Outputs (``outputnode``): bold, mask, reference, tsnr (output space), confounds, motion, bold_to_t1w, dice (of
    the brain masks of BOLD and T1w), native_reference, native_mask.

    Parameters
    ----------
    settings : Registration
    resolution : float
        Voxel size of the output, mm.
    tr : float
        Seconds.
    """
    workflow = Workflow(name)
    keys = settings.model_dump()
    source = Node(IdentityInterface(INPUTS), "inputnode")
    reference = Node(Reference(settings=keys), "reference")
    motion = Node(HeadMotion(settings=keys), "motion")
    coregister = Node(Coregister(settings=keys), "coregister")
    resample = Node(Resample(resolution=float(resolution), tr=float(tr)), "resample")
    result = Node(IdentityInterface(OUTPUTS), "outputnode")
    native = [("reference", "reference"), ("mask", "mask")]
    carried = [(port, port) for port in ("bold", "t1w_mask", "t1w_to_space", "template")]
    workflow.connect(
        [
            (source, reference, [("bold", "bold")]),
            (source, motion, [("bold", "bold")]),
            (reference, motion, native),
            (reference, coregister, native),
            (source, coregister, [("t1w", "t1w"), ("t1w_mask", "t1w_mask")]),
            (source, resample, carried),
            (motion, resample, [("out", "motion")]),
            (coregister, resample, [("out", "bold_to_t1w")]),
            (reference, result, [("reference", "native_reference"), ("mask", "native_mask")]),
            (motion, result, [("out", "motion")]),
            (coregister, result, [("out", "bold_to_t1w"), ("dice", "dice")]),
            (resample, result, [(port, port) for port in ("bold", "mask", "reference", "tsnr", "confounds")]),
        ]
    )
    return workflow


def preprocess_functional(
    bold: Path,
    anat: Path,
    template: Path,
    space: str,
    resolution: float,
    registration: Registration,
    out: Path,
    work: Path,
    *,
    scan_id: str,
    prefix: str,
    tr: float,
) -> None:
    """Bring a BOLD scan into the output space; names of the outputs stand in `docs/architecture.md`.

    Parameters
    ----------
    bold : path
        Raw 4D image.
    anat : path
        Folder filled by `preprocess_anatomical`.
    template, space
        As there.
    resolution : float
        Voxel size of the output, mm.
    registration : Registration
    out : path
        Folder ``func``; pictures go to ``figures`` beside it.
    work : path
        Folder for intermediate files and crash dumps; removed at the end.
    scan_id : str
        Begins the names of the outputs.
    prefix : str
        Begins the names in `anat`: ``sub-01_``.
    tr : float
        Seconds.

    Raises
    ------
    DataError
        Where the scan or its anatomical half cannot be used (before the work, if that can be seen).
    """
    check_voxels(bold, tr)
    anatomical = {port: anat / name for port, name in anatomical_names(prefix, space).items()}
    check_image(anatomical["mask"])
    workflow = init_functional_wf(registration, resolution, tr)
    sources = [bold, anatomical["t1w"], anatomical["mask"], anatomical["forward"], template / "T1w.nii.gz"]
    for port, path in zip(INPUTS, sources, strict=True):
        setattr(workflow.inputs.inputnode, port, str(path.resolve()))
    made = run(workflow, work, where=bold)
    names = functional_names(scan_id, space)
    for port, name in names.items():
        keep(made[port], out / name)
    for port in ("confounds", "motion"):
        keep(Path(made[port]).with_suffix(".json"), (out / names[port]).with_suffix(".json"))
    paths = {port: out / name for port, name in names.items()}
    numbers = quality.functional_numbers(paths, made["dice"], template)
    write_json(numbers, out / f"{scan_id}_desc-quality.json")
    paths.update(native_reference=Path(made["native_reference"]), t1w=anatomical["t1w"], t1w_mask=anatomical["mask"])
    pictures.draw_functional(paths, template, out.parent / "figures", scan_id, space, numbers)
    shutil.rmtree(work)


def functional_names(scan_id: str, space: str) -> dict[str, str]:
    """File names of the outputs, by the workflow's output."""
    return {
        "bold": f"{scan_id}_space-{space}_desc-preproc_bold.nii.gz",
        "mask": f"{scan_id}_space-{space}_desc-brain_mask.nii.gz",
        "reference": f"{scan_id}_space-{space}_boldref.nii.gz",
        "tsnr": f"{scan_id}_space-{space}_desc-tsnr_boldmap.nii.gz",
        "confounds": f"{scan_id}_desc-confounds_timeseries.tsv",
        "motion": f"{scan_id}_desc-motion_xfm.tsv",
        "bold_to_t1w": f"{scan_id}_from-bold_to-T1w_mode-image_xfm.txt",
    }


def check_voxels(path: Path, tr: float) -> None:
    """Refuse a scan with a bad header, a cut-off stream, or voxels that are no numbers; one pass over the file."""
    check_bold(path, tr)
    for t, volume in enumerate(iter_volumes(path)):
        if not np.isfinite(volume).all():
            raise DataError(
                f"volume {t} (counted from 0) has {int((~np.isfinite(volume)).sum())} voxels that are NaN or infinite",
                where=path,
                mend="Convert the scan again from its source, or remove it",
            )
        if volume.max() <= volume.min():
            raise DataError(
                f"volume {t} (counted from 0) is empty: all voxels are {volume.min():g}",
                where=path,
                mend="Convert the scan again from its source, or cut off the empty volumes",
            )
