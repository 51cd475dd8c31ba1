"""How many trainings share the GPUs of a machine without a scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from bolt.workflow.gpus import trainings_at_once


@pytest.mark.parametrize(
    ("files", "visible", "device", "expected"),
    [
        ([], None, "auto", None),
        ([], "0", "auto", None),  # a variable left over on a machine without GPUs
        (["nvidia0", "nvidiactl", "nvidia-uvm"], None, "auto", 2),
        (["nvidia0", "nvidia1"], None, "cuda", 4),
        (["nvidia0", "nvidia1"], "1", "auto", 2),
        (["nvidia0"], "MIG-a,MIG-b, MIG-c", "auto", 6),
        (["nvidia0"], "", "auto", None),
        (["nvidia0"], "-1", "auto", None),
        (["nvidia0"], None, "cpu", None),
    ],
)
def test_two_trainings_share_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], visible: str | None, device: str, expected: int
) -> None:
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert trainings_at_once(device, tmp_path) == expected
