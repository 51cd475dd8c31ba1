"""Names and places of everything that is made: the one file that knows the tree of `results/`.

Rules and commands both ask here, so a path is spelled once.
"""

from __future__ import annotations

from pathlib import Path

from bolt.config import Config, Model

ORACLE = "truth"
"""Takes the place of ``<space>-<denoise>`` for the demo's oracle: models trained on true series."""


class Layout:
    """Paths of one configured run.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config) -> None:
        self.results = config.paths.results / config.dataset
        self.work = config.paths.work / config.dataset
        self.variant = f"{config.preprocess.space}-{config.denoise}"
        self.space = config.preprocess.space

    # ---- scans -------------------------------------------------------------------------------
    @property
    def scans(self) -> Path:
        return self.results / "scans.tsv"

    @property
    def exclusions(self) -> Path:
        return self.results / "exclusions.tsv"

    @property
    def folds(self) -> Path:
        return self.results / "folds.tsv"

    @property
    def config(self) -> Path:
        return self.results / "config.yaml"

    # ---- preprocessing -----------------------------------------------------------------------
    @property
    def template(self) -> Path:
        """Folder with T1w.nii.gz, brain_mask.nii.gz (and gm.nii.gz) of the output space."""
        return self.work / "templates" / self.space

    @property
    def derivatives(self) -> Path:
        return self.results / "derivatives"

    def anatomical(self, folder: str) -> Path:
        """`folder` is ``sub-01`` or ``sub-01/ses-a``."""
        return self.derivatives / folder / "anat"

    def functional(self, folder: str) -> Path:
        return self.derivatives / folder / "func"

    # ---- series ------------------------------------------------------------------------------
    def series(self, scan_id: str) -> Path:
        return self.results / "series" / self.variant / scan_id

    def cache(self, atlas: str, variant: str | None = None) -> Path:
        return self.results / "cache" / atlas / (variant or self.variant)

    # ---- models ------------------------------------------------------------------------------
    def runs(self, atlas: str, model: Model | str, seed: int | str, variant: str | None = None) -> Path:
        """Folder with one ``fold-<k>`` a fold."""
        name = model if isinstance(model, str) else model.run_name
        return self.results / "runs" / atlas / (variant or self.variant) / name / f"seed-{seed}"

    def explanation(self, atlas: str, model: Model | str, seed: int | str) -> Path:
        name = model if isinstance(model, str) else model.run_name
        return self.results / "explain" / atlas / self.variant / name / f"seed-{seed}"

    # ---- report ------------------------------------------------------------------------------
    @property
    def tables(self) -> Path:
        return self.results / "tables"

    @property
    def report(self) -> Path:
        return self.results / "report" / "index.html"
