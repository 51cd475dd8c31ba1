"""Curves of trainings in TensorBoard and Weights & Biases: every epoch, no influence on results, nothing sent."""

import logging
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from bolt.io.errors import ConfigError
from bolt.io.files import read_table
from bolt.training.outputs import Training
from bolt.training.watching import TOOLS, require_tools, watched
from bolt.workflow.job import Job
from bolt.workflow.stages import training as stage
from tests.snake import series_dataset
from tests.training.test_runner import FINISHED, run_folds, write_toy


class Fake:
    """Stands in for both packages, and notes what they are told."""

    def __init__(self, monkeypatch):
        self.told, self.failing = [], False
        board, wandb = ModuleType("torch.utils.tensorboard"), ModuleType("wandb")
        board.SummaryWriter = self.writer
        wandb.init, wandb.Settings = self.init, SimpleNamespace
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
        monkeypatch.setitem(sys.modules, "wandb", wandb)
        for name in ("WANDB_MODE", "WANDB_PROJECT"):
            monkeypatch.delenv(name, raising=False)

    def note(self, *what):
        if self.failing:
            raise OSError("no space")
        self.told.append(what)

    def writer(self, folder, purge_step):
        self.note("open", folder, purge_step)
        return SimpleNamespace(
            add_scalar=lambda *values: self.note("scalar", *values),
            flush=lambda: None,
            close=lambda: self.note("close"),
        )

    def init(self, **options):
        self.note("init", options)
        name = options["name"]
        return SimpleNamespace(
            log=lambda row, step: self.note("log", name, row, step), finish=lambda: self.note("finish", name)
        )


@pytest.fixture
def fake(monkeypatch):
    return Fake(monkeypatch)


def train(tmp_path, name, folds=(1,), **options):
    toy = write_toy(tmp_path / "toy", more=[["test"] * 2 + ["train"] * 8 + ["validation"] * 2])
    assert run_folds(toy, tmp_path / name, folds, **options) == [None] * len(folds)
    return {file: (tmp_path / name / "1" / file).read_bytes() for file in FINISHED}


def watching(tools, folder):
    return lambda training: watched(tools, folder, f"fold-{training.fold}", {"model": "bolt"})


def told_of(fake, kind):
    return [told[1:] for told in fake.told if told[0] == kind]


def test_every_epoch_is_shown_of_folds_side_by_side_and_the_results_are_the_same(tmp_path, fake):
    without = train(tmp_path, "without")
    assert train(tmp_path, "with", folds=(1, 2), watching=watching(list(TOOLS), tmp_path / "watch")) == without
    places = [str(tmp_path / f"watch/tensorboard/fold-{fold}") for fold in (1, 2)]  # each hides what is in its own
    assert told_of(fake, "open") == [(place, 1) for place in places]
    logged, scalars = told_of(fake, "log"), told_of(fake, "scalar")
    steps = sorted((name, step) for name, _, step in logged)
    assert steps == [(f"fold-{fold}", epoch) for fold in (1, 2) for epoch in (1, 2, 3, 4)]
    history = read_table(tmp_path / "with/1/history.tsv")
    rows = [row for name, row, _ in logged if name == "fold-1"]
    assert [row["validation_loss"] for row in rows] == pytest.approx(history["validation_loss"])
    assert all("epoch" not in row for row in rows)
    assert sorted(scalars) == sorted((key, row[key], step) for _, row, step in logged for key in row)
    assert told_of(fake, "close") == [(), ()] and told_of(fake, "finish") == [("fold-1",), ("fold-2",)]
    assert all(options["reinit"] == "create_new" for (options,) in told_of(fake, "init"))


def test_nothing_is_sent_unless_the_user_says_so(tmp_path, fake, monkeypatch):
    def started():
        with watched(["wandb"], tmp_path, "fold-0", {"hyper": {"window": 6}}):
            return told_of(fake, "init")[-1][0]

    about = started()
    assert about["mode"] == "offline" and about["dir"] == str(tmp_path / "wandb") and (tmp_path / "wandb").is_dir()
    assert about["config"] == {"hyper": {"window": 6}} and about["name"] == "fold-0"
    settings = about["settings"]
    assert (settings.console, settings.save_code, settings.disable_git) == ("off", False, True)
    monkeypatch.setenv("WANDB_MODE", "online")
    assert started()["mode"] == "online"


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_tool_that_fails_ends_no_training(tmp_path, fake, caplog, tool, from_the_start):
    fake.failing = from_the_start
    with caplog.at_level(logging.WARNING), watched([tool], tmp_path, "fold-0", {}) as watch:
        watch({"epoch": 1, "loss": 0.5})
        fake.failing = True
        watch({"epoch": 2, "loss": 0.4})
        watch({"epoch": 3, "loss": 0.3})
    assert [record.getMessage() for record in caplog.records] == [f"fold-0: no curves in {tool}: no space"]


def test_curves_are_closed_when_a_training_fails(tmp_path, fake):
    with pytest.raises(ZeroDivisionError), watched(["wandb"], tmp_path, "fold-0", {}):
        raise ZeroDivisionError
    assert fake.told[-1] == ("finish", "fold-0")


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
    job = Job(Namespace(command="train", config=config, threads=1, **named, **files))
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
