"""`bolt run` and `bolt init`: what they find, write and call; participants and then the group equal one run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bolt.cli import new_study, run_app
from bolt.cli.main import main
from bolt.cli.new_study import name_of, participants_of, read_filter, source_of_folder
from bolt.config import ROOT, load_config, load_dataset, load_model
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError
from bolt.io.files import read_table, read_yaml, write_json, write_table
from tests.fake_bids import write_bids
from tests.fake_fmriprep import write_fmriprep
from tests.forks import jobs_as_forks, run_module
from tests.kills import differences
from tests.snake import TINY_MODEL, series_dataset, write_yaml


@pytest.fixture
def bids(tmp_path):
    return write_bids(tmp_path / "study", n_subjects=12)


@pytest.fixture
def called(monkeypatch):
    """The commands that would have been run."""
    commands: list[tuple[list[str], dict]] = []

    def record(command, env, check):
        commands.append((command, env))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(run_app.subprocess, "run", record)
    return commands


def run(*arguments) -> int:
    return main(["run", *map(str, arguments)])


def said(capsys) -> str:
    return capsys.readouterr().err


def after(word, command):
    return command[command.index(word) + 1]


def init(data, out, *options) -> int:
    return main(["init", str(data), "--out", str(out), *options])


def test_group_writes_the_configuration_and_calls_the_workflow(bids, tmp_path, called, caplog):
    caplog.set_level("INFO", logger="bolt")
    out, options = tmp_path / "out", ["--label", "diagnosis", "--atlas", "dosenbach160"]
    assert run(bids, out, "group", *options, "--n-cpus", 3, "--mem-mb", 9000) == 0
    assert f"the report: {out}/results/study/report/index.html" in caplog.text
    ((command, env),) = called
    assert command[:3] == [sys.executable, "-m", "snakemake"] and "series" not in command
    assert (after("--directory", command), after("--cores", command)) == (str(out), "3")
    assert after("--resources", command) == "mem_mb=9000" and run_app.SHARED not in env
    place = Path(after("--configfile", command))
    config, dataset = load_config(place), load_dataset(str(out / "datasets" / "study.yaml"))
    assert (config.dataset, config.atlases, config.folds.outer) == ("study", ["dosenbach160"], 6), "six of each class"
    assert (dataset.source, dataset.label, dataset.classes) == ("bids", "diagnosis", ["control", "patient"])
    assert (dataset.path, dataset.site, dataset.age, dataset.sex) == (bids, "site", "age", "sex")
    before = place.stat().st_mtime_ns
    run(bids, out, "group", *options)
    assert place.stat().st_mtime_ns == before, "an equal configuration keeps its time: nothing is made again"


def index_of(out: Path, **excluded: str) -> None:
    """What the index would have written."""
    names = [f"sub-{i:02d}" for i in range(1, 13)]
    table = pd.DataFrame({"scan_id": [f"{n}_task-rest" for n in names], "subject": names})
    table = table.reindex(columns=list(COLUMNS))
    table["exclude_reason"] = [excluded.get(name.replace("-", "")) for name in names]
    write_table(table, out / "results" / "study" / "scans.tsv", COLUMNS)


def test_some_participants_are_made_beside_others(bids, tmp_path, called, monkeypatch, caplog):
    caplog.set_level("INFO", logger="bolt")
    out, written = tmp_path / "out", []
    index_of(out)
    pages = "bolt.report.pages.subjects.write_some_subjects"
    monkeypatch.setattr(pages, lambda study, names: [written.append((Path.cwd(), names)), Path("x.html")][1:])
    assert run(bids, out, "participant", "--participant-label", "sub-02", "03", "--atlas", "dosenbach160") == 0
    assert written == [(out, {"sub-02", "sub-03"})] and f"the quality of its images: {out}/x.html" in caplog.text
    targets = [[word for word in command if word.startswith("results/")] for command, _ in called]
    series = "results/study/series/MNI152NLin6Asym-none/sub-{}_task-rest/status.json"
    assert targets == [["results/study/scans.tsv"], [series.format("02"), series.format("03")]]
    assert all(env[run_app.SHARED] == "1" for _, env in called)


@pytest.mark.parametrize("written", ["{}", "sub-{}"])
def test_participants_are_found_with_and_without_sub(tmp_path, called, capsys, written):
    subjects = [written.format(f"{i:02d}") for i in range(12)]
    table = series_table(tmp_path, subject=subjects)
    scans = pd.DataFrame({"scan_id": subjects, "subject": subjects})
    write_table(scans.reindex(columns=list(COLUMNS)), tmp_path / "out/results/t/scans.tsv", COLUMNS)
    assert run(table, tmp_path / "out", "participant", "--participant-label", "01", "sub-02") == 0
    assert run(table, tmp_path / "out", "participant", "--participant-label", "01", "sub-77") == 2
    assert "--participant-label 77: no such participant" in said(capsys)


def test_participants_need_no_labels_but_snakemake_and_a_usable_scan(
    bids, tmp_path, called, capsys, caplog, monkeypatch
):
    (bids / "participants.tsv").unlink()
    assert run(bids, tmp_path / "out", "participant") == 0
    assert called.pop()[0][3:5] == ["series", "quality_pages"]
    assert load_dataset(str(tmp_path / "out/datasets/study.yaml")).label is None
    index_of(tmp_path / "out", sub02="no T1w image")
    for label, words in (("02", "no usable scan of these participants"), ("99", "99: no such participant")):
        assert run(bids, tmp_path / "out", "participant", "--participant-label", label) == 2 and called.pop()
        assert words in said(capsys) and "no T1w image" in caplog.text
    monkeypatch.setattr(run_app, "find_spec", lambda name: None)
    assert run(bids, tmp_path / "out", "participant") == 2 and not called
    assert "the package 'snakemake' is missing. pip install 'bolt-fmri[workflow]'" in said(capsys)


FILTER = {
    "bold": {"task": "rest", "session": ["1", "2"], "run": 1, "direction": "AP"},
    "t1w": {"suffix": "T1w", "acquisition": "mprage"},
}


def test_options_become_keys(bids, tmp_path, called, monkeypatch):
    monkeypatch.setattr("bolt.workflow.readiness.show", lambda *_, **__: 0)  # what is missing is tested below
    write_json(FILTER, tmp_path / "filter.json")
    options = ["--bids-filter-file", tmp_path / "filter.json", "--space", "MNI152NLin2009cAsym", "--denoise", "24p"]
    options += ["--seed", 1, 2, "--folds", 3, "--model", "svm", "--device", "cpu", "-w", tmp_path / "w"]
    options += ["--set", "quality.max_mean_fd=0.5", "explain.tokens=3", "paths.results=kept", "--name", "mine"]
    options += ["--dry-run"]
    options += ["--profile", "slurm", "--skip-bids-validation", "--classes", "patient", "control"]
    options += ["--participant-label", "01", "02", "sub-03"]
    assert run(bids, tmp_path / "out", "group", "--label", "diagnosis", *options) == 0
    config = load_config(tmp_path / "out" / "mine.yaml")
    dataset = load_dataset(str(tmp_path / "out/datasets/mine.yaml"))
    assert (dataset.tasks, dataset.sessions, dataset.runs) == (["rest"], ["1", "2"], ["1"])
    assert dataset.bids_filter == {"bold": {"direction": "AP"}, "t1w": {"acquisition": "mprage"}}
    assert dataset.classes == ["patient", "control"], "the last is the positive class"
    assert dataset.include == {"participant_id": ["sub-01", "sub-02", "sub-03"]}
    assert (config.preprocess.space, config.denoise, config.seeds) == ("MNI152NLin2009cAsym", "24p", [1, 2])
    assert (config.folds.outer, config.models, config.device) == (3, ["svm"], "cpu")
    assert (config.quality.max_mean_fd, config.explain.tokens) == (0.5, 3)
    assert (config.paths.work, config.paths.results) == (tmp_path / "w", Path("kept"))
    command = called[0][0]
    assert "--dry-run" in command
    assert Path(after("--workflow-profile", command)).samefile(ROOT / "workflow/profiles/slurm")


def test_paths_lead_from_where_the_command_is_typed(bids, tmp_path, called, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "my.yaml",
        "d.yaml",
        "r.tsv",
        "own/atlas-X_space-MNI_dseg.nii.gz",
        "home/x",
        "work/x",
        "svm/x",
        "aal116/x",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("model: svm" if name == "my.yaml" else "")
    options = ["--atlas", "own", "aal116", "--model", "my.yaml", "svm", "--denoise", "d.yaml"]
    options += ["--set", "quality.ratings=r.tsv", "paths.templateflow_home=home", "paths.work=work"]
    assert run(bids, "out", "group", "--label", "diagnosis", *options) == 0
    config = load_config(tmp_path / "out/study.yaml")
    assert config.atlases == [str(tmp_path / "own"), "aal116"]
    assert config.models == [str(tmp_path / "my.yaml"), "svm"]
    assert (config.denoise, config.quality.ratings) == (str(tmp_path / "d.yaml"), tmp_path / "r.tsv")
    assert (config.paths.templateflow_home, config.paths.work) == (tmp_path / "home", Path("work"))


def test_a_dry_run_names_what_is_missing(bids, tmp_path, called, capsys, monkeypatch):
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "nothing"))
    monkeypatch.delenv("BOLT_ATLAS_DIR", raising=False)
    options = ["group", "--label", "diagnosis", "--atlas", "schaefer400", "--dry-run"]
    assert run(bids, tmp_path / "out", *options) == 2 and not called
    printed = capsys.readouterr()
    assert "raw BIDS" in printed.out and "classes" in printed.out
    assert "no label image for atlas 'schaefer400'" in printed.err and "To download them" in printed.err
    run(bids, tmp_path / "out", *options, "--fetch")
    assert "schaefer400" not in said(capsys)


NONSENSE = {
    "group": "the group level predicts a label. Name its column: --label diagnosis",
    "group --label diagnosys": "no such column in .*did you mean 'diagnosis'",
    "group --label sex": "label 'sex' has 1 values",
    "group --label diagnosis --site centre": "--site centre: no such column",
    "group --label diagnosis --model svn": "unknown model 'svn'.*did you mean 'svm'",
    "group --label diagnosis --set quality": "--set quality: no assignment",
    "group --label diagnosis --participant-label 77": "--participant-label 77: not in",
    "participant --profile slrm": "--profile slrm: no such profile",
    "participant --n-cpus 0": "--n-cpus is 0. Give 1 or more",
    "participant --mem-mb 0": "--mem-mb is 0",
    "participant --name a/b": "'a/b' cannot name a dataset",
}


def test_what_makes_no_sense_is_one_line(bids, tmp_path, called, capsys):
    described = {"DatasetType": "derivative", "GeneratedBy": [{"Name": "C-PAC"}]}
    write_json(described, tmp_path / "other/dataset_description.json")
    cases = [(bids, "out", arguments, message) for arguments, message in NONSENSE.items()]
    cases += [
        (tmp_path / "nothing", "out", "participant", "no such file or folder"),
        (tmp_path, "out", "participant", "no dataset_description.json"),
        (tmp_path / "other", "out", "participant", "derivatives of C-PAC"),
        (bids, "study", "participant", "the output folder is the input folder"),
    ]
    for data, out, arguments, message in cases:
        assert run(data, tmp_path / out, *arguments.split()) == 2 and not called
        line = said(capsys)
        assert re.search(message, line) and line.count("\n") == 1, line


NAMES = {"my study": "my_study", "abide/derivatives/fmriprep": "abide", "x/bids": "x", "table.tsv": "table", "ünï": "n"}


def test_names(tmp_path):
    (tmp_path / "table.tsv").touch()
    assert {place: name_of(tmp_path / place) for place in NAMES} == NAMES


def test_init_asks_for_the_label_writes_two_files_and_says_what_is_next(bids, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert init(bids, tmp_path / "mine", "--label", "diagnosis") == 0
    place, printed = tmp_path / "mine" / "study.yaml", capsys.readouterr().out
    assert f"bolt check --config {place}" in printed
    assert f"--configfile {place} --snakefile {ROOT / 'Snakefile'}" in printed
    assert read_yaml(place) == {"dataset": "study", "folds": {"outer": 6}, "models": ["bolt_small"]}
    assert Path(place.read_text().splitlines()[0].split("$schema=")[1]).is_file()
    monkeypatch.setattr(new_study.sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "diagnosis\n"))
    assert init(bids, tmp_path / "asked") == 0
    out = capsys.readouterr().out
    assert "What shall be predicted? diagnosis / age [" in out.replace("site / ", "").replace("sex / ", "")
    assert load_dataset(str(tmp_path / "asked/datasets/study.yaml")).label == "diagnosis"


def test_files_of_others_are_judged_beside_simple_models(tmp_path, called):
    series_dataset(tmp_path / "data")
    table = read_table(tmp_path / "data/series/scans.tsv")
    vectors = pd.DataFrame({"scan_id": table["subject"] + "_task-rest", "x": range(12)})
    vectors.to_csv(tmp_path / "ridge.tsv", sep="\t", index=False)
    vectors.assign(fold=0, p=0.5).to_csv(tmp_path / "theirs.csv", index=False)
    data = [tmp_path / "data/series/scans.tsv", tmp_path / "out", "group", "--label", "dx", "--atlas", "dosenbach160"]
    given = ["--features", tmp_path / "ridge.tsv", "--predictions", tmp_path / "theirs.csv"]
    assert run(*data, *given) == 0
    names = ["ridge_features", "theirs"]
    assert read_yaml(tmp_path / "out/scans.yaml")["models"] == ["ridge", "svm", *names]
    kinds = [load_model(str(tmp_path / f"out/models/{name}.yaml")).model for name in names]
    assert kinds == ["features", "predictions"]
    run(*data, *given, "--model", "majority")
    assert read_yaml(tmp_path / "out/scans.yaml")["models"] == ["majority", *names]
    assert run(*data, "--predictions", tmp_path / "ridge.tsv") == 2
    vectors.to_csv(tmp_path / "data/theirs.csv", index=False)
    vectors.to_csv(tmp_path / "theirs.tsv", sep="\t", index=False)
    assert run(*data, "--features", *(tmp_path / name for name in ("theirs.csv", "data/theirs.csv", "theirs.tsv"))) == 2


def test_a_column_called_group_is_no_family(tmp_path, monkeypatch):
    """It names the diagnosis as often."""
    monkeypatch.setattr(run_app, "subprocess", SimpleNamespace(run=lambda *_, **__: SimpleNamespace(returncode=0)))
    series_dataset(tmp_path / "data")
    path = tmp_path / "data/series/scans.tsv"
    table = read_table(path)
    for column, expected in (("Group", None), ("Family", "Family")):
        table.assign(**{column: table["dx"]}).to_csv(path, sep="\t", index=False)
        run(path, tmp_path / column, "group", "--label", "dx", "--atlas", "dosenbach160")
        (dataset,) = (tmp_path / column / "datasets").glob("*.yaml")
        assert read_yaml(dataset).get("group") == expected


def test_people_without_a_family_count_one_by_one_for_the_number_of_folds(tmp_path, monkeypatch):
    monkeypatch.setattr(run_app, "subprocess", SimpleNamespace(run=lambda *_, **__: SimpleNamespace(returncode=0)))
    series_dataset(tmp_path / "data")
    path = tmp_path / "data/series/scans.tsv"
    table = read_table(path)
    table.assign(family="n/a").to_csv(path, sep="\t", index=False)
    run(path, tmp_path / "out", "group", "--label", "dx", "--atlas", "dosenbach160")
    assert read_yaml(tmp_path / "out/scans.yaml")["folds"]["outer"] == table["dx"].value_counts().min()


@pytest.mark.slow
def test_participants_one_by_one_and_then_the_group_equal_one_run(tmp_path, monkeypatch):
    derivatives = write_fmriprep(tmp_path / "study", n_subjects=6)
    model = str(write_yaml(tmp_path / "tiny.yaml", TINY_MODEL))
    options = ["--atlas", "dosenbach160", "--model", model, "--folds", "2", "--n-cpus", "1"]
    options += ["--set", "explain.sanity.draws=0", "explain.sanity.permuted=false", "explain.faithfulness.scans=0"]

    def start(*labels):
        arguments = [derivatives, tmp_path / "apart", "participant", "--participant-label", *labels, *options]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, "-m", "bolt", "run", *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | jobs_as_forks(), **streams)

    def forked(command, env, check):
        done = run_module(command[2:], ROOT, env)
        print(done.stdout[-5000:])
        return done

    for process in [start("01", "02"), start("03", "04")]:  # at the same time, in one folder
        output = process.communicate()[0]
        assert process.returncode == 0, output[-5000:]
    monkeypatch.setattr(run_app, "subprocess", SimpleNamespace(run=forked))
    apart, whole = ((derivatives, tmp_path / name) for name in ("apart", "whole"))
    assert run(*apart, "participant", "--participant-label", "05", "06", *options) == 0
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "apart/results/study/series").rglob("*_timeseries.npy")}
    pages = sorted(path.stem for path in (tmp_path / "apart/results/study/subjects").glob("*.html"))
    assert len(made) == 6 and pages == [f"sub-{i:02d}" for i in range(1, 7)]
    assert run(*apart, "group", "--label", "diagnosis", *options) == 0
    assert {p: p.stat().st_mtime_ns for p in made} == made, "no series is made again"
    assert run(*whole, "group", "--label", "diagnosis", *options) == 0
    assert differences(tmp_path / "whole", tmp_path / "apart") == []
    (predictions, *_) = (tmp_path / "whole" / "results" / "study" / "runs").rglob("predictions.tsv")
    assert np.isfinite(read_table(predictions)["p_patient"]).all()
    # the same images, as new ones: series are made as the model's were, and predicted alike
    (runs,) = (tmp_path / "whole/results/study/runs/dosenbach160").glob("*/*")
    assert main(["pack", str(runs), "--out", str(tmp_path / "model")]) == 0
    sources = {"made": tmp_path / "whole/results/study", "images": derivatives}
    for name, source in sources.items():
        out = ["--out", str(tmp_path / f"{name}.tsv"), "--label", "diagnosis", "--n-cpus", "2"]
        assert main(["predict", str(tmp_path / "model"), str(source), *out]) == 0
    made, images = (read_table(tmp_path / f"{name}.tsv") for name in sources)
    pd.testing.assert_frame_equal(made, images)
    assert len(made) == 6 and set(made["label"]) == {"control", "patient"}
    metrics = read_table(tmp_path / "images_metrics.tsv")
    assert set(metrics["model"]) == {"model", "model, calibrated", "motion, age and sex alone"}


def series_table(folder, name="t.tsv", separator="\t", **columns):
    about = {"subject": [f"p{i // 3}" for i in range(12)], "file": [f"x{i}.npy" for i in range(12)]}
    about |= {"dx": ["a"] * 6 + ["b"] * 6}
    folder.mkdir(exist_ok=True)
    pd.DataFrame(about | columns).to_csv(folder / name, sep=separator, index=False)
    return folder / name


def test_any_folder_name_is_written_as_it_is(tmp_path):
    for name in ('it\'s "quoted"', "new\nline: x\nsource", "nel\x85x", "back\\slash", "ünï 😀", "# hash"):
        data = series_table(tmp_path / name)
        assert init(data, tmp_path / name / "out", "--label", "dx") == 0
        assert read_yaml(tmp_path / name / "out/datasets/t.yaml")["path"] == str(data)


def test_few_scans_get_the_small_model_by_default(tmp_path, caplog):
    """Scans without a label do not count."""
    caplog.set_level("INFO", logger="bolt")
    for n, option, model in ((99, "seeds=[0]", "bolt_small"), (100, "seeds=[0]", "bolt"), (99, "models=[bnt]", "bnt")):
        caplog.clear()
        labels = ["ab"[i % 2] if i < n else None for i in range(n + 5)]
        table = series_table(tmp_path / model, subject=range(n + 5), file="x.npy", dx=labels)
        assert init(table, tmp_path / model, "--label", "dx", "--set", option) == 0
        assert load_config(tmp_path / model / "t.yaml").models == [model]
        assert ("suits 99 scans better than bolt (--model bolt" in caplog.text) == (model == "bolt_small")


@pytest.mark.parametrize(("options", "validation"), [([], 0.1), (["--set", "folds.validation=0.2"], 0.2)])
def test_folds_count_people_and_not_scans(tmp_path, options, validation):
    assert init(series_table(tmp_path), tmp_path, "--label", "dx", *options) == 0
    folds = load_config(tmp_path / "t.yaml").folds
    assert (folds.outer, folds.validation) == (2, validation), "two people of each class, with three scans each"


def test_tables_of_series_that_cannot_be_used(bids, tmp_path, capsys):
    three, two = (series_table(tmp_path, f"{n}.tsv", dx=[f"c{i % n}" for i in range(12)]) for n in (3, 2))
    in_two_cases = series_table(tmp_path, "c.tsv", dx=["Patient", "patient", "control"] * 4)
    for place, message, *options in (
        (series_table(tmp_path, separator=","), "found subject,file,dx. Name them so. Columns are separated by tabs"),
        (in_two_cases, "differ in case alone: Patient, control, patient", "--label", "dx"),
        (bids / "participants.tsv", "a table of series needs the columns subject and file; found subject, diagnosis"),
        (two, "--classes: no 'dx' is control. It has c0, c1", "--label", "dx", "--classes", "c0", "control"),
        (three, "--positive c1: not one of two classes. Classes: c0, c1, c2", "--label", "dx", "--positive", "c1"),
        (two, "--positive c: not one of two classes. Classes: c0, c1", "--label", "dx", "--positive", "c"),
    ):
        assert init(place, tmp_path / "o", *options) == 2
        assert message in said(capsys)


@pytest.mark.parametrize("key", ["PipelineDescription", "GeneratedBy"])
@pytest.mark.parametrize("tool", [{"Name": "fMRIPrep"}, "fMRIPrep"])
def test_descriptions_of_older_fmriprep_are_read(tmp_path, key, tool):
    write_json({key: tool}, tmp_path / "dataset_description.json")
    assert source_of_folder(tmp_path) == "fmriprep"


@pytest.mark.parametrize("value", [None, [], [None], True, {"x": 1}])
def test_filters_that_are_no_values_are_refused(tmp_path, value):
    write_json({"bold": {"task": value}}, tmp_path / "filter.json")
    with pytest.raises(ConfigError, match="'bold: task' is"):
        read_filter(tmp_path / "filter.json")


def test_settings_of_the_dataset_reach_its_file_and_edits_of_it_are_kept(tmp_path, caplog):
    place, out = series_table(tmp_path), tmp_path / "o"
    file = out / "datasets/t.yaml"
    assert init(place, out, "--label", "dx", "--set", "tr_conflict=sidecar", "seeds=[3]") == 0
    assert read_yaml(file)["tr_conflict"] == "sidecar" and read_yaml(out / "t.yaml")["seeds"] == [3]
    assert init(place, out, "--label", "dx", "--set", "tr_conflict=header") == 0  # as written: written again
    assert read_yaml(file)["tr_conflict"] == "header" and "was edited" not in caplog.text
    file.write_text(file.read_text() + "tr: 2.5\n")
    assert init(place, out, "--label", "dx") == 0
    assert (read_yaml(file)["tr"], read_yaml(file)["tr_conflict"]) == (2.5, "header")
    assert f"{file} was edited and is used as it is" in caplog.text


def test_a_dry_run_changes_no_file(tmp_path, called):
    """Where it would, it looks at a copy."""
    series_dataset(tmp_path)
    table, out = tmp_path / "series/scans.tsv", tmp_path / "o"
    options = [table, out, "group", "--label", "dx", "--model", "svm", "--atlas", "dosenbach160"]
    assert run(*options, "-n") == 0
    edited = out / "datasets/scans.yaml"
    edited.write_text(edited.read_text() + "tr: 2.5\n")
    files = {path: path.read_bytes() for path in (out / "scans.yaml", edited)}
    assert run(*options, "--set", "seeds=[3]", "-n") == 0
    assert files == {path: path.read_bytes() for path in out.rglob("*.yaml")}
    (_, (command, _)) = called
    looked_at = Path(after("--configfile", command))
    assert looked_at.name == "scans.yaml" and looked_at.parent != out
    assert after("--directory", command) == str(out)


def test_participants_of_fmriprep_are_found_rather_beside_a_link_than_beside_its_target(tmp_path, called, monkeypatch):
    real = write_fmriprep(tmp_path / "other", 2, n_volumes=2)
    run(real, tmp_path / "out", "participant")
    dataset = load_dataset(str(tmp_path / "out/datasets/other.yaml"))
    assert dataset.source == "fmriprep" and dataset.subjects_table == tmp_path / "other/participants.tsv"
    (tmp_path / "study/derivatives").mkdir(parents=True)
    link = tmp_path / "study/derivatives/fmriprep"
    link.symlink_to(real)
    assert participants_of(link) == tmp_path / "other/participants.tsv"
    (tmp_path / "study/participants.tsv").write_text("participant_id\tdiagnosis\n")
    assert participants_of(link) == tmp_path / "study/participants.tsv"
    monkeypatch.chdir(real / "sub-01")
    assert participants_of(Path("..")) == tmp_path / "other/participants.tsv"


ORDERED = ["control autism", "TD ASD", "healthy_Controls ADHD", "CN AD", "F M", "HC control", "a b control"]
"""Classes in the order that they get: the positive one is last."""


@pytest.mark.parametrize("names", ORDERED)
def test_controls_are_not_the_positive_class_unless_asked_for(tmp_path, names):
    classes = names.split()
    table = series_table(tmp_path, dx=[classes[-i % len(classes)] for i in range(12)], subject=range(12))
    for positive, expected in (([], classes), (["--positive", classes[0]], classes[::-1])):
        if not positive or len(classes) == 2:
            assert init(table, tmp_path, "--label", "dx", *positive) == 0
            assert read_yaml(tmp_path / "datasets/t.yaml")["classes"] == expected
