"""The scans of ``bolt predict``: files of series, or images from which the workflow makes series like the model's."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from bolt.atlases.description import describe_atlas
from bolt.cli.new_study import source_of_folder, write_study
from bolt.cli.run_app import call_workflow
from bolt.cli.wishes import Wishes
from bolt.config import known
from bolt.config.layout import Layout
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table, write_yaml
from bolt.packs.pack import Pack
from bolt.packs.sources import NewScans, Wanted, read_new_scans, read_results

log = logging.getLogger("bolt")

NAME = "new"
"""Of the dataset that the workflow is given."""
LIGHTEST = "majority"
"""A model that is never trained here, and excludes no scan for its length."""


def scans_to_predict(options: argparse.Namespace, pack: Pack, wanted: Wanted) -> NewScans:
    """Read or make the series of the scans to predict.

    Parameters
    ----------
    options : Namespace
        source, label, tr, atlas, out, work_dir, n_cpus, fetch.
    pack : Pack
    wanted : Wanted
        What its models read.

    Raises
    ------
    ConfigError, DataError
        The source cannot be read; the atlas is not the model's; the workflow has failed.
    """
    folder = options.source[0]
    if not folder.is_dir():
        return read_new_scans(options.source, wanted, options.tr, options.label)
    if len(options.source) > 1:
        raise ConfigError("several sources, of which the first is a folder", hint="Give one folder, or files")
    if (folder / "cache").is_dir() and (folder / "config.yaml").is_file():
        return _of_results(folder, pack, wanted, options.label)
    series = pack.about.get("series")
    if series is None or series["space"] is None:
        raise ConfigError(
            "how the model's series were made is unknown, so none can be made of images",
            where=options.model,
            hint="Make series yourself, and give these",
        )
    return _of_images(folder, options, pack, wanted)


def _of_images(folder: Path, options: argparse.Namespace, pack: Pack, wanted: Wanted) -> NewScans:
    """Let the workflow make the series of a folder of images, with the model's settings."""
    series, source = pack.about["series"], source_of_folder(folder)
    made_by = {"bids": "BolT", "fmriprep": "fMRIPrep"}.get(source)
    if made_by is not None and made_by != series["made_by"]:
        log.warning("images preprocessed by %s; those of the training cohort by %s", made_by, series["made_by"])
    work = options.work_dir or options.out.with_name(f"{options.out.stem}_work")
    place, config, _ = write_study(work, NAME, folder, _wishes(options, pack, wanted, work))
    for target in ["resources"] * options.fetch + ["series"]:
        if call_workflow(work, place, [target], options.n_cpus):
            raise DataError(
                "the series of these images could not be made", where=work, hint="See above; the same command resumes"
            )
    layout = Layout(config)
    found = _of_results(work / layout.results, pack, wanted, options.label)
    exclusions = read_table(work / layout.exclusions, text=("scan_id", "stage", "reason"))
    found.excluded += [(row.scan_id, f"{row.stage}: {row.reason}") for row in exclusions.itertuples()]
    return found


def _wishes(options: argparse.Namespace, pack: Pack, wanted: Wanted, work: Path) -> Wishes:
    """Return the settings with which the model's series were made."""
    series = pack.about["series"]
    settings: dict[str, Any] = {
        "preprocess": {**(series["preprocessing"] or {}), "space": series["space"], "output": series["output"]},
        "parcellate": {
            "coverage": series["coverage"],
            "signal": series.get("signal", 0),  # packs made before it was asked for
            "uncovered": "zero",
        },
        "denoise": _denoise(series["denoising"], work),
    }
    return Wishes(
        label=options.label,
        classes=pack.classes or [],
        atlases=[_atlas(options.atlas, pack, wanted)],
        models=[LIGHTEST] if pack.classes else [],
        settings=settings,
    )


def _atlas(given: str | None, pack: Pack, wanted: Wanted) -> str:
    """Return the name or path of the model's atlas."""
    if given is not None:
        return str(Path(given).resolve()) if Path(given).exists() else given
    try:
        describe_atlas(wanted.atlas)
    except BoltError:
        raise ConfigError(
            f"the model's atlas '{wanted.atlas}' does not come with BolT", hint="Give its folder: --atlas FOLDER"
        ) from None
    return wanted.atlas


def _denoise(denoising: dict[str, Any] | None, work: Path) -> str:
    """Return the model's denoising: a shipped strategy, or a file that is written for it."""
    if denoising is None:
        return "none"
    from bolt.config import load_denoise

    name = denoising["name"]
    if name in known("denoising") and load_denoise(name).model_dump(mode="json") == denoising:
        return str(name)
    path = (work / "denoise" / f"{name}.yaml").resolve()
    write_yaml({key: value for key, value in denoising.items() if key != "name"}, path)
    return str(path)


def _of_results(results: Path, pack: Pack, wanted: Wanted, label: str | None) -> NewScans:
    """Read the series that the workflow has made."""
    caches = sorted((results / "cache" / wanted.atlas).glob("*/manifest.json"))
    caches = [cache for cache in caches if wanted.space is None or cache.parent.name.startswith(f"{wanted.space}-")]
    if len(caches) != 1:
        found = ", ".join(sorted(path.parent.parent.name for path in results.glob("cache/*/*/manifest.json")))
        raise DataError(
            f"{len(caches)} caches of atlas '{wanted.atlas}' in space {wanted.space}",
            where=results,
            hint=f"Its atlases: {found or 'none'}",
        )
    variant = caches[0].parent.name
    scans = read_results(results, wanted.atlas, variant, wanted)
    _check_settings(results, variant, caches[0], scans, wanted)
    if label is None:
        scans.labels = None
    elif scans.labels is None:
        raise ConfigError(f"--label {label}: scans have no label there", where=results / "scans.tsv")
    return scans


def _check_settings(results: Path, variant: str, manifest: Path, scans: NewScans, wanted: Wanted) -> None:
    """Refuse series of another denoising or another atlas image than the model's."""
    denoising = (read_json(manifest)["settings"].get("Denoising") or {}).get("name")
    if wanted.denoising is not None and denoising not in (None, wanted.denoising):
        raise DataError(
            f"denoised by '{denoising}', but the model was trained on '{wanted.denoising}'", where=manifest.parent
        )
    for scan in scans.cache.index["scan_id"] if scans.cache is not None else []:
        sidecar = results / "series" / variant / scan / f"{scan}_atlas-{wanted.atlas}_timeseries.json"
        if sidecar.is_file():
            actual = read_json(sidecar).get("AtlasSHA256")
            if wanted.sha256 is not None and actual not in (None, wanted.sha256):
                raise DataError(
                    f"made with another image of atlas '{wanted.atlas}' (sha256 {actual})",
                    where=sidecar,
                    hint=f"The model's has the sha256 {wanted.sha256}",
                )
            return
