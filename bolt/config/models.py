"""Keys of a model: `config/models/<name>.yaml`."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, model_validator

from bolt.config.keys import Keys, parse
from bolt.io.errors import ConfigError
from bolt.io.names import Name


class Training(Keys):
    """How a torch model is trained.

    Learning rate, by `schedule`: ``linear`` from `learning_rate` to `peak_learning_rate` over `warmup_epochs`, then to
    `final_learning_rate`; ``cosine`` the same in two half waves; ``step`` after the warm-up times `step_factor` every
    `step_epochs`; ``constant`` at `learning_rate`.
    """

    epochs: int = Field(20, ge=1)
    batch_size: int = Field(32, ge=1)
    schedule: Literal["linear", "cosine", "step", "constant"] = "linear"
    learning_rate: float = Field(1e-4, gt=0)
    peak_learning_rate: float = Field(2e-4, gt=0)
    final_learning_rate: float = Field(1e-5, gt=0)
    warmup_epochs: float = Field(10, ge=0)
    step_epochs: int = Field(20, ge=1, description="of the schedule 'step'")
    step_factor: float = Field(0.5, gt=0, le=1, description="of the schedule 'step'")
    optimizer: Literal["adam", "adamw"] = Field(
        "adamw", description="differ in weight decay alone: in the gradient or apart"
    )
    weight_decay: float = Field(0.0, ge=0)
    mixup: float = Field(0.0, ge=0, description="parameter of the Beta distribution that mixes pairs of scans; 0: none")
    clip_gradient: float | None = Field(None, gt=0)
    epoch_choice: Literal["last", "best_validation"] = "last"
    precision: Literal["float32", "tf32", "bfloat16"] = Field(
        "float32", description="of the products in a training step; weights, loss and predictions are always float32"
    )


class FoldSettings(Keys):
    """What of a model differs in one fold; keys that are left out are the model's own."""

    hyper: dict[str, Any] = {}
    training: dict[str, Any] = Field({}, description="keys of `Training`")


class Model(Keys):
    """A model and how it is trained: `config/models/<name>.yaml`."""

    name: Name
    title: str = Field("", description="as figures and tables call it; default: the file's name")
    family: str = Field("", description="transformer, RNN, GNN, CNN, traditional or baseline")
    description: str = Field("", description="one line, for the table of models")
    reference: str = Field("", description="where it comes from: authors, year, DOI")
    model: str = Field(description="module in bolt/models")
    hyper: dict[str, Any] = {}
    connectivity: Literal["scan", "crop"] = Field(
        "scan", description="connectivity only: of training scans over their whole length, or of a random crop"
    )
    train_share: float = Field(1.0, gt=0, le=1, description="share of the training subjects that is learned from")
    covariates: list[str] = Field([], description="columns of the scan table as further inputs: age, sex, site, …")
    fisher_z: bool = Field(False, description="connectivity only: Fisher's z of the correlations")
    harmonise: Literal["combat"] | None = Field(None, description="connectivity only: remove what sites add")
    unseen_site: Literal["refuse", "pooled"] = Field("refuse", description="a site that no training scan is from")
    training: Training = Training()
    by_fold: dict[int, FoldSettings] = Field(
        {}, description="settings of single folds, as `bolt search` writes them; every fold that is run needs its own"
    )

    @model_validator(mode="after")
    def _folds_have_known_keys(self) -> Model:
        for fold in self.by_fold:
            self.for_fold(fold)
        return self

    @model_validator(mode="after")
    def _different_covariates(self) -> Model:
        if len(set(self.covariates)) != len(self.covariates):
            raise ValueError("'covariates' must be different from one another")
        return self

    def hash(self) -> str:
        """Eight characters that name this configuration in paths; equal settings, equal hash."""
        unread = {"name", "title", "family", "description", "reference"} | (set() if self.by_fold else {"by_fold"})
        settings = self.model_dump(mode="json", exclude=unread)
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]

    def for_fold(self, fold: int) -> Model:
        """The model as it is trained in one fold: with the settings of that fold as its own, and no others'.

        Raises
        ------
        ConfigError
            Where other folds have settings and this one has none, or one of its keys of training is unknown.
        """
        if not self.by_fold:
            return self
        if fold not in self.by_fold:
            raise ConfigError(
                f"model '{self.name}' has settings by fold, but none for fold {fold}",
                where="by_fold",
                hint=f"Run folds {', '.join(map(str, sorted(self.by_fold)))} alone, or search the others too",
            )
        own = self.by_fold[fold]
        training = self.training
        if own.training:  # not otherwise: a model without epochs must not seem to have been given any
            training = parse(Training, {**training.model_dump(), **own.training}, f"by_fold.{fold}.training")
        update: dict[str, Any] = {"hyper": {**self.hyper, **own.hyper}, "by_fold": {}}
        return self.model_copy(update=update | ({"training": training} if own.training else {}))

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.hash()}"
