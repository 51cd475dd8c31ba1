"""The ledger sums benchmark files and the notes of jobs; unreadable files are logged and skipped."""

import logging

import pytest

from bolt.cli.main import main
from bolt.config import ROOT
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_json
from bolt.jobs.ledger import ledger, read_benchmark, refresh, write_ledger

HEADER = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
FOLD = "cc200/MNI152-none/bolt-1a2b/seed-0/fold-{}"


def measured(results, stage, name, seconds, cpu, rss=1000.0, dataset="mine"):
    path = results / dataset / "benchmarks" / stage / f"{name}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{HEADER}{seconds}\t0:00:00\t{rss}\t1\t1\t1\t2000.00\t1000.00\t99.00\t{cpu}\n")
    return path


def noted(results, stage, name, dataset="mine", **facts):
    note = {"log": f"work/{dataset}/logs/{stage}/{name}.log", "job": {"attempt": 1}, "device": "cpu"}
    note |= {"cpu_seconds": 0.0, "peak_memory_mb": 0.0}
    write_json(note | facts, results / dataset / "runs" / stage / name / f"{len(facts)}_provenance.json")


def row(table, stage, dataset="mine"):
    rows = table[(table["stage"] == stage) & (table["dataset"] == dataset)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_sums_are_those_of_the_benchmark_files(tmp_path):
    for i, (seconds, rss) in enumerate([(1800.0, 900.0), (5400.0, 2000.0)]):
        measured(tmp_path, "train_fold", FOLD.format(i), seconds, 3600.0, rss)
    measured(tmp_path, "functional", "sub-01/sub-01_task-rest", 36.0, 18.0)
    measured(tmp_path, "functional", "sub-01/sub-01_task-rest", 360.0, 180.0, dataset="other")
    table, problems = ledger(tmp_path)
    assert problems == [] and len(table) == 3
    train = row(table, "train_fold")
    assert (train.model, train.jobs, train.wall_hours, train.cpu_hours) == ("bolt-1a2b", 2, 2.0, 2.0)
    assert train.peak_memory_mb == pytest.approx(2000 * 1.048576, abs=0.1)
    assert train.read_gb == pytest.approx(2 * 2000 * 2**20 / 1e9) and train.written_gb == pytest.approx(2.097152)
    assert train.gpu_hours == 0
    assert row(table, "functional").wall_hours == 0.01 and row(table, "functional", "other").wall_hours == 0.1
    assert table["model"].isna().sum() == 2
    assert ledger(tmp_path, "other")[0]["dataset"].tolist() == ["other"]


def test_a_jobs_own_notes_count_if_larger(tmp_path):
    """Benchmarks are sampled: of a job of 40 seconds, they may only have the processor time of 15."""
    name = FOLD.format(0)
    measured(tmp_path, "train_fold", name, 3600.0, 100.0)
    facts = {"cpu_seconds": 1800.0, "peak_memory_mb": 3000.0, "device": "cuda: NVIDIA H200", "job": {"attempt": 2}}
    noted(tmp_path, "train_fold", name, **facts)
    measured(tmp_path, "evaluate", "cc200/MNI152-none/svm-1/seed-0", 0.4, "NA", "NA")
    table, _ = ledger(tmp_path)
    train = row(table, "train_fold")
    assert (train.cpu_hours, train.gpu_hours, train.peak_memory_mb, train.retries) == (0.5, 1.0, 3000.0, 1)
    quick = row(table, "evaluate")
    assert quick.cpu_hours == pytest.approx(0.4 / 3600, abs=1e-6) and quick.peak_memory_mb == 0


@pytest.mark.parametrize(("together", "expected"), [(2, 1.0), (1, 2.0)])
def test_folds_trained_side_by_side_count_once(tmp_path, together, expected):
    name = FOLD.rsplit("/", 1)[0]
    measured(tmp_path, "train_folds", name, 3600.0, "NA")
    for extra in ({"fold": 0}, {"fold": 1, "seed": 0}):
        noted(tmp_path, "train_folds", name, cpu_seconds=3600.0, folds_side_by_side=together, **extra)
    assert row(ledger(tmp_path)[0], "train_folds").cpu_hours == expected


@pytest.mark.parametrize("text", ["", HEADER, "s\tmax_rss\n1\t2\n", HEADER + "12.0\t0:00", "\0" * 80])
def test_damaged_benchmark_files_are_logged_and_skipped(tmp_path, caplog, text):
    measured(tmp_path, "folds", "all", 3600.0, 3600.0)
    bad = measured(tmp_path, "cache", "cc200", 1.0, 1.0)
    bad.write_text(text)
    noted(tmp_path, "index", "all")  # without a benchmark
    with pytest.raises(DataError, match="cc200.tsv"):
        read_benchmark(bad)
    with caplog.at_level(logging.WARNING, "bolt"):
        write_ledger(tmp_path / "ledger.tsv")
    assert str(bad) in caplog.text and "index all of mine has no benchmark file" in caplog.text
    assert read_table(tmp_path / "ledger.tsv")["stage"].tolist() == ["folds"]


@pytest.mark.parametrize("text", ["{", "[]", '{"log": null}', '{"log": "/tmp/mine.log"}', '{"log": "logs/index"}'])
def test_provenance_without_a_job_is_skipped(tmp_path, text):
    (tmp_path / "mine_provenance.json").write_text(text)
    assert ledger(tmp_path)[1] == []


def test_the_model_is_read_from_the_jobs_name(tmp_path):
    names = {FOLD.format(0): "bolt-1a2b", FOLD.format(1) + "/inner-1": "bolt-1a2b", "cc200/bolt/fold-3": "bolt"}
    for name in [*names, "sub-01/ses-a/sub-01_ses-a_task-rest", "all"]:
        measured(tmp_path, "train_fold", name, 3600.0, 3600.0)
    table, _ = ledger(tmp_path)
    assert table.fillna("n/a").set_index("model")["jobs"].to_dict() == {"bolt": 1, "bolt-1a2b": 2, "n/a": 2}


@pytest.mark.parametrize("n_jobs", [0, 1])
def test_the_command_writes_a_described_table(tmp_path, monkeypatch, n_jobs):
    monkeypatch.chdir(tmp_path)
    for i in range(n_jobs):
        measured(tmp_path / "results", "folds", f"all-{i}", 3600.0, 3600.0)
    assert main(["ledger", "--config", str(ROOT / "config/config.yaml")]) == 0
    table, about = read_table("results/ledger.tsv"), read_json("results/ledger.json")
    assert set(table.columns) == set(about) and table["jobs"].sum() == n_jobs


def test_an_unwritable_ledger_does_not_fail_the_run(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    refresh("the ledger", write_ledger, tmp_path / "file/ledger.tsv")
    assert "the ledger was not written" in caplog.text


def test_linked_results_on_another_disk_count(tmp_path):
    measured(tmp_path / "moved", "train_fold", FOLD.format(0), 3600.0, 3600.0)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/mine").symlink_to(tmp_path / "moved/mine")
    noted(tmp_path / "results", "train_fold", FOLD.format(0), device="cuda: H200")
    assert row(ledger(tmp_path / "results")[0], "train_fold").gpu_hours == 1
