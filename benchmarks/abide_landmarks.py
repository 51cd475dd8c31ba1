"""Landmark regressions on ABIDE-I, both readings of the paper: ``abide_landmarks.tsv``.

    python -m benchmarks.abide_landmarks FOLDER_WITH_SERIES --out RUN [--cores 2] [--folds 0 1]

BolT is trained on some folds of `abide_benchmark` and its landmarks are classified as five samples of each scan
(`landmark_samples: volumes`) and as one (`scans`). Series and server as in ``abide1.py``; an hour of two cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

from bolt.config import ROOT
from bolt.experiments.explained import LANDMARKS
from bolt.io.files import read_table, read_yaml, write_table, write_yaml
from tests.abide import write_bucket
from tests.file_server import serve

OUT = Path(__file__).with_suffix(".tsv")
COLUMNS = {
    "samples": "`explain: landmark_samples`: each landmark is a sample, or all of a scan are one",
    **{name: LANDMARKS[name] for name in ("tokens", "level", "metric", "mean", "sd", "n_folds")},
}


def main() -> None:
    """Train, explain, and keep the means over folds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folds", nargs="+", type=int, default=[0, 1])
    options = parser.parse_args()
    out, tables = options.out.resolve(), []
    if not (out / "bucket").exists():
        write_bucket(options.series, out / "bucket")
    dataset, example = read_yaml(ROOT / "config/datasets/abide1.yaml"), read_yaml(ROOT / "config/examples/abide1.yaml")
    with serve(out / "bucket") as server:
        dataset["abide"]["base"] = server.address
        write_yaml(dataset, out / "abide1.yaml")
        os.chdir(out)
        for samples in ("volumes", "scans"):
            folds = example["folds"] | {"outer": 10, "run": options.folds}
            checks = {"sanity": {"draws": 0, "permuted": False, "retrained": False}, "faithfulness": {"scans": 0}}
            keys = {"dataset": str(out / "abide1.yaml"), "models": ["bolt"], "seeds": [0], "experiments": ["landmarks"]}
            explain = {"explain": checks | {"landmark_samples": samples}, "folds": folds}
            write_yaml(example | keys | explain, out / "config.yaml")
            command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "landmarks"]
            command += ["--configfile", str(out / "config.yaml"), "--cores", str(options.cores)]
            profile = ["--workflow-profile", str(ROOT / "workflow/profiles/default")]
            subprocess.run([*command, *profile], check=True)
            tables.append(read_table(out / "results/paper/landmarks.tsv").assign(samples=samples))
    table = pd.concat(tables).query("importance != 'inner'")
    write_table(table[list(COLUMNS)], OUT, COLUMNS)


if __name__ == "__main__":
    main()
