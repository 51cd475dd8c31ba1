"""The workflow is killed at random moments; started again, it ends as if nothing had happened."""

import os
import time

import pytest

from tests.kills import Killer, differences, half_written
from tests.snake import QUICK_EXPLANATION, results, series_dataset, snakemake, write_yaml

SLOWER = {
    "model": "bolt",
    "hyper": {"hidden": 32, "n_blocks": 2, "n_heads": 2, "head_dim": 16, "window": 10},
    "training": {"epochs": 40, "warmup_epochs": 5, "batch_size": 2},
}
N_KILLS = int(os.environ.get("BOLT_KILLS", "5"))
"""The recorded run of benchmarks/kills.py has 20."""


def dataset(folder):
    config = series_dataset(folder, explain=QUICK_EXPLANATION)
    write_yaml(folder / "tiny.yaml", SLOWER)
    return config


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed(tmp_path):
    straight, start = tmp_path / "straight", time.monotonic()
    whole = snakemake(straight, config=dataset(straight))
    assert whole.returncode == 0, whole.stdout
    seconds = time.monotonic() - start
    seed = int(os.environ.get("BOLT_SEED", time.time_ns() % 100_000))
    print(f"BOLT_SEED={seed}")
    done = 0
    while done < N_KILLS:
        killed = tmp_path / f"killed_after_{done}"
        kills = Killer(killed, dataset(killed), 0.5 * seconds, seed + done).run(N_KILLS - done)
        print(*kills, sep="\n")
        done += len(kills)
        assert results(killed, "predictions.tsv") and results(killed, "importance.npy")
        assert not differences(straight, killed), seed
        assert not half_written(killed), seed
