"""Full disks and short memory: reported in one line, whichever library fails, and never recorded as bad data."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from bolt.cli.main import main
from bolt.io import resource_errors as disk
from bolt.io.errors import ConfigError, DataError, MemoryShortage
from bolt.io.files import atomic, read_json, write_table
from bolt.io.resource_errors import disk_shortage, explain_shortages, memory_shortage
from bolt.io.streams import volume_writer
from bolt.jobs.outcome import Outcome
from bolt.preprocess.images import write_matrix
from bolt.series.cache import write_array
from tests.disks import fill, small_disk
from tests.snake import series_dataset

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x/a.npy")
SAFETENSORS = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def raised(error, cause):
    """Return an error as it is caught that was raised while another was handled."""
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SAFETENSORS,
        RuntimeError("… database or disk is full"),
        raised(DataError("the image is cut off", where="a.nii"), FULL),
    ],
)
def test_full_disk_is_recognised_in_errors_of_any_library(error, tmp_path):
    shortage = disk_shortage(error, [tmp_path])
    assert isinstance(shortage, ConfigError) and shortage.hint == disk.HINT and "no space left" in shortage.what
    assert shortage.where == "/data/x" if FULL in (error, error.__context__) else Path(shortage.where).is_absolute()


def test_any_error_on_a_full_disk_is_attributed_to_it(tmp_path, monkeypatch):
    error = RuntimeError("ITK ERROR: H5Fcreate failed")
    assert disk_shortage(error, [tmp_path]) is None and disk_shortage(None, [tmp_path]) is None
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 1000 if folder == tmp_path else 10**9)
    assert disk_shortage(error, [tmp_path]).where == disk_shortage(None, [tmp_path]).where == str(tmp_path)


def test_full_disk_without_space_for_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(disk.tempfile, "gettempdir", Mock(side_effect=FileNotFoundError("No usable directory")))
    assert "no space left" in str(disk_shortage(FULL, [tmp_path]))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        np.exceptions.AxisError("Unable to allocate 9 GiB for an array"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),
        raised(RuntimeError("node failed"), MemoryError()),
    ],
)
def test_short_memory_is_recognised_in_errors_of_any_library(error):
    with pytest.raises(MemoryShortage, match="out of memory .*mem_mb.*batch_size"), explain_shortages(Path()):
        raise error
    assert memory_shortage(ValueError("shapes differ")) is None


@pytest.mark.parametrize("error", [MemoryShortage("known"), ConfigError("no such device"), ZeroDivisionError()])
def test_other_errors_pass_unchanged(error):
    with pytest.raises(type(error)) as caught, explain_shortages(Path()):
        raise error
    assert caught.value is error


# ---- the outcome of a scan or a fold


@pytest.fixture
def outcome(tmp_path):
    outcome = Outcome("train", tmp_path / "status.json", 1)
    outcome.command, outcome.empty = "snakemake --force x", [tmp_path / "series.npy"]
    return outcome


@pytest.mark.parametrize("attempt", [0, 1, Outcome.ATTEMPTS])
@pytest.mark.parametrize("error", [FULL, raised(DataError("cut off"), FULL)], ids=["os", "data"])
def test_full_disk_is_not_recorded_as_a_failed_scan(outcome, tmp_path, attempt, error):
    outcome.attempt = attempt
    with pytest.raises(ConfigError), explain_shortages(tmp_path):
        outcome.run(Mock(side_effect=error))
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_suggests_short_memory_but_on_a_full_disk_it_is_repeated(
    outcome, tmp_path, monkeypatch
):
    outcome.attempt = Outcome.ATTEMPTS
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 0)
    with pytest.raises(ConfigError, match="no space left"):
        outcome.run(lambda: os.kill(os.getpid(), signal.SIGBUS))
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    outcome.run(lambda: os.kill(os.getpid(), signal.SIGKILL))
    status = read_json(tmp_path / "status.json")
    assert "when memory runs out" in status["reason"] and "mem_mb" in status["hint"]


@pytest.mark.parametrize("error", [MemoryError(), MemoryShortage("memory does not hold a batch", hint="Lower it")])
def test_short_memory_is_retried_then_recorded(outcome, tmp_path, error):
    with pytest.raises((MemoryError, MemoryShortage)):
        outcome.run(Mock(side_effect=error))
    assert not (tmp_path / "status.json").exists()
    outcome.attempt = Outcome.ATTEMPTS
    outcome.run(Mock(side_effect=error))
    status = read_json(tmp_path / "status.json")
    assert status["state"] == "failed" and "memory" in status["reason"]
    assert status["hint"].endswith("To repeat this job: snakemake --force x")
    assert np.load(tmp_path / "series.npy").size == 0 and (tmp_path / "crash.txt").is_file()


# ---- a disk that is really full


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with small_disk(tmp_path_factory.mktemp("small"), 2) as disk:
        yield disk


@pytest.fixture
def full(small):
    fill(small)
    yield small
    for path in small.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_volumes(folder):
    with volume_writer(folder / "a.nii.gz", np.eye(4), (40, 40, 40), 2.0, code=4) as append:
        append(np.random.default_rng(0).standard_normal((40, 40, 40)).astype(np.float32))


def write_weights(folder):
    with atomic(folder / "a.safetensors") as temporary:
        save_file({"a": torch.ones(1000, 1000)}, temporary)


WRITERS = {
    "rows": lambda folder: write_table(pd.DataFrame({"a": range(100_000)}), folder / "a.tsv", {"a": "a"}),
    "weights": write_weights,
    "cache": lambda folder: write_array(folder, [np.random.default_rng(0).random((99, 400))] * 20, 20 * 99, 400),
    "volumes": write_volumes,
    "matrix": lambda folder: write_matrix(np.eye(4), folder / "a.mat"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_full_disk_leaves_no_half_file_and_is_named(full, name):
    with pytest.raises(ConfigError) as caught, explain_shortages(full):
        WRITERS[name](full)
    assert caught.value.where == str(full), caught.value
    assert [path.name for path in full.iterdir()] == ["ballast"]


def test_a_stage_ends_with_a_one_line_error_on_a_disk_shortage(full, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = series_dataset(tmp_path, paths={"results": str(full / "results")})
    assert main(["index", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert f"bolt index: {full}/results/mine: no space left on the disk" in said and "Traceback" not in said


def test_a_failed_run_names_the_disk_shortage(full, tmp_path, capsys):
    disk.report_full_disks([tmp_path, full / "results"])
    assert capsys.readouterr().err.startswith(f"bolt: {full}/results: no space left on the disk of this folder. Free")
