"""The recipe of the published code, `bolt_published`: its forward pass, its dropout, its settings by dataset."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bolt.config import load_dataset, load_model
from bolt.models import layers
from bolt.models.attention.fused import FusedWindowAttention
from bolt.models.attention.windows import windows_of
from bolt.models.bolt import BolT, from_reference
from bolt.models.registry import create_model
from tests.models.test_bolt import GEOMETRY, reference

RECIPE = load_model("bolt_published")
GIVEN = {"window_size": "window", "num_heads": "n_heads"}


def test_the_recipe_computes_what_the_published_code_computes() -> None:
    """Its settings, but for sizes, with the weights of the stored case, give the published logits and CLS tokens."""
    archive, weights, x = reference()
    sizes = {GIVEN.get(key, key): value for key, value in GEOMETRY.items()}
    model = create_model("bolt", x.shape[2], archive["logits"].shape[1], **RECIPE.hyper | sizes | {"n_blocks": 3})
    model.to(x.dtype).eval().load_state_dict(from_reference(weights, **GEOMETRY).state_dict())
    out = model(x)
    np.testing.assert_allclose(out.logits.detach(), archive["logits"], atol=1e-5)
    np.testing.assert_allclose(out.cls.detach(), archive["cls"], atol=1e-5)
    np.testing.assert_allclose(out.losses["cwr"].detach(), archive["cwr_mean_square"], rtol=1e-4)  # λ = 1


@pytest.mark.parametrize(("name", "crop", "batch_size"), [("abide1", 60, 32), ("abide1_images", 60, 32),
                                                          ("hcp_rest", 600, 32), ("hcp_task", 150, 16)])  # fmt: skip
def test_crops_and_batches_of_the_published_code(name: str, crop: int, batch_size: int) -> None:
    model, as_trained = RECIPE.on(load_dataset(name))
    assert (as_trained.crop, model.training.batch_size) == (crop, batch_size)


SCANS = 1000
WINDOWS = windows_of((20,) * SCANS, 10, 5, "drop", "local")


def attention(before: bool, p: float) -> tuple[FusedWindowAttention, Tensor]:
    """FW-MSA with stride 5 in windows of 10, so that a token has up to two; weights are 0, so that outputs are 1."""
    module = FusedWindowAttention(6, 2, 3, 10, 5, p, dropout_before_fusion=before).train()
    nn.init.zeros_(module.output.weight)
    nn.init.ones_(module.output.bias)
    return module, torch.randn(WINDOWS.n_cls + 20 * SCANS, 6)


def test_masks_are_drawn_for_each_window_before_fusion() -> None:
    """The output before dropout is 1, so the result is 1 / (1 - p) times the mean of a token's masks."""
    p = 0.5
    times = torch.tensor([1] * 3 + [1] * 5 + [2] * 10 + [1] * 5)  # 3 CLS tokens, 20 volumes
    for before in (False, True):
        module, tokens = attention(before, p)
        torch.manual_seed(0)
        cls, bold = module(tokens, WINDOWS).detach().split([3 * SCANS, 20 * SCANS])
        draws = torch.cat([cls.unflatten(0, (SCANS, 3)), bold.unflatten(0, (SCANS, 20))], dim=1) * (1 - p)
        seen = [sorted(draws[:, times == n].round(decimals=4).unique().tolist()) for n in (1, 2)]
        assert seen == [[0, 1], [0, 0.5, 1]] if before else seen == [[0, 1], [0, 1]]
        masks = torch.where(times == 1, 1, 2 if before else 1)  # independent masks per entry
        torch.testing.assert_close(draws.var((0, 2)), p * (1 - p) / masks, rtol=0.1, atol=0)
        torch.testing.assert_close(draws.mean((0, 2)), torch.full((23,), 1 - p), rtol=0, atol=0.03)


def test_outputs_are_dropped_where_the_published_code_drops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the projection, (windows, 1 + W, N), and then averaged; the last block drops its CLS tokens alone."""
    shapes: list[tuple[int, ...]] = []
    real = layers.dropout
    monkeypatch.setattr(layers, "dropout", lambda x, p: (shapes.append(tuple(x.shape)), real(x, p))[1])
    model = BolT(8, 2, hidden=None, n_blocks=2, n_heads=2, head_dim=3, window=10, stride=5, fringe=[0, 4],
                 dropout_before_fusion=True, input_projection=False, tail="drop")  # fmt: skip
    model.train()(torch.randn(1, 20, 8))
    assert (3, 11, 8) in shapes and (3, 8) in shapes  # 3 windows; block 1 and block 2
    assert (3, 2, 11, 11) in shapes  # attention weights


@pytest.mark.parametrize("lengths", [(20, 20), (20, 14, 10)])
def test_without_chance_both_places_of_dropout_agree(lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """If dropout keeps everything, output and gradients are those of the fused computation."""
    windows = windows_of(lengths, 10, 5, "drop", "local")
    tokens = torch.randn(windows.n_cls + sum(windows.lengths), 6)
    torch.manual_seed(0)
    module = FusedWindowAttention(6, 2, 3, 10, 5, 0.5, dropout_before_fusion=True).train()
    expected = module.eval()(tokens, windows)
    monkeypatch.setattr(layers, "dropout", lambda x, p: x)
    found = module.train()(tokens, windows)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    given = torch.randn_like(expected)
    for ours, theirs in zip(
        *(torch.autograd.grad(out, [*module.parameters()], given) for out in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
