"""Compare parcellation with nilearn's `NiftiLabelsMasker` and with decompression alone, in one run.

    BOLT_ATLAS_DIR=… python -m benchmarks.parcellation --folder /tmp/images --repeats 3 --out results.tsv

Images are simulated once: 91 × 109 × 91 voxels of 2 mm, a brain of 230 thousand voxels with smooth anatomy, smooth
signals and white noise, zero outside, compressed as gzip. The methods alternate (A B C … A B C …), each on one thread;
wall and CPU time are minima over the repeats. nilearn runs twice: with the published label image (float32 labels), in
the first repeat only, and with the same labels as integers, its best case. Memory is the peak (VmHWM) of a fresh
process that does nothing else.
"""

from __future__ import annotations

import argparse
import gzip
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import numpy as np
from isal import igzip
from nilearn.maskers import NiftiLabelsMasker
from scipy.ndimage import gaussian_filter

from bolt.atlases.description import atlas_folder, describe_atlas, find_image
from bolt.atlases.image import load_atlas
from bolt.config import load_denoise
from bolt.io.files import atomic
from bolt.io.streams import volume_writer
from bolt.series.parcellate import parcellate

SHAPE = (91, 109, 91)
AFFINE = np.array([[2.0, 0, 0, -90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
CASES = ("int16:300", "float32:300")
PEAKS = ("nothing:int16:300", "ours:int16:300", "nilearn:int16:300", "ours:float32:300", "ours:float32:1200")
CHUNK = 1 << 20
ATLAS = "schaefer400"


def volumes(n: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Simulate (X, Y, Z) volumes: mean 10,000, 0.5 % smooth signals, 1 % white noise."""
    rng = np.random.default_rng(seed)
    places = np.moveaxis(np.indices(SHAPE), 0, -1)
    inside = (((places - (45, 53, 42)) / (35, 45, 34.5)) ** 2).sum(axis=-1) < 1

    def smooth(width: float) -> np.ndarray:
        """Return a smooth random field inside the brain, with standard deviation 1."""
        field = gaussian_filter(rng.standard_normal(SHAPE, dtype=np.float32), width)[inside]
        return field / field.std()

    mean, maps = 10000 * (1 + 0.15 * smooth(3)), np.stack([smooth(4) for _ in range(6)])
    volume = np.zeros(SHAPE, np.float32)
    for _ in range(n):
        signal = 0.005 * rng.standard_normal(6).astype(np.float32) @ maps
        volume[inside] = mean * (1 + signal + 0.01 * rng.standard_normal(mean.size, dtype=np.float32))
        yield volume


def image(folder: Path, case: str) -> Path:
    """Return the path of a case's image (such as ``int16:300``), simulating it if it is missing."""
    dtype, n = case.split(":")
    path = folder / f"sub-{dtype}{n}_space-MNI152NLin6Asym_bold.nii.gz"
    if not path.is_file():
        print(f"simulating {path}", file=sys.stderr)
        with volume_writer(path, AFFINE, SHAPE, 0.72, dtype, code=4) as append:
            for volume in volumes(int(n)):
                append(volume)
    return path


def ours(path: Path) -> np.ndarray:
    """Parcellate with BolT."""
    return parcellate(path, [load_atlas(ATLAS)], denoise=load_denoise("none"))[ATLAS].series


def nilearn(path: Path) -> np.ndarray:
    """Parcellate with nilearn and the published label image."""
    published = find_image(describe_atlas(ATLAS), atlas_folder(ATLAS), None, None)
    return NiftiLabelsMasker(published, standardize=None).fit_transform(path)


def nilearn_integers(path: Path) -> np.ndarray:
    """Parcellate with nilearn and integer labels."""
    return NiftiLabelsMasker(load_atlas(ATLAS).image, standardize=None).fit_transform(path)


def read_isal(path: Path) -> None:
    """Decompress with isal."""
    with igzip.open(path) as stream:
        while stream.read(CHUNK):
            pass


def read_zlib(path: Path) -> None:
    """Decompress with zlib."""
    with gzip.open(path) as stream:
        while stream.read(CHUNK):
            pass


def nothing(path: Path) -> None:
    """Do nothing, to measure interpreter and imports."""


METHODS: dict[str, Callable] = {
    "ours": ours,
    "isal": read_isal,
    "zlib": read_zlib,
    "nilearn_integers": nilearn_integers,
    "nilearn": nilearn,
}
RATIOS = (("nilearn", "ours"), ("nilearn_integers", "ours"), ("ours", "isal"), ("ours", "zlib"))


def time_case(path: Path, repeats: int) -> dict[str, tuple[float, float]]:
    """Check that results agree, and return the best (wall, CPU) seconds of each method."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    series = {}
    for repeat in range(repeats):
        for name, work in METHODS.items():
            if repeat and name == "nilearn":
                continue
            start = time.perf_counter(), time.process_time()
            series[name] = work(path)
            seconds[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    covered = ~np.isnan(series["ours"]).any(axis=0)  # the simulated brain does not cover a few ROIs
    for name in ("nilearn", "nilearn_integers"):
        np.testing.assert_allclose(series["ours"][:, covered], series[name][:, covered], rtol=1e-5)
    return {name: (min(wall for wall, _ in t), min(cpu for _, cpu in t)) for name, t in seconds.items()}


def peak(name: str, path: Path) -> float:
    """Return the peak memory (MB) of a method in a fresh process."""
    command = [sys.executable, __file__, "--peak", name, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1]) / 1024


def main() -> None:
    """Time all cases, measure peak memory, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder of the images; missing ones are simulated")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--peaks", nargs="*", default=PEAKS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        {**METHODS, "nothing": nothing}[options.peak[0]](Path(options.peak[1]))
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return print(status["VmHWM"].split()[0])
    lines = ["case\tmeasure\tclock\tprocessor"]
    for case in options.cases:
        path = image(options.folder, case)
        lines.append(f"{case}\tfile, MB\t{path.stat().st_size / 1e6:.0f}\t")
        best = time_case(path, options.repeats)
        lines += [f"{case}\t{name}, s\t{clock:.2f}\t{processor:.2f}" for name, (clock, processor) in best.items()]
        lines += [f"{case}\t{a} / {b}\t{best[a][0] / best[b][0]:.2f}\t{best[a][1] / best[b][1]:.2f}" for a, b in RATIOS]
        print("\n".join(lines[-10:]), file=sys.stderr)
    for entry in options.peaks:
        name, case = entry.split(":", 1)
        lines.append(f"{case}\tpeak of {name}, MB\t{peak(name, image(options.folder, case)):.0f}\t")
    text = "\n".join([f"# {date.today()}: {shlex.join(sys.argv)}", *lines]) + "\n"
    print(text)
    if options.out:
        with atomic(options.out) as temporary:
            temporary.write_text(text)


if __name__ == "__main__":
    main()
