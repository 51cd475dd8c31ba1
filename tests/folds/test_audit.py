"""Every planted leak is found and named, and no clean table is refused."""

import gzip
import os
import shutil
from itertools import combinations
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolt.cli.main import main
from bolt.config import Dataset, Folds
from bolt.config.study import Study
from bolt.folds.audit import find_copies, find_leaks, handle_copies, join_copies
from bolt.folds.check import file_contents, series_contents
from bolt.folds.splits import make_folds, make_inner_folds, strata
from bolt.io.errors import LeakError
from bolt.io.files import read_table
from bolt.series.cache import SeriesCache
from bolt.training.outputs import fold_table
from tests.caches import pack
from tests.folds.test_splits import make_scans
from tests.snake import series_dataset
from tests.stages import stage

ROLES = ("train", "validation", "test")
KINDS = ("scan_id", "subject", "group", "series")


@st.composite
def clean_tables(draw):
    """Draw subjects, partly in families, with copies of recordings within families; folds keep families together."""
    rows = []
    for family in range(draw(st.integers(3, 8))):
        known = draw(st.booleans())  # an unknown family has a single member
        for member in range(draw(st.integers(1, 3)) if known else 1):
            subject = f"s{family}.{member}"
            for scan in range(draw(st.integers(1, 3))):
                copied = known and draw(st.integers(0, 4)) == 0
                content = f"copy {family}" if copied else f"{subject}.{scan}"
                rows.append((f"{subject}.{scan}", subject, f"f{family}" if known else None, content, family))
    scans = pd.DataFrame(rows, columns=["scan_id", "subject", "group", "series", "unit"])
    n_units = int(scans["unit"].max()) + 1
    parts = []
    for fold in range(draw(st.integers(1, 3))):
        role = draw(st.lists(st.sampled_from(ROLES), min_size=n_units, max_size=n_units))
        role[:2] = ["train", "test"]
        parts.append(scans[["scan_id"]].assign(fold=fold, role=[role[unit] for unit in scans["unit"]]))
    folds = pd.concat(parts, ignore_index=True)
    return scans, folds.iloc[draw(st.permutations(range(len(folds))))].reset_index(drop=True)


def audit(scans, folds):
    leaks = find_leaks(folds, scans, KINDS[:3], {"series": scans.set_index("scan_id")["series"]})
    return {leak.kind: leak for leak in leaks}


@given(clean_tables(), st.data())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_audit_agrees_with_a_look_at_every_pair(table, data):
    """The audit finds exactly the leaks that a comparison of all pairs of scans finds: none in a clean table."""
    scans, folds = table
    for _ in range(data.draw(st.integers(0, 3))):
        column = data.draw(st.sampled_from(["scan_id", "subject", "group", "series", "role"]))
        spoiled = folds if column in ("scan_id", "role") else scans
        row, other = (data.draw(st.integers(0, len(spoiled) - 1)) for _ in range(2))
        spoiled.loc[row, column] = spoiled.loc[other, column]
    about, expected = scans.set_index("scan_id").to_dict("index"), {}
    for _, part in folds.groupby("fold"):
        for one, two in combinations(part.itertuples(), 2):
            first, second = ({"scan_id": row.scan_id, **about[row.scan_id]} for row in (one, two))
            for kind in KINDS if one.role != two.role else ():
                itself = kind == "series" and one.scan_id == two.scan_id  # reported as scan_id
                if first[kind] == second[kind] and not pd.isna(first[kind]) and not itself:
                    expected.setdefault(kind, set()).update({one.role, two.role})
    found = audit(scans, folds)
    assert found.keys() == expected.keys()
    assert all(len(leak.roles) > 1 and set(leak.roles) <= expected[kind] for kind, leak in found.items())


# ---- copies of a recording -------------------------------------------------------------------


def cache_of(scans, folder, series):
    return SeriesCache(pack(folder, list(series.values()), scans.assign(kind="series", n_volumes=12)))


def some_series(scans, seed=0):
    random = np.random.default_rng(seed)
    return {scan: random.standard_normal((12, 3)).astype(np.float32) for scan in scans["scan_id"]}


def test_dead_scans_are_no_copies_of_one_another(tmp_path):
    scans = make_scans(20)
    series = some_series(scans) | {scan: np.zeros((12, 3), np.float32) for scan in scans["scan_id"][:2]}
    hashes = series_contents(cache_of(scans, tmp_path, series))
    assert len(hashes) == 18 and hashes.is_unique


def test_an_image_compressed_anew_is_the_same_recording(tmp_path):
    data = np.random.default_rng(0).integers(0, 1000, (5, 6, 7, 8)).astype(np.int16)
    changed = data.copy()
    changed[0, 0, 0, 0] += 1
    for name, voxels, size in (("a", data, 1.0), ("d", data, 2.0), ("e", changed, 1.0)):
        nib.save(nib.Nifti1Image(voxels, np.diag([size] * 3 + [1])), tmp_path / f"{name}.nii.gz")
    packed = (tmp_path / "a.nii.gz").read_bytes()
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(gzip.decompress(packed), 1))
    (tmp_path / "c.nii").write_bytes(gzip.decompress(packed))
    (tmp_path / "f.nii.gz").write_bytes(packed[:-20])
    (tmp_path / "g.txt").write_text("neither an image nor a series")
    files = {path.name[0]: str(path) for path in tmp_path.iterdir()}
    assert len({Path(file).read_bytes() for file in files.values()}) == 7
    files["h"] = str(tmp_path / "missing.nii")
    hashes = file_contents(pd.DataFrame({"scan_id": files.keys(), "bold": files.values()}))
    assert hashes["a"] == hashes["b"] == hashes["c"] == hashes["d"] and hashes.nunique() == 4 and "h" not in hashes


# ---- the command -----------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    scans = make_scans(24, scans_each=2)
    folds = make_folds(scans, Folds(outer=4))
    scans.to_csv(tmp_path / "scans.tsv", sep="\t", index=False)
    folds.to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    return tmp_path, scans, folds


def check(*arguments):
    return main(["check-folds", *map(str, arguments)])


def test_the_command_passes_clean_folds(tables, caplog):
    folder, _, _ = tables
    with caplog.at_level("INFO"):
        assert check(folder / "folds.tsv") == 0
        assert check(folder / "folds.tsv", "--scans", folder / "scans.tsv") == 0
    assert "no leak in 4 folds of 48 scans; compared: scan_id, subject, group" in caplog.text


def test_the_command_names_every_kind_of_leak(tables, capsys):
    folder, _, folds = tables
    row = folds.index[(folds.fold == 2) & (folds.role == "train")][0]
    folds.loc[row, "role"] = "test"
    folds.drop(columns="group").to_csv(folder / "folds.csv", index=False)
    assert check(folder / "folds.csv") == 2
    subject = folds.subject[row]
    assert f"subject '{subject}' is in test and train of fold 2 (1 such cases)" in capsys.readouterr().err
    assert check(folder / "folds.csv", "--scans", folder / "scans.tsv") == 2
    line = capsys.readouterr().err
    assert f"subject '{subject}'" in line and f"group '{subject}'" in line and line.count("\n") == 1


def test_the_command_compares_the_series_of_a_cache(tables, capsys):
    folder, scans, folds = tables
    series = some_series(scans)
    cache_of(scans, folder, series)
    arguments = (folder / "folds.tsv", "--scans", folder / "scans.tsv", "--cache", folder / "cache")
    assert check(*arguments) == 0
    one, two = (folds.scan_id[(folds.fold == 0) & (folds.role == role)].iloc[0] for role in ("train", "test"))
    series[one] = series[two]
    cache_of(scans, folder, series)
    assert check(*arguments) == 2
    assert "series in" in (line := capsys.readouterr().err) and one in line and two in line


def audited(folder, capsys, *options, scans=None, **columns):
    """Return status and message of the command for a table of these columns, and one of scans."""
    pd.DataFrame(columns).to_csv(folder / "split.csv", index=False)
    if scans:
        pd.DataFrame(scans).to_csv(folder / "scans.csv", index=False, na_rep="n/a")
        options = (*options, "--scans", folder / "scans.csv")
    return check(folder / "split.csv", *options), capsys.readouterr().err


TWO = {"scan_id": ["a", "b"], "subject": ["p", "q"], "role": ["train", "test"]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({name: [] for name in TWO}, "the table has no rows"),
        (TWO | {"role": ["train", "tset"]}, "unknown role 'tset'"),
        (TWO | {"role": ["train", "val"]}, "fold 0 has no test scans"),
        (TWO | {"subject": ["sub-p1", "p1"]}, "subject 'p1' and 'sub-p1' is in test and train"),
        (TWO | {"subject": ["1", "1.0"]}, "subject '1' and '1.0' is in test and train"),
        (TWO | {"subject": ["01", "1"]}, "subject '01' and '1' is in test and train"),
        (TWO | {"subject": ["sub_01", "sub1"]}, "subject 'sub1' and 'sub_01' is in test and train"),
        (TWO | {"subject": ["p1\u200b", "p1"]}, "is in test and train"),
        (TWO | {"subject": ["\uff11", "1"]}, "is in test and train"),
        (TWO | {"subject": ["e\u0301", "\u00e9"]}, "is in test and train"),
        (TWO | {"role": ["", "test"]}, "unknown role ''"),
        (TWO | {"role": ["test", "test"]}, "fold 0 has no train scans"),
        (TWO | {"subject": ["1", "1"], "role": ["dev", "holdout"]}, "subject '1' is in test and train of fold 0"),
        (TWO | {"group": ["F ", "F"]}, "group 'F'"),
        ({"scan_id": ["a"], "role": ["test"]}, "no column 'subject'"),
        ({"scan_id": ["a"], "subject": ["p"]}, "no column 'role'"),
        (TWO | {"scans": {"scan_id": ["a", "b", "b"], "subject": ["1", "2", "1"]}}, "two entries in 'subject'"),
        (TWO | {"scans": {"scan_id": ["a", "b", "b"], "subject": [None] * 3}}, "3 rows have no subject"),
        (TWO | {"scans": {"scan_id": ["a"], "subject": ["p"]}}, "1 scans are not listed, such as 'b'"),
    ],
)
def test_a_table_that_hides_a_leak_or_proves_nothing_is_refused(tmp_path, capsys, columns, message):
    status, said = audited(tmp_path, capsys, **columns)
    assert status == 2 and message in said


def test_dev_is_validation_beside_a_training_part(tmp_path, capsys):
    columns = {"scan_id": list("abcbc"), "subject": list("ppqpq"), "fold": list("00011")}
    status, said = audited(tmp_path, capsys, **columns, role=["Train", "dev", "test", "dev", "test"])
    assert status == 2 and "subject 'p' is in train and validation of fold 0 (1 such cases)" in said


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, str])
def test_what_is_no_table_is_one_line(tmp_path, capsys, make):
    make(tmp_path / "place")
    assert check(tmp_path / "place") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_names_that_only_look_alike_are_two_people(tmp_path, capsys):
    assert audited(tmp_path, capsys, **TWO | {"subject": ["p1", "p10"]})[0] == 0


def test_sites_are_compared_where_asked(tmp_path, capsys):
    columns = TWO | {"site": ["NYU", "NYU"]}
    assert audited(tmp_path, capsys, **columns)[0] == 0
    status, said = audited(tmp_path, capsys, "--sites", **columns)
    assert status == 2 and "site 'NYU' is in test and train" in said
    status, said = audited(tmp_path, capsys, "--sites", **columns | {"site": ["NYU", None]})
    assert status == 2 and "1 rows have no site" in said


def test_scans_that_are_never_tested_are_told(tmp_path, capsys, caplog):
    folds = {"scan_id": list("abcabc"), "subject": list("pqrpqr"), "fold": list("000111")}
    status, _ = audited(tmp_path, capsys, **folds | {"role": ["test", "train", "train"] * 2})
    assert status == 0
    assert "2 scans are tested in no fold, such as b" in caplog.text
    assert "1 scans are tested in several folds, such as a" in caplog.text


def test_a_copy_in_another_format_or_precision_is_the_same_recording(tmp_path):
    random = np.random.default_rng(0)
    series = random.standard_normal((40, 5))
    np.save(tmp_path / "a.npy", series.astype(np.float32))
    np.save(tmp_path / "b.npy", series)
    np.savetxt(tmp_path / "c.csv", 100 + 3 * series, delimiter=",", fmt="%.1f")
    np.save(tmp_path / "d.npy", series + 0.5 * random.standard_normal((40, 5)))
    files = [str(tmp_path / name) for name in ("a.npy", "b.npy", "c.csv", "d.npy")]
    scans = pd.DataFrame({"scan_id": list("abcd"), "bold": files})
    assert file_contents(scans).to_dict() == {"a": "a", "b": "a", "c": "a", "d": "d"}


# ---- scans that hold the same recording: refused, excluded or never split -------------------------------------------
def contents_of(*copies: tuple[str, ...]) -> pd.Series:
    return pd.Series({scan: same[0] for same in copies for scan in same}, dtype=object)


def test_copies_are_joined_over_sources():
    sources = {"one atlas": contents_of(("c", "a"), ("d",)), "another": contents_of(("a", "b"), ("x", "y"))}
    assert find_copies(sources, list("abcd")) == [["a", "b", "c"]]
    assert find_copies(sources, list("abcdy")) == [["a", "b", "c"]]
    assert find_copies(sources, list("ydxcba")) == [["a", "b", "c"], ["x", "y"]]
    unsorted = {"one": contents_of(("x", "y"), ("b", "a"))}
    assert find_copies(unsorted, list("abxy")) == [["a", "b"], ["x", "y"]]
    assert find_copies({}, list("ab")) == []


SCANS = pd.DataFrame({"scan_id": list("abcdef"), "subject": list("ABCDEF"), "group": [*"ABC", "f", None, "F"]})


@pytest.mark.parametrize(
    ("labels", "numbers", "excluded"),
    [
        (["1", "1", "1.0", "2", "2", "3"], True, ["c", "e"]),
        (["1", "1", "1.0", "2", "2", "3"], False, ["a", "c", "e"]),
        ([None] * 6, False, ["c", "e"]),
    ],
)
def test_one_copy_stays_or_none_if_labels_differ(labels, numbers, excluded):
    contents = {"series": contents_of(("a", "c"), ("d", "e"), ("f",))}
    table, warnings = handle_copies(SCANS.assign(label=labels), contents, "exclude", numbers)
    assert sorted(table.scan_id) == excluded and set(table.stage) == {"duplicates"}
    assert sorted(warnings.scan_id) == sorted(set("acde") - set(excluded))
    if len(excluded) == 3:
        assert table.reason.str.contains("labels differ").tolist() == [True, True, False]


def test_groups_with_a_shared_recording_become_one():
    contents = {"series": contents_of(("a", "e", "f"), ("b",))}
    joined = join_copies(SCANS, {"one": contents["series"], "two": contents_of(("a", "f"))})
    assert joined.group.tolist() == ["A + E + F", "B", "C", "f", "A + E + F", "A + E + F"]
    pd.testing.assert_frame_equal(join_copies(SCANS, {"series": contents_of(("a",), ("b",))}), SCANS)
    for labels, differ in (("xxxxxx", False), ("xyxxyx", True)):
        table, warnings = handle_copies(SCANS.assign(label=list(labels)), contents, "group")
        assert table.empty and warnings.scan_id.tolist() == ["a", "e", "f"]
        assert (warnings.warning.str.contains("but their labels differ") == differ).all()


@pytest.mark.parametrize("unit", ["family", "subject"])
def test_copies_never_straddle_an_outer_or_inner_split(unit):
    scans = make_scans(40, scans_each=2)
    pairs = [("sub-003_run-0", "sub-011_run-1"), ("sub-020_run-0", "sub-035_run-0"), ("sub-011_run-0", "sub-029_run-0")]
    contents = {"series": contents_of(*pairs)}
    settings = Folds(outer=4, group=unit, duplicates="group")
    folds = make_folds(scans, settings, contents)
    assert sorted(folds.scan_id) == sorted(list(scans.scan_id) * 4)
    tables = [folds] + [make_inner_folds(folds, scans, fold, settings, 3, contents) for fold in range(4)]
    for table in tables:
        for _, part in table.groupby("fold"):
            roles = part.set_index("scan_id").role
            assert all(roles.get(one) == roles.get(other) for one, other in pairs)
    clean = make_folds(scans, Folds(outer=4, group=unit))
    pd.testing.assert_frame_equal(clean, make_folds(scans, settings, {"series": contents_of(*zip(scans.scan_id))}))


@pytest.mark.parametrize("seed", range(8))
def test_copies_are_refused_whichever_side_they_fall_on(seed):
    scans = make_scans(12)
    first, third, second = scans.scan_id[[0, 1, 2]]  # the labels of the first two agree
    settings = Folds(outer=2, seed=seed)
    said = f"{first}, {second} hold one recording, with the people .* and the labels"
    with pytest.raises(LeakError, match=said) as caught:
        make_folds(scans, settings, {"series": contents_of((first, second))})
    assert "'folds: duplicates' to exclude" in caught.value.hint
    one_person = scans.assign(subject=scans.subject.replace(scans.subject[1], scans.subject[0]))
    one_person = one_person.assign(group=one_person.subject)
    make_folds(one_person, settings, {"series": contents_of((first, third))})


def test_a_recording_with_two_numbers_of_one_quarter_is_refused():
    scans = make_scans(40).assign(label=[f"{20 + i // 2}" for i in range(40)])
    scans["subject"] = scans["group"] = scans["subject"].replace(scans["subject"][2], scans["subject"][0])
    dataset = Dataset(name="x", source="series", path="x", label="age")
    contents = {"series": contents_of((scans["scan_id"][0], scans["scan_id"][2]))}
    with pytest.raises(LeakError, match="hold one recording, with the labels 20.0 and 21.0"):
        make_folds(strata(scans, dataset), Folds(outer=4), contents)
    scans.loc[2, "label"] = "20.0"
    make_folds(strata(scans, dataset), Folds(outer=4), contents)


@pytest.mark.parametrize(("rule", "n_excluded", "n_warned"), [("refuse", 0, 0), ("exclude", 3, 1), ("group", 0, 4)])
def test_a_run_with_copies(tmp_path, monkeypatch, capsys, caplog, rule, n_excluded, n_warned):
    """Of 12 people 0 and 2 (one class), and 4 and 5 (two classes), hold one recording each."""
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, folds={"outer": 2, "duplicates": rule})
    for copy, source in ((2, 0), (5, 4)):
        shutil.copy(*(tmp_path / f"series/sub-{i:02d}_task-rest.npy" for i in (source, copy)))
    ended = [stage(config, name, atlas="dosenbach160") for name in ("index", "rois", "cache", "exclusions", "folds")]
    assert ended == [0, 0, 0, 0, 2 if rule == "refuse" else 0]
    layout = Study.read(config).layout
    for file, n in ((layout.exclusions, n_excluded), (layout.warnings, n_warned)):
        table = read_table(file)
        assert len(table) == n and set(table.stage) <= {"duplicates"}
    if rule == "refuse":
        assert "sub-00_task-rest, sub-02_task-rest hold one recording" in capsys.readouterr().err
        return
    assert "4 scans hold 2 recordings" in caplog.text
    folds = read_table(layout.folds, text=("scan_id", "group"))
    assert folds.scan_id.nunique() == 12 - n_excluded
    roles = fold_table(SeriesCache(layout.cache("dosenbach160")), layout.folds, 0).set_index("scan_id")
    if rule == "group":
        assert roles.group["sub-00_task-rest"] == roles.group["sub-02_task-rest"] == "sub-00 + sub-02"
        assert roles.role["sub-04_task-rest"] == roles.role["sub-05_task-rest"]
    assert roles.group["sub-01_task-rest"] == "sub-01"
