"""Functional workflow: BOLD to the output space, once per scan."""

from __future__ import annotations

import shutil
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
from nipype import Workflow

from bolt.config import Registration
from bolt.config.derivatives import anatomical_names
from bolt.io.bids import entities_of
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import link_or_copy, read_yaml, write_json
from bolt.io.streams import iter_volumes, volume_writer
from bolt.io.volumes import check_bold, check_image
from bolt.jobs.progress import at_step
from bolt.preprocess import images, registration
from bolt.preprocess.checks import MIN_VOLUMES, check_together, check_voxels
from bolt.preprocess.functional import confounds, coregistration, timing
from bolt.preprocess.functional.motion import (
    FIELD_SHARE,
    HeadMotion,
    field_mask,
    motion_reference,
    native_target,
    output_area,
    resample,
    template_target,
)
from bolt.preprocess.functional.timing import read_slice_times
from bolt.preprocess.quality import compute, pictures
from bolt.preprocess.registration import warp
from bolt.preprocess.sidecars import write_sidecars
from bolt.preprocess.steps import Step, connected, run

METHODS = read_yaml(Path(__file__).with_suffix(".yaml"))
INPUTS = ["bold", "t1w", "t1w_mask", "gm", "wm", "csf", "deep", "t1w_to_space", "template"]
Output = Literal["template", "native"]
SteadyState = Literal["auto"] | int
REFERENCE_VOLUMES = 15
"""The motion reference is the median of this many volumes, spread over the scan."""
REFERENCE_LEVELS, TSNR_STEP = 20_000, 0.01
"""How finely the mean image (levels up to its maximum) and tSNR are stored: whole numbers take half the space."""


# ---- steps: each takes its node's folder, settings and files, and returns what it has made ---------------------------
def make_reference(
    folder: Path, settings: Registration, bold: str, tr: float, steady_state: int | str = "auto"
) -> dict[str, Any]:
    """Count the non-steady-state volumes, and build a robust reference and its brain mask from the others."""
    image = check_image(bold)
    affine, n_volumes = image.affine, image.shape[3]
    if steady_state == "auto":
        unsteady = timing.count_unsteady(bold, n_volumes, tr)
    else:
        unsteady = int(steady_state)
        if n_volumes - unsteady < MIN_VOLUMES:
            raise DataError(
                f"'preprocess: steady_state' leaves {max(n_volumes - unsteady, 0)} of {n_volumes} volumes; at least "
                f"{MIN_VOLUMES} are needed",
                where=bold,
                hint="Set a smaller number, or auto",
            )
    n_steady = n_volumes - unsteady
    chosen = set(unsteady + np.linspace(0, n_steady - 1, min(REFERENCE_VOLUMES, n_steady)).astype(int))
    volumes = [volume for t, volume in enumerate(iter_volumes(bold)) if t in chosen]
    reference, mask = motion_reference(volumes, affine, settings)
    paths = {"native_reference": str(folder / "boldref.nii.gz"), "native_mask": str(folder / "mask.nii.gz")}
    images.save(reference, affine, paths["native_reference"])
    images.save(mask, affine, paths["native_mask"], "uint8")
    return {**paths, "unsteady": unsteady}


def estimate_motion(
    folder: Path, settings: Registration, bold: str, native_reference: str, native_mask: str
) -> dict[str, Any]:
    """Register every volume to the reference and write the table of head positions."""
    reference, affine = images.load(native_reference)
    estimator = HeadMotion(reference, images.load(native_mask)[0] > 0, affine, settings)
    positions = np.stack(list(estimator.positions(iter_volumes(bold))))
    confounds.write_motion(positions, estimator.centre, folder / "motion.tsv")
    return {"motion": str(folder / "motion.tsv")}


def place_sbref(
    folder: Path, settings: Registration, sbref: str, native_reference: str, native_mask: str
) -> dict[str, Any]:
    """Bring the single-band reference to the place of the scan's; if it cannot be used, warn and take the latter."""
    reference, mask = images.read(native_reference), images.read(native_mask)
    try:
        aligned, shift = coregistration.align_sbref(sbref, reference, mask, settings)
    except DataError as error:
        warnings.warn(f"{sbref}: not used for the coregistration: {error.what}", BoltWarning, stacklevel=1)
        return {"coregistered": native_reference, "sbref": {"sbref_refusal": error.what}}
    images.write(aligned, folder / "sbref.nii.gz")
    return {"coregistered": str(folder / "sbref.nii.gz"), "sbref": {"sbref_shift": shift}}


def coregister(
    folder: Path,
    settings: Registration,
    coregistered: str,
    native_mask: str,
    t1w: str,
    t1w_mask: str,
    gm: str,
    wm: str,
    deep: str,
) -> dict[str, Any]:
    """Register the bias-corrected reference to the T1w, by intensity, then by the boundary; write the transform."""
    reference = registration.bias_correct(images.read(coregistered), settings)
    paths = {"native_corrected": str(folder / "corrected.nii.gz"), "bold_to_t1w": str(folder / "bold_to_t1w.txt")}
    images.write(reference, paths["native_corrected"])
    mask, head, brain = map(images.read, (native_mask, t1w, t1w_mask))
    start = registration.coregister(reference, mask, head, brain, settings)
    edge = coregistration.cortical_boundary(*map(images.read, (wm, gm, deep)))
    matrix, numbers = coregistration.refine(reference, mask, head, brain, edge, start)
    images.write_matrix(matrix, paths["bold_to_t1w"])
    return {**paths, "coregistration": numbers}


def resample_bold(
    folder: Path,
    bold: str,
    motion: str,
    bold_to_t1w: str,
    t1w_to_space: str,
    t1w_mask: str,
    wm: str,
    csf: str,
    deep: str,
    template: str,
    resolution: float,
    tr: float,
    unsteady: int,
    slice_timing: bool,
    output: str,
) -> dict[str, Any]:
    """Bring BOLD onto the output grid in one interpolation, with mask, mean, tSNR and confounds in the same pass.

    The output is zero away from the brain and outside the acquired field of view. In native space no 4D image is
    written: head motion is corrected only for the mean, tSNR and confounds. `deep` is no noise.
    """
    info = check_bold(bold, tr)
    positions = confounds.read_motion(motion)
    if output == "native":
        target = native_target(info.shape, info.affine, bold_to_t1w, folder)
    else:
        target = template_target(template, resolution, t1w_to_space, bold_to_t1w)

    # where: around the brain, where nearly all volumes were acquired; those that are dropped may lack anything
    brain, steady = target.resample_t1w(images.read(t1w_mask)) > 0.5, positions[unsteady:]
    area = output_area(brain, target.affine)
    area[area] = field_mask(target.points[area], steady, info.shape, info.affine)
    points, inside = target.points[area], brain[area]
    if not inside.any():
        places = target.points[brain]
        lost = [(~field_mask(places, steady[t : t + 1], info.shape, info.affine)).sum() for t in range(len(steady))]
        worst, share = unsteady + int(np.argmax(lost)), max(lost) / max(len(places), 1)
        raise DataError(
            f"no brain voxel was acquired in {FIELD_SHARE:.0%} of the volumes; volume {worst} (counted from 0) alone "
            f"lacks {share:.0%} of the brain",
            where=bold,
            hint="Inspect the scan, its T1w and their coregistration: they may show different heads",
        )

    masks, not_deep = {}, 1 - images.read(deep)
    for name, tissue in (("white_matter", images.read(wm) * not_deep), ("csf", images.read(csf))):
        sizes, voxel = np.asarray(tissue.spacing), max(info.voxel_sizes)
        pure = tissue.new_image_like(confounds.voxel_share(tissue.numpy(), sizes, voxel))
        masks[name] = confounds.purest(np.where(inside, target.resample_t1w(pure)[area], 0))
    statistics, tissues = confounds.BrainStatistics(int(inside.sum()), unsteady), confounds.TissueSignals(masks)

    def in_volume(values: np.ndarray, where: np.ndarray = area) -> np.ndarray:
        volume = np.zeros(where.shape, dtype=np.float32)
        volume[where] = values
        return volume

    slices = read_slice_times(bold, info.shape, info.tr) if slice_timing else None
    volumes = timing.slice_timed(iter_volumes(bold), slices, info.tr, unsteady)
    total = np.zeros(len(points))
    names = {"mask": "mask", "reference": "boldref", "tsnr": "tsnr"} | ({} if output == "native" else {"bold": "bold"})
    paths = {key: str(folder / f"{name}.nii.gz") for key, name in names.items()}
    grid = target.affine, target.shape, info.tr
    with volume_writer(paths["bold"], *grid, code=target.code) if "bold" in paths else nullcontext() as append:
        for t, values in enumerate(resample(volumes, info.affine, positions, points)):
            statistics.add(values[inside])
            tissues.add(values)
            if t >= unsteady:
                total += values
            if append is not None:
                append(in_volume(values))
    mean = total / len(steady)
    images.save(in_volume(inside), target.affine, paths["mask"], "uint8", code=target.code)
    step = float(np.abs(mean).max()) / REFERENCE_LEVELS
    images.save(in_volume(mean), target.affine, paths["reference"], "int32", target.code, step or 1.0)
    tsnr = in_volume(statistics.tsnr, in_volume(inside) > 0)
    images.save(tsnr, target.affine, paths["tsnr"], "int32", target.code, TSNR_STEP)
    confounds.write_confounds(motion, statistics, tissues, info.tr, folder / "confounds.tsv")
    return {**paths, "confounds": str(folder / "confounds.tsv")}


# ---- the workflow ----------------------------------------------------------------------------------------------------
def init_functional_wf(
    settings: Registration,
    resolution: float,
    tr: float,
    *,
    output: Output = "template",
    slice_timing: bool = False,
    steady_state: SteadyState = "auto",
    sbref: Path | None = None,
) -> Workflow:
    """Build the workflow: reference, head motion, coregistration, slice timing, one interpolation, confounds.

    Inputs: bold, t1w and t1w_mask (preprocessed), gm, wm and csf (probabilities), deep (mask of deep
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
    count = {"tr": float(tr), "steady_state": steady_state}
    keys = {"output": output, "resolution": float(resolution), "tr": float(tr), "slice_timing": slice_timing}
    steps = {
        "reference": Step(make_reference, "native_reference native_mask unsteady", settings=settings, **count),
        "motion": Step(estimate_motion, "motion", settings=settings),
        "coregister": Step(coregister, "native_corrected bold_to_t1w coregistration", settings=settings),
        "resample": Step(resample_bold, "bold mask reference tsnr confounds", **keys),
    }
    if sbref is not None:
        steps["sbref"] = Step(place_sbref, "coregistered sbref", settings=settings, sbref=str(sbref.absolute()))
    workflow = connected("functional", INPUTS, **steps)
    if sbref is None:
        reference, into = map(workflow.get_node, ("reference", "coregister"))
        workflow.connect(reference, "native_reference", into, "coregistered")
    steady = "" if not steady_state else METHODS["steady_auto" if steady_state == "auto" else "steady_first"]
    workflow.__desc__ = METHODS["text"].format(
        steady=steady.format(n=steady_state),
        moved=METHODS["no_sbref" if sbref is None else "sbref"],
        slices=METHODS["slice_timing"] if slice_timing else "",
        space=METHODS[output].format(resolution=resolution),
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
    keys: dict[str, Any] = {"output": output, "steady_state": steady_state, "sbref": sbref}
    workflow = init_functional_wf(registration, resolution, tr, slice_timing=slices is not None, **keys)
    ports = ("t1w", "mask", "gm", "wm", "csf", "deep", "forward")
    sources = [bold, *(anatomical[port] for port in ports), template / "T1w.nii.gz"]
    # a link stays one: what it points to, in DataLad's annex, has no sidecar beside it
    inputs = {port: str(path.absolute()) for port, path in zip(INPUTS, sources, strict=True)}
    made = run(workflow, work, where=bold, **inputs)
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
        TaskName=entities_of(bold).get("task", "unknown"),
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
