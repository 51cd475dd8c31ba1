"""List what happens to bad input: the cases that tests run and from which `docs/bad_input.md` is made.

`python -m tests.bad_inputs` writes the page.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bolt.config import ROOT
from bolt.io.files import write_text

PAGE = ROOT / "docs/bad_input.md"
START = """# Bad input

*For everyone whose scan was excluded or whose run stopped.*

What happens to unusable or unusual *input*, and the problem that the message names (`…`: parts that vary). The message
also names the file and says what to do. Every case is tested.

- **refused**: the run stops, before any work if possible; a problem in the scans of one fold stops its training.
- **excluded**: the scan is left out and listed in `results/<dataset>/exclusions.tsv`. With `bad_scans: refuse` in the
  configuration the run stops and lists them all in `bad_scans.tsv`; name those to leave out in the dataset's file:
  `exclude: {scan_id: [sub-01_task-rest]}`.
- **warned**: the scan is used, and listed in `results/<dataset>/warnings.tsv` and in the report.
- **used**: as said here.

Full disks, too little memory, killed jobs and two runs at once are covered in [reliability.md](reliability.md).
"""


class Case(NamedTuple):
    """One kind of bad input.

    `outcome` is excluded, warned, used or refused; `message` is the message, with ``…`` for parts that vary, or, for
    input that is used, what is done.
    """

    input: str
    outcome: str
    message: str

    @property
    def problem(self) -> str:
        """Return the message without the name of the file at its start and the remedy at its end."""
        said = re.sub(r"^…[\w.]*: |\. [A-Z].*| \(counted from 0\)", "", self.message)
        return said.removesuffix(" (…)")

    def is_said(self, text: str) -> bool:
        """Return whether a text contains the message."""
        return re.search(".*".join(map(re.escape, self.message.split("…"))), text, re.DOTALL) is not None


DATA_CASES: list[Case] = [
    # ---- downloads ----
    Case("file missing on the publisher's server", "excluded", "the server does not have it (404 Not Found)"),
    Case("file missing in a local copy of the publisher's files", "excluded", "….nii.gz: file not found"),
    Case(
        "download that breaks off repeatedly",
        "excluded",
        "download failed in … tries (the connection broke off after … bytes). Try again later",
    ),
    Case("truncated file on the publisher's server", "excluded", "….nii.gz: the file is cut off or damaged"),
    Case(
        "HTML error page instead of NIfTI",
        "excluded",
        "….nii.gz: a web page or a server's message instead of ….nii.gz",
    ),
    Case("empty file", "excluded", "….nii.gz: the file is empty"),
    Case(
        "rejected credentials",
        "refused",
        "s3://hcp-openaccess: the credentials of profile 'hcp' are refused (…). Sign in at "
        "https://db.humanconnectome.org, accept the open access terms and create AWS credentials there",
    ),
    Case("no credentials", "refused", "s3://hcp-openaccess: no usable credentials were found"),
    Case(
        "too little disk space for the downloads",
        "refused",
        "not enough disk space: what is still to be downloaded of dataset '…' needs … GB, … GB are free",
    ),
    Case(
        "disk that fills up",
        "refused",
        "no space left for …. Free some space, or move this folder or a parent to a larger disk",
    ),
    # ---- images ----
    Case("web page instead of an image on disk", "excluded", "….nii.gz: this is a web page, not an image"),
    Case("truncated image (compressed)", "excluded", "….nii.gz: the file is cut off at volume … of …"),
    Case("truncated image (uncompressed)", "excluded", "….nii: the file is cut off: … bytes of …"),
    Case(
        "image with the wrong shape",
        "excluded",
        "….nii.gz: expected a 4D image, but this one has one volume (shape …)",
    ),
    Case("scan shorter than a model needs", "excluded", "… volumes, fewer than the … that a model needs"),
    Case("scan shorter than its protocol (HCP)", "excluded", "incomplete: … of … volumes"),
    Case(
        "image whose name declares another space",
        "excluded",
        "….nii.gz: the name or sidecar declares space …, but … is requested",
    ),
    Case(
        "MNI image whose name declares no space",
        "warned",
        "….nii.gz: the name declares no space",
    ),
    Case(
        "image that may not be in the atlas's space",
        "excluded",
        "….nii.gz: neither name, sidecar nor header say that the image is in …, as the atlas is. If it is, give the "
        "space (--space …); if it is a raw scan, preprocess it first",
    ),
    Case("preprocessed image without an orientation", "excluded", "….nii.gz: neither sform nor qform is set"),
    Case(
        "preprocessed image whose sform and qform are apart",
        "excluded",
        "….nii.gz: sform and qform differ by up to 20.0 mm and 0°, so the place of the brain is unknown",
    ),
    Case("preprocessed image with volumes of zeros", "excluded", "….nii.gz: 2 of … volumes are zero everywhere"),
    Case("value that no scanner makes", "excluded", "….nii.gz: a voxel of volume 1 (counted from 0) is 1e+300"),
    Case("header that gives 10^15 voxels", "excluded", "….nii: the header gives an impossible size"),
    Case("mask with NaN", "excluded", "….nii.gz: the mask has … NaN or infinite voxels"),
    Case("no image in the requested space (fMRIPrep)", "refused", "no desc-preproc_bold images in space … (found …"),
    Case(
        "fMRIPrep output taken for raw data",
        "refused",
        "images that are preprocessed already (….nii.gz), but 'source: bids' is for raw data. Set 'source: fmriprep' "
        'if fMRIPrep made them, and state it in dataset_description.json: "GeneratedBy"',
    ),
    Case(
        "dataset_description.json that is none",
        "refused",
        "dataset_description.json: not what BIDS calls a description of a dataset",
    ),
    Case(
        "raw dataset with sourcedata/, code/, derivatives/, or files named in .bidsignore",
        "used",
        "only the other files in folders of subjects are read",
    ),
    Case("phase image beside the magnitude", "excluded", "not a magnitude image"),
    Case(
        "volumes at unequal intervals (VolumeTiming)",
        "excluded",
        "….nii.gz: volumes are not acquired at equal intervals (VolumeTiming instead of RepetitionTime)",
    ),
    Case("atlas in another space", "refused", "atlas '…' is drawn in …, but the images will be in …"),
    Case("mask on another grid", "excluded", "….nii.gz: the mask's grid … is not the image's …"),
    Case(
        "TR differing by more than 1 % between header and sidecar",
        "excluded",
        "….nii.gz: TR is … s in the header and … s in the sidecar. Correct the wrong one, or set 'tr_conflict' in "
        "the dataset's file to the one to use",
    ),
    Case(
        "TR conflict with `tr_conflict: sidecar`",
        "warned",
        "….nii.gz: TR is … s in the header and … s in the sidecar; the sidecar's is used",
    ),
    Case("no TR", "excluded", "….nii.gz: no repetition time in the header"),
    Case("TR that is not a number", "excluded", "….nii.gz: RepetitionTime is …, not a number of seconds"),
    Case("sidecar that is not JSON", "excluded", "….json: not valid JSON"),
    Case(
        "broken link to a sidecar (DataLad)",
        "excluded",
        "….json: a link to a file that is not there. Fetch it (with DataLad: `datalad get`)",
    ),
    Case("NaN volumes", "excluded", "….nii.gz: … of … volumes have no finite voxel, such as volume …"),
    Case(
        "NaN voxels",
        "warned",
        "….npy: … of … ROIs with NaN or infinite voxels, which are excluded from the mean: …",
    ),
    Case("all-zero image", "excluded", "….nii.gz: no ROI of atlas '…' is covered"),
    Case("all-zero ROI in an image", "warned", "….npy: 1 of … ROIs not covered: …"),
    Case("all-zero ROI with `uncovered: drop-scan`", "excluded", "1 ROIs not covered: …"),
    Case("subject without an image", "excluded", "the subject has no BOLD image"),
    # ---- ready series ----
    Case(
        "all-zero ROI in a ready series", "warned", "….npy: 1 of … ROIs all zero or constant (zeros after z-scoring): …"
    ),
    Case("NaN in a ready series", "excluded", "….npy: nan in row …, column …"),
    Case(
        "ready series with an index column",
        "excluded",
        "….csv: the first column counts the rows (0, 1, 2 …): an index, not an ROI. Save the table without its index",
    ),
    Case("ready series with a column name that is a number", "used", "the row is skipped if the names are 0, 1, 2 …"),
    Case("ready series without any that varies", "excluded", "….npy: no ROI varies: all are constant or NaN"),
    Case("archive named .npy", "excluded", "….npy: an archive of arrays (.npz), not one array"),
    Case(
        "several tables in one ready series",
        "excluded",
        "….csv: row … … has the numbers of the columns: a second header",
    ),
    Case("ready series that was deleted", "excluded", "….npy: file not found"),
    Case(
        "ready series with other ROI names than the atlas (CIFTI, XCP-D)",
        "excluded",
        "… named ROIs do not match the … of the atlas: the first that differs is '…', where the atlas has '…'",
    ),
    Case("CIFTI series over frequencies", "excluded", "….ptseries.nii: its series axis is in hertz, not seconds"),
    Case(
        "dense series and labels on different surfaces",
        "refused",
        "… has … vertices in the scan, but … in the atlas. Give an atlas on the same surface",
    ),
    Case("series from another atlas", "excluded", "….npy: … ROIs, but atlas '…' has …"),
    Case("transposed series", "excluded", "….npy: shape …, but atlas '…' has … ROIs: these seem to be along rows"),
    # ---- subjects and labels ----
    Case("duplicate subject", "refused", "….tsv: duplicate subjects: …. Keep one row for each"),
    Case("duplicate scan name", "refused", "duplicate scan_id: …. Rename one"),
    Case(
        "one recording under two people or labels",
        "refused",
        "… hold one recording, with the people … and the labels …. Set 'folds: duplicates' to exclude",
    ),
    Case(
        "one recording twice, with `folds: duplicates: exclude`",
        "excluded",
        "the series is the same as that of …, which is included",
    ),
    Case(
        "one recording with two labels, with `folds: duplicates: exclude`",
        "excluded",
        "the series is the same as that of …, but their labels differ",
    ),
    Case(
        "scans of a person to be joined, with different TR", "excluded", "cannot be joined with …: repetition times of"
    ),
    Case("subject with two families or sexes", "refused", "….tsv: subject … has several values of '…' (…)"),
    Case("subject without a row in the table", "excluded", "the subject has no row in ….tsv"),
    Case(
        "missing value written as NA, N/A, NaN, -, -9999 …",
        "excluded",
        "no value in label column '…'",
    ),
    Case("the numbers 1 and 1.0", "used", "are one class, site or person"),
    Case(
        "names of subjects and folders that differ in zeros",
        "used",
        "….tsv: … people are spelt differently from their folders (… for …) and are matched by number",
    ),
    Case("table that is neither UTF-8 nor UTF-16", "refused", "….tsv: not UTF-8 text (…). Save it as UTF-8"),
    Case("braces in the path of the data", "refused", "…: braces in a path, which Snakemake takes for wildcards"),
    Case(
        "braces in the path of one file",
        "excluded",
        "braces in the path of a file, which Snakemake takes for wildcards",
    ),
    Case("no label", "excluded", "no value in label column '…'"),
    Case("label outside the declared classes", "excluded", "label '…' is not one of …"),
    Case("non-numeric label where a number is expected", "excluded", "label '…' is not a number"),
    Case("declared class without a scan", "refused", "no usable scan has the label … (column '…': …)"),
    Case("table without the label column", "refused", "….tsv: column '…' is missing; found …"),
    Case("the same value of the label for everybody", "refused", "all usable scans have the same …"),
    Case("two columns of one name", "refused", "….tsv: duplicate columns: …. Rename or remove one"),
    Case("rows with more cells than the header", "refused", "….tsv: rows have more cells than the header"),
    Case("row without a name of the subject", "refused", "….tsv, row …: no participant_id"),
    Case("age that is no number", "used", "….tsv: age: 1 values count as missing, such as '…'"),
    Case(
        "column that the dataset's file does not name",
        "used",
        "….tsv: column '…' is not used; set '…'",
    ),
    # ---- results ----
    Case(
        "cache that was changed by hand",
        "refused",
        "…series.npy: it is damaged, or was changed after it was made. Delete it and run",
    ),
    Case(
        "predictions that were cut off by hand",
        "refused",
        "…predictions.tsv: it is damaged, or was changed after it was made. Delete it and run",
    ),
]
PREPROCESSING_CASES: list[Case] = [
    # ---- orientation ----
    Case(
        "neither sform nor qform", "excluded", "….nii.gz: neither sform nor qform is set, so left and right are unknown"
    ),
    Case("only a qform, or only an sform", "used", "the available one is used"),
    Case(
        "sform and qform more than a voxel apart",
        "warned",
        "….nii.gz: sform and qform differ by up to … mm and …°; the sform is used",
    ),
    Case(
        "sform and qform that disagree about left and right",
        "excluded",
        "….nii.gz: sform (…) and qform (…) disagree about the orientation of the head. Find out which is correct",
    ),
    Case("qform that is not a rotation", "warned", "….nii.gz: the qform is not a valid rotation; the sform is used"),
    Case("qform that is not a rotation, without an sform", "excluded", "….nii.gz: not a readable NIfTI image"),
    Case("all-zero affine", "excluded", "….nii.gz: the affine is singular or not finite"),
    Case("affine with shear", "excluded", "….nii.gz: the affine has shear. Resample the image"),
    Case("left-right flip declared only in the header", "used", "reoriented to RAS according to the header"),
    Case("oblique slices", "used", "axes and positions stay as in the header"),
    Case("BOLD and T1w stored in different orientations", "used", "positions are taken from the headers"),
    Case(
        "BOLD and T1w whose fields of view do not overlap",
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
    Case("T1w of a child, or of an unusually sized head", "used", "scaled by the affine registration (tested at 0.8)"),
    Case("tiny matrix (T1w)", "excluded", "….nii.gz: only … voxels: registration needs at least 20 along each axis"),
    Case("few slices (BOLD)", "excluded", "….nii.gz: only … voxels: registration needs at least 8 along each axis"),
    Case("thick slices", "warned", "….nii.gz: thick slices (voxels of … mm): check the registration"),
    Case(
        "scan with two volumes",
        "excluded",
        "….nii.gz: only 2 volumes: head motion correction, denoising and ROI series need at least 5",
    ),
    Case("T1w with a fourth axis of length 1", "used", "the axis is dropped"),
    Case("T1w with several volumes", "excluded", "….nii.gz: expected a 3D T1w image, but the shape is …"),
    # ---- voxels ----
    Case(
        "all-zero slices",
        "warned",
        "….nii.gz: 1 all-zero slice(s) in 2 of … volumes, such as slice … of axis 2 in volume 3 (counted from 0)",
    ),
    Case("all-zero slices in a T1w", "warned", "….nii.gz: 2 all-zero slice(s) in 1 of 1 volumes, such as slice …"),
    Case("empty volume", "excluded", "….nii.gz: volume 3 (counted from 0) is empty: all voxels are 0"),
    Case(
        "unsigned integers declared as signed",
        "excluded",
        "….nii.gz: values above 32767 have become negative: the header declares int16, but the voxels are uint16",
    ),
    Case(
        "signed integers declared as unsigned",
        "excluded",
        "….nii.gz: negative values have become huge: the header declares uint16, but the voxels are int16",
    ),
    Case("NaN in a T1w", "excluded", "….nii.gz: the image has … NaN or infinite voxels. Convert the image again"),
    Case("NaN in a scan", "excluded", "….nii.gz: volume 3 (counted from 0) has … NaN or infinite voxels"),
    Case(
        "truncated compressed T1w",
        "excluded",
        "….nii.gz: the file is truncated or damaged (…). Copy it again",
    ),
    Case("truncated compressed scan", "excluded", "….nii.gz: the file is cut off at volume … of …"),
    # ---- time ----
    Case(
        "RepetitionTime in milliseconds",
        "excluded",
        "….nii.gz: RepetitionTime is 2000 s, which looks like milliseconds. Write seconds (2) in the JSON sidecar",
    ),
    Case("header TR correctly declared in milliseconds", "used", "converted to seconds"),
    Case("header TR without a unit", "used", "read as seconds"),
    Case(
        "header TR without a unit, with an impossible value",
        "excluded",
        "….nii.gz: no repetition time in the header: 2000 s is not plausible. Give RepetitionTime",
    ),
]

TRAINING_CASES: list[Case] = [
    # ---- configuration ----
    Case("unknown model", "refused", "unknown model '…'. Known: …did you mean '…'"),
    Case(
        "unknown setting",
        "refused",
        "hyper.…: model '…' has no setting '…'. Known: …did you mean '…'",
    ),
    Case("setting of the wrong type", "refused", "hyper.…: '…' is …, but must be a whole number. Write …"),
    Case(
        "number that YAML reads as text",
        "refused",
        "hyper.…: '…' is '…', but must be a number. Write numbers without quotation marks, and with a point before an "
        "exponent: 1.0e-5, not 1e-5",
    ),
    Case(
        "size, or number of layers, heads or volumes, of 0",
        "refused",
        "hyper.…: '…' is 0, but must be at least 1. Set it to at least 1",
    ),
    Case("dropout of 1 or more", "refused", "hyper.…: '…' is …, but must be at least 0 and below 1"),
    Case(
        "numeric labels for a classification-only model",
        "refused",
        "model '…' needs classes, but the label is a number. Remove the model",
    ),
    # ---- scans ----
    Case(
        "class without a training scan in a fold",
        "refused",
        "fold … has no training scan of class '…'. Use fewer folds or more scans",
    ),
    Case(
        "scan shorter than the model can read",
        "excluded",
        "… volumes, fewer than the … that the model needs. Shorten the window, or exclude such scans from all models "
        "with 'quality: min_n_volumes: …'",
    ),
    Case(
        "crops shorter than the model can read",
        "refused",
        "crops of … volumes are shorter than the … that model '…' needs. Lengthen 'crop' of the dataset (and use "
        "longer scans), or shorten the model's window",
    ),
    Case(
        "NaN in a cache",
        "refused",
        "the series of scan '…' has NaN or Inf. Exclude the scan, or fix its series",
    ),
    # ---- during training ----
    Case(
        "loss or weights that are not finite",
        "refused",
        "… not finite: …, fold …, seed …, …epoch …. Lower the learning rate or set 'clip_gradient' in the model's "
        "configuration",
    ),
    Case(
        "too little memory for a batch on a CPU",
        "refused",
        "…, fold …, seed …: a batch of … scans does not fit in the computer's memory. Give the job more memory",
    ),
]


SCAN_CASES: list[Case] = [
    Case("folder without a model", "refused", "no trained model in this folder. Give …"),
    Case(
        "checkpoint of another model",
        "refused",
        "importance is defined for BolT on series alone, but '…' is not BolT with CLS tokens. Use …",
    ),
    Case(
        "model that predicts a number",
        "refused",
        "these models predict a number, but what is explained is a class. Give …",
    ),
    Case(
        "model that uses covariates",
        "refused",
        "importance is defined for BolT on series alone, but '…' reads covariates as well as series. Use …",
    ),
    Case(
        "weights not in safetensors format",
        "refused",
        "not a readable checkpoint, or its weights do not fit checkpoint.json: …",
    ),
    Case(
        "series with another number of ROIs",
        "refused",
        "… ROIs, but this model reads …. Make series with the atlas that the model was trained with",
    ),
    Case(
        "transposed series of one scan",
        "refused",
        "… ROIs, but this model reads …. Transpose the array: rows must be volumes, columns ROIs",
    ),
    Case(
        "scan shorter than the model's window",
        "refused",
        "… volumes, but this model needs at least …. Give a longer scan, or a model with a shorter window",
    ),
    Case(
        "single NaN in the series of one scan",
        "refused",
        "nan in row …, column … (counted from 0). Only whole columns may be NaN (uncovered ROIs)",
    ),
    Case(
        "constant series",
        "refused",
        "no ROI varies: all are constant or NaN. Give the BOLD series of a scan, not a mean or an empty file",
    ),
    Case(
        "atlas that lacks an ROI of the model",
        "refused",
        "the model was trained on an ROI with the value …, which atlas '…' lacks. Give the atlas that the model was "
        "trained with, or none: ROIs are then named by their values",
    ),
    Case(
        "series from another atlas by their JSON file",
        "refused",
        "these series are of atlas '…', but the model was trained on '…'. Make series with '…'",
    ),
    Case(
        "unknown class",
        "refused",
        "--class …: the model has no such class. Its classes: …(did you mean '…'?)",
    ),
    Case(
        "events without a repetition time",
        "refused",
        "--events needs the repetition time. Give it in seconds, such as --tr 2",
    ),
    Case("repetition time of 0", "refused", "--tr 0: a repetition time is positive. Give seconds, such as --tr 2"),
    Case("no landmarks", "refused", "--tokens 0: no landmarks. Give 1 or more, such as 5"),
    Case(
        "image in place of series",
        "refused",
        "an image, but what is explained are ROI series. Make its series first: bolt parcellate …",
    ),
    Case("missing series", "refused", "file not found. Correct the path"),
]


def render() -> str:
    """Return the text of the page."""
    sections = (
        ("Data", DATA_CASES),
        ("Preprocessing", PREPROCESSING_CASES),
        ("Training", TRAINING_CASES),
        ("One scan from the command line (`bolt explain`)", SCAN_CASES),
    )
    return START + "".join(f"\n## {title}\n\n{_list(cases)}" for title, cases in sections)


def _list(cases: list[Case]) -> str:
    """Return the cases as Markdown lists by outcome, without names of files and remedies, which every message has."""
    lists = []
    for outcome in ("refused", "excluded", "warned", "used"):
        items = [f"- *{case.input}*: {case.problem}" for case in cases if case.outcome == outcome]
        lists += ["\n".join([f"**{outcome.capitalize()}**", "", *items]) + "\n"] if items else []
    return "\n".join(lists)


if __name__ == "__main__":
    write_text(render(), PAGE)
