"""Every kind of bad data is made, and is met with the words that `docs/bad_input.md` has."""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS, refuse_bad_scans
from bolt.config import Abide, Bucket, Config, Dataset, Hcp, load_dataset, load_denoise
from bolt.config.study import Study
from bolt.datasets import abide, fmriprep, hcp, index
from bolt.datasets.participants import require_classes
from bolt.evaluate.metrics import fold_predictions
from bolt.folds.audit import handle_copies
from bolt.folds.splits import make_folds
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_json, read_table, write_table, write_text
from bolt.io.series_files import read_series
from bolt.jobs.outcome import Outcome
from bolt.series.cache import SeriesCache
from bolt.series.cifti import match_greyordinates
from bolt.series.gather import build_cache, plan_joins
from bolt.series.parcellate import parcellate, write_parcellated
from bolt.workflow.checks import check_download_space, check_names
from tests.abide import bucket_path, people, write_people
from tests.bad_inputs import CASES, DATA_CASES, PAGE, Case, render
from tests.caches import pack, scan_table
from tests.fake_bids import bold_path, save_bold, write_bids
from tests.fake_cifti import NAMES as PARCELS
from tests.fake_cifti import brain as greyordinates
from tests.fake_cifti import ptseries, seconds
from tests.fake_fmriprep import write_fmriprep
from tests.fake_hcp import hide_aws, serve_s3, write_hcp
from tests.file_server import serve
from tests.series.test_parcellate import AFFINE, NAME, SHAPE, T, make_atlas, save
from tests.snake import series_dataset
from tests.stages import stage

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


def each(make: Callable[[Path, Any], Said], made_of: dict[str, Any]) -> None:
    """Cases that one maker makes, each of something else."""
    MAKERS.update({name: lambda place, _, one=one: make(place, one) for name, one in made_of.items()})


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
    assert [*left.stage, *odd.stage] == ["cache"]
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
        dataset = load_dataset("abide1_images").model_copy(update={"abide": Abide(**keys)})
        return worked(place, lambda: abide.download_scan("NYU_0050000", dataset, config), "download")


each(
    downloaded,
    {
        "file missing on the publisher's server": None,
        "truncated file on the publisher's server": gzip.compress(b"image" * 1000)[:-9],
        "HTML error page instead of NIfTI": b"<!DOCTYPE html><title>Please log in</title>",
        "empty file": b"",
    },
)


@of("file missing in a local copy of the publisher's files")
def _(place, patch):
    return downloaded(place, None, address=str(place / "bucket"))


@of("download that breaks off repeatedly")
def _(place, patch):
    patch.setattr("bolt.io.download.time.sleep", lambda _: None)
    return refused(lambda: downloaded(place, gzip.compress(bytes(range(256)) * 9), drops=True))


def bucket_of_hcp(place, patch, secret):
    hide_aws(patch, place)
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


MAKERS["rejected credentials"] = lambda place, patch: bucket_of_hcp(place, patch, "wrong")
MAKERS["no credentials"] = lambda place, patch: bucket_of_hcp(place, patch, "")


@of("too little disk space for the downloads")
def _(place, patch):
    patch.setattr("bolt.io.resource_errors.free_bytes", lambda folder: 5e8)
    return refused(lambda: check_download_space(Config(dataset="abide1_images"), load_dataset("abide1_images")))


@of("disk that fills up")
def _(place, patch):
    def full(*_):
        raise OSError(28, "No space left on device")

    patch.setattr(shutil, "copyfile", full)
    return refused(lambda: downloaded(place, b"image", address=str(place / "bucket")))


# ---- images ----------------------------------------------------------------------------------------
def raw(place: Path, spoil: Callable[[Path], object], minimum_volumes: int = 2) -> Said:
    """Index four subjects, of whom one image was spoilt."""
    bids = write_bids(place / "bids", 4)
    spoil(bold_path(bids, "sub-03"))
    return indexed(about(bids), minimum_volumes=minimum_volumes)


def about(bids: Path, **keys: object) -> Dataset:
    shipped = {"name": "fake", "source": "bids", "path": bids, "label": "diagnosis", "classes": ["control", "patient"]}
    return Dataset(**(shipped | keys))


def sidecar(path: Path, text: str) -> None:
    path.with_name(path.name.split(".")[0] + ".json").write_text(text)


def averaged(place: Path, data: np.ndarray, name: str = NAME, patch=None, **keys: object) -> Said:
    """Average one image over ROIs."""
    image = save(place / name, data)
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


def cut_plain(path: Path) -> None:
    plain = gzip.decompress(path.read_bytes())
    path.unlink()
    path.with_suffix("").write_bytes(plain[:-100])


def silent(path: Path) -> None:
    sidecar(path, '{"TaskName": "rest"}')
    save_bold(path, np.ones((4, 4, 4, 30), np.int16), tr=0)


PHASE = "sub-03_task-rest_part-phase_bold.nii.gz"
SIDECAR, FAR = "sub-03_task-rest_bold.json", "../.git/annex/x.json"
each(
    raw,
    {
        "web page instead of an image on disk": lambda path: path.write_text("<html>moved</html>"),
        "truncated image (uncompressed)": cut_plain,
        "image with the wrong shape": lambda path: save_bold(path, np.ones((4, 4, 4), np.int16)),
        "phase image beside the magnitude": lambda path: shutil.copy(path, path.with_name(PHASE)),
        "volumes at unequal intervals (VolumeTiming)": lambda path: sidecar(path, '{"VolumeTiming": [0, 4, 9]}'),
        "TR differing by more than 1 % between header and sidecar": lambda path: sidecar(
            path, '{"RepetitionTime": 1.5}'
        ),
        "no TR": silent,
        "TR that is not a number": lambda path: sidecar(path, '{"RepetitionTime": "2 s"}'),
        "sidecar that is not JSON": lambda path: sidecar(path, '{"RepetitionTime": 2.0, "Task'),
        "broken link to a sidecar (DataLad)": lambda path: path.parents[1].joinpath(SIDECAR).symlink_to(FAR),
        "subject without an image": lambda path: [file.unlink() for file in path.parent.iterdir()],
    },
)


@of("truncated image (compressed)")
def _(place, patch):
    def cut(path):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return averaged(place, brain(), patch=cut)


@of("scan shorter than a model needs")
def _(place, patch):
    return raw(place, lambda path: save_bold(path, np.ones((4, 4, 4, 19), np.int16)), minimum_volumes=20)


@of("scan shorter than its protocol (HCP)")
def _(place, patch):
    write_hcp(place, ["100206", "100307", "100408"], ["REST"], {"100408": 1199})
    keys = {"subjects_table": place / "unrestricted.csv", "path": place / "HCP_1200", "hcp": Hcp(bucket=None)}
    return indexed(load_dataset("hcp_rest").model_copy(update=keys), Config(dataset="hcp_rest"))


each(
    lambda place, keys: averaged(place, brain(), **keys),
    {
        "image whose name declares another space": {"space": "MNI152NLin2009cAsym"},
        "image that may not be in the atlas's space": {"name": "bold.nii.gz"},
        "TR conflict with `tr_conflict: sidecar`": {"tr": 1.5},  # what the index has taken
    },
)


def with_header(place: Path, change: Callable[[nib.Nifti1Image], None], name: str = NAME) -> Said:
    """Average an image after a change of what nibabel has read."""

    def rewrite(path: Path) -> None:
        image = nib.load(path)
        change(image)
        nib.save(image, path)

    return averaged(place, brain(), name, rewrite)


@of("MNI image whose name declares no space")
def _(place, patch):
    return with_header(place, lambda image: image.set_sform(AFFINE, 4), name="bold.nii.gz")


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


def spoilt(place: Path, odd: tuple[Any, float]) -> Said:
    where, value = odd
    data = brain()
    data[where] = value
    return averaged(place, data)


each(
    spoilt,
    {
        "preprocessed image with volumes of zeros": (np.s_[..., -2:], 0),
        "NaN volumes": (np.s_[..., 3:5], np.nan),
        "all-zero image": (..., 0),
        "value that no scanner makes": ((4, 4, 4, 1), 1e300),
    },
)


@of("header that gives 10^15 voxels")
def _(place, patch):
    def claim(path):
        content = path.read_bytes()
        path.write_bytes(content[:42] + np.full(4, 30000, "<i2").tobytes() + content[50:])

    return averaged(place, brain(), NAME.removesuffix(".gz"), claim)


def masked(place: Path, mask: np.ndarray) -> Said:
    nib.save(nib.Nifti1Image(mask, AFFINE), place / "mask.nii.gz")
    return averaged(place, brain(), mask=place / "mask.nii.gz")


each(
    masked,
    {
        "mask on another grid": np.ones((4, 4, 4), np.uint8),
        "mask with NaN": np.where(np.arange(SHAPE[0])[:, None, None] == 0, np.nan, np.ones(SHAPE)).astype(np.float32),
    },
)


def derivatives(place: Path, made_by: object) -> Said:
    description = {"Name": "f", "BIDSVersion": "1.10.0", "GeneratedBy": made_by}
    (place / "dataset_description.json").write_text(json.dumps(description))
    return refused(lambda: fmriprep.scans(about(place, source="fmriprep"), RAW))


each(
    derivatives,
    {
        "no image in the requested space (fMRIPrep)": [{"Name": "fMRIPrep"}],
        "dataset_description.json that is none": {"Name": "fMRIPrep"},
    },
)


@of("fMRIPrep output taken for raw data")
def _(place, patch):
    bids = write_fmriprep(place, 2, n_volumes=3)
    shutil.copy(place / "participants.tsv", bids)
    (bids / "dataset_description.json").write_text('{"Name": "f"}')
    assert len(fmriprep.scans(about(bids, source="fmriprep"), RAW)) == 2
    return refused(lambda: index(RAW, about(bids)))


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


@of("atlas in another space")
def _(place, patch):
    config = Config(dataset="fake", atlases=["aal116"], preprocess={"space": "MNI152NLin2009aSym"})
    return refused(lambda: check_names(config, about(place)))


@of("NaN voxels")
def _(place, patch):
    spoilt(place, ((2, 3, 3, 4), np.nan))
    shutil.copy(place / "odd_atlas-cubes_timeseries.npy", place / "odd.npy")
    shutil.copy(place / "odd_atlas-cubes_coverage.tsv", place / "odd_coverage.tsv")
    return cached(place, {"fine": numbers(), "odd": numbers()})


def one_roi_of_zeros(place: Path, policy: str) -> Said:
    spoilt(place, (slice(1, 4), 0))
    shutil.copy(place / "odd_atlas-cubes_timeseries.npy", place / "odd.npy")
    return cached(place, {"fine": numbers(), "odd": numbers()}, policy)


each(one_roi_of_zeros, {"all-zero ROI in an image": "zero", "all-zero ROI with `uncovered: drop-scan`": "drop-scan"})


# ---- ready series ----------------------------------------------------------------------------------
def with_value(where: tuple[Any, int], value: float) -> np.ndarray:
    odd = numbers()
    odd[where] = value
    return odd


each(
    lambda place, odd: cached(place, {"fine": numbers(), "odd": odd}),
    {
        "all-zero ROI in a ready series": with_value((slice(None), 1), 0),
        "NaN in a ready series": with_value((2, 1), np.nan),
        "series from another atlas": numbers(5),
        "transposed series": numbers().T,
    },
)


def one_file(place: Path, made: tuple[str, Callable[[Path], object]]) -> Said:
    name, write = made
    write(place / name)
    return worked(place, lambda: read_series(place / name))


each(
    one_file,
    {
        "ready series with an index column": ("a.csv", lambda path: pd.DataFrame(numbers()).to_csv(path)),
        "ready series without any that varies": ("a.npy", lambda path: np.save(path, np.ones((T, 3)))),
        "archive named .npy": ("a.npy", lambda path: np.savez(path.open("wb"), numbers())),
        "several tables in one ready series": (
            "a.csv",
            lambda path: path.write_text(2 * pd.DataFrame(numbers()).to_csv(index=False)),
        ),
        "ready series that was deleted": ("a.npy", lambda path: None),
        "CIFTI series over frequencies": ("a.ptseries.nii", lambda path: ptseries(path, axis=seconds(unit="HERTZ"))),
    },
)


@of("ready series with a column name that is a number")
def _(place, patch):
    pd.DataFrame(numbers()).to_csv(place / "a.csv", index=False)
    assert len(read_series(place / "a.csv")) == T
    return "used", "the row is skipped if the names are 0, 1, 2 … or values of the atlas"


@of("ready series with other ROI names than the atlas (CIFTI, XCP-D)")
def _(place, patch):
    ptseries(place / "a.ptseries.nii")
    return worked(place, lambda: read_series(place / "a.ptseries.nii", names=[*PARCELS[:3], "Caudate"]))


@of("dense series and labels on different surfaces")
def _(place, patch):
    return refused(lambda: match_greyordinates(greyordinates(n=50), greyordinates(), "a.dtseries.nii"))


def table_of_series(place: Path, **columns: list[str]) -> Dataset:
    rows = {"subject": ["a", "a", "b", "b"], "file": [f"{i}.npy" for i in range(4)], "dx": list("0101")} | columns
    for i in range(4):
        np.save(place / f"{i}.npy", np.random.default_rng(i).standard_normal((30, 160)))
    pd.DataFrame(rows).to_csv(place / "scans.tsv", sep="\t", index=False)
    keys = {"source": "series", "path": place / "scans.tsv", "label": "dx", "classes": ["0", "1"], "sex": None}
    return about(place, **keys | {"sex": "sex" if "sex" in columns else None})


# ---- subjects and labels ---------------------------------------------------------------------------
def participants(place: Path, change: Callable[[list[str]], object] | None = None, **keys: object) -> Dataset:
    bids = write_bids(place / "bids", 4)
    rows = (bids / "participants.tsv").read_text().splitlines()
    if change:
        change(rows)
    (bids / "participants.tsv").write_text("\n".join(rows) + "\n")
    return about(bids, **keys)


def replaced(row: int, old: str, new: str) -> Callable[[list[str]], None]:
    def change(rows: list[str]) -> None:
        rows[row] = rows[row].replace(old, new)

    return change


each(
    lambda place, change: indexed(participants(place, change)),
    {
        "subject without a row in the table": lambda rows: rows.pop(3),
        "no label": replaced(3, "control", "n/a"),
        "label outside the declared classes": replaced(3, "control", "carer"),
        "missing value written as NA, N/A, NaN, -, -9999 …": replaced(1, "control", "-9999"),
    },
)
each(
    lambda place, change: refused(lambda: index(RAW, participants(place, change))),
    {
        "duplicate subject": lambda rows: rows.append(rows[1].replace("control", "patient")),
        "two columns of one name": replaced(0, "sex", "age"),
        "rows with more cells than the header": lambda rows: rows.extend([f"{rows.pop(1)}\tx" for _ in rows[1:]]),
        "row without a name of the subject": lambda rows: rows.append("n/a" + rows[1][len("sub-01") :]),
    },
)
each(
    lambda place, columns: refused(lambda: index(RAW, table_of_series(place, **columns))),
    {
        "duplicate scan name": {"scan_id": ["x", "x", "y", "z"]},
        "subject with two families or sexes": {"sex": ["F", "M", "F", "F"]},
    },
)


@of("one recording under two people or labels")
def _(place, patch):
    names = [f"s{i}" for i in range(12)]
    scans = pd.DataFrame({"scan_id": names, "subject": names, "group": names, "site": None, "label": list("ab") * 6})
    copies = {"series in the cache": pd.Series(dict.fromkeys(names, "one hash"))}
    return refused(lambda: make_folds(scans, Config(dataset="x", folds={"outer": 3}).folds, copies))


def copies(_: Path, labels: list[str]) -> Said:
    scans = pd.DataFrame({"scan_id": ["a", "b"], "subject": ["a", "b"], "label": labels})
    excluded, _ = handle_copies(scans, {"series": pd.Series("one recording", ["a", "b"])}, "exclude")
    return "excluded", excluded.reason.iloc[-1]


each(
    copies,
    {
        "one recording twice, with `folds: duplicates: exclude`": ["0", "0"],
        "one recording with two labels, with `folds: duplicates: exclude`": ["0", "1"],
    },
)


@of("scans of a person to be joined, with different TR")
def _(place, patch):
    facts = {"subject": "a", "task": "rest", "session": None, "run": None, "label": "x", "site": None}
    scans = pd.DataFrame({"scan_id": ["a1", "a2"], "tr": [2.0, 0.8], **facts})
    return "excluded", plan_joins(scans, [0, 1], "session")[1][0][2]


@of("scans of a person to be joined, two reconstructions of one acquisition")
def _(place, patch):
    facts = {"subject": "a", "task": "rest", "session": None, "run": None, "label": "x", "site": None, "tr": 2.0}
    scans = pd.DataFrame({"scan_id": ["a_rec-1", "a_rec-2"], **facts})
    return "excluded", plan_joins(scans, [0, 1], "session")[1][0][2]


@of("non-numeric label where a number is expected")
def _(place, patch):
    old = participants(place, replaced(3, "\t22\t", "\told\t"), label="age")
    return indexed(old.model_copy(update={"classes": None}))


@of("declared class without a scan")
def _(place, patch):
    dataset = participants(place, classes=["control", "patient", "carer"])
    return refused(lambda: require_classes(index(RAW, dataset), dataset, place / "scans.tsv"))


@of("table without the label column")
def _(place, patch):
    return refused(lambda: index(RAW, participants(place, label="dx")))


@of("the same value of the label for everybody")
def _(place, patch):
    dataset = participants(place, classes=None, label="age")
    scans = index(RAW, dataset).assign(label="40")
    return refused(lambda: require_classes(scans, dataset, "scans.tsv"))


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
    dataset = participants(place, replaced(1, "sub-01", "1"))
    return told(lambda: index(RAW, dataset))


@of("table that is neither UTF-8 nor UTF-16")
def _(place, patch):
    dataset = participants(place)
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
    dataset = participants(place, replaced(1, "\t20\t", "\told\t"), age="age")
    return told(lambda: index(RAW, dataset))


@of("column that the dataset's file does not name")
def _(place, patch):
    dataset = participants(place)
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


@pytest.mark.parametrize("rule", ["exclusions", "report"])
def test_bad_scans_of_all_caches_are_refused_in_one_list(rule, tmp_path, monkeypatch, capsys):
    """The second atlas has nothing to say against a scan, and takes no line of the first's off the list."""
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, atlases=["dosenbach160", "cc200"], bad_scans="refuse")
    layout = Study.read(config).layout
    bad = pd.DataFrame([("sub-03_task-rest", "cache", "cut off")], columns=list(EXCLUSION_COLUMNS))
    for at, table in ((layout.cache("dosenbach160"), bad), (layout.cache("cc200"), bad[:0]), (layout.results, bad)):
        write_table(table, at / "exclusions.tsv", EXCLUSION_COLUMNS)
    write_table(pd.DataFrame({"scan_id": ["sub-03_task-rest"]}), layout.scans, {"scan_id": ""})
    assert stage(config, rule) == 2
    assert re.search(r"1 bad scan .*\n  sub-03_task-rest \(cache\): cut off", capsys.readouterr().err)
    assert read_table(layout.bad_scans).scan_id.tolist() == ["sub-03_task-rest"] and not layout.folds.exists()


def test_abides_selection_is_not_bad_input(tmp_path):
    table = people(6)
    table.loc[2, "qc_rater_1"] = "fail"
    config = Config(dataset="abide1", atlases=["cc200"], paths={"work": tmp_path})
    where = write_people(table, tmp_path / "people.csv")
    scans = index(config, load_dataset("abide1").model_copy(update={"subjects_table": where}))
    assert scans.exclude_stage.dropna().tolist() == ["selection"]


# ---- the page ------------------------------------------------------------------------------------
def test_the_page_is_made_of_the_lists():
    assert PAGE.read_text() == render(), "run: python -m tests.bad_inputs"


def test_inputs_are_unique():
    inputs = [case.input for cases in CASES.values() for case in cases]
    assert len(set(inputs)) == len(inputs)


@pytest.mark.parametrize(
    ("text", "said"), [("4.nii.gz: 3 bytes, but 9 are due.", True), ("3 bytes, but many", False), ("bytes", False)]
)
def test_a_message_is_found_whatever_stands_for_the_dots(text, said):
    assert Case("cut", "excluded", "… bytes, but … are due").is_said(text) is said
