"""What several files of this folder start from."""

import pytest

from tests.snake import series_dataset, snakemake


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of the test's own, in which it works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def experiments_known(monkeypatch):
    """The shipped experiments are not checked at each start: a quarter of its time, and tested elsewhere."""
    monkeypatch.setattr("bolt.workflow.checks.check_experiment", lambda *_: None)


@pytest.fixture(scope="session")
def series_run(once):
    """A run of the target `series`, of which a third of the scans are too short: folder, configuration, output."""

    def make(folder):
        config = series_dataset(folder, quality={"min_n_volumes": 41})
        done = snakemake(folder, "series", config=config)
        assert done.returncode == 0, done.stdout
        return folder, config, done.stdout

    return once("series_run", make)
