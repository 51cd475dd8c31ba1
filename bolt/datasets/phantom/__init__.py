"""The phantom: a raw BIDS dataset of simulated brains whose truth is known.

Nothing is downloaded: brains come from the ICBM152 images and ROIs from the Dosenbach coordinates that ship with
nilearn. `signal` simulates ROI series, `anatomy` heads, and `scan` images. The truth is written to
``derivatives/truth/`` and explained in its README, `truth.md` here.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from isal import igzip
from joblib import Parallel, delayed, parallel_config

from bolt.config import Simulate
from bolt.datasets.phantom import anatomy, scan
from bolt.datasets.phantom.signal import Series, informative, make_series, random_stream
from bolt.io.errors import DataError
from bolt.io.files import read_yaml, write_json, write_table, write_text

CLASSES = ["control", "patient"]
SITES = ["north", "south"]
TASK = "task-rest"
TRUTH = Path("derivatives") / "truth"
TRUTH_GRID = 4  # mm between the points of the written deformations
COLUMNS = read_yaml(Path(__file__).with_name("columns.yaml"))


class Subject(NamedTuple):
    """A simulated subject; `site` is 0 or 1, and `positive` its class."""

    number: int
    name: str
    sex: str
    age: int
    site: int
    positive: bool


def subjects(settings: Simulate, n: int | None = None) -> list[Subject]:
    """Return the first `n` subjects (default: all).

    Class, site and sex are balanced over every 8 subjects, then shuffled, so that names are uninformative.
    """
    n = n or settings.n_subjects
    order = random_stream(settings, 0, "subjects").permutation(n)
    width = max(2, len(str(n)))
    ages = [int(random_stream(settings, i, "age").integers(20, 46)) for i in range(n)]
    return [
        Subject(i, f"sub-{i + 1:0{width}}", "FM"[(j + j // 2 + j // 4) % 2], ages[i], j // 2 % 2, j % 2 == 1)
        for i, j in enumerate(order.tolist())
    ]


def simulate_series(n: int, settings: Simulate) -> tuple[list[Subject], list[Series]]:
    """Simulate subjects and series without images, to measure the difficulty of the task.

    With ``n == settings.n_subjects`` they equal those of the full dataset.
    """
    people = subjects(settings, n)
    return people, [make_series(settings, p.number, p.site, p.positive) for p in people]


def simulate(out: Path, settings: Simulate, *, n_jobs: int = 1) -> None:
    """Write the whole BIDS dataset.

    Parameters
    ----------
    out : Path
        Folder of the dataset. It appears once it is complete, and replaces an older phantom.
    settings : Simulate
        Equal settings give equal bytes.
    n_jobs : int
        Processes.

    Raises
    ------
    DataError
        The folder `out` holds something that is not a phantom.
    """
    out = Path(out)
    if out.exists() and any(out.iterdir()) and not (out / TRUTH).is_dir():
        raise DataError("the folder is neither empty nor a phantom", where=out, hint="Choose another, or remove it")
    temporary = out.with_name(f".{out.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        people = subjects(settings)
        _write_top(temporary, settings, people)
        with parallel_config("loky", inner_max_num_threads=1):  # more threads than cores take three times as long
            Parallel(n_jobs=n_jobs)(delayed(_write_subject)(temporary, settings, person) for person in people)
        shutil.rmtree(out, ignore_errors=True)
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_top(out: Path, settings: Simulate, people: list[Subject]) -> None:
    """Write the files that describe the dataset."""
    common = {"Name": "BolT phantom", "BIDSVersion": "1.10.0", "License": "See README"}
    write_json({**common, "DatasetType": "raw", "Authors": ["BolT contributors"]}, out / "dataset_description.json")
    generated_by = {"GeneratedBy": [{"Name": "bolt simulate"}]}
    write_json({**common, "DatasetType": "derivative", **generated_by}, out / TRUTH / "dataset_description.json")
    for text, place in (("dataset.md", out), ("truth.md", out / TRUTH)):
        write_text(Path(__file__).with_name(text).read_text(encoding="utf-8"), place / "README.md")
    rows = [(p.name, p.sex, p.age, SITES[p.site], CLASSES[p.positive]) for p in people]
    columns = COLUMNS["participants"]
    write_table(pd.DataFrame(rows, columns=list(columns)), out / "participants.tsv", columns)
    planted = informative(settings)[list(COLUMNS["informative_rois"])]
    write_table(planted, out / TRUTH / "informative_rois.tsv", COLUMNS["informative_rois"])


def _write_subject(out: Path, settings: Simulate, person: Subject) -> None:
    """Write both images of one subject, and the truth about them."""
    i, site = person.number, person.site
    warp = anatomy.Warp(settings, i)
    head = anatomy.make_head(settings, i, warp)
    stem = out / person.name / "anat" / f"{person.name}_T1w"
    stem.parent.mkdir(parents=True)
    t1w = scan.scan_t1w(head, settings.gain[site], random_stream(settings, i, "t1w"))
    _write_image(anatomy.make_nifti(np.rint(t1w).astype(np.int16), head.affine), f"{stem}.nii.gz")
    write_json({"Modality": "MR", "InstitutionName": SITES[site]}, f"{stem}.json")

    series = make_series(settings, i, site, person.positive)
    motion = scan.head_motion(settings, settings.n_volumes[site], random_stream(settings, i, "motion"))
    moved = scan.repositioning(random_stream(settings, i, "repositioning"))
    seen = anatomy.distorted(head, warp, settings.distortion_mm) if settings.distortion_mm else head
    bold, affine = scan.scan_bold(seen, series, scan.rigid(motion) @ scan.rigid(moved), settings, site, i)
    tr = settings.tr[site]
    func = out / person.name / "func" / f"{person.name}_{TASK}"
    func.parent.mkdir()
    nifti = anatomy.make_nifti(bold, affine)
    nifti.set_data_dtype(np.int16)
    nifti.header.set_zooms((*nifti.header.get_zooms()[:3], tr))
    _write_image(nifti, f"{func}_bold.nii.gz")
    timing = {"SliceTiming": scan.slice_times(bold.shape[2], tr).round(4), "SliceEncodingDirection": "k"}
    about = {"TaskName": "rest", "RepetitionTime": tr, **timing, "InstitutionName": SITES[site]}
    write_json(about, f"{func}_bold.json")
    if settings.sbref:
        sbref = scan.scan_sbref(seen, scan.rigid(moved), settings, site, i)
        _write_image(anatomy.make_nifti(sbref.astype(np.int16), affine), f"{func}_sbref.nii.gz")

    # the truth, as truth.md describes it
    folder, name = out / TRUTH / person.name, person.name
    affine, shape = anatomy.grid(TRUTH_GRID, anatomy.FIELD_T1W)
    maps, template = anatomy.icbm152(TRUTH_GRID)
    folder.mkdir(parents=True)
    to_template = warp.to_template(anatomy.world_coordinates(affine, shape)).astype(np.float32)
    _write_image(anatomy.make_nifti(to_template, affine), folder / f"{name}_from-T1w_to-template_points.nii.gz")
    to_subject = warp.to_subject(anatomy.world_coordinates(template, maps["mask"].shape)).astype(np.float32)
    _write_image(anatomy.make_nifti(to_subject, template), folder / f"{name}_from-template_to-T1w_points.nii.gz")

    *parameters, _ = COLUMNS["positions"]
    entries = [f"m{row}{column}" for row in range(3) for column in range(4)]
    described = COLUMNS["positions"] | dict.fromkeys(entries, "Entry of the matrix: row, column")
    for part, values in (("motion", motion), ("from-T1w_to-bold", moved[None])):
        table = pd.DataFrame(values, columns=parameters)
        table["framewise_displacement"] = scan.framewise_displacement(values)
        table[entries] = scan.rigid(values)[:, :3].reshape(-1, 12)
        write_table(table, folder / f"{name}_{TASK}_{part}.tsv", described)

    np.save(folder / f"{name}_{TASK}_roiseries.npy", series.values)
    write_table(series.events, folder / f"{name}_{TASK}_events.tsv", COLUMNS["events"])
    landmarks = pd.DataFrame({"landmark": series.landmarks.astype(int), "response": series.response})
    write_table(landmarks, folder / f"{name}_{TASK}_landmarks.tsv", COLUMNS["landmarks"])


def _write_image(image: nib.Nifti1Image, path: str | Path) -> None:
    """Write a ``.nii.gz`` as nibabel does, but compressed by a faster library."""
    Path(path).write_bytes(igzip.compress(image.to_bytes(), compresslevel=1, mtime=0))
