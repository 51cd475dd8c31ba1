"""Inner folds split the training side of a fold by group, without scans of the outer test part."""

from __future__ import annotations

import pandas as pd
import pytest

from bolt.config import Folds
from bolt.folds.inner import make_inner_folds
from bolt.folds.splits import make_folds
from bolt.io.errors import DataError, LeakError
from tests.folds.test_splits import make_scans

SETTINGS = Folds(outer=4)


@pytest.fixture(scope="module")
def families() -> pd.DataFrame:
    """Return 40 subjects in 20 families, each family with one label, two scans per subject."""
    scans = make_scans(40, scans_each=2)
    return scans.assign(group=[f"family-{int(s[4:]) // 8 * 4 + int(s[4:]) % 4}" for s in scans["subject"]])


@pytest.fixture
def folds(families) -> pd.DataFrame:
    return make_folds(families, SETTINGS)


def test_every_scan_of_the_training_side_is_tested_once_and_no_family_straddles(families, folds) -> None:
    for fold in range(4):
        outer = folds[folds["fold"] == fold]
        inner = make_inner_folds(folds, families, fold, SETTINGS, 3)
        side = outer.loc[outer["role"] != "test", "scan_id"]
        tested = inner.loc[inner["role"] == "test", "scan_id"]
        assert sorted(tested) == sorted(side)
        assert not set(inner["group"]) & set(outer.loc[outer["role"] == "test", "group"])
        assert inner.groupby(["fold", "group"])["role"].nunique().max() == 1
        labels = inner.merge(families[["scan_id", "label"]], on="scan_id")
        counts = labels[labels["role"] == "test"].groupby(["fold", "label"]).size().unstack()
        assert (counts["A"] / counts.sum(axis=1)).between(0.3, 0.7).all()  # stratified


def test_the_split_depends_on_the_fold_and_on_nothing_else(families, folds) -> None:
    one, again = (make_inner_folds(folds, families.sample(frac=1, random_state=s), 0, SETTINGS, 3) for s in (0, 1))
    pd.testing.assert_frame_equal(one, again)
    other = make_inner_folds(folds, families, 1, SETTINGS, 3)
    both = one.merge(other, on=["scan_id", "fold"])
    assert (both["role_x"] != both["role_y"]).any()


def test_a_family_of_the_test_part_is_refused(families, folds) -> None:
    test = folds[(folds["fold"] == 0) & (folds["role"] == "test")].index[0]
    folds.loc[test, "role"] = "train"  # a scan of a subject in the test part
    with pytest.raises(LeakError, match="training side and the test part of fold 0"):
        make_inner_folds(folds, families, 0, SETTINGS, 3)


def test_one_recording_on_two_sides_is_refused(families, folds) -> None:
    same = {"series": pd.Series("copy", index=families["scan_id"])}
    with pytest.raises(LeakError, match="hold one recording"):
        make_inner_folds(folds, families, 0, SETTINGS, 3, same)


def test_more_parts_than_families_and_unknown_folds_are_refused(families, folds) -> None:
    with pytest.raises(DataError, match="fewer than the 9 folds"):
        make_inner_folds(folds, families, 0, SETTINGS, 9)
    with pytest.raises(DataError, match="no fold 7"):
        make_inner_folds(folds, families, 7, SETTINGS, 3)


def test_leaving_sites_out_and_subjects_as_units(families: pd.DataFrame) -> None:
    by_subject = families.assign(site=[f"site-{int(s[4:]) % 3}" for s in families["subject"]])
    settings = Folds(scheme="leave-site-out", group="subject", outer=3)
    folds = make_folds(by_subject, settings)
    inner = make_inner_folds(folds, by_subject, 0, settings, 2)
    assert (inner["group"] == inner["subject"]).all()
    assert inner.groupby(["fold", "subject"])["role"].nunique().max() == 1
