"""A second `snakemake` in a folder where one is at work says so and stops; a dry run and jobs of the run go on."""

import shutil

import pytest

from bolt.io.files import read_yaml
from tests.snake import series_dataset, snakemake, write_yaml
from tests.workflow.test_lock import another


@pytest.mark.slow
def test_a_second_run_stops_and_a_dry_run_does_not(tmp_path):
    mine = tmp_path / "mine"
    config = series_dataset(mine)
    with another(mine / "results/mine") as first:
        second = snakemake(mine, config=config)
        said = second.stdout.strip().splitlines()[-1]
        assert second.returncode == 1 and said.startswith(f"bolt: {mine}/results/mine: another run is active here: ")
        assert f"process {first.pid}" in said and "unlock" not in second.stdout
        assert snakemake(mine, "-n", config=config).returncode == 0

        elsewhere = tmp_path / "elsewhere"  # the same results from another folder, which Snakemake's lock would not see
        shutil.copytree(mine / "series", elsewhere / "series")
        paths = {"results": str(mine / "results")}
        theirs = write_yaml(elsewhere / "config.yaml", {**read_yaml(config), "paths": paths})
        third = snakemake(elsewhere, config=theirs)
        assert third.returncode == 1 and "another run is active here" in third.stdout
    done = snakemake(mine, "results/mine/scans.tsv", config=config)  # killed: nobody needs to unlock anything
    assert done.returncode == 0 and "resuming after an interrupted run" in done.stdout
    assert not list((mine / "results").rglob(".running.json"))
