"""Results that were altered after they were made are refused: no scan or fold is blamed, and no metric changes."""

import os
from pathlib import Path

import numpy as np
import pytest

from bolt.evaluate.metrics import fold_predictions
from bolt.explain.weights import explained_folds
from bolt.io.errors import ConfigError
from bolt.io.files import sha256, write_json, write_status, write_text
from bolt.io.integrity import require_outputs, require_unaltered
from bolt.jobs.outcome import Outcome
from bolt.jobs.provenance import provenance
from bolt.series.cache import FILES, SeriesCache
from tests.caches import pack, scan_table

DAMAGED = "damaged, or was changed.*Delete it and run the same command again"


def change(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(bytes(content))


CHANGED = (change, DAMAGED)
MISSING = (Path.unlink, "not found, although it was made.*Run the same command again")


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_cache_stops_the_run(tmp_path, name):
    series = np.random.default_rng(0).standard_normal((2, 20, 3))
    cache = pack(tmp_path, list(series), scan_table("ab"))
    assert len(SeriesCache(cache)) == 2
    for damage, message in (CHANGED, MISSING):
        damage(cache / name)
        with pytest.raises(ConfigError, match=message):
            SeriesCache(cache)


@pytest.mark.parametrize(
    ("name", "provenance_name", "read", "ends"),
    [
        ("predictions.tsv", "provenance.json", fold_predictions, (CHANGED, MISSING)),
        ("importance.tsv", "explain_provenance.json", lambda fold: explained_folds(fold.parent, [0]), (CHANGED,)),
    ],
)
def test_damaged_and_missing_results_of_a_fold_stop_what_reads_them(tmp_path, name, provenance_name, read, ends):
    fold = tmp_path / "fold-0"
    write_text("scan_id\trole\tlabel\tpredicted\na\ttest\tx\tx\n", fold / name)
    write_status(fold / "status.json", "ok", "train")
    write_json(provenance(place=fold / provenance_name), fold / provenance_name)
    assert read(fold)[0] in ("ok", 0)
    for damage, message in ends:
        damage(fold / name)
        with pytest.raises(ConfigError, match=message):
            read(fold)


def test_a_job_stops_at_damaged_results_of_the_job_before_it(tmp_path):
    """It is no bad scan or fold, which would be excluded."""
    first = Outcome("train", tmp_path / "status.json", 1)
    first.run(lambda: write_text("weights", tmp_path / "checkpoint.safetensors"))
    second = Outcome("explain", tmp_path / "explain_status.json", 1)
    second.upstream = tmp_path / "status.json"
    second.run(lambda: None)
    change(tmp_path / "checkpoint.safetensors")
    with pytest.raises(ConfigError, match=DAMAGED):
        second.run(lambda: None)
    assert '"ok"' in (tmp_path / "explain_status.json").read_text()


def test_provenance_records_what_the_job_wrote_in_its_folder(tmp_path):
    write_text("mine", tmp_path / "run/below/a.txt")
    write_text("gone", tmp_path / "run/b.txt")
    (tmp_path / "run/b.txt").unlink()
    write_text("elsewhere", tmp_path / "c.txt")
    facts = provenance(place=tmp_path / "run/provenance.json")
    assert facts["outputs"] == {"below/a.txt": sha256(tmp_path / "run/below/a.txt")}
    assert "outputs" not in provenance()


def test_only_newer_files_are_compared_where_that_is_enough(tmp_path):
    write_text("a", tmp_path / "a.txt")
    write_json({"outputs": {"a.txt": "wrong", "missing.txt": "x"}}, tmp_path / "provenance.json")
    os.utime(tmp_path / "a.txt", (0, 0))
    require_outputs(tmp_path / "provenance.json", newer=True)
    require_outputs(tmp_path / "no_provenance.json")
    with pytest.raises(ConfigError, match=DAMAGED):
        require_outputs(tmp_path / "provenance.json")
    os.utime(tmp_path / "a.txt")
    with pytest.raises(ConfigError, match=DAMAGED):
        require_outputs(tmp_path / "provenance.json", newer=True)


def test_a_file_that_was_written_again_is_compared_again(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    digests = {"a.npy": sha256(tmp_path / "a.npy")}
    require_unaltered(tmp_path, digests)
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(ConfigError, match=DAMAGED):
        require_unaltered(tmp_path, digests)
