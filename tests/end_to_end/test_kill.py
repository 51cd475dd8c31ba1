"""The workflow is killed at random moments; started again, it ends as if nothing had happened."""

import os
import re
import time

import pytest

from bolt.io.files import read_json, read_yaml
from tests.disks import filled_once_there, small_disk
from tests.kills import Killer, differences, half_written
from tests.snake import QUICK_EXPLANATION, results, series_dataset, snakemake, write_yaml

pytestmark = pytest.mark.slow

SLOWER = {
    "model": "bolt",
    "hyper": {"hidden": 32, "n_blocks": 2, "n_heads": 2, "head_dim": 16, "window": 10},
    "training": {"epochs": 40, "warmup_epochs": 5, "batch_size": 2},
}
N_KILLS = int(os.environ.get("BOLT_KILLS", "3"))
"""One of each kind; the recorded run of benchmarks/kills.py has 20."""
TWO_FOLDS = {"n_subjects": 8, "folds": {"outer": 2}}


def dataset(folder, **keys):
    config = series_dataset(folder, explain=QUICK_EXPLANATION, **keys)
    write_yaml(folder / "tiny.yaml", SLOWER)
    return config


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nobody disturbs, and the seconds that it takes about if all its processes are new interpreters."""
    folder, start = tmp_path_factory.mktemp("straight"), time.monotonic()
    whole = snakemake(folder, config=dataset(folder, **TWO_FOLDS))
    assert whole.returncode == 0, whole.stdout
    return folder, 1.5 * (time.monotonic() - start)


def test_killed_at_random_moments_and_resumed(straight, tmp_path):
    undisturbed, seconds = straight
    seed = int(os.environ.get("BOLT_SEED", time.time_ns() % 100_000))
    print(f"BOLT_SEED={seed}")
    done = 0
    while done < N_KILLS:
        killed = tmp_path / f"killed_after_{done}"
        kills = Killer(killed, dataset(killed, **TWO_FOLDS), 0.3 * seconds, seed + done).run(N_KILLS - done)
        print(*kills, sep="\n")
        done += len(kills)
        assert results(killed, "predictions.tsv") and results(killed, "importance.npy")
        assert not differences(undisturbed, killed), seed
        assert not half_written(killed), seed


def test_a_disk_that_fills_up_and_is_freed(straight, tmp_path):
    """In training and in explanation; nothing is recorded as failed, and the end is the same."""
    undisturbed, _ = straight
    config = dataset(tmp_path, **TWO_FOLDS)
    keys = read_yaml(config)
    asked = list(results(undisturbed, "importance.tsv"))
    with small_disk(tmp_path / "disk", 12) as disk:
        (tmp_path / "results").symlink_to(disk)  # as the message says
        write_yaml(config, keys | {"paths": {"work": str(disk / "work")}})
        for name in ("history.tsv", "importance.npy"):
            with filled_once_there(disk, name):
                stopped = snakemake(tmp_path, *asked, config=config)
            assert stopped.returncode, name
            assert re.search("bolt( [a-z]+)?: .*no space left on the disk of this folder. Free", stopped.stdout)
            states = [read_json(path)["state"] for path in disk.rglob("*status.json")]
            assert set(states) <= {"ok"}, name
        done = snakemake(tmp_path, *asked, config=config)
        assert done.returncode == 0, done.stdout
        for name in ("predictions.tsv", "checkpoint.safetensors", "importance.npy", "importance.tsv"):
            assert results(tmp_path, name) == results(undisturbed, name), name
        assert not half_written(tmp_path)
