"""Jobs that a cluster joins have the name of their group from the start; the profiles say how many."""

import os
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.workflow.scan_files import ScanFiles
from bolt.workflow.snakemake import joined


def workflow(**components):
    return SimpleNamespace(group_settings=SimpleNamespace(group_components=components), parent_groupids={})


def test_neighbours_share_a_group():
    flow = workflow(trainings=2)
    groups = [joined(flow, "trainings", "svm_0", fold) for fold in range(5)]
    assert groups == ["trainings_svm_0_0"] * 2 + ["trainings_svm_0_1"] * 2 + ["trainings_svm_0_2"]
    assert set(flow.parent_groupids) == set(groups) and set(flow.parent_groupids.values()) == {"trainings"}


def test_without_a_number_none_are_joined():
    for flow in (workflow(), SimpleNamespace(group_settings=None, parent_groupids={})):
        assert joined(flow, "parcellations", "", 7) == "parcellations_7"


def write_scans(place, subjects):
    names = [f"sub-{i}_task-{task}" for task in ("a", "b") for i in subjects]
    table = pd.DataFrame({"scan_id": names, "kind": "raw", "exclude_reason": None})
    table.to_csv(place, sep="\t", index=False)


@pytest.fixture
def run(tmp_path):
    run = ScanFiles()
    run.layout = SimpleNamespace(scans=tmp_path / "scans.tsv")
    write_scans(run.layout.scans, range(4))
    return run


def test_scans_are_read_again_where_the_index_is_written_anew(run):
    assert len(run.scans) == 8
    with pytest.raises(KeyError):
        run.subject_group(workflow(), "sub-9")
    write_scans(run.layout.scans, range(10))
    os.utime(run.layout.scans, ns=(1, 1))
    assert len(run.scans) == 20 and run.subject_group(workflow(), "sub-9") == "subject_9"


def test_a_subject_is_one_job_and_several_are_where_they_are_joined(run):
    flow = workflow(subject=2)
    assert [run.subject_group(flow, f"sub-{i}") for i in range(4)] == ["subject_0"] * 2 + ["subject_1"] * 2
    assert run.parcellate_group(flow, "sub-3_task-b") == "subject_1"
    assert run.subject_group(workflow(), "sub-3") == "subject_3"


def profile(name):
    return yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text())


def test_both_profiles_of_clusters_say_the_same_but_for_the_gpu_of_any_job():
    """Snakemake refuses a command with a resource that a job lacks."""
    generic, slurm = profile("generic"), profile("slurm")
    generic["default-resources"].remove("gres=''")
    for key in ("jobs", "retries", "group-components", "resources", "set-resource-scopes", "default-resources"):
        assert generic[key] == slurm[key], key


def test_snakemake_finds_the_default_profile():
    assert (ROOT / "profiles/default/config.yaml").samefile(ROOT / "workflow/profiles/default/config.yaml")
    assert "resources" not in profile("default")  # they would replace those of `--profile …/slurm`
