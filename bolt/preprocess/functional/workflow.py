"""Functional workflow: BOLD to the output space, once per scan."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import numpy as np
from nipype import Node, Workflow
from nipype.interfaces.utility import IdentityInterface

from bolt.config import Registration
from bolt.config.derivatives import anatomical_names
from bolt.io.files import link_or_copy, read_yaml, write_json
from bolt.io.volumes import check_image
from bolt.jobs.progress import at_step
from bolt.preprocess import images
from bolt.preprocess.checks import check_together, check_voxels
from bolt.preprocess.functional import steps
from bolt.preprocess.functional.timing import read_slice_times
from bolt.preprocess.quality import compute, pictures
from bolt.preprocess.registration import warp
from bolt.preprocess.sidecars import task_of, write_sidecars
from bolt.preprocess.steps import Step, run

METHODS = read_yaml(Path(__file__).with_suffix(".yaml"))
INPUTS = ["bold", "t1w", "t1w_mask", "gm", "wm", "csf", "deep", "t1w_to_space", "template"]
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
    grey matter), t1w_to_space (transform), template (image). Outputs: bold (not in native space), mask, reference, tsnr
    (output space), confounds, motion, bold_to_t1w, coregistration (numbers), native_reference, native_corrected (what
    was coregistered, without its bias field), native_mask, unsteady (number of non-steady-state volumes at the start),
    sbref (numbers, if there is an SBRef).

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
    steady = "" if not steady_state else METHODS["steady_auto" if steady_state == "auto" else "steady_first"]
    workflow.__desc__ = METHODS["text"].format(
        steady=steady.format(n=steady_state),
        moved=METHODS["no_sbref" if sbref is None else "sbref"],
        slices=METHODS["slice_timing"] if slice_timing else "",
        space=METHODS[output].format(resolution=resolution),
    )
    source = Node(IdentityInterface(INPUTS), "inputnode")
    outputs = "native_reference native_mask unsteady"
    count = {"tr": float(tr), "steady_state": steady_state}
    reference = Node(Step(steps.make_reference, outputs, settings=settings, **count), "reference")
    motion = Node(Step(steps.estimate_motion, "motion", settings=settings), "motion")
    outputs = "native_corrected bold_to_t1w coregistration"
    coregister = Node(Step(steps.coregister, outputs, settings=settings), "coregister")
    outputs = "bold mask reference tsnr confounds"
    keys = {"output": output, "resolution": float(resolution), "tr": float(tr), "slice_timing": slice_timing}
    resample = Node(Step(steps.resample_bold, outputs, **keys), "resample")
    native = [(port, port) for port in ("native_reference", "native_mask")]
    workflow.connect(
        [
            (source, reference, [("bold", "bold")]),
            (source, motion, [("bold", "bold")]),
            (reference, motion, native),
            (source, coregister, [(port, port) for port in ("t1w", "t1w_mask", "gm", "wm", "deep")]),
            (reference, coregister, [("native_mask", "native_mask")]),
            (source, resample, [(port, port) for port in INPUTS if port not in ("t1w", "gm")]),
            (reference, resample, [("unsteady", "unsteady")]),
            (motion, resample, [("motion", "motion")]),
            (coregister, resample, [("bold_to_t1w", "bold_to_t1w")]),
        ]
    )
    if sbref is None:
        workflow.connect(reference, "native_reference", coregister, "coregistered")
    else:
        place = Step(steps.place_sbref, "coregistered sbref", settings=settings, sbref=str(sbref.resolve()))
        align = Node(place, "sbref")
        workflow.connect([(reference, align, native), (align, coregister, [("coregistered", "coregistered")])])
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
    workflow.get_node("inputnode").inputs.trait_set(
        **{port: str(path.resolve()) for port, path in zip(INPUTS, sources, strict=True)}
    )
    made = run(workflow, work, where=bold)
    paths = {port: out / name for port, name in functional_names(scan_id, space, output).items()}
    for port, path in paths.items():
        link_or_copy(made[port], path)
    for port in ("confounds", "motion"):
        link_or_copy(Path(made[port]).with_suffix(".json"), paths[port].with_suffix(".json"))
    at_step("functional.sidecars")
    write_sidecars(
        paths.values(),
        [path for path in (bold, sbref, anatomical["t1w"]) if path],
        Methods=[workflow.__desc__],
        RepetitionTime=float(tr),
        TaskName=task_of(bold),
        SliceTimingCorrected=slices is not None,
        StartTime=slices.middle if slices is not None else 0.0,
    )
    at_step("functional.quality")
    if output == "native":  # brought to template space for quality measures and pictures only
        shape, affine = images.grid(template / "T1w.nii.gz", resolution)
        target = images.to_ants(np.zeros(shape), affine)
        for port in ("mask", "reference", "tsnr"):
            image = warp(target, images.read(paths[port]), [anatomical["forward"], paths["bold_to_t1w"]])
            data = image.numpy() > 0.5 if port == "mask" else image.numpy()
            paths[port] = work / f"{port}_in_template.nii.gz"
            images.save(data, affine, paths[port], code=images.MNI)
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
    template = {"bold": f"{prefix}_desc-preproc_bold.nii.gz", "native_reference": f"{scan_id}_boldref.nii.gz"}
    return {
        **(template if output == "template" else {}),
        "mask": f"{prefix}_desc-brain_mask.nii.gz",
        "reference": f"{prefix}_boldref.nii.gz",
        "tsnr": f"{prefix}_desc-tsnr_boldmap.nii.gz",
        "confounds": f"{scan_id}_desc-confounds_timeseries.tsv",
        "motion": f"{scan_id}_desc-motion_xfm.tsv",
        "bold_to_t1w": f"{scan_id}_from-bold_to-T1w_mode-image_xfm.txt",
    }
