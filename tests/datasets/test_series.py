"""Ready ROI series as a source of scans."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.atlases.labels import load_labels
from bolt.config import Config, Dataset
from bolt.datasets import index
from bolt.io.errors import DataError
from bolt.io.files import sha256, write_json
from bolt.workflow.watched import files_of

CONFIG = Config(dataset="mine", atlases=["cc200"])


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(6):
        np.save(tmp_path / f"scan{i}.npy", rng.standard_normal((40, 200)))
        rows.append({"subject": f"p{i // 2}", "file": f"scan{i}.npy", "task": ["rest", "nback"][i % 2], "tr": 2.0})
    pd.DataFrame(rows).to_csv(tmp_path / "scans.tsv", sep="\t", index=False)
    return tmp_path / "scans.tsv"


def dataset(path, **keys):
    return Dataset(
        **({"name": "mine", "source": "series", "path": path, "label": "task", "classes": ["rest", "nback"]} | keys)
    )


def test_labels_belong_to_scans_and_groups_to_subjects(table):
    scans = index(CONFIG, dataset(table))
    assert scans.label.tolist() == ["rest", "nback"] * 3
    assert scans.group.tolist() == ["p0", "p0", "p1", "p1", "p2", "p2"]
    assert set(scans.n_volumes) == {40} and set(scans.tr) == {2.0} and set(scans.kind) == {"series"}


def test_bad_series_exclude_their_scans(table):
    paths = [table.parent / f"scan{i}.npy" for i in range(6)]
    broken = np.load(paths[1])
    broken[3, 2] = np.nan
    np.save(paths[1], broken)
    paths[2].unlink()
    np.save(paths[3], np.load(paths[3]).T)
    np.save(paths[4], np.random.default_rng(0).normal(size=(40, 116)))
    reasons = index(CONFIG, dataset(table)).set_index("scan_id").exclude_reason.dropna()
    words = {
        "scan1": "scan1.npy",
        "scan2": "file not found",
        "scan3": "scan3.npy: shape (200, 40), but atlas 'cc200' has 200 ROIs: these seem to be along rows",
        "scan4": "116 ROIs, but atlas 'cc200' has 200",
    }
    assert list(reasons.index) == list(words) and all(words[name] in reasons[name] for name in words)


@pytest.mark.parametrize("atlases", [["cc200"], ["aal116", "cc200"]])
def test_values_of_an_atlas_in_the_first_row_are_no_volume(table, atlases):
    series = pd.DataFrame(np.load(table.parent / "scan0.npy"), columns=range(200, 0, -1))
    series.to_csv(table.parent / "scan.csv", index=False)
    change(table, file="scan.csv", scan_id=list("abcdef"))
    assert set(index(Config(dataset="mine", atlases=atlases), dataset(table)).n_volumes) == {40}


def change(table, **columns):
    pd.read_csv(table, sep="\t").assign(**columns).to_csv(table, sep="\t", index=False)


@pytest.mark.parametrize(
    ("column", "values"), [("age", "old"), ("age", "-5"), ("age", "9999"), ("mean_fd", "low"), ("mean_fd", "-1")]
)
def test_values_that_are_no_numbers_are_told(table, caplog, column, values):
    change(table, **{column: [values, *"12345"]})
    scans = index(CONFIG, dataset(table, age="age" if column == "age" else None)).set_index("scan_id")
    assert scans[column].isna().sum() == 1 and scans[column]["scan1"] == 1
    assert f"{column}: 1 values count as missing, such as '{values}'" in caplog.text


@pytest.mark.parametrize("tr", ["2000", "-2", "0", "2 s", "nan"])
def test_a_repetition_time_that_is_none_excludes_its_scan(table, tr):
    change(table, tr=[tr, *"22222"])
    scans = index(CONFIG, dataset(table)).set_index("scan_id")
    assert scans.exclude_reason.notna().tolist() == [True, *5 * [False]]
    assert "RepetitionTime" in scans.exclude_reason.iloc[0]


def describe(table, **keys):
    for i in range(6):
        write_json(keys, table.parent / f"scan{i}.json")


def test_the_repetition_time_of_a_json_file_comes_first_and_may_not_contradict_the_table(table):
    before = files_of(dataset(table))
    describe(table, RepetitionTime=0.72)
    assert files_of(dataset(table)) != before
    with pytest.raises(DataError, match=r"2 s is listed, but the JSON file states 0\.72 s. Correct the wrong one"):
        index(CONFIG, dataset(table))
    assert set(index(CONFIG, dataset(table, tr_conflict="sidecar")).tr) == {0.72}
    change(table, tr=None)
    assert set(index(CONFIG, dataset(table, tr=2.0)).tr) == {0.72}
    describe(table, SamplingFrequency=0.5)
    assert set(index(CONFIG, dataset(table)).tr) == {2.0}


def test_series_that_state_another_atlas_are_excluded(table):
    """Unless their columns are named as the atlas's ROIs: users name atlases as they like."""
    change(table, tr=None)
    describe(table, Atlas="CC-200")
    assert index(CONFIG, dataset(table)).exclude_reason.isna().all()
    write_json({"Atlas": "s17"}, table.parent / "scan1.json")
    reasons = index(CONFIG, dataset(table)).set_index("scan_id").exclude_reason.dropna()
    assert list(reasons.index) == ["scan1"] and "of atlas 's17', but 'atlases' names cc200. Set" in reasons["scan1"]
    both = Config(dataset="mine", atlases=["cc200", "aal116"])
    assert index(both, dataset(table)).exclude_reason.notna().sum() == 1
    series = pd.DataFrame(np.load(table.parent / "scan1.npy"), columns=load_labels("cc200")["name"])
    series.to_csv(table.parent / "scan1.csv", index=False)
    change(table, file=["scan0.npy", "scan1.csv", *(f"scan{i}.npy" for i in range(2, 6))])
    assert index(CONFIG, dataset(table)).exclude_reason.isna().all()


def test_series_that_state_another_image_of_the_atlas_are_excluded(table):
    """A label image alone is named by its file, as another may be; where an image is the same, its name may differ."""
    image, carried = table.parent / "space-X_labels.nii.gz", {"Image": "theirs"}
    data = np.arange(1, 217).clip(max=200).reshape(6, 6, 6).astype(np.int16)
    nib.save(nib.Nifti1Image(data, np.eye(4)), image)
    change(table, tr=None)
    stated = [{"AtlasSHA256": sha256(image)}, {"AtlasSHA256": "theirs"}, {}, {"AtlasCarriedOver": carried}, {}, {}]
    for i, keys in enumerate(stated):
        write_json({"Atlas": "another" if i == 0 else "spaceXlabels", **keys}, table.parent / f"scan{i}.json")
    scans = index(Config(dataset="mine", atlases=[str(image)]), dataset(table)).set_index("scan_id")
    reasons = scans.exclude_reason.dropna()
    assert list(reasons.index) == ["scan1", "scan3"] and reasons.str.contains("another image of the atlas").all()


def test_missing_columns_are_named(table):
    change(table, **{f"score_{i}": "1" for i in range(30)})
    with pytest.raises(DataError, match="columns missing: sex; found subject, file, .* and 29 more"):
        index(CONFIG, dataset(table, label="sex"))


def test_family_may_not_differ_between_scans_of_a_subject_but_site_and_age_may(table):
    change(table, family=["f1", "f1", "f1", "f2", "f2", "f2"], site=list("ABABAB"), age=range(20, 26))
    with pytest.raises(DataError, match=r"subject p1 has several values of 'family' \(f1, f2\)"):
        index(CONFIG, dataset(table, group="family"))
    change(table, family=["f1", "unknown", "f1", "f1", None, "2"], dx=[0, 1] * 3)
    scans = index(CONFIG, dataset(table, group="family", site="site", age="age", label="dx", classes=[0, 1]))
    assert scans.group.tolist() == ["f1", "f1", "f1", "f1", "2", "2"] and scans.label.tolist() == ["0", "1"] * 3
    assert scans.site.tolist() == list("ABABAB") and scans.age.tolist() == list(range(20, 26))
    change(table, family=["p2"] * 4 + [None] * 2)  # and a person without family is called p2, too
    assert index(CONFIG, dataset(table, group="family")).group.tolist() == ["family p2"] * 4 + ["p2"] * 2
    change(table, subject=["p0", "p0", "p1", None, "p2", "p2"])
    with pytest.raises(DataError, match=r"scans\.tsv, row 5: no subject"):
        index(CONFIG, dataset(table))


def test_scans_are_selected_by_columns_and_session(table):
    change(table, site=list("AABBCC"), session=["1", "1", "2"] * 2)
    scans = index(CONFIG, dataset(table, include={"site": ["A", "B"]}, exclude={"subject": ["p1"]}))
    reasons = scans.exclude_reason.tolist()
    assert pd.isna(reasons[:2]).all()
    assert reasons[2:] == ["excluded by 'exclude': subject is p1"] * 2 + ["excluded by 'include': site is C"] * 2
    with pytest.raises(DataError, match="'include' names site 'D', which no subject has"):
        index(CONFIG, dataset(table, include={"site": ["A", "D"]}))
    with pytest.raises(DataError, match="column 'centre' is missing; found subject"):
        index(CONFIG, dataset(table, exclude={"centre": ["A"]}))
    reasons = index(CONFIG, dataset(table, sessions=["1"])).exclude_reason
    assert reasons.dropna().tolist() == ["session '2' is not selected"] * 2
    change(table, run=["01", "02"] * 3)
    assert index(CONFIG, dataset(table, runs=["1"])).exclude_reason.isna().sum() == 3
    change(table, site=[1.0, 1.0, 2.0, 2.0, 3.0, None])  # as pandas writes whole numbers beside a missing one
    scans = index(CONFIG, dataset(table, include={"site": ["1"]}, exclude={"site": ["2.0"]}))
    assert scans.exclude_reason.isna().sum() == 2


def test_rows_without_a_file_and_files_of_one_name(table):
    change(table, file=[None, None, *(f"scan{i}.npy" for i in range(2, 6))])
    scans = index(CONFIG, dataset(table))
    assert scans.scan_id[scans.exclude_reason.notna()].tolist() == ["p0_row-2", "p0_row-3"]
    change(table, file=[f"scan{i // 2}.npy" for i in range(6)])
    with pytest.raises(DataError, match="duplicate scan_id: scan0.*or name scans in a column 'scan_id'"):
        index(CONFIG, dataset(table))
