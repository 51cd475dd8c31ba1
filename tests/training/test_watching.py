"""Curves of trainings in TensorBoard and Weights & Biases: every epoch, no influence on results, nothing sent."""

import logging
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock, call

import pytest

from bolt.io.errors import ConfigError
from bolt.io.files import read_table
from bolt.training.outputs import Training
from bolt.training.watching import TOOLS, require_tools, watched
from bolt.workflow.job import Job
from bolt.workflow.stages import training as stage
from tests.snake import series_dataset
from tests.training.test_runner import FINISHED, run_folds, write_toy


@pytest.fixture
def tools(monkeypatch):
    """Stand-ins for both packages, which note what they are told; `runs` of Weights & Biases by name."""
    tools = Mock(runs={})
    tools.init.side_effect = lambda **about: tools.runs.setdefault(about["name"], Mock())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", Mock(SummaryWriter=tools.writer))
    monkeypatch.setitem(sys.modules, "wandb", Mock(init=tools.init, Settings=SimpleNamespace))
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return tools


def train(tmp_path, name, folds=(1,), **options):
    toy = write_toy(tmp_path / "toy", more=[["test"] * 2 + ["train"] * 8 + ["validation"] * 2])
    assert run_folds(toy, tmp_path / name, folds, **options) == [None] * len(folds)
    return {file: (tmp_path / name / "1" / file).read_bytes() for file in FINISHED}


def watching(tools, folder):
    return lambda training: watched(tools, folder, f"fold-{training.fold}", {"model": "bolt"})


def test_every_epoch_is_shown_of_folds_side_by_side_and_the_results_are_the_same(tmp_path, tools):
    without = train(tmp_path, "without")
    assert train(tmp_path, "with", folds=(1, 2), watching=watching(list(TOOLS), tmp_path / "watch")) == without
    places = [str(tmp_path / f"watch/tensorboard/fold-{fold}") for fold in (1, 2)]  # each hides what is in its own
    assert tools.writer.call_args_list == [call(place, purge_step=1) for place in places]
    logged = {name: run.log.call_args_list for name, run in tools.runs.items()}
    steps = {name: [told.kwargs["step"] for told in of_run] for name, of_run in logged.items()}
    assert steps == {"fold-1": [1, 2, 3, 4], "fold-2": [1, 2, 3, 4]}
    history = read_table(tmp_path / "with/1/history.tsv")
    rows = [told.args[0] for told in logged["fold-1"]]
    assert [row["validation_loss"] for row in rows] == pytest.approx(history["validation_loss"])
    assert all("epoch" not in row for row in rows)
    board = tools.writer.return_value
    scalars = [told.args for told in board.add_scalar.call_args_list]
    shown = [(told.args[0], told.kwargs["step"]) for of_run in logged.values() for told in of_run]
    assert sorted(scalars) == sorted((key, row[key], step) for row, step in shown for key in row)
    assert board.close.call_count == 2 and all(run.finish.call_count == 1 for run in tools.runs.values())
    assert all(about.kwargs["reinit"] == "create_new" for about in tools.init.call_args_list)


def test_nothing_is_sent_unless_the_user_says_so(tmp_path, tools, monkeypatch):
    def started():
        with watched(["wandb"], tmp_path, "fold-0", {"hyper": {"window": 6}}):
            return tools.init.call_args.kwargs

    about = started()
    assert about["mode"] == "offline" and about["dir"] == str(tmp_path / "wandb") and (tmp_path / "wandb").is_dir()
    assert about["config"] == {"hyper": {"window": 6}} and about["name"] == "fold-0"
    settings = about["settings"]
    assert (settings.console, settings.save_code, settings.disable_git) == ("off", False, True)
    monkeypatch.setenv("WANDB_MODE", "online")
    assert started()["mode"] == "online"


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_tool_that_fails_ends_no_training(tmp_path, tools, caplog, tool, from_the_start):
    run = tools.runs["fold-0"] = Mock()
    begin, add = (tools.init, run.log) if tool == "wandb" else (tools.writer, tools.writer.return_value.add_scalar)
    if from_the_start:
        begin.side_effect = OSError("no space")
    with caplog.at_level(logging.WARNING), watched([tool], tmp_path, "fold-0", {}) as watch:
        watch({"epoch": 1, "loss": 0.5})
        add.side_effect = OSError("no space")
        watch({"epoch": 2, "loss": 0.4})
        watch({"epoch": 3, "loss": 0.3})
    assert [record.getMessage() for record in caplog.records] == [f"fold-0: no curves in {tool}: no space"]


def test_curves_are_closed_when_a_training_fails(tmp_path, tools):
    with pytest.raises(ZeroDivisionError), watched(["wandb"], tmp_path, "fold-0", {}):
        raise ZeroDivisionError
    assert tools.runs["fold-0"].finish.call_count == 1


def test_a_tool_that_is_not_installed_is_refused_at_the_start(monkeypatch):
    for tool in TOOLS:
        monkeypatch.delitem(sys.modules, tool, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    require_tools([])
    with pytest.raises(ConfigError, match=r"'watch' names wandb, which is not installed.*bolt-fmri\[wandb\]"):
        require_tools(["wandb"])
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    require_tools(["wandb"])


def test_the_stage_passes_the_tools_of_the_configuration_on(tmp_path, monkeypatch):
    seen = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bolt.training.watching.watched", lambda *given: seen.append(given) or nullcontext())
    config = series_dataset(tmp_path, watch=["tensorboard"])
    files = {"input": [("cache", Path("manifest.json")), ("folds", Path("folds.tsv"))]}
    named = {"atlas": "dosenbach160", "model": "none yet", "seed": 0, "variant": None}
    job = Job(Namespace(stage="train", config=config, threads=1, **named, **files))
    job.options.model = next(iter(job.study.models))
    folder = job.layout.run("dosenbach160", job.options.model, 0).fold(2)

    def trained(*arguments, watching, **options):
        with watching(arguments[4][0]):
            return [None]

    monkeypatch.setattr("bolt.training.runner.train_folds", trained)
    assert stage._train(job, [Training(2, 0, folder)]) == [None]
    ((tools, folder, title, settings),) = seen
    assert tools == ["tensorboard"] and str(folder) == "work/mine/watch"
    assert title == f"dosenbach160/ready/{job.options.model}/seed-0/fold-2"
    assert settings["run"] == title and settings["hyper"]["window"] == 10 and "description" not in settings
