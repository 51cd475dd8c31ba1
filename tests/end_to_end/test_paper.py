"""Every table and figure of the paper, and the extras, on the phantom's series: all rows are trained for one epoch."""

import fnmatch

import numpy as np
import pandas as pd
import pytest

from bolt.config import ROOT, Config, Simulate, load_experiment
from bolt.datasets.phantom.signal import make_series
from bolt.io.files import read_json, read_table, read_yaml
from bolt.workflow.run import Run
from tests.paper_list import belongs, listed, with_formats
from tests.provenances import check_provenance
from tests.snake import QUICK_EXPLANATION, snakemake, write_yaml

pytestmark = pytest.mark.slow

N = 12
PAPER = ("comparison", "ablation", "window_size")
EXTRAS = ("baselines", "windows_only", "learning_curve", "tuned", "tuned_learning_curve")
TRAINED = PAPER + EXTRAS
CHEAPER = ("complexity", "learning_curve", "tuned_learning_curve")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    config = configured(folder)
    for target, others in (("paper", ["brain_maps", "complexity", "landmarks"]), ("extras", ["spectra"])):
        present = written(folder)
        done = snakemake(folder, target, config=config)
        assert done.returncode == 0, done.stdout[-5000:]
        made_now = written(folder) - present
        assert made_now == {*(PAPER if target == "paper" else EXTRAS), *others}  # all of it, and nothing else
    return folder


def written(folder):
    """The experiments that have tables."""
    return {path.stem for path in (folder / "results/paper").glob("*.md")}


def configured(folder):
    """The phantom's true series as ready ones, hardly longer than the crop, and a configuration with two folds."""
    simulate, rows = Simulate(n_subjects=N, n_volumes=[84, 82]), []
    (folder / "series").mkdir()
    for i in range(N):
        site, patient = i % 2, i // 2 % 2 == 1
        np.save(folder / f"series/sub-{i:02d}.npy", make_series(simulate, i, site, patient).values)
        known = {"site": f"site{site}", "mean_fd": 0.1 + 0.01 * i, "tr": simulate.tr[site]}
        label = "patient" if patient else "control"
        rows.append({"subject": f"sub-{i:02d}", "file": f"sub-{i:02d}.npy", "diagnosis": label, **known})
    pd.DataFrame(rows).to_csv(folder / "series/scans.tsv", sep="\t", index=False)
    source = {"source": "series", "path": "series/scans.tsv", "site": "site", "crop": 80}
    dataset = write_yaml(folder / "small.yaml", source | {"label": "diagnosis", "classes": ["control", "patient"]})
    keys = {"dataset": str(dataset), "models": ["meanmlp"], "atlases": ["dosenbach160"]}
    keys |= {"folds": {"outer": 2, "side_by_side": True}, "quick": {"epochs": 1, "max_length": 75}}
    keys |= {"explain": QUICK_EXPLANATION, "experiments": experiments(folder)}
    return write_yaml(folder / "config.yaml", keys)


def experiments(folder):
    """The shipped experiments; of numbers that rows differ in alone, such as lengths of scans, fewer and smaller."""
    cheaper = {name: read_yaml(ROOT / f"config/experiments/{name}.yaml") for name in CHEAPER}
    cheaper["complexity"]["complexity"] |= {"lengths": [50, 75], "repeats": 1}
    for name in ("learning_curve", "tuned_learning_curve"):
        cheaper[name]["sweeps"][0]["values"] = [0.1, 0.6, 1.0]
    files = {name: str(write_yaml(folder / f"{name}.yaml", keys)) for name, keys in cheaper.items()}
    return [files.get(name, name) for name in Config(dataset="small").experiments]


def test_every_fold_of_every_row_is_trained(made, monkeypatch):
    monkeypatch.chdir(made)
    run = Run(read_yaml(made / "config.yaml"))
    states = {
        str(path.parent): read_json(path.parent / "status.json")
        for name in TRAINED
        for path in run.predictions(run.experiment_runs(name))
    }
    assert len(states) > 100
    assert {folder: state for folder, state in states.items() if state["state"] != "ok"} == {}
    folders = {path.parent for path in (made / "results/small/runs").rglob("fold-*/predictions.tsv")}
    assert len(folders) == len(states)  # nothing was trained twice, or beside; members of ensembles lie deeper


@pytest.mark.parametrize("name", TRAINED)
def test_every_row_has_its_numbers_or_says_why_not(made, name):
    table = read_table(made / f"results/paper/{name}.tsv", text=("row", "note", "metric"))
    accuracy = table[table["metric"] == "accuracy"].set_index("row")
    notes = accuracy["note"].fillna("").astype(str)
    missing = set(accuracy.index[accuracy["mean"].isna()])
    assert missing == set(notes.index[notes.str.contains("more than the crop")])
    too_long = {"window_size": {"BolT, W = 200"}, "windows_only": {"BolT, W = 200", "windows only, W = 200"}}
    assert missing == too_long.get(name, set())
    assert "Only a first look at small" in (made / f"results/paper/{name}.md").read_text()
    for ending in (".md", ".tex", ".png", ".svg"):
        assert (made / f"results/paper/{name}{ending}").stat().st_size > 500


def test_figures_of_explanations_are_drawn(made):
    (brain,) = (made / "results/paper").glob("brain_maps_small_dosenbach160_bolt-*.png")
    assert brain.stat().st_size > 10_000 and brain.with_suffix(".pdf").is_file()
    assert (made / "results/paper/landmarks.png").stat().st_size > 10_000
    table = read_table(made / "results/paper/brain_maps.tsv", text=("class",))
    assert set(table["class"]) == {"control", "patient"} and set(table["dataset"]) == {"small"}


def test_every_file_of_the_list_is_there_and_no_other(made):
    """`docs/paper.md` lists what each command makes; these series have no tasks, so that there is no task timing."""
    paper, listed_files = made / "results/paper", listed("small")
    present = {path.relative_to(paper).as_posix() for path in paper.rglob("*") if path.is_file()}
    assert {name for name in present if not (paper / name).stat().st_size} == set()
    asked = [name for name in listed_files if name != "task_timing"]
    for command in asked:
        for pattern in listed_files[command]:
            for each in with_formats(pattern):
                assert fnmatch.filter(present, each), each
    commands = {name: listed_files[name] for name in asked} | {name: ["{}.png"] for name in (*EXTRAS, "spectra")}
    strangers = {
        name
        for name in present
        if not any(
            belongs(name, command, [pattern.format(command) for pattern in patterns], trained=command in TRAINED)
            for command, patterns in commands.items()
        )
    }
    assert strangers == set()


def test_costs_and_spectra_are_measured(made):
    table = read_table(made / "results/paper/complexity.tsv", text=("note",))
    assert len(table) == 2 * len(load_experiment("complexity").rows)
    assert (table["operations"] > 0).all() and (table["peak_bytes"] > 0).all()
    spectra = read_table(made / "results/paper/spectra.tsv", text=("network",))
    whole = spectra[spectra["network"] == "all"]
    assert 0.01 < whole.loc[whole["density"].idxmax(), "frequency"] < 0.1  # as the phantom's series are drawn


def test_every_result_says_what_made_it_and_what_it_cost(made):
    assert check_provenance(made) >= {"train_folds", "measure_complexity", "take_spectra", "experiment"}
    read = read_json(made / "results/paper/comparison_provenance.json")["inputs"]
    assert any("predictions.tsv" in name or " files)" in name for name in read)


def test_it_is_all_done(made):
    again = snakemake(made, "-n", "paper", config=made / "config.yaml")
    assert "Nothing to be done" in again.stdout, again.stdout[-2000:]
    extras = snakemake(made, "-n", "extras", config=made / "config.yaml")
    assert "Nothing to be done" in extras.stdout, extras.stdout[-2000:]
