"""Everything that can be checked by name, before any work."""

from __future__ import annotations

from bolt import config as configuration
from bolt.atlas_files import describe_atlas
from bolt.config import Config, Dataset
from bolt.covariates import check_covariates
from bolt.datasets import COLUMNS, source_of
from bolt.disk import require_room
from bolt.errors import ConfigError
from bolt.models._registry import check_model, default_of


def check_names(config: Config, dataset: Dataset) -> None:
    """Refuse a configuration that names an unknown thing, or things that do not fit together.

    Raises
    ------
    ConfigError
        Unknown atlas, model, hyper-parameter, covariate, denoising or registration; an atlas in another space.
    """
    for name in config.models:
        model = configuration.load_model(name)
        check_model(model.model, model.hyper)
        check_covariates(model, dataset, list(COLUMNS))
    denoise = configuration.load_denoise(config.denoise)
    if denoise.strategy is not None and dataset.source in ("phantom", "bids"):
        raise ConfigError(
            f"denoising '{denoise.name}' needs confounds that fMRIPrep makes; raw images are preprocessed without them",
            where="configuration",
            mend="Set 'denoise' to none or 24p",
        )
    configuration.load_registration(config.preprocess.registration)
    for name in config.atlases:
        spaces = describe_atlas(name).spaces
        if not dataset.ready_series and config.preprocess.space not in spaces:
            raise ConfigError(
                f"atlas '{name}' is drawn in {', '.join(spaces)}, but the images will be in {config.preprocess.space}",
                where="configuration",
                mend="Set 'preprocess: space' to one of these, or choose an atlas in that space",
            )
    if dataset.downloaded or dataset.source == "hcp":
        source_of(dataset).check(dataset, config)
    elif dataset.source != "phantom" and not dataset.path.exists():
        raise ConfigError(
            f"the data of dataset '{dataset.name}' are not there: {dataset.path}",
            where="configuration",
            mend=f"Set 'path' in the dataset's file (config/datasets/{dataset.name}.yaml)",
        )
    repeated = len(config.atlases) - len(config.atlas_places)
    if repeated:
        raise ConfigError("two atlases have one name", where="configuration", mend="Rename one of the folders")
    unknown_folds = [fold for fold in config.folds.run or [] if fold not in range(config.folds.outer)]
    if unknown_folds:
        raise ConfigError(
            f"folds.run names fold {unknown_folds[0]}, but there are folds 0 to {config.folds.outer - 1}",
            where="configuration",
            mend="Correct the list",
        )
    if dataset.source == "phantom" and dataset.simulate is None:
        raise ConfigError("the phantom needs the key 'simulate'", where=f"config/datasets/{dataset.name}.yaml")


def check_room(config: Config, dataset: Dataset) -> None:
    """Refuse downloads that the disk cannot hold, before the first.

    Raises
    ------
    ConfigError
        Says how much is needed, and where.
    """
    if dataset.downloaded:
        source = source_of(dataset)
        what = f"what is still to be downloaded of dataset '{dataset.name}'"
        require_room(source.download_folder(dataset, config), source.download_bytes(dataset, config), what)


def minimum_volumes(config: Config) -> int:
    """Volumes that the longest window among the configured models needs."""
    models = [configuration.load_model(name) for name in config.models]
    return max(model.hyper.get("window", default_of(model.model, "window", 2)) for model in models)
