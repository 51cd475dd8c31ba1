"""ABIDE-I from its publisher's bucket (here on the loopback interface) to cache and folds."""

import json
import shutil
import time

import numpy as np
import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.series import SeriesCache
from tests.abide import bucket_path, write_bucket
from tests.file_server import serve
from tests.shared import shared_data
from tests.snake import TINY_MODEL, snakemake, write_yaml

FOLDER = "cpac/nofilt_noglobal/rois_cc200"


def configure(folder, base, **keys):
    """The shipped example with another base address and a small model."""
    dataset = yaml.safe_load((ROOT / "config/datasets/abide1.yaml").read_text())
    dataset["abide"]["base"] = base
    shipped = yaml.safe_load((ROOT / "config/examples/abide1.yaml").read_text())
    models = [str(write_yaml(folder / "tiny.yaml", TINY_MODEL))]
    changes = {"dataset": str(write_yaml(folder / "abide1.yaml", dataset)), "models": models}
    return write_yaml(folder / "config.yaml", shipped | changes | keys)


def spoil(server, names):
    """Every way in which a file of the bucket goes wrong; scan to what its exclusion says."""
    files = [bucket_path(server.folder, name) for name in names]
    paths = ["/" + str(file.relative_to(server.folder)) for file in files]
    lines = files[3].read_text().splitlines(keepends=True)
    files[0].unlink()
    files[1].write_text("<!DOCTYPE html><html><body>Please log in</body></html>")
    files[2].write_text("")
    files[3].write_text("".join(lines)[: -len(lines[-1]) // 2])
    files[4].write_text("".join(line.rsplit("\t", 1)[0] + "\n" for line in lines))
    files[5].write_text("".join(lines[:8]))
    server.answers[paths[6]] = [403] * 9
    server.drops[paths[7]] = [1000]  # these two recover
    server.answers[paths[8]] = [503]
    server.headers["Retry-After"] = "0"
    return {
        names[0]: ("download", "the server does not have it (404"),
        names[1]: ("download", "a web page or a server's message in place of"),
        names[2]: ("download", "the file is empty"),
        names[3]: ("cache", "not a table of numbers"),
        names[4]: ("cache", "its first line names 199 ROIs"),
        names[5]: ("cache", "7 volumes are left, but a model's window needs 10"),
        names[6]: ("download", "the server refuses it, or does not have it (403"),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """About sixty scans; some files are bad, two transfers stumble."""
    folder = tmp_path_factory.mktemp("abide")
    names = write_bucket(shared_data("abide1"), folder / "bucket", n_scans=60)
    shutil.copytree(folder / "bucket", folder / "whole")
    with serve(folder / "bucket", delay=0.3) as server:
        due = spoil(server, names)
        config = configure(folder, server.address, folds={"outer": 3})
        done = snakemake(folder, "series", "--cores", "6", "--resources", "downloads=3", config=config)
        yield folder, done, server, names, due, config


@pytest.mark.slow
def test_the_good_scans_reach_cache_and_folds(run):
    folder, done, _, names, due, _ = run
    assert done.returncode == 0, done.stdout
    cache = SeriesCache(folder / "results/abide1/cache/cc200/MNI152NLin6Asym-none")
    assert sorted(cache.index.scan_id) == sorted(set(names) - set(due))
    assert (cache.index.n_volumes == cache.index.length).all()
    folds = pd.read_csv(folder / "results/abide1/folds.tsv", sep="\t")
    assert sorted(folds.scan_id.unique()) == sorted(cache.index.scan_id)
    with np.load(shared_data("abide1") / "cc200_nofilt_noglobal_871.npz") as packed:
        raw, offsets, every = packed["data"], packed["offsets"], packed["file_id"].tolist()
    for i in range(0, len(cache), 9):
        k = every.index(cache.index.scan_id[i])
        series = raw[offsets[k] : offsets[k + 1]].astype(np.float64)
        lively = series.std(axis=0) > 1e-3
        due_values = ((series - series.mean(axis=0)) / np.where(lively, series.std(axis=0), 1))[:, lively]
        np.testing.assert_allclose(cache.series(i)[:, lively], due_values, atol=2e-3)


@pytest.mark.slow
def test_each_bad_file_is_listed_with_its_reason(run):
    folder, _, _, _, due, _ = run
    listed = pd.read_csv(folder / "results/abide1/exclusions.tsv", sep="\t").set_index("scan_id")
    assert sorted(listed.index) == sorted(due)
    for name, (stage, words) in due.items():
        assert listed.stage[name] == stage and words in listed.reason[name], listed.reason[name]
        status = json.loads((folder / f"work/abide1/downloads/{FOLDER}/{name}/status.json").read_text())
        assert status["state"] == ("failed" if stage == "download" else "ok")
        assert status["mend"] or stage == "cache"


@pytest.mark.slow
def test_downloads_are_polite(run):
    folder, _, server, names, _, _ = run
    assert 2 <= server.most_at_once <= 3
    table = "/Phenotypic_V1_0b_preprocessed1.csv"
    asked = [path for path, _ in server.asked]
    assert asked.count(table) == 1
    twice = {path for path in asked if asked.count(path) > 1}
    assert len(asked) == len(names) + 1 + 2 and len(twice) == 2  # the two that stumbled
    assert not list((folder / "work").rglob("*.part*"))


@pytest.mark.slow
def test_z_mended_files_are_fetched_when_asked_for(run):
    folder, _, server, _, due, config = run
    shutil.copytree(folder / "whole", folder / "bucket", dirs_exist_ok=True)
    server.answers.clear()
    mended = [name for name, (stage, _) in due.items() if stage == "download"]
    again = [f"work/abide1/downloads/{FOLDER}/{name}/status.json" for name in mended]
    asked = len(server.asked)
    assert snakemake(folder, "-n", "series", config=config).stdout.count("Nothing to be done") == 1
    done = snakemake(folder, "series", "--forcerun", *again, config=config)
    assert done.returncode == 0, done.stdout
    assert len(server.asked) == asked + len(mended)
    listed = pd.read_csv(folder / "results/abide1/exclusions.tsv", sep="\t")
    assert sorted(listed.scan_id) == sorted(set(due) - set(mended))


@pytest.mark.slow
def test_all_871_scans(tmp_path):
    """The whole of the paper's cohort, one job a file."""
    names = write_bucket(shared_data("abide1"), tmp_path / "bucket")
    with serve(tmp_path / "bucket") as server:
        config = configure(tmp_path, server.address)
        start = time.monotonic()
        done = snakemake(tmp_path, "series", config=config)
        print(f"871 scans from download to cache and folds in {time.monotonic() - start:.0f} s")
    assert done.returncode == 0, done.stdout
    index = pd.read_csv(tmp_path / "results/abide1/cache/cc200/MNI152NLin6Asym-none/index.tsv", sep="\t")
    assert sorted(index.scan_id) == names and len(names) == 871
    assert index.label.value_counts().to_dict() == {"control": 468, "autism": 403}
    assert index.n_volumes.min() == 78 and index.n_volumes.max() == 316
    assert len(pd.read_csv(tmp_path / "results/abide1/exclusions.tsv", sep="\t")) == 1112 - 871
    folds = pd.read_csv(tmp_path / "results/abide1/folds.tsv", sep="\t")
    assert folds[folds.role == "test"].scan_id.nunique() == 871 and folds.fold.nunique() == 10
