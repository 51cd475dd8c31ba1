"""Files of vectors and predictions: what a run watches of them, and refuses before any work."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pandas as pd
import pytest

from bolt.config import load_config
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import write_table
from bolt.workflow.checks import check_files_of_others
from bolt.workflow.run import Run
from tests.snake import series_dataset, write_yaml


def test_a_run_watches_the_contents_of_files_and_checks_them_against_its_folds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"sub-{i:02d}" for i in range(4)]
    scans = pd.DataFrame({"scan_id": names, "subject": names, "group": names})
    models = {"vectors": "features", "theirs": "predictions"}
    for name, kind in models.items():
        write_yaml(tmp_path / f"{name}.yaml", {"model": kind, "file": f"{name}.tsv"})
    scans[["scan_id"]].assign(x=range(4)).to_csv("vectors.tsv", sep="\t", index=False)
    scans[["scan_id"]].assign(fold=[0, 1, 0, 1], p=0.3).to_csv("theirs.tsv", sep="\t", index=False)
    config = series_dataset(tmp_path, models=["ridge", *(f"{name}.yaml" for name in models)])
    run = Run(load_config(config).model_dump(mode="json"))
    ridge, *others = run.models
    assert run.given(SimpleNamespace(model=ridge)) == []
    assert [str(run.given(SimpleNamespace(model=name))[0]) for name in others] == ["vectors.tsv", "theirs.tsv"]
    check_files_of_others(run.study)  # without folds nothing can be compared
    folds = [scans.assign(fold=0, role=["test", "train"] * 2), scans.assign(fold=1, role=["train", "test"] * 2)]
    write_table(pd.concat(folds), run.layout.folds, FOLD_COLUMNS)
    check_files_of_others(run.study)
    before = [run.model_code(name) for name in run.models]
    with open("theirs.tsv", "a") as file:
        file.write("sub-00\t1\t0.4\n")
    os.utime("theirs.tsv", (1, 1))  # an older file with other content
    after = [run.model_code(name) for name in run.models]
    assert before[:2] == after[:2] and before[2] != after[2]
    with pytest.raises(DataError, match="1 rows are not of a test scan of their fold: 'sub-00' in fold 1"):
        check_files_of_others(run.study)
