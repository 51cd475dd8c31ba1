"""Stages over a whole dataset, before its scans: simulation, checks, index, templates, downloads."""

from __future__ import annotations

import pandas as pd

from bolt.cli.shared import Shared, log
from bolt.datasets import COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import write_table
from bolt.jobs.provenance import beside

TEMPLATE_MM = 2.0
"""Voxel size of the templates that T1w images are registered to."""


class DataStages(Shared):
    """One command a method."""

    def simulate(self) -> None:
        from bolt.datasets.phantom.dataset import simulate

        if self.dataset.simulate is None:
            raise DataError("this dataset has no 'simulate' keys", where=self.dataset.name, hint="Use the phantom's")
        out = self.options.out or self.dataset.path
        simulate(out, self.dataset.simulate, n_jobs=self.options.threads)
        self._note(self.layout.truth(out) / "provenance.json", [], seed=self.dataset.simulate.seed)

    def check(self) -> None:
        from bolt.workflow.checks import check_names, check_room

        check_names(self.config, self.dataset)
        check_room(self.config, self.dataset)

    def index(self) -> None:
        from bolt.cohort.exclusions import EXCLUSION_COLUMNS
        from bolt.datasets import index
        from bolt.folds.splits import make_folds
        from bolt.models.suitability import check_known
        from bolt.workflow.dependencies import files_of
        from bolt.workflow.scan_files import own_tables, subjects_table

        if not self.dataset.ready_series:
            for name in self.config.atlas_places:
                self._atlas(name)  # a missing or wrong image shows here, hours before parcellation
        scans = index(self.config, self.dataset, self.options.minimum_volumes)
        usable = scans[scans.exclude_reason.isna()]
        check_known(self.models.values(), usable)
        make_folds(self._strata(usable), self.config.folds)  # too few subjects a class show here, hours before training
        left_out = scans.loc[scans.exclude_reason.notna(), ["scan_id", "exclude_stage", "exclude_reason"]]
        left_out.columns = pd.Index(EXCLUSION_COLUMNS)
        self._refuse_bad(left_out)
        write_table(scans, self.layout.scans, COLUMNS)
        for scan in scans[scans.exclude_reason.notna()].itertuples():
            log.warning("%s is left out: %s", scan.scan_id, scan.exclude_reason)
        log.info("%d scans of %d subjects", len(usable), usable.subject.nunique())
        self._compare_cohort(scans)
        tables = dict.fromkeys([subjects_table(self.dataset, self.config), *own_tables(self.dataset)])
        # images are hashed where they are read; here the hash of their names, sizes and times
        self._note(beside(self.layout.scans), list(tables), listing=files_of(self.dataset))

    def template(self) -> None:
        from bolt.preprocess.quality.evidence import stage_ventricles
        from bolt.preprocess.templates import stage_template

        stage_template(
            self.config.preprocess.space, TEMPLATE_MM, self.layout.template, self.config.paths.templateflow_home
        )
        stage_ventricles(self.layout.template)
        images = sorted(self.layout.template.glob("*.nii.gz"))
        self._note(self.layout.template / "provenance.json", images)  # copies of the published ones

    def resources(self) -> None:
        from bolt.atlases.staging import stage_atlases

        stage_atlases(self.config)
        if self.dataset.source == "bids":
            self.template()

    def download(self) -> None:
        from bolt.datasets import source_of

        source, scan_id = source_of(self.dataset), self.options.scan
        if scan_id is None:
            return source.download_table(self.dataset, self.config)
        outcome = self._outcome("download", self._download_status(scan_id), [])
        outcome.passing = True
        outcome.of(lambda: source.download_scan(scan_id, self.dataset, self.config))
