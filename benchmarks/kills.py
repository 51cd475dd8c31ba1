"""The workflow killed at random moments, started again each time, and compared with a run that nobody disturbed.

    python benchmarks/kills.py FOLDER --kills 20 --seed 1 --machine "2 cores of …"

Two workflows take turns: from raw images of two tiny subjects to their ROI series, and from ready ROI series of twelve
to the report. One round takes some kills, each of the scheduler, of a job, or of everything, with `kill -9`; a round
that ends earlier is followed by another. FOLDER keeps all runs; undisturbed ones that it holds already are taken.
Writes ``kills.tsv`` beside this file.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from pathlib import Path

import pandas as pd

from bolt.config import ROOT
from bolt.datasets.phantom.dataset import simulate
from bolt.io.files import read_json, read_yaml, write_json, write_table
from tests.end_to_end.test_kill import dataset as write_series
from tests.kills import Killer, differences, half_written
from tests.phantoms import TINY
from tests.snake import snakemake, write_yaml

COLUMNS = {
    "date": "Day of the run",
    "machine": "Processors, and how many cores were given",
    "workflow": "raw: from T1w and BOLD images to ROI series; series: from ready ROI series to the report",
    "seed": "Of the round's moments and victims; a round is a run from an empty folder, killed several times",
    "seconds": "From the start of `snakemake` to the kill",
    "round_seconds": "From the first start of the round to its end, all starts together",
    "undisturbed_seconds": "Of the same workflow when nobody kills it",
    "killed": "everything: scheduler and jobs; scheduler: its jobs live on; worker: one job, which is tried again",
    "jobs": "Commands at work at that moment",
    "files": "Compared below results/ at the end of the round: all but benchmarks and provenance",
    "different": "Of these, not equal to the undisturbed run's to the last byte",
    "half_written": "Files below results/ and work/ at the end of the round that are not whole",
}


def write_raw(folder: Path) -> Path:
    """Subjects of the phantom as raw BIDS, enough for folds, with their index; the path of the configuration."""
    simulate(folder / "bids", TINY.model_copy(update={"n_subjects": 6}))
    shipped = read_yaml(ROOT / "config/datasets/phantom.yaml")
    about = {key: shipped[key] for key in ("label", "classes", "site", "age", "sex")}
    dataset = write_yaml(folder / "raw.yaml", about | {"source": "bids", "path": "bids"})
    preprocess = {"space": "MNI152NLin2009aSym", "resolution": 6.0, "registration": "testing", "keep_bold": True}
    keys = {"dataset": str(dataset), "atlases": ["dosenbach160"], "preprocess": preprocess}
    keys |= {"folds": {"outer": 3, "validation": 0.4}, "models": ["svm"]}
    config = write_yaml(folder / "config.yaml", keys)
    done = snakemake(folder, "results/raw/scans.tsv", config=config)  # the index, after which a scan can be asked for
    if done.returncode:
        sys.exit(done.stdout)
    return config


SERIES = (
    "results/raw/series/MNI152NLin2009aSym-none/sub-0{}_task-rest/sub-0{}_task-rest_atlas-dosenbach160_timeseries.npy"
)
WORKFLOWS = {"raw": (write_raw, [SERIES.format(i, i) for i in (1, 2)]), "series": (write_series, [])}


def undisturbed(name: str, folder: Path) -> float:
    """Run a workflow that nobody kills, unless that is done; its seconds."""
    if (folder / "seconds.json").is_file():
        return float(read_json(folder / "seconds.json"))
    folder.mkdir(parents=True)
    write, targets = WORKFLOWS[name]
    config, start = write(folder), time.monotonic()
    done = snakemake(folder, *targets, config=config)
    if done.returncode:
        sys.exit(done.stdout)
    write_json(time.monotonic() - start, folder / "seconds.json")
    return time.monotonic() - start


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--each", type=int, default=10, help="kills a round, at most")
    parser.add_argument("--longest", type=float, default=0.3, help="time to the next kill, of an undisturbed run's")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--workflows", nargs="+", choices=list(WORKFLOWS), default=list(WORKFLOWS))
    parser.add_argument("--machine", required=True, help="as the table shall name it")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("kills.tsv"))
    return parser.parse_args()


def main() -> None:
    options, rows, number = parse(), list[dict[str, object]](), 0
    folders = {name: options.folder.resolve() / name for name in options.workflows}
    seconds = {name: undisturbed(name, folder) for name, folder in folders.items()}
    while len(rows) < options.kills:
        name = options.workflows[number % len(folders)]
        number, seed = number + 1, options.seed + number
        folder = options.folder.resolve() / f"{name}_{seed}"
        folder.mkdir()
        write, targets = WORKFLOWS[name]
        killer, start = Killer(folder, write(folder), options.longest * seconds[name], seed, *targets), time.monotonic()
        kills = killer.run(min(options.each, options.kills - len(rows)))
        different, half = differences(folders[name], folder), half_written(folder)
        print(name, f"seed {seed}", *kills, *different, *half, sep="\n  ", flush=True)
        about = {"date": date.today().isoformat(), "machine": options.machine, "workflow": name, "seed": seed}
        about |= {"round_seconds": round(time.monotonic() - start), "undisturbed_seconds": round(seconds[name])}
        about |= {"files": sum(path.is_file() for path in (folder / "results").rglob("*"))}
        about |= {"different": len(different), "half_written": len(half)}
        rows += [about | {"killed": k.victim, "seconds": k.seconds, "jobs": k.jobs or "none"} for k in kills]
        if rows:
            write_table(pd.DataFrame(rows)[list(COLUMNS)], options.out, COLUMNS)
    sys.exit(any(row["different"] or row["half_written"] for row in rows))


if __name__ == "__main__":
    main()
