"""Run ABIDE-I from download to report: 871 scans, one fold of the paper's BolT, all ten folds of the linear SVM.

    python -m benchmarks.abide1 FOLDER_WITH_SERIES --out RUN_FOLDER [--cores 2]

FOLDER_WITH_SERIES contains the phenotypes and ``cc200_nofilt_noglobal_871.npz``; they are served on the loopback
interface in the layout of the publisher's bucket.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from bolt.config import ROOT
from bolt.io.files import read_yaml, write_yaml
from tests.abide import write_bucket
from tests.file_server import serve


def configure(out: Path, address: str) -> Path:
    """Write the shipped example configuration with the server's address and one fold of BolT; return its path."""
    dataset = read_yaml(ROOT / "config/datasets/abide1.yaml")
    dataset["abide"]["base"] = address
    write_yaml(dataset, out / "abide1.yaml")
    config = read_yaml(ROOT / "config/examples/abide1.yaml")
    config["folds"]["run"] = {"bolt": [0]}
    write_yaml(config | {"dataset": str(out / "abide1.yaml")}, out / "config.yaml")
    return out / "config.yaml"


def main() -> None:
    """Run the workflow and print its wall time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    out = options.out.resolve()
    if not (out / "bucket").exists():
        write_bucket(options.series, out / "bucket")
    with serve(out / "bucket") as server:
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(out)]
        command += ["--configfile", str(configure(out, server.address)), "--cores", str(options.cores)]
        command += ["--set-threads", f"train_fold={options.cores}", f"train_folds={options.cores}"]
        command += ["--workflow-profile", str(ROOT / "workflow/profiles/default")]
        start = time.perf_counter()
        code = subprocess.run(command, check=False).returncode
        print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(code)


if __name__ == "__main__":
    main()
