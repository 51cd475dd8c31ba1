"""Names and places of everything made: the one module that knows the tree of `results/`.

Rules and commands both ask here, so that every path is spelled once. It imports no library of preprocessing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bolt.config import Config, Model
from bolt.config.derivatives import anatomical_names

READY = "ready"
"""Takes the place of ``<space>-<denoise>`` for ready series."""
ORACLE = "truth"
"""Takes the place of ``<space>-<denoise>`` for the demo's oracle: models trained on true series."""


@dataclass(frozen=True)
class ModelRun:
    """Where one run of a model is kept: one atlas, variant, model and seed, over all folds.

    Attributes
    ----------
    results : Path
        Results of the dataset.
    atlas, variant, model : str
        `variant` is ``<space>-<denoise>``, `READY` or `ORACLE`; `model` is the name of the run, ``<model>-<hash>``.
    seed : int or str
        Text where it is a wildcard.
    """

    results: Path
    atlas: str
    variant: str
    model: str
    seed: int | str

    @property
    def cache(self) -> Path:
        """Return the folder of the series that the model was trained on."""
        return self.results / "cache" / self.atlas / self.variant

    @property
    def folder(self) -> Path:
        """Return the folder with one ``fold-<k>`` per fold."""
        return self._below("runs")

    def fold(self, fold: int | str) -> Path:
        """Return the folder of a trained fold."""
        return self.folder / f"fold-{fold}"

    def inner(self, fold: int | str) -> Path:
        """Return the folder of an outer fold's inner models, ``fold-<j>`` each, and of their joint explanation."""
        return self.fold(fold) / "inner"

    @property
    def explanation(self) -> Path:
        """Return the folder of what explains the run: landmarks, regions, checks."""
        return self._below("explain")

    @property
    def permuted(self) -> Path:
        """Return the folder of the model trained on permuted labels, a check of the explanation."""
        return self.explanation / "permuted"

    @property
    def retrained(self) -> Path:
        """Return the folder of the model trained again with another seed, the positive control of such checks."""
        return self.explanation / "retrained"

    def trained_again(self, folds: Sequence[int], seeds: Sequence[int]) -> list[Path]:
        """Return the folders of models trained like this run's, with another seed.

        They are the folds of another of the configured `seeds`, or else `retrained`, which is one model.
        """
        others = [seed for seed in seeds if str(seed) != str(self.seed)]
        return [self.with_seed(others[0]).fold(fold) for fold in folds] if others else [self.retrained]

    def with_seed(self, seed: int | str) -> ModelRun:
        """Return the same run with another seed."""
        return replace(self, seed=seed)

    def with_variant(self, variant: str) -> ModelRun:
        """Return the same run on series of another variant."""
        return replace(self, variant=variant)

    def _below(self, top: str) -> Path:
        return self.results / top / self.atlas / self.variant / self.model / f"seed-{self.seed}"


class Layout:
    """Paths of one configured study.

    Parameters
    ----------
    config : Config
    ready_series : bool
        Whether the dataset is of ready series, whose space and denoising are their authors'.
    """

    def __init__(self, config: Config, ready_series: bool = False) -> None:
        self.results = config.paths.results / config.dataset_name
        self.work = config.paths.work / config.dataset_name
        self.paper = config.paths.results / "paper"  # what spans datasets
        self.ledger = config.paths.results / "ledger.tsv"
        self.space = config.preprocess.space
        self.native = config.preprocess.output == "native"
        denoise = Path(config.denoise).stem
        self.variants = (f"{self.space}-{denoise}", f"native-{denoise}")  # series of both output spaces may lie here
        self.variant = READY if ready_series else self.variants[self.native]
        self.scans = self.results / "scans.tsv"
        self.exclusions = self.results / "exclusions.tsv"
        self.warnings = self.results / "warnings.tsv"  # about included scans
        self.bad_scans = self.results / "bad_scans.tsv"  # at which a run with `bad_scans: refuse` stopped
        self.folds = self.results / "folds.tsv"
        self.config = self.results / "config.yaml"  # the merged configuration of the run
        self.downloads = self.work / "downloads"
        # not below `work`: without the template everything would be preprocessed again
        self.template = self.results / "templates" / self.space
        self.derivatives = self.results / "derivatives"
        self.quality = self.results / "quality" / "quality.tsv"  # measures, and whether a scan is excluded for them
        self.tables = self.results / "tables"
        self.cohort = self.tables / "paper_cohort.tsv"  # beside the published one
        # beside the report, because two stages write the pages: after preprocessing, and with the predictions
        self.subjects = self.results / "subjects"
        self.report = self.results / "report" / "index.html"
        pages = ("index", "cohort", "performance", "methods")
        self.report_pages = [self.report.with_name(f"{name}.html") for name in pages]  # of every report
        self.quality_page = self.report.with_name("quality.html")
        self.explanation_page = self.report.with_name("explanation.html")
        self.trust_page = self.report.with_name("trust.html")

    # ---- scans -------------------------------------------------------------------------------
    def events(self, scan_id: str) -> Path:
        """Return the table of a scan's task events, where its source has them in another form."""
        return self.results / "events" / f"{scan_id}_events.tsv"

    def log(self, rule: str, name: str = "all") -> Path:
        """Return the log of a job."""
        return self.work / "logs" / rule / f"{name}.log"

    def benchmark(self, rule: str, name: str = "all") -> Path:
        """Return the file with a job's time and memory, as Snakemake measures them."""
        return self.results / "benchmarks" / rule / f"{name}.tsv"

    # ---- preprocessing -----------------------------------------------------------------------
    @property
    def template_files(self) -> dict[str, Path]:
        """Return the images that every template has; some have ``gm.nii.gz`` besides."""
        names = {"t1w": "T1w", "mask": "brain_mask", "ventricles": "ventricles"}
        return {port: self.template / f"{name}.nii.gz" for port, name in names.items()}

    def anatomical(self, folder: str) -> Path:
        """Return the folder of a preprocessed T1w; `folder` is ``sub-01`` or ``sub-01/ses-a``."""
        return self.derivatives / folder / "anat"

    def functional(self, folder: str) -> Path:
        """Return the folder of preprocessed BOLD images."""
        return self.derivatives / folder / "func"

    def anatomical_status(self, folder: str, prefix: str | None = None) -> Path:
        """Return the status file of a T1w.

        `prefix` is a wildcard in place of the beginning of the names in `folder`, as in `anatomical_files`.
        """
        return self.anatomical(folder) / f"{prefix or prefix_of(folder)}status.json"

    def anatomical_files(self, folder: str, prefix: str | None = None) -> dict[str, Path]:
        """Return all images and transforms made of a T1w, by their names in its workflow."""
        names = anatomical_names(prefix or prefix_of(folder), self.space)
        return {port: self.anatomical(folder) / name for port, name in names.items()}

    def bold(self, scan_id: str, folder: str | None = None) -> Path:
        """Return the preprocessed BOLD image of a scan."""
        return self._scan_file(scan_id, folder, f"space-{self.space}_desc-preproc_bold.nii.gz")

    def mask(self, scan_id: str, folder: str | None = None) -> Path:
        """Return the brain mask of a scan."""
        at = "" if self.native else f"space-{self.space}_"
        return self._scan_file(scan_id, folder, f"{at}desc-brain_mask.nii.gz")

    def confounds(self, scan_id: str, folder: str | None = None) -> Path:
        """Return the table of a scan's confounds."""
        return self._scan_file(scan_id, folder, "desc-confounds_timeseries.tsv")

    def functional_status(self, scan_id: str, folder: str | None = None) -> Path:
        """Return the status file of a scan's preprocessing."""
        return self._scan_file(scan_id, folder, "status.json")

    def _scan_file(self, scan_id: str, folder: str | None, ending: str) -> Path:
        return self.functional(folder or folder_of(scan_id)) / f"{scan_id}_{ending}"

    # ---- series ------------------------------------------------------------------------------
    def series(self, scan_id: str, variant: str | None = None) -> Path:
        """Return the folder with the series of all atlases of a scan."""
        return self.results / "series" / (variant or self.variant) / scan_id

    def series_status(self, scan_id: str) -> Path:
        """Return the status file of a scan's parcellation."""
        return self.series(scan_id) / "status.json"

    def series_file(self, scan_id: str, atlas: str, variant: str | None = None) -> Path:
        """Return the ROI series of a scan."""
        return self.series(scan_id, variant) / f"{scan_id}_atlas-{atlas}_timeseries.npy"

    def coverage(self, scan_id: str, atlas: str) -> Path:
        """Return the table of how much of each ROI was acquired."""
        return self.series(scan_id) / f"{scan_id}_atlas-{atlas}_coverage.tsv"

    # ---- quality -----------------------------------------------------------------------------
    def quality_status(self, scan_id: str) -> Path:
        """Return the status file of a scan's quality."""
        return self.quality.parent / scan_id / "status.json"

    # ---- cache and truth ---------------------------------------------------------------------
    def cache(self, atlas: str, variant: str | None = None) -> Path:
        """Return the folder of a cache; its ``manifest.json`` is written last."""
        return self.results / "cache" / atlas / (variant or self.variant)

    def rois(self, atlas: str) -> Path:
        """Return the table of an atlas's ROIs, in the order of the columns of series."""
        return self.results / "cache" / atlas / "rois.tsv"

    def truth(self, dataset_path: Path) -> Path:
        """Return the folder of the phantom's truth, for the demo's evaluation alone."""
        return dataset_path / "derivatives" / "truth"

    # ---- models ------------------------------------------------------------------------------
    def run(self, atlas: str, model: Model | str, seed: int | str, variant: str | None = None) -> ModelRun:
        """Return where one run of a model is kept; `model` is a model or the name of its run."""
        name = model if isinstance(model, str) else model.run_name
        return ModelRun(self.results, atlas, variant or self.variant, name, seed)

    def inner_folds(self, fold: int | str) -> Path:
        """Return the table that splits the training side of an outer fold again."""
        return self.results / "inner_folds" / f"fold-{fold}.tsv"

    # ---- experiments -------------------------------------------------------------------------
    def complexity(self, experiment: str, atlas: str) -> Path:
        """Return what models cost with the ROIs of an atlas; the same for all datasets."""
        return self.paper / experiment / f"{atlas}.tsv"

    def spectra(self, experiment: str, atlas: str) -> Path:
        """Return the power spectra of the ROI series of an atlas."""
        return self.results / "spectra" / experiment / atlas / "spectra.tsv"

    def bands(self, experiment: str, atlas: str) -> Path:
        """Return the share of the power in each band, one row per scan and network."""
        return self.spectra(experiment, atlas).with_name("bands.tsv")

    def experiment(self, name: str) -> Path:
        """Return the table of an experiment over all datasets."""
        return self.paper / f"{name}.tsv"

    # ---- search ------------------------------------------------------------------------------
    def study(self, atlas: str, model: str, fold: int | str) -> Path:
        """Return the folder of the search on one fold; both schemes read it."""
        return self.results / "search" / atlas / self.variant / "studies" / model / f"fold-{fold}"

    def choice(self, atlas: str, scheme: str, model: str) -> Path:
        """Return the model's configuration with the values that a search chose."""
        return self.results / "search" / atlas / self.variant / scheme / f"{model}.yaml"

    def shared_choice(self, model: str) -> Path:
        """Return the model's configuration with the values chosen for all datasets and atlases."""
        return self.paper / "search" / f"{model}.yaml"


def folder_of(name: str) -> str:
    """Return the folder of a BIDS file or scan name: ``sub-01_ses-a_task-rest`` → ``sub-01/ses-a``."""
    entities = Path(name).name.split("_")
    return "/".join(part for part in entities[:2] if part.startswith(("sub-", "ses-")))


def prefix_of(folder: str) -> str:
    """Return the start of the file names in a folder: ``sub-01/ses-a`` → ``sub-01_ses-a_``."""
    return folder.replace("/", "_") + "_"
