"""What models cost: counted operations, live memory, the exponents of growth."""

import pandas as pd
import pytest
import torch

from bolt.config import Complexity, Experiment, Model, Quick, load_experiment
from bolt.experiments.complexity import COLUMNS, _LiveTensors, exponents, measure
from bolt.experiments.measured import write_complexity
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table
from tests.experiments.test_tables import well_formed

TINY = {"hidden": 8, "n_blocks": 1, "n_heads": 1, "head_dim": 8}


def measured(rows: dict[str, Model], lengths: list[int], n_rois: int = 4) -> pd.DataFrame:
    return measure(list(rows.items()), "tiny", n_rois, lengths, tr=3.0, repeats=1, device="cpu")


def test_a_recurrent_layer_is_counted_step_by_step():
    table = measured({"lstm": Model(name="lstm", model="lstm")}, [20, 40, 80], n_rois=12)
    by_length = table.set_index("length")["operations"]
    # a recurrent layer does the same at every volume: two more volumes cost as much as the two before
    assert by_length[80] - by_length[40] == 2 * (by_length[40] - by_length[20])


def test_attention_over_the_whole_scan_grows_faster_than_within_windows():
    tiny = TINY | {"window": 5}
    kinds = {"windows": tiny, "whole": tiny | {"cls_token": "none", "windowed": False, "cwr_weight": 0.0}}
    rows = {row: Model(name="bolt", model="bolt", hyper=hyper) for row, hyper in kinds.items()}
    slopes = exponents(measured(rows, [256, 512, 1024]), ["operations", "peak_bytes"]).set_index("row")
    assert slopes.at["windows", "operations"] == pytest.approx(1, abs=0.05)
    assert slopes.at["whole", "operations"] > 1.6


def test_exponents_are_fitted_over_the_upper_half():
    lengths = [10, 20, 40, 80, 160]
    table = pd.DataFrame({"atlas": "a", "row": "r", "length": lengths, "parameters": 1.0})
    table["seconds"] = [9e9, 9e9, *(3.0 * n**1.5 for n in lengths[2:])]
    table["operations"] = [None, None, None, None, 7.0]
    found = exponents(table, ["seconds", "operations"]).iloc[0]
    assert found["seconds"] == pytest.approx(1.5)
    assert pd.isna(found["operations"])


def test_a_first_look_keeps_two_lengths_and_exponents_are_fitted_over_them():
    settings = Complexity(lengths=[600, 75, 300])
    assert settings.up_to(Quick(max_length=50)) == [75, 300] == settings.up_to(Quick(max_length=599))
    assert settings.up_to(None) == [75, 300, 600]
    table = pd.DataFrame({"atlas": "x", "row": "r", "length": [75, 300], "parameters": 1, "seconds": [1.0, 16.0]})
    assert exponents(table, ["seconds"])["seconds"].tolist() == [pytest.approx(2)]


@pytest.mark.parametrize("lengths", [[1, 75], [75, 75], [75]])
def test_lengths_that_cannot_be_measured_are_refused(lengths):
    with pytest.raises(ValueError, match="lengths"):
        Complexity(lengths=lengths)


def test_a_model_of_the_scans_length_and_repetition_time_that_does_not_fit_in_memory_is_a_note(monkeypatch):
    def full(*_, **settings):
        assert settings == {"crop": 20, "tr": 3.0}
        raise torch.OutOfMemoryError("of 80 GB")

    monkeypatch.setattr("bolt.experiments.complexity.create_model", full)
    assert measured({"gc_lstm": Model(name="gc_lstm", model="gc_lstm")}, [20])["note"].tolist() == ["out of memory"]


def test_memory_is_what_lives_at_one_time():
    with _LiveTensors() as live:
        kept = torch.zeros(1000)
        for _ in range(5):
            kept + 1  # gone at once
        kept.view(10, 100)  # nothing new
    assert live.peak == 2 * 4000


def test_a_scan_that_is_too_short_is_a_note(tmp_path):
    bolt = Model(name="bolt", model="bolt", hyper=TINY | {"window": 30})
    table = measured({"bolt": bolt}, [20, 40])
    assert table.set_index("length").at[20, "note"] == "the model's window is 30 volumes"
    assert table.set_index("length").at[40, "operations"] > 0
    write_table(table, tmp_path / "complexity" / "tiny.tsv", COLUMNS)
    guess = {"level": "reconstructed", "note": "Its width is a guess."}
    rows = [{"row": "bolt", "model": "bolt", "fidelity": guess}, {"model": "ift_net"}]
    write_complexity(Experiment(name="complexity", title="Cost", rows=rows), tmp_path)
    text, drawn = ((tmp_path / f"complexity.{end}").read_text() for end in ("md", "svg"))
    assert "bolt, 20 volumes: the model's window is 30 volumes" in text
    assert "| bolt † |" in text and "- bolt is reconstructed: Its width is a guess\n" in text and "IFT" not in text
    assert "bolt †" in drawn and "† reconstructed" in drawn
    assert list(read_table(tmp_path / "complexity_exponents.tsv")["row"]) == ["bolt"]
    well_formed((tmp_path / "complexity.tex").read_text())


def test_nothing_measured_is_said(tmp_path):
    experiment = load_experiment("complexity")
    with pytest.raises(DataError, match="no measurement of any atlas.*the target 'complexity'"):
        write_complexity(experiment, tmp_path)
    facts = {"row": "BolT", "model": "bolt", "atlas": "toy", "n_rois": 4, "length": 75, "note": "its window is 80"}
    write_table(pd.DataFrame([facts]).reindex(columns=list(COLUMNS)), tmp_path / "complexity/toy.tsv", COLUMNS)
    with pytest.raises(DataError, match="nothing of experiment 'complexity' could be measured: BolT, 75 volumes: its"):
        write_complexity(experiment, tmp_path)
