"""How often verdicts of the report say yes where nothing is there, and where something is: ``verdicts.tsv``.

    python -m benchmarks.verdicts [--only NAME ...] [--missing] [--processes 2] [--repetitions N] [--out benchmarks]

Each module of this folder holds `SIMULATIONS`. NAME is a module; rows of others are kept. `--missing` runs only
simulations that have no row yet, such as after an interruption. Former rules are those of version 0.1, written out in
the modules.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import pkgutil
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

import benchmarks.verdicts as folder
from benchmarks.verdicts.simulation import Simulation
from bolt.io.files import read_table, write_table

COLUMNS = {
    "module": "module of benchmarks/verdicts that holds the simulation",
    "verdict": "what is judged",
    "data": "what the data are",
    "yes_is": "false positive: nothing is there; power: something is",
    "nominal": "largest rate of false positives that the rule promises",
    "former": "share of repetitions in which the former rule says yes; n/a: there was none",
    "former_low": "lower end of its 95 % interval (Clopper-Pearson)",
    "former_high": "upper end",
    "present": "share of repetitions in which the present rule says yes",
    "present_low": "lower end of its 95 % interval (Clopper-Pearson)",
    "present_high": "upper end",
    "untested": "share of repetitions in which the present rule says that it cannot be tested",
    "repetitions": "repetitions, with the seeds 0, 1, 2, ...",
}
LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def simulations() -> dict[str, list[Simulation]]:
    """Return the simulations of each module of this folder."""
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    modules = {name: importlib.import_module(f"benchmarks.verdicts.{name}") for name in names if name[0] != "_"}
    return {name: module.SIMULATIONS for name, module in modules.items() if hasattr(module, "SIMULATIONS")}


def measure(module: str, simulation: Simulation, repetitions: int, pool: Any) -> dict[str, Any]:
    """Return one row of `COLUMNS`."""
    said = pool.map(simulation.draw, range(repetitions), chunksize=1)
    row: dict[str, Any] = {
        "module": module,
        "verdict": simulation.verdict,
        "data": simulation.data,
        "yes_is": "power" if simulation.effect else "false positive",
        "nominal": simulation.nominal,
        "untested": sum(each["present"] is None for each in said) / repetitions,
        "repetitions": repetitions,
    }
    for rule in ("former", "present"):
        if all(each[rule] is None for each in said) and rule == "former":
            row |= {rule: None}  # there was no such rule
            continue
        test = binomtest(sum(each[rule] is True for each in said), repetitions)
        interval = test.proportion_ci()
        row |= {rule: test.statistic, f"{rule}_low": interval.low, f"{rule}_high": interval.high}
    return row


def main() -> None:
    """Run the simulations and write the table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repetitions", type=int, help="instead of each simulation's own number")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(LIBRARIES, "1"), OMP_WAIT_POLICY="passive")  # read by the processes below
    chosen = {name: made for name, made in simulations().items() if not options.only or name in options.only}
    file = options.out / "verdicts.tsv"
    known = read_table(file) if file.is_file() else pd.DataFrame(columns=list(COLUMNS))
    rows = known[~known["module"].isin([] if options.missing else chosen)].to_dict("records")
    done = {(row["module"], row["verdict"], row["data"]) for row in rows}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for name, made in chosen.items():
            for simulation in made:
                if (name, simulation.verdict, simulation.data) in done:
                    continue
                repetitions = options.repetitions or simulation.repetitions
                row = measure(name, simulation, repetitions, pool)
                print(f"{row['verdict']} | {row['data']} | {row['yes_is']}: {row['former']} -> {row['present']}")
                rows.append(row)
                table = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values("module", kind="stable")
                write_table(table, file, COLUMNS)


if __name__ == "__main__":
    main()
