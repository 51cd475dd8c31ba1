"""Train every method, the ablation and window sizes on ABIDE-I: ``abide_{benchmark,ablation,window_size}*.tsv``.

    python -m benchmarks.abide_benchmark FOLDER_WITH_SERIES --out RUN [--cores 2] [--rows NAME ...] [--folds 0 ...]

It takes some two days of one core, and goes on where it was stopped, on another machine too: what each method predicts
for the test scans of each fold, and what that fold cost, is kept in ``abide_benchmark_predictions.tsv`` and
``abide_benchmark_costs.tsv``. Folds that are in them are not trained again. NAME is a row of an experiment; others are
then not trained, nor are other folds than those given. Series and server as in ``abide1.py``. It prints the tables of
README.md and of docs/paper.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from bolt.config import ROOT, Config, load_config, load_experiment
from bolt.config.study import Entry
from bolt.evaluate.metrics import fold_predictions
from bolt.experiments.entries import entries, rows_of
from bolt.experiments.results import paper_values
from bolt.io.files import read_json, read_table, read_yaml, write_status, write_table, write_yaml
from bolt.report.numbers import decimal, marked, p_value, reconstructed, shown_as
from bolt.training.outputs import write_predictions
from tests.abide import write_bucket
from tests.file_server import serve

HERE = Path(__file__).parent
EXPERIMENTS = ("abide_benchmark", "ablation", "window_size")
ABLATED = [0, 1, 2, 3, 4]
"""Folds in which the ablation and window sizes are trained; their tables are of those that all rows have."""
PREDICTIONS, COSTS, FOLDS = (HERE / f"abide_benchmark_{name}.tsv" for name in ("predictions", "costs", "folds"))
KEYS = {"run": "run: name of the model and a hash of its settings", "fold": "outer fold"}
PREDICTION_COLUMNS = KEYS | {
    "scan_id": "test scan",
    "p_autism": "predicted probability of autism; six decimals in the first folds that were kept, twelve since",
}
FOLD_COLUMNS = {
    "scan_id": "scan",
    "site": "institution, by which folds are stratified together with the label",
    "label": "autism or control",
} | {f"fold_{fold}": f"role of the scan in fold {fold}: train, validation or test" for fold in range(10)}
COST_COLUMNS = KEYS | {
    "cpu_seconds": "processor seconds of training and prediction; of the process, if it trained several folds",
    "interrupted": "yes: the training was interrupted, and its seconds count from where it resumed",
    "folds_side_by_side": "folds that the process trained",
    "peak_memory_mb": "peak memory of the process",
    "machine": "system and processor",
    "date": "end of the training",
}


def configure(out: Path, address: str) -> Path:
    """Write the configuration of ``abide_benchmark_run.yaml`` with a server's address; return its path."""
    dataset = read_yaml(ROOT / "config/datasets/abide1.yaml")
    dataset["abide"]["base"] = address
    write_yaml(dataset, out / "abide1.yaml")
    example, run = read_yaml(ROOT / "config/examples/abide1.yaml"), read_yaml(HERE / "abide_benchmark_run.yaml")
    own = {"dataset": str(out / "abide1.yaml"), "models": ["bolt"], "experiments": list(EXPERIMENTS)}
    write_yaml(example | run | own | {"folds": example["folds"] | run["folds"]}, out / "config.yaml")
    return out / "config.yaml"


def trainings(out: Path) -> Iterator[tuple[Entry, int, Path]]:
    """Yield each row's folds with their folders; rows that cannot be trained have none."""
    config = load_config(out / "results/abide1/config.yaml")
    for name in EXPERIMENTS:
        for entry in entries(config, load_experiment(name)):
            folds = entry.folds if name == "abide_benchmark" else ABLATED
            for fold in folds if entry.folders else ():
                yield entry, fold, out / entry.folders[0] / f"fold-{fold}"


def keep(out: Path) -> None:
    """Add what was trained to the tables of predictions and costs."""
    predicted, spent = ([read_table(path)] if path.is_file() else [] for path in (PREDICTIONS, COSTS))
    for entry, fold, folder in trainings(out):
        if not (folder / "provenance.json").is_file() or fold_predictions(folder)[0] != "ok":
            continue
        key = {"run": entry.model.run_name, "fold": fold}
        tests = fold_predictions(folder)[2].query("role == 'test'")
        predicted.append(tests[["scan_id", "p_autism"]].assign(**key).round(12))
        facts = read_json(folder / "provenance.json") | {"interrupted": "no"}
        if facts["log"] is not None and ": resuming after epoch" in Path(facts["log"]).read_text(encoding="utf-8"):
            facts["interrupted"] = "yes"
        spent.append(pd.DataFrame([key | {name: facts[name] for name in COST_COLUMNS if name not in KEYS}]))
    for parts, path, columns, key in (
        (predicted, PREDICTIONS, PREDICTION_COLUMNS, [*KEYS, "scan_id"]),
        (spent, COSTS, COST_COLUMNS, [*KEYS]),
    ):
        table = pd.concat(parts, ignore_index=True).drop_duplicates(key, keep="last").sort_values(key)
        write_table(table[list(columns)], path, columns)


def keep_folds(out: Path) -> None:
    """Write the role of each scan in each fold, for those who train other models; refuse to go on with other folds."""
    folds, scans = (read_table(out / f"results/abide1/{name}.tsv", text=("scan_id",)) for name in ("folds", "scans"))
    roles = folds.pivot(index="scan_id", columns="fold", values="role").add_prefix("fold_")
    table = scans.set_index("scan_id")[["site", "label"]].join(roles, how="inner").sort_index().reset_index()
    table = table[list(FOLD_COLUMNS)]
    if FOLDS.is_file() and not table.equals(read_table(FOLDS, text=("scan_id",))):
        sys.exit(f"{out}: folds of {len(table)} scans are not those of {FOLDS}; see results/abide1/exclusions.tsv")
    write_table(table, FOLDS, FOLD_COLUMNS)


def restore(out: Path) -> None:
    """Lay kept predictions where the table of the experiment reads them; other scans have a role and no prediction."""
    if not PREDICTIONS.is_file():
        return
    kept = dict(list(read_table(PREDICTIONS).groupby(["run", "fold"])))
    folds = read_table(out / "results/abide1/folds.tsv", text=("scan_id", "subject", "group"))
    scans = read_table(out / "results/abide1/scans.tsv", text=("scan_id", "subject"))
    scans = scans.set_index("scan_id")[["site", "label"]]
    for entry, fold, folder in trainings(out):
        tests = kept.get((entry.model.run_name, fold))
        if tests is None or (folder / "status.json").is_file():
            continue
        table = folds[folds["fold"] == fold].join(scans, on="scan_id")
        table["p_autism"] = table["scan_id"].map(tests.set_index("scan_id")["p_autism"])
        table["p_control"] = 1 - table["p_autism"]
        table = table[(table["role"] != "test") | table["p_autism"].notna()]  # but scans shorter than a window
        table["predicted"] = table["p_autism"].gt(0.5).map({True: "autism", False: "control"})
        folder.mkdir(parents=True, exist_ok=True)
        write_predictions(table.assign(seed=0), folder / "predictions.tsv")
        write_status(folder / "status.json", "ok", "train")


def common_folds(name: str) -> list[int]:
    """Return the folds that are kept of all rows of an experiment, but of those that were never trained (W = 200)."""
    costs = read_table(COSTS)
    runs = {model.run_name for _, model in rows_of(load_experiment(name), Config(dataset="abide1"))} & set(costs["run"])
    return [fold for fold in ABLATED if runs <= set(costs.loc[costs["fold"] == fold, "run"])]


def kept_as(name: str) -> str:
    """Return the start of the names of an experiment's tables in this folder."""
    return f"abide_{name.removeprefix('abide_')}"


def clear(p: float) -> str:
    """Return a p value below 0.05 in brackets."""
    return f" ({p_value(p)})" if p < 0.05 else ""


def shown_table(name: str = "abide_benchmark") -> list[str]:
    """Return the lines of an experiment's table in README.md, or in docs/paper.md beside the paper's values."""
    results, tests = (read_table(HERE / f"{kept_as(name)}{end}.tsv", text=("row",)) for end in ("", "_tests"))
    tests = tests[tests["metric"] == "auc"].set_index("row")
    experiment = load_experiment(name)
    papers = paper_values(experiment) if name != "abide_benchmark" else None
    what = "method" if papers is None else "row"
    headings = [what, "folds", "accuracy", "AUC", f"BolT minus {what}: AUC (p)", "Brier score"]
    headings += ["paper, HCP-Rest: accuracy", "paper, HCP-Rest: AUC"] if papers is not None else []
    lines = [f"| {' | '.join(headings)} |", "| --- |" + " ---: |" * (len(headings) - 1)]
    for row, model in rows_of(experiment, Config(dataset="abide1")):
        of = results[results["row"] == row.row].set_index("metric").to_dict("index")
        if "auc" not in of or not of["auc"]["n_folds"]:
            continue
        test = tests.loc[row.row] if row.row in tests.index else None
        auc, low, high = (decimal(of["auc"][key], 3) for key in ("mean", "low", "high"))
        cells = [
            marked(row.row, reconstructed({row.row: model.fidelity})),
            str(of["auc"]["n_folds"]),
            shown_as("accuracy")(of["accuracy"]["mean"]),
            f"{auc} [{low}, {high}]",
            "" if test is None else decimal(test["difference"], 3, "+") + clear(test["corrected_t_p_holm"]),
            decimal(of["brier"]["mean"], 3),
        ]
        if papers is not None:
            is_row = (papers[list(row.paper)] == pd.Series(row.paper)).all(axis=1) & (papers["atlas"] == "schaefer400")
            stated = papers[is_row].set_index("metric")["paper_mean"]
            cells += [shown_as("accuracy")(stated["accuracy"]), decimal(stated["auc"], 3)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Train what is missing, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rows", nargs="+", metavar="NAME")
    parser.add_argument("--folds", nargs="+", type=int, default=list(range(10)))
    options = parser.parse_args()
    out = options.out.resolve()
    if not (out / "bucket").exists():
        write_bucket(options.series, out / "bucket")
    with serve(out / "bucket") as server:
        configuration = configure(out, server.address)
        os.chdir(out)

        def snakemake(*targets: str) -> None:
            command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
            command += ["--configfile", str(configuration), "--cores", str(options.cores)]
            command += ["--workflow-profile", str(ROOT / "workflow/profiles/default")]
            subprocess.run([*command, "--rerun-triggers", "mtime", "--", *targets], check=True)

        snakemake("results/abide1/folds.tsv")
        keep_folds(out)
        restore(out)
        missing = [
            str((folder / "predictions.tsv").relative_to(out))
            for entry, fold, folder in trainings(out)
            if fold in options.folds
            and (not options.rows or entry.row in options.rows)
            and not (folder / "status.json").is_file()
        ]
        try:
            if missing:
                snakemake(*missing)
        finally:  # also of what was trained before an error or Ctrl-C
            keep(out)
        experiment = [sys.executable, "-m", "bolt", "experiment", "--config", "results/abide1/config.yaml"]
        configured, asked = read_yaml(Path("results/abide1/config.yaml")), read_yaml(configuration)["folds"]["run"]
        for name in reversed(EXPERIMENTS):  # the last leaves the configuration as it was, for the next start
            folds = configured["folds"] | {"run": asked if name == "abide_benchmark" else common_folds(name)}
            write_yaml(configured | {"folds": folds}, Path("results/abide1/config.yaml"))
            subprocess.run([*experiment, "--name", name], check=True)
            for suffix in (".tsv", ".json", "_tests.tsv", "_tests.json"):
                shutil.copy(out / "results/paper" / f"{name}{suffix}", HERE / f"{kept_as(name)}{suffix}")
    for name in EXPERIMENTS:
        print("\n".join(["", *shown_table(name)]))


if __name__ == "__main__":
    main()
