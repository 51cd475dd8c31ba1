"""Experiments that train nothing: cost of models against scan length, and power spectra of the ROI series."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pandas as pd
from scipy import stats

from bolt.config import Config, Experiment, load_model
from bolt.config.layout import Layout
from bolt.config.study import paper_table
from bolt.experiments.complexity import exponents, upper_half
from bolt.experiments.figures import MEASURES, draw_cost, draw_spectra
from bolt.experiments.markup import CAPTIONS, notes_of, write_sheets
from bolt.experiments.spectra import ALL
from bolt.io.errors import DataError
from bolt.io.files import columns, read_table, write_table
from bolt.report.numbers import DASH, decimal, interval, marked, mean_sd, number, reconstructed
from bolt.report.tables import Sheet

EXPONENT_COLUMNS = columns("experiments", "exponents")
MEAN_COLUMNS = columns("experiments", "mean_bands")
DIFFERENCE_COLUMNS = columns("experiments", "atlas_differences")


def write_complexity(experiment: Experiment, out: Path) -> None:
    """Write the tables, text and figure of an experiment from its measurements, ``<out>/<experiment>/<atlas>.tsv``.

    Raises
    ------
    DataError
        No file, or no measurement in any of them.
    """
    folder = out / experiment.name
    files = sorted(folder.glob("*.tsv"))
    if not files:
        what = f"experiment '{experiment.name}' has no measurement of any atlas"
        raise DataError(what, where=folder, hint=f"Ask for the target '{experiment.name}'")
    table = pd.concat([read_table(file, text=("row", "note", "atlas", "model")) for file in files])
    if table["parameters"].isna().all():
        first = "{row}, {length} volumes: {note}".format(**table.iloc[0])
        what = f"nothing of experiment '{experiment.name}' could be measured: {first}"
        hint = "Use longer scans ('complexity: lengths'), or models with shorter windows"
        raise DataError(what, where=folder, hint=hint)
    slopes = with_formulas(exponents(table, list(MEASURES)), experiment)
    models = {row.model: load_model(row.model) for row in experiment.rows}
    unknown = reconstructed(
        {row.row or models[row.model].shown: row.fidelity or models[row.model].fidelity for row in experiment.rows}
    )
    draw_cost(table.assign(row=[marked(row, unknown) for row in table["row"]]), folder.with_suffix(".png"))
    write_table(slopes, out / f"{experiment.name}_exponents.tsv", EXPONENT_COLUMNS)
    sheets = []
    for atlas, part in table.groupby("atlas"):
        here = {row: note for row, note in unknown.items() if row in set(part["row"])}
        sheets.append(cost_sheet(f"{experiment.title}, {atlas}", part, slopes[slopes["atlas"] == atlas], here))
    write_sheets(experiment, sheets, out)
    write_table(table, folder.with_suffix(".tsv"), columns("experiments", "complexity"))


def with_formulas(slopes: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Add the paper's orders of growth (``formula``, ``paper_exponent``) to exponents, for rows that the paper has."""
    known = read_table(paper_table("complexity"), text=("model", "formula")).set_index("model")
    names = {row.row or load_model(row.model).title: row.paper["model"] for row in experiment.rows if row.paper}
    stated = known.loc[list(names.values())].set_axis(list(names)).reindex(slopes["row"])
    return slopes.assign(formula=stated["formula"].to_numpy(), paper_exponent=stated["exponent"].to_numpy(float))


def cost_sheet(title: str, table: pd.DataFrame, slopes: pd.DataFrame, unknown: dict[str, str]) -> Sheet:
    """Return cost at the longest scan and the exponents, a row per model (`unknown` ones with †), for one atlas."""
    lengths = sorted(table["length"].unique())
    longest, exponent = table[table["length"] == lengths[-1]].set_index("row"), slopes.set_index("row")
    rows, in_paper = [], exponent["paper_exponent"].notna().any()
    for name in longest.index:
        row = {"": marked(str(name), unknown)}
        if in_paper:
            formula, power = exponent.at[name, "formula"], exponent.at[name, "paper_exponent"]
            without = DASH if pd.isna(power) else "in words"
            row |= {"the paper": without if pd.isna(formula) else formula, "its power of T": number(power)}
        row["parameters"] = number(longest.at[name, "parameters"])
        for measure, (words, size, unit) in MEASURES.items():
            row[f"{words} ({unit})"] = number(longest.at[name, measure] / size)
            row[f"{words}, exponent"] = decimal(exponent.at[name, measure])
        rows.append(row)
    devices = ", ".join(sorted(table["device"].dropna().unique()))
    caption = CAPTIONS["cost"].format(volumes=lengths[-1], rois=int(table["n_rois"].iloc[0]), devices=devices)
    missing = table[table["note"].notna() & (table["note"] != "")]
    notes = [
        CAPTIONS["exponents"].format(lengths=", ".join(map(str, upper_half(lengths)))),
        *([CAPTIONS["letters"]] if in_paper else []),
        f"Operations: {columns('experiments', 'complexity')['operations']}",
        CAPTIONS["memory"],
        *notes_of(unknown),
        *(f"{row.row}, {row.length} volumes: {row.note}" for row in missing.itertuples()),
    ]
    caption += f" {CAPTIONS['reconstructed']}" if unknown else ""
    return Sheet(title, pd.DataFrame(rows), caption, notes=notes)


def write_spectra(experiment: Experiment, configurations: Sequence[Config], out: Path) -> None:
    """Join the spectra of all datasets and atlases as tables, text and figure; datasets without spectra are skipped.

    Raises
    ------
    DataError
        No spectra at all.
    """
    name, spectra, bands = experiment.name, [], []
    for config in configurations:
        layout = Layout(config)
        for atlas in config.atlas_places:
            where = {"dataset": config.dataset_name, "atlas": atlas}
            if layout.spectra(name, atlas).is_file():
                spectra.append(read_table(layout.spectra(name, atlas), text=("network",)).assign(**where))
                table = read_table(layout.bands(name, atlas), text=("scan_id", "subject", "network", "band"))
                bands.append(table.assign(**where))
    if not spectra:
        what = f"experiment '{name}' has no spectra of any dataset"
        raise DataError(what, where=out, hint=f"Ask for the target '{name}'")
    spectrum, shares = pd.concat(spectra), pd.concat(bands)
    means, differences = band_means(shares), atlas_differences(shares)
    draw_spectra(spectrum, shares, out / f"{name}.png")
    write_table(means, out / f"{name}_bands.tsv", MEAN_COLUMNS)
    write_table(differences, out / f"{name}_atlases.tsv", DIFFERENCE_COLUMNS)
    write_sheets(experiment, band_sheets(means, differences), out)
    described = {**{place: MEAN_COLUMNS[place] for place in ("dataset", "atlas")}, **columns("experiments", "spectrum")}
    write_table(spectrum[list(described)], out / f"{name}.tsv", described)


def band_means(shares: pd.DataFrame) -> pd.DataFrame:
    """Average the share of power in each band (``bands.tsv``) over scans; returns `MEAN_COLUMNS`."""
    groups = shares.groupby(["dataset", "atlas", "network", "band", "low", "high"], sort=False)["share"]
    means = groups.agg(share="mean", sd=lambda values: values.std(ddof=0), n_scans="size").reset_index()
    return means[list(MEAN_COLUMNS)]


def atlas_differences(shares: pd.DataFrame) -> pd.DataFrame:
    """Compare the share of power in each band (``bands.tsv``) between every two atlases of a dataset, within subjects.

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


def band_sheets(means: pd.DataFrame, differences: pd.DataFrame) -> list[Sheet]:
    """Return a table per dataset and atlas with a row per network, and one of the differences between atlases."""
    sheets = []
    for (dataset, atlas), part in means.groupby(["dataset", "atlas"]):
        networks = []
        for network, lines in part.groupby("network", sort=False):
            shares = {
                f"{line.band} ({line.low:g}–{line.high:g} Hz)": mean_sd(line.share, line.sd)
                for line in lines.itertuples()
            }
            networks.append({"network": str(network), **shares, "scans": str(lines["n_scans"].max())})
        sheets.append(Sheet(f"Power by band, {dataset}, {atlas}", pd.DataFrame(networks), CAPTIONS["bands"]))
    rows = []
    for row in differences.itertuples():
        shown = interval(row.difference, row.ci_low, row.ci_high, lambda share: decimal(100 * share, 2, "+"))
        names = {"": f"{row.atlas} − {row.other}, {row.dataset}", "band": row.band}
        rows.append({**names, "difference [95 %]": shown, "subjects": str(row.n_subjects)})
    if rows:
        sheets.append(Sheet("Power by band, between atlases", pd.DataFrame(rows), CAPTIONS["atlas_differences"]))
    return sheets
