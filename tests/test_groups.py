"""Jobs that a cluster joins have the name of their group from the start; the profiles say how many."""

from types import SimpleNamespace

import pytest
import yaml

from bolt.config import ROOT
from bolt.groups import joined


def workflow(**components):
    return SimpleNamespace(group_settings=SimpleNamespace(group_components=components), parent_groupids={})


def test_neighbours_share_a_group():
    flow = workflow(trainings=2)
    groups = [joined(flow, "trainings", "svm_0", fold) for fold in range(5)]
    assert groups == ["trainings_svm_0_0"] * 2 + ["trainings_svm_0_1"] * 2 + ["trainings_svm_0_2"]
    assert set(flow.parent_groupids) == set(groups) and set(flow.parent_groupids.values()) == {"trainings"}


def test_without_a_number_none_are_joined():
    assert joined(workflow(), "parcellations", "", 7) == "parcellations_7"
    assert joined(SimpleNamespace(group_settings=None, parent_groupids={}), "parcellations", "", 7) == "parcellations_7"


def profile(name):
    return yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text())


@pytest.mark.parametrize(
    "key", ["jobs", "retries", "group-components", "resources", "set-resource-scopes", "default-resources"]
)
def test_both_profiles_of_clusters_say_the_same(key):
    assert profile("generic")[key] == profile("slurm")[key]


def test_snakemake_finds_the_default_profile():
    assert (ROOT / "profiles/default/config.yaml").samefile(ROOT / "workflow/profiles/default/config.yaml")
    assert "resources" not in profile("default")  # they would replace those of `--profile …/slurm`
