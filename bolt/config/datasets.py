"""Keys of a dataset: `config/datasets/<name>.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from bolt.config.keys import Keys, Seed, different
from bolt.io.names import Name
from bolt.io.people import is_missing, plain_number

PaperDataset = Literal["hcp_rest", "hcp_task", "abide1"]
"""Datasets of the paper, as its tables in `config/experiments/paper` name them."""
BidsValue = str | int
"""Value of an entity in the names of BIDS files."""
Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class Simulate(Keys):
    """Size and difficulty of the phantom; `config/datasets/phantom.yaml` explains the keys and their units."""

    n_subjects: int = Field(24, ge=2, description="subjects, half of each class")
    seed: Seed = Field(0, description="random seed")
    t1w_resolution: float = Field(2.5, gt=0, description="voxel size of the T1w, mm")
    bold_resolution: Pair = Field([5.5, 6.0], description="voxel size of the BOLD at each site, mm")
    slice_thickness: float | None = Field(None, gt=0, description="mm; null: as the other edges of the voxels")
    field_height: float = Field(180.0, ge=40, description="acquired field from top to bottom, mm")
    distortion_mm: float = Field(0.0, ge=0, le=15, description="largest susceptibility distortion, mm")
    sbref: bool = Field(False, description="whether there are single-band references")
    tr: Pair = Field([2.0, 2.2], description="repetition time at each site, s")
    n_volumes: Annotated[list[int], Field(min_length=2, max_length=2)] = Field(
        [104, 96], description="volumes at each site"
    )
    gain: Pair = Field([1.0, 1.3], description="intensity scale at each site")
    warp_mm: float = Field(5.0, ge=0, le=5.3, description="above 5.3 mm a deformation could fold")
    motion_fd: float = Field(0.2, ge=0, description="mean framewise displacement of a scan, mm")
    jerks: int = Field(3, ge=0, description="sudden movements of 1 to 2 mm per scan")
    spin_history_percent: float = Field(
        0.0, ge=0, description="intensity change per mm that tissue moves across slices"
    )
    physiology_percent: float = Field(0.0, ge=0, description="sd of slow fluctuations in white matter and CSF")
    tsnr: Pair = Field([40.0, 70.0], description="range of the scans' temporal SNR")
    signal_percent: float = Field(2.0, ge=0, description="BOLD change in grey matter per sd of the background")
    n_informative: int = Field(30, ge=2, le=34, description="the default network has 34 regions")
    n_events: int = Field(5, ge=1, description="events that distinguish the classes, per scan")
    event_seconds: Pair = Field([4.0, 6.0], description="duration of an event, shortest and longest")
    event_amplitude: float = Field(4.0, ge=0, description="peak of the response, in sd of the background")


class Range(Keys):
    """Accepted values of a measure of the demo; the report marks others in red."""

    low: float | None = Field(None, description="lowest value as expected; null: no bound")
    high: float | None = Field(None, description="highest value as expected; null: no bound")


class Abide(Keys):
    """Which derivatives of ABIDE-I are fetched from the Preprocessed Connectomes Project, and from where."""

    base: str = Field(
        "https://s3.amazonaws.com/fcp-indi/data/Projects/ABIDE_Initiative",
        description="URL or local folder with the project's layout",
    )
    phenotypes: Name = Field("Phenotypic_V1_0b_preprocessed1.csv", description="table of subjects in `base`")
    pipeline: Literal["ccs", "cpac", "dparsf", "niak"] = Field("cpac", description="preprocessing pipeline")
    strategy: Literal["nofilt_noglobal", "nofilt_global", "filt_noglobal", "filt_global"] = Field(
        "nofilt_noglobal", description="with or without band-pass filter and global signal regression"
    )
    derivative: str = Field(
        "rois_cc200",
        pattern="^(rois_[a-z0-9]+|func_preproc)$",
        description="ready ROI series of an atlas, or func_preproc: images",
    )

    @property
    def ready_series(self) -> bool:
        """Return whether the derivative is ROI series, not images."""
        return self.derivative.startswith("rois_")


class Bucket(Keys):
    """An S3 bucket; boto3 finds the credentials (environment, ``~/.aws``), which never belong in a configuration."""

    name: str = Field("hcp-openaccess", description="name of the S3 bucket")
    prefix: str = Field("HCP_1200", description="folder with the subjects")
    profile: str | None = Field(None, description="section of ~/.aws/credentials; null: boto3's default")
    endpoint: str | None = Field(None, description="URL of an S3 service other than Amazon's")


class Hcp(Keys):
    """Where HCP's files come from."""

    bucket: Bucket | None = Field(Bucket(), description="null: `path` is a local copy with the same layout")
    restricted_table: Path | None = Field(None, description="joined to `subjects_table`; adds Family_ID and Age_in_Yrs")


class Published(Keys):
    """The cohort that a publication reports, compared with the one found here."""

    scans: int | None = Field(None, description="number of scans")
    label: dict[str, int] = Field({}, description="subjects of each class")
    sex: dict[str, int] = Field({}, description="subjects of each sex")


class Dataset(Keys):
    """The scans of one study: `config/datasets/<name>.yaml`."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: Name = Field(description="set by the file's name")
    source: Literal["phantom", "bids", "fmriprep", "series", "bids_series", "abide", "hcp"] = Field(
        description="where the scans come from"
    )
    description: str = Field("", description="one sentence for the report")
    path: Path = Field(
        Path(),
        description="dataset folder (bids, fmriprep, bids_series, phantom) or table of scans (series); "
        "not for downloaded sources",
    )
    label: str | None = Field(
        description="column of participants.tsv (or of the table of series) to predict; null: nothing, series alone"
    )
    classes: Annotated[list[str], Field(min_length=2)] | None = Field(
        None, description="values of the label; the last is the positive class; null: the label is a number"
    )
    subjects_table: Path | None = Field(None, description="default: participants.tsv in `bids`, if set, else in `path`")
    bids: Path | None = Field(
        None, description="for fMRIPrep output: the raw BIDS folder, which has the events of tasks and participants.tsv"
    )
    group: str | None = Field(None, description="column that names the family; default: the subject")
    site: str | None = Field(None, description="column with the site or scanner")
    institutions: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(
        {}, description="institution to the sites (values of the column `site`) that are samples of it and count as one"
    )
    age: str | None = Field(None, description="column with the age in years")
    sex: str | None = Field(None, description="column with the sex")
    bids_filter: dict[Literal["t1w", "bold"], dict[str, BidsValue | list[BidsValue]]] = Field(
        {}, description="for raw BIDS: entities of the T1w and BOLD images to use, as in {t1w: {acquisition: mprage}}"
    )
    tasks: list[str] | None = Field(None, description="tasks to use; null: all")
    sessions: list[str] | None = Field(None, description="sessions to use; null: all")
    runs: list[str] | None = Field(None, description="runs to use; null: all")
    join_scans: Literal["none", "session", "subject"] = Field(
        "none", description="concatenate the z-scored series of a subject's scans: of one session, or of all"
    )
    tr: float | None = Field(None, ge=0.05, le=30, description="seconds, if the files do not state it (series)")
    resolution: str | None = Field(
        None, description="for fMRIPrep output in several resolutions: value of `res-` in the file names; null: by rule"
    )
    entities: dict[str, str] = Field(
        {}, description="for bids_series: entities in the file names that select the series, such as seg or space"
    )
    tr_conflict: Literal["exclude", "sidecar", "header"] = Field(
        "exclude", description="what to do with a scan whose sidecar (or `tr`) and header differ by more than 1 %"
    )
    crop: int = Field(100, ge=1, description="volumes of a random training crop")
    simulate: Simulate | None = Field(None, description="for the phantom: what is simulated")
    abide: Abide = Field(Abide(), description="for ABIDE-I: which derivatives, and from where")
    hcp: Hcp = Field(Hcp(), description="for HCP: where the images are")
    include: dict[str, list[str]] = Field({}, description="column of the subjects table to included values")
    exclude: dict[str, list[str]] = Field({}, description="column of the subjects table to excluded values")
    paper: PaperDataset | None = Field(
        None, description="which of the paper's datasets this is, whose results tables show beside those found here"
    )
    published: Published | None = Field(None, description="counts of a published cohort, shown beside those found")
    red: str | None = Field(
        None, description="of two classes, the one drawn in red, the other in blue; default: the positive"
    )
    expected: dict[str, Range] = Field({}, description="for the phantom: ranges of the truth table's measures")

    @property
    def coloured(self) -> list[str]:
        """Return the classes in the order of their colours in figures: of two, the red one and the blue one."""
        classes = self.classes or []
        return classes[::-1] if len(classes) == 2 and self.red != classes[0] else classes

    @property
    def downloaded(self) -> bool:
        """Return whether the workflow downloads the scans."""
        return self.source == "abide" or (self.source == "hcp" and self.hcp.bucket is not None)

    @property
    def has_tasks(self) -> bool:
        """Return whether scans may have tables of events."""
        if self.source == "fmriprep":
            return self.bids is not None and self.tasks != ["rest"]
        return self.source == "bids" or (self.source == "hcp" and self.tasks != ["REST"])

    @property
    def where(self) -> str:
        """Return the place that an error about the whole dataset names."""
        if self.source == "hcp" and self.hcp.bucket is not None:
            return f"s3://{self.hcp.bucket.name}/{self.hcp.bucket.prefix}"
        return self.abide.base if self.downloaded else str(self.path)

    @property
    def participants(self) -> Path:
        """Return the table of subjects of a BIDS dataset or its derivatives."""
        return self.subjects_table or (self.bids or self.path) / "participants.tsv"

    @property
    def without_table(self) -> bool:
        """Return whether a BIDS dataset or its derivatives lack a table of subjects, and need none to make series."""
        of_bids = self.source in ("bids", "fmriprep", "bids_series") and self.subjects_table is None
        return of_bids and self.label is None and not self.participants.is_file()

    @property
    def ready_series(self) -> bool:
        """Return whether the source provides ROI series, so that no image is read."""
        return self.source in ("series", "bids_series") or (self.source == "abide" and self.abide.ready_series)

    @field_validator("classes")
    @classmethod
    def _classes_as_in_tables(cls, classes: list[str] | None) -> list[str] | None:
        for name in classes or ():
            if is_missing(name):
                raise ValueError(f"'{name}' counts as a missing value in tables, so it cannot be a class")
        return classes and different([plain_number(name) for name in classes])

    @model_validator(mode="after")
    def _fits_together(self) -> Dataset:
        if self.red is not None and (self.classes is None or len(self.classes) != 2 or self.red not in self.classes):
            raise ValueError(f"'red' must be one of two classes, not '{self.red}'")
        if self.institutions and self.site is None:
            raise ValueError("'institutions' needs sites: name their column ('site')")
        listed = [name for names in self.institutions.values() for name in names]
        if repeated := sorted({name for name in listed if listed.count(name) > 1}):
            raise ValueError(f"'institutions' lists {', '.join(repeated)} twice")
        if not self.downloaded and self.path == Path():
            raise ValueError("key 'path' is missing")
        if self.bids is not None and self.source != "fmriprep":
            raise ValueError("'bids' is for fMRIPrep output (source: fmriprep)")
        if self.bids_filter and self.source != "bids":
            raise ValueError("'bids_filter' is for raw BIDS data (source: bids)")
        return self
