"""What each model is and how it was trained, in words.

How a network was trained, in words: from its configuration, as `bolt.training` reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bolt.config import Dataset, Model, Training
from bolt.config.models import MIN_SCANS, told_apart
from bolt.jobs.versions import versions
from bolt.models.parts.linear import INNER_FOLDS
from bolt.models.parts.windows import window_volumes
from bolt.models.registry import crops_alike, default_of, has_epochs, ignores_tail, inputs_of, matrices_in_words
from bolt.models.ridge import PENALTIES
from bolt.models.tangent import SHRINKAGES
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
    """Describe the schedule, as `bolt.training.loop.learning_rate` computes it."""
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


HELD_OUT = (
    f"out-of-fold {{}} from cross-validation within the training set ({INNER_FOLDS} folds, or as many as the smallest "
    "class has subjects)"
)


def model_text(model: Model, dataset: Dataset, found: Sequence[Mapping[str, Any]] = ()) -> str:
    """Describe a model and its training; `found` is as in `network_text`."""
    if has_epochs(model.model):
        return network_text(model, dataset, found)
    model, dataset = model.on(dataset)
    sentences = [TEXTS.get(model.model, _other)(model, dataset), *_harmonisation(model)]
    if model.train_share < 1:
        sentences.append(f"Only {number(100 * model.train_share)} % of the training subjects were used.")
    sentences += searched_text(model)
    return " ".join(sentences)


def _svm(model: Model, dataset: Dataset) -> str:
    kernel = f"{_setting(model, 'kernel')} kernel"
    if _setting(model, "kernel") == "rbf":
        gamma = _setting(model, "gamma")
        width = "1 / (number of features × their variance)" if gamma == "scale" else number(gamma)
        kernel = f"radial basis function kernel, γ = {width}"
    text = (
        f"{model.shown}, a support vector machine [@scikit_learn] ({kernel}, C = {number(_setting(model, 'C'))}, "
        f"one-versus-one), was trained on {_correlations(model, dataset)}. "
    )
    if _setting(model, "calibration") == "platt":
        return text + (
            "For each pair of classes, a sigmoid of the decision value gives the probability of one of them "
            f"(Platt scaling [@platt]); it was fitted to {HELD_OUT.format('decision values')}. With more than two "
            "classes, the probabilities of all pairs were combined by pairwise coupling [@pairwise_coupling]. The most "
            "probable class was predicted."
        )
    return text + _softmax("decision scores")


def _ridge(model: Model, dataset: Dataset) -> str:
    tangent = ""
    if model.model == "tangent":
        shrinkage = _setting(model, "shrinkage")
        values = listed([number(value) for value in SHRINKAGES])
        weight = f"was chosen from {values} by the squared error of out-of-fold predictions"
        weight = weight if shrinkage is None else f"was {number(shrinkage)}"
        tangent = (
            f", as matrices shrunk towards the identity (whose weight {weight}) and "
            "projected onto the tangent space at the geometric mean of the training scans [@tangent] (nilearn "
            f"{versions()['nilearn']})"
        )
    spread = "times the scans' mean squared distance from their mean"
    if (penalty := _setting(model, "penalty")) is not None:
        chosen = f"Its penalty was {number(penalty)} {spread}."
    else:
        chosen = (
            f"Its penalty was chosen from {len(PENALTIES)} values, from 1/{number(1 / min(PENALTIES))} to "
            f"{number(max(PENALTIES))} {spread}, by the squared error of {HELD_OUT.format('predictions')}."
        )
    inputs = _correlations(model, dataset) + tangent
    return (
        f"{model.shown}, a kernel ridge regression of the classes, was trained on {inputs}. "
        f"{chosen} {_softmax('predictions', same=penalty is None)}"
    )


def _logistic(model: Model, dataset: Dataset) -> str:
    return (
        f"{model.shown}, a logistic regression [@scikit_learn] (L2 penalty, C = {number(_setting(model, 'C'))}), did "
        f"not read the ROI series: it was trained on {covariates_text(model.covariates)} alone."
    )


def _majority(model: Model, dataset: Dataset) -> str:
    return (
        f"{model.shown} always predicts the most frequent class of the training scans; its probabilities are the "
        "shares of the classes among them."
    )


def _ensemble(model: Model, dataset: Dataset) -> str:
    times = Counter(member.shown for member in told_apart(model.members))
    members = listed([f"{name} with {n} seeds" if n > 1 else name for name, n in times.items()])
    return (
        f"{model.shown} combined the predicted probabilities of {members}, trained in the same folds, by a weighted "
        "geometric mean (logarithmic opinion pool [@opinion_pool]). The temperature [@temperature] of each member and "
        "the weights were fitted to the validation scans of each fold; a prior that favours equal weights counted as "
        f"much as {number(_setting(model, 'prior'))} scans."
    )


def _other(model: Model, dataset: Dataset) -> str:
    """Describe a model that users have added."""
    inputs = (
        covariates_text(model.covariates) if inputs_of(model.model) == "covariates" else _correlations(model, dataset)
    )
    about = f" ({model.description})" if model.description else ""
    return f"{model.shown}{about} was trained on {inputs or 'labels alone'}."


TEXTS: dict[str, Callable[[Model, Dataset], str]] = {
    "svm": _svm,
    "ridge": _ridge,
    "tangent": _ridge,
    "logistic": _logistic,
    "majority": _majority,
    "ensemble": _ensemble,
}


def _correlations(model: Model, dataset: Dataset) -> str:
    kind = "Fisher z-transformed " if model.fisher_z else ""
    part = "the whole scan"
    if model.connectivity == "crop":
        part = f"a random crop of at most {dataset.crop} volumes of each scan (test scans: over the whole scan)"
    return f"{kind}Pearson correlations between all pairs of ROIs over {part}"


def _softmax(scores: str, *, same: bool = False) -> str:
    """Describe temperature scaling; the folds are named unless they are the `same` as before."""
    held_out = f"the same out-of-fold {scores}" if same else HELD_OUT.format(scores)
    return (
        f"Class probabilities are the softmax of its {scores} multiplied by one factor (temperature scaling "
        f"[@temperature]), which was fitted to {held_out}."
    )


def _harmonisation(model: Model) -> list[str]:
    if not model.harmonise:
        return []
    if model.harmonise == "combat":
        kept = f"the effects of {covariates_text(model.preserve)} kept" if model.preserve else "without covariates"
        how = (
            "Site effects on the mean and variance of each correlation were removed with ComBat [@combat; "
            f"@combat_connectivity], estimated in the training set of each fold without labels, {kept}."
        )
    else:
        how = (
            "Differences between the sites' means of each correlation, estimated in the training set of each fold, "
            "were subtracted."
        )
    pooled = model.unseen_site == "pooled"
    unseen = "were left unchanged" if pooled else "were not accepted: their fold was counted as failed"
    return [how, f"Scans from sites with fewer than {MIN_SCANS} training scans {unseen}."]
