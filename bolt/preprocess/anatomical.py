"""Anatomical workflow, once per subject (or session): T1w images averaged, brain extraction, tissues, normalisation."""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nipype import Workflow
from scipy import ndimage

from bolt.config import Registration
from bolt.config.derivatives import anatomical_names
from bolt.io.errors import BoltError, BoltWarning, DataError
from bolt.io.files import link_or_copy, read_yaml, write_json
from bolt.jobs.progress import at_step
from bolt.preprocess import images, registration, tissues
from bolt.preprocess.checks import check_t1w
from bolt.preprocess.images import Image, ants
from bolt.preprocess.quality import compute, pictures
from bolt.preprocess.registration import align, bias_correct, clip_intensity, crop_to_brain, dice, register, seed, warp
from bolt.preprocess.sidecars import write_sidecars
from bolt.preprocess.steps import Step, connected, run

log = logging.getLogger("bolt")
METHODS = read_yaml(Path(__file__).with_suffix(".yaml"))
LEVELS = 250
"""Levels of intensity of a T1w on disk, about as many as FreeSurfer keeps: finer than the noise."""
MIN_CORRELATION = 0.8
"""Least correlation with the first image, within the head, of another image of the same head and contrast."""
COARSE = 4.0
"""Voxel size (mm) at which whole heads are registered."""
MARGIN = 10.0
"""mm around the first mask that are kept for the second step."""
FRAME = 4.0
"""mm of background around the brain and its margin, in which the displacement fades out."""
SMOOTH = 1.5
"""mm (SD) by which a warped mask is smoothed."""
MIN_BRAIN = 3e5
"""mm³; below it the extraction has failed."""
GRID = 4.0
"""mm between the points at which a transform is checked."""
MAX_FOLDED = 0.005
"""Share of the brain in which a transform may fold."""
MIN_DICE = 0.85
"""Overlap of the warped brain mask with the template's below which a normalisation has failed."""
VOLUMES = (0.35, 1.6)
"""Plausible scaling of brain volume from T1w to template; the template is larger than nearly all brains."""
HINT = (
    "Check that the T1w shows a whole head in the right orientation with T1 contrast; or list more settings to try in "
    "'preprocess: registration'"
)


# ---- steps: each takes its node's folder, settings and files, and returns the paths of what it has written ----------
def conform(folder: Path, settings: Registration, raw: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """Bring T1w images into RAS order, downsample finer ones, correct their bias, and average several."""

    def prepared(path: str) -> Image:
        image, finest = images.read(path), settings.working_resolution
        if finest is not None and min(image.spacing) < finest - 0.05:
            image = images.resample_to_spacing(image, finest)
        return bias_correct(image, settings)

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
    """Extract the brain by registering a bias-corrected T1w with the template in two steps.

    First, whole heads are aligned at 4 mm (affine, then coarse SyN), and the template's mask is warped to the T1w at
    this resolution. Then both images are masked to the brain plus `MARGIN` mm, so that neck and face no longer
    interfere, and registered by SyN, starting from the affine, at ``settings.mask_resolution``. The warped mask is
    smoothed, thresholded at one half, reduced to its largest component, and its holes are filled.

    Returns
    -------
    dict
        ``mask``; ``affine``: matrix from T1w to template; ``bent`` and ``unbent``: displacement fields to be applied
        after the affine from T1w to template, and before its inverse on the way back.

    Raises
    ------
    DataError
        The result is too small to be a brain.
    """
    known = images.read(template_mask)

    def warped_mask(image: Image, from_template: list[str]) -> Image:
        share = ants.smooth_image(warp(image, known, from_template), SMOOTH)
        return image.new_image_like(one_piece(share.numpy() > 0.5, image.spacing))

    target, head = (clip_intensity(images.read(path)) for path in (template, t1w))
    fixed, moving = (images.resample_to_spacing(image, max(COARSE, *image.spacing)) for image in (target, head))
    seed(settings)
    whole = register(
        fixed,
        moving,
        outprefix=f"{folder}/head_",
        aff_iterations=tuple(settings.affine_iterations),
        aff_shrink_factors=(4, 2, 1),
        aff_smoothing_sigmas=(2, 1, 0),
        reg_iterations=(60, 40, 0),
    )
    affine, cropped = whole["fwdtransforms"][1], []
    for image, mask in ((target, known), (head, warped_mask(moving, whole["invtransforms"]))):
        fine = images.resample_to_spacing(image, max(settings.mask_resolution, *head.spacing))
        near = ndimage.distance_transform_edt(mask.numpy() < 0.5, sampling=mask.spacing) <= MARGIN
        near = mask.new_image_like(near.astype(np.float32))
        cropped.append(crop_to_brain(fine * ants.resample_image_to_target(near, fine, "nearestNeighbor"), frame=FRAME))
    seed(settings)
    options = {"outprefix": f"{folder}/brain_", "initial_transform": affine, "reg_iterations": (60, 30)}
    brain = register(cropped[0], cropped[1], "SyNOnly", **options)
    path = str(folder / "mask.nii.gz")
    images.write(warped_mask(head, brain["invtransforms"]), path, "uint8")
    return {"mask": path, "affine": affine, "bent": brain["fwdtransforms"][0], "unbent": brain["invtransforms"][-1]}


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
    write_t1w(warp(target, head, [forward]), paths["warped"], images.MNI)
    images.write(tissues.deep_grey(head, inverse), paths["deep"], "uint8")
    return {port: str(path) for port, path in paths.items()}


def write_t1w(image: Image, path: Path, code: int = images.SCANNER) -> None:
    """Write a T1w in `LEVELS` steps up to its `MAX_QUANTILE`: a few brighter voxels do not coarsen the others."""
    data = image.numpy()
    step = float(np.quantile(data[data > 0], registration.MAX_QUANTILE)) / LEVELS
    images.write(image, path, "uint16", code, step)


# ---- what they compute
def aligned(image: Image, first: Image, settings: Registration) -> Image:
    """Bring a bias-corrected T1w to the place and the intensity of another one, rigidly, by mutual information.

    Returns
    -------
    ANTs image
        On the grid of `first`, scaled to its intensity.

    Raises
    ------
    DataError
        The images differ: other contrast, artefacts, or another head.
    """
    mask = ants.threshold_image(first, "Otsu", 1)
    head = mask.numpy() > 0
    moved, _ = align(clip_intensity(first), clip_intensity(image), mask, settings, image)
    values, expected = moved.numpy()[head].astype(float), first.numpy()[head].astype(float)
    r = np.corrcoef(values, expected)[0, 1]
    if not r >= MIN_CORRELATION:
        raise DataError(f"it differs from the session's first T1w (correlation {r:.2f} within the head)")
    return moved * float(values @ expected / (values @ values))


def one_piece(mask: np.ndarray, spacing: Iterable[float]) -> np.ndarray:
    """Return the mask's largest component with holes filled, (X, Y, Z) float32; a DataError if it is too small."""
    components, count = ndimage.label(mask)
    sizes = np.bincount(components.ravel())[1:] if count else np.zeros(1)
    volume = sizes.max() * float(np.prod(list(spacing)))
    if volume < MIN_BRAIN:
        raise DataError(
            f"brain extraction found only {volume / 1000:.0f} ml, too little for a brain",
            hint="Check that the T1w shows a whole head and that the orientation in its header is correct",
        )
    return ndimage.binary_fill_holes(components == sizes.argmax() + 1).astype(np.float32)


def normalise(
    brain: Image,
    template_brain: Image,
    affine: Path,
    bent: Path,
    unbent: Path,
    settings: Registration,
    folder: str | Path,
) -> tuple[Path, Path]:
    """Refine the alignment of a T1w brain with the template's, now without skull.

    The brain is warped by the alignment that brain extraction has found, and registered again by SyN (Avants et al.
    2008, doi:10.1016/j.media.2007.06.004); both displacements are then composed.

    Parameters
    ----------
    brain, template_brain : ANTs image
        Zero outside the brain.
    affine, bent, unbent : path
        Of `extract_brain`.
    settings : Registration
    folder : path
        Where the transforms are written.

    Returns
    -------
    forward, inverse : path
        Composite transforms (``.h5``) from T1w to template and back: an affine and one displacement field each.

    Raises
    ------
    DataError
        ANTs fails.
    """
    spacing = settings.normalisation_resolution or max(template_brain.spacing)
    fixed = crop_to_brain(clip_intensity(template_brain))
    if max(fixed.spacing) < spacing - 0.05:
        fixed = images.resample_to_spacing(fixed, spacing)
    moving = warp(fixed, clip_intensity(brain), [bent, affine])
    seed(settings)
    refined = register(
        fixed,
        moving,
        "SyNOnly",
        outprefix=f"{folder}/refined_",
        initial_transform="Identity",
        reg_iterations=tuple(settings.syn_iterations),
        syn_metric=settings.syn_metric,
        syn_sampling=32 if settings.syn_metric == "mattes" else 4,
    )
    matrix = ants.read_transform(str(affine))
    there, back = (next(path for path in refined[key] if "Warp" in path) for key in ("fwdtransforms", "invtransforms"))
    forward, inverse = Path(folder, "t1w_to_template.h5"), Path(folder, "template_to_t1w.h5")
    images.write_composite([_composed([there, bent], bent), matrix], forward)
    images.write_composite([matrix.invert(), _composed([unbent, back], unbent)], inverse)
    return forward, inverse


def _composed(fields: Sequence[str | Path], grid: Path) -> ants.ANTsTransform:
    """Compose displacement fields, the first applied first to points, into one on the grid of another."""
    like = ants.image_read(str(grid)).split_channels()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = ants.apply_transforms(like, like, [str(field) for field in fields], compose=f"{folder}/")
        return ants.transform_from_displacement_field(ants.image_read(path))


def check_transform(forward: Sequence[str | Path], template_mask: Image, mask: Image) -> None:
    """Refuse an implausible normalisation.

    Parameters
    ----------
    forward : sequence of path
        Transforms from T1w to template.
    template_mask, mask : ANTs image
        Brain masks of the template and of the T1w.

    Raises
    ------
    DataError
        Points map to infinity, space folds, the brain is scaled beyond human variation, or the masks do not overlap.
    """
    coarse = images.resample_to_spacing(template_mask, max(GRID, *template_mask.spacing))
    inside, affine = coarse.numpy() > 0.5, images.affine_of(coarse)
    mapped = images.places_of_grid(inside.shape, affine, forward).astype(float)
    if not np.isfinite(mapped).all():
        raise DataError("normalisation to the template maps points to infinity", hint=HINT)
    slopes = np.stack(np.gradient(mapped, axis=(0, 1, 2)), axis=-1)
    folded = float(((np.linalg.det(slopes) / np.linalg.det(affine[:3, :3]))[inside] <= 0).mean())
    points = np.c_[images.apply(affine, np.argwhere(inside)), np.ones(inside.sum())]
    volume = float(np.linalg.det(np.linalg.lstsq(points, mapped[inside], rcond=None)[0][:3]))
    overlap = dice(warp(template_mask, mask, forward).numpy() > 0.5, template_mask.numpy() > 0.5)
    for refused, problem in (
        (folded > MAX_FOLDED, f"folds space in {100 * folded:.1f} % of the brain"),
        (not VOLUMES[0] <= volume <= VOLUMES[1], f"makes the brain {volume:.2f} times the template's volume"),
        (overlap < MIN_DICE, f"gives a brain-mask overlap (Dice) of only {overlap:.2f}"),
    ):
        if refused:
            raise DataError(f"normalisation to the template {problem}", hint=HINT)


# ---- the workflow ----------------------------------------------------------------------------------------------------
def init_anatomical_wf(settings: Registration, *, average: bool = False) -> Workflow:
    """Build the workflow: bias correction, brain extraction, tissue segmentation, normalisation.

    Inputs: raw, more (list of images to average with it), template, template_mask. Outputs: t1w
    (bias-corrected, RAS), n_averaged (T1w images used), mask, dseg (1 GM, 2 WM, 3 CSF), gm, wm and csf (probabilities),
    forward and inverse (composite transforms to the template and back), warped (T1w in template space), deep (mask of
    deep grey matter on the T1w).
    """
    workflow = connected(
        "anatomical",
        ["raw", "more", "template", "template_mask"],
        conform=Step(conform, "t1w n_averaged", settings=settings),
        brain=Step(extract_brain, "mask affine bent unbent", settings=settings),
        tissues=Step(segment, "dseg gm wm csf", settings=settings),
        normalise=Step(refine, "forward inverse warped deep", settings=settings),
    )
    texts = {"average": METHODS["average"] if average else "", "metric": METHODS[settings.syn_metric]}
    workflow.__desc__ = METHODS["text"].format(**texts, settings=settings.name)
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
    sources = {"raw": t1w, "template": template / "T1w.nii.gz", "template_mask": template / "brain_mask.nii.gz"}
    inputs: dict[str, Any] = {port: str(path.absolute()) for port, path in sources.items()}
    inputs["more"] = [str(path.absolute()) for path in more_t1w]
    candidates = [registration] if isinstance(registration, Registration) else list(registration)
    for settings, following in zip(candidates, [*candidates[1:], None], strict=True):
        workflow = init_anatomical_wf(settings, average=bool(more_t1w))
        try:
            made = run(workflow, work, where=t1w, **inputs)
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
