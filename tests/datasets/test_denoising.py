"""Denoising that a source cannot have is refused before any work: its name would be part of every path."""

from __future__ import annotations

from pathlib import Path

import pytest

from bolt.config import Config, Dataset, load_dataset
from bolt.io.errors import ConfigError
from bolt.workflow.checks import check_names
from tests.fake_hcp import write_hcp

STRATEGIES = ["24p", "24p_acompcor", "36p", "simple", "compcor", "scrubbing", "ica_aroma"]
SERIES = "provides ROI series, .* '{}' would change nothing.*Set 'denoise' to none"
CONFOUNDS = "denoising '{}' needs fMRIPrep's table of confounds"
REFUSED = {"abide1": SERIES, "abide1_images": CONFOUNDS, "hcp_rest": CONFOUNDS}
"""Datasets without a table of confounds, and what they are told."""


def study(name: str, folder: Path) -> tuple[Config, Dataset]:
    dataset, atlas = load_dataset(name), "cc200" if name == "abide1" else "aal116"
    if name == "hcp_rest":
        write_hcp(folder, ["100206"], ["REST"])
        local = dataset.hcp.model_copy(update={"bucket": None, "restricted_table": None})
        keys = {"path": folder / "HCP_1200", "subjects_table": folder / "unrestricted.csv", "hcp": local}
        dataset = dataset.model_copy(update=keys)
    return Config(dataset=name, atlases=[atlas]), dataset


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_confounds_is_not_said_to_be_denoised(name: str, tmp_path: Path) -> None:
    config, dataset = study(name, tmp_path)
    check_names(config.model_copy(update={"denoise": "none"}), dataset)
    for strategy in STRATEGIES:
        with pytest.raises(ConfigError, match=REFUSED[name].format(strategy)):
            check_names(config.model_copy(update={"denoise": strategy}), dataset)


@pytest.mark.parametrize("name", ["abide1_images", "hcp_rest"])
def test_images_without_confounds_may_be_filtered(name: str, tmp_path: Path) -> None:
    (tmp_path / "band.yaml").write_text("detrend: true\nhigh_pass: 0.01\nlow_pass: 0.1\n")
    config, dataset = study(name, tmp_path)
    check_names(config.model_copy(update={"denoise": str(tmp_path / "band.yaml")}), dataset)


@pytest.mark.parametrize("source", ["series", "bids_series"])
def test_sources_of_series_are_ready(source: str) -> None:
    assert Dataset(name="mine", source=source, path="x", label=None).ready_series
