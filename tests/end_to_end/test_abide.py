"""ABIDE-I from its publisher's bucket (here on the loopback interface) to cache and folds."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.series.cache import SeriesCache
from tests.abide import bucket_path, people, write_bucket, write_people
from tests.file_server import serve
from tests.shared import shared_data
from tests.snake import QUICK_EXPLANATION, TINY_MODEL, snakemake, write_yaml

pytestmark = pytest.mark.slow

FOLDER = "cpac/nofilt_noglobal/rois_cc200"


def configure(folder, base, **keys):
    """The shipped example with another base address and a small model."""
    dataset = yaml.safe_load((ROOT / "config/datasets/abide1.yaml").read_text())
    dataset["abide"]["base"] = base
    shipped = yaml.safe_load((ROOT / "config/examples/abide1.yaml").read_text())
    models = [str(write_yaml(folder / "tiny.yaml", TINY_MODEL)), "svm"]
    changes = {"dataset": str(write_yaml(folder / "abide1.yaml", dataset)), "models": models}
    changes |= {"explain": QUICK_EXPLANATION, "seeds": [0]}
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
    numbers = lines[3].split("\t")
    files[9].write_text("".join([*lines[:3], "\t".join(["nan", *numbers[1:]]), *lines[4:]]))
    server.answers[paths[6]] = [403] * 9
    server.drops[paths[7]] = [1000]  # these two recover
    server.answers[paths[8]] = [503]
    return {
        names[0]: ("download", "the server does not have it (404"),
        names[1]: ("download", "a web page or a server's message instead of"),
        names[2]: ("download", "the file is empty"),
        names[3]: ("download", "rows of unequal length"),
        names[4]: ("download", "199 named ROIs do not match the 200"),
        names[5]: ("cache", "7 volumes are left, fewer than the 10 that a model needs"),
        names[6]: ("download", "the server refuses it, or does not have it (403"),
        names[9]: ("download", "nan in row 2, column 0"),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """About thirty scans; some files are bad, two transfers stumble."""
    folder = tmp_path_factory.mktemp("abide")
    names = write_bucket(shared_data("abide1"), folder / "bucket", n_scans=30)
    shutil.copytree(folder / "bucket", folder / "whole")
    with serve(folder / "bucket", delay=0.3) as server:
        due = spoil(server, names)
        config = configure(folder, server.address, folds={"outer": 2, "run": {"tiny": [0]}})
        done = snakemake(folder, "folds", "--cores", "6", "--resources", "downloads=3", config=config)
        yield folder, done, server, names, due, config


def test_the_good_scans_reach_cache_and_folds(run):
    folder, done, _, names, due, _ = run
    assert done.returncode == 0, done.stdout
    cache = SeriesCache(folder / "results/abide1/cache/cc200/ready")
    assert sorted(cache.index.scan_id) == sorted(set(names) - set(due))
    assert (cache.index.n_volumes == cache.index.length).all()
    folds = pd.read_csv(folder / "results/abide1/folds.tsv", sep="\t")
    assert sorted(folds.scan_id.unique()) == sorted(cache.index.scan_id)
    with np.load(shared_data("abide1") / "cc200_nofilt_noglobal_871.npz") as packed:
        raw, offsets, every = packed["data"], packed["offsets"], packed["file_id"].tolist()
    for i in range(0, len(cache), 5):
        k = every.index(cache.index.scan_id[i])
        series = raw[offsets[k] : offsets[k + 1]].astype(np.float64)
        lively = series.std(axis=0) > 1e-3
        due_values = ((series - series.mean(axis=0)) / np.where(lively, series.std(axis=0), 1))[:, lively]
        np.testing.assert_allclose(cache.series(i)[:, lively], due_values, atol=2e-3)


def test_each_bad_file_is_listed_with_its_reason(run):
    folder, _, _, _, due, _ = run
    listed = pd.read_csv(folder / "results/abide1/exclusions.tsv", sep="\t").set_index("scan_id")
    assert sorted(listed.index) == sorted(due)
    for name, (stage, words) in due.items():
        assert listed.stage[name] == stage and words in listed.reason[name], listed.reason[name]
        status = json.loads((folder / f"work/abide1/downloads/{FOLDER}/{name}/status.json").read_text())
        assert status["state"] == ("failed" if stage == "download" else "ok")
        assert status["hint"] or stage == "cache"


def test_downloads_are_polite(run):
    folder, _, server, names, _, _ = run
    assert 2 <= server.most_at_once <= 3
    table = "/Phenotypic_V1_0b_preprocessed1.csv"
    asked = list(server.asked)
    assert asked.count(table) == 1
    twice = {path for path in asked if asked.count(path) > 1}
    assert len(asked) == len(names) + 1 + 2 and len(twice) == 2  # the two that stumbled
    assert not list((folder / "work").rglob("*.part*"))


def test_z_mended_files_are_fetched_when_asked_for(run):
    folder, _, server, _, due, config = run
    shutil.copytree(folder / "whole", folder / "bucket", dirs_exist_ok=True)
    server.answers.clear()
    mended = [name for name, (stage, _) in due.items() if stage == "download"]
    status = folder / f"work/abide1/downloads/{FOLDER}/{mended[0]}/status.json"
    asked = len(server.asked)
    assert snakemake(folder, "-n", "folds", config=config).stdout.count("Nothing to be done") == 1
    command = json.loads(status.read_text())["hint"].split("To repeat this job: ")[1]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    first = subprocess.run(shlex.split(command), cwd=folder, env=os.environ | {"PATH": path}, check=False)
    assert first.returncode == 0 and json.loads(status.read_text())["state"] == "ok"
    done = snakemake(folder, "folds", "--forcerun", "download_series", config=config)
    assert done.returncode == 0, done.stdout
    assert len(server.asked) == asked + len(mended)
    listed = pd.read_csv(folder / "results/abide1/exclusions.tsv", sep="\t")
    assert sorted(listed.scan_id) == sorted(set(due) - set(mended))


def test_zz_one_fold_of_bolt_and_all_of_the_svm_in_one_report(run):
    """After the mended files, so that the scans are the fixture's last."""
    folder, _, _, _, _, config = run
    done = snakemake(folder, config=config)
    assert done.returncode == 0, done.stdout
    trained = [path.parts[-4] for path in folder.glob("results/abide1/runs/cc200/*/*/seed-0/fold-*/predictions.tsv")]
    assert sorted(Counter(trained).values()) == [1, 2]
    performance, cohort = (
        (folder / f"results/abide1/report/{name}.html").read_text() for name in ("performance", "cohort")
    )
    assert "All models side by side" in performance
    assert "95 %" in cohort and "Head motion" in cohort


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Eight people's 4D images at one site whose TR is not known; four files are bad, each in its own way."""
    folder = tmp_path_factory.mktemp("abide_images")
    table = people(10).assign(SITE_ID="SBL")
    own = write_people(table, folder / "chosen.csv")  # of the user; the estimate of the room follows it
    files = [bucket_path(folder / "bucket", name, "func_preproc") for name in table.FILE_ID]
    files[0].parent.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for file in files:
        write_image(file, rng.standard_normal((24, 30, 24, 30)).astype(np.float32))
    files[0].write_bytes(files[0].read_bytes()[:-5000])
    files[1].write_bytes(b"<html><body>503 Slow Down</body></html>")
    write_image(files[2], np.ones((24, 30, 24), np.float32))
    write_image(files[3], np.full((24, 30, 24, 30), np.nan, np.float32))
    with serve(folder / "bucket") as server:
        space = {"space": "MNI152NLin6Asym"}
        dataset = yaml.safe_load((ROOT / "config/datasets/abide1_images.yaml").read_text())
        dataset["abide"]["base"] = server.address
        dataset["subjects_table"] = str(own)
        keys = {"dataset": str(write_yaml(folder / "abide1_images.yaml", dataset)), "preprocess": space}
        keys |= {"models": [str(write_yaml(folder / "tiny.yaml", TINY_MODEL))], "atlases": ["dosenbach160"]}
        config = write_yaml(folder / "config.yaml", keys | {"folds": {"outer": 2}})
        return folder, snakemake(folder, "folds", config=config), list(table.FILE_ID)


def write_image(path, data):
    affine = np.diag([8.0, 8.0, 8.0, 1.0])
    affine[:3, 3] = (-92, -128, -72)
    image = nib.Nifti1Image(data, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((8, 8, 8, 2.2)[: data.ndim])
    nib.save(image, path)


def test_images_reach_cache_and_folds(images):
    folder, done, names = images
    assert done.returncode == 0, done.stdout
    cache = SeriesCache(folder / "results/abide1_images/cache/dosenbach160/MNI152NLin6Asym-none")
    assert cache.index.scan_id.tolist() == names[4:] and set(cache.index.n_volumes) == {30}
    listed = pd.read_csv(folder / "results/abide1_images/exclusions.tsv", sep="\t").set_index("scan_id")
    assert listed.stage.tolist() == ["download", "download", "parcellate", "parcellate"]
    words = ["cut off or damaged", "a web page or a server's message", "expected a 4D image", "no ROI"]
    for name, word in zip(names, words, strict=False):
        assert word in listed.reason[name], listed.reason[name]
