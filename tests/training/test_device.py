"""A GPU is used if there is one; the log names it, or the reason why there is none."""

import logging
import multiprocessing
import signal
import tempfile
from types import SimpleNamespace

import pytest
import torch

from bolt.io.errors import ConfigError
from bolt.training import device
from bolt.training.device import _announce, device_of


@pytest.fixture
def said(caplog, monkeypatch):
    caplog.set_level(logging.INFO, logger="bolt")
    _announce.cache_clear()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return caplog


def gpu(monkeypatch, name):
    """Simulate a GPU of this name, or none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: name is not None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *args, **more: None)
    monkeypatch.setattr(torch.backends, "fp32_precision", torch.backends.fp32_precision)


def test_a_gpu_where_there_is_one(said, monkeypatch):
    gpu(monkeypatch, "NVIDIA A100")
    assert device_of("auto", None).type == device_of("cuda", None).type == "cuda"
    assert said.messages == ["device: GPU, NVIDIA A100"], "once, however often it is asked for"
    assert torch.backends.fp32_precision == "ieee"
    assert device_of("cpu", 1).type == "cpu"
    assert said.messages[-1] == "device: CPU, 1 threads (as configured)"


def test_the_cpu_otherwise(said, monkeypatch):
    gpu(monkeypatch, None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert device_of("auto", 1).type == "cpu"
    assert said.messages == ["device: CPU, 1 threads (no GPU: torch finds none)"]
    with pytest.raises(ConfigError, match="no CUDA device found"):
        device_of("cuda", None)


def test_a_gpu_that_this_torch_cannot_use(said, monkeypatch):
    gpu(monkeypatch, None)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    device_of("auto", 1)
    assert "built without CUDA, though CUDA_VISIBLE_DEVICES is 1" in said.messages[-1]


def hold_gpu(names, folder, answer):
    """Take one of the GPUs of these names, tell which, and hold it."""
    tempfile.tempdir = str(folder)
    torch.cuda.device_count = lambda: len(names)
    torch.cuda.get_device_properties = lambda number: SimpleNamespace(uuid=names[number])
    answer.send(device._least_used_gpu.__wrapped__())
    signal.pause()


def ask_for_gpus(n_processes, names, folder):
    """Let processes take a GPU one after the other and hold it; return what each was given."""
    processes, forks = [], multiprocessing.get_context("fork")
    for _ in range(n_processes):
        answer, its = forks.Pipe()
        processes.append(forks.Process(target=hold_gpu, args=(names, folder, its), daemon=True))
        processes[-1].start()
        yield processes[-1], answer.recv()
    for process in processes:
        process.kill()
        process.join()


def test_processes_of_a_machine_share_its_gpus_evenly(tmp_path):
    asked = ask_for_gpus(6, ["a", "b", "c"], tmp_path)
    first = [next(asked) for _ in range(5)]
    assert sorted(gpu for _, gpu in first[:3]) == [0, 1, 2]
    assert first[3][1] == first[0][1] and first[4][1] == first[1][1]
    first[1][0].kill()
    first[1][0].join()
    assert next(asked)[1] == first[1][1], "the place of a process that ended is free again"
    assert next(asked, None) is None
