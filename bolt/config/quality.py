"""Keys of the quality stage: cut-offs for excluding scans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from bolt.config.keys import Keys


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
