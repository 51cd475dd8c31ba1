"""Power spectra show a rhythm in the right network and band."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.signal import welch

from bolt.config import Config, Spectra, load_experiment
from bolt.config.layout import Layout
from bolt.experiments.measured import write_spectra
from bolt.experiments.spectra import BAND_COLUMNS, SPECTRUM_COLUMNS, spectra_of
from bolt.io.errors import DataError
from bolt.io.files import write_json, write_table
from tests.experiments.test_tables import well_formed
from tests.snake import write_yaml

BANDS = Spectra(bands={"slow": [0.01, 0.04875], "fast": [0.04875, 0.25]})
"""Their border is the centre of a bin, each 0.0025 Hz wide from 0.01 Hz: which is in one band."""


class Cache:
    """Scans with two repetition times; network a oscillates at 0.03 Hz, b at 0.1 Hz; the last ROI is constant."""

    def __init__(self, trs=(2.0, 1.0), n=8):
        self.folder = "cache"
        ids = [f"sub-{i}" for i in range(n)]
        self.index = pd.DataFrame({"scan_id": ids, "subject": ids, "tr": np.resize(trs, n)})
        self.index["length"] = np.round(400 / self.index["tr"].fillna(2))
        self.rois = pd.DataFrame({"network": ["a", "a", "b", "b", None]})

    def __len__(self):
        return len(self.index)

    def series(self, i):
        tr = self.index["tr"].iloc[i]
        t = np.arange(round(400 / tr)) * tr
        rng = np.random.default_rng(i)
        waves = [np.sin(2 * np.pi * (f * t + rng.random())) for f in (0.03, 0.03, 0.1, 0.1)]
        return np.stack([*waves, np.zeros(len(t))], axis=1).astype(np.float32)


def test_a_rhythm_is_found_in_its_network_and_band():
    spectra, bands = spectra_of(Cache(), BANDS, Path)
    for network, frequency in (("a", 0.03), ("b", 0.1)):
        spectrum = spectra[spectra["network"] == network]
        assert spectrum.loc[spectrum["density"].idxmax(), "frequency"] == pytest.approx(frequency, abs=0.003)
        assert (spectrum["density"].sum() * 0.0025) == pytest.approx(1, abs=1e-6)
        assert set(spectrum["n_scans"]) == {8} and set(spectrum["n_rois"]) == {2}
    assert set(spectra.loc[spectra["network"] == "all", "n_rois"]) == {5}
    shares = bands.groupby(["network", "band"])["share"].mean()
    assert shares["a", "slow"] > 0.95 and shares["b", "fast"] > 0.95
    assert shares["all", "slow"] == pytest.approx(0.5, abs=0.02)
    assert (spectra["frequency"] - 0.04875).abs().min() < 1e-9
    assert np.allclose(bands.groupby(["scan_id", "network"])["share"].sum(), 1)


def test_between_its_bins_a_spectrum_is_interpolated():
    """Up to the Nyquist frequency of 0.111 Hz, beside a rhythm of 0.1 Hz."""
    settings = Spectra(bands={"all": [0.01, 0.5]})
    spectra, _ = spectra_of(cache := Cache(trs=(4.5,), n=1), settings, Path)
    found = spectra[spectra["network"] == "all"]
    segment = round(settings.segment_seconds / 4.5)
    powers = [np.interp(found["frequency"], *welch(roi, 1 / 4.5, nperseg=segment)) for roi in cache.series(0).T[:4]]
    assert found["density"].to_numpy() == pytest.approx(np.mean([p / p.sum() / 0.0025 for p in powers], axis=0))


def test_slow_scans_bound_the_bands():
    _, bands = spectra_of(Cache(trs=(2.0, 4.0)), BANDS, Path)
    assert bands.loc[bands["band"] == "fast", "high"].unique() == pytest.approx([0.125])
    with pytest.raises(DataError, match="repetition time of scan 'sub-0' is unknown"):
        spectra_of(Cache(trs=(np.nan,)), BANDS, Path)


def test_scans_with_gaps_between_their_volumes_have_no_spectrum(tmp_path, caplog):
    cache = Cache(trs=(2.0, 2.0, 4.0, 2.0), n=4)
    cache.index["joined"] = [None, None, None, "sub-3 sub-4"]
    for i, kept in ((0, range(5, 205)), (1, np.delete(np.arange(201), 50)), (2, np.delete(np.arange(101), 50))):
        write_json({"KeptVolumes": [int(volume) for volume in kept]}, tmp_path / f"sub-{i}.json")
    spectra, bands = spectra_of(cache, BANDS, lambda scan: tmp_path / f"{scan}.npy")
    assert set(bands["scan_id"]) == {"sub-0"} and set(spectra["n_scans"]) == {1} and bands["high"].max() == 0.25
    assert "3 of 4 scans are left out" in caplog.text
    cache.index = cache.index.iloc[1:]
    with pytest.raises(DataError, match="no scan has evenly spaced volumes"):
        spectra_of(cache, BANDS, lambda scan: tmp_path / f"{scan}.npy")


def test_no_scan_and_no_spectra_are_said(tmp_path):
    with pytest.raises(DataError, match="has no scans"):
        spectra_of(Cache(n=0), BANDS, Path)
    config = Config(dataset="none", atlases=["cc200"], paths={"results": tmp_path})
    with pytest.raises(DataError, match="'spectra' has no spectra of any dataset.*target 'spectra'"):
        write_spectra(load_experiment("spectra"), [config], tmp_path)


def test_datasets_and_atlases_stand_in_one_table(tmp_path):
    dataset = write_yaml(tmp_path / "mine.yaml", {})
    config = Config(dataset=str(dataset), atlases=["cc200", "aal116"], paths={"results": tmp_path})
    spectra, bands = spectra_of(Cache(), BANDS, Path)
    for atlas in config.atlases:
        write_table(spectra, Layout(config).spectra("spectra", atlas), SPECTRUM_COLUMNS)
        write_table(bands, Layout(config).bands("spectra", atlas), BAND_COLUMNS)
    configs = [config, config.model_copy(update={"dataset": "none"})]
    write_spectra(load_experiment("spectra"), configs, tmp_path / "paper")
    well_formed((tmp_path / "paper/spectra.tex").read_text())
    text = (tmp_path / "paper/spectra.md").read_text()
    assert "Power by band, mine, aal116" in text and "aal116 − cc200, mine" in text
    assert (tmp_path / "paper/spectra.svg").is_file() and (tmp_path / "paper/spectra_bands.tsv").is_file()
