"""What a training of a network really used, noted while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bolt.config import Dataset, Model
from bolt.io.files import read_json, read_table
from bolt.series.cache import SeriesCache
from bolt.training import batches, loop
from bolt.training.outputs import Training
from bolt.training.prediction import Scans
from bolt.training.runner import train_folds


class Witness:
    """A training of fold 0, and what its steps used.

    Attributes
    ----------
    fit : Fit
        Finished: `fit.net` has the weights of the chosen epoch.
    batches : list of list of int
        Training scans of each step.
    rates, momenta, decays : list of float
        Learning rate, Adam's first beta and weight decay of each step.
    optimiser : str
    crops : list of (array, array, list of int)
        The whole series (time, rois) of a training scan, the crop that was drawn from it, and the lengths of all scans
        from which crops were drawn at the same time.
    passes : list of (int, list of int)
        Volumes of what the network was given, and how many of each scan in it were its own.
    smoothing, clips, mixing, averaging : set of float
        Label smoothing, norms, parameters of Beta distributions, decays of the moving average.
    precisions : set of torch.dtype
        Of the logits in training.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[int]] = []
        self.rates: list[float] = []
        self.momenta: list[float] = []
        self.decays: list[float] = []
        self.optimiser = ""
        self.crops: list[tuple[np.ndarray, np.ndarray, list[int]]] = []
        self.passes: list[tuple[int, list[int]]] = []
        self.smoothing: set[float] = set()
        self.clips: set[float] = set()
        self.mixing: set[float] = set()
        self.averaging: set[float] = set()
        self.precisions: set[torch.dtype] = set()
        self._patch(monkeypatch)

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for owner, name, note in (
            (loop.Fit, "run", lambda fit: setattr(self, "fit", fit)),
            (loop.Fit, "_inputs", lambda fit, batch, *_: self.batches.append(batch.tolist())),
            (loop.Fit, "_step", self._note_step),
            (torch.nn.utils, "clip_grad_norm_", lambda _, norm: self.clips.add(norm)),
        ):
            monkeypatch.setattr(owner, name, _noting(getattr(owner, name), note))
        generator = batches.mixing_generator
        monkeypatch.setattr(batches, "mixing_generator", lambda *key: _Draws(generator(*key), self.mixing))
        entropy, crops, ahead = torch.nn.functional.cross_entropy, Scans.crops, loop.Fit._forward

        def cross_entropy(*rest: Any, label_smoothing: float = 0.0) -> Tensor:
            if torch.is_grad_enabled():
                self.smoothing.add(label_smoothing)
            return entropy(*rest, label_smoothing=label_smoothing)

        def crops_of(scans: Scans, which: Tensor, length: int, random: torch.Generator) -> Tensor:
            x = crops(scans, which, length, random)
            for i, crop in zip(which.tolist(), x, strict=True):
                of_batch = [scans.lengths[i] for i in which.tolist()]
                self.crops.append((scans.whole([i])[0].numpy(), crop.numpy(), of_batch))
            return x

        def forward(fit: loop.Fit, x: Tensor, lengths: list[int], covariates: Tensor | None) -> Any:
            self.passes.append((x.shape[1], list(lengths)))
            output = ahead(fit, x, lengths, covariates)
            self.precisions.add(output.logits.dtype)
            return output

        monkeypatch.setattr(torch.nn.functional, "cross_entropy", cross_entropy)
        monkeypatch.setattr(Scans, "crops", crops_of)
        monkeypatch.setattr(loop.Fit, "_forward", forward)
        monkeypatch.setattr(loop.Fit, "_step", self._following_average(loop.Fit._step))

    def _note_step(self, fit: loop.Fit, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        (group,) = optimizer.param_groups
        self.rates.append(group["lr"])
        self.momenta.append(group["betas"][0])
        self.decays.append(group["weight_decay"])
        self.optimiser = type(optimizer).__name__

    def _following_average(self, step: Any) -> Any:
        """Find the decay of the moving average from the weights before and after a step."""

        def watched(fit: loop.Fit, *rest: Any) -> Any:
            before = _vector(fit.average.module) if fit.average else None
            first = fit.average is not None and int(fit.average.n_averaged) == 0
            result = step(fit, *rest)
            if fit.average and before is not None and not first:
                now, weights = _vector(fit.average.module), _vector(fit.net)
                far = (before - weights).abs().argmax()
                self.averaging.add(float((now - weights)[far] / (before - weights)[far]))
            return result

        return watched

    def train(self, toy: tuple[Path, Path], model: Model, dataset: Dataset, folder: Path) -> None:
        """Train fold 0 and read its files."""
        (error,) = train_folds(*toy, model, dataset, [Training(0, 0, folder)], device="cpu", progress=False)
        assert error is None
        self.series = SeriesCache(toy[0])
        self.history = read_table(folder / "history.tsv")
        self.info = read_json(folder / "checkpoint.json")
        self.predictions = read_table(folder / "predictions.tsv", text=("scan_id",)).set_index("scan_id")

    def series_of(self, scan: str) -> np.ndarray:
        """Return the whole series of a scan, (time, rois)."""
        return self.series.finite_series(list(self.series.index["scan_id"]).index(scan))


class _Draws:
    """A generator of random numbers that notes the parameters of Beta distributions."""

    def __init__(self, random: np.random.Generator, seen: set[float]) -> None:
        self.permutation, self._random, self._seen = random.permutation, random, seen

    def beta(self, a: float, b: float) -> float:
        self._seen.update((a, b))
        return self._random.beta(a, b)


def _noting(real: Any, note: Any) -> Any:
    def noted(*rest: Any, **options: Any) -> Any:
        note(*rest, **options)
        return real(*rest, **options)

    return noted


def _vector(net: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in net.parameters()])


def dropout_rates(net: torch.nn.Module) -> dict[str, float]:
    """Return all rates of dropout of a network that are not 0, by the place of the number in it."""
    rates = {}
    for path, module in net.named_modules():
        for name, value in vars(module).items():
            if (name == "p" or "drop" in name) and type(value) in (int, float) and value:
                rates[f"{path}.{name}"] = float(value)
    return rates


def loss_weights(net: torch.nn.Module) -> dict[str, float]:
    """Return the weights of a network's own losses that are not 0, by their names."""
    return {name: value for name, value in vars(net).items() if name.endswith("_weight") and value}
