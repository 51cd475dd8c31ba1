"""Dry runs: what is asked for is planned, and what cannot be is refused in one line."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config import ROOT, Explain, load_config
from bolt.config.layout import Layout
from bolt.io.files import read_yaml, write_json
from bolt.workflow.estimate import job_counts
from bolt.workflow.run import Run
from bolt.workflow.stage import STAGES
from tests.fake_bids import write_bids
from tests.snake import TINY_MODEL, series_dataset, snakemake, write_yaml
from tests.stages import Wildcards

SCAN = "sub-01_task-rest"


def bids_config(folder, n_subjects=8, **config):
    write_bids(folder / "bids", n_subjects)
    data = {"source": "bids", "path": "bids", "label": "diagnosis", "classes": ["control", "patient"]}
    dataset = write_yaml(folder / "own.yaml", data)
    model = write_yaml(folder / "tiny.yaml", TINY_MODEL)
    keys = {"dataset": str(dataset), "models": [str(model)], "atlases": ["dosenbach160"], "folds": {"outer": 3}}
    return write_yaml(folder / "config.yaml", keys | config)


def make_up(layout, atlas, outputs=()):
    """Leave what all jobs up to the series of `bids_config` would have made, and more, as empty files."""
    outputs = [*layout.template_files.values(), layout.quality, *outputs]
    for subject in (f"sub-{i:02d}" for i in range(1, 9)):
        scan = f"{subject}_task-rest"
        outputs += [layout.anatomical_status(subject), *layout.anatomical_files(subject).values()]
        outputs += [layout.functional_status(scan), layout.series_status(scan), layout.series_file(scan, atlas)]
        outputs += [layout.bold(scan), layout.mask(scan), layout.confounds(scan)]
    for path in outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"state": "ok"}' if path.suffix == ".json" else "")


def jobs(output: str) -> dict[str, int]:
    """Rule to number of jobs, from the last table of a dry run."""
    table = output.rsplit("Job stats:", 1)[1].split("total")[0]
    return {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}


def last_line(output: str) -> str:
    return output.strip().splitlines()[-1]


def planned_by(folder, *arguments, config, **more) -> tuple[dict[str, int], str]:
    """Jobs of a dry run, and what it prints."""
    done = snakemake(folder, "-n", *arguments, config=config, **more)
    assert done.returncode == 0, done.stdout
    return jobs(done.stdout), done.stdout


def jobs_said(output: str) -> int:
    """The number in the last line of a dry run, which counts all jobs but the target rule."""
    return int(re.search(r"(\d+) jobs", last_line(output))[1])


def read_by_stages(run: Run) -> dict[str, str]:
    """What each stage that has re-run triggers reads of the configuration."""
    params = {name: run.params(name) for name in STAGES}
    return {name: own["settings"](None) for name, own in params.items() if "settings" in own}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """Nine people in BIDS, one of them without a T1w image, and what was planned before they were listed."""
    folder = tmp_path_factory.mktemp("indexed")
    config = bids_config(folder, n_subjects=9)
    (folder / "bids/sub-03/anat/sub-03_T1w.nii.gz").unlink()
    series = f"results/own/series/MNI152NLin6Asym-none/{SCAN}/{SCAN}_atlas-dosenbach160_timeseries.npy"
    before = [planned_by(folder, *targets, config=config)[0] for targets in ([], [series])]
    assert snakemake(folder, "index", config=config).returncode == 0
    return folder, config, before


@pytest.fixture
def keys(tmp_path):
    """A configuration of ready series."""
    return read_yaml(series_dataset(tmp_path))


def test_the_shipped_configuration_plans_the_phantom(tmp_path):
    planned, said = planned_by(tmp_path, config=ROOT / "config/config.yaml")
    assert planned["simulate"] == planned["index"] == planned["truth"] == planned["report"] == 1
    assert planned["train_fold"] == 8  # four folds, and the oracle's four
    assert re.match(r"A complete run: 24 scans, \d+ jobs, .* GB of disk and .*", last_line(said))


def test_the_usable_scans_are_known_after_the_index(indexed):
    folder, config, (before, before_of_one) = indexed
    assert "anatomical" not in before and before_of_one == {"index": 1, "parcellate": 1}
    planned, said = planned_by(folder, config=config)
    assert planned["anatomical"] == planned["functional"] == planned["parcellate"] == 8
    assert planned["train_fold"] == planned["explain_fold"] == 3
    assert planned["tasks"] == 1  # images in BIDS may have events beside them
    assert last_line(said).startswith("A complete run: 8 scans, ")
    assert jobs_said(said) == sum(planned.values()) - planned["all"] + 1  # the index is done


def test_output_in_the_scans_own_voxels_needs_no_new_anatomy_and_no_4d_image(indexed, monkeypatch):
    folder, config, _ = indexed
    native = {"preprocess": {"output": "native"}}
    planned, said = planned_by(folder, "-p", "--config", "preprocess={output: native}", config=config)
    assert planned["parcellate"] == planned["functional"] == 8 and "desc-preproc_bold" not in said
    assert len(re.findall(r"parcellate-scan .*from-T1w_to-MNI\S*_xfm\.h5", said)) == 8  # run again for other transforms
    monkeypatch.chdir(folder)
    run = Run(read_yaml(config) | native)
    assert run.layout.variant == "native-none"
    assert run.parcellate_inputs(SCAN)["bold"] == run.scans.bold[SCAN]
    before, sidecar = run.scan_settings(SCAN), folder / f"bids/sub-01/func/{SCAN}_bold.json"
    content, times = sidecar.read_bytes(), sidecar.stat()
    write_json(json.loads(content) | {"SliceTiming": [0.0, 0.5]}, sidecar)
    assert Run(read_yaml(config) | native).scan_settings(SCAN) != before  # slices timed anew run the scan again
    sidecar.write_bytes(content)
    os.utime(sidecar, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_replaced_scan_runs_its_jobs_again_even_if_it_is_older(indexed, monkeypatch):
    """As `rsync -a` and `cp -p` leave it; of other scans, and of fractions of seconds, nothing depends."""
    monkeypatch.chdir(indexed[0])
    images = [Path(f"bids/sub-{i:02d}/func/sub-{i:02d}_task-rest_bold.nii.gz") for i in (1, 2)]
    os.utime(images[0], (10, 10))
    os.utime(images[1], (10, 10))

    def read() -> list[str]:
        run = Run(read_yaml(indexed[1]))
        return [run.scan_settings(f"sub-{i:02d}_task-rest") for i in (1, 2)] + [run.stamps(run.t1w("sub-01"))]

    before = read()
    os.utime(images[0], (10.5, 10.5))
    assert read() == before
    os.utime(images[0], (5, 5))
    assert [one == other for one, other in zip(read(), before, strict=True)] == [False, True, True]
    images[1].rename("away")  # the plan says what is missing
    assert read()[1] != before[1]
    Path("away").rename(images[1])
    assert Run(read_yaml(indexed[1]) | {"dataset": "abide1"}).stamps(images) == "", "downloads may still be missing"


def test_a_subjects_job_on_a_cluster_does_not_wait_for_torch(indexed):
    one = ["--target-jobs", "anatomical:folder=sub-01,prefix=sub-01", "--mode", "remote"]
    one += ["--target-files-omit-workdir-adjustment"]
    env = {"PYTHONPROFILEIMPORTTIME": "1"}
    planned, said = planned_by(indexed[0], *one, config=indexed[1], env=env, fresh=True)
    assert planned.keys() <= {"template", "anatomical"}
    imported = set(re.findall(r"^import time: .*\| +(\w+)$", said, re.M))
    assert "pandas" in imported and not imported & {"torch", "sklearn", "nilearn"}


def test_ready_series_skip_the_images_also_on_slurm_which_is_asked_for_gpus(tmp_path):
    profile = ["--workflow-profile", str(ROOT / "workflow/profiles/slurm")]
    targets = ["series", "train", "tables", "figures"]
    planned, said = planned_by(tmp_path, *targets, *profile, config=series_dataset(tmp_path))
    assert not {"anatomical", "functional", "parcellate", "template", "truth", "quality", "tasks"} & set(planned)
    assert "report" not in planned
    assert planned["train_fold"] == 3 and "gres=gpu:1" in said


def test_one_fold_and_its_inner_folds_can_be_asked_for(tmp_path):
    config = series_dataset(tmp_path, folds={"outer": 3, "run": [1]}, explain={"inner_folds": 2})
    planned, said = planned_by(tmp_path, config=config)
    kinds = ("train_fold", "inner_folds", "train_inner", "explain_inner")
    assert [planned[kind] for kind in kinds] == [1, 1, 2, 1]
    assert jobs_said(said) == sum(planned.values()) - 1


def test_a_refused_configuration_ends_snakemake_with_that_line(tmp_path):
    done = snakemake(tmp_path, config=series_dataset(tmp_path, n_subjects=4))
    assert done.returncode != 0 and "Traceback" not in done.stdout
    said = last_line(done.stdout)
    assert said.startswith("bolt: ") and "3 folds for 2 subjects of class a. Set 'folds: outer' to at most 2" in said
    assert not (tmp_path / "results").exists()


EXPLAINED = {"explain_fold", "explain_inner", "sanity", "faithfulness_fold"}
TRAINED = {"train", "train_inner", "search_fold", "measure_complexity", "train_permuted", "train_again"}
CHAIN = """
from bolt.workflow.snakemake import plan_anew_after_a_checkpoint

plan_anew_after_a_checkpoint()
rule all:
    input: "trained"
checkpoint index:
    output: "scans.tsv"
    params: files=lambda wildcards: open("listed").read()
    shell: "cp scans {output}; echo index >> ran"
rule cache:
    input: lambda wildcards: checkpoints.index.get() and [], scans="scans.tsv"
    output: "cache"
    shell: "cp {input.scans} {output}; echo cache >> ran"
rule train:
    input: "cache"
    output: "trained"
    shell: "cp {input} {output}; echo train >> ran"
"""
NEW_ATLAS = {"index", "parcellate", "regions"}
READ_BY = [
    ({"paths": {"work": "x"}, "bad_scans": "refuse", "watch": ["wandb"], "preprocess": {"threads": 2}}, set()),
    ({"parcellate": {"coverage": 0.7}}, {"parcellate", "quality_pages"}),
    ({"parcellate": {"uncovered": "drop-scan"}}, {"cache"}),
    ({"quality": {"max_mean_fd": 0.5}}, {"quality", "quality_pages"}),
    ({"explain": {"tokens": 7}}, {"regress_landmarks", "stability", "explanation"}),
    ({"explain": {"agreement": {"permutations": 99}}}, {"stability", "connections", "explanation"}),
    ({"explain": {"hrf_shift": 5, "trial_types": ["go"]}}, {"tasks", "explanation"}),
    ({"explain": {"inner_folds": 3}}, {"regress_landmarks", "inner_folds", "explanation"}),
    ({"explain": {"top_rois": 0.05}}, {"regions", "stability", "connections", "explanation"}),
    ({"explain": {"sanity": {"draws": 3}}}, {"sanity", "explanation"}),
    ({"explain": {"sanity": {"fold": 1}}}, {"train_permuted", "train_again", "explanation"}),
    ({"explain": {"faithfulness": {"steps": 7}}}, {"faithfulness_fold", "explanation"}),
    ({"device": "cpu"}, TRAINED | EXPLAINED),
    ({"folds": {"outer": 3, "seed": 5}}, {"folds", "inner_folds"}),
    ({"preprocess": {"resolution": 3.0}}, {"functional"}),
    ({"preprocess": {"slice_timing": "off"}}, {"functional"}),
    ({"preprocess": {"steady_state": 3}}, {"functional"}),
    ({"preprocess": {"output": "native"}}, {"functional", "parcellate"}),
    ({"preprocess": {"registration": "testing"}}, {"anatomical", "functional"}),
    ({"preprocess": {"registration": ["fast", "testing"]}}, {"anatomical"}),
    ({"denoise": "36p"}, {"parcellate"}),
    ({"atlases": ["cc200"]}, NEW_ATLAS),
    ({"atlases": ["schaefer200_17"]}, NEW_ATLAS),  # not staged here
]


def test_which_triggers_each_stage_has(keys):
    """Its code and settings, unless it only downloads; and what its jobs are about, where a file does not say it."""
    run = Run(keys)
    for name, stage in STAGES.items():
        config, named, *triggers = run.params(name)
        downloads = name in ("download", "resources", "ledger")
        assert [config, named, *triggers[:2]] == ["config", "named", *["settings", "code"] * (not downloads)], name
        of_model = stage.trains or stage.applies or name.startswith("choose")
        about = {"experiments": "experiment", "scans": "scan"}.get(stage.module, "model" if of_model else None)
        about = "atlas" if name == "rois" else about
        assert triggers[2:] == [about] * (about is not None and stage.keys[:1] not in ([], ["folder"])), name


def test_what_a_change_runs_again(keys):
    """Each key changes the settings of the stages that read it, and of no other but the report, which prints all."""
    before = read_by_stages(Run(keys))
    for change, stages in READ_BY:
        after = read_by_stages(Run(keys | change))
        found = {stage for stage in after if after[stage] != before[stage]}
        if "atlases" in change:
            found -= {"explanation"}  # which reads the image alone, as far as that is staged
        assert found == stages | {"report"}, change


def test_what_is_stated_of_a_model_and_what_a_search_found_are_in_the_next_report(tmp_path, keys):
    keys = keys | {"paths": {"results": str(tmp_path / "results")}, "models": [str(tmp_path / "own.yaml")]}
    write_yaml(tmp_path / "rows.yaml", {"title": "Rows", "rows": [{"model": str(tmp_path / "own.yaml")}]})
    keys |= {"experiments": [str(tmp_path / "rows.yaml")]}
    svm, stated = {"model": "svm"}, {"family": "GNN", "fidelity": {"level": "core", "note": "Narrower."}}
    found = []
    for model, trial in ((svm, 1), (svm | {"family": "GNN"}, 1), (svm | stated, 1), (svm | stated, 2)):
        write_yaml(tmp_path / "own.yaml", model)
        run = Run(keys)
        study = run.layout.study("dosenbach160", "own", 0)
        write_json({"trial": trial}, study / "best.json")
        found.append((read_by_stages(run), run.experiment_settings("rows")))
    read, rows = zip(*found, strict=True)
    for before, after in pairwise(read):
        assert {stage for stage in after if after[stage] != before[stage]} == {"report"}
    assert len(set(rows)) == 3


def test_another_image_of_an_own_atlas_is_averaged_over_anew(tmp_path, keys):
    """Its description has no hash, and its table of labels may stay as it is."""
    folder = tmp_path / "mine"
    folder.mkdir()
    described = {"name": "mine", "spaces": ["MNI152NLin6Asym"], "file": "mine.nii.gz"}
    write_yaml(folder / "atlas.yaml", described | {"citation": "Smith 2020"})
    (folder / "labels.tsv").write_text("value\tname\tnetwork\themisphere\n1\tA\tN\tL\n")
    cited = read_by_stages(Run(keys | {"atlases": [str(folder)]}))
    write_yaml(folder / "atlas.yaml", described | {"citation": "Smith et al. 2020"})
    run = Run(keys | {"atlases": [str(folder)]})
    before = read_by_stages(run)
    assert {stage for stage in before if before[stage] != cited[stage]} == {"report"}
    assert "not staged" in before["parcellate"]
    (folder / "mine.nii.gz").write_bytes(b"another image")
    after = read_by_stages(run)
    assert {stage for stage in after if after[stage] != before[stage]} == {"parcellate", "regions", "explanation"}
    run = Run(keys | {"atlases": [str(tmp_path / "tpl-MNI_mine_dseg.nii.gz")]})
    ((atlas, alone),) = run.config.atlas_places.items()
    values = []
    for content in (b"a", b"b"):
        Path(alone).write_bytes(content)
        values.append(run.params("rois")["atlas"]({"atlas": atlas}))
    assert values[0] != values[1]


def test_a_measured_model_is_measured_again_with_other_settings(tmp_path, keys):
    experiment = {
        "title": "Cost",
        "complexity": {"lengths": [100, 200]},
        "rows": [{"model": str(tmp_path / "own.yaml")}],
    }
    write_yaml(tmp_path / "cost.yaml", experiment)
    keys = keys | {"experiments": [str(tmp_path / "cost.yaml")]}
    found = []
    for hidden in (16, 64):
        write_yaml(tmp_path / "own.yaml", {"model": "bolt", "hyper": {"hidden": hidden}})
        found.append(Run(keys).experiment_settings("cost"))
    assert found[0] != found[1]


def test_a_checkpoint_that_changed_nothing_runs_nothing(tmp_path):
    """Neither what reads its output, nor what reads that; a change of its output runs all."""
    (tmp_path / "Snakefile").write_text(CHAIN)
    for listed, scans, ran in [("1", "a", "index cache train"), ("2", "a", "index"), ("3", "b", "index cache train")]:
        (tmp_path / "listed").write_text(listed)
        (tmp_path / "scans").write_text(scans)
        (tmp_path / "ran").unlink(missing_ok=True)
        command = [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "all"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        assert (tmp_path / "ran").read_text().split() == ran.split()


def test_models_with_settings_for_the_papers_dataset_are_trained_again_as_that(tmp_path, keys):
    codes = []
    pool = write_yaml(tmp_path / "pool.yaml", {"model": "ensemble", "members": ["svm_published", "svm"]})
    for paper in (None, "abide1"):
        write_yaml(tmp_path / "own.yaml", read_yaml(ROOT / "config/datasets/phantom.yaml") | {"paper": paper})
        run = Run(keys | {"dataset": str(tmp_path / "own.yaml"), "models": ["svm_published", str(pool), "svm"]})
        codes.append([run.model_code(name) for name in run.models])
    assert [one == other for one, other in zip(*codes, strict=True)] == [False, False, True]


def test_what_one_stage_reads_is_put_together_without_the_others(indexed, monkeypatch):
    """Every job reads the Snakefile: it must not look at every file of a dataset for that."""
    monkeypatch.chdir(indexed[0])
    run = Run(read_yaml(indexed[1]))
    assert read_by_stages(run)
    monkeypatch.delattr("bolt.workflow.watched.atlas_files")
    assert all(run.params(stage)["settings"](None) for stage in ("index", "train"))


@pytest.mark.slow
def test_a_cutoff_runs_quality_again_and_no_preprocessing(tmp_path):
    """All that comes before is made up: empty files, said to be whole by `--touch`."""
    config = bids_config(tmp_path)
    assert snakemake(tmp_path, "results/own/scans.tsv", config=config).returncode == 0
    own = load_config(config)
    there = own.paths.model_copy(update={name: tmp_path / getattr(own.paths, name) for name in ("results", "work")})
    layout = Layout(own.model_copy(update={"paths": there}))
    make_up(layout, "dosenbach160")
    quality = str(layout.quality.relative_to(tmp_path))
    assert snakemake(tmp_path, "--touch", "--forceall", quality, config=config).returncode == 0
    assert "Nothing to be done" in snakemake(tmp_path, "-n", quality, config=config).stdout
    write_yaml(config, read_yaml(config) | {"quality": {"max_mean_fd": 0.5}})
    shutil.rmtree(tmp_path / "work", ignore_errors=True)  # it may be deleted
    assert set(planned_by(tmp_path, "series", config=config)[0]) == {"quality", "rois", "cache", "exclusions", "series"}
    planned = planned_by(tmp_path, "series", config=config)[0]
    for image, more in (
        ("func/sub-03_task-rest_bold", {"functional", "parcellate"}),
        ("anat/sub-03_T1w", {"anatomical"}),
    ):
        before = set(planned)
        os.utime(tmp_path / f"bids/sub-03/{image}.nii.gz", (9, 9))  # replaced by one that is older than what was made
        assert snakemake(tmp_path, "results/own/scans.tsv", config=config).returncode == 0  # looks the same
        planned = planned_by(tmp_path, "series", config=config)[0]
        assert set(planned) - before == more and planned["functional"] == 1
    assert snakemake(tmp_path, "--touch", quality, config=config).returncode == 0  # as if the times were lost
    assert "Nothing to be done" in snakemake(tmp_path, "-n", quality, config=config).stdout
    transform = layout.anatomical_files("sub-03")["forward"]  # deleted by hand, it is made again
    transform.unlink()
    assert planned_by(tmp_path, str(transform.relative_to(tmp_path)), config=config)[0].get("anatomical") == 1
    os.utime(tmp_path / "bids/sub-03/func/sub-03_task-rest_bold.json", (0, 0))  # mended, it may change the index
    assert planned_by(tmp_path, config=config)[0].get("index") == 1


def test_ready_series_are_judged_once_a_cutoff_can_be_known_of_them(series_run):
    lines = (series_run[0] / "results/mine/exclusions.tsv").read_text().splitlines()
    assert lines[1] == "sub-00_task-rest\tquality\tvolumes 40 is below the cut-off 41."
    assert len(lines) == 5  # every third of twelve is that short


@pytest.mark.slow
def test_a_mended_series_is_read_again(tmp_path):
    config = series_dataset(tmp_path)
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    write_yaml(config, read_yaml(config) | {"bad_scans": "refuse"})  # no scan changes by that
    assert "Nothing to be done" in snakemake(tmp_path, "series", config=config).stdout
    np.save(tmp_path / "series/sub-03_task-rest.npy", np.random.default_rng(9).standard_normal((61, 160)))
    assert {"cache", "exclusions"} <= set(planned_by(tmp_path, "series", config=config)[0])
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    for table in (tmp_path / "results/mine/scans.tsv", next((tmp_path / "results").rglob("index.tsv"))):
        assert pd.read_csv(table, sep="\t").set_index("scan_id").n_volumes["sub-03_task-rest"] == 61
    assert "Nothing to be done" in snakemake(tmp_path, "series", config=config).stdout
    os.utime(tmp_path / "series/sub-04_task-rest.npy", (9, 9))  # replaced by one as large, but older
    assert {"index", "cache"} <= set(planned_by(tmp_path, "series", config=config)[0])
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    assert "Nothing to be done" in snakemake(tmp_path, "series", config=config).stdout


def test_a_dry_run_leaves_the_configuration_of_a_run_alone(series_run):
    folder, config, _ = series_run
    before = (folder / "results/mine/config.yaml").read_text()
    planned_by(folder, "--config", "seeds=[7]", config=config)
    assert (folder / "results/mine/config.yaml").read_text() == before


def test_a_run_goes_on_where_it_was_when_a_folder_is_moved_to_another_disk(series_run):
    """As the remedy for a full disk says."""
    folder, config, _ = series_run
    for name in ("results/mine/cache", "results", "work"):
        place = (folder / name).rename(folder / f"disk-{name.replace('/', '-')}")
        (folder / name).symlink_to(place)
    assert "Nothing to be done" in snakemake(folder, "series", config=config).stdout


def test_lint_finds_nothing(tmp_path):
    done = snakemake(tmp_path, "--lint", config=series_dataset(tmp_path))
    assert done.returncode == 0 and "Congratulations" in done.stdout


@pytest.mark.parametrize(
    ("config", "trained"),
    [
        ({}, ["explain/dosenbach160/{v}/{m}/seed-0/retrained"]),
        ({"seeds": [0, 1]}, [f"runs/dosenbach160/{{v}}/{{m}}/seed-1/fold-{fold}" for fold in range(3)]),
        ({"explain": {"sanity": {"retrained": False}}}, []),
        ({"explain": {"sanity": {"draws": 0, "permuted": False}}}, []),  # nothing to control
    ],
)
def test_the_control_of_the_sanity_checks_is_another_seed_or_one_more_training(keys, config, trained):
    run = Run(keys | config)
    (name,), variant = run.models, run.layout.variant
    wildcards = Wildcards(atlas="dosenbach160", model=name, seed="0", variant=variant)
    files = [path for path in run.retrained_models(wildcards) if path.name == "checkpoint.safetensors"]
    folders = [str(path.parent.relative_to(run.layout.results)) for path in files]
    assert folders == [place.format(v=variant, m=name) for place in trained]
    assert job_counts(run)["train_again"] == sum(folder.endswith("retrained") for folder in folders)


def test_untrained_importance_is_made_where_scans_may_have_events(tmp_path, keys, indexed, monkeypatch):
    assert Run(keys).untrained_importance(tmp_path) == []
    monkeypatch.chdir(indexed[0])
    run, made = Run(read_yaml(indexed[1])), {"importance_untrained.npy", "importance_untrained.tsv"}
    assert {path.name for path in run.untrained_importance(tmp_path)} == made
    assert {path.name for path in run.kept()} >= made | {"tasks.tsv"}


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_what_runs_networks_on_a_gpu_asks_for_one(keys, device):
    """Jobs whose results depend on the device find what `device` names, on a cluster too."""
    run, other = (Run(keys | {"device": name}) for name in (device, "cpu" if device == "cuda" else "cuda"))
    wildcards, read, others = Wildcards(model=next(iter(run.models))), read_by_stages(run), read_by_stages(other)
    of_device = {name for name in read if read[name] != others[name]} - {"report"}
    assert of_device == {name for name, stage in STAGES.items() if stage.trains or stage.applies}
    asking = {name for name in of_device if (gres := run.resources(name).get("gres")) and gres(wildcards) == "gpu:1"}
    trained = {name for name in of_device if STAGES[name].trains}
    assert asking == {"cpu": set(), "auto": trained, "cuda": of_device}[device]


def test_every_key_of_explanations_runs_a_stage_again():
    """Stages list the keys that they read: a new one must be in a list. The page itself reads all."""
    read = str([stage.settings for name, stage in STAGES.items() if name != "explanation"])
    assert [key for key in Explain.model_fields if f"'{key}'" not in read and f"explain.{key}" not in read] == []
