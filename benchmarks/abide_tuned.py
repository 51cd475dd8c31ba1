"""Compare tuned models on test scans of ABIDE-I: ``abide_tuned*.tsv``.

    python -m benchmarks.abide_tuned [SCHEME RUN]

keeps the predictions of a finished run, and writes tables and figures of all that are kept. RUN is the folder
``results`` of ``snakemake --configfile config/examples/abide1.yaml tuned`` (SCHEME ``folds``), of the same with
``abide1_sites.yaml`` (``sites``), or of ``tuned_learning_curve`` (``curve``).

The area under the ROC curve is the share of correctly ordered pairs of an autistic and another person of the same
fold, so that differences between folds (or sites) do not count, while large folds count more than small ones.
Intervals are from the bootstrap over people, within folds and classes, given the trained models; the p-value is that of
the corrected t-test over folds, each counted once, which allows for training again, with the ratio of test to training
scans that `bolt.evaluate.paired` uses.

`POOLS` are averages of kept predictions that were looked at after all results were known. They show what a combination
without BolT, or with another network in its place, gives; nothing was chosen by them.
"""

from __future__ import annotations

import argparse
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit

from bolt.config import load_config, load_experiment, load_model
from bolt.config.study import Study
from bolt.evaluate.metrics import by_site
from bolt.evaluate.paired import corrected_t
from bolt.evaluate.results import SITE_COLUMNS
from bolt.experiments.entries import rows_of
from bolt.io.files import read_table, write_table
from bolt.report.figures.performance import draw_sites

HERE = Path(__file__).parent
PREDICTIONS, TABLE, FIGURE = (HERE / f"abide_tuned{end}" for end in ("_predictions.tsv", ".tsv", ".png"))
PAIRS, SITES, SITES_FIGURE = (HERE / f"abide_tuned_{end}" for end in ("pairs.tsv", "sites.tsv", "sites.png"))
TITLES = {"folds": "Ten folds", "sites": "Each institution left out"}
NOT_DRAWN = ("Majority", "Site only")
EXPERIMENTS = {"folds": "tuned", "sites": "tuned", "curve": "tuned_learning_curve"}
REFERENCE = {"folds": "BolT + linear models", "sites": "BolT + linear models", "curve": "BolT + linear models, 100%"}
ALONE, LINEAR = "BolT (tuned), three seeds averaged", "Ridge and tangent (mean logit)"
OTHER = "meanMLP, ridge and tangent (mean logit)"
POOLS = {  # row: for each of its seeds, the predictions whose mean logit it is
    LINEAR: [[f"Ridge, seed {seed}", f"Tangent, seed {seed}"] for seed in range(3)],
    ALONE: [[f"BolT (tuned), seed {seed}" for seed in range(3)]],
    OTHER: [["meanMLP, seed 0", "Ridge, seed 0", "Tangent, seed 0"]],
}
COMPARED = [
    ("BolT (tuned)", "Ridge"),
    ("BolT (tuned)", "Tangent"),
    ("BolT (tuned)", "BolT"),
    (ALONE, LINEAR),
    (OTHER, LINEAR),
]
OF_SITES = ("BolT + linear models", "BolT (tuned)", "Ridge")
CLASSES = ("control", "autism")
SEEN = range(5)  # folds whose test scans a trial had seen from which the first settings of bolt_tuned come
DRAWS = 4000
KEYS = {
    "scheme": "folds: ten folds; sites: leave-institution-out; curve: ten folds, a share of the training subjects",
    "fold": "test fold",
    "scan_id": "test scan",
    "label": "diagnosis",
    "n_train": "training scans of the fold; a row of the learning curve learns from a share of them",
}
RUN = "predicted probability of autism by this row of the experiment and seed, four decimals"
COLUMNS = {
    "scheme": KEYS["scheme"],
    "row": "row of the experiment, or an average of the predictions of other rows",
    "post_hoc": "yes: such an average, looked at after all results were known",
    "seeds": "number of seeds over which accuracy and AUC are averaged; 1 if their predictions are averaged",
    "accuracy": "share of test scans classified correctly, mean over seeds",
    "auc": "area under the ROC curve within folds, mean over seeds",
    "low": "2.5 % quantile of the bootstrap of `auc`",
    "high": "97.5 % quantile",
    "difference": "reference (BolT + linear models) minus row, in `auc`",
    "difference_low": "2.5 % quantile of the bootstrap of `difference`",
    "difference_high": "97.5 % quantile",
    "auc_by_fold": "mean of the areas of all folds, so that small ones count as much as large ones",
    "difference_by_fold": "reference minus row, in `auc_by_fold`",
    "p": "corrected t-test of `difference_by_fold`, two-sided",
    "auc_seen": "`auc` of the folds whose test scans an earlier trial had seen (0 to 4)",
    "auc_unseen": "`auc` of the others",
}
PAIR_COLUMNS = {
    "scheme": KEYS["scheme"],
    "first": "row of abide_tuned.tsv",
    "second": "another row",
    "difference": "`auc` of the first minus that of the second",
    "low": "2.5 % quantile of the bootstrap of `difference`",
    "high": "97.5 % quantile",
    "difference_by_fold": "the same in `auc_by_fold`",
    "p": COLUMNS["p"],
}


def kept() -> pd.DataFrame:
    """Read the predictions: a row per scheme and test scan, a column per row and seed."""
    return read_table(PREDICTIONS, text=("scan_id",)) if PREDICTIONS.is_file() else pd.DataFrame(columns=list(KEYS))


def keep(scheme: str, run: Path) -> None:
    """Add the test predictions of a run."""
    (place,) = run.glob("*/config.yaml")
    config = load_config(place)
    layout, columns, n_train = Study.of(config).layout, [], pd.Series(dtype=int)
    same = [key for key in KEYS if key != "n_train"]
    (atlas,) = config.atlas_places
    for row, model in rows_of(load_experiment(EXPERIMENTS[scheme]), config):
        for seed in config.seeds:
            folder = place.parent / layout.run(atlas, model.run_name, seed).folder.relative_to(layout.results)
            parts = [read_table(path, text=("scan_id",)) for path in sorted(folder.glob("fold-*/predictions.tsv"))]
            if parts:
                table = pd.concat(parts).assign(scheme=scheme)
                n_train = table.query("role == 'train'").groupby("fold").size().combine(n_train, max, fill_value=0)
                table = table.query("role == 'test'").set_index(same)
                columns.append(table["p_autism"].round(4).rename(f"{row.row}, seed {seed}"))
    new = pd.concat(columns, axis=1).reset_index()
    new.insert(len(same), "n_train", new["fold"].map(n_train))
    wide = pd.concat([kept().query("scheme != @scheme"), new], ignore_index=True)
    write_table(wide, PREDICTIONS, KEYS | dict.fromkeys(wide.columns.difference(list(KEYS)), RUN))


def with_published(table: pd.DataFrame) -> pd.DataFrame:
    """Add BolT with the paper's settings and meanMLP: trained by `abide_benchmark`, one seed, same folds."""
    others = read_table(HERE / "abide_benchmark_predictions.tsv", text=("scan_id",))
    for title, name in (("BolT", "bolt"), ("meanMLP", "meanmlp")):
        of_model = others[others["run"] == load_model(name).run_name]
        predicted = table.merge(of_model, on=["fold", "scan_id"], how="left")["p_autism"]
        table[f"{title}, seed 0"] = predicted.where(table["scheme"] == "folds").to_numpy()
    return table


def with_pools(table: pd.DataFrame) -> pd.DataFrame:
    """Add `POOLS` of which all predictions are kept."""
    new = {}
    for title, seeds in POOLS.items():
        for seed, names in enumerate(seeds):
            if set(names) <= set(table):  # four decimals are kept
                new[f"{title}, seed {seed}"] = expit(logit(table[names].clip(5e-5, 1 - 5e-5)).mean(axis=1))
    return table.assign(**new)


def overlap(table: pd.DataFrame, *rows: str) -> float:
    """Return the number of test scans per scan that the rows learn from, mean over folds."""
    share = np.mean([float(part[1]) / 100 if (part := re.search(r", (\d+)%$", row)) else 1 for row in rows])
    folds = table.groupby("fold")["n_train"].agg(["size", "first"])
    return float((folds["size"] / (share * folds["first"])).mean())


class Pairs:
    """Which pairs of people of a fold a row orders correctly, averaged over seeds: by fold, (autistic, others)."""

    def __init__(self, table: pd.DataFrame, seeds: list[str]) -> None:
        self.accuracy = float(((table[seeds] > 0.5).to_numpy() == (table[["label"]] == "autism").to_numpy()).mean())
        self.right: dict[int, NDArray[np.floating]] = {}
        for fold, part in table.groupby("fold"):
            ill = part["label"] == "autism"
            first, second = part.loc[ill, seeds].to_numpy()[:, None], part.loc[~ill, seeds].to_numpy()[None]
            self.right[int(fold)] = ((first > second) + 0.5 * (first == second)).mean(axis=2)

    def by_fold(self) -> pd.Series:
        """Return the area under the curve of each fold."""
        return pd.Series({fold: right.mean() for fold, right in self.right.items() if right.size})

    def auc(self, folds: set[int] | None = None) -> float:
        """Return the share of correctly ordered pairs of some folds, or of all."""
        chosen = [right for fold, right in self.right.items() if folds is None or fold in folds]
        return float(sum(right.sum() for right in chosen) / sum(right.size for right in chosen))

    @cached_property
    def bootstrap(self) -> NDArray[np.floating]:
        """Return the area under the curve of each draw; the same people are drawn for every row."""
        random, right, n_pairs = np.random.default_rng(0), np.zeros(DRAWS), 0
        for fold in sorted(self.right):
            pairs = self.right[fold]
            first, second = (random.multinomial(n, np.full(n, 1 / n), DRAWS) if n else None for n in pairs.shape)
            if pairs.size:
                right += np.einsum("di,ij,dj->d", first, pairs, second, optimize=True)
                n_pairs += pairs.size
        return right / n_pairs


def difference(first: Pairs, second: Pairs, ratio: float) -> dict[str, Any]:
    """Return by how much one row is ahead of another in the area, with interval and p-value."""
    by_fold = (first.by_fold() - second.by_fold()).to_numpy()
    low, high = np.quantile(first.bootstrap - second.bootstrap, (0.025, 0.975))
    ahead = {"difference": first.auc() - second.auc(), "low": low, "high": high}
    return ahead | {"difference_by_fold": by_fold.mean(), "p": corrected_t(by_fold, ratio)}


def tabulate() -> None:
    """Write the tables of all predictions that are kept."""
    lines, pairs_lines = [], []
    for scheme, part in with_published(kept()).groupby("scheme"):
        table = with_pools(part.dropna(axis=1))
        seeds: dict[str, list[str]] = {}
        for name in table.columns[len(KEYS) :]:
            seeds.setdefault(name.rsplit(", seed ", 1)[0], []).append(name)
        rows = {row: Pairs(table, names) for row, names in seeds.items()}
        first = REFERENCE[str(scheme)]
        for row, pairs in rows.items():
            line = {"scheme": scheme, "row": row, "post_hoc": "yes" if row in POOLS else "no"}
            line |= {"seeds": len(seeds[row]), "accuracy": pairs.accuracy, "auc": pairs.auc()}
            line |= dict(zip(("low", "high"), np.quantile(pairs.bootstrap, (0.025, 0.975)), strict=True))
            line["auc_by_fold"] = pairs.by_fold().mean()
            if scheme == "folds":
                line |= {"auc_seen": pairs.auc(set(SEEN)), "auc_unseen": pairs.auc(set(pairs.right) - set(SEEN))}
            if row != first:
                ahead = difference(rows[first], pairs, overlap(table, first, row))
                line |= {f"difference_{end}": ahead.pop(end) for end in ("low", "high")} | ahead
            lines.append(line)
        for one, other in COMPARED:
            if one in rows and other in rows:
                ahead = difference(rows[one], rows[other], overlap(table, one, other))
                pairs_lines.append({"scheme": scheme, "first": one, "second": other} | ahead)
    write_table(pd.DataFrame(lines)[list(COLUMNS)].round(4), TABLE, COLUMNS)
    write_table(pd.DataFrame(pairs_lines)[list(PAIR_COLUMNS)].round(4), PAIRS, PAIR_COLUMNS)


def tabulate_sites() -> None:
    """Write and draw the area under the curve of `OF_SITES` at each institution, by models that never saw it."""
    table, lines = kept().query("scheme == 'sites'"), []
    for row in OF_SITES:
        p = table[f"{row}, seed 0"]
        tests = table[["fold", "scan_id", "label"]].assign(
            seed=0, subject=table["scan_id"], group=table["scan_id"], site=table["scan_id"].str.split("_").str[0],
            p_control=1 - p, p_autism=p, predicted=np.where(p > 0.5, "autism", "control"),
        )  # fmt: skip
        for site in by_site(tests, CLASSES):
            counts = {name: site[name] for name in ("site", "n_scans", "n_groups", "majority_accuracy")}
            auc = {"pooled": site["auc"]["value"], "low": site["auc"]["low"], "high": site["auc"]["high"]}
            lines.append({"dataset": "ABIDE-I", "atlas": "CC200", "row": row} | counts | {"metric": "auc"} | auc)
    sites = pd.DataFrame(lines)[list(SITE_COLUMNS)].round(4)
    write_table(sites, SITES, SITE_COLUMNS)
    draw_sites(sites, SITES_FIGURE)


def draw() -> None:
    """Draw the areas of both schemes with their intervals (open: post hoc), and the learning curve if it is kept."""
    table = read_table(TABLE)
    curve = table[table["scheme"] == "curve"]
    size = (15, 3.8) if len(curve) else (10, 3.8)
    figure, axes = plt.subplots(1, 3 if len(curve) else 2, figsize=size, layout="constrained")
    for axis, (scheme, title) in zip(axes, TITLES.items(), strict=False):
        rows = table[(table["scheme"] == scheme) & ~table["row"].isin(NOT_DRAWN)].sort_values("auc")
        rows = rows.assign(row=rows["row"].str.removesuffix(" (mean logit)"))
        errors = np.abs(rows[["low", "high"]].to_numpy().T - rows["auc"].to_numpy())
        axis.errorbar(rows["auc"], rows["row"], xerr=errors, fmt="o", color="#1f6e8c", capsize=2)
        later = rows[rows["post_hoc"] == "yes"]
        axis.plot(later["auc"], later["row"], "o", color="#1f6e8c", mfc="white", zorder=3)
        axis.set(title=title, xlabel="AUC, 95 % interval", xlim=(0.55, 0.83))
        axis.grid(axis="x", alpha=0.3)
    for name, rows in curve.groupby(curve["row"].str.rsplit(", ", n=1).str[0], sort=False):
        shares = rows["row"].str.extract(r"(\d+)%$")[0].astype(int)
        axes[2].plot(shares, rows["auc"], "o-", label=name)
        axes[2].fill_between(shares, rows["low"], rows["high"], alpha=0.12)
    if len(curve):
        axes[2].set(title="Learning curve, folds 5 to 9", xlabel="share of the training subjects (%)", ylabel="AUC")
        axes[2].grid(alpha=0.3)
        axes[2].legend(frameon=False)
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    """Keep a run, if one is given, and write tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scheme", nargs="?", choices=list(EXPERIMENTS))
    parser.add_argument("run", nargs="?", type=Path)
    options = parser.parse_args()
    if options.run:
        keep(options.scheme, options.run)
    tabulate()
    tabulate_sites()
    draw()
    print(read_table(TABLE).to_string(index=False), read_table(PAIRS).to_string(index=False), sep="\n\n")


if __name__ == "__main__":
    main()
