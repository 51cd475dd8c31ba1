"""The Triton kernel of attention, run by Triton's interpreter: equal to torch in double precision."""

import os

import pytest
import torch

from bolt.models.attention import window
from tests.models.test_window_attention import inputs

os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch")

CASES = [
    {},
    {"lengths": (33, 20, 47)},
    {"fringe": 0, "d": 7},
    {"lengths": (28,), "fringe": 30, "beyond": 30},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_equals_torch(case):
    from benchmarks import triton_attention

    tensors, shape = inputs(dtype=torch.float64, heads=2, **case)
    with torch.no_grad():
        torch.testing.assert_close(
            triton_attention.attend(*tensors, shape), window.attend(*tensors, shape), rtol=1e-12, atol=1e-13
        )


def test_scores_may_differ_much_between_windows():
    from benchmarks import triton_attention

    tensors, shape = inputs(lengths=(28,), fringe=0, heads=1, dtype=torch.float64)
    q, kv, bias = (tensor.detach() for tensor in tensors)
    q[:, 0], kv[2 + 24, 0] = 30, 30  # volume 24 is in the second window alone, and outweighs all others by e**200
    expected = window.attend(q, kv, bias, shape)
    torch.testing.assert_close(triton_attention.attend(q, kv, bias, shape), expected)
    single = triton_attention.attend(q.float(), kv.float(), bias.float(), shape)
    torch.testing.assert_close(single, expected.float(), rtol=1e-4, atol=1e-5)
