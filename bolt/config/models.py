"""Keys of a model (`config/models/<name>.yaml`), and of the search for its hyper-parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, WithJsonSchema, field_validator, model_validator

from bolt.config.datasets import Dataset
from bolt.config.keys import DIFFERENT, Keys, Seed, parse
from bolt.io.errors import ConfigError
from bolt.io.names import Name

LATER_KEYS: tuple[tuple[str, str, Any], ...] = (
    ("", "by_fold", {}),
    ("", "by_dataset", {}),
    ("", "members", []),
    ("", "file", None),
    ("", "preserve", []),
    ("training", "batches", "shuffled"),
    ("training", "label_smoothing", 0.0),
    ("training", "average_weights", 0.0),
    ("training", "crop_range", None),
)
"""Group, key and default of the settings that were added after the first runs had been named."""


MIN_SCANS = 2
"""Training scans of a site that `harmonise` needs to estimate its variance."""
NAMES_OF_MODELS = WithJsonSchema({"type": "array", "items": {"type": "string"}})


class Training(Keys):
    """Training of a torch model.

    The learning rate follows `schedule`: ``linear`` rises from `learning_rate` to `peak_learning_rate` over
    `warmup_epochs`, then falls to `final_learning_rate`; ``cosine`` does the same in two half waves; ``one_cycle`` too,
    step by step as torch's ``OneCycleLR``, with Adam's first beta going from 0.95 to 0.85 and back; ``step`` is
    multiplied by `step_factor` every `step_epochs` after the warm-up; ``constant`` stays at `learning_rate`.
    """

    epochs: int = Field(20, ge=1, description="passes through the training scans")
    batch_size: int = Field(32, ge=1, description="scans per step")
    batches: Literal["shuffled", "fixed"] = Field(
        "shuffled", description="fixed: every epoch has the same batches, in the same order; crops still differ"
    )
    schedule: Literal["linear", "cosine", "one_cycle", "step", "constant"] = Field(
        "linear", description="course of the learning rate (above)"
    )
    learning_rate: float = Field(1e-4, gt=0, description="at the beginning")
    peak_learning_rate: float = Field(2e-4, gt=0, description="after the warm-up")
    final_learning_rate: float = Field(1e-5, gt=0, description="at the end")
    warmup_epochs: float = Field(10, ge=0, description="epochs until the peak")
    step_epochs: int = Field(20, ge=1, description="for the schedule 'step'")
    step_factor: float = Field(0.5, gt=0, le=1, description="for the schedule 'step'")
    optimizer: Literal["adam", "adamw"] = Field(
        "adamw", description="adam applies weight decay through the gradient, adamw decoupled from it"
    )
    weight_decay: float = Field(0.0, ge=0, description="strength of the decay of weights")
    mixup: float = Field(0.0, ge=0, description="parameter of the Beta distribution that mixes pairs of scans; 0: none")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of each label that is spread evenly over all classes; 0: none"
    )
    average_weights: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay per step of an exponential moving average of the weights, which replaces them; 0: none",
    )
    crop_range: tuple[PositiveFloat, PositiveFloat] | None = Field(
        None, description="shortest and longest training crop, as multiples of `crop`, drawn anew for each batch"
    )
    clip_gradient: float | None = Field(None, gt=0, description="largest norm of the gradient; null: any")
    epoch_choice: Literal["last", "best_validation"] = Field(
        "last", description="which epoch's weights are kept; best_validation: that of the lowest validation loss"
    )
    precision: Literal["float32", "tf32", "bfloat16"] = Field(
        "float32", description="of matrix products in a training step; weights, loss and predictions are float32"
    )

    @model_validator(mode="after")
    def _crop_range_rises(self) -> Training:
        if self.crop_range is not None and self.crop_range[0] > self.crop_range[1]:
            raise ValueError("'crop_range' must be the shortest and the longest crop")
        return self

    def crop_lengths(self, crop: int) -> tuple[int, int]:
        """Return the lengths of the shortest and the longest training crop, given the dataset's; in volumes."""
        shortest, longest = self.crop_range or (1.0, 1.0)
        return max(1, round(shortest * crop)), max(1, round(longest * crop))


class DatasetSettings(Keys):
    """Settings that differ for one dataset; omitted keys keep those of the dataset and of the model."""

    crop: int | None = Field(None, ge=1, description="volumes of a random training crop")
    training: dict[str, Any] = Field({}, description="keys of `Training`")


class FoldSettings(Keys):
    """Settings that differ in one fold; omitted keys keep the model's values."""

    hyper: dict[str, Any] = Field({}, description="parameters of the model's class")
    training: dict[str, Any] = Field({}, description="keys of `Training`")


class Fidelity(Keys):
    """How close a model is to the method that it is named after."""

    level: Literal["exact", "core", "reconstructed"] = Field(
        description="exact: the architecture as published, or as the paper states it; "
        "core: its defining layers as published, other parts adapted or second-hand; "
        "reconstructed: the architecture that was used is not known, and parts of this one were chosen here"
    )
    note: str = Field(description="one sentence: what differs from the original, or what was reconstructed")


def told_apart(models: Sequence[Model]) -> list[Model]:
    """Return the models, without the titles that several of them have, so that `Model.shown` names one of them."""
    names: dict[str, set[str]] = {}
    for model in models:
        names.setdefault(model.shown, set()).add(model.name)
    return [m if len(names[m.shown]) == 1 else m.model_copy(update={"title": ""}) for m in models]


class Model(Keys):
    """A model and how it is trained: `config/models/<name>.yaml`."""

    name: Name = Field(description="set by the file's name")
    title: str = Field("", description="its name in figures and tables; default: the file's name")
    family: str = Field("", description="transformer, RNN, GNN, CNN, traditional or baseline")
    description: str = Field("", description="one line, for the table of models")
    reference: str = Field("", description="its source: authors, year, DOI")
    fidelity: Fidelity | None = Field(None, description="how close it is to the method in its source")
    model: str = Field(description="module in bolt/models")
    hyper: dict[str, Any] = Field({}, description="parameters of the model's class")
    members: Annotated[list[Model], NAMES_OF_MODELS] = Field(
        [], description="ensemble: the models it combines, by name or path; one named twice is trained with two seeds"
    )
    file: Path | None = Field(
        None,
        description="features: one vector a scan (.tsv, .csv, .npz); predictions: probabilities of the test scans of "
        "each fold (.tsv, .csv); relative to the working folder",
    )
    connectivity: Literal["scan", "crop"] = Field(
        "scan", description="connectivity models: computed over whole training scans, or over a random crop"
    )
    train_share: float = Field(1.0, gt=0, le=1, description="share of the training subjects that is used")
    covariates: Annotated[list[str], DIFFERENT] = Field(
        [], description="columns of the scan table as additional inputs: age, sex, site, …"
    )
    fisher_z: bool = Field(False, description="connectivity models: Fisher z of the correlations")
    harmonise: Literal["combat", "means"] | None = Field(None, description="connectivity models: remove site effects")
    preserve: Annotated[list[str], DIFFERENT] = Field(
        [], description="combat: columns of the scan table whose linear effects are kept: age, sex, …"
    )
    unseen_site: Literal["refuse", "pooled"] = Field(
        "refuse", description="test scans of a site without training scans"
    )
    training: Training = Field(Training(), description="how it is trained")
    by_dataset: dict[str, DatasetSettings] = Field(
        {},
        description="settings of single datasets, by name: that of their file, or which of the paper's it is (`paper`)",
    )
    by_fold: dict[int, FoldSettings] = Field(
        {}, description="settings of each fold, as the target `search` writes them; every trained fold needs an entry"
    )
    searched: Literal["per-fold", "paper", "shared"] | None = Field(
        None, description="scheme of the search that chose some of these settings, as the target `search` writes it"
    )

    @field_validator("members", mode="before")
    @classmethod
    def _read_members(cls, members: Any) -> Any:
        from bolt.config import load_model

        given = members if isinstance(members, list) else []
        return [load_model(one) if isinstance(one, str) else one for one in given] if given else members

    @model_validator(mode="after")
    def _known_keys(self) -> Model:
        for fold in self.by_fold:
            self.for_fold(fold)
        for dataset in self.by_dataset:
            self._on(dataset)
        return self

    @property
    def shown(self) -> str:
        """Return its name for readers."""
        return self.title or self.name

    @property
    def parts(self) -> list[Model]:
        """Return the model and the members of an ensemble."""
        return [self, *self.members]

    def hash(self) -> str:
        """Return eight characters that name this configuration in paths; equal settings give equal hashes.

        Keys of `LATER_KEYS` count only where they are used, so that earlier runs keep their names.
        """
        settings = self.model_dump(
            mode="json", exclude={"name", "title", "family", "description", "reference", "fidelity", "searched"}
        )
        settings["members"] = [member.hash() for member in self.members]
        for group, key, default in LATER_KEYS:
            holder = settings[group] if group else settings
            if holder[key] == default:
                del holder[key]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]

    def on(self, dataset: Dataset) -> tuple[Model, Dataset]:
        """Return the model and the dataset with the settings that this model has for it, by its name or its paper's."""
        name = next((name for name in (dataset.name, dataset.paper) if name in self.by_dataset), dataset.name)
        crop = self.by_dataset.get(name, DatasetSettings()).crop or dataset.crop
        return self._on(name), dataset.model_copy(update={"crop": crop})

    def _on(self, dataset: str) -> Model:
        """Return the model with its settings for a dataset of this name."""
        if not self.by_dataset:
            return self
        settings = self.by_dataset.get(dataset, DatasetSettings())
        return self._changed(f"by_dataset.{dataset}.training", settings.training, by_dataset={})

    def _changed(self, where: str, training: dict[str, Any], **update: Any) -> Model:
        """Return a copy; a model without training would seem to have been given epochs, so no keys change nothing."""
        if training:
            update["training"] = parse(Training, {**self.training.model_dump(), **training}, where)
        return self.model_copy(update=update)

    def for_fold(self, fold: int) -> Model:
        """Return the model with the settings of one fold.

        Raises
        ------
        ConfigError
            Other folds have settings and this one has none, or one of its training keys is unknown.
        """
        if not self.by_fold:
            return self
        if fold not in self.by_fold:
            what = f"model '{self.name}' has settings for single folds, but not for fold {fold}"
            hint = f"Run only folds {', '.join(map(str, sorted(self.by_fold)))}, or search the others too"
            raise ConfigError(what, where="by_fold", hint=hint)
        settings = self.by_fold[fold]
        hyper = {**self.hyper, **settings.hyper}
        return self._changed(f"by_fold.{fold}.training", settings.training, hyper=hyper, by_fold={})

    @property
    def run_name(self) -> str:
        """Return the name of the model's folder in `runs`."""
        return f"{self.name}-{self.hash()}"


class Span(Keys):
    """Values to try for one setting: a range (of whole numbers if both ends are), or a list."""

    low: int | float | None = Field(None, description="lowest value")
    high: int | float | None = Field(None, description="highest value")
    log: bool = Field(False, description="search the range on a logarithmic scale")
    choices: list[Any] | None = Field(None, description="values to choose from, instead of a range")

    @model_validator(mode="after")
    def _is_range_or_list(self) -> Span:
        if self.choices is not None:
            if not self.choices or self.low is not None or self.high is not None or self.log:
                raise ValueError("'choices' must be a non-empty list, without 'low', 'high' and 'log'")
        elif self.low is None or self.high is None or self.low > self.high:
            raise ValueError("needs 'choices', or 'low' and 'high' with low <= high")
        elif self.log and self.low <= 0:
            raise ValueError("with 'log', the range must be above 0")
        return self

    @property
    def whole(self) -> bool:
        """Return whether the range is one of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Space(Keys):
    """Settings that a search may change: `config/search/<name>.yaml`."""

    name: Name = Field(description="set by the file's name")
    description: str = Field("", description="one sentence")
    training: dict[str, Span] = Field({}, description="keys of `training`, for every model with epochs")
    hyper: dict[str, dict[str, Span]] = Field({}, description="module in bolt/models to settings of such models")

    @model_validator(mode="after")
    def _known_keys(self) -> Space:
        unknown = sorted(set(self.training) - set(Training.model_fields))
        if unknown:
            raise ValueError(f"'training' has no key '{unknown[0]}'; known: {', '.join(Training.model_fields)}")
        return self


class Search(Keys):
    """The target `search` of the workflow."""

    models: list[str] = Field([], description="files in config/models (or paths); empty: those in `models`")
    space: str = Field("paper", description="file in config/search (or a path)")
    scheme: Literal["per-fold", "paper", "both", "shared"] = "per-fold"
    use: bool = Field(False, description="experiments train models with the values of the scheme `shared`")
    n_trials: int = Field(30, ge=1, description="trials per searched fold")
    seed: Seed = Field(0, description="of the search and of its trial trainings")

    @property
    def schemes(self) -> list[str]:
        """Return the schemes that are run."""
        return ["paper", "per-fold"] if self.scheme == "both" else [self.scheme]

    @property
    def shared(self) -> bool:
        """Return whether all datasets and atlases try the same candidates, of which one is chosen for all."""
        return self.scheme == "shared"
