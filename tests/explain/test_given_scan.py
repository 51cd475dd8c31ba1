"""A scan given to `bolt explain`: its atlas is found with the results, and series that are not z-scored are noted."""

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from bolt.atlases.description import ATLASES
from bolt.cli.explain_scan import known_atlas
from bolt.explain.given_scan import GivenScan, _standardize, find_atlas
from bolt.io.files import write_yaml
from bolt.packs.facts import RunPlace
from bolt.packs.pack import Pack

ROIS = pd.DataFrame({"value": [3, 5, 8], "name": ["a", "b", "c"], "network": "n", "hemisphere": "L"})
NOTE = "The series are not z-scored, but the model was trained on series that are."


def test_series_that_are_not_z_scored_are_noted():
    """Three ROIs over 40 volumes: one with this mean and standard deviation, one z-scored, one constant."""
    wave = np.tile([-1.0, 1.0], 20)
    for mean, sd, noted in (
        *((0, 1, False), (0.15, 1, False), (0.25, 1, True), (-0.25, 1, True)),
        *((0, 0.85, False), (0, 0.75, True), (0, 1.25, True)),
    ):
        series = np.stack([mean + sd * wave, np.roll(wave, 1), np.full(40, 7.0)], axis=1).astype(np.float32)
        kept, changed = (GivenScan(series.copy(), np.arange(40), 2.0, ROIS.copy()) for _ in range(2))
        _standardize(kept, wanted=False)
        assert kept.notes == ["1 of 3 ROIs are constant and are set to zero: c.", *([NOTE] if noted else [])]
        np.testing.assert_array_equal(kept.series, series)
        _standardize(changed, wanted=True)
        np.testing.assert_allclose(changed.series[:, 0], wave, atol=1e-5)
        assert NOTE not in changed.notes and not changed.series[:, 2].any()


def test_the_atlas_is_that_of_the_results_which_hold_the_models(tmp_path):
    place, results = str(ATLASES / "dosenbach160"), tmp_path / "results/phantom"
    write_yaml({"dataset": "phantom", "atlases": [place]}, results / "config.yaml")
    run = RunPlace(results, "dosenbach160", "variant", results, results)
    known, options = known_atlas(Pack(SimpleNamespace(), place=run)), Namespace(atlas=None, labels=None)
    found = find_atlas(options, [1, 8], known)
    assert (found.name, found.place) == ("dosenbach160", place)
    assert found.labels is not None and found.labels["value"].tolist() == list(range(1, 161))
    assert find_atlas(options, [1, 999], known).labels is None  # an atlas that has changed: ROIs go by their values
    elsewhere = known_atlas(Pack(SimpleNamespace()))
    assert elsewhere.name == "" and elsewhere.labels is None
