"""The loop of one training, a step at a time, so that several trainings can take turns."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from bolt.config import Model
from bolt.io.errors import BoltError
from bolt.io.files import write_table
from bolt.io.resource_errors import is_shortage
from bolt.models.base import ConnectivityModel, ModelOutput, SeriesModel
from bolt.training.batch_splitting import Room, room_for
from bolt.training.checkpoint import Progress, load_resume, save_resume
from bolt.training.prediction import Scans, all_logits, forward
from bolt.training.schedule import learning_rate
from bolt.training.seeding import epoch_generator, seed_step
from bolt.training.targets import Classes, Target

log = logging.getLogger(__name__)

HISTORY = {
    "epoch": "Epoch, from 1",
    "learning_rate": "Learning rate of the epoch's last step",
    "train_loss": "Mean over the training scans of the loss (cross entropy; for numbers the squared error in standard "
    "deviations) plus the model's own terms; crops, with dropout",
    "train_accuracy": "Share of training crops classified rightly while training; with 'mixup' a crop counts by the "
    "class of its own scan, though more than half of it may be another's",
    "train_r2": "Explained share of the labels' variance, of training crops while training; with 'mixup' as above",
    "validation_loss": "Mean loss of the validation scans, each at its own length, without the model's own terms",
    "validation_accuracy": "Share of validation scans classified rightly",
    "validation_r2": "Explained share of the labels' variance, of validation scans",
}
FEWER = "Free memory, lower 'training: batch_size' in the model's configuration, or shorten 'crop' of the dataset"


@contextmanager
def _tensor_float(wanted: bool) -> Iterator[None]:
    """Let a GPU multiply float32 matrices in TensorFloat-32 within the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if wanted else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Part:
    """The scans of one role, ready to learn from."""

    scans: Scans
    truth: Tensor  # (scans,) labels as `bolt.training.targets` encodes them, on the device


@dataclass
class Fit:
    """One training: a model, its data, and where it leaves what it learns.

    Attributes
    ----------
    net : SeriesModel
        Trained in place.
    train : Part
    validation : Part or None
    target : Target
        What is predicted: gives loss and score.
    model : Model
        The configuration.
    crop : int
        Volumes of a training crop.
    fold, seed : int
    out : Path
        Receives ``history.tsv`` and, after each epoch, what a resumed training goes on from.
    fingerprint : str
        Names the settings and data; what other ones left is not gone on with.
    position : int
        Line of the progress bar among several.
    watch : callable
        Told the row of the history that each epoch has added, once it is kept; what it raises ends the training.
    """

    net: SeriesModel
    train: Part
    validation: Part | None
    target: Target
    model: Model
    crop: int
    fold: int
    seed: int
    out: Path
    fingerprint: str
    position: int = 0
    watch: Callable[[dict[str, float]], None] = lambda row: None

    @cached_property
    def room(self) -> Room:
        """How many scans of a batch are worked on at once."""
        return Room(self.net, self.title)

    @property
    def title(self) -> str:
        return f"{self.model.name}, fold {self.fold}, seed {self.seed}"

    def run(self) -> Generator[None, None, Progress]:
        """Train, pausing after every step; `net` is left with the weights of the chosen epoch.

        Raises
        ------
        BoltError
            A loss that is not finite, with fold, epoch and step.
        """
        training, start = self.model.training, time.monotonic()
        # without weight decay AdamW is the paper's Adam
        method = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
        optimizer = method(
            self.net.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True
        )
        progress = load_resume(self.out, self.fingerprint, self.net, optimizer) or Progress()
        choose = training.epoch_choice == "best_validation" and self.validation is not None
        done, steps = len(progress.history), -(-len(self.train.scans) // training.batch_size)
        if done:
            log.info("%s: going on after epoch %d of %d", self.title, done, training.epochs)
            for row in progress.history:
                self.watch(row)
        with tqdm(
            total=training.epochs * steps,
            initial=done * steps,
            desc=self.title,
            unit="step",
            position=self.position,
            mininterval=0.5 if sys.stderr.isatty() else 30,  # seconds between lines; a log file needs few
        ) as bar:
            for epoch in range(done + 1, training.epochs + 1):
                row = yield from self._epoch(optimizer, epoch, bar)
                if self.validation:
                    row |= self._validate(self.validation)
                self._check_finite(row, epoch)
                progress.history.append(row)
                if not choose:
                    progress.epoch = epoch
                elif row["validation_loss"] <= min(past["validation_loss"] for past in progress.history):
                    progress.epoch = epoch
                    progress.chosen = {name: value.clone() for name, value in self.net.state_dict().items()}
                write_table(pd.DataFrame(progress.history).astype({"epoch": int}), self.out / "history.tsv", HISTORY)
                save_resume(self.out, self.fingerprint, self.net, optimizer, progress)
                self.watch(row)
                bar.set_postfix({name: f"{value:.3g}" for name, value in row.items() if name != "epoch"})
        if choose:
            self.net.load_state_dict(progress.chosen)
        seconds = time.monotonic() - start
        samples = (training.epochs - done) * len(self.train.scans)
        log.info("%s: trained in %.1f s, %.1f samples/s", self.title, seconds, samples / max(seconds, 1e-9))
        return progress

    def _epoch(
        self, optimizer: torch.optim.Optimizer, epoch: int, bar: tqdm
    ) -> Generator[None, None, dict[str, float]]:
        """One pass over the training scans, a random crop of each; returns the epoch's row of the history so far.

        Losses are looked at once an epoch: a look a step would make a GPU wait.
        """
        random = epoch_generator(self.seed, self.fold, epoch)
        order = torch.randperm(len(self.train.scans), generator=random)
        size = self.model.training.batch_size
        batches = order.split(size)
        order = order.to(self.train.truth.device)
        truths = self.train.truth[order]
        known = self.train.scans.covariates
        covariates = [None] * len(batches) if known is None else known[order].split(size)
        losses, logits = [], []
        self.net.train()
        for step, batch in enumerate(zip(batches, covariates, truths.split(size), strict=True), start=1):
            seed = partial(seed_step, self.seed, self.fold, epoch, step)
            seed()
            optimizer.param_groups[0]["lr"] = learning_rate(self.model.training, epoch - 1 + step / len(batches))
            which, others, truth = batch
            with room_for(f"a batch of {len(which)} scans: {self.title}", FEWER):
                x = self._inputs(which, random)
            loss, output = self._step(optimizer, x, others, truth, seed)
            losses.append(loss)
            logits.append(output)
            bar.update()
            yield
        values = torch.stack(losses).double().cpu()
        broken = (~values.isfinite()).nonzero()
        if len(broken):
            raise BoltError(
                f"the loss is not finite: {self.title}, epoch {epoch}, step {int(broken[0]) + 1}",
                hint="Lower the learning rate or set 'clip_gradient' in the model's configuration",
            )
        sizes = torch.tensor([len(batch) for batch in batches], dtype=torch.float64)
        return {
            "epoch": epoch,
            "learning_rate": optimizer.param_groups[0]["lr"],
            "train_loss": float((values * sizes).sum() / sizes.sum()),
            f"train_{self.target.metric}": self.target.score(torch.cat(logits), truths),
        }

    def _inputs(self, which: Tensor, random: torch.Generator) -> Tensor:
        """What some training scans are learned from: random crops of their series (batch, time, rois), or matrices."""
        scans, net = self.train.scans, self.net
        if not isinstance(net, ConnectivityModel):
            return scans.crops(which, self.crop, random)
        whole, lengths = self.model.connectivity == "scan", torch.tensor(scans.lengths)[which]
        if not whole:  # a scan shorter than a crop is whole too: repeated, some of its volumes would weigh more
            lengths = lengths.clamp(max=self.crop)
        parts, order = [], []
        for length in lengths.unique():
            same = (lengths == length).nonzero()[:, 0]
            own = which[same]
            parts.append(net.matrices(scans.whole(own.tolist()) if whole else scans.crops(own, int(length), random)))
            order.append(same)
        return torch.cat(parts)[torch.cat(order).argsort()]

    def _ask(self, x: Tensor, covariates: Tensor | None) -> ModelOutput:
        """The model's word on what `_inputs` gave."""
        return self.net.classify(x) if isinstance(self.net, ConnectivityModel) else forward(self.net, x, covariates)

    def _loss(self, output: ModelOutput, logits: Tensor, truth: Tensor) -> Tensor:
        terms = list(output.losses.values())
        if isinstance(self.target, Classes) and not self.model.training.mixup:
            terms += self.net.label_losses(output, truth).values()
        return self.target.loss(logits, truth) + sum(term.float() for term in terms)

    def _step(
        self,
        optimizer: torch.optim.Optimizer,
        x: Tensor,
        covariates: Tensor | None,
        truth: Tensor,
        seed: Callable[[], None],
    ) -> tuple[Tensor, Tensor]:
        """Learn from one batch; returns loss and logits, on the device.

        `seed` is called before each attempt: what is drawn does not depend on how many did not fit in memory.

        Lower precision is for this pass alone: weights, optimiser and loss are float32, and so are validation and
        prediction, which makes what a checkpoint predicts independent of how it was trained.
        """
        training = self.model.training
        share, partner = 1.0, torch.arange(len(x), device=x.device)
        if training.mixup:  # Zhang et al. 2018, ICLR: one share for the whole batch
            share = float(torch.distributions.Beta(training.mixup, training.mixup).sample())
            partner = torch.randperm(len(x)).to(x.device)
            x = share * x + (1 - share) * x[partner]
            covariates = None if covariates is None else share * covariates + (1 - share) * covariates[partner]
        while True:
            optimizer.zero_grad()
            seed()
            try:
                parts = [
                    self._gradient(x[part], covariates if covariates is None else covariates[part],
                                   truth[part], truth[partner[part]], share, len(x))
                    for part in self.room.parts(len(x))
                ]  # fmt: skip
                break
            except (RuntimeError, MemoryError) as error:
                if not is_shortage(error):
                    raise
                on_gpu = isinstance(error, torch.OutOfMemoryError)
            self.room.shrink(len(x), on_gpu)  # here, where the failed pass holds nothing any more
        self.room.settle(len(x))
        if training.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), training.clip_gradient)
        with room_for(f"the optimiser's numbers: {self.title}", "Free memory, or choose a smaller model"):
            optimizer.step()  # the first makes two numbers a weight
        losses, logits = zip(*parts, strict=True)
        return torch.stack(losses).sum(), torch.cat(logits)

    def _gradient(
        self, x: Tensor, covariates: Tensor | None, truth: Tensor, other: Tensor, share: float, n: int
    ) -> tuple[Tensor, Tensor]:
        """Add what some scans say to the gradient of a batch of `n`; their part of its loss, and logits.

        `other` is the truth of the scans that they are mixed with, by 1 - `share`.
        """
        training = self.model.training
        with _tensor_float(training.precision == "tf32" and x.is_cuda):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
                output = self._ask(x, covariates)
            logits = output.logits.float()
            loss = self._loss(output, logits, truth)
            if training.mixup:
                loss = share * loss + (1 - share) * self._loss(output, logits, other)
            loss = loss * (len(x) / n)
            loss.backward()
        return loss.detach(), logits.detach()

    def _check_finite(self, row: dict[str, float], epoch: int) -> None:
        """Refuse what the last step of an epoch has broken: no later loss would show it."""
        whole = torch.stack([parameter.detach().isfinite().all() for parameter in self.net.parameters()]).all()
        if not whole or not np.isfinite(row.get("validation_loss", 0)):
            raise BoltError(
                f"weights or validation loss are not finite: {self.title}, after epoch {epoch}",
                hint="Lower the learning rate or set 'clip_gradient' in the model's configuration",
            )

    def _validate(self, part: Part) -> dict[str, float]:
        logits = all_logits(self.net, part.scans)
        return {
            "validation_loss": float(self.target.loss(logits, part.truth)),
            f"validation_{self.target.metric}": self.target.score(logits, part.truth),
        }
