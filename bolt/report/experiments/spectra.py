"""Power spectra of the ROI series over datasets and atlases: tables and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from bolt.config import Config, Experiment
from bolt.config.layout import Layout
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table
from bolt.report.figures.spectra import draw
from bolt.report.tables.markup import Sheet, write_sheets
from bolt.report.tables.numbers import decimal, interval, mean_sd
from bolt.series.spectra import ALL, BAND_COLUMNS, SPECTRUM_COLUMNS

WHERE: dict[str, Any] = {"dataset": "Dataset", "atlas": "Atlas"}
MEAN_COLUMNS: dict[str, Any] = {
    **WHERE,
    **{name: BAND_COLUMNS[name] for name in ("network", "band", "low", "high")},
    "share": "Share of the power of all bands together, mean over scans",
    "sd": "Standard deviation between scans (ddof 0)",
    "n_scans": "Scans",
}
DIFFERENCE_COLUMNS: dict[str, Any] = {
    **WHERE,
    "other": "Atlas that it is compared with",
    "band": "Band of frequency",
    "difference": "Share of the power in `atlas` minus that in `other`, mean over subjects of their mean over scans",
    "ci_low": "Lower end of its 95 % interval (t distribution over subjects)",
    "ci_high": "Upper end of the interval",
    "n_subjects": "Subjects",
}


def write_spectra(experiment: Experiment, configurations: Sequence[Config], out: Path) -> None:
    """Join the spectra of all datasets and atlases as tables, text and figure; datasets without spectra are skipped.

    Raises
    ------
    DataError
        No spectra at all.
    """
    spectra, bands = [], []
    for config in configurations:
        layout = Layout(config)
        for atlas in config.atlas_places:
            where = {"dataset": config.dataset_name, "atlas": atlas}
            if layout.spectra(experiment.name, atlas).is_file():
                spectra.append(read_table(layout.spectra(experiment.name, atlas), text=("network",)).assign(**where))
                table = read_table(layout.bands(experiment.name, atlas), text=("scan_id", "subject", "network", "band"))
                bands.append(table.assign(**where))
    if not spectra:
        raise DataError(
            f"experiment '{experiment.name}' has no spectra of any dataset",
            where=out,
            hint=f"Ask for the target '{experiment.name}'",
        )
    spectrum, shares = pd.concat(spectra), pd.concat(bands)
    means, differences = _means(shares), atlas_differences(shares)
    stem = out / experiment.name
    draw(spectrum, shares, stem.with_suffix(".png"))
    write_table(means, out / f"{experiment.name}_bands.tsv", MEAN_COLUMNS)
    write_table(differences, out / f"{experiment.name}_atlases.tsv", DIFFERENCE_COLUMNS)
    write_sheets(experiment, _sheets(means, differences), out)
    write_table(spectrum[[*WHERE, *SPECTRUM_COLUMNS]], stem.with_suffix(".tsv"), WHERE | SPECTRUM_COLUMNS)


def _means(shares: pd.DataFrame) -> pd.DataFrame:
    groups = shares.groupby(["dataset", "atlas", "network", "band", "low", "high"], sort=False)["share"]
    means = groups.agg(share="mean", sd=lambda values: values.std(ddof=0), n_scans="size").reset_index()
    return means[list(MEAN_COLUMNS)]


def atlas_differences(shares: pd.DataFrame) -> pd.DataFrame:
    """Compare the share of power in each band (`BAND_COLUMNS`) between every two atlases of a dataset, within subjects.

    Returns
    -------
    DataFrame
        `DIFFERENCE_COLUMNS`; empty if no dataset has two atlases.
    """
    whole, rows = shares[shares["network"] == ALL], []
    for (dataset, band), part in whole.groupby(["dataset", "band"], sort=False):
        subjects = part.pivot_table(index="subject", columns="atlas", values="share", sort=True)
        for atlas, other in combinations(sorted(part["atlas"].unique()), 2):
            difference = (subjects[atlas] - subjects[other]).dropna()
            n = len(difference)
            half = stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / n**0.5 if n > 1 else float("nan")
            mean = difference.mean()
            facts = {"difference": mean, "ci_low": mean - half, "ci_high": mean + half, "n_subjects": n}
            rows.append({"dataset": dataset, "atlas": atlas, "other": other, "band": band, **facts})
    return pd.DataFrame(rows, columns=list(DIFFERENCE_COLUMNS))


def _sheets(means: pd.DataFrame, differences: pd.DataFrame) -> list[Sheet]:
    sheets = []
    for (dataset, atlas), part in means.groupby(["dataset", "atlas"]):
        rows = []
        for network, lines in part.groupby("network", sort=False):
            shares = {
                f"{line.band} ({line.low:g}–{line.high:g} Hz)": mean_sd(line.share, line.sd)
                for line in lines.itertuples()
            }
            rows.append({"network": str(network), **shares, "scans": str(lines["n_scans"].max())})
        caption = "Share of power per band (per cent), averaged over ROIs; mean ± standard deviation over scans."
        sheets.append(Sheet(f"Power by band, {dataset}, {atlas}", pd.DataFrame(rows), caption))
    if len(differences):
        rows = [
            {
                "": f"{row.atlas} − {row.other}, {row.dataset}",
                "band": row.band,
                "difference [95 %]": interval(row.difference, row.ci_low, row.ci_high, _points),
                "subjects": str(row.n_subjects),
            }
            for row in differences.itertuples()
        ]
        caption = (
            "Difference between atlases in the share of power, over all ROIs, in percentage points: mean over subjects "
            "with its 95 % interval."
        )
        sheets.append(Sheet("Power by band, between atlases", pd.DataFrame(rows), caption))
    return sheets


def _points(share: float) -> str:
    """Return a difference between shares in percentage points."""
    return decimal(100 * share, 2, "+")
