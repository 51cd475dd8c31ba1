"""How a network was trained, in words: from its configuration, as `bolt.training` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bolt.config import Dataset, Model, Training
from bolt.models.parts.windows import window_volumes
from bolt.models.registry import crops_alike, default_of, ignores_tail, inputs_of, matrices_in_words
from bolt.training.schedule import HIGH_BETA, LOW_BETA

SETTINGS = {
    "dropout": "dropout (rate {})",
    "attention_dropout": "dropout in attention layers (rate {})",
    "word_dropout": "dropout of the weights with which volumes and windows are pooled (rate {})",
    "input_dropout": "dropout of single ROI values (rate {})",
    "roi_dropout": "dropout of whole ROIs (rate {})",
    "drop_path": "stochastic depth (rate rising linearly to {} in the last block)",
    "cwr_weight": "cross-window regularisation (weight {})",
    "orthogonality_weight": "a penalty on ROI representations that are not orthogonal (weight {})",
    "unit_weight": "a unit loss on pooling vectors (weight {})",
    "pooling_weight": "a top-k pooling loss (weight {})",
    "consistency_weight": "a group-level consistency loss (weight {})",
}
"""Settings of models that regularise training, if they are not 0, and what they are."""
NEEDS_CLASSES = ("consistency_weight",)
"""Those without effect if the label is a number or scans are mixed (`SeriesModel.label_losses`)."""
COVARIATES = {"mean_fd": "mean framewise displacement", "n_volumes": "the number of volumes"}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def network_text(model: Model, dataset: Dataset, found: Sequence[Mapping[str, Any]] = ()) -> str:
    """Describe inputs, optimiser, learning rate and choice of the epoch of one network.

    Parameters
    ----------
    model : Model
    dataset : Dataset
    found : sequence of mapping
        Settings of the model in folds that were trained, with those that follow from the data (`tr` and `crop`).
    """
    model, dataset = model.on(dataset)
    t = model.training
    sentences = [
        f"{_named(model)} was trained on {_inputs(model, dataset)}.",
        *_parts(model, found),
        f"It was trained for {_epochs(t.epochs)} with {_optimiser(t)} and a batch size of {t.batch_size}{_batches(t)}.",
        _learning_rate(t),
        *_regularisation(model, dataset),
        *_precision(t),
        _choice(t),
    ]
    if model.train_share < 1:
        sentences.append(f"Only {number(100 * model.train_share)} % of the training subjects were used.")
    sentences += searched_text(model)
    up_to = ", up to the last whole window" if ignores_tail(model.model, model.hyper) else ""
    sentences.append(f"Test scans were used at full length{up_to}.")
    if model.fidelity and model.fidelity.level == "reconstructed":
        sentences.append(f"It is a reconstruction, not the original method: {model.fidelity.note}")
    return " ".join(sentences)


def searched_text(model: Model) -> list[str]:
    """Say that a search has chosen settings, if one has."""
    if model.by_fold:
        return ["In each fold, values that a search had chosen replaced some of these settings."]
    return ["A search had chosen some of these settings, the same for all folds."] if model.searched else []


def number(value: float) -> str:
    """Write a number as in an article: 0.0001, 2 × 10⁻⁷."""
    mantissa, e, exponent = f"{value:g}".partition("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}" if e else mantissa


def listed(parts: Sequence[str]) -> str:
    """Join words with commas, and the last with *and*."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def covariates_text(names: Sequence[str]) -> str:
    """List covariates in words."""
    return listed([COVARIATES.get(name, name) for name in names])


def _setting(model: Model, name: str, otherwise: Any = None) -> Any:
    """Return a setting of a model's class: as configured, or its default."""
    return model.hyper.get(name, default_of(model.model, name, otherwise))


def _named(model: Model) -> str:
    if model.model != "bolt":
        return model.shown
    return f"{model.shown} [@bolt]" if model.shown.startswith("BolT") else f"{model.shown} (BolT [@bolt])"


def _inputs(model: Model, dataset: Dataset) -> str:
    """Describe what a training step sees of a scan."""
    shortest, longest = model.training.crop_lengths(dataset.crop)
    range_ = f"{shortest} to {longest}" if shortest < longest else f"at most {longest}"
    alike = "in batches with shorter scans, as long as the shortest"
    crops = f"random crops of {range_} volumes ({alike if crops_alike(model.model) else 'shorter scans whole'})"
    if inputs_of(model.model) == "connectivity":
        source = "whole scans" if model.connectivity == "scan" else crops
        return f"{matrices_in_words(model.model)}, computed from {source}"
    return f"ROI series: {crops}"


def _parts(model: Model, found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe what a reader must know of a network besides its training."""
    sentences = []
    if model.model == "bolt":
        sentences.append(_architecture(model))
    if _setting(model, "window_seconds"):
        sentences.append(_windows(model, found))
    if (share := _setting(model, "edge_share")) and not _setting(model, "complete"):
        sentences.append(
            f"Edges joined the {number(100 * share)} % of ROI pairs with the largest partial correlations, where these "
            "were positive; an ROI without an edge was joined to that with which its partial correlation was largest."
        )
    elif share:
        sentences.append("All pairs of ROIs were joined, with the absolute partial correlation as weight.")
    if width := _setting(model, "correlations"):
        rate = _setting(model, "correlations_dropout")
        sentences.append(
            f"A layer of width {width} read the Pearson correlations between ROIs (dropout rate {number(rate)}); its "
            "output was appended to the features that the classifier reads."
        )
    if model.covariates:
        sentences.append(f"The classifier also received {covariates_text(model.covariates)}.")
    return sentences


def _architecture(model: Model) -> str:
    """Describe the blocks of BolT and their windows."""
    keys = ("n_blocks", "n_heads", "head_dim", "hidden", "window", "stride_coefficient", "fringe_coefficient")
    blocks, heads, dimensions, hidden, window, alpha, beta = (_setting(model, key) for key in keys)
    width = "as many as ROIs" if hidden is None else number(hidden)
    text = f"It has {blocks} transformer blocks of {heads} attention heads with {dimensions} dimensions each"
    text += f" (hidden dimensions: {width})"
    if not _setting(model, "windowed"):
        return f"{text}, which attend over all volumes."
    steps = [f"stride coefficient α = {number(alpha)}"] * (_setting(model, "stride") is None)
    steps += [f"fringe coefficient β = {number(beta)}"] * (_setting(model, "fringe") is None)
    by_share = f" ({', '.join(steps)})" if steps else ""
    return f"{text}, which attend within windows of {window} volumes{by_share}."


def _windows(model: Model, found: Sequence[Mapping[str, Any]]) -> str:
    """Describe windows that are given in seconds: in volumes, if it is known what the data made of them."""
    seconds, stride, least = (_setting(model, key) for key in ("window_seconds", "stride_seconds", "least_windows"))
    fewer = f"a training crop would otherwise hold fewer than {least}"
    tr = _setting(model, "tr")
    lengths = [(known.get("tr", tr), known["crop"]) for known in found if "crop" in known]
    windows = sorted({(window_volumes(seconds, stride, tr, crop, least), tr) for tr, crop in lengths})
    if not windows:
        return f"Its windows lasted {number(seconds)} s, or less where {fewer}."
    volumes = listed(list(dict.fromkeys(str(window) for window, _ in windows)))
    lasted = listed(list(dict.fromkeys(number(round(window * tr, 1)) for window, tr in windows)))
    text = f"Its windows had {volumes} volumes ({lasted} s)"
    shortened = any(window < round(seconds / tr) for window, tr in windows)
    return f"{text}, not {number(seconds)} s, because {fewer}." if shortened else f"{text}."


def _epochs(n: int) -> str:
    return "one epoch" if n == 1 else f"{n} epochs"


def _optimiser(t: Training) -> str:
    """Name the optimiser; AdamW without decay is Adam."""
    if not t.weight_decay:
        return "Adam"
    name, decay = {"adam": ("Adam", "L2 penalty"), "adamw": ("AdamW", "weight decay")}[t.optimizer]
    return f"{name} ({decay} {number(t.weight_decay)})"


def _batches(t: Training) -> str:
    return " (the same batches in every epoch)" if t.batches == "fixed" else ""


def _learning_rate(t: Training) -> str:
    """Describe the schedule, as `bolt.training.schedule.learning_rate` computes it."""
    first, peak, final = map(number, (t.learning_rate, t.peak_learning_rate, t.final_learning_rate))
    if t.schedule == "constant":
        return f"The learning rate was constant at {first}."
    warm = min(t.warmup_epochs, t.epochs)
    shape = " along half a cosine wave" if t.schedule in ("cosine", "one_cycle") else " linearly"
    changes = []
    if warm:
        change = "rose" if t.peak_learning_rate >= t.learning_rate else "fell"
        within = "the first epoch" if warm == 1 else f"the first {number(warm)} epochs"
        changes.append(f"{change}{shape} from {first} to {peak} over {within}")
    if warm < t.epochs and t.schedule == "step":
        steps = f"was multiplied by {number(t.step_factor)} every {_epochs(t.step_epochs)}"
        changes.append(steps if warm else f"started at {peak} and {steps}")
    elif warm < t.epochs:
        changes.append(f"fell{shape} to {final}" if warm else f"fell{shape} from {peak} to {final}")
    return f"The learning rate {', then '.join(changes)}.{_momentum(t, warm)}"


def _momentum(t: Training, warm: float) -> str:
    """Describe how Adam's first decay rate follows the learning rate of a one-cycle schedule."""
    if t.schedule != "one_cycle":
        return ""
    high, low = number(HIGH_BETA), number(LOW_BETA)
    parts = [f"fell from {high} to {low}"] if warm else []
    parts += [f"rose from {low} to {high}"] if warm < t.epochs else []
    return f" At the same time, Adam's β1 {', then '.join(parts)} (one-cycle schedule)."


def _regularisation(model: Model, dataset: Dataset) -> list[str]:
    """List dropout and the like."""
    t = model.training
    parts = [
        words.format(number(value))
        for name, words in SETTINGS.items()
        if (value := _setting(model, name)) and _has_effect(name, model, dataset)
    ]
    if _setting(model, "dropout") and _setting(model, "dropout_before_fusion"):
        parts[0] = parts[0].replace(
            ")", "; that of the output of attention was applied in each window, before windows were averaged)"
        )
    if t.mixup:
        parts.append(f"mixup of pairs of scans [@mixup] (α = {number(t.mixup)})")
    if t.label_smoothing and dataset.classes:
        parts.append(f"label smoothing [@label_smoothing] ({number(t.label_smoothing)})")
    if t.clip_gradient is not None:
        parts.append(f"clipping of gradients to a norm of {number(t.clip_gradient)}")
    return [f"Regularisation consisted of {listed(parts)}."] if parts else []


def _has_effect(name: str, model: Model, dataset: Dataset) -> bool:
    if name == "cwr_weight":
        return bool(_setting(model, "cls_token") == "local")
    return name not in NEEDS_CLASSES or bool(dataset.classes and not model.training.mixup)


def _precision(t: Training) -> list[str]:
    if t.precision == "float32":
        return []
    kind = {"bfloat16": "bfloat16", "tf32": "TensorFloat-32 where a GPU computed them"}[t.precision]
    return [f"Matrix products of training steps were computed in {kind}."]


def _choice(t: Training) -> str:
    epoch = "the last epoch" if t.epoch_choice == "last" else "the epoch with the lowest validation loss"
    average = f", averaged over steps (exponential moving average [@ema], decay {number(t.average_weights)}),"
    return f"The weights of {epoch}{average if t.average_weights else ''} were used."
