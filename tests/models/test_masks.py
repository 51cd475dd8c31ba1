"""Masks of dropout from a counter: known answers of Philox, the same bits wherever they are computed, their share."""

import sys

import pytest
import torch

from bolt.models import layers
from bolt.models.parts import masks
from tests.models.test_window_attention import supported

WORD = 2**32 - 1
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822
SIZES = [(1, 1), (7, 3), (3, 8), (2, 129), (1, 300), (40, 13), (0, 5)]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((WORD,) * 4, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (*PI, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
@pytest.mark.parametrize("form", [torch.tensor, lambda word: torch.tensor([word]).numpy()])
def test_known_answers(counter, key, expected, form):
    """Those of the authors' library, Random123 (kat_vectors, philox4x32 10)."""
    halves = masks.philox([form(word) for word in counter], key)
    words = [int(half.item()) >> shift & WORD for half in halves for shift in (0, 32)]
    assert words == [int(word, 16) for word in expected.split()]


def numbered(n_lines, seed=0):
    """Lines with numbers of more than 32 bits, and negative ones, of which the low 32 bits count."""
    return torch.randint(-(2**33), 2**33, (n_lines, 4), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("n_lines", "n_groups"), SIZES)
@pytest.mark.parametrize("level", supported() or [pytest.param("", marks=pytest.mark.skip("there is no library"))])
def test_the_library_equals_torch_bit_for_bit(chosen, level, n_lines, n_groups):
    chosen(level)
    for dropped in (0, 1, 6554, 2**15, 2**16 - 1):
        arguments = numbered(n_lines), n_groups, dropped, 2**63 - 12345
        kept = masks.kept_of_lines(*arguments)
        assert kept.shape == (n_lines, 8 * n_groups)
        assert torch.equal(kept, masks.in_torch(*arguments))


@pytest.mark.parametrize("dropped", [0, 6554, 2**16 - 1])
@pytest.mark.parametrize("n", [0, 1, 8, 1023, 1025, 5003])
def test_triton_drops_the_same(n, dropped):
    """By its interpreter, or on a GPU; of the gradient, too."""
    pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch")
    from bolt.models.parts.triton_masks import Dropout

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(n, device=device, requires_grad=True)
    for seed in (5, 2**32 + 16, 2**63 - 2):
        expected = masks.kept_of(torch.empty(n), dropped, seed) * masks.scale_of(dropped)
        for place in (seed, torch.tensor(seed, device=device)):  # a graph finds it on the device
            out = Dropout.apply(x, dropped, place)
            (gradient,) = torch.autograd.grad(out.sum(), x)
            torch.testing.assert_close(gradient.cpu(), expected)
            torch.testing.assert_close(out.cpu(), expected * x.detach().cpu())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_without_triton_equals_a_cpu():
    x = torch.empty(37, 1013)
    assert torch.equal(masks.kept_of(x.cuda(), 6554, 3).cpu(), masks.kept_of(x, 6554, 3))


def test_a_gpu_without_triton_uses_torch(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "bolt.models.parts.triton_masks", None)
    layers.dropout_in_triton.cache_clear()
    with caplog.at_level("INFO"):
        assert layers.dropout_in_triton() is None
    layers.dropout_in_triton.cache_clear()
    assert "computed by torch" in caplog.text


@pytest.mark.parametrize("at_once", [1, 100, 2**15])
def test_parts_of_a_tensor_are_computed_alike(chosen, at_once, monkeypatch):
    """Whatever is computed at once, an element's fate depends on its place alone."""
    chosen("0")
    x = torch.empty(5 * 8 * masks.SPAN + 3)
    expected = masks.kept_of(x, 6554, 1)
    monkeypatch.setitem(masks.AT_ONCE, "cpu", at_once * masks.SPAN)
    assert torch.equal(masks.kept_of(x, 6554, 1), expected)
    lines = torch.zeros(1, 4, dtype=torch.int64)
    assert torch.equal(masks.kept_of_lines(lines, 5 * masks.SPAN + 1, 6554, 1)[0, : len(x)], expected)
    assert torch.equal(masks.kept_of(x[:999], 6554, 1), expected[:999])


@pytest.mark.parametrize("shape", [(), (1,), (0,), (7, 9), (2, 3, 5)])
def test_shapes(shape):
    kept = masks.kept_of(torch.empty(shape), 2**15, 1)
    assert kept.shape == shape and kept.dtype == torch.bool


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_share_and_independence(p):
    """Within five standard deviations: the share of zeros, in each of the eight places of a group, in lines whose
    address differs in one word, and of pairs of neighbours, in a line and between lines."""
    dropped = masks.dropped_of(p)
    share = dropped / 2**16
    lines = torch.zeros(3 * 64, 4, dtype=torch.int64)
    for word in (1, 2, 3):
        lines[64 * (word - 1) : 64 * word, word] = torch.arange(64)
    zeros = ~masks.kept_of_lines(lines, 512, dropped, 20240229)
    pairs = [zeros[:, i:] & zeros[:, : zeros.shape[1] - i] for i in (1, 2, 4, 8)] + [zeros[1:64] & zeros[:63]]

    def is_right(values, due):
        return abs(float(values.double().mean()) - due) < 5 * (due * (1 - due) / values.numel()) ** 0.5

    distinct = zeros[:129]  # the first line of each word is the same
    assert all(is_right(distinct.unflatten(1, (-1, 8))[..., i], share) for i in range(8))
    assert all(is_right(zeros[64 * i : 64 * (i + 1)], share) for i in range(3))
    assert all(is_right(pair, share**2) for pair in pairs)
    other = ~masks.kept_of_lines(lines, 512, dropped, 20240230)
    assert is_right((zeros & other)[:64], share**2)


def test_never_everything_is_dropped():
    assert masks.dropped_of(0) == 0
    assert masks.dropped_of(0.1) == 6554
    assert masks.dropped_of(0.9999999) == 2**16 - 1
    assert masks.scale_of(2**15) == 2
