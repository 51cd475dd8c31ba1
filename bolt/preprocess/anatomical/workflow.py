"""Anatomical workflow: T1w to template, once per subject (or session)."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nipype import Node, Workflow
from nipype.interfaces.utility import IdentityInterface

from bolt.config import Registration
from bolt.config.derivatives import anatomical_names
from bolt.io.errors import BoltError
from bolt.io.files import link_or_copy, write_json
from bolt.jobs.progress import at_step
from bolt.preprocess.anatomical.steps import BrainMask, Conform, Normalise, Tissues
from bolt.preprocess.checks import check_t1w
from bolt.preprocess.quality import compute, pictures
from bolt.preprocess.sidecars import methods_of, write_sidecars
from bolt.preprocess.steps import run

log = logging.getLogger("bolt")
AVERAGED = "The T1-weighted images of a session were aligned rigidly by mutual information [@mattes] and averaged. "
METRICS = {"CC": "cross-correlation [@ants_metrics]", "mattes": "mutual information [@mattes]"}
OUTPUTS = ["t1w", "mask", "dseg", "gm", "wm", "csf", "forward", "inverse", "warped", "n_averaged"]


def init_anatomical_wf(settings: Registration, name: str = "anatomical", *, average: bool = False) -> Workflow:
    """Build the workflow: bias correction, brain extraction, tissue segmentation, normalisation.

    Inputs (``inputnode``): t1w, more_t1w (list of images to average with it), template, template_mask. Outputs
    (``outputnode``): t1w (bias-corrected, RAS), mask, dseg (1 GM, 2 WM, 3 CSF), gm, wm and csf (probabilities), forward
    and inverse (composite transforms to the template and back), warped (T1w in template space), deep (mask of deep grey
    matter on the T1w), n_averaged (T1w images used).
    """
    workflow = Workflow(name)
    averaged = AVERAGED if average else ""
    workflow.__desc__ = f"""{averaged}The T1-weighted image was corrected for intensity non-uniformity (N4 [@ants_n4])
        and skull-stripped by affine and symmetric diffeomorphic registration (SyN [@ants_syn]) with the template, and
        grey matter, white matter and cerebrospinal fluid were segmented (Atropos [@ants_atropos]: k-means with a Markov
        random field). The normalisation of the brain to the template was then refined by SyN without the skull
        ({METRICS[settings.syn_metric]}; settings '{settings.name}'), using ANTsPy [@antspy] and nipype [@nipype]."""
    keys = settings.model_dump()
    source = Node(IdentityInterface(["t1w", "more_t1w", "template", "template_mask"]), "inputnode")
    conform = Node(Conform(settings=keys), "conform")
    brain = Node(BrainMask(settings=keys), "brain")
    tissues = Node(Tissues(settings=keys), "tissues")
    normalise = Node(Normalise(settings=keys), "normalise")
    result = Node(IdentityInterface(OUTPUTS), "outputnode")
    templates = [("template", "template"), ("template_mask", "template_mask")]
    workflow.connect(
        [
            (source, conform, [("t1w", "t1w"), ("more_t1w", "more")]),
            (source, brain, templates),
            (source, normalise, templates),
            (conform, brain, [("out", "t1w")]),
            (conform, tissues, [("out", "t1w")]),
            (conform, normalise, [("out", "t1w")]),
            (brain, normalise, [("out", "mask"), *((port, port) for port in ("affine", "forward", "inverse"))]),
            (brain, tissues, [("out", "mask")]),
            (conform, result, [("out", "t1w"), ("n_averaged", "n_averaged")]),
            (brain, result, [("out", "mask")]),
            (tissues, result, [(port, port) for port in ("dseg", "gm", "wm", "csf")]),
            (normalise, result, [(port, port) for port in ("forward", "inverse", "warped", "deep")]),
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
    workflow, made, used = _first_that_works(candidates, [t1w, *more_t1w], template, work)
    names = anatomical_names(prefix, space)
    for port, name in names.items():
        link_or_copy(made[port], out / name)
    paths = {port: out / name for port, name in names.items()}
    at_step("anatomical.sidecars")
    write_sidecars(paths.values(), [t1w, *more_t1w], Methods=methods_of(workflow))
    at_step("anatomical.quality")
    numbers = compute.anatomical_numbers(paths, template)
    numbers |= {"registration": used.name, "n_t1w": made["n_averaged"]}
    write_json(numbers, out / f"{prefix}desc-quality.json")
    at_step("anatomical.pictures")
    pictures.draw_anatomical(paths, template, out.parent / "figures", prefix, space, numbers)
    shutil.rmtree(work)


def _first_that_works(
    candidates: Sequence[Registration], t1w: Sequence[Path], template: Path, work: Path
) -> tuple[Workflow, dict[str, Any], Registration]:
    """Return the first workflow that succeeds, its outputs and its settings."""
    for number, settings in enumerate(candidates, start=1):
        workflow = init_anatomical_wf(settings, average=len(t1w) > 1)
        workflow.inputs.inputnode.t1w, *workflow.inputs.inputnode.more_t1w = (str(path.resolve()) for path in t1w)
        workflow.inputs.inputnode.template = str((template / "T1w.nii.gz").resolve())
        workflow.inputs.inputnode.template_mask = str((template / "brain_mask.nii.gz").resolve())
        try:
            return workflow, run(workflow, work, where=t1w[0]), settings
        except BoltError as error:
            if number == len(candidates):
                raise
            log.warning("settings '%s' failed, trying '%s' next: %s", settings.name, candidates[number].name, error)
    raise ValueError("no settings to try")
