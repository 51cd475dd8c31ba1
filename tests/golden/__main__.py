"""Make everything that the product computes, and list a hash of each array, table, checkpoint, transform and page.

    python -m tests.golden OUT [--parts demo api …]
    python -m tests.golden OUT --than OTHER

A change that should compute the same is run before and after, on one machine: the second form prints what differs.
Each part is a folder of OUT, which is made once; parts whose real data are not in ``../shared/data`` are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd

from bolt.config import ROOT
from bolt.io.files import read_yaml, write_json, write_yaml
from tests.shared import SHARED

DATA = SHARED / "data"
OWN = ("benchmarks/", "provenance.json", "ledger.tsv", "ro-crate-metadata.json", "report/methods.html", ".zip")
"""What tells of a run itself: dates, seconds, versions; the page of methods has a table of costs."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"), "1")
API = """
import numpy as np, bolt
random = np.random.default_rng(0)
X = [random.standard_normal((60 + i % 3, 20)).astype("float32") for i in range(40)]
y = np.array(["a", "b"] * 20)
for name in ("bolt_small", "svm", "lstm", "brainnetcnn"):
    more = {"epochs": 2, "warmup_epochs": 0} if name != "svm" else {}
    np.save(f"{name}.npy", bolt.estimator(name, **more).fit(X[:30], y[:30]).predict_proba(X[30:]))
"""


def run(folder: Path, *words: object) -> None:
    """Run a Python module in a folder with one thread; stop where it fails."""
    places = {"TEMPLATEFLOW_HOME": DATA / "templateflow", "BOLT_ATLAS_DIR": DATA / "atlases"}
    place = {"PYTHONPATH": str(ROOT)} | {name: str(path) for name, path in places.items() if path.is_dir()}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=os.environ | THREADS | place, text=True, capture_output=True)
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def workflow(folder: Path, *words: object) -> None:
    """Run Snakemake on one core."""
    run(folder, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--cores", 1, *words)


def demo(folder: Path) -> None:
    workflow(folder, "--configfile", ROOT / "config/config.yaml")


def predict(folder: Path) -> None:
    """The demo's BolT on the demo's own series, as a stranger's."""
    study = folder.parent / "demo"
    (trained,) = (study / "results/phantom/runs").glob("*/*-none/bolt*/seed-0")
    run(folder, "-m", "bolt", "pack", trained, "--out", "pack")
    files = sorted((study / "results/phantom/series").rglob("*_timeseries.npy"))
    scans = pd.DataFrame({"subject": [f"new{i}" for i in range(len(files))], "file": files})
    scans.to_csv(folder / "scans.tsv", sep="\t", index=False)
    run(folder, "-m", "bolt", "predict", "pack", "scans.tsv", "--out", "predictions.tsv", "--explain", "explained")


def abide(folder: Path) -> None:
    """Three folds of quick models, one of BolT, two epochs each; their importance."""
    from benchmarks.svm_folds import configure

    config = configure(DATA / "abide1", folder)
    models = ["svm", "ridge"]
    for name in ("bolt", "bolt_small", "meanmlp"):
        keys = read_yaml(ROOT / f"config/models/{name}.yaml")
        write_yaml(
            keys | {"training": keys["training"] | {"epochs": 2, "warmup_epochs": 1}}, folder / f"{name}_two.yaml"
        )
        models.append(str(folder / f"{name}_two.yaml"))
    folds = {"outer": 10, "run": {name: [0, 4, 9] for name in ("svm", "ridge", "bolt_small_two", "meanmlp_two")}}
    folds["run"]["bolt_two"] = [0]
    write_yaml(read_yaml(config) | {"models": models, "folds": folds, "explain": {"sanity": {"draws": 0}}}, config)
    workflow(folder, "--configfile", config, "--until", "evaluate", "explain_fold")


def scan(folder: Path) -> None:
    """The raw scan to ROI series."""
    (folder / "bids").mkdir()
    (folder / "bids/sub-02").symlink_to(DATA / "bids_real/sub-02")
    write_json({"Name": "one scan", "BIDSVersion": "1.9.0"}, folder / "bids/dataset_description.json")
    options = ["--atlas", "schaefer400", "--n-cpus", 1, "--space", "MNI152NLin6Asym"]
    run(folder, "-m", "bolt", "run", "bids", ".", "participant", *options)


def api(folder: Path) -> None:
    run(folder, "-c", API)


def paper(folder: Path) -> None:
    from tests.end_to_end.test_paper import configured

    workflow(folder, "--configfile", configured(folder), "paper")


PARTS: dict[str, Callable[[Path], None]] = {part.__name__: part for part in (api, demo, predict, paper, abide, scan)}
NEEDS = {"abide": "abide1", "scan": "bids_real"}


class Text(HTMLParser):
    """The visible text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.lines.append(" ".join(data.split()))


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of each thing in a file that must not change; nothing of pictures but PNG."""
    import numpy as np

    match path.suffix:
        case ".npz" | ".safetensors":
            from safetensors.numpy import load_file

            arrays = np.load(path) if path.suffix == ".npz" else load_file(path)
            yield from ((name, arrays[name].tobytes()) for name in arrays)
        case ".gz":
            import nibabel

            image = nibabel.load(path)
            yield "image", np.asarray(image.dataobj).tobytes() + image.affine.tobytes()
        case ".h5":
            import ants

            transform = ants.read_transform(str(path))
            yield "transform", np.concatenate([transform.parameters, transform.fixed_parameters]).tobytes()
        case ".html":
            page = Text()
            page.feed(path.read_text())
            yield "text", "\n".join(page.lines).encode()
        case ".svg" | ".pdf":
            return
        case _:
            yield "", path.read_bytes()


def listing(part: Path) -> dict[str, str]:
    """Return a hash of everything in a part's results; the place of the part is left out."""
    found, place = {}, str(part.parent).encode()
    for path in sorted(part.rglob("*")):
        name = str(path.relative_to(part))
        hidden = any(word.startswith(".") for word in path.relative_to(part).parts)
        if not path.is_file() or hidden or name.startswith("work/") or name == "log.txt" or any(w in name for w in OWN):
            continue
        for what, content in contents(path):
            found[f"{name} {what}".strip()] = hashlib.sha256(content.replace(place, b"")).hexdigest()[:16]
    return found


def differences(one: Path, other: Path) -> list[str]:
    """Return what is not in both folders, or not the same, of the parts that both have."""
    different = []
    for part in PARTS:
        if (one / part).is_dir() and (other / part).is_dir():
            here, there = listing(one / part), listing(other / part)
            different += [
                f"{part}/{name}" for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)
            ]
    return different


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--than", type=Path, metavar="OTHER", help="print what differs from another folder")
    options = parser.parse_args(words)
    out = options.out.resolve()
    if options.than:
        different = differences(out, options.than.resolve())
        sys.exit("\n".join(different)) if different else print("no difference")
        return
    for name in options.parts:
        if name in NEEDS and not (DATA / NEEDS[name]).is_dir():
            print(f"{name}: left out, because {DATA / NEEDS[name]} is missing")
        elif not (out / f"{name}.done").is_file():
            (out / name).mkdir(parents=True, exist_ok=True)
            PARTS[name](out / name)
            (out / f"{name}.done").touch()
    listed = [(part, name, value) for part in PARTS for name, value in listing(out / part).items()]
    pd.DataFrame(listed, columns=["part", "name", "hash"]).to_csv(out / "golden.tsv", sep="\t", index=False)


if __name__ == "__main__":
    main()
