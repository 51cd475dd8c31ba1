"""Folds are balanced and free of leaks, outer and inner ones, and the audit catches every manipulation."""

import warnings
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from bolt.cohort.units import label_units, permutations
from bolt.config import Dataset, Folds
from bolt.folds import splits
from bolt.folds.splits import ROLES, audit_folds, make_folds, make_inner_folds, quarters
from bolt.io.errors import BoltError, DataError, LeakError
from bolt.io.people import people
from tests.shared import shared_data


def make_scans(n=40, sites=2, scans_each=1):
    i = np.repeat(np.arange(n), scans_each)
    subject = [f"sub-{k:03d}" for k in i]
    scan = [f"{name}_run-{r % scans_each}" for r, name in enumerate(subject)]
    table = pd.DataFrame({"scan_id": scan, "subject": subject, "group": subject})
    return table.assign(site=[f"site-{k % sites}" for k in i], label=np.array(["A", "B"])[i // sites % 2])


def in_families(scans, size=2):
    return scans.assign(group="family-" + (scans.subject.str[-3:].astype(int) // size).astype(str))


def test_shares_and_strata():
    scans = make_scans(200)
    folds = make_folds(scans, Folds())
    assert list(folds) == list(splits.FOLD_COLUMNS)
    assert folds.groupby(["fold", "role"]).size().unstack()[list(ROLES)].to_numpy().tolist() == [[160, 20, 20]] * 10
    cells = folds.merge(scans, on="scan_id").groupby(["role", "fold", "label", "site"]).size().unstack([2, 3])
    assert (cells.loc[["test", "validation"]] == 5).all(axis=None)


def test_validation_is_a_share_of_all_subjects():
    scans = make_scans(200)
    for outer, validation, expected in ((5, 0.1, 20), (5, 0.2, 40), (10, 0.3, 60), (2, 0.1, 20)):
        folds = make_folds(scans, Folds(outer=outer, validation=validation))
        sizes = folds[folds.role == "validation"].groupby("fold").size()
        assert len(sizes) == outer
        assert (abs(sizes - expected) <= 2).all(), (outer, validation, sizes.tolist())


@pytest.mark.parametrize(("share", "n"), [(0.1, 6), (0.25, 15), (0.5, 30), (0.9, 30)])
def test_a_share_of_the_groups_is_held_out(share, n):
    """Half of them at most."""
    assert len(splits.hold_out(make_scans(60), share, 0)) == n


def test_seed_decides():
    one, other = (make_folds(make_scans(60), Folds(seed=seed)) for seed in (1, 2))
    assert not one.equals(other)


def test_families_stay_together_and_repeated_scans_weigh_once():
    scans = in_families(make_scans(60, scans_each=3), 4)
    folds = make_folds(scans, Folds(outer=5))
    assert (folds.groupby(["fold", "group"]).role.nunique() == 1).all()
    first_scans = scans[scans.scan_id.str.endswith("run-0")]
    alone = make_folds(first_scans, Folds(outer=5))
    pd.testing.assert_frame_equal(folds[folds.scan_id.str.endswith("run-0")].reset_index(drop=True), alone)


def test_excluded_scans_are_left_out():
    scans = make_scans(40).assign(exclude_reason=None)
    scans.loc[3, "exclude_reason"] = "cut off"
    assert scans.scan_id[3] not in set(make_folds(scans, Folds(outer=4)).scan_id)


def test_few_subjects_still_have_both_classes_to_validate_on():
    scans = make_scans(24)
    for seed in range(5):
        folds = make_folds(scans, Folds(outer=4, seed=seed)).merge(scans[["scan_id", "label"]], on="scan_id")
        assert (folds[folds.role == "validation"].groupby("fold").label.nunique() == 2).all()


def test_the_real_abide_cohort():
    table = pd.read_csv(shared_data("abide1") / "Phenotypic_V1_0b_preprocessed1.csv")
    table = table[(table.FILE_ID != "no_filename") & (table.qc_rater_1 == "OK")]
    scans = pd.DataFrame({"scan_id": table.FILE_ID, "subject": table.SUB_ID.astype(str), "group": None})
    scans = scans.assign(site=table.SITE_ID, label=table.DX_GROUP.astype(str))
    folds = make_folds(scans, Folds(outer=5)).merge(scans[["scan_id", "site", "label"]], on="scan_id")
    test = folds[folds.role == "test"]
    assert np.ptp(test.groupby("fold").size()) <= 6
    assert (test.groupby(["fold", "label"]).size().unstack().apply(np.ptp) <= 6).all()
    assert (test.groupby(["fold", "site"]).size().unstack(fill_value=0).apply(np.ptp) <= 3).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.assign(label="A"), "only one class: A"),
        (lambda s: s.assign(label=["A"] * 3 + ["B"] * 37), "class 'A' has 3 subjects or families, fewer than the 5"),
        (lambda s: s.assign(label=[None, *s.label[1:]]), "1 scans have no label"),
        (lambda s: s.assign(subject=[s.subject[1], *s.subject[1:]]), "subject 'sub-001' is in 2 groups"),
        (lambda s: pd.concat([s, s[:1]]), "duplicate scan_id in the scan table: sub-000_run-0"),
        (lambda s: s.assign(group="all"), "class 'A' has 1 subjects or families"),
    ],
)
def test_what_cannot_be_split_is_refused(change, message):
    with pytest.raises(DataError, match=message) as caught:
        make_folds(change(make_scans(40)), Folds(outer=5))
    assert caught.value.hint


def test_too_few_for_two_folds_is_an_error_not_a_crash():
    with pytest.raises(DataError, match="too few subjects for a validation part"):
        make_folds(make_scans(4, sites=1), Folds(outer=2))


# ---- the audit ---------------------------------------------------------------------------------


def test_audit_finds_every_kind_of_leak():
    scans = in_families(make_scans(40, scans_each=2))
    good = make_folds(scans, Folds(outer=4))
    audit_folds(good.sample(frac=1, random_state=0)[["scan_id", "fold", "role"]], scans)
    first = good.fold == 0
    test_row, train_row = (good.index[first & (good.role == role)][0] for role in ("test", "train"))
    scan, subject, group = good.loc[train_row, ["scan_id", "subject", "group"]]

    def moved(rows, role):
        return good.assign(role=good.role.where(~rows, role))

    of_test = first & (good.group == good.loc[test_row, "group"])
    leaks = {
        f"scan_id '{scan}' is in test and train of": pd.concat([good, good.loc[[train_row]].assign(role="test")]),
        f"subject '{subject}' is in train and validation of": moved(good.index == train_row, "validation"),
        f"group '{group}' is in test and train of fold 0": moved(first & (good.subject == subject), "test"),
        "is tested 2 times, not once": moved(first & (good.group == group), "test"),
        "is tested 0 times, not once": moved(of_test, "train"),
    }
    for message, folds in leaks.items():
        with pytest.raises(LeakError, match=message):
            audit_folds(folds, scans)


def test_families_may_be_numbered_like_people_but_people_must_not_share_a_number():
    """Families 11 to 20 of two people each; people 021 to 040 have none."""
    scans = make_scans(40)
    numbers = scans.subject.str[-3:].astype(int)
    make_folds(scans.assign(group=scans.group.where(numbers > 20, (11 + numbers // 2).astype(str))), Folds(outer=4))
    names = (numbers // 2).astype(str).where(numbers % 2 == 0, scans.subject.str[-3:])
    with pytest.raises(LeakError, match="subject '.*' and '.*' is in") as caught:
        make_folds(scans.assign(subject=names, group=names), Folds(outer=4))
    assert "Rename" in caught.value.hint


def test_a_family_and_a_person_without_family_of_the_same_name_are_two_groups():
    """Families 21 to 30 of two people each, people 21 to 30 without one."""
    scans = pd.DataFrame({"subject": [str(i + 1) for i in range(30)], "label": ["A", "A", "B"] * 10})
    scans = scans.assign(scan_id="s" + scans["subject"], group=[str(i // 2 + 21) for i in range(20)] + [None] * 10)
    groups = people(scans)
    assert groups.nunique() == 20 and groups.tolist()[::29] == ["family 21", "30"]
    assert people(scans.assign(group=groups)).equals(groups)  # also once they are filled in
    assert make_folds(scans, Folds(outer=4))["group"].nunique() == 20


def test_audit_refuses_what_cannot_be_learned_from():
    scans = make_scans(40)
    good = make_folds(scans, Folds(outer=4))
    a_trained = (good.scan_id.map(scans.set_index("scan_id").label) == "A") & (good.role == "train")
    for role, message in (
        (good.role.replace("validation", "train"), "fold 0 has no validation scans"),
        (good.role.where(~a_trained, "validation"), "fold 0 has no training scan of class A"),
    ):
        with pytest.raises(DataError, match=message):
            audit_folds(good.assign(role=role), scans)


@st.composite
def cohorts(draw):
    """Draw families and subjects with any number of scans, labels per subject or per scan, and sites per subject."""
    classes = draw(st.sampled_from(["AB", "ABC"]))
    by_scan = draw(st.booleans())
    rows = []
    for f in range(draw(st.integers(4, 30))):
        for s in range(draw(st.integers(1, 4))):
            subject, site, label = f"s{f}.{s}", draw(st.sampled_from("xyz")), draw(st.sampled_from(classes))
            for r in range(draw(st.integers(1, 3))):
                label = draw(st.sampled_from(classes)) if by_scan else label
                rows.append((f"{subject}.{r}", subject, f"f{f}", site, label))
    return pd.DataFrame(rows, columns=["scan_id", "subject", "group", "site", "label"])


@given(cohorts(), st.integers(2, 6), st.floats(0.05, 0.45), st.integers(0, 1000))
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_cohort_makes_it_leak(scans, outer, validation, seed):
    """Folds are correct, checked here independently of the audit, or a BoltError reports why they cannot be made."""
    asked = Folds(outer=outer, validation=validation, seed=seed)
    try:
        folds = make_folds(scans, asked)
    except LeakError:
        raise
    except BoltError as error:
        assert error.hint
        return
    assert sorted(zip(folds.scan_id, folds.fold, strict=True)) == sorted(product(scans.scan_id, range(outer)))
    group_of = scans.set_index("scan_id").group
    tested = []
    for _, part in folds.groupby("fold"):
        sides = {role: set(group_of[part.scan_id[part.role == role]]) for role in ROLES}
        assert all(sides.values())
        assert not any(sides[one] & sides[other] for one, other in combinations(ROLES, 2))
        tested += part.scan_id[part.role == "test"].tolist()
        trained = part.scan_id[part.role == "train"]
        assert set(scans.label[scans.scan_id.isin(trained)]) == set(scans.label)
    assert sorted(tested) == sorted(scans.scan_id)
    pd.testing.assert_frame_equal(folds, make_folds(scans.sample(frac=1, random_state=seed), asked))


def test_numbers_are_stratified_by_quarter():
    values = np.random.default_rng(0).normal(30, 5, 80).round(2)
    labels = pd.Series(values.astype(str), index=range(5, 85))
    names = quarters(labels)
    assert names.value_counts().tolist() == [20] * 4 and (names.index == labels.index).all()
    low, high = np.array([name.split(" to ") for name in names], float).T
    assert ((low <= values) & (values <= high)).all()
    scans = make_scans(80, sites=1).assign(label=names.to_numpy(), value=values)
    folds = make_folds(scans, Folds(outer=5))
    tested = folds[folds.role == "test"].merge(scans, on="scan_id")
    assert (tested.groupby(["fold", "label"]).size() == 4).all()


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        (np.repeat([20.0, 70.0], [60, 20]) + np.arange(80) / 9, Folds(scheme="leave-site-out", outer=4)),
        (np.repeat([0.0, 3.0, 9.0], [75, 3, 2]), Folds(outer=10)),
    ],
)
def test_a_quarter_of_numbers_may_be_rare_or_at_one_site(values, asked):
    """Which for classes would be refused."""
    scans = make_scans(80).assign(site=np.repeat(list("abcd"), 20), label=values)
    numbers = splits.strata(scans, Dataset(name="x", source="series", path="x", label="age"))
    assert set(make_folds(numbers, asked)["fold"]) == set(range(asked.outer))
    with pytest.raises(DataError, match="fewer than the 10 folds|no training scan of class"):
        make_folds(numbers.astype({"label": str}), asked)


def test_a_label_at_a_quantile_belongs_to_the_lower_quarter():
    assert quarters(pd.Series(["1", "2", "1", "2"])).tolist() == ["1 to 1", "2 to 2"] * 2
    assert quarters(pd.Series(["5", "5"])).nunique() == 1
    names = quarters(pd.Series(["0", "1", "2", "3", "4"]))  # quantiles: 1, 2, 3
    assert names.tolist() == ["0 to 1", "0 to 1", "2 to 2", "3 to 3", "4 to 4"]


@settings(deadline=None)  # the first example pays for imports
@given(st.integers(6, 60), st.integers(2, 8), st.integers(3, 60), st.integers(2, 6), st.integers(0, 999))
def test_groups_are_divided_as_scikit_learn_does(n, n_strata, n_groups, n_parts, seed):
    random = np.random.default_rng(seed)
    strata = random.integers(0, n_strata, n).astype(str)
    groups = random.integers(0, n_groups, n).astype(str)
    splitter = StratifiedGroupKFold(n_parts, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = [set(groups[held_out]) for _, held_out in splitter.split(strata, strata, groups)]
        except ValueError:  # too few of everything
            return
    names, part = splits.stratified_groups(strata, groups, n_parts, seed)
    assert [set(names[part == i]) for i in range(n_parts)] == expected


# ---- sites left out, and the unit that never straddles a split --------------------------------------
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


# ---- inner folds -----------------------------------------------------------------------------------
SETTINGS = Folds(outer=4)
FAMILIES = in_families(make_scans(40, scans_each=2))
"""40 subjects in 20 families, each family with one label, two scans per subject."""


@pytest.fixture
def folds():
    return make_folds(FAMILIES, SETTINGS)


def test_every_scan_of_the_training_side_is_tested_once_and_no_family_straddles(folds):
    for fold in range(4):
        outer = folds[folds["fold"] == fold]
        inner = make_inner_folds(folds, FAMILIES, fold, SETTINGS, 3)
        side = outer.loc[outer["role"] != "test", "scan_id"]
        tested = inner.loc[inner["role"] == "test", "scan_id"]
        assert sorted(tested) == sorted(side)
        assert not set(inner["group"]) & set(outer.loc[outer["role"] == "test", "group"])
        assert inner.groupby(["fold", "group"])["role"].nunique().max() == 1
        labels = inner.merge(FAMILIES[["scan_id", "label"]], on="scan_id")
        counts = labels[labels["role"] == "test"].groupby(["fold", "label"]).size().unstack()
        assert (counts["A"] / counts.sum(axis=1)).between(0.3, 0.7).all()  # stratified


def test_the_split_depends_on_the_fold(folds):
    one, other = (make_inner_folds(folds, FAMILIES, fold, SETTINGS, 3) for fold in (0, 1))
    both = one.merge(other, on=["scan_id", "fold"])
    assert (both["role_x"] != both["role_y"]).any()


def test_what_cannot_be_split_again_is_refused(folds):
    with pytest.raises(DataError, match="fewer than the 9 folds"):
        make_inner_folds(folds, FAMILIES, 0, SETTINGS, 9)
    with pytest.raises(DataError, match="no fold 7"):
        make_inner_folds(folds, FAMILIES, 7, SETTINGS, 3)
    test = folds[(folds["fold"] == 0) & (folds["role"] == "test")].index[0]
    folds.loc[test, "role"] = "train"  # a scan of a subject in the test part
    with pytest.raises(LeakError, match="training side and the test part of fold 0"):
        make_inner_folds(folds, FAMILIES, 0, SETTINGS, 3)


def test_people_without_a_family_are_split_again():
    alone = FAMILIES.assign(group=FAMILIES["group"].astype(object).where(FAMILIES["subject"] > "sub-020", None))
    inner = make_inner_folds(make_folds(alone, SETTINGS), alone, 0, SETTINGS, 3)
    assert inner.groupby(["fold", "group"])["role"].nunique().max() == 1


def test_leaving_sites_out_and_subjects_as_units():
    by_subject = FAMILIES.assign(site=[f"site-{int(s[4:]) % 3}" for s in FAMILIES["subject"]])
    settings = Folds(scheme="leave-site-out", group="subject", outer=3)
    folds = make_folds(by_subject, settings)
    inner = make_inner_folds(folds, by_subject, 0, settings, 2)
    assert (inner["group"] == inner["subject"]).all()
    assert inner.groupby(["fold", "subject"])["role"].nunique().max() == 1


# ---- labels are permuted between people ------------------------------------------------------------------------------


def scans_of(width: int) -> pd.DataFrame:
    """Two scans per person, two people per family; the label changes every `width` scans."""
    i = np.arange(48)
    table = pd.DataFrame({"scan_id": [f"s{k:02d}" for k in i], "subject": [f"p{k // 2:02d}" for k in i]})
    return table.assign(group=[f"f{k // 4:02d}" for k in i], label=np.where(i // width % 2, "patient", "control"))


@pytest.mark.parametrize(("unit", "width"), [("group", 4), ("subject", 2)])
def test_units_are_the_largest_with_one_label_each(unit: str, width: int) -> None:
    scans = scans_of(width)
    assert label_units(scans).equals(scans[unit])
    assert people(scans.assign(group=None)).equals(scans["subject"])
    drawn = permutations(scans, 30, np.random.default_rng(0))
    by_unit = drawn.reshape(30, -1, width)
    assert (by_unit == by_unit[..., :1]).all()  # one label per unit
    assert ((drawn == "patient").sum(axis=1) == 24).all() and len(np.unique(drawn.astype(str), axis=0)) > 20
    assert permutations(scans, 0, np.random.default_rng(0)).shape == (0, 48)


def test_labels_that_differ_within_people_stay_together() -> None:
    """Of five people, of whom the last two have three scans; ages are all different."""
    person = np.repeat([0, 1, 2, 3, 4], [2, 2, 2, 3, 3])
    scans = pd.DataFrame({"scan_id": [f"s{i:02d}" for i in range(12)], "subject": [f"p{i}" for i in person]})
    scans = scans.assign(group=None, label=np.arange(12.0))
    drawn = permutations(scans, 60, np.random.default_rng(0)).astype(int)
    for who, part in scans.groupby("subject"):
        came_from = person[drawn[:, part.index]]
        assert (came_from == came_from[:, :1]).all() and len(set(came_from[:, 0])) == (3 if who < "p3" else 2)
    assert len(np.unique(drawn, axis=0)) > 50 and (np.sort(drawn) == np.arange(12)).all()
    some = scans.assign(label=["a", "a", "b", "b", "a", "b", *"aaabbb"])  # the third person alone has both
    units = label_units(some.assign(group=["f"] * 2 + ["g"] * 10)).tolist()
    assert units == ["family f"] * 2 + some["subject"].tolist()[2:]
    drawn = permutations(some, 60, np.random.default_rng(0))
    assert {tuple(sorted(row)) for row in drawn[:, 4:6]} == {("a", "b")}
    assert {len(set(row)) for who in (0, 1, 3, 4) for row in drawn[:, person == who]} == {1}
    assert {tuple(row) for row in drawn[:, [0, 2, 6, 9]]} > {("b", "b", "a", "a"), ("a", "a", "b", "b")}
