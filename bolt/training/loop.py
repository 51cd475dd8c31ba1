"""Training loop of one model, which pauses after every step so that several trainings can take turns."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from bolt.config import Model
from bolt.io.errors import BoltError, MemoryShortage
from bolt.io.files import columns, write_table
from bolt.io.resource_errors import is_gpu_shortage, is_shortage
from bolt.models.base import ConnectivityModel, ModelOutput, SeriesModel
from bolt.models.parts.masks import given_seeds, new_seeds
from bolt.training.adam import Adam
from bolt.training.batches import (
    Batch,
    Draw,
    Key,
    Places,
    draw_mixture,
    epoch_generator,
    explain_shortage,
    learns_from_batches,
    mixed,
    needs_equal_lengths,
    restored,
    seed_step,
)
from bolt.training.checkpoint import Progress, load_resume, save_resume
from bolt.training.device import copied_to, has_tensor_float, tensor_float
from bolt.training.graph import StepGraphs
from bolt.training.outputs import Classes, Target
from bolt.training.prediction import Scans, all_logits, forward, read_on_device
from bolt.training.schedule import betas, learning_rate

log = logging.getLogger(__name__)

HISTORY = columns("training", "history")
SMALLER_BATCH = (
    "Free memory, lower 'training: batch_size' in the model's configuration, or shorten 'crop' of the dataset"
)
SEEDS = 1024  # of a step that a GPU replays: one for each place that drops
SECONDS_BETWEEN_SAVES = 60.0  # what a kill costs at most, besides the epoch that it interrupts
LOWER_RATE = "Lower the learning rate or set 'clip_gradient' in the model's configuration"


@dataclass
class Fit:
    """A model, its data, and the loop that fits one to the other.

    Attributes
    ----------
    net : SeriesModel
        Trained in place.
    train : Scans
        The training scans of the fold, with their labels.
    validation : Scans or None
    target : Target
        Gives loss and score.
    model : Model
        The configuration.
    crop : int
        Length of a training crop in volumes.
    fold, seed : int
    out : Path
        Receives ``history.tsv`` and, now and then, the state from which an interrupted training resumes.
    fingerprint : str
        Identifies settings and data; a state with another fingerprint is not resumed.
    position : int or None
        Line of the progress bar, among several; None: no bar.
    watch : callable
        Called with the row of the history after each epoch; an exception ends the training.
    part_size : int or None
        Scans that pass the model at once; None for whole batches, until a GPU runs out of memory.
    progress : Progress
        Of `run`.
    graphs : StepGraphs or None
        What replays steps, on a GPU.
    averaging : bool
        Whether the average of the weights has begun.
    """

    net: SeriesModel
    train: Scans
    validation: Scans | None
    target: Target
    model: Model
    crop: int
    fold: int
    seed: int
    out: Path
    fingerprint: str
    position: int | None = 0
    watch: Callable[[dict[str, float]], None] = lambda row: None
    part_size: int | None = None
    progress: Progress = field(init=False)
    graphs: StepGraphs | None = field(init=False, default=None)
    averaging: bool = field(init=False, default=False)

    @cached_property
    def average(self) -> SeriesModel | None:
        """Return a model with the moving average of the weights, if they are averaged (arXiv:1412.6980, 7.2)."""
        return deepcopy(self.net) if self.model.training.average_weights else None

    @property
    def used(self) -> SeriesModel:
        """Return the model that predicts: with averaged weights, if they are averaged."""
        return self.average or self.net

    def computed_by(self) -> dict[str, str]:
        """Return the device of the training, and the precision of its matrix products there."""
        device, precision = self.train.pool.device, self.model.training.precision
        precision = "float32" if precision == "tf32" and not has_tensor_float(device) else precision
        name = "cpu" if device.type == "cpu" else f"cuda: {torch.cuda.get_device_name(device)}"
        return {"device": name, "precision": precision}

    @property
    def title(self) -> str:
        """Return the name of this training in messages."""
        return f"{self.model.name}, fold {self.fold}, seed {self.seed}"

    def run(self) -> Iterator[None]:
        """Train, pausing after every step, and leave `net` with the weights of the chosen epoch.

        Raises
        ------
        BoltError
            The loss is not finite; names fold, epoch and step.
        """
        training, start = self.model.training, time.monotonic()
        optimizer = self.optimizer()
        self.progress = progress = load_resume(self.out, self.fingerprint, self.net, optimizer) or Progress()
        if self.average is not None and progress.average:
            self.average.load_state_dict(progress.average)
        self.averaging = bool(progress.average)
        choose = training.epoch_choice == "best_validation" and self.validation is not None
        done, steps = len(progress.history), -(-len(self.train) // training.batch_size)
        if done:
            log.info("%s: resuming after epoch %d of %d", self.title, done, training.epochs)
            for row in progress.history:
                self.watch(row)
        saved = time.monotonic()
        bar = tqdm(
            total=training.epochs * steps,
            initial=done * steps,
            desc=self.title,
            unit="step",
            position=self.position,
            disable=self.position is None,
            mininterval=0.5 if sys.stderr.isatty() else 30,  # seconds between updates; log files need few
        )
        with bar, nullcontext() if self.graphs is None else closing(self.graphs):
            for epoch in range(done + 1, training.epochs + 1):
                row = yield from self._epoch(optimizer, epoch, bar)
                if self.validation is not None:
                    row |= self._validate(self.validation)
                # weights broken by the last step of an epoch, which no later training loss would reveal
                finite = torch.stack([value.detach().isfinite().all() for value in self.net.parameters()]).all()
                if not finite or not np.isfinite(row.get("validation_loss", 0)):
                    problem = f"weights or validation loss are not finite: {self.title}, after epoch {epoch}"
                    raise BoltError(problem, hint=LOWER_RATE)
                progress.history.append(row)
                if not choose:
                    progress.epoch = epoch
                elif row["validation_loss"] <= min(past["validation_loss"] for past in progress.history):
                    progress.epoch = epoch
                    progress.chosen = {name: value.clone() for name, value in self.used.state_dict().items()}
                progress.average = {} if self.average is None else self.average.state_dict()
                write_table(pd.DataFrame(progress.history).astype({"epoch": int}), self.out / "history.tsv", HISTORY)
                if time.monotonic() - saved >= SECONDS_BETWEEN_SAVES:
                    save_resume(self.out, self.fingerprint, self.net, optimizer, progress)
                    saved = time.monotonic()
                self.watch(row)
                bar.set_postfix({name: f"{value:.3g}" for name, value in row.items() if name != "epoch"})
        if choose:
            self.net.load_state_dict(progress.chosen)
        elif self.average is not None:
            self.net.load_state_dict(self.used.state_dict())
        seconds = time.monotonic() - start
        samples = (training.epochs - done) * len(self.train)
        log.info("%s: trained in %.1f s, %.1f samples/s", self.title, seconds, samples / max(seconds, 1e-9))

    def optimizer(self) -> Adam:
        """Return a new optimiser, and prepare what replays steps on a GPU."""
        with explain_shortage(f"{self.title}: the state of the optimiser", "Free memory, or choose a smaller model"):
            optimizer = Adam(self.net.parameters(), self.model.training)
        if read_on_device(self.net, self.train.pool.device):
            device = self.train.pool.device
            self.graphs = StepGraphs(lambda *draw: self._whole_step(optimizer, Draw(*draw)), device)
        return optimizer

    def _epoch(self, optimizer: Adam, epoch: int, bar: tqdm) -> Generator[None, None, dict[str, float]]:
        """Train on a random crop of every training scan; return the epoch's row of the history.

        Losses are read once per epoch, because reading them at every step would make a GPU wait.
        """
        training, random = self.model.training, epoch_generator(self.seed, self.fold, epoch)
        fixed = training.batches == "fixed"  # then all epochs have the same order
        of_order = epoch_generator(self.seed, self.fold, 0) if fixed else random
        batches = list(torch.randperm(len(self.train), generator=of_order).split(training.batch_size))
        if self.net.takes_lengths:
            # scans that pass the model together, by the length of their crops: their windows are computed once for the
            # same lengths in the same order, which then differ in few batches
            batches = [batch[self._lengths(batch, self.crop).argsort(stable=True)] for batch in batches]
        losses, logits = [], []
        self.net.train()
        for step, batch in enumerate(batches, start=1):
            key = (self.seed, self.fold, epoch, step)
            now = training, epoch - 1 + step / len(batches), 1 / len(batches)
            optimizer.rate, optimizer.betas = learning_rate(*now), betas(*now)
            rates = optimizer.rates((epoch - 1) * len(batches) + step)
            with explain_shortage(f"{self.title}: a batch of {len(batch)} scans", SMALLER_BATCH):
                draw = self._draw(batch, random, key, rates)
            step_loss, step_logits = self._step(optimizer, draw, key)
            losses.append(step_loss)
            logits.append(step_logits)
            bar.update()
            yield
        values = torch.stack(losses).double().cpu()
        invalid = (~values.isfinite()).nonzero()
        if len(invalid):
            step = int(invalid[0]) + 1
            raise BoltError(f"the loss is not finite: {self.title}, epoch {epoch}, step {step}", hint=LOWER_RATE)
        sizes = torch.tensor([len(batch) for batch in batches], dtype=torch.float64)
        return {
            "epoch": epoch,
            "learning_rate": optimizer.rate,
            "train_loss": float((values * sizes).sum() / sizes.sum()),
            f"train_{self.target.metric}": self.target.score(torch.cat(logits), self._labels(torch.cat(batches))),
        }

    def _crop_length(self, batch: Tensor, random: torch.Generator) -> int:
        """Draw the length of a batch's crops, in volumes.

        If scans that must pass the model together can only do so with equal lengths, none is longer than the shortest.
        """
        crop = self.crop
        if self.model.training.crop_range is not None:
            shortest, longest = self.model.training.crop_lengths(crop)
            crop = int(torch.randint(shortest, longest + 1, (), generator=random))
        return int(self._lengths(batch, crop).min()) if needs_equal_lengths(self.net) else crop

    def _draw(self, batch: Tensor, random: torch.Generator, key: Key, rates: list[float]) -> Draw:
        """Draw what a step learns from: random crops, or connectivity, and how they are mixed."""
        mixup, scans, share, none = self.model.training.mixup, self.train, 1.0, batch[:0]
        crop, own, partner = self._crop_length(batch, random), none, none
        lengths = self._lengths(batch, crop)
        if mixup:
            share, own, partner = draw_mixture(lengths, mixup, key)
        if isinstance(self.net, ConnectivityModel):
            series = self._matrices(self.net, batch, crop, random)
        else:
            series = scans.rows(batch, crop, random)
            if scans.pool.data.device.type != scans.pool.device.type:
                series = scans.pool.data[series]
        seeds, numbers = none, torch.tensor([share, *rates], dtype=torch.float64)
        if self.graphs is not None:
            seed_step(*key)
            seeds = new_seeds(SEEDS)
        return Draw(batch, lengths, own, partner, seeds, numbers, series)

    def _matrices(self, net: ConnectivityModel, batch: Tensor, crop: int, random: torch.Generator) -> Tensor:
        """Return the connectivity matrices of a batch, of whole scans or of random crops."""
        scans = self.train
        if self.model.connectivity == "scan":
            return scans.matrices(net, batch.tolist())
        lengths = scans.lengths_of(batch, crop)  # a shorter scan is whole: if repeated, some volumes would weigh more
        matrices, order = [], []
        for length in lengths.unique():
            positions = (lengths == length).nonzero()[:, 0]
            matrices.append(net.matrices(scans.values(scans.rows(batch[positions], int(length), random))))
            order.append(positions)
        return torch.cat(matrices)[torch.cat(order).argsort()]

    def _labels(self, which: Tensor) -> Tensor:
        """Return the labels of some training scans."""
        truth = cast(Tensor, self.train.truth)
        return truth[copied_to(truth.device, which)]

    def _batch(self, draw: Draw, share: float | Tensor) -> Batch:
        """Return what is drawn, on the device; lengths stay where they are."""
        scans, device = self.train, self.train.pool.device
        rows = not draw.series.is_floating_point()
        x = scans.values(draw.series) if rows else copied_to(device, draw.series)
        covariates = None if scans.covariates is None else scans.covariates[copied_to(device, draw.which)]
        batch = Batch(x, draw.lengths, self._labels(draw.which), covariates)
        return mixed(batch, share, draw.own, draw.partner) if len(draw.own) else batch

    def _lengths(self, batch: Tensor, crop: int) -> Tensor:
        """Return the volumes of each input of a batch; connectivity matrices have no length, and count as equal."""
        if isinstance(self.net, ConnectivityModel):
            return torch.full((len(batch),), crop)
        return self.train.lengths_of(batch, crop)

    def _loss(self, output: ModelOutput, logits: Tensor, truth: Tensor) -> Tensor:
        """Sum the target's loss and the model's own terms."""
        terms = list(output.losses.values())
        if isinstance(self.target, Classes) and not self.model.training.mixup:
            terms += self.net.label_losses(output, truth).values()
        own = self.target.loss(logits, truth, self.model.training.label_smoothing)
        return own + sum(term.float() for term in terms)

    def _step(self, optimizer: Adam, draw: Draw, key: Key) -> tuple[Tensor, Tensor]:
        """Learn from one batch; return loss and logits, on the device, in the order of the batch.

        Scans shorter than a crop pass a model that takes no lengths apart from the others, so that nothing is made up
        to fill the crop (if its scans interact, all have the same length: `_crop_length`). Random numbers are drawn
        from `key` anew in each attempt, so that they do not depend on attempts that did not fit in memory.

        Lower precision applies to this pass only: weights, optimiser, loss, validation and prediction are float32, so
        that predictions of a checkpoint do not depend on the precision of its training.
        """
        n, device = len(draw.which), self.train.pool.device
        batch: Batch | None = None
        while True:
            try:
                if self.graphs is not None and self.part_size is None:
                    result = self.graphs(draw)
                    return result[0], result[1:].unflatten(0, (n, -1))
                if batch is None:
                    with explain_shortage(f"{self.title}: a batch of {n} scans", SMALLER_BATCH):
                        batch = self._batch(draw, float(draw.numbers[0]))
                self.net.zero_grad()
                seed_step(*key)
                parts = self._parts(batch.lengths, device)
                results = [self._gradient(batch.part(places), n) for places in parts]
                break
            except (RuntimeError, MemoryError) as error:
                if not is_shortage(error):
                    raise
                on_gpu = is_gpu_shortage(error)
            self._halve(n, on_gpu)  # outside 'except', where the memory of the failed pass is free
        if self.part_size is not None and self.part_size < n and learns_from_batches(self.net):
            problem = f"{self.title}: a batch of {n} scans does not fit in the GPU's memory"
            hint = f"Set 'training: batch_size: {self.part_size}' in the model's configuration: that fits"
            raise BoltError(f"{problem}, and this model's batches cannot be split", hint=hint)
        self._update(optimizer, None if self.graphs is None else copied_to(device, draw.numbers[1:].float()))
        losses, logits = zip(*results, strict=True)
        return torch.stack(losses).sum(), restored(torch.cat(logits), parts, draw.own if len(draw.own) else None)

    def _whole_step(self, optimizer: Adam, draw: Draw) -> Tensor:
        """Learn from a batch by what is on the device only; return loss and logits in one tensor."""
        share, *_ = numbers = draw.numbers.float()
        batch = self._batch(draw, share)
        self.net.zero_grad()
        with given_seeds(draw.seeds[i] for i in range(SEEDS)):
            loss, logits = self._gradient(batch, len(draw.which))
        self._update(optimizer, numbers[1:])
        if len(draw.own):
            logits = torch.empty_like(logits).index_copy_(0, draw.own, logits)
        return torch.cat([loss[None], logits.flatten()])

    def _update(self, optimizer: Adam, rates: Tensor | None) -> None:
        """Let the weights, and their average, follow the gradient."""
        if self.model.training.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.model.training.clip_gradient)
        with explain_shortage(f"{self.title}: an update of the weights", SMALLER_BATCH):  # which cannot be taken again
            optimizer.step(rates)
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        """Let the average follow the weights by a step; torch's `AveragedModel` would make a GPU wait."""
        if self.average is None:
            return
        weights, averaged = (cast("list[Tensor]", list(net.parameters())) for net in (self.net, self.average))
        decay = self.model.training.average_weights if self.averaging else 0.0
        torch._foreach_lerp_(averaged, weights, 1 - decay)
        for own, new in zip(self.average.buffers(), self.net.buffers(), strict=True):
            own.copy_(new)
        self.averaging = True

    def _parts(self, lengths: Tensor, device: torch.device) -> list[Places]:
        """Return the positions of the parts of a batch that pass the model together."""

        def parts(n: int) -> list[slice]:
            size = self.part_size or n
            return [slice(start, min(start + size, n)) for start in range(0, n, size)]

        different = lengths.unique()
        if len(different) == 1 or self.net.takes_lengths:
            return [(part, part) for part in parts(len(lengths))]
        groups = [(lengths == length).nonzero()[:, 0] for length in different]
        places = [group[part] for group in groups for part in parts(len(group))]
        return [(part, copied_to(device, part)) for part in places]

    def _halve(self, n: int, on_gpu: bool) -> None:
        """Halve the size of parts, after a part of a batch of `n` scans did not fit.

        Raises
        ------
        MemoryShortage
            A single scan does not fit; or the memory is not a GPU's, where smaller parts would hardly help.
        """
        size = min(self.part_size or n, n)
        if not on_gpu:
            raise MemoryShortage(
                f"{self.title}: a batch of {size} scans does not fit in the computer's memory",
                hint="Give the job more memory, run fewer jobs side by side, or lower 'training: batch_size' in the "
                "model's configuration",
            )
        if self.graphs is not None:
            self.graphs.close()  # parts are not replayed, and the graphs keep the memory of a step
        torch.cuda.empty_cache()
        if size == 1:
            hint = "Shorten 'crop' of the dataset, choose a smaller model, free the GPU, or set 'device: cpu'"
            raise MemoryShortage(f"{self.title}: a single scan does not fit in the GPU's memory", hint=hint)
        self.part_size = size // 2
        if not learns_from_batches(self.net):
            problem = "%s: %d scans do not fit in the GPU's memory, trying %d at a time"
            log.warning(problem, self.title, size, self.part_size)

    def _gradient(self, part: Batch, n: int) -> tuple[Tensor, Tensor]:
        """Add the gradient of some scans to that of a batch of `n`; return their share of its loss, and logits."""
        precision, device = self.model.training.precision, part.x.device
        with tensor_float(precision == "tf32" and part.x.is_cuda):
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                output = forward(self.net, part.x, part.lengths, part.covariates)
            logits = output.logits.float()
            loss = self._loss(output, logits, part.truth)
            if part.other is not None:
                loss = part.share * loss + (1 - part.share) * self._loss(output, logits, part.other)
            loss = loss * (len(part.x) / n)
            loss.backward()
        return loss.detach(), logits.detach()

    def _validate(self, validation: Scans) -> dict[str, float]:
        """Compute loss and score of the validation scans."""
        logits, truth = all_logits(self.used, validation), cast(Tensor, validation.truth)
        return {
            "validation_loss": float(self.target.loss(logits, truth)),
            f"validation_{self.target.metric}": self.target.score(logits, truth),
        }
