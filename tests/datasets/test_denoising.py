"""Denoising that a source cannot have is refused before any work: its name would be part of every path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bolt.cli.main import main
from bolt.config import Config, Dataset, load_config, load_dataset
from bolt.io.errors import ConfigError
from bolt.workflow.checks import check_names
from tests.fake_hcp import write_hcp
from tests.fake_xcpd import RELEASES, participants
from tests.snake import series_dataset

STRATEGIES = ["24p", "24p_acompcor", "36p", "simple", "compcor", "scrubbing", "ica_aroma"]
Study = tuple[Config, Dataset]


def series(folder: Path) -> Study:
    config = load_config(series_dataset(folder))
    return config, load_dataset(config.dataset).model_copy(update={"path": folder / "series/scans.tsv"})


def xcpd(folder: Path) -> Study:
    release = RELEASES["0.14"]
    path = release.write(folder / "xcp_d")
    assert main(["describe-atlas", str(path / release.atlas), "--out", str(folder / "4S5Parcels")]) == 0
    keys = {"subjects_table": participants(folder), "label": "dx", "classes": ["a", "b"]}
    dataset = Dataset(name="mine", source="bids_series", path=path, **keys)
    return Config(dataset="mine", atlases=[str(folder / "4S5Parcels")]), dataset


def abide_series(folder: Path) -> Study:
    return Config(dataset="abide1", atlases=["cc200"]), load_dataset("abide1")


def abide_images(folder: Path) -> Study:
    return Config(dataset="abide1_images", atlases=["aal116"]), load_dataset("abide1_images")


def hcp(folder: Path) -> Study:
    write_hcp(folder, ["100206"], ["REST"])
    keys = {"path": folder / "HCP_1200", "subjects_table": folder / "unrestricted.csv"}
    dataset = load_dataset("hcp_rest")
    local = dataset.hcp.model_copy(update={"bucket": None, "restricted_table": None})
    return Config(dataset="hcp_rest", atlases=["aal116"]), dataset.model_copy(update={**keys, "hcp": local})


SERIES = "provides ROI series, .* '{}' would change nothing.*Set 'denoise' to none"
CONFOUNDS = "denoising '{}' needs fMRIPrep's table of confounds"
REFUSED = {series: SERIES, xcpd: SERIES, abide_series: SERIES, abide_images: CONFOUNDS, hcp: CONFOUNDS}
"""Sources without a table of confounds, and what they are told."""


@pytest.mark.parametrize("source", REFUSED, ids=lambda source: source.__name__)
def test_what_has_no_confounds_is_not_said_to_be_denoised(source: Callable[[Path], Study], tmp_path: Path) -> None:
    config, dataset = source(tmp_path)
    check_names(config.model_copy(update={"denoise": "none"}), dataset)
    for strategy in STRATEGIES:
        with pytest.raises(ConfigError, match=REFUSED[source].format(strategy)):
            check_names(config.model_copy(update={"denoise": strategy}), dataset)


def test_images_without_confounds_may_be_filtered(tmp_path: Path) -> None:
    (tmp_path / "band.yaml").write_text("detrend: true\nhigh_pass: 0.01\nlow_pass: 0.1\n")
    for source in (abide_images, hcp):
        config, dataset = source(tmp_path)
        check_names(config.model_copy(update={"denoise": str(tmp_path / "band.yaml")}), dataset)


def test_an_app_that_is_given_ready_series_does_not_denoise_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A table of series is the only ready source of `bolt run`."""
    series_dataset(tmp_path)
    arguments = [tmp_path / "series/scans.tsv", tmp_path / "out", "participant", "--atlas", "dosenbach160"]
    arguments += ["--denoise", "24p"]
    assert main(["run", *map(str, arguments), "--dry-run"]) != 0
    said = "".join(capfd.readouterr())
    assert "provides ROI series, which are used as they are: denoising '24p' would change nothing" in said
    assert not (tmp_path / "out/results").exists()
