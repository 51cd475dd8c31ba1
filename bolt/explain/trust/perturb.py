"""Curves of deletion and insertion of single scans: predictions with volumes replaced in one order or another.

Replacing single volumes may have little effect, because BOLD is smooth and a model can infer a missing volume from its
neighbours. So volumes are also replaced in blocks, by those of a phase-randomised copy of the scan, which differs from
the scan in timing only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bolt.config import Faithfulness
from bolt.evaluate.metrics import read_predictions
from bolt.explain.importance import load_bolt
from bolt.explain.relevance import integrated_gradients, rollout
from bolt.explain.trust.faithfulness import CURVES, INDEX_COLUMNS, ORDERS
from bolt.explain.trust.similarity import position_curves
from bolt.explain.weights import read_importance, save_array
from bolt.io.errors import DataError
from bolt.io.files import write_table
from bolt.models.bolt import BolT
from bolt.training.device import device_of

TOGETHER = 2048
"""Volumes per pass of the model; more are slower on a CPU."""
SHORTEST_SHIFT = 0.1
"""Smallest circular shift of importance, in either direction, as a share of the scan."""

Array = NDArray[np.floating]
Ranks = NDArray[np.intp]
"""(time,): position of each volume in an order, from 0; equal within a block."""


def perturb_fold(cache: Any, run_fold: Path, settings: Faithfulness, *, seed: int, device: str = "auto") -> None:
    """Write the curves of a fold's test scans, (scans, orders, replacements, directions, steps + 1), and their index.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run_fold : Path
        Folder of a finished fold that has importance weights.
    settings : Faithfulness
    seed : int
        For the choice of scans, the random orders and the surrogates.
    device : {"auto", "cpu", "cuda"}

    Raises
    ------
    DataError
        The model is not BolT, or the weights do not belong to the cache's series.
    """
    model, info = load_bolt(run_fold)
    model.to(device_of(device, None))
    table, weights = read_importance(run_fold)
    about = read_predictions(run_fold / "predictions.tsv")[["scan_id", "group", "label"]]
    table = table.merge(about, on="scan_id", how="left")
    tests = np.flatnonzero(table["role"] == "test")
    chosen = tests[chosen_scans(table["label"].iloc[tests].to_numpy(str), settings.scans, seed)]
    rows = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    positions = position_of(weights, tests)
    curves = []
    for i in chosen:
        scan = table["scan_id"].iloc[i]
        series = np.array(cache.finite_series(rows[scan]))
        if len(weights[i]) != len(series) or series.shape[1] != info["n_rois"]:
            what = f"scan '{scan}' has series of shape {series.shape}, but {len(weights[i])} importance weights and a "
            what += f"model of {info['n_rois']} ROIs"
            raise DataError(what, where=run_fold, hint="Train and explain the fold again with this cache")
        random = np.random.default_rng([seed, rows[scan]])
        explained = info["classes"].index(table["predicted"].iloc[i])  # of an ensemble, not of its BolT alone
        curves.append(scan_curves(model, series, weights[i], positions[i], settings, random, explained))
    save_array(np.stack(curves), run_fold / f"{CURVES}.npy")
    write_table(table.iloc[chosen][list(INDEX_COLUMNS)], run_fold / f"{CURVES}.tsv", INDEX_COLUMNS)


def position_of(weights: list[Array], tests: Ranks) -> dict[int, Array]:
    """Return the mean importance of the other test scans at each position, by scan.

    A fold with a single test scan has no others: its training scans are used.
    """
    used = tests if len(tests) > 1 else np.arange(len(weights))
    return dict(zip(used, position_curves([weights[i] for i in used]), strict=True))


def chosen_scans(labels: NDArray[np.str_], n: int, seed: int) -> Ranks:
    """Choose at most `n` scans, stratified by class; their positions in ascending order."""
    random, quantile = np.random.default_rng(seed), np.empty(len(labels))
    for label in sorted(set(labels)):
        members = np.flatnonzero(labels == label)
        quantile[members] = (random.permutation(len(members)) + 0.5) / len(members)
    return np.sort(np.argsort(quantile, kind="stable")[:n])


def scan_curves(
    model: BolT,
    series: Array,
    importance: Array,
    position: Array,
    settings: Faithfulness,
    random: np.random.Generator,
    explained: int | None = None,
) -> Array:
    """Compute the curves of one scan, (orders, replacements, directions, steps + 1), mean over draws and surrogates.

    Parameters
    ----------
    model : BolT
        In evaluation mode.
    series : float array (time, rois)
    importance : float array (time,)
        From Algorithm 1.
    position : float array (time,)
        Mean importance of other scans at the same position; NaN if unknown: volumes are then in the order of time.
    settings : Faithfulness
    random : numpy.random.Generator
    explained : int, optional
        Position of the class whose probability is followed; by default the one that `model` predicts.
    """
    x = torch.from_numpy(series)[None].to(next(model.parameters()).device)
    if explained is None:
        with torch.no_grad():
            explained = int(model(x).logits.argmax(-1))

    def probability(replacement: Array, masks: NDArray[np.bool_]) -> Array:
        """Return that of the explained class with volumes replaced where `masks` (n, time) is true, (n,)."""
        other, marked = (torch.from_numpy(np.array(part)).to(x.device) for part in (replacement, masks))
        parts = []
        with torch.inference_mode():
            for batch in marked.split(max(1, TOGETHER // len(series))):
                logits = model(torch.where(batch[..., None], other, x[0])).logits
                parts.append(logits.softmax(-1)[:, explained].cpu().numpy())
        return np.concatenate(parts).astype(float)

    gradients = integrated_gradients(model, x, torch.tensor([explained], device=x.device), settings.gradient_steps)
    scores = {
        "importance": [importance],
        "rollout": [rollout(model, x)[0].cpu().numpy()],
        "integrated_gradients": [gradients.abs().sum(-1)[0].cpu().numpy()],
        "position": [np.nan_to_num(position)],
        "shifted": shifted(importance, settings.random_draws, random.spawn(1)[0]),
    }
    mean = np.broadcast_to(series.mean(0), series.shape)
    copies = [phase_randomised(series, random) for _ in range(settings.surrogates)]
    parts = []
    for block, replacements in ((1, [mean]), (settings.block, copies)):
        orders = [[block_ranks(draw, block) for draw in scores[order]] for order in ORDERS[:-1]]
        draws = [random_ranks(len(series), block, random) for _ in range(settings.random_draws)]
        masks = [mask for order in orders for ranks in order for mask in replaced(ranks, settings.steps)]
        # random orders are only deleted: their insertion is their deletion from its end to its start, because the
        # reverse of a random order is as random
        masks += [replaced(ranks, settings.steps)[0] for ranks in draws]
        unique, inverse = np.unique(np.concatenate(masks), axis=0, return_inverse=True)
        found = np.mean([probability(other, unique) for other in replacements], axis=0)
        curves = found[inverse.ravel()].reshape(len(masks), settings.steps + 1)
        known, deleted = np.split(curves, [-len(draws)])
        starts, lengths = np.cumsum([0, *map(len, orders[:-1])]), np.array([len(order) for order in orders])
        means = np.add.reduceat(known.reshape(-1, 2, settings.steps + 1), starts) / lengths[:, None, None]
        by_chance = deleted.mean(0)
        parts.append(np.concatenate([means, [[by_chance, by_chance[::-1]]]]))
    return np.stack(parts, axis=1)


def shifted(importance: Array, draws: int, random: np.random.Generator) -> list[Array]:
    """Shift importance circularly by random numbers of volumes, at least `SHORTEST_SHIFT` in either direction."""
    volumes = len(importance)
    least = min(max(1, int(np.ceil(SHORTEST_SHIFT * volumes))), volumes // 2)
    return [np.roll(importance, random.integers(least, volumes - least + 1)) for _ in range(draws)]


def block_ranks(scores: Array, block: int) -> Ranks:
    """Rank blocks of `block` volumes (the last may be shorter) by mean score, largest first; ties by position."""
    blocks = np.arange(len(scores)) // block
    means = np.bincount(blocks, weights=scores) / np.bincount(blocks)
    return np.argsort(np.argsort(-means, kind="stable"))[blocks]


def random_ranks(volumes: int, block: int, random: np.random.Generator) -> Ranks:
    """Rank blocks in random order."""
    blocks = np.arange(volumes) // block
    return random.permutation(blocks[-1] + 1)[blocks]


def replaced(ranks: Ranks, steps: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark the volumes that are replaced at each step of deletion, and of insertion; each (steps + 1, time).

    Insertion starts from a scan without any of its volumes and puts back the volumes of the lowest rank first.
    """
    n = ranks.max() + 1
    counts = np.floor(np.linspace(0, 1, steps + 1) * n + 0.5).astype(int)[:, None]
    return ranks < counts, ranks >= n - counts[::-1]


def phase_randomised(series: Array, random: np.random.Generator) -> Array:
    """Rotate the phase of every frequency by a random angle that is the same in all ROIs.

    Power and cross spectra are kept, and with them mean, variance, autocorrelation and covariance of the ROIs; timing
    is lost (Prichard and Theiler 1994, doi:10.1103/PhysRevLett.73.951).

    Parameters
    ----------
    series : float array (time, rois)
    random : numpy.random.Generator

    Returns
    -------
    float array (time, rois)
        In the precision of `series`.
    """
    volumes = len(series)
    spectrum = np.fft.rfft(series, axis=0)
    angles = random.uniform(0, 2 * np.pi, len(spectrum))
    angles[0] = 0  # the mean has no phase
    if volumes % 2 == 0:
        angles[-1] = 0  # nor has the Nyquist frequency
    rotated = np.fft.irfft(spectrum * np.exp(1j * angles)[:, None], n=volumes, axis=0)
    return rotated.astype(series.dtype, copy=False)
