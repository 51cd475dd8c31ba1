"""A scan given to `bolt explain`: its atlas is found with the results, and series that are not z-scored are noted."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from bolt.atlases.description import ATLASES
from bolt.io.files import write_yaml
from bolt.share.models import Pack
from bolt.share.one_scan import GivenScan, atlas_of, standardize
from bolt.share.runs import RunPlace

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
        standardize(kept, wanted=False)
        assert kept.notes == ["1 of 3 ROIs are constant and are set to zero: c.", *([NOTE] if noted else [])]
        np.testing.assert_array_equal(kept.series, series)
        standardize(changed, wanted=True)
        np.testing.assert_allclose(changed.series[:, 0], wave, atol=1e-5)
        assert NOTE not in changed.notes and not changed.series[:, 2].any()


def test_the_atlas_is_that_of_the_results_which_hold_the_models(tmp_path):
    place, results = str(ATLASES / "dosenbach160"), tmp_path / "results/phantom"
    write_yaml({"dataset": "phantom", "atlases": [place]}, results / "config.yaml")
    run = RunPlace(results, "dosenbach160", "variant", results, results)

    def found(place, *values):
        estimator = SimpleNamespace(members_=[SimpleNamespace(info={"rois": list(values)})])
        return atlas_of(Pack(estimator, place=place), Path("model"), None, None)

    atlas = found(run, 1, 8)
    assert (atlas.name, atlas.place) == ("dosenbach160", place)
    assert atlas.labels is not None and atlas.labels["value"].tolist() == list(range(1, 161))
    assert found(run, 1, 999).labels is None  # an atlas that has changed: ROIs go by their values
    elsewhere = found(None, 1, 8)
    assert elsewhere.name == "" and elsewhere.labels is None
