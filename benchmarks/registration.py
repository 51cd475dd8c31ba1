"""Compare normalisations of a real scan by measures that the brain mask does not determine.

    python -m benchmarks.registration T1W TEMPLATEFLOW_HOME SCHAEFER_IMAGE --folder /tmp/registration [--out FILE.tsv]

The anatomical half runs once with each settings file (testing, fast, precise); "affine alone" uses the T1w, mask and
settings of `fast` without SyN. Finished parts in the folder are reused. `preprocessing.py` measures errors against the
known truth of a phantom.
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

import pandas as pd

from bolt.config import load_registration
from bolt.config.layout import anatomical_names
from bolt.io.files import read_json, write_json
from bolt.preprocess import images
from bolt.preprocess.anatomical import preprocess_anatomical
from bolt.preprocess.quality.compute import normalisation_evidence
from bolt.preprocess.registration import clip_intensity, crop_to_brain, register, seed, warp
from bolt.preprocess.templates import stage_template

SPACE = "MNI152NLin6Asym"
AFFINE = "affine alone"
SETTINGS = ("testing", "fast", "precise")
SUBJECT = "sub-01"


def affine_alone(anat: Path, template: Path, space: str, prefix: str, folder: Path, name: str = "fast") -> Path:
    """Register a preprocessed T1w brain with the template's, affinely; write and return the transform.

    Parameters
    ----------
    anat : path
        Folder filled by `preprocess_anatomical`.
    template, space, prefix
        As in `preprocess_anatomical`.
    folder : path
        Output folder for the transform.
    name : str
        Settings of the affine registration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = anatomical_names(prefix, space)
    settings = load_registration(name)
    brain = images.read(anat / names["t1w"]) * images.read(anat / names["mask"])
    head = images.read(template / "T1w.nii.gz") * images.read(template / "brain_mask.nii.gz")
    spacing = settings.normalisation_resolution or max(head.spacing)
    fixed, moving = (
        images.resample_to_spacing(crop_to_brain(clip_intensity(image)), max(spacing, *image.spacing))
        for image in (head, brain)
    )
    seed(settings)
    found = register(
        fixed,
        moving,
        "Affine",
        outprefix=f"{folder}/affine_",
        aff_iterations=tuple(settings.affine_iterations),
        aff_shrink_factors=(4, 2, 1),
        aff_smoothing_sigmas=(2, 1, 0),
    )
    return Path(found["fwdtransforms"][0])


def normalised(t1w: Path, template: Path, space: str, name: str, out: Path, prefix: str) -> Path:
    """Return the ``anat`` folder of the anatomical half with the settings `name`, run if needed."""
    anat = out / name / prefix.rstrip("_") / "anat"
    if not (anat / f"{prefix}desc-quality.json").is_file():
        preprocess_anatomical(t1w, template, space, load_registration(name), anat, out / name / "work", prefix=prefix)
    return anat


def evidence(paths: dict[str, Path], template: Path, atlas: Path) -> dict[str, float]:
    """Return the `normalisation_evidence`, and the share of the subject's grey matter within the atlas's labels."""
    regions = images.read(atlas)
    grey = warp(regions, images.read(paths["gm"]), [paths["forward"]]).numpy()
    share = float(grey[regions.numpy() > 0].sum() / grey.sum())
    return {"gm_in_atlas": share, **normalisation_evidence(paths, template)}


def measure(t1w: Path, template: Path, atlas: Path, name: str, out: Path) -> dict[str, float]:
    """Return the `evidence` of one normalisation, measured if needed."""
    prefix = f"{SUBJECT}_"
    results = out / f"{name.replace(' ', '_')}.json"
    if results.is_file():
        return read_json(results)
    anat = normalised(t1w, template, SPACE, "fast" if name == AFFINE else name, out, prefix)
    paths = {port: anat / file for port, file in anatomical_names(prefix, SPACE).items()}
    if name == AFFINE:
        paths["forward"] = affine_alone(anat, template, SPACE, prefix, out / "affine")
    numbers = evidence(paths, template, atlas)
    write_json(numbers, results)
    return numbers


def main() -> None:
    """Measure the normalisations and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("t1w", type=Path)
    parser.add_argument("templateflow", type=Path)
    parser.add_argument("atlas", type=Path, help="label image of Schaefer's atlas in MNI152NLin6Asym")
    parser.add_argument("--folder", type=Path, required=True, help="working folder; finished parts are reused")
    parser.add_argument("--only", nargs="*", choices=(AFFINE, *SETTINGS), default=(AFFINE, *SETTINGS))
    parser.add_argument("--out", type=Path, help="table (TSV)")
    options = parser.parse_args()
    template = options.folder / "template"
    stage_template(SPACE, 2.0, template, options.templateflow)
    rows = {name: measure(options.t1w, template, options.atlas, name, options.folder) for name in options.only}
    table = pd.DataFrame(rows).T.rename_axis("normalisation")
    print(f"# {date.today()}")
    print(table.to_string(float_format="%.4f"))
    if options.out:
        table.to_csv(options.out, sep="\t", float_format="%.5f")


if __name__ == "__main__":
    main()
