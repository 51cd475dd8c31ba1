"""What each model is and how it was trained, in words; networks are in `bolt.report.sections.training_text`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bolt.config import Dataset, Model
from bolt.config.models import MIN_SCANS, told_apart
from bolt.jobs.versions import versions
from bolt.models.parts.linear import INNER_FOLDS
from bolt.models.registry import default_of, has_epochs, inputs_of
from bolt.models.ridge import PENALTIES
from bolt.models.tangent import SHRINKAGES
from bolt.report.sections.training_text import covariates_text, listed, network_text, number, searched_text

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


def _setting(model: Model, name: str) -> Any:
    return model.hyper.get(name, default_of(model.model, name, None))


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
