"""Keys that do not apply to a model's inputs are refused before any work."""

import pytest

from bolt.config import Config, load_dataset
from bolt.io.errors import ConfigError
from bolt.workflow.checks import check_names
from tests.snake import write_yaml


def check(folder, model, dataset="series", **config):
    path = write_yaml(folder / "m.yaml", model)
    base = load_dataset("series").model_dump(mode="json") | {"path": str(folder)}
    about = base | (dataset if isinstance(dataset, dict) else {})
    data = write_yaml(folder / "d.yaml", about)
    check_names(Config(dataset=str(data), atlases=["cc200"], models=[str(path)], **config), load_dataset(str(data)))


BOLT, SVM = {"model": "bolt"}, {"model": "svm"}


def test_what_fits_passes(tmp_path):
    check(tmp_path, BOLT)
    check(tmp_path, SVM | {"harmonise": "combat", "fisher_z": True}, {"site": "site"})
    pooled = SVM | {"harmonise": "combat", "unseen_site": "pooled"}
    check(tmp_path, pooled, {"site": "site"}, folds={"scheme": "leave-site-out"})


@pytest.mark.parametrize(
    ("model", "dataset", "config", "message"),
    [
        (BOLT | {"harmonise": "combat"}, {}, {}, "'harmonise' is for vectors of connectivity.*z-scoring"),
        (BOLT | {"fisher_z": True}, {}, {}, "'fisher_z' is for vectors of connectivity"),
        (SVM | {"training": {"epochs": 3}}, {}, {}, "'svm' has no epochs"),
        (SVM | {"by_dataset": {"abide1": {"training": {"epochs": 3}}}}, {}, {}, "'svm' has no epochs"),
        (SVM, {"classes": None}, {}, "'svm' needs classes.*these take numbers: .*bolt_small"),
        (SVM | {"harmonise": "other"}, {}, {}, "'harmonise'"),
        (SVM | {"covariates": ["age"]}, {"age": "age"}, {}, "'svm' takes none"),
        (SVM | {"harmonise": "combat"}, {"site": None}, {}, "needs sites"),
        ({"model": "logistic"}, {}, {}, "'logistic' needs at least one.*covariates: "),
        ({"model": "logistic", "covariates": ["site"]}, {"site": None}, {}, "has no 'site'"),
        ({"model": "majority", "fisher_z": True}, {}, {}, "'fisher_z' is for vectors of connectivity"),
        ({"model": "majority", "connectivity": "crop"}, {}, {}, "takes covariates"),
        (SVM | {"harmonise": "means", "preserve": ["age"]}, {"site": "site", "age": "age"}, {}, "what ComBat keeps"),
        (SVM | {"harmonise": "combat", "preserve": ["label"]}, {"site": "site"}, {}, "is the label itself"),
        ({"model": "tangent", "harmonise": "means"}, {"site": "site"}, {}, "'harmonise' makes no correlation matrices"),
        ({"model": "tangent", "fisher_z": True}, {}, {}, "'fisher_z' makes no correlation matrices"),
        (
            SVM | {"harmonise": "combat"},
            {"site": "site"},
            {"folds": {"scheme": "leave-site-out"}},
            "never seen in training.*unseen_site: pooled",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, model, dataset, config, message):
    with pytest.raises(ConfigError, match=message):
        check(tmp_path, model, dataset, **config)


def test_a_masked_task_that_the_dataset_does_not_have_is_met_before_any_work():
    dataset = load_dataset("hcp_task")
    config = Config(dataset="hcp_task", models=["bolt"], explain={"masked_task": "VM"})
    with pytest.raises(ConfigError, match=r"masked_task names 'VM'.*Known: EMOTION, .*WM"):
        check_names(config, dataset)


def test_a_fold_for_permuted_labels_that_is_not_run_is_met_before_any_work(tmp_path):
    folds = {"folds": {"outer": 4, "run": [0, 2]}}
    wrong = {"explain": {"sanity": {"permuted": True, "fold": 3}}}
    with pytest.raises(ConfigError, match=r"explain.sanity.fold is 3, but model 'm' runs folds 0, 2"):
        check(tmp_path, BOLT, **folds, **wrong)
    check(tmp_path, SVM, **folds, **wrong)
    check(tmp_path, BOLT, **folds, explain={"sanity": {"permuted": True, "fold": 2}})
