"""Small files are complete or absent, and tables have descriptions."""

import json
import multiprocessing
import os
import subprocess

import numpy as np
import pandas as pd
import pytest

from bolt.io import files
from bolt.io.errors import DataError
from bolt.io.files import (
    atomic,
    parse_yaml,
    read_columns,
    read_json,
    read_table,
    read_text,
    read_yaml,
    to_numbers,
    write_if_new,
    write_table,
    write_text,
)


def test_failed_write_keeps_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_temporary_file_keeps_the_suffix_and_gets_the_usual_permissions(tmp_path):
    with atomic(tmp_path / "b.nii.gz") as temporary:
        assert temporary.name.endswith(".nii.gz") and temporary.name.startswith(".")
        temporary.touch(mode=0o600)
    (tmp_path / "usual").write_text("")
    assert (tmp_path / "b.nii.gz").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_pipe_is_neither_replaced_nor_waited_for_and_a_folder_is_no_file(tmp_path):
    pipe = tmp_path / "pipe.tsv"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="device or a pipe"), atomic(pipe):
        pytest.fail("nothing is written")
    assert pipe.is_fifo()
    with pytest.raises(DataError, match="not a regular file"):
        read_table(pipe)
    for read in (read_json, read_yaml, read_table):
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path)


def test_columns_are_those_of_the_table(tmp_path):
    path = tmp_path / "t.tsv"
    table = pd.DataFrame({"name": ["a\tb", 'c "d"', "n/a"], "share": [0.1 + 0.2, None, -3.0], "n": [1, 2, 3]})
    write_table(table, path, dict.fromkeys(table.columns, "Column"))
    shares, names = read_columns(path, ["share", "name"])
    assert names == table.name.tolist()
    np.testing.assert_array_equal(to_numbers(shares), table.share)
    for text, column, message in ((None, "absent", "absent"), ("a\tb\n1\n", "b", "not a readable"), ("", "b", "not a")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_columns(path, [column])
    for read in (read_table, lambda absent: read_columns(absent, ["share"])):
        with pytest.raises(DataError, match=r"gone\.tsv: file not found"):
            read(tmp_path / "gone.tsv")


def test_table_round_trip_keeps_text_and_missing_values(tmp_path):
    path = tmp_path / "t.tsv"
    table = pd.DataFrame({"subject": ["001", "NA"], "age": [3.5, None]})
    write_table(table, path, {"subject": "Person", "age": "Years"})
    back = read_table(path, text=("subject",))
    assert back.subject.tolist() == ["001", "NA"] and back.age.isna().tolist() == [False, True]
    pd.testing.assert_frame_equal(read_table(path, columns=("age", "absent")), back[["age"]])
    assert "n/a" in path.read_text()
    described = json.loads((tmp_path / "t.json").read_text())
    assert described == {"subject": {"Description": "Person"}, "age": {"Description": "Years"}}
    with pytest.raises(ValueError, match="age"):
        write_table(table, tmp_path / "other.tsv", {"subject": "Person"})
    assert not (tmp_path / "other.tsv").exists()


def test_spaces_around_cells_and_tabs_at_the_end_of_rows_are_harmless(tmp_path):
    (tmp_path / "t.tsv").write_text("group\tgroup.1\nF1 \t3\t\n F1\t4\t\n")
    assert read_table(tmp_path / "t.tsv", text=("group",)).to_dict("list") == {"group": ["F1", "F1"], "group.1": [3, 4]}


LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]\n" for i in range(1, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not valid YAML"),
        ("a:\n  b: 1\n  b: 2\n", r"'b' is there twice in .*line 3"),
        ("a: 1\nsubjects: [010, 011]\n", r"'010' would be read as another number; put it in quotes.*line 2"),
        ("time: 1:30\n", "'1:30' would be read as another number"),
        (LAUGHS, r"more than 30 aliases"),
        ("a: " + "[" * 100_000, "more than 100 levels|exceeded maximum nesting depth"),
        ("- " * 100_000, "more than 100 levels"),
        ("# " + 11_000_000 * "x", "11 MB are too much"),
    ],
)
def test_yaml_that_loses_a_value_or_exhausts_memory_is_refused_at_once(text, message):
    with pytest.raises(DataError, match=f"^bad.yaml: .*({message})"):
        parse_yaml(text, "bad.yaml")


def test_yaml_and_json_as_other_programs_write_them(tmp_path):
    assert parse_yaml("a: &a {k: 1}\nb: {<<: *a, k: 2}\n", "good.yaml") == {"a": {"k": 1}, "b": {"k": 2}}
    (tmp_path / "bom.json").write_text('{"k": 1}', encoding="utf-8-sig")
    assert read_json(tmp_path / "bom.json") == {"k": 1}
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(DataError, match="not valid JSON"):
        read_json(tmp_path / "deep.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n1\t2\t3\n4\t5\t6\n", "rows have more cells than the header"),
        ("a\tb\n1\t2\n4\t5\t6\n", "not a readable tab-separated table"),
        ("a\tb\ta \n1\t2\t3\n", "duplicate columns: a"),
    ],
)
def test_a_table_whose_cells_would_be_lost_or_shifted_is_refused(tmp_path, text, message):
    (tmp_path / "bad.tsv").write_text(text)
    for read in (read_table, read_text):
        with pytest.raises(DataError, match=message):
            read(tmp_path / "bad.tsv")


def write_often(path, times):
    for _ in range(times):
        write_text("the same text " * 500, path)


def test_many_processes_may_write_the_same_file(tmp_path):
    with multiprocessing.get_context("fork").Pool(6) as pool:
        pool.starmap(write_often, [(tmp_path / "README", 60)] * 6, chunksize=1)
    assert [path.name for path in tmp_path.iterdir()] == ["README"]


def test_only_temporary_files_of_killed_jobs_are_removed(tmp_path, monkeypatch):
    dead = subprocess.Popen(["true"])
    dead.wait()
    names = {"dead": f".{dead.pid}-{files.HOST}.a.txt", "parent": f".{os.getppid()}-{files.HOST}.a.txt"}
    names |= {"elsewhere": f".{dead.pid}-another.a.txt", "this": f".{os.getpid()}-{files.HOST}.a.txt"}
    for name in names.values():
        (tmp_path / name).touch()
    write_text("text", tmp_path / "a.txt")
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", names["parent"], names["elsewhere"]}
    monkeypatch.setattr(files, "ABANDONED", -1.0)
    write_text("text", tmp_path / "a.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_write_if_new_keeps_an_equal_file(tmp_path):
    write_if_new("text", tmp_path / "a.txt")
    before = (tmp_path / "a.txt").stat().st_ino
    write_if_new("text", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").stat().st_ino == before
    write_if_new("other", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "other"
