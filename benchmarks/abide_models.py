"""Train every method on ABIDE-I and compare them: ``abide_models*.tsv``.

    python -m benchmarks.abide_models FOLDER_WITH_SERIES --out RUN_FOLDER [--cores 2] [--rows NAME ...]

It takes about a day of one core, and goes on where it was stopped, on another machine too: what each method predicts
for the test scans of each fold, and what that fold cost, is kept in ``abide_models_predictions.tsv`` and
``abide_models_costs.tsv``. Folds that are in them are not trained again. NAME is a row of ``abide_models.yaml``; others
are then not trained. Series and server as in ``abide1.py``. It prints the table of README.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from bolt.config import ROOT, load_config, load_experiment, load_model
from bolt.config.study import Entry
from bolt.evaluate.metrics import fold_predictions
from bolt.experiments.entries import entries
from bolt.io.files import read_json, read_table, read_yaml, write_status, write_table, write_yaml
from bolt.report.tables.numbers import decimal, marked, p_value, reconstructed, shown_as
from bolt.training.outputs import write_predictions
from tests.abide import write_bucket
from tests.file_server import serve

HERE = Path(__file__).parent
NAME = "abide_models"
PREDICTIONS, COSTS = HERE / f"{NAME}_predictions.tsv", HERE / f"{NAME}_costs.tsv"
KEYS = {"run": "run: name of the model and a hash of its settings", "fold": "outer fold"}
PREDICTION_COLUMNS = KEYS | {
    "scan_id": "test scan",
    "p_autism": "predicted probability of autism; six decimals in the first folds that were kept, twelve since",
}
COST_COLUMNS = KEYS | {
    "cpu_seconds": "processor seconds of training and prediction; of the process, if it trained several folds",
    "interrupted": "yes: the training was interrupted, and its seconds count from where it resumed",
    "folds_side_by_side": "folds that the process trained",
    "peak_memory_mb": "peak memory of the process",
    "machine": "system and processor",
    "date": "end of the training",
}


def configure(out: Path, address: str) -> Path:
    """Write the configuration of ``abide_models_run.yaml`` with a server's address; return its path."""
    dataset = read_yaml(ROOT / "config/datasets/abide1.yaml")
    dataset["abide"]["base"] = address
    write_yaml(dataset, out / "abide1.yaml")
    example, run = read_yaml(ROOT / "config/examples/abide1.yaml"), read_yaml(HERE / f"{NAME}_run.yaml")
    own = {"dataset": str(out / "abide1.yaml"), "models": ["bolt"], "experiments": [str(HERE / f"{NAME}.yaml")]}
    write_yaml(example | run | own | {"folds": example["folds"] | run["folds"]}, out / "config.yaml")
    return out / "config.yaml"


def trainings(out: Path, rows: Sequence[str] | None) -> Iterator[tuple[Entry, int, Path]]:
    """Yield each row's folds with their folders."""
    experiment = load_experiment(str(HERE / f"{NAME}.yaml"))
    for entry in entries(load_config(out / "results/abide1/config.yaml"), experiment):
        if not rows or entry.row in rows:
            for fold in entry.folds:
                yield entry, fold, out / entry.folders[0] / f"fold-{fold}"


def keep(out: Path) -> None:
    """Add what was trained to the tables of predictions and costs."""
    predicted, spent = ([read_table(path)] if path.is_file() else [] for path in (PREDICTIONS, COSTS))
    for entry, fold, folder in trainings(out, None):
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


def restore(out: Path) -> None:
    """Lay kept predictions where the table of the experiment reads them; other scans have a role and no prediction."""
    if not PREDICTIONS.is_file():
        return
    kept = dict(list(read_table(PREDICTIONS).groupby(["run", "fold"])))
    folds = read_table(out / "results/abide1/folds.tsv", text=("scan_id", "subject", "group"))
    scans = read_table(out / "results/abide1/scans.tsv", text=("scan_id", "subject"))
    scans = scans.set_index("scan_id")[["site", "label"]]
    for entry, fold, folder in trainings(out, None):
        tests = kept.get((entry.model.run_name, fold))
        if tests is None or (folder / "status.json").is_file():
            continue
        table = folds[folds["fold"] == fold].join(scans, on="scan_id")
        table["p_autism"] = table["scan_id"].map(tests.set_index("scan_id")["p_autism"])
        table["p_control"] = 1 - table["p_autism"]
        table["predicted"] = table["p_autism"].gt(0.5).map({True: "autism", False: "control"})
        folder.mkdir(parents=True, exist_ok=True)
        write_predictions(table.assign(seed=0), folder / "predictions.tsv")
        write_status(folder / "status.json", "ok", "train")


def clear(p: float) -> str:
    """Return a p value below 0.05 in brackets."""
    return f" ({p_value(p)})" if p < 0.05 else ""


def readme_table() -> list[str]:
    """Return the lines of the table in README.md: each row's results."""
    results, tests = (read_table(HERE / f"{NAME}{end}.tsv", text=("row",)) for end in ("", "_tests"))
    tests = tests[tests["metric"] == "auc"].set_index("row")
    lines = [
        "| method | folds | accuracy | AUC | BolT minus method: AUC (p) | Brier score |",
        "| --- |" + " ---: |" * 5,
    ]
    for row in load_experiment(str(HERE / f"{NAME}.yaml")).rows:
        model = load_model(row.model)
        name = row.row or model.shown
        of = results[results["row"] == name].set_index("metric").to_dict("index")
        if not of["auc"]["n_folds"]:
            continue
        test = tests.loc[name] if name in tests.index else None
        auc, low, high = (decimal(of["auc"][key], 3) for key in ("mean", "low", "high"))
        cells = [
            marked(name, reconstructed({name: row.fidelity or model.fidelity})),
            str(of["auc"]["n_folds"]),
            shown_as("accuracy")(of["accuracy"]["mean"]),
            f"{auc} [{low}, {high}]",
            "" if test is None else decimal(test["difference"], 3, "+") + clear(test["corrected_t_p_holm"]),
            decimal(of["brier"]["mean"], 3),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Train what is missing, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rows", nargs="+", metavar="NAME")
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
        restore(out)
        missing = [
            str((folder / "predictions.tsv").relative_to(out))
            for _, _, folder in trainings(out, options.rows)
            if not (folder / "status.json").is_file()
        ]
        try:
            if missing:
                snakemake(*missing)
        finally:  # also of what was trained before an error or Ctrl-C
            keep(out)
        experiment = [sys.executable, "-m", "bolt", "experiment", "--config", "results/abide1/config.yaml"]
        subprocess.run([*experiment, "--name", NAME], check=True)
        for suffix in (".tsv", ".json", "_tests.tsv", "_tests.json"):
            shutil.copy(out / "results/paper" / f"{NAME}{suffix}", HERE)
    print("\n".join(readme_table()))


if __name__ == "__main__":
    main()
