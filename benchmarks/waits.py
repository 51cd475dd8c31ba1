"""Measure what people wait for, before and after a change: the waits of `waits.yaml` with the code of two checkouts.

    BOLT_ATLAS_DIR=… python -m benchmarks.waits --before CHECKOUT --data FOLDER --folder /tmp/waits --out waits.tsv

Each checkout is cloned and installed in an environment of its own. The two alternate, wait by wait; a finished
measurement leaves a file and is not repeated: delete it to measure again. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import ROOT
from bolt.io.files import read_json, read_yaml, write_json, write_table

WAITS = Path(__file__).with_suffix(".yaml")
COLUMNS = {
    "wait": "What a person waits for",
    "unit": "Unit of the values",
    "before": "With the older checkout",
    "now": "With the newer checkout",
    "ratio": "before / now",
    "aim": "What was aimed at",
}


def clone(checkout: Path, folder: Path) -> Path:
    """Clone a checkout and install it, unless that was done; return the clone."""
    code = folder / "code"
    if not code.is_dir():
        subprocess.run(["git", "clone", "--quiet", str(checkout), str(code)], check=True)
    subprocess.run(["make", "install"], cwd=code, check=True, stdout=subprocess.DEVNULL)
    return code


def run(command: str, code: Path, environment: dict[str, str]) -> tuple[float, str]:
    """Run a shell command in a clone with its environment; return wall seconds and output."""
    path = f"{code / '.venv/bin'}:{os.environ['PATH']}"
    variables = os.environ | environment | {"PATH": path, "PYTHONPATH": str(code), "FOLDER": str(code.parent)}
    start = time.perf_counter()
    done = subprocess.run(
        ["bash", "-c", command], cwd=code, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{done.stdout[-4000:]}\n{command} failed in {code}")
    return seconds, done.stdout


def measure(name: str, wait: dict[str, Any], code: Path, environment: dict[str, str]) -> float:
    """Return the value of a wait in a clone, measured unless its file exists."""
    results = code.parent / "measured" / f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}.json"
    if not results.is_file():
        print(f"{name} in {code} …", file=sys.stderr, flush=True)
        if "prepare" in wait:
            run(wait["prepare"], code, environment)
        seconds, output = run(wait["command"], code, environment)
        values = re.findall(wait["value"], output, re.MULTILINE) if "value" in wait else [seconds]
        if not values:
            sys.exit(f"{output[-4000:]}\n{name}: nothing matches {wait['value']}")
        write_json({"value": float(values[-1])}, results)
    return float(read_json(results)["value"])


def main() -> None:
    """Measure the waits by turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="checkout of the older code")
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data that tests use")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--out", type=Path, help="table (TSV, with its sidecar)")
    options = parser.parse_args()
    environment = {"SCRIPTS": str(ROOT / "benchmarks"), "DATA": str(options.data.resolve())}
    folder = options.folder.resolve()
    codes = {"before": clone(options.before, folder / "before"), "now": clone(ROOT, folder / "now")}
    rows = []
    for name, wait in read_yaml(WAITS).items():
        if any(part in name for part in options.only):
            values = {side: measure(name, wait, code, environment) for side, code in codes.items()}
            ratio = values["before"] / values["now"]
            rows.append({"wait": name, "unit": wait.get("unit", "s"), **values, "ratio": ratio, "aim": wait["aim"]})
    table = pd.DataFrame(rows, columns=list(COLUMNS)).round(2)
    print(f"# {date.today()}: {shlex.join(sys.argv)}; {platform.machine()}, {os.cpu_count()} cores")
    print(table.to_string(index=False))
    if options.out:
        write_table(table, options.out, COLUMNS)


if __name__ == "__main__":
    main()
