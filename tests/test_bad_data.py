"""Every kind of bad data is made, and is met with the words that `docs/bad_input.md` has."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS, refuse_bad_scans
from bolt.config import Bucket, Config, Dataset, Hcp, load_dataset, load_denoise
from bolt.datasets import abide, fmriprep, index
from bolt.datasets.participants import require_classes
from bolt.evaluate.metrics import fold_predictions
from bolt.folds.duplicates import handle_copies
from bolt.folds.splits import make_folds
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_json, read_table, write_table, write_text
from bolt.io.series_files import read_series
from bolt.jobs.outcome import Outcome
from bolt.series.cache import SeriesCache
from bolt.series.cifti import match_greyordinates
from bolt.series.gather import build_cache
from bolt.series.joining import plan_joins
from bolt.series.parcellate import parcellate, write_parcellated
from bolt.workflow.checks import check_download_space, check_names
from bolt.workflow.job import Job
from bolt.workflow.stages import STAGES
from tests.abide import bucket_path, people, write_people
from tests.bad_inputs import DATA_CASES, Case
from tests.caches import pack, scan_table
from tests.fake_bids import bold_path, save_bold, write_bids
from tests.fake_cifti import NAMES as PARCELS
from tests.fake_cifti import brain as greyordinates
from tests.fake_cifti import ptseries, seconds
from tests.fake_fmriprep import write_fmriprep
from tests.fake_hcp import serve_s3, write_hcp
from tests.file_server import serve
from tests.series.test_parcellate import AFFINE, NAME, SHAPE, T, make_atlas, save
from tests.snake import series_dataset

Said = tuple[str, str]
MAKERS: dict[str, Callable[..., Said]] = {}
RAW = Config(dataset="fake", atlases=["dosenbach160"])


def of(name: str):
    """The maker of the case with this input."""

    def register(make):
        assert name not in MAKERS
        MAKERS[name] = make
        return make

    return register


@pytest.mark.parametrize("case", DATA_CASES, ids=lambda case: case.input)
def test_bad_data(case: Case, tmp_path, monkeypatch):
    outcome, text = MAKERS[case.input](tmp_path, monkeypatch)
    assert outcome == case.outcome and case.is_said(text), f"{outcome}: {text}"


def test_every_case_is_made():
    assert set(MAKERS) == {case.input for case in DATA_CASES}


# ---- how it ends -----------------------------------------------------------------------------------
def refused(act: Callable[[], object]) -> Said:
    with pytest.raises(BoltError) as caught:
        act()
    return "refused", str(caught.value)


def worked(folder: Path, work: Callable[[], None], stage: str = "parcellate") -> Said:
    """A job on one scan: what its status file says."""
    Outcome(stage, folder / "status.json", attempt=1).run(work)
    status = read_json(folder / "status.json")
    warnings = [entry["warning"] for entry in status.get("warnings", [])]
    return ("warned", "; ".join(warnings)) if status["state"] == "ok" else ("excluded", status["reason"])


def indexed(dataset: Dataset, config: Config = RAW, minimum_volumes: int = 2) -> Said:
    left = index(config, dataset, minimum_volumes).exclude_reason.dropna()
    assert len(left) == 1
    return "excluded", left.iloc[0]


def cached(folder: Path, series: dict[str, np.ndarray], policy: str = "zero") -> Said:
    """A cache of two scans, one of them odd."""
    rois = make_atlas().labels
    for name, values in series.items():
        if not (folder / f"{name}.npy").is_file():
            np.save(folder / f"{name}.npy", values)
    scans = pd.DataFrame({"scan_id": list(series), "kind": "series"}).reindex(columns=["scan_id", "kind", "n_volumes"])
    left = build_cache(scans, "cubes", rois, lambda scan: folder / f"{scan.scan_id}.npy", folder / "c", policy=policy)
    odd = read_table(folder / "c/warnings.tsv")
    assert len(left) + len(odd) == 1
    return ("excluded", left.reason[0]) if len(left) else ("warned", odd.warning[0])


def numbers(n: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((T, n)).astype(np.float32)


# ---- downloads -------------------------------------------------------------------------------------
def downloaded(place: Path, content: bytes | None, address: str = "", drops: bool = False) -> Said:
    """Ask for an image of ABIDE-I of which the publisher has this."""
    file = bucket_path(place / "bucket", "NYU_0050000", "func_preproc")
    file.parent.mkdir(parents=True)
    if content is not None:
        file.write_bytes(content)
    config = Config(dataset="abide1_images", paths={"work": place / "work", "results": place / "results"})
    with serve(place / "bucket") as server:
        if drops:
            server.drops["/" + str(file.relative_to(place / "bucket"))] = [10] * 9
        keys = {"base": address or server.address, "derivative": "func_preproc"}
        dataset = load_dataset("abide1_images").model_copy(update={"abide": abide_keys(keys)})
        return worked(place, lambda: abide.download_scan("NYU_0050000", dataset, config), "download")


def abide_keys(keys):
    from bolt.config import Abide

    return Abide(**keys)


@of("file missing on the publisher's server")
def _(place, patch):
    return downloaded(place, None)


@of("file missing in a local copy of the publisher's files")
def _(place, patch):
    return downloaded(place, None, address=str(place / "bucket"))


@of("download that breaks off repeatedly")
def _(place, patch):
    patch.setattr("bolt.download.http.time.sleep", lambda _: None)
    return downloaded(place, gzip.compress(bytes(range(256)) * 9), drops=True)


@of("truncated file on the publisher's server")
def _(place, patch):
    return downloaded(place, gzip.compress(b"image" * 1000)[:-9])


@of("HTML error page instead of NIfTI")
def _(place, patch):
    return downloaded(place, b"<!DOCTYPE html><title>Please log in</title>")


@of("empty file")
def _(place, patch):
    return downloaded(place, b"")


def bucket_of_hcp(place, patch, secret):
    from bolt.datasets import hcp

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(place / "credentials"))
    patch.setenv("AWS_CONFIG_FILE", str(place / "none"))
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write_hcp(place, ["100206"], [])
    (place / "bucket").mkdir()
    with serve_s3(place / "bucket") as service:
        if secret:
            service.credentials(place / "credentials", secret=secret)
        keys = Hcp(bucket=Bucket(profile="hcp" if secret else None, endpoint=service.endpoint))
        dataset = load_dataset("hcp_rest").model_copy(
            update={"subjects_table": place / "unrestricted.csv", "hcp": keys}
        )
        config = Config(dataset="hcp_rest", paths={"work": place / "work"})
        return refused(lambda: hcp.download_table(dataset, config))


@of("rejected credentials")
def _(place, patch):
    return bucket_of_hcp(place, patch, "wrong")


@of("no credentials")
def _(place, patch):
    return bucket_of_hcp(place, patch, "")


@of("too little disk space for the downloads")
def _(place, patch):
    patch.setattr("bolt.io.disk_space.free_bytes", lambda folder: 5e8)
    return refused(lambda: check_download_space(Config(dataset="abide1_images"), load_dataset("abide1_images")))


@of("disk that fills up")
def _(place, patch):
    def full(*_):
        raise OSError(28, "No space left on device")

    patch.setattr(shutil, "copyfile", full)
    return refused(lambda: downloaded(place, b"image", address=str(place / "bucket")))


# ---- images ----------------------------------------------------------------------------------------
def raw(place: Path, spoil: Callable[[Path], object], minimum_volumes: int = 2, **keys: object) -> Said:
    """Index eight subjects, of whom one image was spoilt."""
    bids = write_bids(place / "bids")
    spoil(bold_path(bids, "sub-03"))
    return indexed(about(bids, **keys), minimum_volumes=minimum_volumes)


def about(bids: Path, **keys: object) -> Dataset:
    shipped = {"name": "fake", "source": "bids", "path": bids, "label": "diagnosis", "classes": ["control", "patient"]}
    return Dataset(**(shipped | keys))


def sidecar(path: Path, text: str) -> None:
    path.with_name(path.name.split(".")[0] + ".json").write_text(text)


def averaged(place: Path, data: np.ndarray, name: str = NAME, patch=None, **keys: object) -> Said:
    """Average one image over ROIs."""
    image = save(place / name, data.astype(np.float32))
    if patch:
        patch(image)
    keys = {"denoise": load_denoise("none"), "space": None} | keys
    results = {}
    said = worked(place, lambda: results.update(parcellate(image, [make_atlas()], **keys)))
    if results:
        write_parcellated(results, place, "odd")
    return said


def brain() -> np.ndarray:
    return np.random.default_rng(0).normal(1000, 50, (*SHAPE, T))


@of("web page instead of an image on disk")
def _(place, patch):
    return raw(place, lambda path: path.write_text("<html>moved</html>"))


@of("truncated image (compressed)")
def _(place, patch):
    def cut(path):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return averaged(place, brain(), patch=cut)


@of("truncated image (uncompressed)")
def _(place, patch):
    def cut(path):
        plain = gzip.decompress(path.read_bytes())
        path.unlink()
        path.with_suffix("").write_bytes(plain[:-100])

    return raw(place, cut)


@of("image with the wrong shape")
def _(place, patch):
    return raw(place, lambda path: save_bold(path, np.ones((4, 4, 4), np.int16)))


@of("scan shorter than a model needs")
def _(place, patch):
    return raw(place, lambda path: save_bold(path, np.ones((4, 4, 4, 19), np.int16)), minimum_volumes=20)


@of("scan shorter than its protocol (HCP)")
def _(place, patch):
    write_hcp(place, ["100206", "100307", "100408"], ["REST"], {"100408": 1199})
    keys = {"subjects_table": place / "unrestricted.csv", "path": place / "HCP_1200", "hcp": Hcp(bucket=None)}
    return indexed(load_dataset("hcp_rest").model_copy(update=keys), Config(dataset="hcp_rest"))


@of("image whose name declares another space")
def _(place, patch):
    return averaged(place, brain(), space="MNI152NLin2009cAsym")


def with_header(place: Path, change: Callable[[nib.Nifti1Image], None], name: str = NAME) -> Said:
    """Average an image after a change of what nibabel has read."""
    image = nib.load(save(place / name, brain()))
    change(image)
    nib.save(image, place / name)
    return worked(place, lambda: parcellate(place / name, [make_atlas()], denoise=load_denoise("none")))


@of("MNI image whose name declares no space")
def _(place, patch):
    return with_header(place, lambda image: image.set_sform(AFFINE, 4), name="bold.nii.gz")


@of("image that may not be in the atlas's space")
def _(place, patch):
    return averaged(place, brain(), name="bold.nii.gz")


@of("preprocessed image without an orientation")
def _(place, patch):
    def unset(image):
        image.set_sform(None, 0)
        image.set_qform(None, 0)

    return with_header(place, unset)


@of("preprocessed image whose sform and qform are apart")
def _(place, patch):
    moved = AFFINE.copy()
    moved[0, 3] = 20

    def part(image):
        image.set_sform(AFFINE, 2)
        image.set_qform(moved, 1)

    return with_header(place, part)


@of("preprocessed image with volumes of zeros")
def _(place, patch):
    data = brain()
    data[..., -2:] = 0
    return averaged(place, data)


@of("value that no scanner makes")
def _(place, patch):
    data = brain()
    data[4, 4, 4, 1] = 1e300
    path = save(place / NAME, data)
    return worked(place, lambda: parcellate(path, [make_atlas()], denoise=load_denoise("none")))


@of("header that gives 10^15 voxels")
def _(place, patch):
    path = save(place / NAME.removesuffix(".gz"), brain())
    content = bytearray(path.read_bytes())
    content[42:50] = np.array([30000, 30000, 30000, 30000], "<i2").tobytes()
    path.write_bytes(bytes(content))
    return worked(place, lambda: parcellate(path, [make_atlas()], denoise=load_denoise("none")))


@of("mask with NaN")
def _(place, patch):
    mask = np.ones(SHAPE, np.float32)
    mask[0] = np.nan
    nib.save(nib.Nifti1Image(mask, AFFINE), place / "mask.nii.gz")
    path = save(place / NAME, brain())
    options = {"mask": place / "mask.nii.gz", "denoise": load_denoise("none")}
    return worked(place, lambda: parcellate(path, [make_atlas()], **options))


def derivatives(place: Path, **description: object) -> Said:
    (place / "dataset_description.json").write_text(json.dumps({"Name": "f", "BIDSVersion": "1.10.0"} | description))
    return refused(lambda: fmriprep.scans(about(place, source="fmriprep"), RAW))


@of("no image in the requested space (fMRIPrep)")
def _(place, patch):
    return derivatives(place, GeneratedBy=[{"Name": "fMRIPrep"}])


@of("fMRIPrep output taken for raw data")
def _(place, patch):
    bids = write_fmriprep(place, 2, n_volumes=3)
    shutil.copy(place / "participants.tsv", bids)
    (bids / "dataset_description.json").write_text('{"Name": "f"}')
    assert len(fmriprep.scans(about(bids, source="fmriprep"), RAW)) == 2
    return refused(lambda: index(RAW, about(bids)))


@of("dataset_description.json that is none")
def _(place, patch):
    return derivatives(place, GeneratedBy={"Name": "fMRIPrep"})


@of("raw dataset with sourcedata/, code/, derivatives/, or files named in .bidsignore")
def _(place, patch):
    bids = write_bids(place / "bids", 4)
    for folder in ("sourcedata", "code/old", "derivatives/own"):
        write_bids(bids / folder, 6)
    save_bold(bids / "sub-01/func/sub-01_task-rest_acq-aborted_bold.nii.gz", np.ones((4, 4, 4, 9), np.int16))
    (bids / ".bidsignore").write_text("*_acq-aborted_*\n/sub-04/\n")
    scans = index(RAW, about(bids)).set_index("scan_id")
    assert scans.index.tolist() == ["sub-01_task-rest", "sub-02_task-rest", "sub-03_task-rest", "sub-04"]
    assert scans.exclude_reason.dropna().index.tolist() == ["sub-04"]
    assert scans.t1w.dropna().tolist() == [str(bids / f"sub-0{i}/anat/sub-0{i}_T1w.nii.gz") for i in (1, 2, 3)]
    return "used", "only the other files in folders of subjects are read"


@of("phase image beside the magnitude")
def _(place, patch):
    return raw(place, lambda path: shutil.copy(path, path.with_name("sub-03_task-rest_part-phase_bold.nii.gz")))


@of("volumes at unequal intervals (VolumeTiming)")
def _(place, patch):
    return raw(place, lambda path: sidecar(path, '{"VolumeTiming": [0, 4, 9]}'))


@of("atlas in another space")
def _(place, patch):
    config = Config(dataset="fake", atlases=["aal116"], preprocess={"space": "MNI152NLin2009aSym"})
    return refused(lambda: check_names(config, about(place)))


@of("mask on another grid")
def _(place, patch):
    nib.save(nib.Nifti1Image(np.ones((4, 4, 4), np.uint8), AFFINE), place / "mask.nii.gz")
    return averaged(place, brain(), mask=place / "mask.nii.gz")


@of("TR differing by more than 1 % between header and sidecar")
def _(place, patch):
    return raw(place, lambda path: sidecar(path, '{"RepetitionTime": 1.5, "TaskName": "rest"}'))


@of("TR conflict with `tr_conflict: sidecar`")
def _(place, patch):
    return averaged(place, brain(), tr=1.5)  # what the index has taken


@of("no TR")
def _(place, patch):
    def silent(path):
        sidecar(path, '{"TaskName": "rest"}')
        save_bold(path, np.ones((4, 4, 4, 30), np.int16), tr=0)

    return raw(place, silent)


@of("TR that is not a number")
def _(place, patch):
    return raw(place, lambda path: sidecar(path, '{"RepetitionTime": "2 s", "TaskName": "rest"}'))


@of("sidecar that is not JSON")
def _(place, patch):
    return raw(place, lambda path: sidecar(path, '{"RepetitionTime": 2.0, "Task'))


@of("broken link to a sidecar (DataLad)")
def _(place, patch):
    return raw(place, lambda path: (path.parents[1] / "sub-03_task-rest_bold.json").symlink_to("../.git/annex/x.json"))


@of("NaN volumes")
def _(place, patch):
    data = brain()
    data[..., 3:5] = np.nan
    return averaged(place, data)


@of("NaN voxels")
def _(place, patch):
    data = brain()
    data[2, 3, 3, 4] = np.nan
    averaged(place, data)
    shutil.copy(place / "odd_atlas-cubes_timeseries.npy", place / "odd.npy")
    shutil.copy(place / "odd_atlas-cubes_coverage.tsv", place / "odd_coverage.tsv")
    return cached(place, {"fine": numbers(), "odd": numbers()})


@of("all-zero image")
def _(place, patch):
    return averaged(place, np.zeros((*SHAPE, T)))


def one_roi_of_zeros(place: Path, policy: str) -> Said:
    data = brain()
    data[1:4] = 0
    averaged(place, data)
    shutil.copy(place / "odd_atlas-cubes_timeseries.npy", place / "odd.npy")
    return cached(place, {"fine": numbers(), "odd": numbers()}, policy)


@of("all-zero ROI in an image")
def _(place, patch):
    return one_roi_of_zeros(place, "zero")


@of("all-zero ROI with `uncovered: drop-scan`")
def _(place, patch):
    return one_roi_of_zeros(place, "drop-scan")


@of("subject without an image")
def _(place, patch):
    return raw(place, lambda path: [file.unlink() for file in path.parent.iterdir()])


# ---- ready series ----------------------------------------------------------------------------------
@of("all-zero ROI in a ready series")
def _(place, patch):
    odd = numbers()
    odd[:, 1] = 0
    return cached(place, {"fine": numbers(), "odd": odd})


@of("NaN in a ready series")
def _(place, patch):
    odd = numbers()
    odd[2, 1] = np.nan
    return cached(place, {"fine": numbers(), "odd": odd})


def one_file(place: Path, name: str, write: Callable[[Path], object]) -> Said:
    write(place / name)
    return worked(place, lambda: read_series(place / name))


@of("ready series with an index column")
def _(place, patch):
    return one_file(place, "a.csv", lambda path: pd.DataFrame(numbers()).to_csv(path))


@of("ready series with a column name that is a number")
def _(place, patch):
    pd.DataFrame(numbers()).to_csv(place / "a.csv", index=False)
    assert len(read_series(place / "a.csv")) == T
    return "used", "the row is skipped if the names are 0, 1, 2 …"


@of("ready series without any that varies")
def _(place, patch):
    return one_file(place, "a.npy", lambda path: np.save(path, np.ones((T, 3))))


@of("archive named .npy")
def _(place, patch):
    return one_file(place, "a.npy", lambda path: np.savez(path.open("wb"), numbers()))


@of("several tables in one ready series")
def _(place, patch):
    table = pd.DataFrame(numbers()).to_csv(index=False)
    return one_file(place, "a.csv", lambda path: path.write_text(2 * table))


@of("ready series that was deleted")
def _(place, patch):
    return one_file(place, "a.npy", lambda path: None)


@of("ready series with other ROI names than the atlas (CIFTI, XCP-D)")
def _(place, patch):
    ptseries(place / "a.ptseries.nii")
    return worked(place, lambda: read_series(place / "a.ptseries.nii", names=[*PARCELS[:3], "Caudate"]))


@of("CIFTI series over frequencies")
def _(place, patch):
    return one_file(place, "a.ptseries.nii", lambda path: ptseries(path, axis=seconds(unit="HERTZ")))


@of("dense series and labels on different surfaces")
def _(place, patch):
    return refused(lambda: match_greyordinates(greyordinates(n=50), greyordinates(), "a.dtseries.nii"))


@of("series from another atlas")
def _(place, patch):
    return cached(place, {"fine": numbers(), "odd": numbers(5)})


@of("transposed series")
def _(place, patch):
    return cached(place, {"fine": numbers(), "odd": numbers().T})


def table_of_series(place: Path, **columns: list[str]) -> Dataset:
    rows = {"subject": ["a", "a", "b", "b"], "file": [f"{i}.npy" for i in range(4)], "dx": list("0101")} | columns
    for i in range(4):
        np.save(place / f"{i}.npy", np.random.default_rng(i).standard_normal((30, 160)))
    pd.DataFrame(rows).to_csv(place / "scans.tsv", sep="\t", index=False)
    keys = {"source": "series", "path": place / "scans.tsv", "label": "dx", "classes": ["0", "1"], "sex": None}
    return about(place, **keys | {"sex": "sex" if "sex" in columns else None})


# ---- subjects and labels ---------------------------------------------------------------------------
def participants(place: Path, change: Callable[[list[str]], object], **keys: object) -> Dataset:
    bids = write_bids(place / "bids")
    rows = (bids / "participants.tsv").read_text().splitlines()
    change(rows)
    (bids / "participants.tsv").write_text("\n".join(rows) + "\n")
    return about(bids, **keys)


@of("duplicate subject")
def _(place, patch):
    dataset = participants(place, lambda rows: rows.append(rows[1].replace("control", "patient")))
    return refused(lambda: index(RAW, dataset))


@of("duplicate scan name")
def _(place, patch):
    dataset = table_of_series(place, scan_id=["x", "x", "y", "z"])
    return refused(lambda: index(RAW, dataset))


@of("one recording under two people or labels")
def _(place, patch):
    names = [f"s{i}" for i in range(12)]
    scans = pd.DataFrame({"scan_id": names, "subject": names, "group": names, "site": None, "label": list("ab") * 6})
    copies = {"series in the cache": pd.Series(dict.fromkeys(names, "one hash"))}
    return refused(lambda: make_folds(scans, Config(dataset="x", folds={"outer": 3}).folds, copies))


def copies(labels: list[str]) -> Said:
    scans = pd.DataFrame({"scan_id": ["a", "b"], "subject": ["a", "b"], "label": labels})
    excluded, _ = handle_copies(scans, {"series": pd.Series("one recording", ["a", "b"])}, "exclude")
    return "excluded", excluded.reason.iloc[-1]


@of("one recording twice, with `folds: duplicates: exclude`")
def _(place, patch):
    return copies(["0", "0"])


@of("one recording with two labels, with `folds: duplicates: exclude`")
def _(place, patch):
    return copies(["0", "1"])


@of("scans of a person to be joined, with different TR")
def _(place, patch):
    facts = {"subject": "a", "task": "rest", "session": None, "run": None, "label": "x", "site": None}
    scans = pd.DataFrame({"scan_id": ["a1", "a2"], "tr": [2.0, 0.8], **facts})
    return "excluded", plan_joins(scans, [0, 1], "session")[1][0][2]


@of("subject with two families or sexes")
def _(place, patch):
    return refused(lambda: index(RAW, table_of_series(place, sex=["F", "M", "F", "F"])))


@of("subject without a row in the table")
def _(place, patch):
    return indexed(participants(place, lambda rows: rows.pop(3)))


@of("no label")
def _(place, patch):
    return indexed(participants(place, lambda rows: rows.__setitem__(3, rows[3].replace("control", "n/a"))))


@of("label outside the declared classes")
def _(place, patch):
    return indexed(participants(place, lambda rows: rows.__setitem__(3, rows[3].replace("control", "carer"))))


@of("non-numeric label where a number is expected")
def _(place, patch):
    old = participants(place, lambda rows: rows.__setitem__(3, rows[3].replace("\t22\t", "\told\t")), label="age")
    return indexed(old.model_copy(update={"classes": None}))


@of("declared class without a scan")
def _(place, patch):
    dataset = participants(place, lambda rows: None, classes=["control", "patient", "carer"])
    return refused(lambda: require_classes(index(RAW, dataset), dataset, place / "scans.tsv"))


@of("table without the label column")
def _(place, patch):
    return refused(lambda: index(RAW, participants(place, lambda rows: None, label="dx")))


@of("the same value of the label for everybody")
def _(place, patch):
    dataset = participants(place, lambda rows: None, classes=None, label="age")
    scans = index(RAW, dataset).assign(label="40")
    return refused(lambda: require_classes(scans, dataset, "scans.tsv"))


@of("missing value written as NA, N/A, NaN, -, -9999 …")
def _(place, patch):
    return indexed(participants(place, lambda rows: rows.__setitem__(1, rows[1].replace("control", "-9999"))))


@of("the numbers 1 and 1.0")
def _(place, patch):
    spelt = {"control": "1", "patient": "2"}

    def number(rows):
        rows[1:] = [re.sub("control|patient", lambda match: spelt[match[0]], row) for row in rows[1:]]
        rows[1:4] = [re.sub("\t([12])\t", "\t\\1.0\t", row) for row in rows[1:4]]

    scans = index(RAW, participants(place, number, classes=["1.0", "2"]))
    assert set(scans.label) == {"1", "2"} and scans.exclude_reason.isna().all()
    return "used", "are one class, site or person"


@of("names of subjects and folders that differ in zeros")
def _(place, patch):
    dataset = participants(place, lambda rows: rows.__setitem__(1, rows[1].replace("sub-01", "1")))
    return told(lambda: index(RAW, dataset))


@of("table that is neither UTF-8 nor UTF-16")
def _(place, patch):
    dataset = participants(place, lambda rows: None)
    table = dataset.path / "participants.tsv"
    table.write_bytes(table.read_bytes().replace(b"\tA\t", "\tKöln\t".encode("latin-1")))
    return refused(lambda: index(RAW, dataset))


@of("braces in the path of the data")
def _(place, patch):
    return refused(lambda: check_names(RAW, about(place / "a{b}")))


@of("braces in the path of one file")
def _(place, patch):
    (place / "a{b}").mkdir()
    np.save(place / "a{b}/a.npy", numbers(160))
    np.save(place / "c.npy", numbers(160, seed=1))
    (place / "t.tsv").write_text("subject\tfile\tdiagnosis\n1\ta{b}/a.npy\tcontrol\n2\tc.npy\tpatient\n")
    return indexed(about(place / "t.tsv", source="series"))


@of("two columns of one name")
def _(place, patch):
    dataset = participants(place, lambda rows: rows.__setitem__(0, rows[0].replace("sex", "age")))
    return refused(lambda: index(RAW, dataset))


@of("rows with more cells than the header")
def _(place, patch):
    dataset = participants(place, lambda rows: rows.__setitem__(slice(1, None), [f"{row}\tx" for row in rows[1:]]))
    return refused(lambda: index(RAW, dataset))


@of("row without a name of the subject")
def _(place, patch):
    dataset = participants(place, lambda rows: rows.append("n/a" + rows[1][len("sub-01") :]))
    return refused(lambda: index(RAW, dataset))


def told(act: Callable[[], object]) -> Said:
    """Return what the log says of input that is used."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("bolt").addHandler(handler)
    try:
        act()
    finally:
        logging.getLogger("bolt").removeHandler(handler)
    return "used", stream.getvalue()


@of("age that is no number")
def _(place, patch):
    column = participants(place / "a", lambda rows: None).path / "participants.tsv"
    position = column.read_text().splitlines()[0].split("\t").index("age")

    def old(rows: list[str]) -> None:
        cells = rows[1].split("\t")
        cells[position] = "old"
        rows[1] = "\t".join(cells)

    dataset = participants(place / "b", old, age="age")
    return told(lambda: index(RAW, dataset))


@of("column that the dataset's file does not name")
def _(place, patch):
    dataset = participants(place, lambda rows: None)
    return told(lambda: index(RAW, dataset))


# ---- results ---------------------------------------------------------------------------------------
def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@of("cache that was changed by hand")
def _(place, patch):
    folder = pack(place, [numbers(), numbers(seed=1)], scan_table("ab"))
    cut(folder / "series.npy")
    return refused(lambda: SeriesCache(folder))


@of("predictions that were cut off by hand")
def _(place, patch):
    worked(place, lambda: write_text("scan_id\trole\n1\ttest\n", place / "predictions.tsv"), "train")
    cut(place / "predictions.tsv")
    return refused(lambda: fold_predictions(place))


# ---- refusing --------------------------------------------------------------------------------------
def test_all_bad_scans_stand_in_one_list_and_what_was_not_asked_for_does_not(tmp_path):
    rows = [("a", "selection", "left out"), ("b", "index", "b.nii: cut off"), ("c", "download", "c.nii: a web page")]
    rows.append(("d", "quality", "beyond a cut-off"))
    excluded = pd.DataFrame(rows, columns=list(EXCLUSION_COLUMNS))
    where = tmp_path / "bad_scans.tsv"
    with pytest.raises(
        DataError, match=r"2 bad scans.*\n  b \(index\): b.nii: cut off\n  c \(download\): c.nii: a web"
    ):
        refuse_bad_scans(excluded, where, refuse=True)
    assert read_table(where).scan_id.tolist() == ["b", "c"]
    refuse_bad_scans(excluded, where, refuse=False)
    assert not where.exists() and not where.with_suffix(".json").exists()
    refuse_bad_scans(excluded.iloc[[0, 3]], where, refuse=True)
    assert list(WARNING_COLUMNS) == ["scan_id", "stage", "warning"]


@pytest.mark.parametrize("stage", ["exclusions", "report"])
def test_bad_scans_of_all_caches_are_refused_in_one_list(stage, tmp_path, monkeypatch):
    """The second atlas has nothing to say against a scan, and takes no line of the first's off the list."""
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, atlases=["dosenbach160", "cc200"], bad_scans="refuse")
    job = Job(argparse.Namespace(config=config, stage=stage, zip=None))
    layout = job.layout
    bad = pd.DataFrame([("sub-03_task-rest", "cache", "cut off")], columns=list(EXCLUSION_COLUMNS))
    for at, table in ((layout.cache("dosenbach160"), bad), (layout.cache("cc200"), bad[:0]), (layout.results, bad)):
        write_table(table, at / "exclusions.tsv", EXCLUSION_COLUMNS)
    write_table(pd.DataFrame({"scan_id": ["sub-03_task-rest"]}), layout.scans, {"scan_id": ""})
    with pytest.raises(DataError, match=r"1 bad scan .*\n  sub-03_task-rest \(cache\): cut off"):
        STAGES[stage].work(job)
    assert read_table(layout.bad_scans).scan_id.tolist() == ["sub-03_task-rest"] and not layout.folds.exists()


def test_abides_selection_is_not_bad_input(tmp_path):
    table = people(6)
    table.loc[2, "qc_rater_1"] = "fail"
    config = Config(dataset="abide1", atlases=["cc200"], paths={"work": tmp_path})
    where = write_people(table, tmp_path / "people.csv")
    scans = index(config, load_dataset("abide1").model_copy(update={"subjects_table": where}))
    assert scans.exclude_stage.dropna().tolist() == ["selection"]
