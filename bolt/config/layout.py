"""Names and places of everything that is made: the one file that knows the tree of `results/`.

Rules and commands both ask here, so a path is spelled once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bolt.config import Config, Model
from bolt.config.derivatives import anatomical_names

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
        `variant` is ``<space>-<denoise>`` or `ORACLE`; `model` is the name of the run, ``<model>-<hash>``.
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

    def with_seed(self, seed: int | str) -> ModelRun:
        """Return the same run with another seed."""
        return replace(self, seed=seed)

    def _below(self, top: str) -> Path:
        return self.results / top / self.atlas / self.variant / self.model / f"seed-{self.seed}"


class Layout:
    """Paths of one configured run.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config) -> None:
        self.results = config.paths.results / config.dataset_name
        self.work = config.paths.work / config.dataset_name
        self.paper = config.paths.results / "paper"  # what spans datasets
        self.ledger = config.paths.results / "ledger.tsv"
        self.space = config.preprocess.space
        self.native = config.preprocess.output == "native"
        denoise = Path(config.denoise).stem
        self.variants = (f"{self.space}-{denoise}", f"native-{denoise}")  # series of both output spaces may lie here
        self.variant = self.variants[self.native]

    # ---- scans -------------------------------------------------------------------------------
    @property
    def scans(self) -> Path:
        return self.results / "scans.tsv"

    @property
    def cohort(self) -> Path:
        """The cohort beside the paper's, where the dataset's file says what that is."""
        return self.tables / "paper_cohort.tsv"

    @property
    def exclusions(self) -> Path:
        return self.results / "exclusions.tsv"

    @property
    def warnings(self) -> Path:
        """What is odd about scans that are used all the same."""
        return self.results / "warnings.tsv"

    @property
    def bad_scans(self) -> Path:
        """Why a run with `bad_scans: refuse` stopped."""
        return self.results / "bad_scans.tsv"

    @property
    def folds(self) -> Path:
        return self.results / "folds.tsv"

    @property
    def config(self) -> Path:
        return self.results / "config.yaml"

    @property
    def downloads(self) -> Path:
        """Folder of what the workflow fetches of a dataset."""
        return self.work / "downloads"

    def events(self, scan_id: str) -> Path:
        """Table of task events, where a source has them in a form of its own."""
        return self.results / "events" / f"{scan_id}_events.tsv"

    def log(self, rule: str, name: str = "all") -> Path:
        return self.work / "logs" / rule / f"{name}.log"

    def benchmark(self, rule: str, name: str = "all") -> Path:
        """Seconds and memory of a job, as Snakemake measures them."""
        return self.results / "benchmarks" / rule / f"{name}.tsv"

    # ---- preprocessing -----------------------------------------------------------------------
    @property
    def template(self) -> Path:
        """Folder with the template of the output space; not below `work`, for without it all is preprocessed again."""
        return self.results / "templates" / self.space

    @property
    def template_files(self) -> dict[str, Path]:
        """Images that every space has (some have ``gm.nii.gz`` besides)."""
        names = {"t1w": "T1w", "mask": "brain_mask", "ventricles": "ventricles"}
        return {port: self.template / f"{name}.nii.gz" for port, name in names.items()}

    @property
    def derivatives(self) -> Path:
        return self.results / "derivatives"

    def anatomical(self, folder: str) -> Path:
        """`folder` is ``sub-01`` or ``sub-01/ses-a``."""
        return self.derivatives / folder / "anat"

    def functional(self, folder: str) -> Path:
        return self.derivatives / folder / "func"

    def anatomical_status(self, folder: str, prefix: str | None = None) -> Path:
        """`prefix`: a wildcard in place of what begins the names in `folder`, as in the next."""
        return self.anatomical(folder) / f"{prefix or prefix_of(folder)}status.json"

    def anatomical_files(self, folder: str, prefix: str | None = None) -> dict[str, Path]:
        """All images and transforms of the anatomical half, by their names in its workflow."""
        names = anatomical_names(prefix or prefix_of(folder), self.space)
        return {port: self.anatomical(folder) / name for port, name in names.items()}

    def bold(self, scan_id: str, folder: str | None = None) -> Path:
        return self._scan_file(scan_id, folder, f"space-{self.space}_desc-preproc_bold.nii.gz")

    def mask(self, scan_id: str, folder: str | None = None) -> Path:
        at = "" if self.native else f"space-{self.space}_"
        return self._scan_file(scan_id, folder, f"{at}desc-brain_mask.nii.gz")

    def confounds(self, scan_id: str, folder: str | None = None) -> Path:
        return self._scan_file(scan_id, folder, "desc-confounds_timeseries.tsv")

    def functional_status(self, scan_id: str, folder: str | None = None) -> Path:
        return self._scan_file(scan_id, folder, "status.json")

    def _scan_file(self, scan_id: str, folder: str | None, ending: str) -> Path:
        return self.functional(folder or folder_of(scan_id)) / f"{scan_id}_{ending}"

    # ---- series ------------------------------------------------------------------------------
    def series(self, scan_id: str, variant: str | None = None) -> Path:
        """Folder with the series of all atlases of a scan."""
        return self.results / "series" / (variant or self.variant) / scan_id

    def series_status(self, scan_id: str) -> Path:
        return self.series(scan_id) / "status.json"

    def series_file(self, scan_id: str, atlas: str, variant: str | None = None) -> Path:
        return self.series(scan_id, variant) / f"{scan_id}_atlas-{atlas}_timeseries.npy"

    def coverage(self, scan_id: str, atlas: str) -> Path:
        """How much of each ROI was acquired."""
        return self.series(scan_id) / f"{scan_id}_atlas-{atlas}_coverage.tsv"

    # ---- quality -----------------------------------------------------------------------------
    @property
    def quality(self) -> Path:
        """One row a scan: its measures, and whether it is left out for them."""
        return self.results / "quality" / "quality.tsv"

    def quality_status(self, scan_id: str) -> Path:
        return self.quality.parent / scan_id / "status.json"

    @property
    def quality_page(self) -> Path:
        """Over all subjects; each one's own page is ``derivatives/<subject>.html``."""
        return self.report.with_name("quality.html")

    # ---- cache and truth ---------------------------------------------------------------------
    def cache(self, atlas: str, variant: str | None = None) -> Path:
        """Folder of the cache; its ``manifest.json`` is written last."""
        return self.results / "cache" / atlas / (variant or self.variant)

    def truth(self, dataset_path: Path) -> Path:
        """Folder of the phantom's truth, for the demo's evaluation alone."""
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
        """What models cost with the ROIs of an atlas; the same for all datasets."""
        return self.paper / experiment / f"{atlas}.tsv"

    def spectra(self, experiment: str, atlas: str) -> Path:
        """Power spectra of the ROI series of an atlas."""
        return self.results / "spectra" / experiment / atlas / "spectra.tsv"

    def bands(self, experiment: str, atlas: str) -> Path:
        """Share of the power in each band, a row a scan and network."""
        return self.spectra(experiment, atlas).with_name("bands.tsv")

    def experiment(self, name: str) -> Path:
        """The table of an experiment over all datasets."""
        return self.paper / f"{name}.tsv"

    # ---- search ------------------------------------------------------------------------------
    def study(self, atlas: str, model: str, fold: int | str) -> Path:
        """Folder of the search on one fold; both schemes read it."""
        return self.results / "search" / atlas / self.variant / "studies" / model / f"fold-{fold}"

    def choice(self, atlas: str, scheme: str, model: str) -> Path:
        """The model's configuration with the values that were found."""
        return self.results / "search" / atlas / self.variant / scheme / f"{model}.yaml"

    # ---- report ------------------------------------------------------------------------------
    @property
    def tables(self) -> Path:
        return self.results / "tables"

    @property
    def report(self) -> Path:
        return self.results / "report" / "index.html"

    @property
    def explanation_page(self) -> Path:
        """What all runs looked at, and how far that may be believed; beside the report."""
        return self.report.with_name("explanation.html")


def folder_of(name: str) -> str:
    """Folder of a BIDS file or scan name: ``sub-01_ses-a_task-rest`` → ``sub-01/ses-a``."""
    entities = Path(name).name.split("_")
    return "/".join(part for part in entities[:2] if part.startswith(("sub-", "ses-")))


def prefix_of(folder: str) -> str:
    """Start of the file names in a folder: ``sub-01/ses-a`` → ``sub-01_ses-a_``."""
    return folder.replace("/", "_") + "_"
