"""Compare tuned models on test scans of ABIDE-I: ``abide_tuned*.tsv``.

    python -m benchmarks.abide_tuned [SCHEME RUN]

keeps the predictions of a finished run, and writes table and figure of all that are kept. RUN is the folder ``results``
of ``snakemake --configfile config/examples/abide1.yaml tuned`` (SCHEME ``folds``), of the same with
``abide1_sites.yaml`` (``sites``), or of ``tuned_learning_curve`` (``curve``).

The area under the ROC curve is the share of correctly ordered pairs of an autistic and another person of the same
fold, so that differences between folds (or sites) do not count. Intervals are from the bootstrap over people, within
folds and classes, given the trained models; the p-value is that of the corrected t-test over folds, which allows for
training again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config import load_config, load_experiment
from bolt.config.study import Study
from bolt.evaluate.paired import corrected_t
from bolt.experiments.entries import rows_of
from bolt.io.files import read_table, write_table

HERE = Path(__file__).parent
PREDICTIONS, TABLE, FIGURE = (HERE / f"abide_tuned{end}" for end in ("_predictions.tsv", ".tsv", ".png"))
TITLES = {"folds": "Ten folds", "sites": "Each institution left out"}
NOT_DRAWN = ("Majority", "Site only")
EXPERIMENTS = {"folds": "tuned", "sites": "tuned", "curve": "tuned_learning_curve"}
REFERENCE = {"folds": "BolT + linear models", "sites": "BolT + linear models", "curve": "BolT + linear models, 100%"}
SEEN = range(5)  # folds whose test scans a trial had seen from which the first settings of bolt_tuned come
DRAWS = 4000
KEYS = {
    "scheme": "folds: ten folds; sites: leave-institution-out; curve: ten folds, a share of the training subjects",
    "fold": "test fold",
    "scan_id": "test scan",
    "label": "diagnosis",
}
RUN = "predicted probability of autism by this row of the experiment and seed, four decimals"
COLUMNS = {
    "scheme": KEYS["scheme"],
    "row": "row of the experiment",
    "seeds": "number of seeds",
    "accuracy": "share of test scans classified correctly, mean over seeds",
    "auc": "area under the ROC curve within folds, mean over seeds",
    "low": "2.5 % quantile of the bootstrap of `auc`",
    "high": "97.5 % quantile",
    "difference": "reference (BolT + linear models) minus row, in `auc`",
    "difference_low": "2.5 % quantile of the bootstrap of `difference`",
    "difference_high": "97.5 % quantile",
    "p": "corrected t-test of the difference over folds, two-sided",
    "auc_seen": "`auc` of the folds whose test scans an earlier trial had seen (0 to 4)",
    "auc_unseen": "`auc` of the others",
}


def kept() -> pd.DataFrame:
    """Read the predictions: a row per scheme and test scan, a column per row and seed."""
    return read_table(PREDICTIONS, text=("scan_id",)) if PREDICTIONS.is_file() else pd.DataFrame(columns=list(KEYS))


def keep(scheme: str, run: Path) -> None:
    """Add the test predictions of a run."""
    (place,) = run.glob("*/config.yaml")
    config = load_config(place)
    layout, columns = Study.of(config).layout, []
    (atlas,) = config.atlas_places
    for row, model in rows_of(load_experiment(EXPERIMENTS[scheme]), config):
        for seed in config.seeds:
            folder = place.parent / layout.run(atlas, model.run_name, seed).folder.relative_to(layout.results)
            parts = [read_table(path, text=("scan_id",)) for path in sorted(folder.glob("fold-*/predictions.tsv"))]
            if parts:
                table = pd.concat(parts).query("role == 'test'").assign(scheme=scheme)
                columns.append(table.set_index(list(KEYS))["p_autism"].round(4).rename(f"{row.row}, seed {seed}"))
    others = kept().query("scheme != @scheme")
    wide = pd.concat([others, pd.concat(columns, axis=1).reset_index()], ignore_index=True)
    write_table(wide, PREDICTIONS, KEYS | dict.fromkeys(wide.columns.difference(list(KEYS)), RUN))


def with_published(table: pd.DataFrame) -> pd.DataFrame:
    """Add BolT with the paper's settings and meanMLP, which `abide_models` trained with one seed on the same folds."""
    others = read_table(HERE / "abide_models_predictions.tsv", text=("scan_id",))
    for title, name in (("BolT", "bolt"), ("meanMLP", "meanmlp")):
        of_model = others[others["run"].str.fullmatch(f"{name}-[0-9a-f]+")]
        predicted = table.merge(of_model, on=["fold", "scan_id"], how="left")["p_autism"]
        table[f"{title}, seed 0"] = predicted.where(table["scheme"] == "folds").to_numpy()
    return table


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


def tabulate() -> None:
    """Write the table of all predictions that are kept."""
    lines = []
    for scheme, table in with_published(kept()).groupby("scheme"):
        columns = [name for name in table.columns[len(KEYS) :] if table[name].notna().all()]
        seeds: dict[str, list[str]] = {}
        for name in columns:
            seeds.setdefault(name.rsplit(", seed ", 1)[0], []).append(name)
        rows = {row: Pairs(table, names) for row, names in seeds.items()}
        reference = rows[REFERENCE[str(scheme)]]
        drawn = reference.bootstrap()
        n_folds = len(reference.right)
        for row, pairs in rows.items():
            auc, line = pairs.bootstrap(), {"scheme": scheme, "row": row, "seeds": len(seeds[row])}
            line |= {"accuracy": pairs.accuracy, "auc": pairs.auc()}
            line |= dict(zip(("low", "high"), np.quantile(auc, (0.025, 0.975)), strict=True))
            if scheme == "folds":
                line |= {"auc_seen": pairs.auc(set(SEEN)), "auc_unseen": pairs.auc(set(pairs.right) - set(SEEN))}
            if pairs is not reference:
                by_fold = (reference.by_fold() - pairs.by_fold()).to_numpy()
                line |= {"difference": reference.auc() - pairs.auc(), "p": corrected_t(by_fold, 1 / (n_folds - 1))}
                between = np.quantile(drawn - auc, (0.025, 0.975))
                line |= dict(zip(("difference_low", "difference_high"), between, strict=True))
            lines.append(line)
    write_table(pd.DataFrame(lines)[list(COLUMNS)].round(4), TABLE, COLUMNS)


def draw() -> None:
    """Draw the areas of both schemes with their intervals, and the learning curve if it is kept."""
    table = read_table(TABLE)
    curve = table[table["scheme"] == "curve"]
    figure, axes = plt.subplots(1, 3 if len(curve) else 2, figsize=(12 if len(curve) else 8, 3.6), layout="constrained")
    for axis, (scheme, title) in zip(axes, TITLES.items(), strict=False):
        rows = table[(table["scheme"] == scheme) & ~table["row"].isin(NOT_DRAWN)].sort_values("auc")
        errors = np.abs(rows[["low", "high"]].to_numpy().T - rows["auc"].to_numpy())
        axis.errorbar(rows["auc"], rows["row"], xerr=errors, fmt="o", color="#1f6e8c", capsize=2)
        axis.set(title=title, xlabel="AUC, 95 % interval", xlim=(0.55, 0.83))
        axis.grid(axis="x", alpha=0.3)
    for name, rows in curve.groupby(curve["row"].str.rsplit(", ", n=1).str[0], sort=False):
        shares = rows["row"].str.extract(r"(\d+)%$")[0].astype(int)
        axes[2].plot(shares, rows["auc"], "o-", label=name)
        axes[2].fill_between(shares, rows["low"], rows["high"], alpha=0.12)
    if len(curve):
        axes[2].set(title="Learning curve, ten folds", xlabel="share of the training subjects (%)", ylabel="AUC")
        axes[2].grid(alpha=0.3)
        axes[2].legend(frameon=False)
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    """Keep a run, if one is given, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scheme", nargs="?", choices=list(EXPERIMENTS))
    parser.add_argument("run", nargs="?", type=Path)
    options = parser.parse_args()
    if options.run:
        keep(options.scheme, options.run)
    tabulate()
    draw()
    print(read_table(TABLE).to_string(index=False))


if __name__ == "__main__":
    main()
