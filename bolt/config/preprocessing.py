"""Keys of preprocessing, parcellation, denoising, and of the cut-offs of quality."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from bolt.config.keys import Keys
from bolt.io.names import Name


class Preprocess(Keys):
    """Preprocessing of raw images."""

    space: Annotated[str, AfterValidator(lambda space: space.replace(":cohort-", "_cohort-"))] = Field(
        "MNI152NLin6Asym", description="TemplateFlow's name; with a cohort as MNIInfant_cohort-1 (or :cohort-1)"
    )
    resolution: float = Field(2.0, gt=0, description="voxel size of the preprocessed BOLD, mm")
    registration: str | list[str] = Field("fast", description="name of settings, or several to try in order")
    output: Literal["template", "native"] = "template"
    slice_timing: Literal["auto", "off"] = "auto"
    sbref: Literal["auto", "off"] = Field("auto", description="coregister a scan's single-band reference")
    average_t1w: bool = Field(False, description="average the T1w images of a session")
    steady_state: Literal["auto"] | Annotated[int, Field(ge=0, strict=True)] = Field(
        "auto", description="number of dummy volumes to drop at the start; auto: detect them"
    )
    keep_bold: bool = False
    threads: int = Field(1, ge=1, description="threads for the registration of one T1w")

    @property
    def registrations(self) -> list[str]:
        """Return the names of settings, in the order in which they are tried."""
        return [self.registration] if isinstance(self.registration, str) else self.registration

    @model_validator(mode="after")
    def _some_settings(self) -> Preprocess:
        if not self.registrations or len(set(self.registrations)) != len(self.registrations):
            raise ValueError("'registration' must be a name, or a non-empty list without duplicates")
        return self


class Parcellate(Keys):
    """Averaging of images over ROIs."""

    coverage: float = Field(0.5, ge=0, le=1)
    signal: float = Field(
        0.3, ge=0, lt=1, description="a voxel darker than this share of the median of all ROIs' voxels is not covered"
    )
    uncovered: Literal["zero", "drop-scan", "drop-dead-scan", "drop-roi-everywhere"] = "zero"


AROMA = "smoothAROMAnonaggr"
"""fMRIPrep's `desc-` of images cleaned by ICA-AROMA, which nilearn's strategy 'ica_aroma' needs."""
STRATEGY_PARAMETERS = {
    "simple": ("motion", "wm_csf", "global_signal", "demean"),
    "scrubbing": ("motion", "wm_csf", "scrub", "fd_threshold", "std_dvars_threshold", "global_signal", "demean"),
    "compcor": ("motion", "n_compcor", "compcor", "global_signal", "demean"),
    "ica_aroma": ("wm_csf", "global_signal", "demean"),
}
"""Parameters of `nilearn.interfaces.fmriprep.load_confounds_strategy`."""


class Denoise(Keys):
    """A denoising strategy for ROI series: `config/denoise/<name>.yaml`."""

    name: str = Field(description="set by the file's name")
    description: str = Field("", description="one sentence")
    confounds: list[str] = Field([], description="columns of the confounds table; shell patterns allowed")
    strategy: Literal["simple", "scrubbing", "compcor", "ica_aroma"] | None = Field(
        None, description="nilearn's choice of fMRIPrep confounds and volumes, instead of `confounds`"
    )
    parameters: dict[str, str | int | float | bool] = Field({}, description="parameters of the strategy, as in nilearn")
    detrend: bool = Field(False, description="remove a linear trend")
    high_pass: float | None = Field(None, gt=0, description="Hz")
    low_pass: float | None = Field(None, gt=0, description="Hz")

    @model_validator(mode="after")
    def _one_way(self) -> Denoise:
        if self.high_pass and self.low_pass and self.high_pass >= self.low_pass:
            raise ValueError("'high_pass' must be below 'low_pass': what is between them is kept")
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

    name: Name = Field(description="set by the file's name")
    description: str = Field("", description="one sentence")
    n4_resolution: float = Field(8.0, gt=0, description="voxel size at which the bias field is estimated, mm")
    n4_iterations: list[int] = Field([50, 50, 30, 20], description="bias field correction (N4), per level")
    working_resolution: float | None = Field(
        1.0, gt=0, description="voxel size to which a finer T1w is downsampled, mm; null: its own"
    )
    mask_resolution: float = Field(
        3.0, gt=0, description="voxel size at which the brain is aligned with the template, mm"
    )
    tissue_resolution: float = Field(1.0, gt=0, description="voxel size of tissue segmentation, mm")
    normalisation_resolution: float | None = Field(
        None, gt=0, description="voxel size of the refinement by SyN, mm; null: the template's"
    )
    syn_iterations: list[int] = Field([100, 70, 50, 20], description="deformation (SyN), per level")
    syn_metric: Literal["CC", "mattes"] = Field(
        "mattes", description="of the deformation: mutual information, or local cross-correlation"
    )
    affine_iterations: list[int] = Field(
        [2100, 1200, 1200], min_length=3, max_length=3, description="affine step, per level"
    )
    motion_sampling: float = Field(0.2, gt=0, le=1, description="share of voxels used in motion correction")
    motion_iterations: int = Field(
        50, ge=1, description="largest number of iterations in motion correction, per volume"
    )
    seed: int = Field(1, description="random seed of the sampling of voxels")


class Quality(Keys):
    """Cut-offs, named `min_` or `max_` and a measure of `bolt.preprocess.quality.measures`; null: no cut-off."""

    max_mean_fd: float | None = Field(None, gt=0, description="mean framewise displacement, mm")
    max_share_moved: float | None = Field(None, ge=0, le=1, description="share of volumes with FD above 0.5 mm")
    max_share_spikes: float | None = Field(None, ge=0, le=1, description="share of volumes with std. DVARS above 1.5")
    min_n_volumes: int | None = Field(None, ge=1)
    min_median_tsnr: float | None = Field(None, gt=0)
    min_coregistration_mask_dice: float | None = Field(0.6, ge=0, le=1)
    min_coregistration_shift_margin: float | None = Field(1.0, gt=0, description="similarity relative to a 10-mm shift")
    min_coregistration_flip_margin: float | None = Field(
        0.8, gt=0, description="similarity relative to the mirror image"
    )
    max_ghost_ratio: float | None = Field(None, gt=0)
    max_slice_jumps: int | None = Field(None, ge=0)
    min_template_brain_covered: float | None = Field(None, ge=0, le=1)
    min_template_mask_dice: float | None = Field(0.8, ge=0, le=1)
    min_template_correlation: float | None = Field(0.3, ge=-1, le=1)
    min_template_shift_margin: float | None = Field(1.0, gt=0, description="similarity relative to a 10-mm shift")
    min_ventricle_dice: float | None = Field(None, ge=0, le=1)
    min_coverage: float | None = Field(None, ge=0, le=1, description="share of covered ROIs")
    ratings: Path | None = Field(None, description="table of scans rated by eye, saved from the quality page")

    def cutoffs(self) -> Iterator[tuple[str, str, float]]:
        """Yield bound (``min`` or ``max``), measure and value of each cut-off in use."""
        for key, value in self.model_dump(exclude={"ratings"}).items():
            if value is not None:
                bound, _, measure = key.partition("_")
                yield bound, measure, value

    @staticmethod
    def met(bound: str, cutoff: float, value: float) -> bool:
        """Return whether a value meets a cut-off."""
        return value >= cutoff if bound == "min" else value <= cutoff
