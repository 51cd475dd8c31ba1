"""On a cluster cheap steps are joined into few jobs. The cluster is a script that runs what is submitted."""

import pytest
import yaml

from bolt.config import ROOT, load_dataset
from bolt.io.files import read_table
from tests.fake_hcp import write_hcp
from tests.forks import PYTHON, jobs_as_forks
from tests.snake import TINY_MODEL, snakemake, write_yaml

PEOPLE = [f"1002{i:02d}" for i in range(4)]
TASKS = ["EMOTION", "GAMBLING"]
PARCELLATIONS = ["parcellations_0_parcellate", "parcellations_1_parcellate"]


@pytest.fixture
def config(tmp_path):
    write_hcp(tmp_path, PEOPLE, TASKS)
    cut = tmp_path / "HCP_1200/100201/MNINonLinear/Results/tfMRI_EMOTION_LR/tfMRI_EMOTION_LR.nii.gz"
    cut.write_bytes(cut.read_bytes()[:100_000])
    data = load_dataset("hcp_task").model_dump(mode="json", exclude={"name", "abide", "simulate", "expected", "paper"})
    data |= {"path": "HCP_1200", "subjects_table": "unrestricted.csv", "tasks": TASKS, "classes": TASKS}
    data["hcp"] = {"bucket": None}
    model = write_yaml(tmp_path / "tiny.yaml", TINY_MODEL)
    keys = {"dataset": str(write_yaml(tmp_path / "hcp_tiny.yaml", data)), "models": [str(model)]}
    keys |= {"atlases": ["dosenbach160"], "folds": {"outer": 2}}
    return write_yaml(tmp_path / "config.yaml", keys)


def cluster(folder, components):
    """The SLURM profile, a script in SLURM's place that runs jobs as forks; returns it and the list of what it got."""
    submitted = folder / "submitted.txt"
    script = folder / "submit.sh"
    forks = f"python {jobs_as_forks()[PYTHON]}; export -f python"
    job = """sed 's#[^ ]*/python[^ ]* -m snakemake#python -m snakemake#' "$2" | bash > /dev/null 2>&1"""
    script.write_text(f'#!/bin/bash\n{forks}\necho "$1" >> {submitted}\n{job}\necho $$\n')
    script.chmod(0o755)
    profile = yaml.safe_load((ROOT / "workflow/profiles/slurm/config.yaml").read_text())
    profile |= {"executor": "cluster-generic", "cluster-generic-submit-cmd": f"{script} {{name}}", "latency-wait": 5}
    profile |= {"seconds-between-status-checks": 1, "group-components": [f"parcellations={components}"], "jobs": 2}
    (folder / "profile").mkdir()
    write_yaml(folder / "profile/config.yaml", profile)
    return folder / "profile", submitted


@pytest.mark.slow
def test_parcellations_are_joined_and_a_bad_scan_harms_no_other(config, tmp_path):
    profile, submitted = cluster(tmp_path, components=4)
    done = snakemake(tmp_path, "folds", "--workflow-profile", str(profile), config=config)
    assert done.returncode == 0, done.stdout
    names = submitted.read_text().split()
    assert sorted(names) == ["cache", "exclusions", "folds", "index", *PARCELLATIONS, "quality"], names
    results = tmp_path / "results/hcp_tiny"
    assert len(read_table(results / "scans.tsv")) == 8
    excluded = read_table(results / "exclusions.tsv")
    assert excluded.scan_id.tolist() == ["sub-100201_task-EMOTION_dir-LR"] and excluded.stage.tolist() == ["parcellate"]
    assert len(read_table(results / "cache/dosenbach160/MNI152NLin6Asym-none/index.tsv")) == 7
