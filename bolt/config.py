"""The configuration: YAML files to typed, checked objects.

`config/config.yaml` (or any file given with ``--configfile``) holds the keys of `Config`; it names
files in `config/datasets`, `config/models`, `config/denoise` and `config/registration`, which hold
the keys of the classes below. Defaults are the paper's. An unknown key is an error that names the
nearest known one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bolt.errors import ConfigError
from bolt.files import read_yaml

ROOT = Path(__file__).resolve().parent.parent
"""The workflow's base directory: the folder that holds `bolt/`, `config/` and `atlases/`."""


class Keys(BaseModel):
    """A group of keys; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Paths(Keys):
    """Where things lie, relative to the folder `snakemake` runs in."""

    results: Path = Path("results")
    work: Path = Path("work")
    atlas_dir: Path | None = None
    templateflow_home: Path | None = None


class Preprocess(Keys):
    space: str = "MNI152NLin6Asym"
    resolution: float = Field(2.0, gt=0, description="voxel size of the preprocessed BOLD, mm")
    registration: str = "fast"
    keep_bold: bool = False


class Parcellate(Keys):
    coverage: float = Field(0.5, ge=0, le=1)
    uncovered: Literal["zero", "drop-scan", "drop-roi-everywhere"] = "zero"


class Folds(Keys):
    scheme: Literal["kfold", "leave-site-out"] = "kfold"
    group: Literal["family", "subject"] = Field("family", description="what never straddles a split")
    outer: int = Field(10, ge=2)
    validation: float = Field(0.1, gt=0, lt=0.5)
    seed: int = 0
    run: list[int] | dict[str, list[int]] | None = Field(
        None, description="train only these outer folds, of all models or of those named; null: all"
    )

    def of(self, model: str) -> list[int]:
        """The outer folds in which a model of this name is trained."""
        chosen = self.run.get(model) if isinstance(self.run, dict) else self.run
        return list(range(self.outer)) if chosen is None else chosen


class Explain(Keys):
    tokens: int = Field(5, ge=1)
    top_rois: float = Field(0.02, gt=0, le=1)
    random_draws: int = Field(20, ge=1)


class Config(Keys):
    """One run of the workflow."""

    dataset: str
    atlases: list[str] = ["schaefer400", "aal116"]
    models: list[str] = ["bolt"]
    seeds: list[int] = [0]
    denoise: str = "none"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    paths: Paths = Paths()
    preprocess: Preprocess = Preprocess()
    parcellate: Parcellate = Parcellate()
    folds: Folds = Folds()
    explain: Explain = Explain()

    @property
    def dataset_name(self) -> str:
        return Path(self.dataset).stem

    @property
    def atlas_places(self) -> dict[str, str]:
        """Atlas name to what the configuration calls it: the name, or the path of a folder."""
        return {Path(atlas).name: atlas for atlas in self.atlases}

    @model_validator(mode="after")
    def _not_empty(self) -> Config:
        for name in ("atlases", "models", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"'{name}' must be a list of different entries, at least one")
        return self


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
    phenotypes: str = Field("Phenotypic_V1_0b_preprocessed1.csv", description="table of subjects below `base`")
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


class Training(Keys):
    """How a torch model is trained. Learning rate: linear from `learning_rate` to
    `peak_learning_rate` over `warmup_epochs`, then down to `final_learning_rate`."""

    epochs: int = Field(20, ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(1e-4, gt=0)
    peak_learning_rate: float = Field(2e-4, gt=0)
    final_learning_rate: float = Field(1e-5, gt=0)
    warmup_epochs: int = Field(10, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    clip_gradient: float | None = Field(None, gt=0)
    epoch_choice: Literal["last", "best_validation"] = "last"
    precision: Literal["float32", "tf32", "bfloat16"] = Field(
        "float32", description="of the products in a training step; weights, loss and predictions are always float32"
    )


class Model(Keys):
    """A model and how it is trained: `config/models/<name>.yaml`."""

    name: str
    model: str = Field(description="module in bolt/models")
    hyper: dict[str, Any] = {}
    covariates: list[str] = Field([], description="columns of the scan table as further inputs: age, sex, site, …")
    fisher_z: bool = Field(False, description="connectivity only: Fisher's z of the correlations")
    harmonise: Literal["combat"] | None = Field(None, description="connectivity only: remove what sites add")
    unseen_site: Literal["refuse", "pooled"] = Field("refuse", description="a site that no training scan is from")
    training: Training = Training()

    @model_validator(mode="after")
    def _different_covariates(self) -> Model:
        if len(set(self.covariates)) != len(self.covariates):
            raise ValueError("'covariates' must be different from one another")
        return self

    def hash(self) -> str:
        """Eight characters that name this configuration in paths; equal settings, equal hash."""
        settings = self.model_dump(mode="json", exclude={"name"})
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.hash()}"


STRATEGY_PARAMETERS = {
    "simple": ("motion", "wm_csf", "global_signal", "demean"),
    "scrubbing": ("motion", "wm_csf", "scrub", "fd_threshold", "std_dvars_threshold", "global_signal", "demean"),
    "compcor": ("motion", "n_compcor", "compcor", "global_signal", "demean"),
    "ica_aroma": ("wm_csf", "global_signal", "demean"),
}
"""What `nilearn.interfaces.fmriprep.load_confounds_strategy` takes."""


class Denoise(Keys):
    """A denoising strategy for ROI means: `config/denoise/<name>.yaml`."""

    name: str
    description: str = ""
    confounds: list[str] = Field([], description="columns of the confounds table, shell patterns allowed")
    strategy: Literal["simple", "scrubbing", "compcor", "ica_aroma"] | None = Field(
        None, description="nilearn's choice of fMRIPrep confounds and volumes, in place of `confounds`"
    )
    parameters: dict[str, str | int | float | bool] = Field({}, description="of the strategy, as in nilearn")
    detrend: bool = False
    high_pass: float | None = Field(None, gt=0, description="Hz")
    low_pass: float | None = Field(None, gt=0, description="Hz")

    @model_validator(mode="after")
    def _one_way(self) -> Denoise:
        if self.strategy is None:
            if self.parameters:
                raise ValueError("'parameters' belong to a 'strategy'")
            return self
        if self.confounds or self.high_pass:
            raise ValueError(f"strategy '{self.strategy}' brings its own confounds and high-pass filter (cosines)")
        unknown = sorted(set(self.parameters) - set(STRATEGY_PARAMETERS[self.strategy]))
        if unknown:
            known = ", ".join(STRATEGY_PARAMETERS[self.strategy])
            raise ValueError(f"strategy '{self.strategy}' has no parameter '{unknown[0]}'; it has {known}")
        return self


class Registration(Keys):
    """Settings of all registrations: `config/registration/<name>.yaml`."""

    name: str
    description: str = ""
    n4_shrink: int = Field(4, ge=1)
    n4_iterations: list[int] = [50, 50, 30, 20]
    working_resolution: float = Field(1.0, gt=0, description="T1w voxel size during registration, mm")
    normalisation_resolution: float | None = Field(
        None, gt=0, description="voxel size of SyN, mm; null: the template's"
    )
    syn_iterations: list[int] = [100, 70, 50, 20]
    syn_metric: Literal["CC", "mattes"] = "mattes"
    affine_iterations: list[int] = [2100, 1200, 1200, 10]
    motion_sampling: float = Field(0.2, gt=0, le=1)
    motion_iterations: int = Field(50, ge=1)
    seed: int = 1


T = TypeVar("T", bound=Keys)
KINDS: dict[str, tuple[str, type[Keys]]] = {
    "dataset": ("datasets", Dataset),
    "model": ("models", Model),
    "denoising": ("denoise", Denoise),
    "registration": ("registration", Registration),
}


def load_config(path: str | Path) -> Config:
    """Read and check the main configuration file."""
    return parse(Config, read_yaml(path), path)


def load_dataset(name: str) -> Dataset:
    return _load("dataset", name)  # type: ignore[return-value]


def load_model(name: str) -> Model:
    return _load("model", name)  # type: ignore[return-value]


def load_denoise(name: str) -> Denoise:
    return _load("denoising", name)  # type: ignore[return-value]


def load_registration(name: str) -> Registration:
    return _load("registration", name)  # type: ignore[return-value]


def known(kind: str) -> list[str]:
    """Names of the configuration files of a kind, sorted."""
    return sorted(p.stem for p in (ROOT / "config" / KINDS[kind][0]).glob("*.yaml"))


def _load(kind: str, name: str) -> Keys:
    """Read `config/<folder>/<name>.yaml`, or the YAML file that `name` is the path of."""
    folder, keys = KINDS[kind]
    path = Path(name) if name.endswith((".yaml", ".yml")) else ROOT / "config" / folder / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError(
            f"unknown {kind} '{name}'",
            mend=f"Known: {', '.join(known(kind))}{nearest(name, known(kind))}; or give the path of a .yaml file",
        )
    return parse(keys, {"name": path.stem, **read_yaml(path)}, path)


def parse(keys: type[T], data: dict[str, Any], where: str | Path) -> T:
    """Check `data` against `keys`; the first problem becomes a `ConfigError` with a remedy."""
    try:
        return keys.model_validate(data)
    except ValidationError as error:
        problem = error.errors()[0]
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place) or "the file"
    if problem["type"] == "extra_forbidden":
        siblings = _keys_beside(keys, place)
        raise ConfigError(
            f"unknown key '{key}'",
            where=where,
            mend=f"Known here: {', '.join(siblings)}{nearest(place[-1], siblings)}",
        )
    if problem["type"] == "missing":
        raise ConfigError(f"key '{key}' is missing", where=where, mend="Add it")
    raise ConfigError(f"'{key}': {problem['msg']} (found {problem['input']!r})", where=where, mend="Correct the value")


def _keys_beside(keys: type[Keys], place: list[str]) -> list[str]:
    group: Any = keys
    for part in place[:-1]:
        annotation = group.model_fields[part].annotation
        options = getattr(annotation, "__args__", ()) or (annotation,)
        group = next(o for o in options if isinstance(o, type) and issubclass(o, Keys))
    return list(group.model_fields)


def nearest(name: str, candidates: list[str]) -> str:
    """A hint for an error line: `` (did you mean 'x'?)``, or nothing where no candidate is near."""
    near = difflib.get_close_matches(name, candidates, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def schemas() -> dict[str, dict[str, Any]]:
    """JSON schemas of all configuration files, for editors; `config/schemas/` holds them (`make schemas`)."""
    kinds: dict[str, type[Keys]] = {"config": Config, **{kind: keys for kind, (_, keys) in KINDS.items()}}
    return {kind: keys.model_json_schema() for kind, keys in kinds.items()}
