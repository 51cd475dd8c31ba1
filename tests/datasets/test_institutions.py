"""Samples of one institution count as one site."""

import numpy as np
import pandas as pd
import pytest

from bolt.config import Config, Dataset, Folds, load_dataset, parse
from bolt.datasets import index
from bolt.datasets.participants import check_institutions, similar_sites
from bolt.folds.splits import make_folds
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import write_yaml
from bolt.workflow.readiness import readiness
from bolt.workflow.run import Run
from tests.shared import shared_data

SITES = pd.Series(["UM_1", "UM_2", "USM", None, "NYU"], dtype=object)
PAIRS = {"LEUVEN": ["LEUVEN_1", "LEUVEN_2"], "UCLA": ["UCLA_1", "UCLA_2"], "UM": ["UM_1", "UM_2"]}


def write_study(folder, sites=("UM_1", "UM_2", "NYU", "USM"), per_site=6, **keys):
    """Write ready series of several sites, and the dataset's file."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(per_site * len(sites)):
        np.save(folder / f"p{i:02d}.npy", random.normal(size=(30, 200)).astype(np.float32))
        label, site = ("control", "patient")[i // len(sites) % 2], sites[i % len(sites)]
        rows.append({"subject": f"p{i:02d}", "file": f"p{i:02d}.npy", "diagnosis": label, "center": site})
    pd.DataFrame(rows).to_csv(folder / "scans.tsv", sep="\t", index=False)
    about = {"source": "series", "path": str(folder / "scans.tsv"), "label": "diagnosis", "site": "center", "tr": 2.0}
    write_yaml(about | {"classes": ["control", "patient"], "crop": 20} | keys, folder / "study.yaml")


def config_of(folder, scheme="leave-site-out", outer=3, **keys):
    write_study(folder, **keys)
    about = {"dataset": str(folder / "study.yaml"), "atlases": ["cc200"], "models": ["svm"], "denoise": "none"}
    paths = {"results": str(folder / "results"), "work": str(folder / "work")}
    return about | {"folds": {"scheme": scheme, "outer": outer}, "paths": paths}


def indexed(folder, **keys):
    config = Config(**config_of(folder, **keys))
    return index(config, load_dataset(config.dataset))


def test_institutions_without_any_subject_are_told(caplog):
    """A table of fewer subjects still works with the shipped list."""
    check_institutions(SITES, {"UM": ["UM_1", "UM_2"], "LEUVEN": ["LEUVEN_1", "LEUVEN_2"]}, "people.csv")
    assert "no subject is from institution 'LEUVEN' (LEUVEN_1, LEUVEN_2)" in caplog.text


@pytest.mark.parametrize(
    ("institutions", "message"),
    [
        ({"UM": ["UM_1", "UM2"]}, r"lists site 'UM2' \(UM\), which no subject has; did you mean 'UM_2'\?"),
        ({"UM": ["UM_1", "UM_2", "Ann Arbor"]}, r"lists site 'Ann Arbor' \(UM\), which no subject has\. "),
        ({"A": ["um_1", "um_2"]}, r"lists site 'um_1' \(A\), which no subject has; did you mean 'UM_1'\?"),
        ({"USM": ["UM_1", "UM_2"]}, "joins UM_1, UM_2 as 'USM', which is also the name of a site"),
    ],
)
def test_names_that_do_not_occur_are_refused(institutions, message):
    with pytest.raises(DataError, match=message):
        check_institutions(SITES, institutions, "people.csv")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"site": "s", "institutions": {"A": ["a", "b"], "B": ["b"]}}, "lists b twice"),
        ({"site": "s", "institutions": {"A": ["a", "a"]}}, "lists a twice"),
        ({"site": "s", "institutions": {"A": []}}, "institutions"),
        ({"institutions": {"A": ["a"]}}, "needs sites"),
    ],
)
def test_a_sample_has_one_institution(keys, message):
    with pytest.raises(ConfigError, match=message):
        parse(Dataset, {"name": "x", "source": "series", "path": "scans.tsv", "label": "y", **keys}, "x.yaml")


def test_only_leave_site_out_warns_of_names_that_look_alike_and_it_keeps_institutions_whole(tmp_path, caplog):
    words = "UM_1 and UM_2 look like samples of one institution"
    indexed(tmp_path, scheme="kfold")
    scans = indexed(tmp_path, institutions={"UM": ["UM_1", "UM_2"]})
    assert words not in caplog.text
    indexed(tmp_path)
    assert words in caplog.text
    folds = make_folds(scans, Folds(scheme="leave-site-out", outer=3)).merge(scans[["scan_id", "site"]], on="scan_id")
    assert (folds.groupby(["fold", "site"])["role"].nunique() == 1).all()
    um = folds[(folds["role"] == "test") & (folds["site"] == "UM")]
    assert len(um) == 12 and um["fold"].nunique() == 1


@pytest.mark.parametrize(
    ("selection", "used"),
    [
        ({"exclude": {"center": ["2"]}}, {"both": 6, "7": 6, "9": 6}),
        ({"include": {"center": ["7", "9"]}}, {"7": 6, "9": 6}),
    ],
)
def test_selection_goes_by_the_tables_own_names_which_may_be_numbers(tmp_path, selection, used):
    """A selection may remove a whole institution, or one of its samples, without a change of the list."""
    scans = indexed(tmp_path, sites=("1", "2", "7", "9"), institutions={"both": [1, 2]}, **selection)
    assert scans["site"][scans["exclude_reason"].isna()].value_counts().to_dict() == used


def test_names_that_look_alike():
    def found(*sites, **institutions):
        return similar_sites(pd.Series(sites), institutions)

    assert found("UM_1", "UM_2", "NYU", "nyu", "A-1", "A-2") == [["A-1", "A-2"], ["NYU", "nyu"], ["UM_1", "UM_2"]]
    assert found("UM", "UM_2", "NYU") == [["UM", "UM_2"]]
    assert found("UM_1", "NYU", "SITE2", "SITE3", None) == []
    assert found("site_1", "site_2", "site_3") == []  # numbered sites
    assert found("site_1", "Site_1", "site_2") == [["Site_1", "site_1", "site_2"]]
    assert found("UM_1", "UM_2", "NYU", UM_1=["UM_1"], UM_2=["UM_2"]) == []  # settled: they are two


def test_check_shows_institutions_and_names_that_look_alike(tmp_path):
    facts, _ = readiness(Run(config_of(tmp_path, outer=4)))
    assert any("UM_1 and UM_2 look like samples of one institution" in text for key, text in facts if key == "note")
    facts, _ = readiness(Run(config_of(tmp_path, institutions={"UM": ["UM_1", "UM_2"]})))
    assert dict(facts)["sites"] == "3: UM 12, NYU 6, USM 6" and "look like" not in str(facts)
    _, (problem,) = readiness(Run(config_of(tmp_path, institutions={"UM": ["UM_1", "UM_3"]})))
    assert "lists site 'UM_3'" in str(problem)


def test_abide_has_seventeen_sites():
    """The real table; the repetition time is still that of the sample."""
    real = shared_data("abide1") / "Phenotypic_V1_0b_preprocessed1.csv"
    dataset = load_dataset("abide1").model_copy(update={"subjects_table": real})
    assert load_dataset("abide1_images").institutions == dataset.institutions == PAIRS
    scans = index(Config(dataset="abide1", folds={"scheme": "leave-site-out", "outer": 17}), dataset)
    assert scans["site"].nunique() == 17 and not set(scans["site"]) & {name for pair in PAIRS.values() for name in pair}
    used = scans[scans["exclude_reason"].isna()].groupby("site").agg(n=("tr", "size"), tr=("tr", "max"))
    assert used.n[["LEUVEN", "UCLA", "UM"]].tolist() == [56, 85, 120]
    assert used.tr[["UCLA", "UM"]].tolist() == [3.0, 2.0]
