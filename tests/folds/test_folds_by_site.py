"""Leave-site-out folds, and the choice of the unit that never straddles a split."""

import pandas as pd
import pytest

from bolt.config import Folds
from bolt.folds.splits import audit_folds, make_folds
from bolt.io.errors import DataError, LeakError
from tests.folds.test_splits import in_families, make_scans


def by_site(n_sites, **settings):
    return Folds(scheme="leave-site-out", outer=n_sites, **settings)


def sites_of(folds, scans, role):
    """Return the sites of a role in each fold."""
    joined = folds.merge(scans[["scan_id", "site"]], on="scan_id")
    return joined[joined["role"] == role].groupby("fold")["site"].agg(set)


def test_each_fold_tests_one_site_and_validates_on_another():
    scans = make_scans(60, sites=5, scans_each=2)
    folds = make_folds(scans, by_site(5))
    tested, validated = (sites_of(folds, scans, role) for role in ("test", "validation"))
    assert tested.tolist() == [{f"site-{i}"} for i in range(5)]
    assert all(len(sites) == 1 for sites in validated)
    assert set.union(*validated) == {f"site-{i}" for i in range(5)}  # each site validates once
    for fold, trained in sites_of(folds, scans, "train").items():
        assert len(trained) == 3 and not trained & (tested[fold] | validated[fold])


def test_the_seed_turns_the_ring_and_row_order_does_not():
    scans = make_scans(60, sites=6)
    first = make_folds(scans, by_site(6, seed=1))
    pd.testing.assert_frame_equal(first, make_folds(scans.sample(frac=1, random_state=0), by_site(6, seed=1)))
    other = make_folds(scans, by_site(6, seed=2))
    assert sites_of(first, scans, "test").equals(sites_of(other, scans, "test"))
    assert not sites_of(first, scans, "validation").equals(sites_of(other, scans, "validation"))


def test_a_site_with_one_class_is_tested_but_does_not_validate():
    scans = make_scans(60, sites=5)
    scans.loc[scans["site"] == "site-3", "label"] = "A"
    for seed in range(5):
        folds = make_folds(scans, by_site(5, seed=seed))
        assert {"site-3"} in sites_of(folds, scans, "test").tolist()
        assert {"site-3"} not in sites_of(folds, scans, "validation").tolist()


def test_training_keeps_every_class():
    """Class C is at three sites only: at least one of those not tested must stay in training."""
    scans = make_scans(60, sites=5)
    for site in ("site-0", "site-1", "site-2"):
        scans.loc[scans.index[scans["site"] == site][:2], "label"] = "C"
    for seed in range(8):
        folds = make_folds(scans, by_site(5, seed=seed)).merge(scans[["scan_id", "label"]], on="scan_id")
        assert (folds[folds["role"] == "train"].groupby("fold")["label"].nunique() == 3).all()


@pytest.mark.parametrize(
    ("columns", "n_folds", "message", "hint"),
    [
        ({}, 10, "there are 4 sites, but 10 folds", "'folds: outer' to 4"),
        ({"site": None}, 4, "40 scans have no site", "'site' in the dataset's file"),
        ({"site": ["a", "b"] * 20}, 2, "three sites", "kfold"),
        ({"group": ["one"] * 2 + [f"g{i}" for i in range(38)]}, 4, "scanned at 2 sites", "Exclude"),
    ],
)
def test_what_cannot_be_left_out_is_refused(columns, n_folds, message, hint):
    with pytest.raises(DataError, match=message) as caught:
        make_folds(make_scans(40, sites=4).assign(**columns), by_site(n_folds))
    assert hint in caught.value.hint


def test_the_audit_watches_the_sites_too():
    scans = make_scans(40, sites=4)
    folds = make_folds(scans, by_site(4))
    audit_folds(folds, scans, by_site=True)
    row = folds.index[(folds["fold"] == 1) & (folds["role"] == "train")][0]
    folds.loc[row, "role"] = "validation"
    audit_folds(folds, scans)
    with pytest.raises(LeakError, match="site 'site-[0-9]' is in train and validation of fold 1"):
        audit_folds(folds, scans, by_site=True)


def test_the_papers_split_by_subject_alone():
    scans = make_scans(60, scans_each=2)
    families = in_families(scans)
    alone = make_folds(families, Folds(outer=5, group="subject"))
    pd.testing.assert_frame_equal(alone, make_folds(scans, Folds(outer=5)))
    assert (alone.groupby(["fold", "subject"])["role"].nunique() == 1).all()
    split = alone.merge(families[["scan_id", "group"]], on="scan_id").groupby(["fold", "group_y"])["role"].nunique()
    assert (split > 1).any()  # the paper's split separates families
    with pytest.raises(LeakError, match="group 'family-"):
        audit_folds(alone, families)
