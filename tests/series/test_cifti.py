"""CIFTI files: parcellated series, and dense series averaged over labels."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nibabel.cifti2 import BrainModelAxis, LabelAxis, ScalarAxis

import bolt
from bolt.atlases.labels import load_labels
from bolt.cli.main import main
from bolt.config import Config, Dataset
from bolt.datasets import index
from bolt.io.cifti import read_ptseries_tr
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import read_json, read_table, write_json
from bolt.io.series_files import read_series
from tests import fake_cifti as fake
from tests.fake_cifti import NAMES, brain, expected_means, greyordinates, ptseries, save, seconds


# ---- parcellated series ------------------------------------------------------------------------
def test_parcellated_series_are_time_by_parcels_sorted_by_name(tmp_path):
    order = [2, 0, 3, 1]
    path = ptseries(tmp_path / "a.ptseries.nii", [NAMES[i] for i in order], data=expected_means()[:, order])
    np.testing.assert_allclose(bolt.read_series(path), expected_means()[:, order], rtol=1e-5)
    np.testing.assert_allclose(read_series(path, names=NAMES), expected_means(), rtol=1e-5)
    assert read_ptseries_tr(path) == pytest.approx(0.72)


def with_three_columns(content):
    """Change the sixth of NIfTI-2's sizes, which begin at byte 16; the CIFTI header describes four parcels."""
    columns = 16 + 6 * 8
    assert int.from_bytes(content[columns : columns + 8], "little") == 4
    return content[:columns] + b"\x03" + content[columns + 1 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"junk", "not a readable CIFTI file"),
        (with_three_columns, "its header describes (20, 4) numbers, but it has (20, 3)"),
        (lambda content: nib.Nifti1Image(np.ones((2, 2, 2)), fake.AFFINE).to_bytes(), "not a CIFTI-2 file"),
        (lambda content: content[:-200], "a.ptseries.nii"),
        (None, "axes are Series × BrainModel, not Series × Parc"),
    ],
)
def test_what_is_no_parcellated_series_is_refused(tmp_path, change, message):
    path = tmp_path / "a.ptseries.nii"
    if change is None:
        save(path, greyordinates(), seconds(), brain())
    else:
        path.write_bytes(change(ptseries(path).read_bytes()))
    with pytest.raises(DataError) as caught:
        read_series(path)
    assert message in str(caught.value) and caught.value.hint


def labels(folder, names=NAMES):
    """An atlas with these ROIs."""
    dlabel = fake.save_labels(folder / "atlas-toy_den-91k_dseg.dlabel.nii", brain(), names)
    assert main(["describe-atlas", str(dlabel), "--out", str(folder / "toy")]) == 0
    return Config(dataset="mine", atlases=[str(folder / "toy")])


def test_parcellated_series_are_scans(tmp_path):
    config = labels(tmp_path)
    ptseries(tmp_path / "p0.ptseries.nii")
    ptseries(tmp_path / "p1.ptseries.nii", [*NAMES[:3], "Caudate"])
    ptseries(tmp_path / "p2.ptseries.nii", axis=seconds(720))
    rows = {"subject": list("abc"), "file": [f"p{i}.ptseries.nii" for i in range(3)], "dx": list("xyx")}
    pd.DataFrame(rows).to_csv(tmp_path / "scans.tsv", sep="\t", index=False)
    keys = {"name": "mine", "source": "series", "path": tmp_path / "scans.tsv", "label": "dx", "classes": ["x", "y"]}
    scans = index(config, Dataset(**keys)).set_index("scan_id")
    assert scans.tr["p0"] == pytest.approx(0.72) and pd.isna(scans.exclude_reason["p0"])
    assert "'Caudate', where the atlas has 'Putamen'" in scans.exclude_reason["p1"]
    assert "looks like milliseconds" in scans.exclude_reason["p2"]
    with pytest.raises(DataError, match=r"repetition time of 0\.72 s, but 2 s is stated"):
        index(config, Dataset(**keys, tr=2.0))
    for conflict, tr in (("sidecar", 2.0), ("header", 0.72)):
        assert index(config, Dataset(**keys, tr=2.0, tr_conflict=conflict)).tr[0] == pytest.approx(tr)


# ---- dense series ------------------------------------------------------------------------------
def parcellate(folder, axis, data, *options, image="sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii"):
    save(folder / image, data, seconds(), axis)
    atlas = folder / "atlas-toy_den-91k_dseg.dlabel.nii"
    if not atlas.exists():
        fake.save_labels(atlas, brain())
    out = folder / "series.npy"
    arguments = [str(folder / image), "--atlas", str(atlas), "--out", str(out), "--no-standardize", *options]
    return main(["parcellate", *arguments]), out


@pytest.mark.parametrize(
    "axis",
    [
        pytest.param(brain(), id="as the atlas"),
        pytest.param(brain([*range(5), *range(9, fake.N)], range(3, fake.N)), id="without the medial wall"),
        pytest.param(brain(range(fake.N - 1, -1, -1), voxels=((1, 0, 0), (0, 0, 0), (0, 0, 1))), id="in another order"),
    ],
)
def test_greyordinates_are_matched_by_vertex_and_voxel(tmp_path, axis):
    columns = fake.columns_of(axis)
    status, out = parcellate(tmp_path, axis, greyordinates()[:, columns])
    assert status == 0
    np.testing.assert_allclose(np.load(out), expected_means(columns), rtol=1e-4, atol=1e-6)
    about = read_json(out.with_suffix(".json"))
    assert about["RepetitionTime"] == pytest.approx(0.72) and about["Space"] == "fsLR" and about["Atlas"] == "toy"
    coverage = read_table(out.with_name("series_coverage.tsv"))
    assert coverage.name.tolist() == NAMES and coverage.value.tolist() == [2, 5, 7, 11]
    walls = [4, 0, 2, 0] if len(axis) < len(brain()) else [0] * 4
    np.testing.assert_allclose(coverage.coverage, 1 - np.array(walls) / [19, 20, 39, 3], rtol=1e-6)


@pytest.mark.parametrize("name", ["bold.json", "bold.dtseries.json"])  # of newer and older releases of fMRIPrep
def test_the_repetition_time_of_the_sidecar_comes_first(tmp_path, name):
    write_json({"RepetitionTime": 0.8}, tmp_path / f"sub-01_task-rest_space-fsLR_den-91k_{name}")
    with pytest.warns(
        BoltWarning, match=r"TR is 0\.72 s in the header and 0\.8 s in the sidecar; the sidecar's is used"
    ):
        status, out = parcellate(tmp_path, brain(), greyordinates())
    assert status == 0 and read_json(out.with_suffix(".json"))["RepetitionTime"] == 0.8


def test_what_the_scan_lacks_is_not_covered(tmp_path):
    data = greyordinates()
    values = fake.label_of(brain())
    data[:, values == 5] = 0  # not acquired
    data[:3, np.flatnonzero(values == 2)[:4]] = np.nan
    status, out = parcellate(tmp_path, brain(), data)
    series = np.load(out)
    assert status == 0 and np.isnan(series).all(axis=0).tolist() == [False, True, False, False]
    kept = np.flatnonzero(values == 2)[4:]
    np.testing.assert_allclose(series[:, 0], data[:, kept].mean(axis=1), rtol=1e-4, atol=1e-6)
    coverage = read_table(out.with_name("series_coverage.tsv")).set_index("name")
    assert coverage.n_nonfinite["L_a"] == 4 and coverage.n_constant["L_b"] == 20 and coverage.covered["L_b"] == 0


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        (brain(shape=(5, 5, 5)), "on different grids"),
        (brain(affine=np.diag([3, 3, 3, 1.0])), "on different grids"),
        (BrainModelAxis.from_surface(range(fake.N), fake.N, "CIFTI_STRUCTURE_CEREBELLUM"), "no structure in common"),
    ],
)
def test_other_brain_models_are_refused(tmp_path, capsys, axis, message):
    status, out = parcellate(tmp_path, axis, np.random.default_rng(0).standard_normal((fake.T, len(axis))))
    assert status == 2 and message in capsys.readouterr().err and not out.exists()


def test_several_maps_unnamed_labels_and_other_files_are_refused(tmp_path, capsys):
    axis, atlas = brain(), tmp_path / "atlas-toy_den-91k_dseg.dlabel.nii"
    table = {0: ("???", (0, 0, 0, 0)), 2: ("L_a", (0, 0, 0, 1))}
    for maps, message in (
        (LabelAxis(["one", "two"], [table, table]), "2 maps of labels: one, two"),
        (LabelAxis(["one"], [table]), "label 5 has no name"),
        (ScalarAxis(["one"]), "axes are Scalar × BrainModel"),
    ):
        save(atlas, np.stack([fake.label_of(axis)] * len(maps)), maps, axis)
        assert parcellate(tmp_path, axis, greyordinates())[0] == 2 and message in capsys.readouterr().err
    scan = str(next(tmp_path.glob("*.dtseries.nii")))
    for time, said in ((seconds(unit="HERTZ"), "series axis is in hertz"), (seconds(720), "looks like milliseconds")):
        save(Path(scan), greyordinates(), time, axis)
        assert main(["parcellate", scan, "--atlas", str(atlas), "--out", str(tmp_path / "a.npy")]) == 2
        error = capsys.readouterr().err
        assert Path(scan).name in error and said in error
    assert main(["parcellate", scan, "--atlas", "schaefer400", "--out", "a.npy"]) == 2
    assert "ends in .dlabel.nii" in capsys.readouterr().err
    with pytest.raises(DataError, match="greyordinates, not ROI series. Average them first"):
        read_series(scan)


def test_confounds_are_regressed_out_and_a_folder_of_results_is_a_dataset(tmp_path):
    """From fMRIPrep's dense series to a scan table, with the atlas that the labels describe."""
    config, out = labels(tmp_path), tmp_path / "series"
    out.mkdir()
    pd.DataFrame({"csf": np.arange(fake.T) % 5}).to_csv(tmp_path / "confounds.tsv", sep="\t", index=False)
    for i in range(2):
        scan = tmp_path / f"sub-0{i}_task-rest_space-fsLR_den-91k_bold.dtseries.nii"
        save(scan, greyordinates(i), seconds(), brain())
        atlas = str(tmp_path / "atlas-toy_den-91k_dseg.dlabel.nii")
        options = ["--atlas", atlas, "--out", f"{out}/", "--confounds", str(tmp_path / "confounds.tsv")]
        assert main(["parcellate", str(scan), *options]) == 0
    series = read_series(out / "sub-00_task-rest_space-fsLR_den-91k_bold_atlas-toy_timeseries.npy")
    assert np.abs(series.T @ (np.arange(fake.T) % 5 - 2)).max() < 1e-3
    dataset = Dataset(name="mine", source="bids_series", path=out, label=None)
    scans = index(config, dataset)
    assert scans.scan_id.tolist() == ["sub-00_task-rest", "sub-01_task-rest"] and scans.exclude_reason.isna().all()
    assert scans.tr.tolist() == pytest.approx([0.72, 0.72])
    assert load_labels(config.atlases[0]).name.tolist() == NAMES
