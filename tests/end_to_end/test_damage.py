"""What is deleted or damaged by hand in a finished run is said and made again; the results never change."""

import pytest

from tests.snake import results, series_dataset, snakemake


def halve(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cache/*/*/series.npy", "runs/*/*/*/seed-0/fold-0/predictions.tsv"])
def test_a_finished_run_is_whole_again(tmp_path, place):
    config = series_dataset(tmp_path, models=["svm"])
    assert snakemake(tmp_path, config=config).returncode == 0
    before = {
        name: results(tmp_path, name) for name in ("metrics.tsv", "summary.json", "predictions.tsv", "series.npy")
    }
    assert "Nothing to be done" in snakemake(tmp_path, config=config).stdout
    path = next((tmp_path / "results/mine").glob(place))

    def is_as_before():
        return before == {name: results(tmp_path, name) for name in before}

    path.unlink()
    again = snakemake(tmp_path, config=config)
    assert again.returncode == 0 and is_as_before(), again.stdout
    halve(path)
    refused = snakemake(tmp_path, config=config)
    assert refused.returncode != 0 and "Traceback" not in refused.stdout
    last = refused.stdout.strip().splitlines()[-1]
    assert (
        last.startswith(f"bolt: {path.relative_to(tmp_path)}: it is damaged") and "Delete it and run the same" in last
    )
    assert before["metrics.tsv"] == results(tmp_path, "metrics.tsv")
    path.unlink()  # as the message says
    again = snakemake(tmp_path, config=config)
    assert again.returncode == 0 and is_as_before(), again.stdout
    assert "Nothing to be done" in snakemake(tmp_path, config=config).stdout
