"""The ``.bidsignore`` file of the derivatives."""

from __future__ import annotations

from pathlib import Path

from bolt.io.files import write_if_new

IGNORED = """*.html
figures
*_xfm.*
*_boldref.*
*_boldmap.*
*_timeseries.*
*desc-quality.json
*status.json
*crash.txt
*provenance.json
"""
"""Files whose names BIDS does not define; fMRIPrep lists the same kinds."""


def write_bidsignore(folder: Path) -> None:
    """Write ``.bidsignore``: `IGNORED`, and the empty files that stand in for the outputs of failed images.

    Parameters
    ----------
    folder : path
        ``results/<dataset>/derivatives``.
    """
    empty = sorted(path for path in folder.glob("sub-*/**/[!.]*.nii.gz") if _is_empty(path))
    lines = "".join(f"{path.relative_to(folder).as_posix()}\n" for path in empty)
    write_if_new(IGNORED + lines, folder / ".bidsignore")


def _is_empty(path: Path) -> bool:
    try:
        return not path.stat().st_size
    except FileNotFoundError:  # other jobs write to this folder at the same time
        return False
