"""Profile every stage of the demo at two sizes: processor seconds, and the packages in which they are spent.

    python -m benchmarks.profiles --folder /tmp/profiles --out benchmarks/profiles.tsv

Runs the whole workflow on eight simulated subjects, then with images of twice as many volumes, each job under cProfile,
one at a time. Shares are of the time within functions of a package and the C code that they call.
"""

from __future__ import annotations

import argparse
import marshal
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

from benchmarks.scale import about
from bolt.config import ROOT
from bolt.io.files import read_yaml, write_json, write_table, write_yaml

SIZES = (1, 2)
SHIM = """#!/bin/sh
[ "$1 $2" = "-m bolt" ] && exec {python} -m cProfile -o "{folder}/$3.$$.prof" "$@"
exec {python} "$@"
"""
COLUMNS = {
    "stage": "Command of the workflow's jobs",
    "size": "Volumes of a scan, relative to the demo's",
    "jobs": "Jobs of eight subjects",
    "seconds": {"Description": "Time of all jobs, under the profiler", "Units": "s"},
    "shares": "Packages with the largest shares of it, and rooms of bolt; import: reading and running modules",
}


def place(file: str) -> str:
    """Return the package, or the room of bolt, that a file belongs to."""
    if "importlib" in file:
        return "import"
    for parent, depth in ((str(ROOT), 2), (str(Path(pd.__file__).parents[1]), 1), (str(Path(os.__file__).parent), 0)):
        if file.startswith(parent):
            return "/".join(Path(file).relative_to(parent).parts[:depth]) or "python"
    return "python"


def run(size: int, folder: Path) -> list[dict[str, object]]:
    """Run the workflow at one size under the profiler; return the rows of its stages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    dataset = read_yaml(ROOT / "config/datasets/phantom.yaml")
    dataset["simulate"] |= {"n_subjects": 8, "n_volumes": [n * size for n in dataset["simulate"]["n_volumes"]]}
    write_yaml(dataset | {"path": str(folder / "bids")}, folder / "phantom.yaml")
    config = read_yaml(ROOT / "config/config.yaml") | {"dataset": str(folder / "phantom.yaml"), "folds": {"outer": 2}}
    write_yaml(config, folder / "config.yaml")
    shim = folder / "bin/python"
    shim.parent.mkdir()
    shim.write_text(SHIM.format(python=sys.executable, folder=folder))
    shim.chmod(0o755)
    environment = os.environ | {"PATH": f"{shim.parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--cores", "1"]
    subprocess.run([*command, "--configfile", "config.yaml"], cwd=folder, env=environment, check=True)
    seconds, jobs = dict[str, Counter[str]](), Counter[str]()
    for file in folder.glob("*.prof"):
        stage = file.name.split(".")[0]
        jobs[stage] += 1
        spent = seconds.setdefault(stage, Counter())
        for (source, _, function), (_, _, own, _, callers) in marshal.loads(file.read_bytes()).items():
            if source != "~":
                spent[place(source)] += own
            for caller, (_, _, part, _) in callers.items() if source == "~" else ():
                spent[place("importlib" if "marshal" in function else caller[0])] += part
    rows = []
    for stage, spent in seconds.items():
        total = sum(spent.values())
        shares = ", ".join(f"{name} {value / total:.0%}" for name, value in spent.most_common(5))
        rows.append({"stage": stage, "size": size, "jobs": jobs[stage], "seconds": round(total, 1), "shares": shares})
    return rows


def main() -> None:
    """Profile both sizes, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="table (TSV)")
    options = parser.parse_args()
    table = pd.DataFrame([row for size in SIZES for row in run(size, options.folder.resolve() / f"size-{size}")])
    table = table.sort_values(["seconds", "stage"], ascending=False, ignore_index=True)
    print(table.to_string())
    write_table(table, options.out, COLUMNS)
    write_json(about("profiles", sys.argv[1:]), options.out.with_name(f"{options.out.stem}_run.json"))


if __name__ == "__main__":
    main()
