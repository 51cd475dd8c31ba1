"""Disk space for preprocessing, estimated from image headers before the first job."""

from __future__ import annotations

import sys
from pathlib import Path

from bolt.config.costs import load_costs
from bolt.io.disk_space import free_bytes, gigabytes, require_space
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json
from bolt.io.volumes import check_image
from bolt.workflow.run import Run
from bolt.workflow.snakemake import is_dry_run

FIELD = 182 * 218 * 182
"""Cubic millimetres of the templates' field."""
STORED = 0.35
"""Bytes on disk per byte of the 4D image: it is zero outside the brain, and compressed (0.28 for a real scan)."""
WORK = 300e6
"""Bytes of a job's other intermediate files: images and warps of the T1w at 1 mm."""
WAITING = 2
"""4D images per core: one being written, one being parcellated (these jobs go first)."""

WORKLESS = {"--unlock", "--touch", "-t", "--cleanup-metadata", "--cm", "--delete-all-output", "--delete-temp-output"}
WORKLESS |= {"--lint", "--dag", "--rulegraph", "--filegraph", "--summary", "-S", "--list", "-l", "resources"}
WORKLESS |= {"--target-jobs"}
"""Arguments of `snakemake` without preprocessing; the last is one job of a run that was checked at its start."""


def preprocessing_peak(run: Run, jobs: int) -> float:
    """Return the bytes that preprocessing will need at once, beyond what is on disk already.

    Parameters
    ----------
    run : Run
    jobs : int
        At once.

    Returns
    -------
    float
        Kept files of the scans still to be processed, and the largest 4D images and work files of `jobs` of them.
    """
    volumes = sorted(volumes_to_do(run), reverse=True)
    if not volumes:
        return 0.0
    settings = run.config.preprocess
    image = 0.0 if settings.output == "native" else 4 * FIELD / settings.resolution**3 * STORED
    kept = len(volumes) * load_costs().megabytes_per_scan.raw * 1e6
    at_once = sum(volumes) if settings.keep_bold else sum(volumes[: WAITING * jobs])
    return kept + image * at_once + WORK * min(jobs, len(volumes))


def volumes_to_do(run: Run) -> list[int]:
    """Return the volumes of every raw scan not preprocessed yet; before the index exists, of every image."""
    dataset = run.dataset
    if run.layout.scans.is_file():
        scans = [scan for scan in run.scans.itertuples() if scan.kind == "raw"]
        return [int(s.n_volumes) for s in scans if not _is_done(run, str(s.scan_id))]
    if dataset.source == "phantom" and dataset.simulate is not None:
        return [max(dataset.simulate.n_volumes)] * dataset.simulate.n_subjects
    if dataset.source != "bids":
        return []
    return [n for path in sorted(dataset.path.glob("sub-*/**/func/*_bold.nii*")) if (n := _volumes(path))]


def _is_done(run: Run, scan_id: str) -> bool:
    """Return whether a scan has what the run wants of it: the kept image, or else the series of the run's variant.

    The scan's own status shows neither: both output spaces share it, and it stays when the image is deleted.
    """
    bold, status = run.layout.bold(scan_id), run.layout.series_status(scan_id)
    if run.config.preprocess.keep_bold and not run.layout.native:
        return bold.is_file() and bold.stat().st_size > 0  # a scan that failed leaves it empty
    return status.is_file() and bool(read_json(status)["state"] == "ok")


def _volumes(path: Path) -> int:
    """Return the volumes that a header states; 0 if it cannot be read: the index will report why."""
    try:
        shape = check_image(path).shape
    except DataError:
        return 0
    return shape[3] if len(shape) == 4 else 0


def check_preprocessing_space(run: Run, arguments: list[str], jobs: int) -> None:
    """Refuse a run whose preprocessing the disk cannot hold; in a dry run, warn.

    Parameters
    ----------
    run : Run
    arguments : list of str
        Of the `snakemake` command.
    jobs : int
        At once.
    """
    if not WORKLESS.isdisjoint(arguments):
        return
    needed = preprocessing_peak(run, jobs)
    if not needed:
        return
    what = f"preprocessing with {jobs} job{'s' if jobs > 1 else ''} at once"
    try:
        require_space(run.layout.derivatives, needed, what, "results")
    except ConfigError as error:
        if not is_dry_run(arguments):
            sys.tracebacklimit = 0
            raise SystemExit(f"bolt: {error}") from None
        print(f"Warning: {error}", file=sys.stderr)
        return
    if is_dry_run(arguments):
        free = gigabytes(free_bytes(run.layout.derivatives))
        print(f"Disk: {what} needs up to {gigabytes(needed)}; {free} are free.", file=sys.stderr)
