"""Steps of the functional workflow: each takes its node's folder, settings and files, and returns what it has made."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from bolt.config import Registration
from bolt.io.errors import BoltWarning, DataError
from bolt.io.streams import iter_volumes, volume_writer
from bolt.io.volumes import check_bold, check_image
from bolt.preprocess import images, registration
from bolt.preprocess.checks import MIN_VOLUMES
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

REFERENCE_VOLUMES = 15
"""The motion reference is the median of this many volumes, spread over the scan."""
REFERENCE_LEVELS, TSNR_STEP = 20_000, 0.01
"""How finely the mean image (levels up to its maximum) and tSNR are stored: whole numbers take half the space."""


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
        problem = f"{sbref}: not used for the coregistration: {error.what}"
        warnings.warn(problem, BoltWarning, stacklevel=1)
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

    slices = timing.read_slice_times(bold, info.shape, info.tr) if slice_timing else None
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
