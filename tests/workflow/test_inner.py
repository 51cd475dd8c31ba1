"""The stages of inner folds, one after the other, as the workflow's rules call them; and a failed one."""

import re
from pathlib import Path

import numpy as np
import pytest

from bolt.cli.main import main
from bolt.config import load_config, load_model
from bolt.config.study import Study
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, read_yaml, sha256, write_status
from bolt.workflow.run import Run
from bolt.workflow.stage import STAGES
from tests.snake import series_dataset
from tests.stages import command, declared, stage

ATLAS = "dosenbach160"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The first of two outer folds, with two inner ones that are trained; the configuration, and the run's name."""
    folder = tmp_path_factory.mktemp("stages")
    options = {"inner_folds": 2, "subset_offsets": 3, "random_draws": 1}
    keys = {"folds": {"outer": 2, "run": [0]}, "explain": options, "search": {"n_trials": 1}}
    file = series_dataset(folder, n_subjects=16, **keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        config = load_config(file)
        layout, model = Study.of(config).layout, load_model(config.models[0]).run_name
        names = {"atlas": ATLAS, "model": model, "seed": 0, "fold": 0}
        for rule in ("index", "rois", "cache", "exclusions", "folds", "inner_folds", "train_fold", "explain_fold"):
            assert stage(file, rule, **names) == 0, rule
        for inner in range(2):
            assert stage(file, "train_inner", inner=inner, **names) == 0
        for rule in ("explain_inner", "regress_landmarks"):
            assert stage(file, rule, **names) == 0, rule
        yield file, layout, model


def test_every_stage_leaves_what_its_rule_declares(made):
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


SERIES = [rule for one in STAGES.values() for rule in one.rules if one.name not in ("download", "oracle_cache")]
"""Rules that a dataset of series can have."""
NAMED = [
    (rule, kind)
    for rule in SERIES
    for kind in ("input", "output")
    if "{FILES}" in declared(rule)["shell"] and re.search(r"=|unpack", declared(rule).get(kind, ""))
]


@pytest.mark.parametrize(("rule", "kind"), NAMED)
def test_a_command_without_the_files_of_its_rule_says_which_it_needs(made, monkeypatch, capsys, rule, kind):
    file, _, model = made
    for raw in ("t1w", "sbref", "anatomical_outputs"):
        monkeypatch.setattr(Run, raw, lambda run, name: ["image.nii.gz"])
    names = {"atlas": ATLAS, "model": model, "seed": 0, "fold": 0, "inner": 0}
    names |= {"scan": "sub-00_task-rest", "folder": "sub-00", "prefix": "sub-00"}
    experiment = {"measure_complexity": "complexity", "take_spectra": "spectra"}.get(rule)
    names |= {"name": experiment, "experiment": experiment, "scheme": "paper"}
    if rule in ("search_fold", "choose", "choose_shared"):
        names["model"] = "tiny"
    words = command(Run(read_yaml(file)), file, rule, **names)
    after = words[words.index("--output") :] if kind == "input" else []
    assert main(words[: words.index(f"--{kind}")] + after) == 2
    said = rf"the file '\w+' is needed, and --{kind} does not name it. Add '--{kind}"
    assert re.search(said, capsys.readouterr().err)


def test_a_file_without_its_name_is_refused(made, capsys):
    with pytest.raises(SystemExit):
        main(["regions", "--config", str(made[0]), "--input", "results/scans.tsv"])
    assert "NAME=FILE expected, found 'results/scans.tsv'" in capsys.readouterr().err


@pytest.mark.parametrize("linked", [False, True])
def test_a_training_and_a_search_by_hand_find_their_places(made, tmp_path, monkeypatch, linked):
    """From another folder; and in that of a run whose results are a link to a folder of that name elsewhere."""
    file, layout, model = made
    run, begin = Run(read_yaml(file)), "" if linked else f"{file.parent}/"
    kept, place = run.save_config(), tmp_path if linked else file.parent
    if linked:
        (tmp_path / "results").symlink_to(file.parent / "results")
    for rule, names in ("train_fold", {"model": model, "seed": 1}), ("search_fold", {"model": "tiny"}):
        words = command(run, Path(f"{begin}{kept}"), rule, atlas=ATLAS, fold=0, **names)
        monkeypatch.chdir(tmp_path)
        assert main([word.replace("=results", f"={begin}results") for word in words]) == 0
        assert Path.cwd() == place
        monkeypatch.chdir(file.parent)
    assert read_json(layout.run(ATLAS, model, 1).fold(0) / "status.json")["state"] == "ok"


def test_a_failed_inner_model_fails_the_explanation_and_not_the_run(made):
    file, layout, model = made
    folder, names = layout.run(ATLAS, model, 0).inner(0), {"atlas": ATLAS, "model": model, "seed": 0, "fold": 0}
    table = layout.inner_folds(0)
    table.write_text(table.read_text().replace("\ttest", "\ttrain"))  # nothing is left out
    assert stage(file, "train_inner", "--attempt", "1", inner=1, **names) == 0
    status = read_json(folder / "fold-1/status.json")
    assert status["state"] == "failed" and "no test scan" in status["reason"]
    assert (folder / "fold-1/predictions.tsv").stat().st_size == 0
    assert stage(file, "explain_inner", "--attempt", "1", **names) == 0
    assert read_json(folder / "explain_status.json")["reason"] == status["reason"]
    assert (folder / "importance.tsv").stat().st_size == 0
    assert stage(file, "regress_landmarks", **names) == 0
    found = read_table(layout.run(ATLAS, model, 0).explanation / "landmarks.tsv", text=("fold",))
    assert set(found["importance"]) == {"fitted", "none"}


def test_a_run_that_failed_in_every_fold_keeps_no_page_from_being_made(made):
    file, layout, model = made
    names = {"atlas": ATLAS, "model": model, "seed": 0, "fold": 0}
    fold, out = layout.run(ATLAS, model, 0).fold(0), layout.run(ATLAS, model, 0).explanation
    assert stage(file, "regions", **names) == 0 and read_table(out / "roi_weights.tsv", text=("class",)).shape[0] == 320
    assert stage(file, "stability", **names) == 0  # a single fold: halves of the people, if they have all classes
    assert set(read_table(out / "stability.tsv", text=("class", "one", "other"))["what"]) <= {"halves"}
    write_status(fold / "status.json", "failed", "train", DataError("gone"))
    rules = "explain_fold regress_landmarks regions connections sanity stability faithfulness tasks"
    for rule in [*rules.split(), "evaluate", "explanation"]:
        assert stage(file, rule, **names) == 0, rule
    tables = "landmarks landmark_tests subsets roi_weights connections sanity stability faithfulness_areas tasks"
    assert {(out / f"{name}.tsv").stat().st_size for name in tables.split()} == {0}
    told = layout.explanation_page.read_text()
    assert "No run was explained" in told and "because no fold of this run was trained" in told
    assert stage(file, "report") == 0
