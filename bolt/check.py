"""Everything that can be checked by name, before any work."""

from __future__ import annotations

from bolt import config as configuration
from bolt.atlases import describe_atlas
from bolt.config import Config, Dataset
from bolt.errors import ConfigError
from bolt.models._registry import check_model


def check_names(config: Config, dataset: Dataset) -> None:
    """Refuse a configuration that names an unknown thing, or things that do not fit together.

    Raises
    ------
    ConfigError
        Unknown atlas, model, hyper-parameter, denoising or registration; an atlas in another space.
    """
    for name in config.models:
        model = configuration.load_model(name)
        check_model(model.model, model.hyper)
    configuration.load_denoise(config.denoise)
    configuration.load_registration(config.preprocess.registration)
    for name in config.atlases:
        spaces = describe_atlas(name).spaces
        if dataset.source != "series" and config.preprocess.space not in spaces:
            raise ConfigError(
                f"atlas '{name}' is drawn in {', '.join(spaces)}, but the images will be in {config.preprocess.space}",
                where="configuration",
                mend="Set 'preprocess: space' to one of these, or choose an atlas in that space",
            )
    if dataset.source == "phantom" and dataset.simulate is None:
        raise ConfigError("the phantom needs the key 'simulate'", where=f"config/datasets/{dataset.name}.yaml")


def minimum_volumes(config: Config) -> int:
    """Volumes that the longest window among the configured models needs."""
    windows = [configuration.load_model(name).hyper.get("window", 2) for name in config.models]
    return max(windows)
