"""The demo as shipped: from simulated raw images to the report, every measure within its range."""

import re
import shlex
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.io.files import read_json, read_table
from bolt.workflow.run import Run
from docs.generate import listed_tables
from tests.provenances import check_provenance
from tests.snake import snakemake
from tests.test_docs import blocks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The finished demo. Until all is explained, the truth is not even there to be opened; the page shows it."""
    folder = tmp_path_factory.mktemp("demo")
    config = ROOT / "config/config.yaml"
    truth = folder / "work/phantom/bids/derivatives/truth"
    made = snakemake(folder, "results/phantom/scans.tsv", config=config)
    assert made.returncode == 0, made.stdout
    shutil.move(truth, folder / "hidden")
    explained = map(str, Run(yaml.safe_load(config.read_text())).explanations())
    learned = snakemake(folder, "series", "train", *explained, config=config)
    assert learned.returncode == 0, learned.stdout
    shutil.move(folder / "hidden", truth)
    done = snakemake(folder, config=config)
    assert done.returncode == 0, done.stdout
    return folder


def test_every_measure_is_within_its_range(demo):
    table = read_table(demo / "results/phantom/tables/truth.tsv").set_index("measure")
    failed = table[table.passed.astype(str).str.lower() == "false"]
    assert failed.empty, failed[["value", "low", "high"]].to_string()
    ranged = {"registration error", "motion error", "series correlation", "pooled accuracy", "landmark AUC"}
    assert ranged | {"landmark AUC of position alone", "planted ROIs, p"} <= set(table.index[table.passed.notna()])
    assert table.value["registration error"] < table.value["registration error, affine part alone"]


def test_no_scan_is_lost_and_the_report_shows_pictures(demo):
    assert len(pd.read_csv(demo / "results/phantom/exclusions.tsv", sep="\t")) == 0
    report = demo / "results/phantom/report"
    pages = {file.stem: file.read_text() for file in report.glob("*.html")}
    everything = "".join(pages.values())
    assert "Truth table" in pages["index"] and "out of range" not in everything
    assert pages["trust"].count(": as expected.") == 2  # planted moments, planted regions
    pictures = list((report / "figures").rglob("*.png")) + list((report / "figures").rglob("*.svg"))
    assert len(pictures) >= 12 and all(picture.stat().st_size > 2000 for picture in pictures)
    for picture in pictures:
        if picture.suffix == ".png" and picture.parent == report / "figures":
            assert picture.name in everything


def test_every_subject_has_a_page_with_light_pictures(demo):
    results = demo / "results/phantom"
    subjects = {page.stem: page.read_text() for page in results.glob("subjects/sub-*.html")}
    assert len(subjects) == 24
    assert all('id="predictions"' in page and 'class="course"' in page for page in subjects.values())
    pictures = list(results.glob("derivatives/sub-*/figures/*"))
    assert all(f"{path.parts[-3]}/figures/{path.name}" in subjects[path.parts[-3]] for path in pictures)
    assert len(pictures) == 24 * 6 and max(picture.stat().st_size for picture in pictures) < 250_000
    assert sum(file.stat().st_size for file in (demo / "results/phantom/report").rglob("*")) < 20e6
    table = read_table(demo / "results/phantom/quality/quality.tsv")
    assert (table.state == "ok").all()


def test_every_result_says_what_made_it_and_what_it_cost(demo):
    stages = {"anatomical", "functional", "parcellate", "cache", "folds", "train_fold", "sanity", "truth", "report"}
    assert stages < check_provenance(demo)
    assert "Computing resources" in (demo / "results/phantom/report/methods.html").read_text()


def test_a_second_run_has_nothing_to_do(demo):
    again = snakemake(demo, config=ROOT / "config/config.yaml")
    assert "Nothing to be done" in again.stdout


def test_the_reference_describes_every_table(demo):
    described = listed_tables()
    for sidecar in demo.glob("results/**/*.json"):
        if not sidecar.with_suffix(".tsv").is_file():
            continue
        path = sidecar.with_suffix(".tsv").relative_to(demo / "results").as_posix()
        columns = [known for pattern, known in described.items() if re.fullmatch(f"(.*/)?{pattern}", path)]
        assert columns, f"{path} is not in docs/reference/tables.yaml"
        unknown = {name for name in read_json(sidecar) if not re.match(r"p_|\w+_comp_cor|cosine|\w+_outlier", name)}
        assert any(unknown <= known for known in columns), (path, unknown)


def test_the_page_for_raw_data_starts(demo):
    """The dry run of docs/start_raw.md; the demo has made its practice data."""
    simulate, look, *_ = (block for block in blocks("start_raw.md", "bash") if not block.startswith("make"))
    assert shlex.split(simulate)[-1] == "results/phantom/scans.tsv"
    words = shlex.split(look.replace("\\\n", " "))
    done = subprocess.run([sys.executable, "-m", *words], cwd=demo, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "24 scans" in done.stdout + done.stderr, done.stdout + done.stderr
