"""What is read of preprocessed images: their template space, and the tables of confounds that denoising needs."""

from __future__ import annotations

from collections.abc import Callable

from bolt.atlases.description import describe_atlas, serves
from bolt.config import AROMA, Config, Dataset, load_denoise
from bolt.io.bids import space_of
from bolt.io.errors import ConfigError


def description_of(config: Config) -> str:
    """Return fMRIPrep's `desc-` of the images that the denoising reads."""
    return AROMA if load_denoise(config.denoise).strategy == "ica_aroma" else "preproc"


def use_space_of_images(config: Config, dataset: Dataset) -> tuple[Config, str]:
    """Choose the space of the images where `preprocess: space` is not among those that fMRIPrep wrote.

    The rule: the configured space, if there are images in it. Otherwise the only other one in which every atlas has an
    image; if there is none, the only one to which every atlas can be carried over. More than one is never chosen from.

    Returns
    -------
    config : Config
        With the space that is read.
    note : str
        Which space replaces the configured one; empty if none does.
    """
    if dataset.source != "fmriprep":
        return config, ""
    images = dataset.path.glob(f"sub-*/**/func/*_space-*_desc-{description_of(config)}_bold.nii*")
    spaces = sorted({space for image in images if (space := space_of(image))})
    configured = config.preprocess.space
    if configured in spaces:
        return config, ""
    places, home = config.atlas_places.values(), config.paths.templateflow_home
    described = [describe_atlas(place) for place in places]
    rules: list[Callable[[str], bool]] = [
        lambda space: all(space in atlas.spaces for atlas in described),
        lambda space: all(serves(atlas, space, home) for atlas in described),
    ]
    for fits in rules:
        usable = [space for space in spaces if fits(space)]
        if len(usable) == 1:
            preprocess = config.preprocess.model_copy(update={"space": usable[0]})
            note = (
                f"Note: the images of dataset '{dataset.name}' are not in {configured} ('preprocess: space') but in "
                f"{', '.join(spaces)}: {usable[0]} is used."
            )
            return config.model_copy(update={"preprocess": preprocess}), note
        if usable:
            break
    return config, ""


def refuse_confounds(config: Config, where: str, lack: str, hint: str = "") -> None:
    """Refuse denoising that needs a table of confounds, for images that come without one.

    Parameters
    ----------
    config : Config
    where : str
        The dataset, for the error.
    lack : str
        Whose images lack what, in words that follow ", which".
    hint : str
        A further way out.

    Raises
    ------
    ConfigError
        The configured strategy does more than filter or detrend.
    """
    denoise = load_denoise(config.denoise)
    if denoise.confounds or denoise.strategy:
        what = f"denoising '{denoise.name}' needs fMRIPrep's table of confounds, which {lack}"
        hint = f"Set 'denoise' to none, or to a strategy that only filters or detrends{hint}"
        raise ConfigError(what, where=where, hint=hint)
