"""Measure time and memory of preprocessing a subject by stage, and two subjects in parallel against in sequence.

    BOLT_ATLAS_DIR=… python -m benchmarks.preprocessing_speed T1W BOLD TEMPLATEFLOW_HOME --folder /tmp/speed --out TABLE

Each case is a fresh process with the given number of threads for ANTs and BLAS; its resident memory and that of its
children is sampled from outside, 20 times per second. A finished case leaves a JSON file in the folder and is not
rerun: delete it to measure again. `--only fast:1 pair` selects cases. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from bolt.io.files import read_json, write_json, write_table

SPACE = "MNI152NLin6Asym"
CASES = ("testing:1", "testing:2", "fast:1", "fast:2", "precise:1", "precise:2", "pair")
ATLASES = ("schaefer400", "aal116")
PAIR = "fast"
STEPS = {
    "conform": "conform, N4",
    "extract_brain": "brain",
    "segment": "tissues",
    "refine": "normalisation",
    "make_reference": "reference",
    "estimate_motion": "motion",
    "coregister": "coregistration",
    "resample_bold": "resampling, confounds",
}
FUNCTIONS = {
    "anatomical_numbers": ("quality", "numbers"),
    "functional_numbers": ("quality", "numbers"),
    "draw_anatomical": ("pictures", "pictures"),
    "draw_functional": ("pictures", "pictures"),
}
COLUMNS = {
    "registration": "Settings of config/registration",
    "threads": "Threads of ANTs and BLAS",
    "stage": "Step; other: interpreter, imports, checks, copies",
    "wall": "Wall time, s",
    "cpu": "CPU time of all threads, s",
    "peak_mb": "Peak resident memory during the stage, MB",
}


class Clock:
    """Time spent in each stage of this process; prints the current stage to standard output."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the wall and CPU seconds of the context to a stage."""
        print(f"stage {name}", flush=True)
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        spent = self.spent.setdefault(name, [0.0, 0.0])
        spent[0] += time.perf_counter() - wall
        spent[1] += time.process_time() - cpu
        print("stage other", flush=True)

    def around(self, function: Callable, name: str | Callable[..., str]) -> Callable:
        """Return the function with its calls timed as a stage; `name` may depend on its arguments."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name if isinstance(name, str) else name(*args)):
                return function(*args, **kwargs)

        return timed


def subject(t1w: Path, bold: Path, templateflow: Path, registration: str, folder: Path) -> dict[str, list[float]]:
    """Preprocess and parcellate one subject in `folder`; return wall and CPU seconds by stage."""
    start = time.perf_counter()
    from bolt.atlases.image import load_atlas
    from bolt.config import load_denoise, load_registration
    from bolt.io.volumes import check_image
    from bolt.preprocess import steps
    from bolt.preprocess.anatomical import preprocess_anatomical
    from bolt.preprocess.functional.workflow import functional_names, preprocess_functional
    from bolt.preprocess.quality import compute as quality
    from bolt.preprocess.quality import pictures
    from bolt.preprocess.templates import stage_template
    from bolt.series.parcellate import parcellate

    clock = Clock()
    run = steps.Step._run_interface
    steps.Step._run_interface = clock.around(run, lambda step, *_: STEPS[step.function.__name__])  # type: ignore[method-assign]
    modules = {"quality": quality, "pictures": pictures}
    for name, (module, stage) in FUNCTIONS.items():
        setattr(modules[module], name, clock.around(getattr(modules[module], name), stage))
    settings, template, out = load_registration(registration), folder / "template", folder / "sub-01"
    stage_template(SPACE, 2.0, template, templateflow)
    preprocess_anatomical(t1w, template, SPACE, settings, out / "anat", folder / "work", prefix="sub-01_")
    scan, tr = "sub-01_task-rest", float(check_image(bold).header.get_zooms()[3])
    preprocess_functional(
        *(bold, out / "anat", template, SPACE, 2.0, settings, out / "func", folder / "work"),
        scan_id=scan,
        prefix="sub-01_",
        tr=tr,
    )
    names = functional_names(scan, SPACE)
    with clock.stage("parcellation"):
        atlases = [load_atlas(name) for name in ATLASES]
        mask = out / "func" / names["mask"]
        parcellate(out / "func" / names["bold"], atlases, mask=mask, denoise=load_denoise("none"), tr=tr)
    spent = clock.spent
    totals = [time.perf_counter() - start, time.process_time()]
    spent["other"] = [total - sum(part) for total, part in zip(totals, zip(*spent.values(), strict=True), strict=True)]
    return spent


def start(options: argparse.Namespace, registration: str, threads: int, folder: Path) -> subprocess.Popen:
    """Start a process that runs `subject`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS")
    places = [str(path) for path in (options.t1w, options.bold, options.templateflow)]
    command = [
        sys.executable,
        "-m",
        "benchmarks.preprocessing_speed",
        *places,
        "--folder",
        str(folder),
        "--child",
        registration,
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | dict.fromkeys(names, str(threads))
    )


def watch(process: subprocess.Popen) -> dict[str, Any]:
    """Wait for a process from `start`; return its seconds and peak memory by stage and in total."""
    stage, last = ["other"], [""]

    def listen() -> None:
        """Follow the stages that the process prints."""
        for line in process.stdout or ():
            if line.startswith("stage "):
                stage[0] = line[6:].strip()
            last[0] = line

    began = time.perf_counter()
    listener = threading.Thread(target=listen)
    listener.start()
    peaks: dict[str, float] = {}
    while process.poll() is None:
        peaks[stage[0]] = max(peaks.get(stage[0], 0.0), tree_memory(process.pid))
        time.sleep(0.05)
    wall = time.perf_counter() - began
    listener.join()
    if process.returncode:
        raise SystemExit(f"a case failed with exit status {process.returncode}")
    stages = {name: [*spent, peaks.get(name, 0.0)] for name, spent in json.loads(last[0]).items()}
    cpu = sum(spent[1] for spent in stages.values())
    return {"stages": stages, "total": [wall, cpu, max(peaks.values())]}


def tree_memory(pid: int) -> float:
    """Return the resident MB of a process and its children."""
    total = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            total += process.memory_info().rss / 1e6
    except psutil.NoSuchProcess:
        pass
    return total


def pair(options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of two subjects in sequence and in parallel, one thread each."""
    folder = options.folder / "pair"
    began = time.perf_counter()
    for _ in range(2):
        watch(start(options, PAIR, 1, folder))
    in_sequence = time.perf_counter() - began
    began = time.perf_counter()
    processes = [start(options, PAIR, 1, folder / name) for name in ("a", "b")]
    listeners = [threading.Thread(target=watch, args=(process,)) for process in processes]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    in_parallel = time.perf_counter() - began
    shutil.rmtree(folder)
    return {"one_after_the_other": in_sequence, "at_once": in_parallel, "ratio": in_sequence / in_parallel}


def measured(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the result of a case, run unless its file exists."""
    path = options.folder / f"{case.replace(':', '-')}.json"
    if not path.is_file():
        print(f"{case} …", file=sys.stderr)
        if case == "pair":
            result: dict[str, Any] = pair(options)
        else:
            registration, threads = case.split(":")
            folder = options.folder / "case"
            result = watch(start(options, registration, int(threads), folder))
            shutil.rmtree(folder)
        write_json(result, path)
    return read_json(path)


def main() -> None:
    """Run the cases and print the table by stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("t1w", "bold", "templateflow"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=CASES, default=CASES)
    parser.add_argument("--out", type=Path, help="table (TSV, with its sidecar)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return print(
            json.dumps(subject(options.t1w, options.bold, options.templateflow, options.child, options.folder))
        )
    results = {case: measured(case, options) for case in options.only}
    rows = []
    for case, result in results.items():
        if case == "pair":
            continue
        registration, threads = case.split(":")
        stages = result["stages"] | {"total": result["total"]}
        rows += [(registration, int(threads), stage, *spent) for stage, spent in stages.items()]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).round({"wall": 1, "cpu": 1, "peak_mb": 0})
    print(f"# {date.today()}: {shlex.join(sys.argv)}; {platform.machine()}, {os.cpu_count()} cores")
    for value in ("wall", "cpu", "peak_mb"):
        print(f"\n{COLUMNS[value]}")
        wide = table.pivot_table(values=value, index="stage", columns=["registration", "threads"], sort=False)
        print(wide.to_string(float_format="%.1f", na_rep=""))
    if "pair" in results:
        print("\nTwo subjects, one thread each:", {k: round(v, 2) for k, v in results["pair"].items()})
    if options.out:
        write_table(table, options.out, COLUMNS)


if __name__ == "__main__":
    main()
