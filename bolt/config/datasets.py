"""Keys of a dataset: `config/datasets/<name>.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from bolt.config.keys import Keys
from bolt.io.names import Name

Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class Simulate(Keys):
    """Size and difficulty of the phantom; meanings and units stand in `config/datasets/phantom.yaml`."""

    n_subjects: int = Field(24, ge=2)
    seed: int = Field(0, ge=0)
    t1w_resolution: float = Field(2.0, gt=0)
    bold_resolution: Pair = [5.5, 6.0]
    tr: Pair = [2.0, 2.2]
    n_volumes: Annotated[list[int], Field(min_length=2, max_length=2)] = [104, 96]
    gain: Pair = [1.0, 1.3]
    warp_mm: float = Field(5.0, ge=0, le=5.3, description="above 5.3 a deformation could fold")
    motion_fd: float = Field(0.2, ge=0)
    jerks: int = Field(3, ge=0)
    spin_history_percent: float = Field(0.0, ge=0)
    physiology_percent: float = Field(0.0, ge=0)
    tsnr: Pair = [40.0, 70.0]
    signal_percent: float = Field(2.0, ge=0)
    n_informative: int = Field(30, ge=2, le=34, description="the default network has 34 regions")
    n_events: int = Field(4, ge=1)
    event_seconds: Pair = [4.0, 6.0]
    event_amplitude: float = Field(3.0, ge=0)


class Range(Keys):
    """Where a measure of the demo must lie; outside the report turns red."""

    low: float | None = None
    high: float | None = None


class Abide(Keys):
    """What is taken of ABIDE-I as the Preprocessed Connectomes Project published it, and from where."""

    base: str = Field(
        "https://s3.amazonaws.com/fcp-indi/data/Projects/ABIDE_Initiative",
        description="address or folder with the project's layout",
    )
    phenotypes: Name = Field("Phenotypic_V1_0b_preprocessed1.csv", description="table of subjects below `base`")
    pipeline: Literal["ccs", "cpac", "dparsf", "niak"] = "cpac"
    strategy: Literal["nofilt_noglobal", "nofilt_global", "filt_noglobal", "filt_global"] = "nofilt_noglobal"
    derivative: str = Field("rois_cc200", pattern="^(rois_[a-z0-9]+|func_preproc)$")

    @property
    def ready_series(self) -> bool:
        return self.derivative.startswith("rois_")


class Bucket(Keys):
    """An S3 bucket. Credentials are found by boto3 (environment, ``~/.aws``), and never stand in a configuration."""

    name: str = "hcp-openaccess"
    prefix: str = Field("HCP_1200", description="folder of the subjects")
    profile: str | None = Field(None, description="section of ~/.aws/credentials; null: boto3's usual order")
    endpoint: str | None = Field(None, description="address of another S3 service than Amazon's")


class Hcp(Keys):
    """Where HCP's files come from."""

    bucket: Bucket | None = Field(Bucket(), description="null: the dataset's `path` is a local copy of the layout")
    restricted_table: Path | None = Field(None, description="joined to `subjects_table`; has Family_ID, Age_in_Yrs")


class Paper(Keys):
    """The cohort that a publication reports, to compare the one that is found with."""

    scans: int | None = None
    label: dict[str, int] = Field({}, description="subjects of each class")
    sex: dict[str, int] = Field({}, description="subjects of each sex")


class Dataset(Keys):
    """A source of scans: `config/datasets/<name>.yaml`."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: str
    source: Literal["phantom", "bids", "fmriprep", "series", "abide", "hcp"]
    description: str = ""
    path: Path = Field(
        Path(),
        description="dataset folder (bids, fmriprep, phantom) or table of scans (series); sources that are downloaded "
        "have none",
    )
    label: str = Field(description="column of participants.tsv (or of the series table) to predict")
    classes: Annotated[list[str], Field(min_length=2)] | None = Field(
        None, description="label values; the last is the positive class; null: the label is a number"
    )
    subjects_table: Path | None = Field(None, description="default: participants.tsv in `path`")
    group: str | None = Field(None, description="column with the family; default: the subject")
    site: str | None = None
    age: str | None = None
    sex: str | None = None
    tasks: list[str] | None = None
    sessions: list[str] | None = None
    runs: list[str] | None = None
    tr: float | None = Field(None, gt=0, description="seconds, where the files do not say (series)")
    resolution: str | None = Field(
        None, description="fMRIPrep output: which of several resolutions, by the names' `res-`"
    )
    tr_conflict: Literal["exclude", "sidecar", "header"] = Field(
        "exclude", description="what becomes of a scan whose JSON sidecar (or `tr`) and header differ by more than 1 %"
    )
    crop: int = Field(100, ge=1, description="volumes per random training crop")
    simulate: Simulate | None = None
    abide: Abide = Abide()
    hcp: Hcp = Hcp()
    include: dict[str, list[str]] = Field({}, description="column of the subjects table to the values that are used")
    exclude: dict[str, list[str]] = Field({}, description="column of the subjects table to values that are left out")
    paper: Paper | None = None
    expected: dict[str, Range] = {}

    @property
    def downloaded(self) -> bool:
        """Whether the workflow fetches the scans."""
        return self.source == "abide" or (self.source == "hcp" and self.hcp.bucket is not None)

    @property
    def where(self) -> str:
        """What an error about the whole dataset names."""
        if self.source == "hcp" and self.hcp.bucket is not None:
            return f"s3://{self.hcp.bucket.name}/{self.hcp.bucket.prefix}"
        return self.abide.base if self.downloaded else str(self.path)

    @property
    def ready_series(self) -> bool:
        """Whether the source has ROI series, so that no image is read."""
        return self.source == "series" or (self.source == "abide" and self.abide.ready_series)

    @model_validator(mode="after")
    def _different_classes(self) -> Dataset:
        if self.classes and len(set(self.classes)) != len(self.classes):
            raise ValueError("'classes' must be different from one another")
        return self

    @model_validator(mode="after")
    def _has_a_path(self) -> Dataset:
        if not self.downloaded and self.path == Path():
            raise ValueError("key 'path' is missing")
        return self
