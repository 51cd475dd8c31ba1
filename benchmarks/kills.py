"""Kill the workflow at random moments, restart it each time, and compare the result with an undisturbed run.

    python -m benchmarks.kills FOLDER --kills 20 --seed 1 --machine "2 cores of …"

Two workflows alternate: from raw images of two tiny subjects to their ROI series, and from ready ROI series of twelve
subjects to the report. A round has several kills (`kill -9`) of the scheduler, a job, or everything; rounds repeat
until all kills are made. FOLDER keeps all runs; existing undisturbed ones are reused. Writes ``kills.tsv`` beside this
file.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from pathlib import Path

import pandas as pd

from bolt.config import ROOT
from bolt.datasets.phantom import simulate
from bolt.io.files import read_json, read_yaml, write_json, write_table
from tests.end_to_end.test_kill import dataset as write_series
from tests.kills import Killer, differences, half_written
from tests.phantoms import TINY
from tests.snake import snakemake, write_yaml

COLUMNS = {
    "date": "Date of the run",
    "machine": "Processors, and the number of cores used",
    "workflow": "raw: from T1w and BOLD images to ROI series; series: from ready ROI series to the report",
    "seed": "Seed of the round's times and victims; a round is a run from an empty folder, killed several times",
    "seconds": "From the start of `snakemake` to the kill",
    "round_seconds": "From the first start of the round to its end, including restarts",
    "undisturbed_seconds": "Duration of the same workflow without kills",
    "killed": "everything: scheduler and jobs; scheduler: its jobs keep running; worker: one job, which is retried",
    "jobs": "Commands running at that moment",
    "files": "Files compared below results/ at the end of the round: all but benchmarks and provenance",
    "different": "Of these, files that are not byte-identical to those of the undisturbed run",
    "half_written": "Incomplete files below results/ and work/ at the end of the round",
}


def write_raw(folder: Path) -> Path:
    """Write enough phantom subjects for folds as raw BIDS; return the path of the configuration."""
    simulate(folder / "bids", TINY.model_copy(update={"n_subjects": 6}))
    shipped = read_yaml(ROOT / "config/datasets/phantom.yaml")
    columns = {key: shipped[key] for key in ("label", "classes", "site", "age", "sex")}
    dataset = write_yaml(folder / "raw.yaml", columns | {"source": "bids", "path": "bids"})
    preprocess = {"space": "MNI152NLin2009aSym", "resolution": 6.0, "registration": "testing", "keep_bold": True}
    keys = {"dataset": str(dataset), "atlases": ["dosenbach160"], "preprocess": preprocess}
    keys |= {"folds": {"outer": 3, "validation": 0.4}, "models": ["svm"]}
    return write_yaml(folder / "config.yaml", keys)


SERIES = (
    "results/raw/series/MNI152NLin2009aSym-none/sub-0{}_task-rest/sub-0{}_task-rest_atlas-dosenbach160_timeseries.npy"
)
WORKFLOWS = {"raw": (write_raw, [SERIES.format(i, i) for i in (1, 2)]), "series": (write_series, [])}


def undisturbed(name: str, folder: Path) -> float:
    """Run a workflow without kills, unless already done; return its seconds."""
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--each", type=int, default=10, help="maximum kills per round")
    parser.add_argument(
        "--longest",
        type=float,
        default=0.3,
        help="maximum time to the next kill, as a share of the undisturbed duration",
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--workflows", nargs="+", choices=list(WORKFLOWS), default=list(WORKFLOWS))
    parser.add_argument("--machine", required=True, help="description of the machine for the table")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("kills.tsv"))
    return parser.parse_args()


def main() -> None:
    """Kill until the number of kills is reached, and write the table after each round."""
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
        common = {"date": date.today().isoformat(), "machine": options.machine, "workflow": name, "seed": seed}
        common |= {"round_seconds": round(time.monotonic() - start), "undisturbed_seconds": round(seconds[name])}
        common |= {"files": sum(path.is_file() for path in (folder / "results").rglob("*"))}
        common |= {"different": len(different), "half_written": len(half)}
        rows += [
            common | {"killed": kill.victim, "seconds": kill.seconds, "jobs": kill.jobs or "none"} for kill in kills
        ]
        if rows:
            write_table(pd.DataFrame(rows)[list(COLUMNS)], options.out, COLUMNS)
    sys.exit(any(row["different"] or row["half_written"] for row in rows))


if __name__ == "__main__":
    main()
