"""What is deleted or damaged by hand in a finished run is said and made again; the results never change."""

import pytest

from tests.snake import results, series_dataset, snakemake


def halve(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


KEPT = ("metrics.tsv", "summary.json", "predictions.tsv", "series.npy")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run's folder and configuration; each test leaves it as it was."""
    folder = tmp_path_factory.mktemp("finished")
    config = series_dataset(folder, models=["svm"])
    done = snakemake(folder, config=config)
    assert done.returncode == 0, done.stdout
    assert "Nothing to be done" in snakemake(folder, config=config).stdout
    return folder, config


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cache/*/*/series.npy", "runs/*/*/*/seed-0/fold-0/predictions.tsv"])
def test_a_finished_run_is_whole_again(finished, place):
    folder, config = finished
    before = {name: results(folder, name) for name in KEPT}
    path = next((folder / "results/mine").glob(place))

    def is_as_before():
        return before == {name: results(folder, name) for name in KEPT}

    path.unlink()
    again = snakemake(folder, config=config)
    assert again.returncode == 0 and is_as_before(), again.stdout
    halve(path)
    refused = snakemake(folder, config=config)
    assert refused.returncode != 0 and "Traceback" not in refused.stdout
    last = refused.stdout.strip().splitlines()[-1]
    assert last.startswith(f"bolt: {path.relative_to(folder)}: it is damaged") and "Delete it and run the same" in last
    assert before["metrics.tsv"] == results(folder, "metrics.tsv")
    path.unlink()  # as the message says
    again = snakemake(folder, config=config)
    assert again.returncode == 0 and is_as_before(), again.stdout
    assert "Nothing to be done" in snakemake(folder, config=config).stdout
