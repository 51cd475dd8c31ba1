"""The report with everything it shows in one file, to be sent by mail and opened from disk."""

from __future__ import annotations

import zipfile
from pathlib import Path

from bolt.config.layout import Layout
from bolt.io.errors import DataError
from bolt.io.files import atomic

REFRESH = '<meta http-equiv="refresh" content="0; url={place}">'
START = '<!doctype html><meta charset="utf-8"><title>Report</title>' + REFRESH
SHOWN = ("**/figures/*", "**/*_crash.txt")
"""What the pages show of ``derivatives/``."""


def zip_report(layout: Layout, out: Path) -> Path:
    """Write all pages of a study, their figures and crash reports to a ZIP file that begins with ``open_me.html``.

    Raises
    ------
    DataError
        There is no report yet.
    """
    if not layout.report.is_file():
        raise DataError("there is no report yet", where=layout.report, hint="Run the workflow first: snakemake")
    root, name = layout.results, layout.results.name
    files = [path for path in layout.report.parent.rglob("*") if path.is_file() and not path.name.startswith(".")]
    files += layout.subjects.glob("*.html")
    files += [path for pattern in SHOWN for path in layout.derivatives.glob(pattern) if path.is_file()]
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/open_me.html", START.format(place=layout.report.relative_to(root).as_posix()))
        for path in sorted(set(files)):
            archive.write(path, f"{name}/{path.relative_to(root).as_posix()}")
    return out
