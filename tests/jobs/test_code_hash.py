"""Fingerprints change with code, and with nothing else."""

import inspect
import re
import sys
from unittest.mock import Mock

import pytest

from bolt.config import ROOT
from bolt.config.study import Study
from bolt.jobs import code_hash as fingerprint
from bolt.workflow.stage import STAGES


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "bolt"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("from bolt import b\n\ndef f():\n    return b.g()\n")
    (folder / "b.py").write_text("def g():\n    return 1\n")
    (folder / "c.py").write_text("X = 1\n")
    monkeypatch.setattr(fingerprint, "PACKAGE", folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    forget()
    yield folder
    forget()


def forget():
    for cached in (fingerprint.fingerprint, fingerprint._code, fingerprint._is_module, fingerprint._kept):
        cached.cache_clear()


def fresh(*modules):
    forget()
    return fingerprint.fingerprint(*modules)


def test_kernels_and_data_files_count_with_the_modules_that_name_them(package):
    (package / "room").mkdir()
    (package / "b.py").write_text('WORDS = read_yaml("words.yaml"), columns("room", "table")\n')
    found = [fresh("bolt.a")]
    for name in ("b.cpp", "shared.h", "b.yaml", "words.yaml", "room/columns.yaml"):
        for content in ("N: 3", "N: 4"):
            (package / name).write_text(content)
            found.append(fresh("bolt.a"))
    assert len(set(found)) == 11
    for name in ("c.yaml", "room/others.yaml"):
        (package / name).write_text("look: 1")
    assert fresh("bolt.a") == found[-1]


def test_comments_docstrings_other_modules_and_folders_left_by_former_ones_do_not_count(package):
    before = fresh("bolt.a")
    (package / "b").mkdir()
    (package / "b.py").write_text('"""What it is."""\n\ndef g():\n    """One."""\n    # why\n    return 1\n')
    (package / "c.py").write_text("X = 2\n")
    assert fresh("bolt.a") == before


def test_hashes_are_kept_for_the_next_process(package, monkeypatch):
    before = fresh("bolt.a")
    parsed = []
    parse = fingerprint._imports
    monkeypatch.setattr(fingerprint, "_imports", lambda tree: parsed.append(tree) or parse(tree))
    assert fresh("bolt.a") == before and not parsed
    (package / "b.py").write_text("def g():\n    return 2\n")
    assert fresh("bolt.a") != before and len(parsed) == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"bolt.b": 1}', ""])
def test_a_damaged_store_is_made_anew_where_the_package_can_be_written(package, monkeypatch, content):
    before = fresh("bolt.a")
    (package / fingerprint.STORE).write_text(content)
    if not content:
        monkeypatch.setattr(fingerprint, "write_text", Mock(side_effect=PermissionError))
    assert fresh("bolt.a") == before


def test_a_fingerprint_is_of_what_computes_and_not_of_provenance():
    study = Study.read(ROOT / "config/config.yaml")
    for name in set(STAGES) - {"report"}:  # which shows what the run cost
        seen, waiting = set(), list(STAGES[name].modules(study))
        while waiting:
            if (module := waiting.pop()) not in seen:
                seen.add(module)
                waiting += fingerprint._code(module)[0]
        assert seen.isdisjoint({"bolt.jobs.provenance", "bolt.jobs.ledger", "bolt.jobs.outcome"}), name
        if STAGES[name].module in ("training", "explanation", "trust", "series"):
            called = re.findall(r"^    from (bolt\S+) import", inspect.getsource(STAGES[name].work), re.M)
            assert {*called} <= seen, name
