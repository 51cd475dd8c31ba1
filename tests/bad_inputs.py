"""What becomes of bad input: the lists that tests go through, and of which `docs/bad_input.md` is made.

`python -m tests.bad_inputs` writes the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from bolt.config import ROOT
from bolt.files import write_text

PAGE = ROOT / "docs/bad_input.md"
START = """# Bad input

What becomes of input that cannot be used, and what is then said. Each line below is tested; `…` stands for what
depends on the case.

- **excluded**: the scan is left out, and stands with stage, reason and remedy in `results/<dataset>/exclusions.tsv`;
  the others go on. With `bad_scans: refuse` in the configuration the run stops instead, and lists all of them in
  `results/<dataset>/bad_scans.tsv`. To go on without some, name them in the dataset's file:
  `exclude: {scan_id: [sub-01_task-rest]}`.
- **warned**: the scan is used, and named in `results/<dataset>/warnings.tsv` and in the report.
- **refused**: the run stops, before any work where the input can be seen before work.
"""


class Case(NamedTuple):
    """One kind of bad input.

    `outcome` is excluded, warned or refused; `message` is what is said, with ``…`` for what depends on the case.
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
    Case("a disk that fills up", "refused", "no room left for …. Free space, or set 'paths: work' to another disk"),
    # ---- images ----
    Case("a web page that lies where an image should", "excluded", "….nii.gz: this is a web page, not an image"),
    Case("an image cut off (compressed)", "excluded", "….nii.gz: the file is cut off at volume … of …"),
    Case("an image cut off (not compressed)", "excluded", "….nii: the file is cut off: … bytes of …"),
    Case(
        "an image of the wrong shape",
        "excluded",
        "….nii.gz: a 4D image is due, but this one has one volume (shape …)",
    ),
    Case("a scan shorter than a model's window", "excluded", "… volumes, but a model's window needs …"),
    Case("a scan that its protocol says is longer (HCP)", "excluded", "incomplete: … of … volumes"),
    Case(
        "an image whose name declares another space",
        "excluded",
        "….nii.gz: the name declares space …, but … is asked for",
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
    Case("NaN volumes", "excluded", "….nii.gz: … of … volumes hold no finite voxel, such as volume …"),
    Case(
        "NaN voxels",
        "warned",
        "….npy: … of … ROIs with voxels that are NaN or infinite, left out of the mean: …",
    ),
    Case("an image of zeros", "excluded", "….nii.gz: no ROI of atlas '…' is covered"),
    Case("an all-zero ROI in an image", "warned", "….npy: 1 of … ROIs not covered: …"),
    Case("the same, with `uncovered: drop-scan`", "excluded", "1 ROIs not covered: …"),
    Case("a subject without an image", "excluded", "the subject has no BOLD image"),
    # ---- ready series ----
    Case(
        "an all-zero ROI in a ready series", "warned", "….npy: 1 of … ROIs all zero or constant: zeros once z-scored: …"
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
PREPROCESSING_CASES: list[Case] = []


def render() -> str:
    """The page."""
    sections = (("Data", DATA_CASES), ("Preprocessing", PREPROCESSING_CASES))
    return START + "".join(f"\n## {title}\n\n{_table(cases)}" for title, cases in sections)


def _table(cases: Iterable[Case]) -> str:
    rows = [f"| {case.input} | {case.outcome} | {case.message.replace('|', chr(92) + '|')} |" for case in cases]
    return "\n".join(["| input | outcome | message |", "| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    write_text(render(), PAGE)
