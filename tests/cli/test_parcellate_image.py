"""One image by hand: no dataset, no configuration; the workflow's own function underneath."""

import os

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.maskers import NiftiLabelsMasker

from bolt.atlases.description import MD5, md5, transform_name
from bolt.atlases.transforms import read_composite, resample_labels
from bolt.cli.main import main
from bolt.cli.parcellate_image import series_places
from bolt.io.errors import ConfigError
from bolt.io.files import read_json, read_table, sha256
from bolt.series.cache import zscore
from tests.atlases.test_atlases import write_own
from tests.atlases.test_spaces import FIELD_AFFINE, FIELD_SHAPE, write_transform
from tests.series.test_parcellate import AFFINE, SHAPE, SPACE, T, make_atlas, save

NAME = f"sub-01_space-{SPACE}_bold.nii.gz"


@pytest.fixture
def image(tmp_path):
    data = np.random.default_rng(0).normal(1000, 50, (*SHAPE, T)).astype(np.float32)
    return str(save(tmp_path / NAME, data))


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / f"space-{SPACE}_dseg.nii.gz"
    nib.save(nib.Nifti1Image(make_atlas().data, AFFINE), path)
    return str(path)


def run(*words):
    return main(["parcellate", *map(str, words)])


def test_a_label_image_standardised_anywhere(tmp_path, image, labels, monkeypatch, caplog):
    """No configuration, no TemplateFlow home, another working directory."""
    caplog.set_level("INFO", logger="bolt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TEMPLATEFLOW_HOME", raising=False)
    assert run(image, "--atlas", labels, "--out", "made/series.npy") == 0
    assert "made/series.npy: 8 volumes × 3 ROIs" in caplog.text
    out = tmp_path / "made" / "series.npy"
    series = np.load(out)
    theirs = NiftiLabelsMasker(labels, standardize=None).fit_transform(image)
    assert (series.shape, series.dtype) == ((T, 3), np.float32)
    np.testing.assert_allclose(series, zscore(theirs), atol=1e-4)
    written = {".json", ".npy", "_coverage.json", "_coverage.tsv", "_provenance.json"}
    assert {p.name for p in out.parent.iterdir()} == {f"series{end}" for end in written}
    assert read_json(out.parent / "series_provenance.json")["inputs"] == {str(image): sha256(image)}
    sidecar = read_json(out.with_suffix(".json"))
    assert (sidecar["Space"], sidecar["AtlasSpaces"], sidecar["Standardized"]) == (SPACE, [SPACE], True)
    assert read_table(out.with_name("series_coverage.tsv"), text=("name",)).name.tolist() == ["7", "300", "4001"]


def test_a_mask_and_confounds_do_as_in_nilearn(tmp_path, image, labels):
    """Not standardised; without a strategy all confounds are regressed out, with one those that it names."""
    inside = np.random.default_rng(1).random(SHAPE) > 0.3
    nib.save(nib.Nifti1Image(inside.astype(np.uint8), AFFINE), mask := tmp_path / "mask.nii.gz")
    confounds = pd.DataFrame(np.random.default_rng(2).standard_normal((T, 3)), columns=list("abc"))
    confounds.to_csv(table := tmp_path / "c.tsv", sep="\t", index=False)
    (tmp_path / "one.yaml").write_text("confounds: [b]\n")
    out, masker = tmp_path / "series.npy", NiftiLabelsMasker(labels, mask_img=str(mask), standardize=None)
    words = [image, "--atlas", labels, "--mask", mask, "--out", out, "--no-standardize"]
    all_of_table = ["--confounds", table]
    one_of_table = [*all_of_table, "--denoise", tmp_path / "one.yaml"]
    for more, used in (([], None), (all_of_table, confounds), (one_of_table, confounds[["b"]])):
        assert run(*words, *more) == 0
        np.testing.assert_allclose(np.load(out), masker.fit_transform(image, confounds=used), rtol=1e-4, atol=1e-4)
        assert "Standardized" not in read_json(out.with_suffix(".json"))
    assert read_json(out.with_suffix(".json"))["Denoising"]["confounds"] == ["b"]


def test_several_atlases_in_a_folder_or_by_a_pattern(tmp_path, image, labels):
    own = write_own(tmp_path / "own", values=(5, 300, 17))
    words, stem = [image, "--atlas", labels, own, "--coverage", "0.1", "--out"], NAME.removesuffix(".nii.gz")
    assert run(*words, tmp_path / "out") == 0
    names = ("own", "spaceMNI152NLin6Asymdseg")
    made = {p.name for p in (tmp_path / "out").glob("*.npy")}
    assert made == {f"{stem}_atlas-{name}_timeseries.npy" for name in names}
    assert (tmp_path / "out" / f"{stem}_atlas-own_coverage.tsv").is_file()
    assert run(*words, tmp_path / "{atlas}-x.npy") == 0
    assert (tmp_path / "own-x.npy").is_file() and (tmp_path / "own-x_coverage.tsv").is_file()
    with pytest.raises(ConfigError, match="one file for the series of 2 atlases"):
        series_places("a.npy", image, ["x", "y"])
    with pytest.raises(ConfigError, match="two atlases are called 'x'"):
        series_places("out", image, ["x", "x"])


def test_uncovered_stays_nan_and_constant_becomes_zero(tmp_path, labels, caplog):
    data = np.random.default_rng(0).normal(1000, 50, (*SHAPE, T))
    data[4:7] = 0  # the second ROI
    up, down = np.arange(T), -np.arange(T)
    data[7:10] = 1000
    data[7, 2:9, 2:9], data[8, 2:9, 2:9] = 1000 + up, 1000 + down  # voxels change, their mean does not
    image = save(tmp_path / NAME, data.astype(np.float32))
    assert run(image, "--atlas", labels, "--out", tmp_path / "series.npy") == 0
    series = np.load(tmp_path / "series.npy")
    assert np.isfinite(series[:, 0]).all() and series[:, 0].std() == pytest.approx(1, abs=1e-5)
    assert np.isnan(series[:, 1]).all()
    assert (series[:, 2] == 0).all()
    assert "1 ROIs not covered, NaN: 300" in caplog.text
    assert "1 ROIs constant, zero once z-scored: 4001" in caplog.text


def test_what_makes_no_sense_is_said(tmp_path, image, labels, capsys):
    for words, said in (
        ((tmp_path / "none.nii", "--atlas", labels, "--out", "a.npy"), "file not found"),
        ((image, "--atlas", "schaefer4000", "--out", "a.npy"), "did you mean"),
        ((image, "--atlas", labels, "--out", "a.npy", "--coverage", "5"), "--coverage 5 is no share. Give a number"),
        ((image, "--atlas", labels, "--out", tmp_path / "s.csv"), "s.csv: series are written as .npy, not .csv"),
    ):
        assert run(*words) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "s.csv").exists()


def test_without_a_space_on_either_side(tmp_path, image, labels):
    bare_image, bare_labels = tmp_path / "bold.nii.gz", tmp_path / "labels.nii.gz"
    os.link(image, bare_image)
    os.link(labels, bare_labels)
    with pytest.warns(UserWarning, match="atlas 'labels' declares no space; assuming that of the image"):
        assert run(image, "--atlas", bare_labels, "--out", tmp_path / "a.npy") == 0
    assert read_json(tmp_path / "a.json")["AtlasSpaces"] == "assumed"
    assert run(bare_image, "--atlas", labels, "--out", tmp_path / "b.npy") == 2  # it may be a raw scan
    assert run(bare_image, "--atlas", labels, "--space", SPACE, "--out", tmp_path / "c.npy") == 0
    assert read_json(tmp_path / "c.json")["Space"] == SPACE
    assert run(bare_image, "--atlas", labels, "--space", "MNI152NLin2009cAsym", "--out", tmp_path / "d.npy") == 2


def test_the_paths_of_a_configuration_are_used(tmp_path, image, monkeypatch):
    own = write_own(tmp_path / "own")
    (tmp_path / "images").mkdir()
    os.rename(tmp_path / "own/labels.nii.gz", tmp_path / "images/labels.nii.gz")
    assert run(image, "--atlas", own, "--out", tmp_path / "a.npy") == 2
    config = tmp_path / "c.yaml"
    config.write_text(f"dataset: phantom\npaths: {{atlas_dir: {tmp_path / 'images'}}}\nparcellate: {{coverage: 0.1}}\n")
    assert run(image, "--atlas", own, "--out", tmp_path / "a.npy", "--config", config) == 0
    assert read_json(tmp_path / "a.json")["CoverageThreshold"] == 0.1


def test_fetch_asks_for_what_is_missing(tmp_path, image):
    own = write_own(tmp_path / "own")
    os.rename(tmp_path / "own/labels.nii.gz", tmp_path / "published.nii.gz")
    with (tmp_path / "own/atlas.yaml").open("a") as file:
        file.write(f"url: {(tmp_path / 'published.nii.gz').as_uri()}\n")
    words = [image, "--atlas", own, "--coverage", "0.1", "--out", tmp_path / "a.npy"]
    assert run(*words) == 2
    assert run(*words, "--fetch") == 0
    assert run(*words) == 0


def test_an_atlas_of_another_space_is_carried_over(tmp_path, labels, monkeypatch):
    """The series are those of the labels that the transform moves."""
    source, target = SPACE, "MNI152NLin2009cAsym"
    transform = write_transform(tmp_path / "home" / transform_name(source, target))
    monkeypatch.setitem(MD5, (source, target), md5(transform))
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "home"))
    data = np.random.default_rng(0).normal(1000, 50, (*FIELD_SHAPE, T)).astype(np.float32)
    image = save(tmp_path / f"sub-01_space-{target}_bold.nii.gz", data, FIELD_AFFINE)
    assert run(image, "--atlas", labels, "--out", tmp_path / "s.npy", "--no-standardize", "--coverage", 0) == 0
    carried = resample_labels(nib.load(labels), read_composite(transform))
    theirs = NiftiLabelsMasker(carried, standardize=None).fit_transform(image)
    np.testing.assert_allclose(np.load(tmp_path / "s.npy"), theirs, rtol=1e-5)
    assert read_json(tmp_path / "s.json")["AtlasCarriedOver"]["From"] == source
