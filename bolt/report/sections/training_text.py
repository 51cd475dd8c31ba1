"""How a network was trained, in words: from its configuration, as `bolt.training` reads it."""

from __future__ import annotations

from collections import Counter

from bolt.config import Dataset, Model, Training
from bolt.models.registry import crops_alike, inputs_of
from bolt.training.schedule import HIGH_BETA, LOW_BETA

SETTINGS = {
    "dropout": "dropout",
    "input_dropout": "dropout of ROI values",
    "roi_dropout": "dropout of whole ROIs",
    "correlations": "a layer for Pearson correlations, whose output joins the features before the classifier, of width",
    "cwr_weight": "cross-window regularisation weight",
}
"""Settings of models that a reader needs, and what they are."""


def network_text(model: Model, dataset: Dataset) -> str:
    """Describe inputs, optimiser, learning rate and choice of the epoch of one network."""
    model, dataset = model.on(dataset)
    t = model.training
    text = (
        f"{_named(model)} was trained on {_inputs(model, dataset)} for {_epochs(t.epochs)} with {_optimiser(t)}, "
        f"a batch size of {t.batch_size}{_batches(t)} and {_learning_rate(t)}{_regularisation(model)}; {_choice(t)}."
    )
    if model.train_share < 1:
        text += f" Only {100 * model.train_share:g} % of the training subjects were used."
    if model.by_fold:
        text += " Settings that a search chose for single folds differ from these."
    text += " Test scans were used at full length."
    if model.fidelity and model.fidelity.level == "reconstructed":
        text += f" It is a reconstruction, not the original method: {model.fidelity.note}"
    return text


def members_text(model: Model) -> str:
    """Name the members of an ensemble, and how often each was trained."""
    times = Counter(member.name for member in model.members)
    return listed([f"{name} (trained with {n} seeds)" if n > 1 else name for name, n in times.items()])


def _named(model: Model) -> str:
    return f"{model.name} (BolT [@bolt])" if model.model == "bolt" else model.name


def _inputs(model: Model, dataset: Dataset) -> str:
    """Describe what a training step sees of a scan."""
    shortest, longest = model.training.crop_lengths(dataset.crop)
    range_ = f"{shortest} to {longest}" if shortest < longest else f"at most {longest}"
    alike = "in batches with shorter scans, as long as the shortest"
    crops = f"random crops of {range_} volumes ({alike if crops_alike(model.model) else 'shorter scans whole'})"
    if inputs_of(model.model) == "connectivity":
        seen = "connectivity matrices of " + ("whole scans" if model.connectivity == "scan" else crops)
    else:
        seen = f"ROI series: {crops}"
    return seen + (f", and on {listed(model.covariates)}" if model.covariates else "")


def _epochs(n: int) -> str:
    return "one epoch" if n == 1 else f"{n} epochs"


def _optimiser(t: Training) -> str:
    """Name the optimiser; AdamW without decay is Adam."""
    if not t.weight_decay:
        return "Adam"
    decay = {"adam": "Adam (L2 penalty {:g})", "adamw": "AdamW (weight decay {:g})"}[t.optimizer]
    return decay.format(t.weight_decay)


def _batches(t: Training) -> str:
    return " (the same batches in every epoch)" if t.batches == "fixed" else ""


def _learning_rate(t: Training) -> str:
    """Describe the schedule, as `bolt.training.schedule.learning_rate` computes it."""
    if t.schedule == "constant":
        return f"a constant learning rate of {t.learning_rate:g}"
    warm = min(t.warmup_epochs, t.epochs)
    shape = " along half a cosine wave" if t.schedule in ("cosine", "one_cycle") else " linearly"
    rise, start = "", f"{t.peak_learning_rate:g}"
    if warm:
        change = "rose" if t.peak_learning_rate >= t.learning_rate else "fell"
        within = "the first epoch" if warm == 1 else f"the first {warm:g} epochs"
        ramp = " linearly" if t.schedule == "step" else shape
        rise = f"{change}{ramp} from {t.learning_rate:g} to {start} over {within}"
    if warm >= t.epochs:
        return f"a learning rate that {rise}{_momentum(t, warm)}"
    if t.schedule == "step":
        steps = f"was multiplied by {t.step_factor:g} every {t.step_epochs} epochs"
        return f"a learning rate that {rise}, then {steps}" if rise else f"a learning rate of {start} that {steps}"
    end = f"fell{shape} to {t.final_learning_rate:g}"
    text = f"a learning rate that {rise}, then {end}" if rise else f"a learning rate that {end}, from {start}"
    return text + _momentum(t, warm)


def _momentum(t: Training, warm: float) -> str:
    """Describe how Adam's first decay rate follows the learning rate of a one-cycle schedule."""
    if t.schedule != "one_cycle":
        return ""
    parts = [f"fell from {HIGH_BETA:g} to {LOW_BETA:g}"] if warm else []
    parts += [f"rose from {LOW_BETA:g} to {HIGH_BETA:g}"] if warm < t.epochs else []
    return f" (one cycle: Adam's β1 {', then '.join(parts)} at the same time)"


def _regularisation(model: Model) -> str:
    """List dropout and the like."""
    t = model.training
    parts = [f"{words} {model.hyper[name]:g}" for name, words in SETTINGS.items() if model.hyper.get(name)]
    if model.hyper.get("dropout_before_fusion"):
        parts[0] += " (of attention outputs: in each window, before fusion)"
    if t.mixup:
        parts.append(f"mixup of pairs of scans [@mixup] (α = {t.mixup:g})")
    if t.label_smoothing:
        parts.append(f"label smoothing [@label_smoothing] of {t.label_smoothing:g}")
    if t.clip_gradient is not None:
        parts.append(f"gradients clipped at a norm of {t.clip_gradient:g}")
    if t.precision == "bfloat16":
        parts.append("matrix products of training steps in bfloat16")
    if t.precision == "tf32":
        parts.append("matrix products of training steps in TensorFloat-32 where a GPU computed them")
    return f", {listed(parts)}" if parts else ""


def _choice(t: Training) -> str:
    epoch = "the last epoch" if t.epoch_choice == "last" else "the epoch with the lowest validation loss"
    average = f", averaged over steps (exponential moving average [@ema], decay {t.average_weights:g})"
    return f"the weights of {epoch} were used" + (average if t.average_weights else "")


def listed(parts: list[str]) -> str:
    """Join words with commas, and the last with *and*."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
