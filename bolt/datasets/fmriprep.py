"""fMRIPrep derivatives: BOLD in template space, brain masks and tables of confounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.atlases.description import describe_atlas, known_atlases
from bolt.atlases.spaces import serves
from bolt.config import Config, Dataset
from bolt.datasets.bids import check_sidecar, entities_of, find_images, open_layout, without_image
from bolt.datasets.participants import join_subjects, read_participants, read_timing
from bolt.datasets.spaces import description_of
from bolt.io.errors import DataError


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """List the preprocessed BOLD images in the configured space, as in `bolt.datasets.COLUMNS`."""
    layout = open_layout(dataset.path, is_derivative=True)
    space = config.preprocess.space
    desc = description_of(config)
    images = find_images(layout, dataset, suffix="bold", desc=desc, space=space)
    if not images:
        raise _no_images(
            dataset, config, sorted(set(layout.get(return_type="id", target="space", suffix="bold", desc=desc)))
        )
    images = _of_one_resolution(images, dataset)
    where = dataset.subjects_table or dataset.path / "participants.tsv"
    subjects = read_participants(where)
    rows = [_row(layout, bold, dataset, space) for bold in images]
    missing = f"the subject has no desc-{desc}_bold image in space {space}"
    rows += without_image(subjects, rows, dataset, kind="preprocessed", exclude_reason=missing)
    return join_subjects(pd.DataFrame(rows), subjects, dataset, where)


def _no_images(dataset: Dataset, config: Config, spaces: list[str]) -> DataError:
    """Return the error for images in other spaces: it names atlases for these, and what to ask fMRIPrep for."""
    home = config.paths.templateflow_home
    fitting = {space: [a for a in known_atlases() if serves(describe_atlas(a).spaces, space, home)] for space in spaces}
    choices = [f"{space} with {', '.join(names)}" for space, names in fitting.items() if names]
    space = config.preprocess.space
    use = f"Set 'preprocess: space' and 'atlases' to {'; or to '.join(choices)}. Or run" if choices else "Run"
    return DataError(
        f"no desc-{description_of(config)}_bold images in space {space} (found spaces: {', '.join(spaces) or 'none'})",
        where=dataset.path,
        hint=f"{use} fMRIPrep with --output-spaces {space}",
    )


def _of_one_resolution(images: list[Any], dataset: Dataset) -> list[Any]:
    """Return the images of one resolution; several would repeat each scan."""
    resolutions = {image.path: _resolution(image.path) for image in images}
    names = sorted({name or "none" for name in resolutions.values()})
    if dataset.resolution is None and len(names) > 1:
        raise DataError(
            f"images at several resolutions: res- is {', '.join(names)}",
            where=dataset.path,
            hint=f"Choose one in the dataset's file, such as 'resolution: \"{names[0]}\"'",
        )
    kept = [image for image in images if dataset.resolution in (None, resolutions[image.path] or "none")]
    if not kept:
        raise DataError(
            f"no images at resolution '{dataset.resolution}'; res- is {', '.join(names)}",
            where=dataset.path,
            hint="Correct 'resolution' in the dataset's file",
        )
    return kept


def _resolution(path: str) -> str | None:
    entity = re.search(r"_res-([A-Za-z0-9]+)", Path(path).name)
    return entity[1] if entity else None


def _row(layout: Any, bold: Any, dataset: Dataset, space: str) -> dict[str, Any]:
    stem = bold.path.rsplit("_desc-", 1)[0]
    start = stem.split(f"_space-{space}")[0]
    row = entities_of(bold.get_entities()) | {
        "scan_id": Path(start).name,
        "kind": "preprocessed",
        "space": space,
        "bold": bold.path,
        "mask": _first_existing(f"{stem}_desc-brain_mask.nii.gz"),
        "confounds": _first_existing(
            f"{start}_desc-confounds_timeseries.tsv", f"{start}_desc-confounds_regressors.tsv"
        ),
        "exclude_reason": None,
    }
    try:
        check_sidecar(bold.path)
        row |= read_timing(bold.path, layout.get_metadata(bold.path).get("RepetitionTime", dataset.tr), dataset)
    except DataError as error:
        row["exclude_reason"] = str(error)
    return row


def _first_existing(*paths: str) -> str | None:
    return next((path for path in paths if Path(path).is_file()), None)
