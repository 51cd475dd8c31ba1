"""Attention in Triton, run by its interpreter: equal to torch in double precision, with gradients and dropout."""

import os

import pytest
import torch

from bolt.models.attention import window
from tests.models.test_window_attention import (
    ROWS,
    assert_all_close_to_the_largest,
    inputs,
    inputs_of_rows,
    with_gradients,
)

SHORT = [(case | {"heads": 1}, bold_rows) for case, bold_rows in ROWS if max(case.get("lengths", (60,))) <= 60]
"""The interpreter takes seconds for a scan of sixty volumes."""

os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch")
pytestmark = pytest.mark.slow


@pytest.fixture
def in_triton(monkeypatch):
    """Compute by Triton from here on."""
    from bolt.models.attention.triton_window import Attend

    return lambda: monkeypatch.setattr(window, "_Attend", Attend)


@pytest.mark.parametrize(("case", "bold_rows"), SHORT, ids=str)
def test_it_equals_torch(case, bold_rows, in_triton):
    """With dropout; without, all weights are kept."""
    tensors, shape = inputs_of_rows(case, bold_rows)
    given, results = torch.randn_like(tensors[0]), []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(with_gradients(window.attend(*tensors, shape, 0.3), tensors, given))
        in_triton()
    assert_all_close_to_the_largest(*results, 1e-11)


def test_seeds_may_be_on_the_device(in_triton, monkeypatch):
    tensors, shape = inputs_of_rows({"lengths": (33, 20)}, True)
    in_triton()
    results = []
    for seed in (2**40 + 3, torch.tensor(2**40 + 3)):
        monkeypatch.setattr(window, "draw_drop", lambda p, seed=seed: window.Drop(2**14, seed))
        results.append(window.attend(*tensors, shape, 0.25))
    assert torch.equal(*results)


def test_scores_may_differ_much_between_windows(in_triton):
    (q, kv, bias), shape = inputs(lengths=(28,), fringe=0, heads=1, dtype=torch.float64)
    with torch.no_grad():
        q[:, 0], kv[2 + 24, 0] = 30, 30  # volume 24 is in the second window alone, and outweighs all others by e**200
    expected = window.attend(q, kv, bias, shape)
    in_triton()
    torch.testing.assert_close(window.attend(q, kv, bias, shape), expected)
    single = window.attend(q.float(), kv.float(), bias.float(), shape)
    torch.testing.assert_close(single, expected.float(), rtol=1e-4, atol=1e-5)
