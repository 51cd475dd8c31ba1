"""Repeat the normalisation of one real scan, and compare the transforms and the ROI series of the repetitions.

    python -m benchmarks.repeatability BIDS_REAL TEMPLATEFLOW_HOME ATLASES --folder /tmp/repeat [--threads 2]

Each repetition is a process of its own with that many threads, as in the workflow. BOLD is resampled through each with
one thread and one coregistration, so that nothing but the normalisation differs. Finished repetitions are reused.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np

from benchmarks.coregistration import SCAN, SPACE, SUBJECT, TR
from bolt.config.layout import anatomical_names

NAMES = anatomical_names(f"{SUBJECT}_", SPACE)
ONLY_NORMALISATION = ("forward", "inverse", "warped", "deep")


def normalise(raw: Path, template: Path, out: Path) -> None:
    """Preprocess the T1w; called in a process of its own."""
    from bolt.config import load_registration
    from bolt.preprocess.anatomical import preprocess_anatomical

    t1w = raw / SUBJECT / "anat" / f"{SUBJECT}_T1w.nii.gz"
    preprocess_anatomical(
        t1w, template, SPACE, load_registration("fast"), out / "anat", out / "work", prefix=f"{SUBJECT}_"
    )


def series_of(raw: Path, template: Path, atlases: Path, out: Path) -> np.ndarray:
    """Preprocess the BOLD and return its (T, 400) ROI series; the second half of a repetition."""
    from bolt.atlases.image import load_atlas
    from bolt.config import load_denoise, load_registration
    from bolt.preprocess.functional.workflow import functional_names, preprocess_functional
    from bolt.series.parcellate import parcellate

    names = functional_names(SCAN, SPACE)
    if not (out / "func" / f"{SCAN}_desc-quality.json").is_file():
        bold = raw / SUBJECT / "func" / f"{SCAN}_bold.nii.gz"
        preprocess_functional(
            *(bold, out / "anat", template, SPACE, 2.0, load_registration("fast"), out / "func", out / "work"),
            scan_id=SCAN,
            prefix=f"{SUBJECT}_",
            tr=TR,
        )
    atlas = load_atlas("schaefer400", atlas_dir=atlases)
    mask, denoise = out / "func" / names["mask"], load_denoise("none")
    return parcellate(out / "func" / names["bold"], [atlas], mask=mask, denoise=denoise, tr=TR)["schaefer400"].series


def main() -> None:
    """Repeat and print the differences of each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("raw", "home", "atlases"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    template = options.folder / "template"
    if options.one:
        normalise(options.raw, template, options.one)
        return
    from bolt.preprocess import images
    from bolt.preprocess.templates import stage_template

    stage_template(SPACE, 2.0, template, options.home)
    folders = [options.folder / f"threads-{options.threads}" / str(number) for number in range(options.repeats)]
    for out in folders:
        if not (out / "anat" / f"{SUBJECT}_desc-quality.json").is_file():
            environment = os.environ | {"ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS": str(options.threads)}
            subprocess.run(
                [sys.executable, "-m", "benchmarks.repeatability", *sys.argv[1:], "--one", out],
                env=environment,
                check=True,
            )
        for port in set(NAMES) - set(ONLY_NORMALISATION):  # the same T1w, mask and tissues: the same coregistration
            shutil.copy(folders[0] / "anat" / NAMES[port], out / "anat" / NAMES[port]) if out != folders[0] else None
    brain = nib.Nifti1Image.from_filename(template / "brain_mask.nii.gz")
    inside = np.asarray(brain.dataobj) > 0
    shape = (inside.shape[0], inside.shape[1], inside.shape[2])
    places = [images.places_of_grid(shape, brain.affine, [out / "anat" / NAMES["forward"]])[inside] for out in folders]
    series = [series_of(options.raw, template, options.atlases, out) for out in folders]
    for one, other in itertools.combinations(range(options.repeats), 2):
        moved = np.linalg.norm(places[one] - places[other], axis=1)
        r = [np.corrcoef(a, b)[0, 1] for a, b in zip(series[one].T, series[other].T, strict=True)]
        print(
            f"{one} and {other}: median {np.median(moved):.2f} mm, 95 % below {np.quantile(moved, 0.95):.2f}, largest "
            f"{moved.max():.2f}; series r median {np.median(r):.4f}, 5th percentile {np.quantile(r, 0.05):.3f}, "
            f"least {np.min(r):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
