"""Names of the files that preprocessing makes; apart, because asking for a name should import nothing."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path


def anatomical_names(prefix: str, space: str) -> dict[str, str]:
    """File names of the anatomical outputs, by the workflow's output.

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
        "forward": f"{prefix}from-T1w_to-{space}_mode-image_xfm.h5",
        "inverse": f"{prefix}from-{space}_to-T1w_mode-image_xfm.h5",
        "warped": f"{prefix}space-{space}_desc-preproc_T1w.nii.gz",
    }


def pictures_of(figures: Path, start: str, suffixes: tuple[str, ...], space: str | None = None) -> dict[Path, str]:
    """The pictures of one image, and what each shows (``tissues_T1w``).

    Parameters
    ----------
    figures : path
        Folder; those of the subject's other images lie there as well.
    start : str
        Begins the image's names: ``sub-01_``, ``sub-01_task-rest_``. Those of ``sub-01_task-rest_run-2`` are others.
    suffixes : tuple of str
        Ends of their names: ``T1w``, or ``bold``, ``boldref``, ``boldmap``.
    space : str, optional
        Passes over pictures of other spaces.
    """
    pattern = re.compile(rf"{re.escape(start)}(?:space-([A-Za-z0-9]+)_)?desc-([A-Za-z0-9]+_({'|'.join(suffixes)}))")
    found = {}
    for file in sorted(figures.glob(f"{glob.escape(start)}*")):
        kind = pattern.fullmatch(file.stem)
        if kind and space in (None, kind[1] or space):
            found[file] = kind[2]
    return found


T1W_PICTURES = ("T1w",)
SCAN_PICTURES = ("bold", "boldref", "boldmap")


def forget(made: Iterable[Path], start: str, suffixes: tuple[str, ...]) -> None:
    """Remove all that an earlier job left of an image: one that fails now must not keep good-looking pictures.

    Parameters
    ----------
    made : iterable of path
        Its outputs, in one folder; their JSON files and ``desc-quality.json`` go with them.
    start, suffixes
        As in `pictures_of`, in ``figures`` beside that folder.
    """
    made = list(made)
    folder = made[0].parent
    beside = [file.with_name(f"{file.name.split('.')[0]}.json") for file in made]
    pictures = pictures_of(folder.parent / "figures", start, suffixes)
    for file in (*made, *beside, folder / f"{start}desc-quality.json", *pictures):
        file.unlink(missing_ok=True)
