"""Each number in the text on a model without epochs is compared with the fitted model, and none is left over."""

import re
from collections import Counter
from importlib.metadata import version

import numpy as np
import pytest

from bolt.cohort.harmonise import SiteEffects
from bolt.config import Model, load_model
from bolt.io.files import read_json, read_table
from bolt.models import logistic, registry, ridge, svm
from bolt.models.ensemble import Ensemble
from bolt.models.majority import Majority
from bolt.models.parts import linear
from bolt.models.svm import SVM
from bolt.models.tangent import SHRINKAGES
from bolt.report.sections.methods import model_text
from bolt.series import connectivity
from bolt.training.features import load_trained
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds
from tests.caches import dataset, pack, scan_table, split
from tests.models.conformance import AT_ONCE, ENSEMBLES, small
from tests.report.sections.claims import Claims

CROP, SCANS = 30, 48
CLASSES = ["a", "b", "c"]
DATASET = dataset(CLASSES, CROP).model_copy(update={"site": "site"})


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Scans of three classes from two sites."""
    folder, random = tmp_path_factory.mktemp("toy"), np.random.default_rng(0)
    series = [random.standard_normal((40, 7)) for _ in range(SCANS)]
    labels = [CLASSES[i % 3] for i in range(SCANS)]
    scans = scan_table(labels, site=["a", "b"] * (SCANS // 2), mean_fd=random.random(SCANS))
    return pack(folder, series, scans), split(folder, scans, 3)


def with_settings(name, hyper=None, **top):
    model = load_model(name)
    return model.model_copy(update={"hyper": model.hyper | (hyper or {}), **top})


def quick(name):
    """Return a shipped model, members that have epochs at a small size and for two epochs."""
    model = small(name)
    short = {"epochs": 2, "warmup_epochs": 1}
    members = [one.model_copy(update={"training": one.training.model_copy(update=short)}) for one in model.members]
    return model.model_copy(update={"members": members})


VARIANTS = {
    "published SVM": lambda: with_settings("svm", {"kernel": "rbf", "calibration": "platt"}, connectivity="crop"),
    "SVM with numbers": lambda: with_settings("svm", {"kernel": "rbf", "gamma": 0.07, "C": 3.5}, fisher_z=True),
    "given penalty": lambda: with_settings("ridge", {"penalty": 0.6}, harmonise="means", unseen_site="pooled"),
    "other shrinkage": lambda: with_settings("tangent", {"shrinkage": 0.35, "penalty": 2}),
    "chosen shrinkage": lambda: with_settings("tangent", {"shrinkage": None}),
    "ComBat": lambda: with_settings("svm", harmonise="combat"),
    "ComBat, motion kept": lambda: with_settings("svm", harmonise="combat", preserve=["mean_fd"]),
    "other C": lambda: with_settings("motion_only", {"C": 0.3}, train_share=0.5),
    "other prior": lambda: with_settings("ensemble", {"prior": 7}),
    "defaults": lambda: Model(name="plain", model="tangent"),
}


class Witness:
    """What fitting a model used.

    Attributes
    ----------
    machines : list of dict
        Settings of each support vector machine or logistic regression of scikit-learn.
    grids : set of tuple
        Penalties that were tried.
    folds : set of int
        Numbers of inner folds.
    priors : set of float
    features : array
        Of the training scans of a support vector machine.
    lengths : set of int
        Volumes from which correlations of scans come.
    """

    def __init__(self, monkeypatch):
        self.machines, self.grids, self.folds, self.priors, self.lengths = [], set(), set(), set(), set()

        def noting(owner, name, note, after=False):
            real = getattr(owner, name)

            def noted(*given, **options):
                made = real(*given, **options)
                note(made if after else given)
                return made

            monkeypatch.setattr(owner, name, noted)

        for module, kind in ((svm, "SVC"), (logistic, "LogisticRegression")):
            noting(module, kind, lambda machine: self.machines.append(machine.get_params()), after=True)
        noting(ridge, "_regressions", lambda given: self.grids.add(given[2]))
        noting(linear, "StratifiedGroupKFold", lambda given: self.folds.add(given[0]))
        noting(SVM, "fit", lambda given: setattr(self, "features", given[1]))
        noting(Ensemble, "fit", lambda given: self.priors.add(given[0].prior))
        noting(connectivity, "connectivity", lambda given: self.lengths.add(len(given[0])))

    def train(self, toy, model, folder):
        (error,) = train_folds(*toy, model, DATASET, [Training(0, 0, folder)], device="cpu", progress=False)
        assert error is None
        self.folder, self.model = folder, load_trained(folder).model
        self.state = self.model.state()
        self.predictions = read_table(folder / "predictions.tsv", text=("scan_id", "label"))
        self.train_labels = self.predictions.loc[self.predictions["role"] == "train", "label"]


@pytest.mark.parametrize("name", [*AT_ONCE, *ENSEMBLES, *VARIANTS])
def test_every_number_is_what_the_fit_used(toy, tmp_path, monkeypatch, name):
    model = VARIANTS[name]() if name in VARIANTS else quick(name)
    used = Witness(monkeypatch)
    used.train(toy, model, tmp_path)
    text = model_text(model, DATASET)
    assert text.startswith(model.shown)
    claims = Claims(text.removeprefix(model.shown))
    COMPARISONS[model.model](claims, used)
    compare_crops(claims, used)
    compare_sites(claims, used)
    if "training subjects were used" in claims:
        everyone = 2 * SCANS / 3 - SCANS / 10
        share = claims.number("Only # % of the training subjects were used") / 100
        assert len(used.train_labels) == pytest.approx(share * everyone, abs=3)
    assert claims.left() == []


def compare_crops(claims, used):
    if "over a random crop" in claims:
        assert claims.number("over a random crop of at most # volumes of each scan") == min(used.lengths)
        assert "(test scans: over the whole scan)" in claims and used.lengths == {CROP, 40}
    elif "between all pairs of ROIs" in claims:
        assert "over the whole scan" in claims and used.lengths == {40}


def compare_sites(claims, used):
    effects = load_trained(used.folder).site_effects
    assert (effects is not None) == ("Scans from sites with fewer" in claims)
    if effects is None:
        return
    fewest = int(claims.number("Scans from sites with fewer than # training scans"))
    features = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    for n, known in ((fewest, True), (fewest - 1, False)):
        sites = ["a", "a", "a", "b", "b", "b", *["c"] * n]
        assert ("c" in SiteEffects.fit(features[: len(sites)], sites, "means").sites) == known
    if "ComBat" in claims:
        assert "mean and variance" in claims and not np.allclose(effects.scale, 1)
        assert ("the effects of mean framewise displacement kept" in claims) == (len(effects.effects) == 1)
        assert ("without covariates" in claims) == (len(effects.effects) == 0)
    else:
        assert "Differences between the sites' means" in claims and (effects.scale == 1).all()
    info = read_json(used.folder / "checkpoint.json")["model"]
    assert ("were left unchanged" in claims) == (info["unseen_site"] == "pooled")


def compare_held_out(claims, used):
    """The inner folds: five, or fewer with small classes, as the text says."""
    assert "or as many as the smallest class has subjects" in claims
    assert used.folds == {claims.number(r"cross-validation within the training set \(# folds")}
    assert used.train_labels.value_counts().min() > max(used.folds)
    few = np.repeat([0, 1], [3, 9])
    assert len(list(linear.inner_splits(few, np.arange(12), 2, 0))) == 3


def compare_softmax(claims, used):
    claims.words("multiplied by one factor")
    assert used.state["temperature"].size == 1
    assert "The softmax" not in claims and "Class probabilities are the softmax of its" in claims


def compare_svm(claims, used):
    claims.words("one-versus-one")
    assert len(used.state["intercept"]) == len(CLASSES) * (len(CLASSES) - 1) / 2
    assert {machine["C"] for machine in used.machines} == {claims.number("C = #, one-versus-one")}
    assert ("linear kernel" in claims) == ("weights" in used.state)
    if "radial basis function kernel" in claims:
        width = used.state["gamma"].item()
        if "γ = 1 / (number of features × their variance)" in claims:
            claims.words("γ = 1 / (number of features × their variance)")
            assert width == pytest.approx(1 / (used.features.shape[1] * used.features.var()), rel=1e-5)
        else:
            assert width == pytest.approx(claims.number("γ = #"), rel=1e-6)
    compare_held_out(claims, used)
    if "Platt scaling" not in claims:
        compare_softmax(claims, used)
        return
    claims.words("the probability of one of them")
    claims.words("With more than two classes")
    assert "temperature" not in used.state and used.state["sigmoid"].shape == (3, 2) and "softmax" not in claims
    assert isinstance(used.model, SVM) and used.model.calibration == "platt"


def compare_ridge(claims, used):
    grid = max(used.grids, key=len)
    assert "the scans' mean squared distance from their mean" in claims
    if len(grid) == 1:
        assert claims.number("Its penalty was # times") == pytest.approx(grid[0], rel=1e-6)
        assert used.state["penalty"].item() == grid[0]
    else:
        n, smallest, largest = claims.numbers("chosen from # values, from # to # times")
        assert (n, smallest, largest) == (len(grid), pytest.approx(min(grid), rel=1e-6), max(grid))
        assert used.state["penalty"].item() in grid
    compare_held_out(claims, used)
    compare_softmax(claims, used)


def compare_tangent(claims, used):
    claims.words(f"nilearn {version('nilearn')}")
    if used.model.shrinkage is None:
        tried = [claims.number(r"chosen from #, "), claims.number(r"chosen from [0-9.]+, #, ")]
        tried += [claims.number(r"chosen from [0-9., ]+, # and "), claims.number(r"chosen from [0-9., ]+ and # by")]
        assert tuple(tried) == SHRINKAGES and used.model.state()["shrinkage"].item() in tried
    else:
        assert claims.number(r"whose weight was #\)") == used.model.shrinkage == used.model.state()["shrinkage"]
    matrix = used.model._matrices(np.ones((1, 21), np.float32), 0.2)[0]
    assert matrix[0, 1] == pytest.approx(0.8, rel=1e-6) and matrix[0, 0] == pytest.approx(1)
    compare_ridge(claims, used)


def compare_logistic(claims, used):
    (machine,) = used.machines
    assert machine["C"] == claims.number(r"L2 penalty, C = #\)") and machine.get("l1_ratio") in (None, 0, 0.0)
    info = read_json(used.folder / "checkpoint.json")
    [covariate] = info["model"]["covariates"]
    assert {"mean_fd": "mean framewise displacement"}.get(covariate, covariate) + " alone" in claims


def compare_majority(claims, used):
    shares = used.train_labels.value_counts(normalize=True).reindex(CLASSES)
    assert used.state["shares"] == pytest.approx(shares.to_numpy())
    assert "the shares of the classes among them" in claims


def compare_ensemble(claims, used):
    folders = sorted(path.parent for path in used.folder.glob("members/*/checkpoint.json"))
    infos = [read_json(folder / "checkpoint.json") for folder in folders]
    times = Counter(info["model"]["name"] for info in infos)
    for name, n in times.items():
        shown = load_model(name).shown
        assert shown in claims
        if n > 1:
            assert claims.number(rf"{re.escape(shown)} with # seeds") == n
            assert len({info["seed"] for info in infos if info["model"]["name"] == name}) == n
    assert used.state["weights"].sum() == pytest.approx(1) and len(used.state["temperatures"]) == len(infos)
    assert used.priors == {claims.number("a prior that favours equal weights counted as much as # scans")}


COMPARISONS = {
    "svm": compare_svm, "ridge": compare_ridge, "tangent": compare_tangent, "logistic": compare_logistic,
    "majority": compare_majority, "ensemble": compare_ensemble,
}  # fmt: skip


def test_a_model_of_a_user_is_described_by_its_file(monkeypatch):
    monkeypatch.setitem(registry._MODELS, "rule", Majority)
    model = Model(name="own", model="rule", description="a rule of mine")
    assert COMPARISONS.keys() >= {load_model(name).model for name in AT_ONCE + ENSEMBLES}
    assert model_text(model, DATASET) == "own (a rule of mine) was trained on labels alone."
