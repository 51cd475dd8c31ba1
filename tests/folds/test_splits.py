"""Folds are balanced and free of leaks, and the audit catches every manipulation."""

import warnings
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from bolt.config import Folds
from bolt.folds.splits import FOLD_COLUMNS, ROLES, audit_folds, hold_out, make_folds, quarters, stratified_groups
from bolt.io.errors import BoltError, DataError, LeakError
from tests.shared import shared_data


def make_scans(n=40, sites=2, scans_each=1):
    rows = [
        {
            "scan_id": f"sub-{i:03d}_run-{r}",
            "subject": f"sub-{i:03d}",
            "group": f"sub-{i:03d}",
            "site": f"site-{i % sites}",
            "label": "AB"[i // sites % 2],
        }
        for i in range(n)
        for r in range(scans_each)
    ]
    return pd.DataFrame(rows)


def abide_scans():
    table = pd.read_csv(shared_data("abide1") / "Phenotypic_V1_0b_preprocessed1.csv")
    table = table[(table.FILE_ID != "no_filename") & (table.qc_rater_1 == "OK")]
    scans = pd.DataFrame({"scan_id": table.FILE_ID, "subject": table.SUB_ID.astype(str), "group": None})
    return scans.assign(site=table.SITE_ID, label=table.DX_GROUP.astype(str))


def in_families(scans, size=2):
    return scans.assign(group="family-" + (scans.subject.str[-3:].astype(int) // size).astype(str))


def test_shares_and_strata():
    scans = make_scans(200)
    folds = make_folds(scans, Folds())
    assert list(folds) == list(FOLD_COLUMNS)
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
    assert len(hold_out(make_scans(60), share, 0)) == n


def test_seed_decides_and_row_order_does_not():
    scans = make_scans(60, scans_each=2)
    first = make_folds(scans, Folds(seed=1))
    shuffled = scans.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(first, make_folds(shuffled, Folds(seed=1)))
    assert not first.equals(make_folds(scans, Folds(seed=2)))


def test_families_stay_together_and_repeated_scans_weigh_once():
    scans = in_families(make_scans(60, scans_each=3), 4)
    folds = make_folds(scans, Folds(outer=5))
    assert (folds.groupby(["fold", "group"]).role.nunique() == 1).all()
    first_scans = scans[scans.scan_id.str.endswith("run-0")]
    alone = make_folds(first_scans, Folds(outer=5))
    pd.testing.assert_frame_equal(folds[folds.scan_id.str.endswith("run-0")].reset_index(drop=True), alone)


def test_a_subject_with_scans_of_all_classes():
    """Task decoding: labels are per scan, splits per subject."""
    scans = pd.DataFrame({"subject": [f"{i:02d}" for i in range(30) for _ in "abc"], "label": list("abc") * 30})
    scans = scans.assign(scan_id=scans.subject + scans.label, group=None, site=None)
    folds = make_folds(scans, Folds(outer=5))
    assert (folds.groupby(["fold", "subject"]).role.nunique() == 1).all()
    assert (folds[folds.role == "test"].groupby("fold").size() == 18).all()


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
    scans = abide_scans()
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
    audit_folds(good, scans)
    audit_folds(good.sample(frac=1, random_state=0)[["scan_id", "fold", "role"]], scans)
    test_row = good.index[(good.fold == 0) & (good.role == "test")][0]
    train_row = good.index[(good.fold == 0) & (good.role == "train")][0]
    scan, subject, group = good.loc[train_row, ["scan_id", "subject", "group"]]

    def moved(rows, role):
        return good.assign(role=good.role.where(~rows, role))

    first = good.fold == 0
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


def test_audit_believes_the_scan_table_not_the_folds_own_columns():
    scans = make_scans(40)
    with pytest.raises(LeakError, match="group 'family-"):
        audit_folds(make_folds(scans, Folds(outer=4)), in_families(scans))


def test_audit_refuses_what_cannot_be_learned_from():
    scans = make_scans(40)
    good = make_folds(scans, Folds(outer=4))
    a = good.scan_id.map(scans.set_index("scan_id").label) == "A"
    spoiled = {
        "unknown roles: dev": good.assign(role=["dev", *good.role[1:]]),
        "not in the scan table: nobody": good.assign(scan_id=["nobody", *good.scan_id[1:]]),
        "has 39 rows for 40 scans": good.drop(index=good.index[good.role == "train"][0]),
        "fold 0 has no validation scans": good.assign(role=good.role.replace("validation", "train")),
        "fold 0 has no training scan of class A": good.assign(
            role=good.role.where(~(a & (good.role == "train")), "validation")
        ),
    }
    for message, folds in spoiled.items():
        with pytest.raises(DataError, match=message):
            audit_folds(folds, scans)


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
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
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


def test_most_random_cohorts_can_be_split():
    """The property above would also hold for a function that refuses everything."""
    made = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        scans = make_scans(60).assign(label=rng.choice(["A", "B", "C"], 60), site=rng.choice(list("xyz"), 60))
        made += len(make_folds(scans, Folds(outer=5, seed=seed))) == 300
    assert made == 8


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
    names, part = stratified_groups(strata, groups, n_parts, seed)
    assert [set(names[part == i]) for i in range(n_parts)] == expected
