"""The workflow is killed at random moments; started again, it ends as if nothing had happened."""

import contextlib
import random
import subprocess
import time

import psutil
import pytest

from tests.snake import command, half_written, results, series_dataset, snakemake, write_yaml

SLOWER = {
    "model": "bolt",
    "hyper": {"hidden": 32, "n_blocks": 2, "n_heads": 2, "head_dim": 16, "window": 10},
    "training": {"epochs": 40, "warmup_epochs": 5, "batch_size": 2},
}


def dataset(folder):
    config = series_dataset(folder, n_subjects=12)
    write_yaml(folder / "tiny.yaml", SLOWER)
    return config


def kill_all(pid: int) -> None:
    """Kill the workflow and every job of it at once, without a chance to tidy up."""
    first = psutil.Process(pid)
    for process in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.slow
def test_killed_five_times_and_resumed(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    whole = snakemake(straight, config=dataset(straight))
    assert whole.returncode == 0, whole.stdout

    config = dataset(killed)
    moments = random.Random(0)
    kills = 0
    for _ in range(12):
        process = subprocess.Popen(
            command(config=config), cwd=killed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(moments.uniform(8, 25))
        except subprocess.TimeoutExpired:
            kill_all(process.pid)
            process.wait()
            kills += 1
            time.sleep(1)
        if kills == 5:
            break
        assert snakemake(killed, "--unlock", config=config).returncode == 0
    assert kills == 5, "the workflow was too fast to be killed five times"
    assert snakemake(killed, "--unlock", config=config).returncode == 0
    done = snakemake(killed, config=config)
    assert done.returncode == 0, done.stdout
    for name in ("predictions.tsv", "checkpoint.safetensors", "folds.tsv", "importance.npy", "roi_weights.tsv"):
        expected = results(straight, name)
        assert expected
        assert results(killed, name) == expected, name
    assert not half_written(killed)
