"""The workflow is killed in all its parts, at random moments; started again, it ends as if nothing had happened."""

import contextlib
import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.snake import QUICK_EXPLANATION, command, half_written, results, series_dataset, snakemake, write_yaml

SLOWER = {
    "model": "bolt",
    "hyper": {"hidden": 32, "n_blocks": 2, "n_heads": 2, "head_dim": 16, "window": 10},
    "training": {"epochs": 40, "warmup_epochs": 5, "batch_size": 2},
}


def dataset(folder):
    config = series_dataset(folder, n_subjects=12, explain=QUICK_EXPLANATION)
    write_yaml(folder / "tiny.yaml", SLOWER)
    return config


def kill_all(pid: int) -> None:
    """Kill the workflow and every job of it at once, without a chance to tidy up."""
    first = psutil.Process(pid)
    for process in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


KILLS = ["scans.tsv", "manifest.json", "history.tsv", "predictions.tsv", "importance.npy"]
"""The workflow is killed shortly after a file of that name is there: in every part of it once."""


def run_until(folder: Path, config: Path, name: str, pause: float) -> bool:
    """Start the workflow and kill it `pause` seconds after a file called `name` is there; False: it ended."""
    process = subprocess.Popen(command(config=config), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if any((folder / "results").rglob(name)):
            time.sleep(pause)
            kill_all(process.pid)
            process.wait()
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_killed_five_times_and_resumed(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    whole = snakemake(straight, config=dataset(straight))
    assert whole.returncode == 0, whole.stdout

    config = dataset(killed)
    moments = random.Random(0)
    for name in KILLS:
        assert run_until(killed, config, name, moments.uniform(0, 1.5)), f"it ended before {name} was there"
        time.sleep(1)
        assert snakemake(killed, "--unlock", config=config).returncode == 0
    done = snakemake(killed, config=config)
    assert done.returncode == 0, done.stdout
    for name in ("predictions.tsv", "checkpoint.safetensors", "folds.tsv", "importance.npy", "roi_weights.tsv"):
        expected = results(straight, name)
        assert expected
        assert results(killed, name) == expected, name
    assert not half_written(killed)
