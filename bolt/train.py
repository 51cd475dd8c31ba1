"""One plain training loop for every torch model: seed, train, validate, keep, predict.

The test part of a fold is read once, after the last epoch. Order and crops of an epoch come from a seed made of (seed,
fold, epoch), dropout and whatever else a step draws from (seed, fold, epoch, step): an interrupted training goes on
exactly where it stopped, and nothing else that runs in the process can change it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from bolt.checkpoint import Progress, load_checkpoint, load_resume, remove_resume, save_checkpoint, save_resume
from bolt.config import Dataset, Model, Training
from bolt.errors import BoltError, ConfigError, DataError
from bolt.files import read_table, write_status, write_table, write_yaml
from bolt.models._base import SeriesModel
from bolt.models._registry import create_model
from bolt.predict import Scans, class_logits, predict, write_predictions
from bolt.provenance import fingerprint as code_fingerprint
from bolt.series import EXCLUSION_COLUMNS, SeriesCache

__all__ = ["learning_rate", "load_checkpoint", "predict", "train_fold"]

log = logging.getLogger(__name__)

HISTORY = {
    "epoch": "Epoch, from 1",
    "learning_rate": "Learning rate of the epoch's last step",
    "train_loss": "Mean over the training scans of cross entropy plus the model's own terms; crops, with dropout",
    "train_accuracy": "Share of training crops classified rightly while training",
    "validation_loss": "Mean cross entropy of the validation scans, each at its own length",
    "validation_accuracy": "Share of validation scans classified rightly",
}


@dataclass(frozen=True)
class Part:
    """The scans of one role, ready to learn from."""

    scans: Scans
    labels: Tensor  # (scans,) class numbers, on the device


def train_fold(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    *,
    fold: int,
    seed: int,
    out: Path,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Train a model on one fold and predict all of the fold's scans.

    A training that was killed goes on from its last whole epoch when called again; on the CPU its weights are the same
    to the last bit as without the kill.

    Parameters
    ----------
    cache : Path
        Folder of the cache.
    folds : Path
        ``folds.tsv``.
    model : Model
    dataset : Dataset
        Its classes and the length of a crop.
    fold, seed : int
    out : Path
        The run's ``fold-<k>``; receives ``checkpoint.*``, ``config.yaml``, ``history.tsv``, ``predictions.tsv``,
        ``exclusions.tsv`` (scans too short for the model) and, last, ``status.json``.
    device : {"auto", "cpu", "cuda"}
    threads : int, optional
        CPU threads of torch; by default left alone.

    Raises
    ------
    DataError
        A class without a training scan, no test scan, a series that is not finite.
    ConfigError
        Unknown model or setting; a crop shorter than the model's window.
    BoltError
        A loss that is not finite, with fold, epoch and step.
    """
    place = _prepare(out, device, threads)
    series = SeriesCache(cache)
    _seed(seed, fold)
    net = create_model(model.model, series.n_rois, len(dataset.classes), **model.hyper).to(place)
    table, too_short = _fold_table(series, folds, dataset, fold, net.min_length)
    crop = min(dataset.crop, int(table.loc[table.role == "train", "length"].max()))
    if crop < net.min_length:
        raise ConfigError(
            f"crops of {crop} volumes are shorter than the window of model '{model.name}', {net.min_length}",
            mend="Lengthen 'crop' of the dataset or shorten the window of the model",
        )
    fingerprint = _fingerprint(cache, table, model, dataset, fold, seed)

    def part(role: str) -> Part:
        rows = table[table.role == role]
        return Part(Scans(series, rows.index.tolist(), place), torch.tensor(rows["class"].to_numpy(), device=place))

    validation = part("validation") if (table.role == "validation").any() else None
    progress = _fit(net, part("train"), validation, model, crop, fold=fold, seed=seed, out=out, fingerprint=fingerprint)
    settings = {"model": model.model_dump(mode="json"), "fold": fold, "seed": seed}
    about = {"n_rois": series.n_rois, "classes": dataset.classes, "rois": series.rois["value"].tolist()}
    save_checkpoint(out, net, {**settings, **about, "crop": crop, "epoch": progress.epoch})
    write_yaml({**settings, "dataset": dataset.model_dump(mode="json")}, out / "config.yaml")
    write_table(too_short, out / "exclusions.tsv", EXCLUSION_COLUMNS)
    probabilities = predict(net, series, table.index.tolist(), place)
    write_predictions(probabilities, table.assign(fold=fold, seed=seed), dataset.classes, out / "predictions.tsv")
    write_status(out / "status.json", "ok", "train")
    remove_resume(out)


def learning_rate(training: Training, epoch: float) -> float:
    """Learning rate after `epoch` epochs (fractions count): linear up to the peak, then linear down."""
    warm = min(training.warmup_epochs, training.epochs)
    if epoch < warm:
        return training.learning_rate + (training.peak_learning_rate - training.learning_rate) * epoch / warm
    down = (epoch - warm) / max(training.epochs - warm, 1)
    return training.peak_learning_rate + (training.final_learning_rate - training.peak_learning_rate) * down


def _prepare(out: Path, device: str, threads: int | None) -> torch.device:
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(".[0-9]*.*"):  # temporary files of a killed run; nobody else writes here
        left.unlink()
    if threads is not None:
        torch.set_num_threads(threads)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError("no CUDA device found", where="device", mend="Set 'device' to auto or cpu")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    log.info(
        "device: %s", torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    )
    return torch.device(device)


def _seed(seed: int, fold: int, epoch: int = 0, step: int = 0) -> None:
    """Seed torch's global state: for the initial weights (epoch 0), or for what one step draws (steps from 1)."""
    torch.manual_seed(int(np.random.SeedSequence([seed, fold, epoch, step]).generate_state(1)[0]))


def _generator(seed: int, fold: int, epoch: int) -> torch.Generator:
    """A generator for the order and the crops of one epoch."""
    own = np.random.SeedSequence([seed, fold, epoch]).generate_state(2)[1]
    return torch.Generator().manual_seed(int(own))


def _fold_table(
    series: SeriesCache, folds: Path, dataset: Dataset, fold: int, min_length: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the cache's index (by position, sorted by scan) with role and class; and the scans that are too short."""
    roles = read_table(folds, text=("scan_id", "subject", "group"))
    roles = roles.loc[roles["fold"] == fold].set_index("scan_id")["role"]
    index = series.index.reset_index(drop=True)
    table = index.assign(role=index["scan_id"].map(roles)).dropna(subset="role").sort_values("scan_id")
    missing = sorted(set(roles.index) - set(table["scan_id"]))
    if missing:
        log.warning("%d scans of fold %d are not in the cache: %s", len(missing), fold, ", ".join(missing))

    short = table["length"] < min_length
    reasons = [f"{n} volumes, fewer than the model's window of {min_length}" for n in table.loc[short, "length"]]
    too_short = pd.DataFrame({"scan_id": table.loc[short, "scan_id"], "stage": "train", "reason": reasons})
    for row in too_short.itertuples():
        log.warning("left out: %s: %s", row.scan_id, row.reason)
    table = table[~short]
    numbers = {name: number for number, name in enumerate(dataset.classes)}
    table = table.assign(**{"class": table["label"].map(numbers)})

    unknown = table[table["class"].isna()]
    if len(unknown):
        scan, label = unknown.iloc[0][["scan_id", "label"]]
        raise DataError(f"scan '{scan}' has label '{label}', not one of {dataset.classes}", mend="Correct 'classes'")
    for name in dataset.classes:
        if not ((table["label"] == name) & (table["role"] == "train")).any():
            raise DataError(
                f"fold {fold} has no training scan of class '{name}'", where=folds, mend="Use fewer folds or more scans"
            )
    if not (table["role"] == "test").any():
        raise DataError(f"fold {fold} has no test scan", where=folds, mend="Use fewer folds or more scans")
    return table.astype({"class": int}), too_short


def _fingerprint(cache: Path, table: pd.DataFrame, model: Model, dataset: Dataset, fold: int, seed: int) -> str:
    """Names what an interrupted training must share with this one to be gone on with."""
    manifest = hashlib.sha256((cache / "manifest.json").read_bytes()).hexdigest()
    scans = table[["scan_id", "role", "class", "length"]].to_csv()
    code = code_fingerprint("bolt.train", f"bolt.models.{model.model}")
    settings = [model.hash(), code, dataset.classes, dataset.crop, fold, seed, manifest, scans]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


def _fit(
    net: SeriesModel,
    train: Part,
    validation: Part | None,
    model: Model,
    crop: int,
    *,
    fold: int,
    seed: int,
    out: Path,
    fingerprint: str,
) -> Progress:
    """Train `net` in place and leave it with the weights of the chosen epoch."""
    training = model.training
    # decoupled weight decay; with the default of 0 it is the paper's Adam
    optimizer = torch.optim.AdamW(net.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    progress = load_resume(out, fingerprint, net, optimizer) or Progress()
    choose = training.epoch_choice == "best_validation" and validation is not None
    done, steps = len(progress.history), -(-len(train.scans) // training.batch_size)
    title = f"{model.name}, fold {fold}, seed {seed}"
    if done:
        log.info("%s: going on after epoch %d of %d", title, done, training.epochs)
    pause = 0.5 if sys.stderr.isatty() else 30  # seconds between lines of the bar; a log file needs few
    with tqdm(total=training.epochs * steps, initial=done * steps, desc=title, unit="step", mininterval=pause) as bar:
        for epoch in range(done + 1, training.epochs + 1):
            row = _epoch(net, optimizer, train, training, crop, seed, fold, epoch, bar)
            if validation:
                row |= _validate(net, validation)
            progress.history.append(row)
            if not choose:
                progress.epoch = epoch
            elif row["validation_loss"] <= min(past["validation_loss"] for past in progress.history):
                progress.epoch = epoch
                progress.chosen = {name: value.clone() for name, value in net.state_dict().items()}
            write_table(pd.DataFrame(progress.history).astype({"epoch": int}), out / "history.tsv", HISTORY)
            save_resume(out, fingerprint, net, optimizer, progress)
            bar.set_postfix({name: f"{value:.3g}" for name, value in row.items() if name != "epoch"})
    if choose:
        net.load_state_dict(progress.chosen)
    return progress


def _epoch(
    net: SeriesModel,
    optimizer: torch.optim.Optimizer,
    train: Part,
    training: Training,
    crop: int,
    seed: int,
    fold: int,
    epoch: int,
    bar: tqdm,
) -> dict[str, float]:
    """One pass over the training scans, a random crop of each; returns the epoch's row of the history so far."""
    net.train()
    random = _generator(seed, fold, epoch)
    batches = torch.randperm(len(train.scans), generator=random).split(training.batch_size)
    losses, right = [], []
    for step, batch in enumerate(batches, start=1):
        _seed(seed, fold, epoch, step)
        optimizer.param_groups[0]["lr"] = learning_rate(training, epoch - 1 + step / len(batches))
        labels = train.labels[batch.to(train.labels.device)]
        output = net(train.scans.crops(batch, crop, random))
        loss = cross_entropy(output.logits, labels) + sum(output.losses.values())
        optimizer.zero_grad()
        loss.backward()
        if training.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), training.clip_gradient)
        optimizer.step()
        losses.append(loss.detach())
        right.append((output.logits.argmax(-1) == labels).sum())
        bar.update()
    values = torch.stack(losses).double().cpu()  # looked at once an epoch: a look a step would make a GPU wait
    broken = (~values.isfinite()).nonzero()
    if len(broken):
        raise BoltError(
            f"the loss is not finite: {bar.desc}, epoch {epoch}, step {int(broken[0]) + 1}",
            mend="Lower the learning rate or set 'clip_gradient' in the model's configuration",
        )
    sizes = torch.tensor([len(batch) for batch in batches], dtype=torch.float64)
    return {
        "epoch": epoch,
        "learning_rate": optimizer.param_groups[0]["lr"],
        "train_loss": float((values * sizes).sum() / sizes.sum()),
        "train_accuracy": float(torch.stack(right).sum() / sizes.sum()),
    }


def _validate(net: SeriesModel, part: Part) -> dict[str, float]:
    logits = class_logits(net, part.scans)
    return {
        "validation_loss": float(cross_entropy(logits, part.labels)),
        "validation_accuracy": float((logits.argmax(-1) == part.labels).double().mean()),
    }
