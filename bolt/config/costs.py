"""Sizes on which estimates are based: the keys of `config/costs.yaml`."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat

from bolt.config.keys import Keys, parse
from bolt.io.files import read_yaml
from bolt.io.places import ROOT

FILE = ROOT / "config/costs.yaml"


class AbideMegabytes(Keys):
    """Average size of a file of ABIDE-I."""

    series: NonNegativeFloat
    images: NonNegativeFloat


class MegabytesPerScan(Keys):
    """What a finished run keeps of a scan."""

    raw: NonNegativeFloat = Field(description="transforms, masks, references, pictures of a raw scan")
    series: NonNegativeFloat = Field(description="per atlas: series, and their share of the cache")


class Costs(Keys):
    """Sizes on which estimates are based: `config/costs.yaml`."""

    abide_megabytes: AbideMegabytes
    hcp_megabytes_per_volume: NonNegativeFloat
    megabytes_per_scan: MegabytesPerScan


def load_costs() -> Costs:
    """Read and check `config/costs.yaml`."""
    return parse(Costs, read_yaml(FILE), FILE)
