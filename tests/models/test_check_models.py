"""Keys that do not apply to a model's inputs are refused before any work."""

import pytest

from bolt.config import ROOT, Config, load_dataset, load_model
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


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("results", {"paths": {"results": "my results"}}),
        ("work", {"paths": {"work": "my work"}}),
        ("dataset", {"dataset": "my study.yaml"}),
        ("denoise", {"denoise": "config/my cleaning.yaml"}),
        ("atlases", {"atlases": ["cc200", "atlases/my atlas"]}),
    ],
)
def test_a_name_that_becomes_a_path_has_no_space(key, change):
    config = Config(**{"dataset": "series", "atlases": ["cc200"], "models": ["svm"]} | change)
    with pytest.raises(ConfigError, match=f"'{key}' is not fit for paths and commands: .*my "):
        check_names(config, load_dataset("series"))


def test_nor_has_the_name_of_a_model(tmp_path):
    with pytest.raises(ConfigError, match="my model.yaml: 'name': .*cannot be used in file names"):
        load_model(str(write_yaml(tmp_path / "my model.yaml", BOLT)))


def test_the_files_as_shipped_pass(tmp_path):
    check(tmp_path, BOLT)
    check(tmp_path, SVM | {"harmonise": "combat", "fisher_z": True}, {"site": "site"})
    text = (ROOT / "config/models/svm.yaml").read_text()
    assert "harmonise: null" in text and "unseen_site: refuse" in text and "kernel: linear" in text


@pytest.mark.parametrize(
    ("model", "dataset", "config", "message"),
    [
        (BOLT | {"harmonise": "combat"}, {}, {}, "'harmonise' is for vectors of connectivity.*z-scoring"),
        (BOLT | {"fisher_z": True}, {}, {}, "'fisher_z' is for vectors of connectivity"),
        (SVM | {"training": {"epochs": 3}}, {}, {}, "'svm' has no epochs"),
        (SVM | {"by_dataset": {"abide1": {"training": {"epochs": 3}}}}, {}, {}, "'svm' has no epochs"),
        (SVM | {"covariates": ["age"]}, {"age": "age"}, {}, "'svm' takes none"),
        (SVM, {"classes": None}, {}, "'svm' needs classes"),
        (SVM | {"harmonise": "combat"}, {"site": None}, {}, "needs sites"),
        (SVM | {"harmonise": "other"}, {}, {}, "'harmonise'"),
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


def test_pooled_is_the_way_out_of_leave_site_out(tmp_path):
    model = SVM | {"harmonise": "combat", "unseen_site": "pooled"}
    check(tmp_path, model, {"site": "site"}, folds={"scheme": "leave-site-out"})


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
