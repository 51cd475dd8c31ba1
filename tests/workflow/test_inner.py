"""The stages of inner folds, one after the other, as the workflow's rules call them; and a failed one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bolt.cli.main import main
from bolt.config import load_config, load_model
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, sha256, write_status
from tests.snake import series_dataset

ATLAS = "dosenbach160"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Layout, str]]:
    """The first of two outer folds, with two inner ones that are trained; the configuration, and the run's name."""
    folder = tmp_path_factory.mktemp("stages")
    options = {"inner_folds": 2, "subset_offsets": 3, "random_draws": 1}
    file = series_dataset(folder, n_subjects=16, folds={"outer": 2, "run": [0]}, explain=options)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        config = load_config(file)
        layout, model = Study.of(config).layout, load_model(config.models[0]).run_name
        run = ["--atlas", ATLAS, "--model", model, "--seed", "0"]
        fold = [*run, "--fold", "0"]
        steps = [["index"], ["cache", "--atlas", ATLAS], ["exclusions"], ["folds"], ["inner-folds"]]
        steps += [["train", *fold], ["explain-fold", *fold]]
        steps += [["train-inner", *fold, "--inner", str(inner)] for inner in range(2)]
        for step in [*steps, ["explain-inner", *fold], ["landmarks", *run]]:
            assert main([step[0], "--config", str(file), *step[1:]]) == 0, step
        yield file, layout, model


def test_every_stage_leaves_what_its_rule_declares(made: tuple[Path, Layout, str]) -> None:
    _, layout, model = made
    folder = layout.run(ATLAS, model, 0).inner(0)
    assert {file.name for file in layout.inner_folds(0).parent.glob("*.tsv")} == {"fold-0.tsv", "fold-1.tsv"}
    for inner in range(2):
        own = folder / f"fold-{inner}"
        assert read_json(own / "status.json")["state"] == "ok"
        facts = read_json(own / "provenance.json")
        assert (facts["outer"], facts["fold"], facts["seed"]) == (0, inner, 0)
        cache = layout.cache(ATLAS) / "manifest.json"
        assert facts["inputs"][str(cache)] == sha256(cache)
        assert (own / "checkpoint.safetensors").stat().st_size > 0 and (own / "predictions.tsv").stat().st_size > 0
    explained = read_table(folder / "importance.tsv", text=("scan_id",))
    folds = read_table(layout.folds, text=("scan_id",))
    side = folds[(folds["fold"] == 0) & (folds["role"] != "test")]
    assert sorted(explained["scan_id"]) == sorted(side["scan_id"])
    out = layout.run(ATLAS, model, 0).explanation
    table = read_table(out / "landmarks.tsv", text=("fold",))
    assert set(table["importance"]) == {"fitted", "inner", "none"}
    assert set(read_table(out / "subsets.tsv", text=("fold",))["offset"]) == {0, 18, 35}
    assert np.load(out / "coefficients.npy").shape == (1, 2, 160)
    assert np.load(out / "coefficients_controls.npy").shape == (3, 1, 2, 160)
    tests = read_table(out / "landmark_tests.tsv", text=("second",))
    assert (tests["note"] == "1 of at least 6 folds").all() and len(tests) == 2 * 4  # three offsets have no quarters
    assert np.load(folder / "importance_controls.npy").shape == (2, int(explained["length"].sum()))


def test_a_failed_inner_model_fails_the_explanation_and_not_the_run(made: tuple[Path, Layout, str]) -> None:
    file, layout, model = made
    folder, run = layout.run(ATLAS, model, 0).inner(0), ["--atlas", ATLAS, "--model", model, "--seed", "0"]
    table = layout.inner_folds(0)
    table.write_text(table.read_text().replace("\ttest", "\ttrain"))  # nothing is left out
    arguments = ["--config", str(file), *run, "--fold", "0", "--attempt", "1"]
    assert main(["train-inner", *arguments, "--inner", "1"]) == 0
    status = read_json(folder / "fold-1/status.json")
    assert status["state"] == "failed" and "no test scan" in status["reason"]
    assert (folder / "fold-1/predictions.tsv").stat().st_size == 0
    assert main(["explain-inner", *arguments]) == 0
    assert read_json(folder / "explain_status.json")["reason"] == status["reason"]
    assert (folder / "importance.tsv").stat().st_size == 0
    assert main(["landmarks", "--config", str(file), *run]) == 0
    found = read_table(layout.run(ATLAS, model, 0).explanation / "landmarks.tsv", text=("fold",))
    assert set(found["importance"]) == {"fitted", "none"}


def test_a_run_that_failed_in_every_fold_keeps_no_page_from_being_made(made: tuple[Path, Layout, str]) -> None:
    file, layout, model = made
    run, keys = ["--atlas", ATLAS, "--model", model, "--seed", "0"], ["--config", str(file)]
    fold, out = layout.run(ATLAS, model, 0).fold(0), layout.run(ATLAS, model, 0).explanation
    assert main(["regions", *keys, *run]) == 0 and read_table(out / "roi_weights.tsv", text=("class",)).shape[0] == 320
    assert main(["stability", *keys, *run]) == 0  # a single fold: halves of the people, if they have all classes
    assert set(read_table(out / "stability.tsv", text=("class", "one", "other"))["what"]) <= {"halves"}
    write_status(fold / "status.json", "failed", "train", DataError("gone"))
    assert main(["explain-fold", *keys, *run, "--fold", "0"]) == 0
    for stage in ("landmarks", "regions", "sanity", "stability", "faithfulness", "tasks", "evaluate", "explanation"):
        assert main([stage, *keys, *([] if stage == "explanation" else run)]) == 0, stage
    tables = "landmarks landmark_tests subsets roi_weights sanity stability faithfulness_areas tasks"
    assert {(out / f"{name}.tsv").stat().st_size for name in tables.split()} == {0}
    told = layout.explanation_page.read_text()
    assert "No run was explained" in told and "No fold of this run was trained and explained" in told
    assert main(["report", *keys]) == 0
