"""Dry runs: what is asked for is planned, and what cannot be is refused in one line."""

import json
import os
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.io.files import write_json
from bolt.workflow.estimate import job_counts, plan_of
from bolt.workflow.run import Run
from bolt.workflow.stages import STAGES
from bolt.workflow.start import start
from tests.fake_bids import write_bids
from tests.snake import TINY_MODEL, series_dataset, snakemake, write_yaml


def bids_config(folder, n_subjects=8, **config):
    write_bids(folder / "bids", n_subjects)
    data = {"source": "bids", "path": "bids", "label": "diagnosis", "classes": ["control", "patient"]}
    dataset = write_yaml(folder / "own.yaml", data)
    model = write_yaml(folder / "tiny.yaml", TINY_MODEL)
    keys = {"dataset": str(dataset), "models": [str(model)], "atlases": ["dosenbach160"], "folds": {"outer": 3}}
    return write_yaml(folder / "config.yaml", keys | config)


def jobs(output: str) -> dict[str, int]:
    """Rule to number of jobs, from the last table of a dry run."""
    table = output.rsplit("Job stats:", 1)[1].split("total")[0]
    return {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}


def read_by(run: Run, stage: str) -> str:
    """What a stage reads of the configuration, as its jobs are told."""
    return run.params(stage)["settings"](None)


def last_line(output: str) -> str:
    return output.strip().splitlines()[-1]


def test_the_shipped_configuration_plans_the_phantom(tmp_path):
    done = snakemake(tmp_path, "-n", config=ROOT / "config/config.yaml")
    assert done.returncode == 0, done.stdout
    planned = jobs(done.stdout)
    assert planned["simulate"] == planned["index"] == planned["truth"] == planned["report"] == 1
    assert planned["train_fold"] == 8  # four folds, and the oracle's four
    assert re.match(r"A complete run: 24 scans, \d+ jobs, about [\d.]+ GB of disk and .*", last_line(done.stdout))


def test_the_scans_are_known_after_the_index(tmp_path):
    config = bids_config(tmp_path)
    before = snakemake(tmp_path, "-n", config=config)
    assert before.returncode == 0, before.stdout
    assert "anatomical" not in jobs(before.stdout)
    done = snakemake(tmp_path, "results/own/scans.tsv", config=config)
    assert done.returncode == 0, done.stdout
    after = snakemake(tmp_path, "-n", config=config)
    planned = jobs(after.stdout)
    assert planned["anatomical"] == planned["functional"] == planned["parcellate"] == 8
    assert planned["train_fold"] == planned["explain_fold"] == 3
    assert planned["tasks"] == 1  # images in BIDS may have events beside them
    assert "A complete run: 8 scans, " in last_line(after.stdout)
    said = int(re.search(r"(\d+) jobs", last_line(after.stdout))[1])
    assert said == sum(planned.values()) - planned["all"] + 1  # all but the target rule; the index is done


def test_a_file_of_a_scan_can_be_asked_for_before_the_index(tmp_path):
    series = "sub-01_task-rest/sub-01_task-rest_atlas-dosenbach160_timeseries.npy"
    target = f"results/own/series/MNI152NLin6Asym-none/{series}"
    done = snakemake(tmp_path, "-n", target, config=bids_config(tmp_path))
    assert done.returncode == 0 and jobs(done.stdout) == {"index": 1, "parcellate": 1}


def test_a_scan_that_cannot_be_used_is_not_planned(tmp_path):
    config = bids_config(tmp_path)
    (tmp_path / "bids/sub-03/anat/sub-03_T1w.nii.gz").unlink()
    assert snakemake(tmp_path, "results/own/scans.tsv", config=config).returncode == 0
    assert jobs(snakemake(tmp_path, "-n", config=config).stdout)["functional"] == 7


def test_ready_series_skip_the_images(tmp_path):
    config = series_dataset(tmp_path)
    planned = jobs(snakemake(tmp_path, "-n", config=config).stdout)
    assert not {"anatomical", "functional", "parcellate", "template", "truth", "quality", "tasks"} & set(planned)
    assert planned["train_fold"] == 3


@pytest.mark.parametrize("target", ["series", "train", "tables", "figures"])
def test_every_target_can_be_asked_for(tmp_path, target):
    config = series_dataset(tmp_path)
    done = snakemake(tmp_path, "-n", target, config=config)
    assert done.returncode == 0, done.stdout
    assert "report" not in jobs(done.stdout)


def test_one_fold_can_be_asked_for(tmp_path):
    config = series_dataset(tmp_path, folds={"outer": 3, "run": [1]})
    assert jobs(snakemake(tmp_path, "-n", config=config).stdout)["train_fold"] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "phantm"}, r"unknown dataset 'phantm'\. Known: .*did you mean 'phantom'"),
        ({"atlases": ["shaefer400"]}, r"unknown atlas 'shaefer400'\. Known: .*schaefer400"),
        ({"models": ["bolt_smal"]}, r"unknown model 'bolt_smal'\. Known: .*did you mean 'bolt_small'"),
        ({"denoise": "36q"}, r"unknown denoising '36q'\. Known: .*none"),
        ({"modles": ["bolt"]}, r"unknown key 'modles'\. Known here: .*did you mean 'models'"),
        (
            {"atlases": ["schaefer400"]},
            r"atlas 'schaefer400' is drawn in .*, but the images will be in MNI152NLin2009aSym",
        ),
    ],
)
def test_a_wrong_name_is_one_clear_line(tmp_path, monkeypatch, change, words):
    monkeypatch.chdir(tmp_path)
    shipped = {"dataset": "phantom", "atlases": ["dosenbach160"], "models": ["bolt_small"]}
    shipped |= {"preprocess": {"space": "MNI152NLin2009aSym"}}
    with pytest.raises(SystemExit, match=words) as refused:
        start(shipped | change)
    assert "\n" not in str(refused.value)


def test_a_refused_configuration_ends_snakemake_with_that_line(tmp_path):
    done = snakemake(tmp_path, "-n", config=write_yaml(tmp_path / "c.yaml", {"dataset": "phantm"}))
    assert done.returncode != 0
    assert last_line(done.stdout).startswith("bolt: unknown dataset 'phantm'."), done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "results").exists()


def test_too_few_subjects_a_class_stop_the_run_before_any_work(tmp_path):
    config = bids_config(tmp_path, n_subjects=4)
    done = snakemake(tmp_path, config=config)
    assert done.returncode != 0
    assert "3 folds for 2 subjects of class control. Set 'folds: outer' to at most 2" in done.stdout
    assert not list((tmp_path / "results").rglob("*.nii.gz"))


def test_what_a_change_runs_again(tmp_path):
    """Each key changes the settings of the stages that read it, and of no other."""
    config = yaml.safe_load(series_dataset(tmp_path).read_text())

    def settings(**change):
        run = Run(config | change)
        return {stage: read_by(run, stage) for stage in STAGES}

    before = settings()

    def changed(**change):
        after = settings(**change)
        assert after["report"] != before["report"]  # it prints the configuration
        return {stage for stage in STAGES if after[stage] != before[stage]} - {"report"}

    assert changed(paths={"work": "elsewhere"}) == set()
    assert changed(parcellate={"coverage": 0.7}) == {"parcellate", "quality_pages"}
    assert changed(parcellate={"uncovered": "drop-scan"}) == {"cache"}
    assert changed(quality={"max_mean_fd": 0.5}) == {"quality"}
    assert changed(explain={"tokens": 7}) == {"landmarks", "stability", "explanation"}
    assert changed(explain={"agreement": {"permutations": 99}}) == {"stability", "explanation"}
    assert changed(explain={"hrf_shift": 5, "trial_types": ["go"]}) == {"tasks", "explanation"}
    assert changed(explain={"inner_folds": 3}) == {"landmarks", "inner_folds", "explanation"}
    assert changed(explain={"top_rois": 0.05}) == {"regions", "stability", "explanation"}
    assert changed(explain={"sanity": {"draws": 3}}) == {"sanity", "explanation"}
    assert changed(explain={"sanity": {"fold": 1}}) == {"train_permuted", "train_again", "explanation"}
    assert changed(explain={"faithfulness": {"steps": 7}}) == {"faithfulness_fold", "explanation"}
    explained = {"explain", "explain_inner", "sanity", "faithfulness_fold"}
    trained = {"train_permuted", "train_again"}
    assert changed(device="cpu") == {"train", "train_inner", "search", "complexity", *trained, *explained}
    assert changed(bad_scans="refuse") == set()
    assert changed(watch=["tensorboard"]) == set()
    assert changed(folds={"outer": 3, "seed": 5}) == {"folds", "inner_folds"}
    assert changed(preprocess={"resolution": 3.0}) == {"functional"}
    assert changed(preprocess={"slice_timing": "off"}) == {"functional"}
    assert changed(preprocess={"steady_state": 3}) == {"functional"}
    assert changed(preprocess={"output": "native"}) == {"functional", "parcellate"}
    assert changed(denoise="36p") == {"parcellate"}
    assert changed(preprocess={"registration": "testing"}) == {"anatomical", "functional"}
    assert changed(preprocess={"registration": ["fast", "testing"]}) == {"anatomical"}
    assert changed(preprocess={"threads": 2}) == set()
    for atlas in ("cc200", "schaefer200_17"):  # the second is not staged here
        found = changed(atlases=[atlas]) - {"explanation"}  # it reads the image alone, of which the second has no hash
        assert found == {"parcellate", "cache", "oracle_cache", "regions"}


def test_another_image_of_an_own_atlas_is_averaged_over_anew(tmp_path):
    """Its description has no hash, and its table of labels may stay as it is."""
    folder = tmp_path / "mine"
    folder.mkdir()
    about = {"name": "mine", "spaces": ["MNI152NLin6Asym"], "file": "mine.nii.gz"}
    write_yaml(folder / "atlas.yaml", about)
    (folder / "labels.tsv").write_text("value\tname\tnetwork\themisphere\n1\tA\tN\tL\n")
    run = Run(yaml.safe_load(series_dataset(tmp_path, atlases=[str(folder)]).read_text()))
    before = {stage: read_by(run, stage) for stage in STAGES}
    assert "not staged" in before["parcellate"]
    (folder / "mine.nii.gz").write_bytes(b"another image")
    changed = {stage for stage in STAGES if read_by(run, stage) != before[stage]}
    assert changed == {"parcellate", "regions", "explanation"}


def test_what_one_stage_reads_is_put_together_without_the_others(tmp_path, monkeypatch):
    """Every job reads the Snakefile: it must not look at every file of a dataset for that."""
    run = Run(yaml.safe_load(bids_config(tmp_path).read_text()))
    assert read_by(run, "index") and read_by(run, "parcellate")
    monkeypatch.delattr(Run, "files")
    monkeypatch.delattr("bolt.workflow.watched.atlas_files")
    assert read_by(run, "index") and read_by(run, "train")


def test_output_in_the_scans_own_voxels_needs_no_new_anatomy_and_no_4d_image(tmp_path):
    config = bids_config(tmp_path, preprocess={"output": "native"})
    assert snakemake(tmp_path, "results/own/scans.tsv", config=config).returncode == 0
    done = snakemake(tmp_path, "-n", "-p", config=config)
    assert jobs(done.stdout)["parcellate"] == jobs(done.stdout)["functional"] == 8, done.stdout
    assert "desc-preproc_bold" not in done.stdout
    run = Run(yaml.safe_load(config.read_text()))
    assert run.layout.variant == "native-none"
    run.layout.results = tmp_path / run.layout.results
    scan, sidecar = "sub-01_task-rest", tmp_path / "bids" / "sub-01" / "func" / "sub-01_task-rest_bold.json"
    assert run.parcellate_inputs(scan)["bold"] == run.scans.bold[scan]
    before = run.scan_settings(scan)
    write_json(json.loads(sidecar.read_text()) | {"SliceTiming": [0.0, 0.5]}, sidecar)
    later = Run(yaml.safe_load(config.read_text()))
    later.layout.results = run.layout.results
    assert later.scan_settings(scan) != before  # slices that are timed anew run the scan again


@pytest.mark.slow
def test_a_cutoff_runs_quality_again_and_no_preprocessing(tmp_path):
    """All that comes before is made up: empty files, said to be whole by `--touch`."""
    config = bids_config(tmp_path)
    assert snakemake(tmp_path, "results/own/scans.tsv", config=config).returncode == 0
    run = Run(yaml.safe_load(config.read_text()))
    layout = run.layout
    layout.results, layout.work = tmp_path / layout.results, tmp_path / layout.work
    outputs = [layout.template / "T1w.nii.gz", layout.template / "brain_mask.nii.gz", layout.quality]
    for i in range(1, 9):
        subject = f"sub-{i:02d}"
        scan = f"{subject}_task-rest"
        outputs += [layout.anatomical_status(subject), *layout.anatomical_files(subject).values()]
        outputs += [layout.functional_status(scan), layout.series_status(scan)]
        outputs += [layout.bold(scan), layout.mask(scan), layout.confounds(scan)]
        outputs += [layout.series_file(scan, "dosenbach160")]
    for path in outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"state": "ok"}' if path.suffix == ".json" else "")
    quality = str(layout.quality.relative_to(tmp_path))
    assert snakemake(tmp_path, "--touch", quality, config=config).returncode == 0
    assert "Nothing to be done" in snakemake(tmp_path, "-n", quality, config=config).stdout
    write_yaml(config, yaml.safe_load(config.read_text()) | {"quality": {"max_mean_fd": 0.5}})
    shutil.rmtree(tmp_path / "work", ignore_errors=True)  # it may be deleted
    planned = jobs(snakemake(tmp_path, "-n", "series", config=config).stdout)
    assert set(planned) == {"quality", "cache", "exclusions", "series"}

    transform = layout.anatomical_files("sub-03")["forward"]  # deleted by hand, it is made again
    transform.unlink()
    planned = jobs(snakemake(tmp_path, "-n", str(transform.relative_to(tmp_path)), config=config).stdout)
    assert planned.get("anatomical") == 1
    os.utime(tmp_path / "bids/sub-03/func/sub-03_task-rest_bold.json", (0, 0))  # mended, it may change the index
    assert jobs(snakemake(tmp_path, "-n", config=config).stdout).get("index") == 1


def test_ready_series_are_judged_once_a_cutoff_can_be_known_of_them(tmp_path):
    config = series_dataset(tmp_path, quality={"min_n_volumes": 41})
    done = snakemake(tmp_path, "series", config=config)
    assert done.returncode == 0, done.stdout
    lines = (tmp_path / "results/mine/exclusions.tsv").read_text().splitlines()
    assert lines[1] == "sub-00_task-rest\tquality\tvolumes 40 is below the cut-off 41."
    assert len(lines) == 5  # every third of twelve is that short


@pytest.mark.slow
def test_a_mended_series_is_read_again(tmp_path):
    config = series_dataset(tmp_path)
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    write_yaml(config, yaml.safe_load(config.read_text()) | {"bad_scans": "refuse"})  # no scan changes by that
    assert "Nothing to be done" in snakemake(tmp_path, "series", config=config).stdout
    np.save(tmp_path / "series/sub-03_task-rest.npy", np.random.default_rng(9).standard_normal((61, 160)))
    assert {"cache", "exclusions"} <= set(jobs(snakemake(tmp_path, "-n", "series", config=config).stdout))
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    for table in (tmp_path / "results/mine/scans.tsv", next((tmp_path / "results").rglob("index.tsv"))):
        assert pd.read_csv(table, sep="\t").set_index("scan_id").n_volumes["sub-03_task-rest"] == 61
    assert "Nothing to be done" in snakemake(tmp_path, "series", config=config).stdout


def test_a_run_goes_on_where_it_was_when_a_folder_is_moved_to_another_disk(tmp_path):
    """As the remedy for a full disk says."""
    config = series_dataset(tmp_path)
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    for name in ("results/mine/cache", "results", "work"):
        place = (tmp_path / name).rename(tmp_path / f"disk-{name.replace('/', '-')}")
        (tmp_path / name).symlink_to(place)
    assert "Nothing to be done" in snakemake(tmp_path, "series", config=config).stdout


def test_a_dry_run_leaves_the_configuration_of_a_run_alone(tmp_path):
    config = series_dataset(tmp_path)
    assert snakemake(tmp_path, "series", config=config).returncode == 0
    before = (tmp_path / "results/mine/config.yaml").read_text()
    snakemake(tmp_path, "-n", "--config", "seeds=[7]", config=config)
    assert (tmp_path / "results/mine/config.yaml").read_text() == before


def test_slurm_profile_plans_the_same_jobs(tmp_path):
    config = series_dataset(tmp_path)
    profile = str(ROOT / "workflow/profiles/slurm")
    done = snakemake(tmp_path, "-n", "--workflow-profile", profile, config=config)
    assert done.returncode == 0, done.stdout
    assert jobs(done.stdout)["train_fold"] == 3
    assert "gres=gpu:1" in done.stdout


def test_a_subjects_job_on_a_cluster_does_not_wait_for_torch(tmp_path):
    config = bids_config(tmp_path)
    assert snakemake(tmp_path, "index", config=config).returncode == 0
    one = ["--target-jobs", "anatomical:folder=sub-01,prefix=sub-01", "--mode", "remote", "-n"]
    one += ["--target-files-omit-workdir-adjustment"]
    done = snakemake(tmp_path, *one, config=config, env={"PYTHONPROFILEIMPORTTIME": "1"}, fresh=True)
    assert jobs(done.stdout).keys() <= {"template", "anatomical"}, done.stdout
    imported = set(re.findall(r"^import time: .*\| +(\w+)$", done.stdout, re.M))
    assert "pandas" in imported and not imported & {"torch", "sklearn", "nilearn"}


def test_lint_finds_nothing(tmp_path):
    done = snakemake(tmp_path, "--lint", config=series_dataset(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "Congratulations" in done.stdout


def test_inner_folds_are_planned_where_they_are_asked_for(tmp_path):
    config = series_dataset(tmp_path, explain={"inner_folds": 2})
    done = snakemake(tmp_path, "-n", config=config)
    planned = jobs(done.stdout)
    assert (planned["inner_folds"], planned["train_inner"], planned["explain_inner"]) == (1, 6, 3)
    said = int(re.search(r"(\d+) jobs", last_line(done.stdout))[1])
    assert said == sum(planned.values()) - 1  # the target rule is none


class Wildcards(dict):
    """As much of Snakemake's wildcards as input functions use."""

    __getattr__ = dict.__getitem__


@pytest.mark.parametrize(
    ("config", "trained"),
    [
        ({}, ["explain/dosenbach160/{v}/{m}/seed-0/retrained"]),
        ({"seeds": [0, 1]}, [f"runs/dosenbach160/{{v}}/{{m}}/seed-1/fold-{fold}" for fold in range(3)]),
        ({"explain": {"sanity": {"retrained": False}}}, []),
        ({"explain": {"sanity": {"draws": 0, "permuted": False}}}, []),  # nothing to control
    ],
)
def test_the_control_of_the_sanity_checks_is_another_seed_or_one_more_training(tmp_path, config, trained):
    run = Run(yaml.safe_load(series_dataset(tmp_path, **config).read_text()))
    (name,), variant = run.models, run.layout.variant
    wildcards = Wildcards(atlas="dosenbach160", model=name, seed="0", variant=variant)
    files = [path for path in run.retrained_models(wildcards) if path.name == "checkpoint.safetensors"]
    folders = [str(path.parent.relative_to(run.layout.results)) for path in files]
    assert folders == [place.format(v=variant, m=name) for place in trained]
    assert job_counts(plan_of(run))["train_again"] == sum(folder.endswith("retrained") for folder in folders)


def test_untrained_importance_is_made_where_scans_may_have_events(tmp_path):
    run = Run(yaml.safe_load(series_dataset(tmp_path).read_text()))
    assert run.untrained_importance(tmp_path) == []
    run = Run(yaml.safe_load(bids_config(tmp_path / "bids_of_tasks").read_text()))
    assert [path.name for path in run.untrained_importance(tmp_path)] == [
        "importance_untrained.npy",
        "importance_untrained.tsv",
    ]
    assert {path.name for path in run.kept()} >= {"importance_untrained.npy", "importance_untrained.tsv", "tasks.tsv"}


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_what_runs_networks_on_a_gpu_asks_for_one(tmp_path, device):
    """Jobs whose results depend on the device find what `device` names, on a cluster too."""
    config = yaml.safe_load(series_dataset(tmp_path).read_text())
    run, other = (Run(config | {"device": name}) for name in (device, "cpu" if device == "cuda" else "cuda"))
    wildcards = Wildcards(model=next(iter(run.models)))
    of_device = {name for name in STAGES if read_by(run, name) != read_by(other, name)}
    assert of_device - {"report"} == {name for name, stage in STAGES.items() if stage.trains or stage.applies}
    asking = {name for name in of_device if (gres := run.resources(name).get("gres")) and gres(wildcards) == "gpu:1"}
    trained = {name for name in of_device if STAGES[name].trains}
    assert asking == {"cpu": set(), "auto": trained, "cuda": of_device - {"report"}}[device]
