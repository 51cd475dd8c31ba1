"""A GPU is used if there is one; the log names it, or the reason why there is none."""

import logging
import platform
import resource
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
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    device_of("auto", 1)
    assert "built without CUDA, though CUDA_VISIBLE_DEVICES is 1" in said.messages[-1]


def test_processes_of_a_machine_share_its_gpus_evenly(tmp_path, monkeypatch):
    """Each call stands for a process: an open file holds a lock, and the files of a process that ends are closed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(device, "_PLACES", [])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid="abc"[number]))
    take = device._least_used_gpu.__wrapped__
    assert [take() for _ in range(5)] == [0, 1, 2, 0, 1]
    device._PLACES[1].close()
    assert take() == 1, "the place of a process that ended is free again"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_that_is_freed_is_used_again():
    device_of("cpu", None)
    taken = []
    for n in (20_000_000, *[9_000_000] * 4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(n)
        taken.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(taken) < 1000, "pages of 4 kB; a new array has 8789"
