"""ABIDE-I from the Preprocessed Connectomes Project: table of subjects, selection, addresses and downloads."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config import Config, Dataset, load_dataset, parse
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.datasets import abide, index
from bolt.io.errors import ConfigError, DataError
from bolt.report.pages.methods import methods
from bolt.workflow.checks import check_download_space, check_names
from bolt.workflow.estimate import estimate
from bolt.workflow.start import start
from tests.abide import bucket_path, people, write_people
from tests.shared import shared_data

KEYS = {"label": "DX_GROUP", "classes": ["control", "autism"], "site": "SITE_ID", "age": "AGE_AT_SCAN", "sex": "SEX"}


@pytest.fixture
def config(tmp_path):
    return Config(
        dataset="abide1", atlases=["cc200"], paths={"work": tmp_path / "work", "results": tmp_path / "results"}
    )


def dataset(about=None, **keys):
    return parse(Dataset, {"name": "abide1", "source": "abide", **KEYS, "abide": about or {}} | keys, "abide1.yaml")


def listed(table, tmp_path, config, **keys):
    """Index a table of subjects, by scan."""
    where = write_people(table, tmp_path / "people.csv")
    return index(config, dataset(subjects_table=where, **keys)).set_index("scan_id")


# ---- the table of subjects ---------------------------------------------------------------------


def test_the_papers_selection_on_the_real_table(config):
    folder = shared_data("abide1")
    real = folder / "Phenotypic_V1_0b_preprocessed1.csv"
    scans = index(config, load_dataset("abide1").model_copy(update={"subjects_table": real}))
    assert len(scans) == 1112
    kept = scans[scans.exclude_reason.isna()]
    assert kept.label.value_counts().to_dict() == {"control": 468, "autism": 403}
    assert kept.subject.nunique() == len(kept) == 871 and kept.site.nunique() == 17
    assert kept[["age", "sex", "site", "mean_fd"]].notna().all().all()
    assert set(kept.sex) == {"M", "F"} and (kept.group == kept.subject).all()
    assert set(kept.kind) == {"series"} and kept.n_volumes.isna().all()
    assert sorted(kept.scan_id) == sorted(np.load(folder / "cc200_nofilt_noglobal_871.npz")["file_id"])


def test_exclusions_have_their_reasons(tmp_path, config):
    table, expected = people(12).astype({"DX_GROUP": object}), {}
    for row, (column, value, reason) in enumerate([
        ("qc_rater_1", "fail", "quality: the first rater marked 'fail', not 'OK'"),
        ("qc_rater_1", "maybe", "quality: the first rater marked 'maybe', not 'OK'"),
        ("qc_func_rater_3", "fail", "quality: 'fail' in qc_func_rater_3"),
        ("FILE_ID", "no_filename", "the project published no file for this subject"),
        ("DX_GROUP", None, "no value in label column 'DX_GROUP'"),
        ("DX_GROUP", 3, "label '3' is not one of control, autism"),
        ("qc_anat_rater_2", "maybe", None),
        ("qc_anat_rater_3", None, None),
    ]):  # fmt: skip
        table.loc[row, column] = value
        expected[f"NYU_005000{row}"] = reason
    reasons = listed(table, tmp_path, config).exclude_reason
    assert reasons.dropna().to_dict() == {scan: reason for scan, reason in expected.items() if reason}


def test_codes_are_those_of_abides_legend(tmp_path, config):
    """DX_GROUP: 1 autism, 2 control; SEX: 1 male, 2 female."""
    table = people(3)
    columns = ["SUB_ID", "SITE_ID", "FILE_ID", "DX_GROUP", "SEX", "AGE_AT_SCAN", "func_mean_fd"]
    table.loc[0, columns] = [50772, "KKI", "KKI_0050772", 1, 2, 12.85, 0.11]
    table.loc[1, columns] = [51456, "CALTECH", "Caltech_0051456", 2, 1, 55.4, None]
    scans = listed(table, tmp_path, config)
    shown = scans[["subject", "site", "label", "sex", "age", "tr", "task"]]
    assert shown.loc["KKI_0050772"].tolist() == ["50772", "KKI", "autism", "F", 12.85, 2.5, "rest"]
    assert shown.loc["Caltech_0051456"].tolist() == ["51456", "CALTECH", "control", "M", 55.4, 2.0, "rest"]
    assert scans.mean_fd["KKI_0050772"] == 0.11 and pd.isna(scans.mean_fd["Caltech_0051456"])
    by_sex = listed(table, tmp_path, config, label="SEX", classes=["F", "M"])
    assert by_sex.label.tolist() == ["M", "F", "M"]  # by name


def test_repetition_times_are_those_of_abides_documents(tmp_path, config):
    """Seconds; unknown for sites with two protocols, or whose published tables differ."""
    sites = dict.fromkeys(("CMU", "MAX_MUN", "LEUVEN_1", "LEUVEN_2", "SBL"), "unknown")
    sites |= dict.fromkeys(("OLIN", "PITT"), 1.5) | dict.fromkeys(("KKI", "OHSU"), 2.5)
    sites |= dict.fromkeys(("CALTECH", "NYU", "SDSU", "STANFORD", "TRINITY", "UM_1", "UM_2", "USM", "YALE"), 2.0)
    sites |= dict.fromkeys(("UCLA_1", "UCLA_2"), 3.0)
    scans = listed(people(20).assign(SITE_ID=list(sites)), tmp_path, config)
    assert scans.set_index("site").tr.fillna("unknown").to_dict() == sites and len(sites) == 20


def test_a_subject_who_is_listed_twice_stops_the_run(tmp_path, config):
    with pytest.raises(DataError, match="duplicate subjects: 50000"):
        listed(people(6).replace({"SUB_ID": {50001: 50000}}), tmp_path, config)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<html><body>Log in</body></html>", "columns missing: SUB_ID, .*commas between cells"),
        (b"\xff\xfe\x00", "not a readable table"),
    ],
)
def test_invalid_tables_are_refused(tmp_path, config, content, words):
    where = tmp_path / "people.csv"
    with pytest.raises(DataError, match=r"people\.csv: file not found"):
        index(config, dataset(subjects_table=where))
    where.write_bytes(content)
    with pytest.raises(DataError, match=rf"people\.csv: {words}"):
        index(config, dataset(subjects_table=where))


# ---- addresses and downloads -------------------------------------------------------------------


def test_addresses_are_those_of_the_bucket(tmp_path, config, monkeypatch):
    asked, downloads = [], tmp_path / "work/abide1/downloads"
    monkeypatch.setattr(abide, "fetch", lambda address, path: asked.append((address, str(path.relative_to(downloads)))))
    monkeypatch.setattr(abide, "_check_series", lambda path, config: None)
    abide.download_table(dataset(), config)
    abide.download_scan("KKI_0050822", dataset({"strategy": "filt_global", "derivative": "rois_ho"}), config)
    abide.download_scan("OHSU_0050147", dataset({"derivative": "func_preproc"}), config)
    base = "https://s3.amazonaws.com/fcp-indi/data/Projects/ABIDE_Initiative"
    series, image = "cpac/filt_global/rois_ho", "cpac/nofilt_noglobal/func_preproc"
    assert [address.removeprefix(f"{base}/") for address, _ in asked] == [
        "Phenotypic_V1_0b_preprocessed1.csv",
        f"Outputs/{series}/KKI_0050822_rois_ho.1D",  # an example from the project's page
        f"Outputs/{image}/OHSU_0050147_func_preproc.nii.gz",
    ]
    assert [path.rpartition("/")[0] for _, path in asked] == ["", f"{series}/KKI_0050822", f"{image}/OHSU_0050147"]


def test_scans_are_fetched_from_a_folder_with_the_buckets_layout(tmp_path, config):
    about = dataset({"base": str(tmp_path / "mirror"), "derivative": "func_preproc"})
    file = bucket_path(tmp_path / "mirror", "NYU_0050000", "func_preproc")
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(b"image"))
    write_people(people(4), tmp_path / "mirror" / "Phenotypic_V1_0b_preprocessed1.csv")
    abide.download_table(about, config)
    abide.download_scan("NYU_0050000", about, config)
    scans = index(config, about).set_index("scan_id")
    assert gzip.decompress(Path(scans.bold["NYU_0050000"]).read_bytes()) == b"image"
    assert set(scans.kind) == {"preprocessed"} and set(scans.space) == {"MNI152NLin6Asym"}


def test_series_of_another_atlas_are_removed(tmp_path, config):
    file, about = bucket_path(tmp_path / "mirror", "NYU_0050000"), dataset({"base": str(tmp_path / "mirror")})
    file.parent.mkdir(parents=True)
    for content, words in {
        "#1\t#2\n0.5\t1.5\n2.5\t3.5\n": "2 named ROIs do not match the 200 of the atlas",
        "0.5\t1.5\n2.5\t3.5\n": "2 ROIs, but atlas 'cc200' has 200",
        "#1\t#2\n0.5\t1.5\n2.5\n": "rows of unequal length",
    }.items():
        file.write_text(content)
        with pytest.raises(DataError, match=words):
            abide.download_scan("NYU_0050000", about, config)
        assert not list((tmp_path / "work").rglob("*.1D*"))
    header = "\t".join(f"#{i}" for i in range(1, 201))
    np.savetxt(file, np.random.default_rng(0).random((3, 200)), header=header, comments="", delimiter="\t")
    abide.download_scan("NYU_0050000", about, config)
    assert abide.scan_path("NYU_0050000", about, config).is_file()


def test_disk_space_is_checked_for_pending_downloads(config, monkeypatch):
    images = dataset({"derivative": "func_preproc"})
    assert abide.download_bytes(images, config) == pytest.approx(871 * 100e6)
    assert abide.scan_count(images, config) == 871
    table = people(4).assign(qc_rater_1=["fail", "OK", "OK", "OK"])
    write_people(table, Layout(config).downloads / "Phenotypic_V1_0b_preprocessed1.csv")
    assert abide.scan_count(images, config) == 3
    assert abide.download_bytes(images, config) == pytest.approx(300e6)
    there = abide.scan_path("NYU_0050001", images, config)
    there.parent.mkdir(parents=True)
    there.touch()
    assert abide.download_bytes(images, config) == pytest.approx(200e6)
    monkeypatch.setattr("bolt.io.resource_errors.free_bytes", lambda folder: 150e6)
    with pytest.raises(ConfigError, match=r"abide1/downloads/.*'abide1' needs 0\.2 GB, 0\.1 GB are free"):
        check_download_space(config, images)
    check_download_space(config, dataset())


@pytest.mark.parametrize(
    ("about", "atlases", "words"),
    [
        ({}, ["aal116"], r"'rois_cc200' are series of one atlas, .* lists aal116.*atlases: \[cc200\]"),
        ({}, ["cc200", "aal116"], "series of one atlas"),
        ({"derivative": "func_preproc", "pipeline": "niak"}, ["cc200"], "pipeline 'niak' are in an unsupported space"),
        ({"base": "/no/such/mirror"}, ["cc200"], "no such folder: /no/such/mirror. Correct 'abide: base'"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(config, about, atlases, words):
    with pytest.raises(ConfigError, match=words):
        check_names(config.model_copy(update={"atlases": atlases}), dataset(about))
    check_names(config, dataset())
    with pytest.raises(ConfigError, match=r"'abide\.derivative'"):
        dataset({"derivative": "reho"})


def test_a_run_without_disk_space_only_allows_a_dry_run(config, monkeypatch, capsys):
    monkeypatch.setattr("bolt.io.resource_errors.free_bytes", lambda folder: 1e6)
    raw = config.model_dump(mode="json") | {"dataset": "abide1_images", "atlases": ["schaefer400"]}
    with pytest.raises(SystemExit, match=r"abide1_images/downloads.* needs 87\.1 GB, 1\.0 MB are free"):
        start(raw)
    monkeypatch.setattr("sys.argv", ["snakemake", "-n", "--configfile", "x.yaml"])
    start(raw)
    assert "Warning: " in capsys.readouterr().err


def test_the_estimate_counts_downloads(tmp_path, config):
    raw = config.model_dump(mode="json") | {"models": ["svm"]}
    estimated = estimate(start(raw))
    assert estimated.scans == 871 and 44 < estimated.jobs < 44 + 12  # twenty series a job; one job fits all folds
    assert estimated.gigabytes == pytest.approx(0.39 + 871 * 1.5e-3, rel=0.05)


def test_methods_say_where_the_data_are_from(config):
    text = methods(Study(config, load_dataset("abide1")))[0]
    assert "cpac" in text and "ROI time series (cc200)" in text
    assert "images in MNI152NLin6Asym" in " ".join(methods(Study(config, load_dataset("abide1_images"))))
