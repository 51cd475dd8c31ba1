"""What becomes of bad input: the lists that tests go through, and of which `docs/bad_input.md` is made.

`python -m tests.bad_inputs` writes the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from bolt.config import ROOT
from bolt.io.files import write_text

PAGE = ROOT / "docs/bad_input.md"
START = """# Bad input

What becomes of input that cannot be used, and what is then said. Each line below is tested; `…` stands for what
depends on the case.

- **excluded**: the scan is left out, and stands with stage, reason and remedy in `results/<dataset>/exclusions.tsv`;
  the others go on. With `bad_scans: refuse` in the configuration the run stops instead, and lists all of them in
  `results/<dataset>/bad_scans.tsv`. To go on without some, name them in the dataset's file:
  `exclude: {scan_id: [sub-01_task-rest]}`.
- **warned**: the scan is used, and named in `results/<dataset>/warnings.tsv` and in the report.
- **used**: as any other; what the last column says is done to it, and tested.
- **refused**: the run stops, before any work where the input can be seen before work. What only the scans of a fold
  show ends the training of that fold.

Full disks, short memory, kills and two runs at once are no bad input: [reliability.md](reliability.md).
"""


class Case(NamedTuple):
    """One kind of bad input.

    `outcome` is excluded, warned, used or refused; `message` is what is said, with ``…`` for what depends on the case,
    or, of what is used, what is done.
    """

    input: str
    outcome: str
    message: str

    def is_said(self, text: str) -> bool:
        """Whether a text has the message in it."""
        return re.search(".*".join(map(re.escape, self.message.split("…"))), text, re.DOTALL) is not None


DATA_CASES: list[Case] = [
    # ---- downloads ----
    Case("a file that its publisher does not have", "excluded", "the server does not have it (404 Not Found)"),
    Case("a file that a folder in place of the publisher lacks", "excluded", "….nii.gz: the file is not there"),
    Case(
        "a download that breaks off again and again",
        "excluded",
        "download failed in … tries (the connection broke off after … of … bytes). Try again later",
    ),
    Case("a file cut off at its publisher", "excluded", "….nii.gz: the file is cut off or damaged"),
    Case(
        "an HTML error page in place of NIfTI",
        "excluded",
        "….nii.gz: a web page or a server's message in place of ….nii.gz",
    ),
    Case("a file without a byte", "excluded", "….nii.gz: the file is empty"),
    Case(
        "credentials that are refused",
        "refused",
        "s3://hcp-openaccess: the credentials of profile 'hcp' are refused (…). Sign in at "
        "https://db.humanconnectome.org, accept the open access terms and create AWS credentials there",
    ),
    Case("no credentials", "refused", "s3://hcp-openaccess: no usable credentials were found"),
    Case(
        "too little room on disk for what is to be downloaded",
        "refused",
        "too little room: what is still to be downloaded of dataset '…' needs … GB, … GB are free",
    ),
    Case(
        "a disk that fills up",
        "refused",
        "no room left for …. Free space, or move this folder or one above it to a larger disk and link it in its place",
    ),
    # ---- images ----
    Case("a web page that lies where an image should", "excluded", "….nii.gz: this is a web page, not an image"),
    Case("an image cut off (compressed)", "excluded", "….nii.gz: the file is cut off at volume … of …"),
    Case("an image cut off (not compressed)", "excluded", "….nii: the file is cut off: … bytes of …"),
    Case(
        "an image of the wrong shape",
        "excluded",
        "….nii.gz: a 4D image is due, but this one has one volume (shape …)",
    ),
    Case("a scan shorter than a model needs", "excluded", "… volumes, fewer than the … that a model needs"),
    Case("a scan that its protocol says is longer (HCP)", "excluded", "incomplete: … of … volumes"),
    Case(
        "an image whose name declares another space",
        "excluded",
        "….nii.gz: the name declares space …, but … is requested",
    ),
    Case("an image whose name declares no space", "warned", "….nii.gz: the name declares no space"),
    Case("no image in the space asked for (fMRIPrep)", "refused", "no desc-preproc_bold images in space … (found"),
    Case(
        "fMRIPrep output that does not say what made it",
        "refused",
        "dataset_description.json: it does not say what made these images",
    ),
    Case("an atlas in another space", "refused", "atlas '…' is drawn in …, but the images will be in …"),
    Case("a mask on another grid", "excluded", "….nii.gz: the mask's grid … is not the image's …"),
    Case(
        "TR that differs between header and sidecar by more than 1 %",
        "excluded",
        "….nii.gz: TR is … s in the header and … s in the sidecar. Correct the wrong one, or say with 'tr_conflict' in "
        "the dataset's file which to believe",
    ),
    Case(
        "the same, with `tr_conflict: sidecar`",
        "warned",
        "….nii.gz: TR is … s in the header and … s in the sidecar; the sidecar's is used",
    ),
    Case("no TR at all", "excluded", "….nii.gz: no repetition time in the header"),
    Case("TR that is no number", "excluded", "….nii.gz: RepetitionTime is …, not a number of seconds"),
    Case("a sidecar that is not JSON", "excluded", "….json: not readable as JSON"),
    Case("NaN volumes", "excluded", "….nii.gz: … of … volumes have no finite voxel, such as volume …"),
    Case(
        "NaN voxels",
        "warned",
        "….npy: … of … ROIs with NaN or infinite voxels, which are excluded from the mean: …",
    ),
    Case("an image of zeros", "excluded", "….nii.gz: no ROI of atlas '…' is covered"),
    Case("an all-zero ROI in an image", "warned", "….npy: 1 of … ROIs not covered: …"),
    Case("the same, with `uncovered: drop-scan`", "excluded", "1 ROIs not covered: …"),
    Case("a subject without an image", "excluded", "the subject has no BOLD image"),
    # ---- ready series ----
    Case(
        "an all-zero ROI in a ready series",
        "warned",
        "….npy: 1 of … ROIs all zero or constant (zeros after z-scoring): …",
    ),
    Case("NaN in a ready series", "excluded", "….npy: nan in row …, column …"),
    Case("a series of another atlas", "excluded", "….npy: … ROIs, but atlas '…' has …"),
    Case(
        "a series that lies the other way round", "excluded", "….npy: shape …: ROIs along rows and time along columns"
    ),
    # ---- subjects and labels ----
    Case("a subject that stands twice", "refused", "….tsv: subjects stand twice: …. Keep one row for each"),
    Case("two scans of one name", "refused", "scan names stand twice: …. Rename one"),
    Case(
        "a recording under two names, on two sides of a split",
        "refused",
        "'… and …' is in … and … of fold …",
    ),
    Case("a person with two families or sexes", "refused", "….tsv: subject … has several values of '…' (…)"),
    Case("a subject without a row in the table", "excluded", "the subject has no row in ….tsv"),
    Case("no label", "excluded", "no value in label column '…'"),
    Case("a label outside the declared set", "excluded", "label '…' is not one of …"),
    Case("a label that is no number, where one is due", "excluded", "label '…' is no number"),
    Case("a class of the declared set that nobody has", "refused", "no usable scan has the label … (column '…': …)"),
    Case("a table without the label's column", "refused", "….tsv: column '…' is missing; found …"),
]
PREPROCESSING_CASES: list[Case] = [
    # ---- where the head lies ----
    Case(
        "neither sform nor qform", "excluded", "….nii.gz: neither sform nor qform is set, so left and right are unknown"
    ),
    Case("only a qform, or only an sform", "used", "the one there is"),
    Case(
        "sform and qform more than a voxel apart",
        "warned",
        "….nii.gz: sform and qform differ by up to … mm and …°; the sform is used",
    ),
    Case(
        "sform and qform that differ about left and right",
        "excluded",
        "….nii.gz: sform (…) and qform (…) disagree about the orientation of the head. Find out which is correct",
    ),
    Case("a qform that is no rotation", "warned", "….nii.gz: the qform is not a valid rotation; the sform is used"),
    Case("the same, and no sform", "excluded", "….nii.gz: not a readable NIfTI image"),
    Case("an affine of zeros", "excluded", "….nii.gz: the affine maps voxels to no place in space"),
    Case("an affine that shears", "excluded", "….nii.gz: the affine has shear. Resample the image"),
    Case("a left-right flip that only the header declares", "used", "voxels are put in RAS order as the header says"),
    Case("oblique slices", "used", "directions are kept; every place stays where the header says"),
    Case("BOLD stored in another orientation than the T1w", "used", "both are read where their headers place them"),
    Case(
        "BOLD and T1w whose fields do not overlap",
        "warned",
        "….nii.gz: according to their headers, T1w and BOLD do not overlap (centres … mm apart); they will be aligned "
        "by their centres of mass: check the coregistration",
    ),
    # ---- sizes ----
    Case(
        "voxel sizes in metres",
        "excluded",
        "….nii.gz: a field of view of … mm does not fit a human head. Correct the voxel sizes in the header",
    ),
    Case("a T1w of a child, or of a head of another size", "used", "the affine registration scales it (tested at 0.8)"),
    Case("a tiny matrix (T1w)", "excluded", "….nii.gz: only … voxels: registration needs at least 20 along each axis"),
    Case("a few slices (BOLD)", "excluded", "….nii.gz: only … voxels: registration needs at least 8 along each axis"),
    Case("thick slices", "warned", "….nii.gz: thick slices (voxels of … mm): check the registration"),
    Case(
        "a scan of two volumes",
        "excluded",
        "….nii.gz: only 2 volumes: head motion correction, denoising and ROI series need at least 5",
    ),
    Case("a T1w with a fourth axis of length 1", "used", "the axis is dropped"),
    Case("a T1w with several volumes", "excluded", "….nii.gz: expected a 3D T1w image, but the shape is …"),
    # ---- voxels ----
    Case(
        "all-zero slices",
        "warned",
        "….nii.gz: 1 all-zero slice(s) in 2 of … volumes, such as slice … of axis 2 in volume 3 (counted from 0)",
    ),
    Case("all-zero slices of a T1w", "warned", "….nii.gz: 2 all-zero slice(s) in 1 of 1 volumes, such as slice …"),
    Case("an empty volume", "excluded", "….nii.gz: volume 3 (counted from 0) is empty: all voxels are 0"),
    Case(
        "unsigned integers declared signed",
        "excluded",
        "….nii.gz: values above 32767 have become negative: the header declares int16, but the voxels are uint16",
    ),
    Case(
        "signed integers declared unsigned",
        "excluded",
        "….nii.gz: negative values have become huge: the header declares uint16, but the voxels are int16",
    ),
    Case("NaN in a T1w", "excluded", "….nii.gz: the image has … NaN or infinite voxels. Convert the image again"),
    Case("NaN in a scan", "excluded", "….nii.gz: volume 3 (counted from 0) has … NaN or infinite voxels"),
    Case(
        "a T1w whose compressed file is cut off",
        "excluded",
        "….nii.gz: the file is truncated or damaged (…). Copy it again",
    ),
    Case("a scan whose compressed file is cut off", "excluded", "….nii.gz: the file is cut off at volume … of …"),
    # ---- time ----
    Case(
        "RepetitionTime in milliseconds",
        "excluded",
        "….nii.gz: RepetitionTime is 2000 s, which looks like milliseconds. Write seconds (2) in the JSON sidecar",
    ),
    Case("a header that says milliseconds, and means them", "used", "converted to seconds"),
    Case("a header with a TR and no unit", "used", "taken as seconds"),
    Case(
        "the same, where that cannot be",
        "excluded",
        "….nii.gz: no repetition time in the header: it says 2000, which is no number of seconds. Give RepetitionTime",
    ),
]

TRAINING_CASES: list[Case] = [
    # ---- configuration ----
    Case("a model that does not exist", "refused", "unknown model '…'. Known: …did you mean '…'"),
    Case(
        "a setting that the model does not have",
        "refused",
        "hyper.…: model '…' has no setting '…'. Known: …did you mean '…'",
    ),
    Case("a setting of the wrong type", "refused", "hyper.…: '…' is …, but must be a whole number. Write …"),
    Case(
        "a number that YAML reads as text",
        "refused",
        "hyper.…: '…' is '…', but must be a number. Write numbers without quotation marks, and with a point before an "
        "exponent: 1.0e-5, not 1e-5",
    ),
    Case(
        "a size or a number of layers, heads or volumes of 0",
        "refused",
        "hyper.…: '…' is 0, but must be at least 1. Set it to at least 1",
    ),
    Case("a dropout of 1 or more", "refused", "hyper.…: '…' is …, but must be at least 0 and below 1"),
    Case(
        "numbers as labels, for a model of classes alone",
        "refused",
        "model '…' needs classes, but the label is a number. Leave the model out",
    ),
    # ---- scans ----
    Case(
        "a class without a training scan in a fold",
        "refused",
        "fold … has no training scan of class '…'. Use fewer folds or more scans",
    ),
    Case(
        "a scan shorter than the model can read",
        "excluded",
        "… volumes, fewer than the … that the model needs: shorten the window, or leave such scans out of all models "
        "with 'quality: min_n_volumes: …'",
    ),
    Case(
        "crops shorter than the model can read",
        "refused",
        "crops of … volumes are shorter than the … that model '…' needs. Lengthen 'crop' of the dataset (and take "
        "longer scans), or shorten the window of the model",
    ),
    Case(
        "NaN in a cache of series",
        "refused",
        "the series of scan '…' has NaN or Inf. Exclude the scan, or fix its series",
    ),
    # ---- while it learns ----
    Case(
        "a loss or weights that are not finite",
        "refused",
        "… not finite: …, fold …, seed …, …epoch …. Lower the learning rate or set 'clip_gradient' in the model's "
        "configuration",
    ),
    Case(
        "too little memory for a batch, on a CPU",
        "refused",
        "the computer's memory does not hold a batch of … scans: …, fold …, seed …. Give the job more memory",
    ),
]


SCAN_CASES: list[Case] = [
    Case("a folder without a checkpoint", "refused", "no checkpoint in this folder. Give …"),
    Case(
        "the checkpoint of another model",
        "refused",
        "importance weights are defined for BolT, not for '…'. Give the checkpoint of a BolT that learned classes from "
        "series alone",
    ),
    Case(
        "a model that predicts a number",
        "refused",
        "this model predicts a number; one scan is explained for a class. Give …",
    ),
    Case(
        "a model that reads covariates",
        "refused",
        "this model reads covariates beside the series, which Algorithm 1 does not follow. Give …",
    ),
    Case(
        "weights that are no safetensors",
        "refused",
        "not a readable checkpoint, or its weights do not fit checkpoint.json: …",
    ),
    Case(
        "series with another number of ROIs",
        "refused",
        "… ROIs, but this model reads …. Make series with the atlas that the model was trained with",
    ),
    Case(
        "series with time along columns, for one scan",
        "refused",
        "… ROIs, but this model reads …. Transpose the array, it seems: a row a volume, a column an ROI",
    ),
    Case(
        "a scan shorter than the model's window",
        "refused",
        "… volumes, fewer than the … that this model reads at least. Give a longer scan, or a model with a shorter "
        "window",
    ),
    Case(
        "single NaN in the series of one scan",
        "refused",
        "nan in row …, column … (counted from 0). Only whole columns may be NaN (ROIs that are not covered)",
    ),
    Case(
        "series that do not change",
        "refused",
        "no ROI changes over time. Give the BOLD series of a scan, not a mean or an empty file",
    ),
    Case(
        "an atlas without an ROI of the model",
        "refused",
        "the model learned from an ROI with the value …, which atlas '…' lacks. Give the atlas that the model was "
        "trained with, or none: then ROIs go by their values",
    ),
    Case(
        "series of another atlas, by the JSON file beside them",
        "refused",
        "these series are of atlas '…', the model learned from '…'. Make series with '…'",
    ),
    Case(
        "a class that the model does not know",
        "refused",
        "--class …: the model has no such class. Its classes: …(did you mean '…'?)",
    ),
    Case(
        "events without a repetition time",
        "refused",
        "--events needs the repetition time. Give it in seconds, such as --tr 2",
    ),
    Case("a repetition time of 0", "refused", "--tr 0 is no repetition time. Give seconds, such as --tr 2"),
    Case("no landmarks", "refused", "--tokens 0: no landmark. Give 1 or more, such as 5"),
    Case("no place for the results", "refused", "one scan needs --series and --out. As in: bolt explain …"),
    Case("series that are not there", "refused", "file not found. Correct the path"),
]


def render() -> str:
    """The page."""
    sections = (
        ("Data", DATA_CASES),
        ("Preprocessing", PREPROCESSING_CASES),
        ("Training", TRAINING_CASES),
        ("One scan by hand (`bolt explain --checkpoint`)", SCAN_CASES),
    )
    return START + "".join(f"\n## {title}\n\n{_table(cases)}" for title, cases in sections)


def _table(cases: Iterable[Case]) -> str:
    rows = [f"| {case.input} | {case.outcome} | {case.message.replace('|', chr(92) + '|')} |" for case in cases]
    return "\n".join(["| input | outcome | message |", "| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    write_text(render(), PAGE)
