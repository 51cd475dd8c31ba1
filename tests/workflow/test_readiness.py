"""`bolt check`: what a run would find and take, and what is missing."""

import re
import shutil
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from bolt.cli.main import main
from bolt.config import ROOT
from bolt.io.errors import ConfigError
from bolt.io.files import read_table, read_yaml
from bolt.io.volumes import check_image
from bolt.workflow import estimate, readiness
from bolt.workflow.run import Run
from bolt.workflow.start import start
from tests.fake_bids import bold_path, save_bold
from tests.snake import series_dataset, write_yaml
from tests.workflow.test_dag import bids_config

EXAMPLES = [ROOT / "config/config.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]


def edit(path, **keys):
    """Change keys of a YAML file."""
    return write_yaml(path, read_yaml(path) | keys)


pytestmark = pytest.mark.usefixtures("here", "experiments_known")


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The versions of packages are not asked at each start."""
    monkeypatch.setattr(readiness, "refuse_other_versions", lambda: None)


def screen(capsys, config):
    """Return the exit status of the command, its facts by name, and what it wrote about problems."""
    status = main(["check", "--config", str(config)])
    written = capsys.readouterr()
    facts, name = {}, ""
    for line in written.out.splitlines():
        if shown := re.match(r"  (\S.{9}|\S\S.{8}) +(.*)", line):
            name = shown[1].strip()
        if line.startswith("  "):
            facts[name] = f"{facts.get(name, '')} {line[14:].strip()}".strip()
    return status, facts, written


AMD = [("avx2 avx512f", "", True), ("avx2 avx512f", "/lib/mkl_amd.so", False), ("avx2", "", False)]


@pytest.mark.parametrize(("flags", "preloaded", "said"), AMD)
def test_amd_processors_train_faster_with_a_library(flags, preloaded, said, tmp_path, capsys, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"vendor_id : AuthenticAMD\nflags : {flags}\n")
    monkeypatch.setattr(readiness, "PROCESSOR", tmp_path / "cpuinfo")
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    _, facts, _ = screen(capsys, series_dataset(tmp_path, device="cpu"))
    assert ("1.7 times as fast" in facts["note"]) == said


def test_a_run_that_can_start(tmp_path, capsys):
    config = series_dataset(tmp_path)
    status, facts, written = screen(capsys, config)
    assert status == 0 and written.err == ""
    assert facts["scans"] == "12 of 12, of 12 of 12 subjects"
    assert facts["classes"] == "a: 6, b: 6 (column dx); positive: b"
    assert facts["confounds"] == "age; not given: sex, site, motion, family"
    assert facts["model"] == "tiny: 3 trainings (3 folds, 1 atlas, 1 seed)"
    assert facts["atlas"] == "dosenbach160: drawn from coordinates"
    assert "need 6 folds ('folds: outer', --folds 6)" in facts["note"] and "TR unknown" not in facts["note"]
    assert re.match(r"\d+ jobs, about [\d.]+ (min|hours) on the \d+ cores? here", facts["time"])
    assert "GPU" in facts and "free in" in facts["disk"] and "template" not in facts
    assert written.out.splitlines()[-1].startswith(f"A run can start: snakemake --cores 8 --configfile {config}")
    assert f"--snakefile {ROOT / 'Snakefile'}" in written.out  # the working folder has none
    assert not (tmp_path / "results").exists() and not (tmp_path / "work").exists()


def test_confounds_and_labels_that_the_table_knows_and_a_tr_that_it_does_not(tmp_path, capsys):
    config, path = series_dataset(tmp_path), tmp_path / "series/scans.tsv"
    table = pd.read_csv(path, sep="\t").assign(scanner=["x"] * 7 + ["y"] * 5, mean_fd=0.1)
    table.loc[11, "dx"] = "c"
    table.to_csv(path, sep="\t", index=False)
    edit(tmp_path / "mine.yaml", site="scanner", tr=None)
    status, facts, _ = screen(capsys, config)
    assert status == 0
    assert facts["scans"] == "11 of 12, of 11 of 12 subjects"
    assert facts["classes"] == "a: 6, b: 5 (column dx); positive: b"
    assert facts["not used"].endswith(": label 'c' is not one of a, b")
    assert (facts["sites"], facts["confounds"]) == ("2: x 7, y 4", "age, site, motion; not given: sex, family")
    assert "TR unknown of 11 scans (column 'tr' of the table" in facts["note"]


def test_everything_that_is_missing_is_listed_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("BOLT_ATLAS_DIR", raising=False)
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "nothing"))
    config = bids_config(tmp_path, n_subjects=4, preprocess={"threads": 2})
    about = {"name": "own", "spaces": ["MNI152NLin6Asym"], "file": "own.nii.gz", "source": "our website"}
    (tmp_path / "own").mkdir()
    write_yaml(tmp_path / "own/atlas.yaml", about)
    edit(config, atlases=[str(tmp_path / "own")])
    status, facts, written = screen(capsys, config)
    assert status == 2
    assert facts["scans"] == "4 of 4, of 4 of 4 subjects" and facts["atlas"] == "own: missing"
    assert facts["template"].startswith("MNI152NLin6Asym: not found; the run fetches it")
    assert "normalised again gives other results" in facts["note"]
    folds, image = re.findall(r"^  \d\. (.*)$", written.err, re.MULTILINE)
    assert "3 folds for 2 subjects of class control. Set 'folds: outer' to at most 2" in folds
    assert "no label image for atlas 'own'. Either put own.nii.gz" in image and "our website" in image
    assert "A run can start" not in written.out
    resources = f"snakemake resources --cores 1 --configfile {config}"
    assert (resources in written.err) == ("target 'resources'" in image)


def test_headers_are_read_once_for_the_disk_and_an_unknown_atlas_hides_no_template(tmp_path, monkeypatch, capsys):
    config, asked = bids_config(tmp_path), []
    monkeypatch.setattr(estimate, "check_image", lambda path: asked.append(path) or check_image(path))
    _, facts, written = screen(capsys, edit(config, atlases=["gone"]))
    assert "template" in facts and written.err.count("unknown atlas 'gone'") == 1
    asked.clear()
    _, facts, _ = screen(capsys, edit(config, atlases=["dosenbach160"]))
    assert len(asked) == 8 and "needed" in facts["disk"]


def test_the_template_is_found_without_templateflow(tmp_path, monkeypatch):
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path))
    run = Run(read_yaml(bids_config(tmp_path)))
    assert not any("normalised again" in note for note in run.notes)  # one thread
    for name in ("T1w", "desc-brain_mask"):
        path = tmp_path / "tpl-MNI152NLin6Asym" / f"tpl-MNI152NLin6Asym_res-01_{name}.nii.gz"
        path.parent.mkdir(exist_ok=True)
        path.touch()  # as TemplateFlow leaves what it has not fetched
        assert not readiness.template_is_there(run)
        path.write_bytes(b"image")
    assert readiness.template_is_there(run)


@pytest.mark.parametrize("config", EXAMPLES, ids=lambda path: path.stem)
def test_every_shipped_configuration_has_its_screen(capsys, config):
    status, facts, written = screen(capsys, config)
    assert {"dataset", "model", "atlas", "GPU"} <= set(facts)
    # the others need data or an agreement of the user's own
    reachable = config.stem in ("config", "abide1", "abide1_published", "abide1_sites")
    assert status == (0 if reachable else 2)
    assert bool(written.err) != reachable
    if not reachable:
        data = {"hcp_rest": "no such table", "hcp_task": "no such table"}.get(config.stem, "the data of dataset")
        assert data in written.err.splitlines()[1]


@pytest.mark.parametrize("place", [(Run, "check_results"), (readiness, "refuse_other_versions")])
def test_results_that_were_altered_and_versions_that_do_not_fit_are_problems(tmp_path, monkeypatch, capsys, place):
    """As the start of a run reports them."""
    error = ConfigError("it was changed after it was made", where="predictions.tsv", hint="Delete it")
    monkeypatch.setattr(*place, Mock(side_effect=error))
    status, _, written = screen(capsys, series_dataset(tmp_path))
    assert status == 2 and "1. predictions.tsv: it was changed after it was made. Delete it." in written.err


def spoil_bids(folder, what):
    """Spoil something of the raw data of `bids_config`."""
    people = folder / "bids/participants.tsv"
    table = pd.read_csv(people, sep="\t", dtype=str)
    if what == "task":
        edit(folder / "own.yaml", tasks=["motor"])
    elif what == "everybody":
        table.assign(participant_id=[f"x{i}" for i in range(8)]).to_csv(people, sep="\t", index=False)
    elif what == "too few":
        table[:4].to_csv(people, sep="\t", index=False)
    else:  # a phase image, a short scan, and one of another repetition time
        first, second, third = (bold_path(folder / "bids", f"sub-0{i}") for i in (1, 2, 3))
        shutil.copy(first, first.with_name("sub-01_task-rest_part-phase_bold.nii.gz"))
        save_bold(second, np.ones((4, 4, 4, 3), np.int16))
        (third.parent / "sub-03_task-rest_bold.json").write_text('{"RepetitionTime": 3}')


def spoil_series(folder, what):
    """Spoil something of the table of `series_dataset`, or its series."""
    path = folder / "series/scans.tsv"
    table = pd.read_csv(path, sep="\t", dtype=str)
    if what == "every file":
        table["file"] = "x" + table["file"]
    elif what == "other ROIs":
        for series in path.parent.glob("*.npy"):
            np.save(series, np.load(series)[:, :116])
    else:
        table.loc[0, "file"] = "gone.npy"
    table.to_csv(path, sep="\t", index=False)


FAULTS = [(bids_config, spoil_bids, what) for what in ("task", "everybody", "too few", "three scans")]
FAULTS += [(series_dataset, spoil_series, what) for what in ("every file", "other ROIs", "one file")]


@pytest.mark.parametrize(("make", "spoil", "what"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_what_the_screen_shows_is_what_the_run_does(tmp_path, capsys, make, spoil, what):
    """The same refusals, and of each scan that is not used the same reason."""
    config = make(tmp_path)
    spoil(tmp_path, what)
    status, facts, written = screen(capsys, config)
    try:
        run = start(read_yaml(config), [config])
        ran = main(["index", "--config", str(config)])
        refusal = capsys.readouterr().err
    except SystemExit as stopped:
        ran, refusal = 2, str(stopped)
    assert status == ran
    if status:
        first = re.search(r"^  1\. (.*)", written.err, re.MULTILINE)[1]
        assert first in refusal
        return
    scans = read_table(run.layout.scans)
    unused = scans[scans.exclude_reason.notna()]
    assert facts["scans"].startswith(f"{len(scans) - len(unused)} of {len(scans)}, of ")
    shown = facts.get("not used", "")
    listed = unused[["scan_id", "exclude_reason"]].values
    assert all(scan in shown and " ".join(reason.split()) in shown for scan, reason in listed)
    assert len(unused) == (3 if what == "three scans" else 1)
