"""A full disk and short memory: said in one line, whichever library met them, and never taken for bad data."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from bolt.config import ROOT
from bolt.io import disk_space as disk
from bolt.io import resource_errors as shortage
from bolt.io.errors import ConfigError, DataError, MemoryShortage
from bolt.io.files import atomic, read_json, write_table
from bolt.io.resource_errors import full_disk, in_words, short_memory
from bolt.io.streams import VolumeWriter
from bolt.jobs.outcome import Outcome
from tests.disks import fill, small_disk

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x/a.npy")
SAFETENSORS = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def raised(error, cause=None):
    """The error as it is caught, after another was handled."""
    try:
        try:
            raise cause or ValueError("before")
        except type(cause or ValueError()):
            raise error from None
    except Exception as caught:
        return caught


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
def test_a_full_disk_is_known_by_what_any_library_says(error, tmp_path):
    told = full_disk(error, [tmp_path])
    assert isinstance(told, ConfigError) and told.hint == disk.HINT
    assert told.what == "no room left on the disk of this folder" and Path(told.where).is_absolute()


def test_the_file_names_the_disk(tmp_path):
    assert full_disk(FULL, [tmp_path]).where == "/data/x"


def test_any_error_on_a_full_disk_is_put_down_to_it(tmp_path, monkeypatch):
    error = RuntimeError("ITK ERROR: H5Fcreate failed")
    assert full_disk(error, [tmp_path]) is None and full_disk(None, [tmp_path]) is None
    monkeypatch.setattr(shortage, "free_bytes", lambda folder: 1000 if folder == tmp_path else 10**9)
    assert full_disk(error, [tmp_path]).where == full_disk(None, [tmp_path]).where == str(tmp_path)


def test_a_disk_that_has_no_room_for_temporary_files_either(tmp_path, monkeypatch):
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(shortage.tempfile, "gettempdir", none)
    assert "no room left" in str(full_disk(OSError(errno.ENOSPC, "full"), [tmp_path]))


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
def test_short_memory_is_known_by_what_any_library_says(error):
    told = short_memory(error)
    assert isinstance(told, MemoryShortage) and "mem_mb" in told.hint and "batch_size" in told.hint
    assert short_memory(ValueError("shapes differ")) is None


def test_what_is_said_already_stands():
    said = MemoryShortage("the computer's memory does not hold a batch of 7 scans", hint="Lower it")
    with pytest.raises(MemoryShortage) as found, in_words(Path()):
        raise said
    assert found.value is said
    with pytest.raises(ConfigError, match="no such device"), in_words(Path()):
        raise ConfigError("no such device")
    with pytest.raises(ZeroDivisionError), in_words(Path()):
        raise ZeroDivisionError


# ---- the outcome of a scan or a fold


@pytest.fixture
def outcome(tmp_path):
    made = Outcome("train", tmp_path / "status.json", 1)
    made.again, made.empty = "snakemake --force x", [tmp_path / "series.npy"]
    return made


def fails(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize("attempt", [0, 1, Outcome.ATTEMPTS])
@pytest.mark.parametrize("error", [FULL, SAFETENSORS, raised(DataError("cut off"), FULL)], ids=["os", "rust", "data"])
def test_a_full_disk_is_no_scans_fault(outcome, tmp_path, attempt, error):
    outcome.attempt = attempt
    with pytest.raises(ConfigError), in_words(tmp_path):
        outcome.of(fails(error))
    assert not list(tmp_path.iterdir())


def test_a_process_that_died_on_a_full_disk_is_done_again(outcome, tmp_path, monkeypatch):
    outcome.attempt = Outcome.ATTEMPTS
    monkeypatch.setattr(shortage, "free_bytes", lambda folder: 0)
    with pytest.raises(ConfigError, match="no room left"):
        outcome.of(lambda: os.kill(os.getpid(), signal.SIGBUS))
    assert not list(tmp_path.iterdir())


SHORT = [MemoryError(), MemoryShortage("memory does not hold a batch", hint="Lower it")]


@pytest.mark.parametrize("error", SHORT, ids=["python", "words"])
def test_short_memory_is_given_another_attempt_then_recorded(outcome, tmp_path, error):
    with pytest.raises((MemoryError, MemoryShortage)):
        outcome.of(fails(error))
    assert not (tmp_path / "status.json").exists()
    outcome.attempt = Outcome.ATTEMPTS
    outcome.of(fails(error))
    found = read_json(tmp_path / "status.json")
    assert found["state"] == "failed" and "memory" in found["reason"]
    assert found["hint"].endswith("To ask for it again: snakemake --force x")
    assert np.load(tmp_path / "series.npy").size == 0 and (tmp_path / "crash.txt").is_file()


def test_a_kill_by_the_system_says_what_it_may_have_been(outcome, tmp_path):
    outcome.attempt = Outcome.ATTEMPTS
    outcome.of(lambda: os.kill(os.getpid(), signal.SIGKILL))
    found = read_json(tmp_path / "status.json")
    assert "killed by signal 9 in 2 attempts" in found["reason"] and "where memory runs out" in found["reason"]
    assert "mem_mb" in found["hint"] and "snakemake --force x" in found["hint"]


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


def write_volumes(path):
    with VolumeWriter(path.with_name("a.nii.gz"), np.eye(4), (40, 40, 40), 2.0) as writer:
        writer.append(np.random.default_rng(0).standard_normal((40, 40, 40)).astype(np.float32))


def write_matrix(path):
    from bolt.preprocess.images import write_matrix

    write_matrix(np.eye(4), path.with_name("a.mat"))


def write_cache(path):
    from bolt.series.cache import _Entry, _write_array

    np.save(source := Path(tempfile.gettempdir()) / f"{os.getpid()}.npy", np.random.default_rng(0).random((99, 400)))
    entry = _Entry(0, "sub-1", source, 99, np.zeros(400, bool))
    rois = pd.DataFrame({"value": np.arange(400) + 1, "name": [f"r{i}" for i in range(400)]})
    try:
        _write_array([entry] * 20, rois, np.ones(400, bool), path.with_name("series.npy"))
    finally:
        source.unlink()


def write_weights(path):
    with atomic(path.with_name("a.safetensors")) as temporary:
        save_file({"a": torch.ones(1000, 1000)}, temporary)


def write_rows(path):
    write_table(pd.DataFrame({"a": range(100_000)}), path.with_name("a.tsv"), {"a": "a"})


WRITERS = [write_rows, write_weights, write_cache, write_volumes, write_matrix]


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_holds_no_half_file_and_is_named(full, write):
    with pytest.raises(ConfigError) as told, in_words(full):
        write(full / "x")
    assert told.value.where == str(full), told.value
    assert [path.name for path in full.iterdir()] == ["ballast"]


COMMAND = "import sys; from bolt.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_a_stage_of_the_whole_dataset_ends_in_one_line(full, tmp_path):
    from tests.snake import series_dataset

    config = series_dataset(tmp_path, paths={"results": str(full / "results")})
    command = [sys.executable, "-c", COMMAND, "index", "--config", str(config)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"bolt index: {full}/results/mine: no room left on the disk")
    assert "Traceback" not in done.stderr


def test_the_end_of_a_failed_run_names_the_disk(full, tmp_path, capsys):
    disk.tell_if_full([tmp_path, full / "results"])
    assert capsys.readouterr().err.startswith(f"bolt: {full}/results: no room left on the disk of this folder. Free")


def test_an_address_space_that_is_too_small(tmp_path):
    code = "from bolt.io.resource_errors import in_words; import numpy as np\nfrom pathlib import Path\n"
    code += "with in_words(Path()): np.ones(10**12)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "MemoryShortage: memory was not enough (Unable to allocate 7.28 TiB for an array" in done.stderr
