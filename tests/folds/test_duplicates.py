"""Scans that hold the same recording: refused, excluded or never split."""

import shutil

import pandas as pd
import pytest

from bolt.cli import main as cli
from bolt.config import Folds
from bolt.config.study import Study
from bolt.folds.audit import find_copies, handle_copies, join_copies
from bolt.folds.splits import make_folds, make_inner_folds
from bolt.io.errors import LeakError
from bolt.io.files import read_table, read_yaml
from bolt.series.cache import SeriesCache
from bolt.training.outputs import fold_table
from bolt.workflow.run import Run
from tests.folds.test_splits import make_scans
from tests.snake import series_dataset
from tests.stages import command


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
        (["1", "1.0", "1", "2", "2", "3"], True, ["c", "e"]),
        (["1", "1.0", "1", "2", "2", "3"], False, ["c", "e"]),
        (["x", "x", "y", "z", "z", "z"], False, ["a", "c", "e"]),
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
    with pytest.raises(LeakError, match="hold one recording, with the people sub-") as caught:
        make_folds(scans, Folds(outer=4, group=unit), contents)
    assert "'folds: duplicates' to exclude" in caught.value.hint
    settings = Folds(outer=4, group=unit, duplicates="group")
    folds = make_folds(scans, settings, contents)
    assert sorted(folds.scan_id) == sorted(list(scans.scan_id) * 4)
    tables = [folds] + [make_inner_folds(folds, scans, fold, settings, 3, contents) for fold in range(4)]
    for table in tables:
        role = table.set_index(["fold", "scan_id"]).role
        for _, part in role.groupby("fold"):
            roles = part.droplevel("fold")
            assert all(roles.get(one) == roles.get(other) for one, other in pairs)
    clean = make_folds(scans, Folds(outer=4, group=unit))
    pd.testing.assert_frame_equal(clean, make_folds(scans, settings, {"series": contents_of(*zip(scans.scan_id))}))


@pytest.mark.parametrize("seed", range(8))
def test_copies_are_refused_whichever_side_they_fall_on(seed):
    scans = make_scans(12)
    first, third, second = scans.scan_id[[0, 1, 2]]  # the labels of the first two agree
    settings = Folds(outer=2, seed=seed)
    with pytest.raises(LeakError, match=f"{first}, {second} hold one recording, with the people .* and the labels"):
        make_folds(scans, settings, {"series": contents_of((first, second))})
    one_person = scans.assign(subject=scans.subject.replace(scans.subject[1], scans.subject[0]))
    one_person = one_person.assign(group=one_person.subject)
    make_folds(one_person, settings, {"series": contents_of((first, third))})


def run(rule: str, config, **wildcards: str) -> None:
    arguments = command(Run(read_yaml(config)), config, rule, **wildcards)
    cli.run(cli.make_parser().parse_args(arguments))


@pytest.mark.parametrize(("rule", "n_excluded", "n_warned"), [("refuse", 0, 0), ("exclude", 3, 1), ("group", 0, 4)])
def test_a_run_with_copies(tmp_path, monkeypatch, caplog, rule, n_excluded, n_warned):
    """Of 12 people 0 and 2 (one class), and 4 and 5 (two classes), hold one recording each."""
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, folds={"outer": 2} | ({} if rule == "refuse" else {"duplicates": rule}))
    for copy, source in ((2, 0), (5, 4)):
        shutil.copy(*(tmp_path / f"series/sub-{i:02d}_task-rest.npy" for i in (source, copy)))
    run("index", config)
    run("cache", config, atlas="dosenbach160")
    run("exclusions", config)
    layout = Study.read(config).layout
    if rule == "refuse":
        assert read_table(layout.exclusions).empty
        with pytest.raises(LeakError, match="sub-00_task-rest, sub-02_task-rest hold one recording.*folds: duplicates"):
            run("folds", config)
        return
    run("folds", config)
    assert "4 scans hold 2 recordings" in caplog.text
    excluded = read_table(layout.exclusions, text=("scan_id",))
    warned = read_table(layout.warnings, text=("scan_id",))
    for table, n in ((excluded, n_excluded), (warned, n_warned)):
        assert len(table) == n and set(table.stage) <= {"duplicates"}
    folds = read_table(layout.folds, text=("scan_id", "group"))
    assert folds.scan_id.nunique() == 12 - n_excluded
    roles = fold_table(SeriesCache(layout.cache("dosenbach160")), layout.folds, 0).set_index("scan_id")
    if rule == "group":
        assert roles.group["sub-00_task-rest"] == roles.group["sub-02_task-rest"] == "sub-00 + sub-02"
        assert roles.role["sub-04_task-rest"] == roles.role["sub-05_task-rest"]
    assert roles.group["sub-01_task-rest"] == "sub-01"
