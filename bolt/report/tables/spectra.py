"""Power spectra of the ROI series over datasets and atlases: tables, a text and a picture."""

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
from bolt.io.files import read_table, write_table, write_text
from bolt.report.figures.style import INK, LINE, MANY, canvas
from bolt.report.tables.markup import PACKAGES, Sheet, latex, markdown
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
    "dataset": "Dataset",
    "atlas": "Atlas",
    "other": "Atlas that it is compared with",
    "band": "Band of frequency",
    "difference": "Share of the power in `atlas` minus that in `other`, mean over subjects of their mean over scans",
    "ci_low": "Lower end of its 95 % interval (t distribution over subjects)",
    "ci_high": "Upper end of the interval",
    "n_subjects": "Subjects",
}


def write_spectra(experiment: Experiment, configurations: Sequence[Config], out: Path) -> None:
    """Join the spectra of all datasets and atlases.

    Parameters
    ----------
    experiment : Experiment
    configurations : sequence of Config
        Of the datasets; those without spectra are passed over.
    out : Path
        Receives ``<experiment>.tsv``, ``_bands.tsv`` and ``_atlases.tsv``, ``.md``, ``.tex``, ``.png`` and ``.svg``.

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
            hint=f"Take them: snakemake {experiment.name}",
        )
    spectrum, shares = pd.concat(spectra), pd.concat(bands)
    means = _means(shares)
    differences = atlas_differences(shares)
    stem = out / experiment.name
    draw(spectrum, shares, stem.with_suffix(".png"))
    write_table(means, out / f"{experiment.name}_bands.tsv", MEAN_COLUMNS)
    write_table(differences, out / f"{experiment.name}_atlases.tsv", DIFFERENCE_COLUMNS)
    sheets = _sheets(means, differences)
    words = f"# {experiment.title}\n\n{experiment.description}\n\n"
    labels = [f"tab:{experiment.name}-{i}" for i in range(len(sheets))]
    write_text(PACKAGES + "\n".join(map(latex, sheets, labels)), stem.with_suffix(".tex"))
    write_text(words + "\n".join(map(markdown, sheets)), stem.with_suffix(".md"))
    write_table(spectrum[[*WHERE, *SPECTRUM_COLUMNS]], stem.with_suffix(".tsv"), WHERE | SPECTRUM_COLUMNS)


def _means(shares: pd.DataFrame) -> pd.DataFrame:
    keys = ["dataset", "atlas", "network", "band", "low", "high"]
    groups = shares.groupby(keys, sort=False)["share"]
    found = groups.agg(share="mean", sd=lambda values: values.std(ddof=0), n_scans="size").reset_index()
    return found[list(MEAN_COLUMNS)]


def atlas_differences(shares: pd.DataFrame) -> pd.DataFrame:
    """Share of the power in each band, of every two atlases of a dataset, compared within subjects.

    Parameters
    ----------
    shares : DataFrame
        `bolt.series.spectra.BAND_COLUMNS`, dataset and atlas.

    Returns
    -------
    DataFrame
        `DIFFERENCE_COLUMNS`; without rows where no dataset has two atlases.
    """
    whole, rows = shares[shares["network"] == ALL], []
    for (dataset, band), part in whole.groupby(["dataset", "band"], sort=False):
        people = part.pivot_table(index="subject", columns="atlas", values="share", sort=True)
        for atlas, other in combinations(sorted(part["atlas"].unique()), 2):
            difference = (people[atlas] - people[other]).dropna()
            n = len(difference)
            half = stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / n**0.5 if n > 1 else float("nan")
            mean = difference.mean()
            facts = {"difference": mean, "ci_low": mean - half, "ci_high": mean + half, "n_subjects": n}
            rows.append({"dataset": dataset, "atlas": atlas, "other": other, "band": band, **facts})
    return pd.DataFrame(rows, columns=list(DIFFERENCE_COLUMNS))


def draw(spectra: pd.DataFrame, shares: pd.DataFrame, out: Path) -> None:
    """A row a dataset: all ROIs of each atlas with the spread between scans, then the networks of each atlas.

    Parameters
    ----------
    spectra : DataFrame
        `bolt.series.spectra.SPECTRUM_COLUMNS`, dataset and atlas.
    shares : DataFrame
        Its bands, for their edges.
    out : Path
        Ends in ``.png``.
    """
    datasets, columns = sorted(spectra["dataset"].unique()), 1 + spectra.groupby("dataset")["atlas"].nunique().max()
    with canvas(out, width=max(7.2, 3.1 * columns), height=0.4 + 2.9 * len(datasets)) as figure:
        grid = figure.subplots(len(datasets), columns, squeeze=False)
        for axes, dataset in zip(grid, datasets, strict=True):
            own = spectra[spectra["dataset"] == dataset]
            edges = shares.loc[shares["dataset"] == dataset, ["band", "low", "high"]].drop_duplicates()
            for i, (atlas, part) in enumerate(own[own["network"] == ALL].groupby("atlas")):
                axes[0].fill_between(
                    part["frequency"], part["density"] - part["sd"], part["density"] + part["sd"],
                    color=MANY[i], alpha=0.2, lw=0,
                )  # fmt: skip
                axes[0].plot(part["frequency"], part["density"], color=MANY[i], lw=1.6, label=atlas)
            axes[0].set_title(f"{dataset} · all ROIs, ± sd of scans")
            for axis, (atlas, part) in zip(axes[1:], own.groupby("atlas"), strict=False):
                for i, (network, line) in enumerate(part[part["network"] != ALL].groupby("network")):
                    axis.plot(line["frequency"], line["density"], color=MANY[i % len(MANY)], lw=1.2, label=network)
                axis.set_title(f"{dataset} · {atlas}, networks")
            for axis in axes:
                if not axis.lines:
                    axis.set_axis_off()
                    continue
                _frame(axis, edges)


def _frame(axis: Any, edges: pd.DataFrame) -> None:
    top = axis.get_ylim()[1]
    for band, low, high in edges.drop_duplicates("band").itertuples(index=False):
        axis.axvline(low, color=LINE, lw=0.8, zorder=0)
        axis.text((low * high) ** 0.5, top, band, ha="center", va="bottom", fontsize=6.5, color=INK)
    axis.set(xscale="log", ylim=(0, top), xlabel="frequency (Hz)", ylabel="power density (1/Hz)")
    axis.set_title(axis.get_title(loc="left"), pad=12)
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if t <= edges["high"].max()]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=7, handlelength=1.2)


def _sheets(means: pd.DataFrame, differences: pd.DataFrame) -> list[Sheet]:
    sheets = []
    for (dataset, atlas), part in means.groupby(["dataset", "atlas"]):
        edges = part.drop_duplicates("band").set_index("band")
        rows = []
        for network, lines in part.groupby("network", sort=False):
            found = lines.set_index("band")
            cells = {
                f"{band} ({found.at[band, 'low']:g}–{found.at[band, 'high']:g} Hz)": _percent(found.loc[band])
                for band in edges.index
            }
            rows.append({"network": str(network), **cells, "scans": str(lines["n_scans"].max())})
        caption = "Share of the power in each band, per cent, mean over ROIs; mean ± standard deviation of scans."
        sheets.append(Sheet(f"Power by band, {dataset}, {atlas}", pd.DataFrame(rows), caption))
    if len(differences):
        rows = [
            {
                "": f"{row.atlas} − {row.other}, {row.dataset}",
                "band": row.band,
                "difference [95 %]": f"{100 * row.difference:+.2f} [{100 * row.ci_low:+.2f}, {100 * row.ci_high:+.2f}]",
                "subjects": str(row.n_subjects),
            }
            for row in differences.itertuples()
        ]
        caption = (
            "Difference of the shares of power between atlases, all ROIs, in percentage points: mean over subjects and "
            "its interval."
        )
        sheets.append(Sheet("Power by band, between atlases", pd.DataFrame(rows), caption))
    return sheets


def _percent(value: pd.Series) -> str:
    return f"{100 * value['share']:.1f} ± {100 * value['sd']:.1f}"
