"""Full disks and short memory: reported in one line, whichever library fails, and never recorded as bad data."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from bolt.config import ROOT
from bolt.io import disk_space as disk
from bolt.io import resource_errors
from bolt.io.errors import ConfigError, DataError, MemoryShortage
from bolt.io.files import atomic, read_json, write_table
from bolt.io.resource_errors import disk_shortage, explain_shortages, memory_shortage
from bolt.io.streams import VolumeWriter
from bolt.jobs.outcome import Outcome
from tests.disks import fill, small_disk

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x/a.npy")
SAFETENSORS = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def raised(error, cause=None):
    """Raise an error while another is handled, and return it as it is caught."""
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
def test_full_disk_is_recognised_in_errors_of_any_library(error, tmp_path):
    shortage = disk_shortage(error, [tmp_path])
    assert isinstance(shortage, ConfigError) and shortage.hint == disk.HINT
    assert shortage.what == "no space left on the disk of this folder" and Path(shortage.where).is_absolute()


def test_the_error_names_the_disk_of_the_file(tmp_path):
    assert disk_shortage(FULL, [tmp_path]).where == "/data/x"


def test_any_error_on_a_full_disk_is_attributed_to_it(tmp_path, monkeypatch):
    error = RuntimeError("ITK ERROR: H5Fcreate failed")
    assert disk_shortage(error, [tmp_path]) is None and disk_shortage(None, [tmp_path]) is None
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 1000 if folder == tmp_path else 10**9)
    assert disk_shortage(error, [tmp_path]).where == disk_shortage(None, [tmp_path]).where == str(tmp_path)


def test_full_disk_without_space_for_temporary_files(tmp_path, monkeypatch):
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(resource_errors.tempfile, "gettempdir", none)
    assert "no space left" in str(disk_shortage(OSError(errno.ENOSPC, "full"), [tmp_path]))


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
    shortage = memory_shortage(error)
    assert isinstance(shortage, MemoryShortage) and "mem_mb" in shortage.hint and "batch_size" in shortage.hint
    assert memory_shortage(ValueError("shapes differ")) is None


def test_other_errors_pass_unchanged():
    shortage = MemoryShortage("the computer's memory does not hold a batch of 7 scans", hint="Lower it")
    with pytest.raises(MemoryShortage) as caught, explain_shortages(Path()):
        raise shortage
    assert caught.value is shortage
    with pytest.raises(ConfigError, match="no such device"), explain_shortages(Path()):
        raise ConfigError("no such device")
    with pytest.raises(ZeroDivisionError), explain_shortages(Path()):
        raise ZeroDivisionError


# ---- the outcome of a scan or a fold


@pytest.fixture
def outcome(tmp_path):
    outcome = Outcome("train", tmp_path / "status.json", 1)
    outcome.command, outcome.empty = "snakemake --force x", [tmp_path / "series.npy"]
    return outcome


def fails(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize("attempt", [0, 1, Outcome.ATTEMPTS])
@pytest.mark.parametrize("error", [FULL, SAFETENSORS, raised(DataError("cut off"), FULL)], ids=["os", "rust", "data"])
def test_full_disk_is_not_recorded_as_a_failed_scan(outcome, tmp_path, attempt, error):
    outcome.attempt = attempt
    with pytest.raises(ConfigError), explain_shortages(tmp_path):
        outcome.run(fails(error))
    assert not list(tmp_path.iterdir())


def test_a_process_killed_on_a_full_disk_is_repeated(outcome, tmp_path, monkeypatch):
    outcome.attempt = Outcome.ATTEMPTS
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 0)
    with pytest.raises(ConfigError, match="no space left"):
        outcome.run(lambda: os.kill(os.getpid(), signal.SIGBUS))
    assert not list(tmp_path.iterdir())


SHORT = [MemoryError(), MemoryShortage("memory does not hold a batch", hint="Lower it")]


@pytest.mark.parametrize("error", SHORT, ids=["python", "words"])
def test_short_memory_is_retried_then_recorded(outcome, tmp_path, error):
    with pytest.raises((MemoryError, MemoryShortage)):
        outcome.run(fails(error))
    assert not (tmp_path / "status.json").exists()
    outcome.attempt = Outcome.ATTEMPTS
    outcome.run(fails(error))
    status = read_json(tmp_path / "status.json")
    assert status["state"] == "failed" and "memory" in status["reason"]
    assert status["hint"].endswith("To repeat this job: snakemake --force x")
    assert np.load(tmp_path / "series.npy").size == 0 and (tmp_path / "crash.txt").is_file()


def test_a_kill_by_the_system_suggests_short_memory(outcome, tmp_path):
    outcome.attempt = Outcome.ATTEMPTS
    outcome.run(lambda: os.kill(os.getpid(), signal.SIGKILL))
    status = read_json(tmp_path / "status.json")
    assert "killed by signal 9 in 2 attempts" in status["reason"] and "when memory runs out" in status["reason"]
    assert "mem_mb" in status["hint"] and "snakemake --force x" in status["hint"]


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
    from bolt.series.cache import write_array

    write_array(path.parent, [np.random.default_rng(0).random((99, 400))] * 20, 20 * 99, 400)


def write_weights(path):
    with atomic(path.with_name("a.safetensors")) as temporary:
        save_file({"a": torch.ones(1000, 1000)}, temporary)


def write_rows(path):
    write_table(pd.DataFrame({"a": range(100_000)}), path.with_name("a.tsv"), {"a": "a"})


WRITERS = [write_rows, write_weights, write_cache, write_volumes, write_matrix]


@pytest.mark.parametrize("write", WRITERS)
def test_full_disk_leaves_no_half_file_and_is_named(full, write):
    with pytest.raises(ConfigError) as caught, explain_shortages(full):
        write(full / "x")
    assert caught.value.where == str(full), caught.value
    assert [path.name for path in full.iterdir()] == ["ballast"]


COMMAND = "import sys; from bolt.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_a_stage_ends_with_a_one_line_error_on_a_disk_shortage(full, tmp_path):
    from tests.snake import series_dataset

    config = series_dataset(tmp_path, paths={"results": str(full / "results")})
    command = [sys.executable, "-c", COMMAND, "index", "--config", str(config)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2].startswith(f"bolt index: {full}/results/mine: no space left on the disk")
    assert "Traceback" not in done.stderr


def test_a_failed_run_names_the_disk_shortage(full, tmp_path, capsys):
    disk.report_full_disks([tmp_path, full / "results"])
    assert capsys.readouterr().err.startswith(f"bolt: {full}/results: no space left on the disk of this folder. Free")


def test_an_allocation_that_is_too_large(tmp_path):
    code = "from bolt.io.resource_errors import explain_shortages; import numpy as np\nfrom pathlib import Path\n"
    code += "with explain_shortages(Path()): np.ones(10**12)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "MemoryShortage: out of memory (Unable to allocate 7.28 TiB for an array" in done.stderr
