"""Functional workflow: BOLD to the output space, once per scan."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from nipype import Node, Workflow
from nipype.interfaces.utility import IdentityInterface

from bolt.config import Registration
from bolt.config.derivatives import anatomical_names
from bolt.io.files import link_or_copy, write_json
from bolt.io.volumes import check_image
from bolt.jobs.progress import at_step
from bolt.preprocess import images
from bolt.preprocess.checks import check_together, check_voxels
from bolt.preprocess.functional.steps import AlignSBRef, Coregister, HeadMotion, Reference, Resample
from bolt.preprocess.functional.timing import read_slice_times
from bolt.preprocess.quality import compute, pictures
from bolt.preprocess.registration import warp
from bolt.preprocess.sidecars import methods_of, task_of, write_sidecars
from bolt.preprocess.steps import run

INPUTS = ["bold", "t1w", "t1w_mask", "gm", "wm", "csf", "deep", "t1w_to_space", "template"]
OUTPUTS = ["bold", "mask", "reference", "tsnr", "confounds", "motion", "bold_to_t1w", "coregistration"]
OUTPUTS += ["native_reference", "native_corrected", "native_mask", "unsteady", "sbref"]
Output = Literal["template", "native"]
SteadyState = Literal["auto"] | int


def init_functional_wf(
    settings: Registration,
    resolution: float,
    tr: float,
    *,
    output: Output = "template",
    slice_timing: bool = False,
    steady_state: SteadyState = "auto",
    sbref: Path | None = None,
    name: str = "functional",
) -> Workflow:
    """Build the workflow: reference, head motion, coregistration, slice timing, one interpolation, confounds.

    Inputs (``inputnode``): bold, t1w and t1w_mask (preprocessed), gm, wm and csf (probabilities), deep (mask of deep
    grey matter), t1w_to_space (transform), template (image). Outputs (``outputnode``): bold (not in native space),
    mask, reference, tsnr (output space), confounds, motion, bold_to_t1w, coregistration (numbers), native_reference,
    native_corrected (what was coregistered, without its bias field), native_mask, unsteady (number of non-steady-state
    volumes at the start), sbref (numbers, if there is an SBRef).

    Parameters
    ----------
    settings : Registration
    resolution : float
        Voxel size of the output in template space, mm.
    tr : float
        Seconds.
    output : {"template", "native"}
    slice_timing : bool
        Correct slice timing by the SliceTiming of the scan's sidecar.
    steady_state : "auto" or int
        Volumes to drop at the start; auto: those whose mean signal is an outlier.
    sbref : path, optional
        Single-band reference, which is coregistered instead of the scan's own reference.
    """
    workflow = Workflow(name)
    workflow.__desc__ = describe(resolution, output, slice_timing, steady_state, sbref is not None)
    keys = settings.model_dump()
    source = Node(IdentityInterface(INPUTS), "inputnode")
    reference = Node(Reference(settings=keys, tr=float(tr), steady_state=steady_state), "reference")
    motion = Node(HeadMotion(settings=keys), "motion")
    coregister = Node(Coregister(settings=keys), "coregister")
    grid = {"output": output, "resolution": float(resolution)}
    resample = Node(Resample(tr=float(tr), slice_timing=slice_timing, **grid), "resample")
    result = Node(IdentityInterface(OUTPUTS), "outputnode")
    native = [("reference", "reference"), ("mask", "mask")]
    passed = [(port, port) for port in ("bold", "t1w_mask", "wm", "csf", "deep", "t1w_to_space", "template")]
    workflow.connect(
        [
            (source, reference, [("bold", "bold")]),
            (source, motion, [("bold", "bold")]),
            (reference, motion, native),
            (source, coregister, [(port, port) for port in ("t1w", "t1w_mask", "gm", "wm", "deep")]),
            (source, resample, passed),
            (motion, resample, [("out", "motion")]),
            (coregister, resample, [("out", "bold_to_t1w")]),
            (reference, resample, [("unsteady", "unsteady")]),
            (reference, result, [("reference", "native_reference"), ("mask", "native_mask"), ("unsteady", "unsteady")]),
            (motion, result, [("out", "motion")]),
            (coregister, result, [("out", "bold_to_t1w"), ("corrected", "native_corrected")]),
            (coregister, result, [("numbers", "coregistration")]),
            (resample, result, [(port, port) for port in ("bold", "mask", "reference", "tsnr", "confounds")]),
        ]
    )
    if sbref is None:
        workflow.connect([(reference, coregister, native)])
    else:
        align = Node(AlignSBRef(settings=keys, sbref=str(sbref.resolve())), "sbref")
        workflow.connect(
            [
                (reference, align, native),
                (align, coregister, [("out", "reference")]),
                (reference, coregister, [("mask", "mask")]),
                (align, result, [("numbers", "sbref")]),
            ]
        )
    return workflow


def describe(
    resolution: float, output: Output, slice_timing: bool, steady_state: SteadyState = "auto", sbref: bool = False
) -> str:
    """Describe the workflow for the methods section of a manuscript."""
    space = (
        "Head-motion correction, coregistration and normalisation were applied in a single cubic-spline interpolation "
        f"[@spline_interpolation] to a {resolution:g}-mm grid in template space; the data were not spatially smoothed."
        if output == "template"
        else "The data were kept in native voxels: atlases were transformed to each scan by the inverse transforms, "
        "using nearest-neighbour interpolation, and moved with the head."
    )
    slices = (
        "Slice timing was corrected to the middle of the acquisition by windowed sinc interpolation [@slice_timing]. "
        if slice_timing
        else ""
    )
    steady = (
        "Non-steady-state volumes, identified by their mean signal as in fMRIPrep [@fmriprep], were discarded where "
        "there were any. "
        if steady_state == "auto"
        else f"The first {steady_state} volumes were discarded to allow for magnetisation to reach a steady state. "
        if steady_state
        else ""
    )
    aligned = "The single-band reference of the scan was aligned with it (rigidly, by mutual information) and"
    moved = aligned if sbref else "It was"
    return (
        f"{steady}Head motion was estimated by rigid-body least-squares registration [@friston_realign; "
        f"@baker_matthews] of every BOLD volume to a robust reference image. {moved} coregistered rigidly with the "
        "T1-weighted image by mutual information [@mattes] and then by the boundary between white matter and cortex "
        "[@greve_bbr] (where that fit could not be trusted, it was left out). "
        f"{slices}{space} The following confounds were computed: "
        "framewise displacement and DVARS [@power_fd_dvars; @nichols_dvars]; root mean square displacement "
        "[@jenkinson_fd]; the mean signals of the whole brain, white matter and cerebrospinal fluid; and the principal "
        "components that explain half of the variance in white matter and cerebrospinal fluid (aCompCor [@compcor])."
    )


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
    output: Output = "template",
    slice_timing: bool = True,
    steady_state: SteadyState = "auto",
    sbref: Path | None = None,
) -> None:
    """Bring a BOLD scan into the output space; `docs/contracts.md` lists the names of the outputs.

    Parameters
    ----------
    bold : path
        Raw 4D image.
    anat : path
        Folder written by `preprocess_anatomical`.
    template, space
        As for `preprocess_anatomical`.
    resolution : float
        Voxel size of the output, mm.
    registration : Registration
    out : path
        Folder ``func``; pictures are written to ``figures`` beside it.
    work : path
        Folder for intermediate files and crash dumps; removed at the end.
    scan_id : str
        Prefix of the names of the outputs.
    prefix : str
        Prefix of the names in `anat`: ``sub-01_``.
    tr : float
        Seconds.
    output : {"template", "native"}
        Native: the scan stays in its own voxels, and no 4D image is written.
    slice_timing : bool
        Correct slice timing if SliceTiming is known.
    steady_state : "auto" or int
    sbref : path, optional
        As in `init_functional_wf`.

    Raises
    ------
    DataError
        The scan or its anatomical derivatives cannot be used; raised before any work if it can be seen then.
    """
    info = check_voxels(bold, tr)
    slices = read_slice_times(bold, info.shape, tr) if slice_timing else None
    anatomical = {port: anat / name for port, name in anatomical_names(prefix, space).items()}
    check_image(anatomical["mask"])
    check_together(bold, anatomical["t1w"])
    workflow = init_functional_wf(
        registration,
        resolution,
        tr,
        output=output,
        slice_timing=slices is not None,
        steady_state=steady_state,
        sbref=sbref,
    )
    ports = ("t1w", "mask", "gm", "wm", "csf", "deep", "forward")
    sources = [bold, *(anatomical[port] for port in ports), template / "T1w.nii.gz"]
    for port, path in zip(INPUTS, sources, strict=True):
        setattr(workflow.inputs.inputnode, port, str(path.resolve()))
    made = run(workflow, work, where=bold)
    names = functional_names(scan_id, space, output)
    for port, name in names.items():
        link_or_copy(made[port], out / name)
    for port in ("confounds", "motion"):
        link_or_copy(Path(made[port]).with_suffix(".json"), (out / names[port]).with_suffix(".json"))
    paths = {port: out / name for port, name in names.items()}
    at_step("functional.sidecars")
    write_sidecars(
        paths.values(),
        [path for path in (bold, sbref, anatomical["t1w"]) if path],
        Methods=methods_of(workflow),
        RepetitionTime=float(tr),
        TaskName=task_of(bold),
        SliceTimingCorrected=slices is not None,
        StartTime=slices.middle if slices is not None else 0.0,
    )
    at_step("functional.quality")
    if output == "native":
        paths |= _in_template(paths, anatomical["forward"], template, resolution, work)
    paths |= {port: Path(made[port]) for port in ("native_reference", "native_corrected", "native_mask")}
    paths["raw"] = bold
    paths |= {port: anatomical[port] for port in ("t1w", "gm", "wm", "dseg", "forward")}
    paths["t1w_mask"] = anatomical["mask"]
    numbers = compute.functional_numbers(paths, made["coregistration"], template, registration)
    numbers |= {"n_unsteady": made["unsteady"], **made.get("sbref", {})}
    write_json(numbers, out / f"{scan_id}_desc-quality.json")
    at_step("functional.pictures")
    pictures.draw_functional(paths, template, out.parent / "figures", scan_id, space, numbers)
    shutil.rmtree(work)


def functional_names(scan_id: str, space: str, output: Output = "template") -> dict[str, str]:
    """Return the file names of the outputs, by the workflow's output port."""
    prefix = f"{scan_id}_space-{space}" if output == "template" else scan_id
    template = {
        "bold": f"{prefix}_desc-preproc_bold.nii.gz",
        "native_reference": f"{scan_id}_boldref.nii.gz",
    }
    return {
        **(template if output == "template" else {}),
        "mask": f"{prefix}_desc-brain_mask.nii.gz",
        "reference": f"{prefix}_boldref.nii.gz",
        "tsnr": f"{prefix}_desc-tsnr_boldmap.nii.gz",
        "confounds": f"{scan_id}_desc-confounds_timeseries.tsv",
        "motion": f"{scan_id}_desc-motion_xfm.tsv",
        "bold_to_t1w": f"{scan_id}_from-bold_to-T1w_mode-image_xfm.txt",
    }


def _in_template(
    paths: Mapping[str, Path], forward: Path, template: Path, resolution: float, folder: Path
) -> dict[str, Path]:
    """Resample mask, reference and tSNR of a native scan to template space, for quality measures and pictures only."""
    shape, affine = images.grid(template / "T1w.nii.gz", resolution)
    target = images.to_ants(np.zeros(shape), affine)
    resampled = {port: folder / f"{port}_in_template.nii.gz" for port in ("mask", "reference", "tsnr")}
    for port, path in resampled.items():
        image = warp(target, images.read(paths[port]), [forward, paths["bold_to_t1w"]])
        data = image.numpy() > 0.5 if port == "mask" else image.numpy()
        images.save(data, affine, path, code=images.MNI)
    return resampled
