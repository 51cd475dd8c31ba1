"""A GPU is used if there is one; the log names it, or the reason why there is none."""

import logging

import pytest
import torch

from bolt.io.errors import ConfigError
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
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *args, **more: None)


def test_a_gpu_where_there_is_one(said, monkeypatch):
    gpu(monkeypatch, "NVIDIA A100")
    assert device_of("auto", None).type == device_of("cuda", None).type == "cuda"
    assert said.messages == ["device: GPU, NVIDIA A100"], "once, however often it is asked for"
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
