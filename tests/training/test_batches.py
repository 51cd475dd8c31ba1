"""Batches of training scans: parts, mixtures, and their order."""

from __future__ import annotations

import pytest
import torch

from bolt.models import bolt
from bolt.training import batches
from bolt.training.batches import Batch, mixed, restored
from tests.training.test_runner import DATASET, run, short_model, write_toy

LENGTHS = torch.tensor([5, 3, 5, 4])


def batch() -> Batch:
    x = torch.arange(4.0)[:, None, None] + torch.zeros(4, 5, 2)
    return Batch(x, LENGTHS, torch.arange(4), torch.arange(4.0)[:, None])


def test_a_mixture_is_sorted_and_as_long_as_the_shorter_scan() -> None:
    found, order = mixed(batch(), 0.4, (0, 1, 2, 3))
    assert found.other is not None and found.covariates is not None and 0 < found.share < 1
    assert found.truth.tolist() == order.tolist() and sorted(found.other.tolist()) == [0, 1, 2, 3]
    shorter = torch.minimum(LENGTHS[found.truth], LENGTHS[found.other])
    assert found.lengths.equal(shorter) and found.lengths.equal(shorter.sort().values)
    expected = found.share * found.truth + (1 - found.share) * found.other
    assert found.x[:, 0, 0].tolist() == pytest.approx(expected.tolist())
    assert found.covariates[:, 0].tolist() == pytest.approx(expected.tolist())


def test_mixtures_follow_from_the_step_alone_and_share_no_draws_with_dropout() -> None:
    torch.manual_seed(0)
    first, before = mixed(batch(), 1.0, (0, 1, 2, 3))[0], torch.random.get_rng_state()
    assert torch.random.get_rng_state().equal(before)
    torch.rand(5)
    assert mixed(batch(), 1.0, (0, 1, 2, 3))[0].x.equal(first.x)
    assert mixed(batch(), 1.0, (0, 1, 2, 4))[0].share != first.share


def test_results_return_to_the_order_of_the_batch() -> None:
    parts = [(torch.tensor([1]),) * 2, (torch.tensor([3]),) * 2, (torch.tensor([0, 2]),) * 2]
    passed = torch.tensor([1, 3, 0, 2])
    assert restored(passed, parts, None).tolist() == [0, 1, 2, 3]  # type: ignore[arg-type]
    order = torch.tensor([2, 0, 3, 1])
    assert restored(order, [(slice(0, 4), slice(0, 4))], order).tolist() == [0, 1, 2, 3]
    assert restored(order[passed], parts, order).tolist() == [0, 1, 2, 3]  # type: ignore[arg-type]


def test_a_step_of_equal_scans_copies_no_positions_to_the_device(tmp_path, monkeypatch) -> None:
    """Each such copy would take time at every step of a GPU."""
    copied: list[int] = []
    monkeypatch.setattr(batches, "copied_to", lambda device, values: copied.append(len(values)) or values)
    toy = write_toy(tmp_path, lengths=[DATASET.crop + 5] * 12)
    run(toy, tmp_path / "plain", short_model("bolt", epochs=2))
    assert not copied
    run(toy, tmp_path / "mixed", short_model("bolt", epochs=1, mixup=1.0))
    assert copied


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_windows_are_computed_once_for_the_same_lengths_in_any_order(tmp_path, spied, mixup) -> None:
    """On a GPU, computing them again for every batch would take longer than the step."""
    asked = []
    spied(bolt, "windows_of", lambda _, lengths, *rest: asked.append(lengths))
    lengths = [DATASET.crop + 5, DATASET.crop - 4, DATASET.crop - 8] * 4
    run(write_toy(tmp_path, lengths=lengths), tmp_path / "run", short_model("bolt", epochs=2, mixup=mixup))
    ragged = [lengths for lengths in asked if len(set(lengths)) > 1]
    assert ragged and all(list(lengths) == sorted(lengths) for lengths in ragged)
