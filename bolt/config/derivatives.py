"""Names of the files that preprocessing writes, in a module that imports none of its libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from bolt.io.bids import SPACE


def anatomical_names(prefix: str, space: str) -> dict[str, str]:
    """Return file names of the anatomical outputs, by the names of the workflow's outputs.

    Parameters
    ----------
    prefix : str
        ``sub-01_`` or ``sub-01_ses-a_``.
    space : str
        The template's name.
    """
    return {
        "t1w": f"{prefix}desc-preproc_T1w.nii.gz",
        "mask": f"{prefix}desc-brain_mask.nii.gz",
        "dseg": f"{prefix}dseg.nii.gz",
        **{tissue: f"{prefix}label-{tissue.upper()}_probseg.nii.gz" for tissue in ("gm", "wm", "csf")},
        "deep": f"{prefix}label-deepGM_mask.nii.gz",
        "forward": f"{prefix}from-T1w_to-{space}_mode-image_xfm.h5",
        "inverse": f"{prefix}from-{space}_to-T1w_mode-image_xfm.h5",
        "warped": f"{prefix}space-{space}_desc-preproc_T1w.nii.gz",
    }


def pictures_of(figures: Path, start: str, suffixes: tuple[str, ...], space: str | None = None) -> dict[Path, str]:
    """Return the pictures of one image, with the content of each (``tissues_T1w``).

    Parameters
    ----------
    figures : path
        Folder with the pictures of all images of the subject.
    start : str
        Start of the names: ``sub-01_``, ``sub-01_task-rest_`` (which does not match ``sub-01_task-rest_run-2``).
    suffixes : tuple of str
        Ends of the names: ``T1w``, or ``bold``, ``boldref``, ``boldmap``.
    space : str, optional
        Skip pictures in other spaces.
    """
    # `start` is not in the pattern: one for each of thousands of scans would be compiled anew
    rest = re.compile(rf"(?:space-({SPACE})_)?desc-([A-Za-z0-9]+_({'|'.join(suffixes)}))\.[a-z]+")
    pictures = {}
    for file in sorted(os.listdir(figures)) if figures.is_dir() else []:
        name = rest.fullmatch(file.removeprefix(start)) if file.startswith(start) else None
        if name and space in (None, name[1] or space):
            pictures[figures / file] = name[2]
    return pictures


T1W_PICTURES = ("T1w",)
SCAN_PICTURES = ("bold", "boldref", "boldmap")


def remove_outputs(made: Iterable[Path], start: str, suffixes: tuple[str, ...]) -> None:
    """Remove what an earlier job made of an image, so that a failing one does not keep outdated pictures.

    Parameters
    ----------
    made : iterable of path
        Its outputs, in one folder; their JSON files and ``desc-quality.json`` are removed as well.
    start, suffixes
        As in `pictures_of`, for the pictures in ``figures`` beside that folder.
    """
    made = list(made)
    folder = made[0].parent
    sidecars = [file.with_name(f"{file.name.split('.')[0]}.json") for file in made]
    pictures = pictures_of(folder.parent / "figures", start, suffixes)
    for file in (*made, *sidecars, folder / f"{start}desc-quality.json", *pictures):
        file.unlink(missing_ok=True)
