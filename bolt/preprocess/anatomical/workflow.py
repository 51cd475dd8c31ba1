"""Anatomical workflow: T1w to template, once per subject (or session)."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nipype import Node, Workflow
from nipype.interfaces.utility import IdentityInterface

from bolt.config import Registration
from bolt.config.derivatives import anatomical_names
from bolt.io.errors import BoltError, BoltWarning, DataError
from bolt.io.files import link_or_copy, read_yaml, write_json
from bolt.jobs.progress import at_step
from bolt.preprocess import images, registration, tissues
from bolt.preprocess.anatomical.normalisation import align_brain, aligned, check_transform, normalise
from bolt.preprocess.checks import check_t1w
from bolt.preprocess.images import ants
from bolt.preprocess.quality import compute, pictures
from bolt.preprocess.sidecars import write_sidecars
from bolt.preprocess.steps import Step, run

log = logging.getLogger("bolt")
METHODS = read_yaml(Path(__file__).with_suffix(".yaml"))
LEVELS = 250
"""Levels of intensity of a T1w on disk, about as many as FreeSurfer keeps: finer than the noise."""


# ---- steps: each takes its node's folder, settings and files, and returns the paths of what it has written ----------
def conform(folder: Path, settings: Registration, raw: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """Bring T1w images into RAS order, downsample finer ones, correct their bias, and average several."""

    def prepared(path: str) -> ants.ANTsImage:
        image, finest = images.read(path), settings.working_resolution
        if finest is not None and min(image.spacing) < finest - 0.05:
            image = images.resample_to_spacing(image, finest)
        return registration.bias_correct(image, settings)

    first = prepared(raw)
    total, n = first.numpy(), 1
    for path in more:
        try:
            check_t1w(Path(path))
            total, n = total + aligned(prepared(path), first, settings).numpy(), n + 1
        except DataError as error:
            warnings.warn(f"{path}: left out of the average T1w: {error.what}", BoltWarning, stacklevel=1)
    out = folder / "T1w.nii.gz"
    write_t1w(first.new_image_like(total / n), out)
    return {"t1w": str(out), "n_averaged": n}


def extract_brain(folder: Path, settings: Registration, t1w: str, template: str, template_mask: str) -> dict[str, Any]:
    """Extract the brain by registration with the template."""
    head, target, target_brain = map(images.read, (t1w, template, template_mask))
    mask, *transforms = align_brain(head, target, target_brain, settings, folder)
    images.write(mask, folder / "mask.nii.gz", "uint8")
    paths = (folder / "mask.nii.gz", *transforms)
    return dict(zip(("mask", "affine", "bent", "unbent"), map(str, paths), strict=True))


def segment(folder: Path, settings: Registration, t1w: str, mask: str) -> dict[str, Any]:
    """Segment the brain and write labels and probabilities."""
    probabilities = tissues.segment(images.read(t1w), images.read(mask), settings.tissue_resolution)
    paths = {tissue: str(folder / f"{tissue}.nii.gz") for tissue in (*probabilities, "dseg")}
    for tissue, image in probabilities.items():
        images.write(image, paths[tissue], "uint8", step=1 / 255)
    images.write(tissues.labels(probabilities), paths["dseg"], "uint8")
    return paths


def refine(
    folder: Path,
    settings: Registration,
    t1w: str,
    mask: str,
    affine: str,
    bent: str,
    unbent: str,
    template: str,
    template_mask: str,
) -> dict[str, Any]:
    """Register the brains, refuse an implausible result, warp the T1w, and carry deep grey matter back."""
    head, brain, target, target_brain = map(images.read, (t1w, mask, template, template_mask))
    head_to_target = Path(affine), Path(bent), Path(unbent)
    forward, inverse = normalise(head * brain, target * target_brain, *head_to_target, settings, folder)
    check_transform([forward], target_brain, brain)
    paths = {"forward": forward, "inverse": inverse, "warped": folder / "warped.nii.gz", "deep": folder / "deep.nii.gz"}
    write_t1w(registration.warp(target, head, [forward]), paths["warped"], images.MNI)
    images.write(tissues.deep_grey(head, inverse), paths["deep"], "uint8")
    return {port: str(path) for port, path in paths.items()}


def write_t1w(image: ants.ANTsImage, path: Path, code: int = images.SCANNER) -> None:
    """Write a T1w in `LEVELS` steps up to its `MAX_QUANTILE`: a few brighter voxels do not coarsen the others."""
    data = image.numpy()
    step = float(np.quantile(data[data > 0], registration.MAX_QUANTILE)) / LEVELS
    images.write(image, path, "uint16", code, step)


# ---- the workflow ----------------------------------------------------------------------------------------------------
def init_anatomical_wf(settings: Registration, name: str = "anatomical", *, average: bool = False) -> Workflow:
    """Build the workflow: bias correction, brain extraction, tissue segmentation, normalisation.

    Inputs (``inputnode``): t1w, more_t1w (list of images to average with it), template, template_mask. Outputs: t1w
    (bias-corrected, RAS), n_averaged (T1w images used), mask, dseg (1 GM, 2 WM, 3 CSF), gm, wm and csf (probabilities),
    forward and inverse (composite transforms to the template and back), warped (T1w in template space), deep (mask of
    deep grey matter on the T1w).
    """
    workflow = Workflow(name)
    texts = {"average": METHODS["average"] if average else "", "metric": METHODS[settings.syn_metric]}
    workflow.__desc__ = METHODS["text"].format(**texts, settings=settings.name)
    source = Node(IdentityInterface(["t1w", "more_t1w", "template", "template_mask"]), "inputnode")
    first = Node(Step(conform, "t1w n_averaged", settings=settings), "conform")
    brain = Node(Step(extract_brain, "mask affine bent unbent", settings=settings), "brain")
    tissue = Node(Step(segment, "dseg gm wm csf", settings=settings), "tissues")
    refined = Node(Step(refine, "forward inverse warped deep", settings=settings), "normalise")
    templates = [(port, port) for port in ("template", "template_mask")]
    alignment = [(port, port) for port in ("mask", "affine", "bent", "unbent")]
    workflow.connect(
        [
            (source, first, [("t1w", "raw"), ("more_t1w", "more")]),
            *((source, node, templates) for node in (brain, refined)),
            *((first, node, [("t1w", "t1w")]) for node in (brain, tissue, refined)),
            (brain, tissue, [("mask", "mask")]),
            (brain, refined, alignment),
        ]
    )
    return workflow


def preprocess_anatomical(
    t1w: Path,
    template: Path,
    space: str,
    registration: Registration | Sequence[Registration],
    out: Path,
    work: Path,
    *,
    prefix: str,
    more_t1w: Sequence[Path] = (),
) -> None:
    """Bring a T1w into template space; `docs/contracts.md` lists the names of the outputs.

    Parameters
    ----------
    t1w : path
        Raw T1-weighted image.
    template : path
        Folder of `bolt.preprocess.templates.stage_template`.
    space : str
        Name of the template, used in the names of the outputs.
    registration : Registration, or several
        Tried in order until one gives a plausible result; the settings used are recorded.
    out : path
        Folder ``anat``; pictures are written to ``figures`` beside it.
    work : path
        Folder for intermediate files and crash dumps; removed at the end.
    prefix : str
        ``sub-01_`` or ``sub-01_ses-a_``.
    more_t1w : sequence of path
        Raw images to average with it; one that cannot be used, or that differs, is left out with a warning.

    Raises
    ------
    DataError
        The image cannot be used; raised before any work if it can be seen then.
    """
    check_t1w(t1w)
    candidates = [registration] if isinstance(registration, Registration) else list(registration)
    for settings, following in zip(candidates, [*candidates[1:], None], strict=True):
        workflow = init_anatomical_wf(settings, average=bool(more_t1w))
        inputs = workflow.get_node("inputnode").inputs
        inputs.t1w, *inputs.more_t1w = (str(path.resolve()) for path in (t1w, *more_t1w))
        inputs.template = str((template / "T1w.nii.gz").resolve())
        inputs.template_mask = str((template / "brain_mask.nii.gz").resolve())
        try:
            made = run(workflow, work, where=t1w)
            break
        except BoltError as error:
            if following is None:
                raise
            log.warning("settings '%s' failed, trying '%s' next: %s", settings.name, following.name, error)
    paths = {port: out / name for port, name in anatomical_names(prefix, space).items()}
    for port, path in paths.items():
        link_or_copy(made[port], path)
    at_step("anatomical.sidecars")
    write_sidecars(paths.values(), [t1w, *more_t1w], Methods=[workflow.__desc__])
    at_step("anatomical.quality")
    numbers = compute.anatomical_numbers(paths, template)
    numbers |= {"registration": settings.name, "n_t1w": made["n_averaged"]}
    write_json(numbers, out / f"{prefix}desc-quality.json")
    at_step("anatomical.pictures")
    pictures.draw_anatomical(paths, template, out.parent / "figures", prefix, space, numbers)
    shutil.rmtree(work)
