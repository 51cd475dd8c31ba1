"""Stages of one subject or one scan, and the judgement of their quality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from bolt import config as configuration
from bolt.cli.shared import Shared, log
from bolt.config.layout import folder_of, prefix_of
from bolt.config.study import Study
from bolt.jobs.provenance import beside


class ScanStages(Shared):
    """One command a method."""

    def anatomical(self) -> None:
        from bolt.config.derivatives import T1W_PICTURES, forget
        from bolt.preprocess.anatomical.workflow import preprocess_anatomical
        from bolt.preprocess.sidecars import describe_dataset

        folder = self.options.folder
        out = self.layout.anatomical(folder)
        t1w = next(path for path in self._scans().t1w.dropna() if folder_of(path) == folder)

        def work() -> None:
            describe_dataset(self.layout.derivatives, self.dataset.path, self.dataset.name)
            preprocess_anatomical(
                Path(t1w),
                self.layout.template,
                self.config.preprocess.space,
                list(map(configuration.load_registration, self.config.preprocess.registrations)),
                out,
                self.layout.work / "preprocess" / folder / "anat",
                prefix=prefix_of(folder),
            )

        inputs = [Path(t1w), *sorted(self.layout.template.glob("*.nii.gz"))]
        outcome = self._outcome("anatomical", self.layout.anatomical_status(folder), inputs)
        registrations = map(configuration.load_registration, self.config.preprocess.registrations)
        outcome.facts = {"seed": {one.name: one.seed for one in registrations}}
        outcome.empty = list(self.layout.anatomical_files(folder).values())
        forget(outcome.empty, prefix_of(folder), T1W_PICTURES)
        outcome.of(work)

    def functional(self) -> None:
        from bolt.config.derivatives import SCAN_PICTURES, forget
        from bolt.preprocess.functional.workflow import functional_names, preprocess_functional
        from bolt.preprocess.sidecars import sidecar_of

        scan = self._scan()
        layout, settings = self.layout, self.config.preprocess
        folder = folder_of(scan.scan_id)
        anatomical = folder_of(scan.t1w)

        def work() -> None:
            preprocess_functional(
                Path(scan.bold),
                layout.anatomical(anatomical),
                layout.template,
                settings.space,
                settings.resolution,
                configuration.load_registration(settings.registrations[0]),
                layout.functional(folder),
                layout.work / "preprocess" / folder / scan.scan_id,
                scan_id=scan.scan_id,
                prefix=prefix_of(anatomical),
                tr=scan.tr,
                output=settings.output,
                slice_timing=settings.slice_timing == "auto",
                steady_state=settings.steady_state,
            )
            if not settings.keep_bold:  # the image goes once its series are taken; BIDS wants no JSON file without one
                sidecar_of(layout.bold(scan.scan_id)).unlink(missing_ok=True)

        inputs = [Path(scan.bold), *sorted(layout.anatomical_files(anatomical).values())]
        outcome = self._outcome("functional", layout.functional_status(scan.scan_id), inputs)
        outcome.facts = {"seed": configuration.load_registration(settings.registrations[0]).seed}
        outcome.after(layout.anatomical_status(anatomical))
        outcome.empty = [layout.mask(scan.scan_id), layout.confounds(scan.scan_id)]
        outcome.empty += [] if layout.native else [layout.bold(scan.scan_id)]
        names = functional_names(scan.scan_id, settings.space, settings.output).values()
        forget([layout.functional(folder) / name for name in names], f"{scan.scan_id}_", SCAN_PICTURES)
        outcome.of(work)

    def parcellate(self) -> None:
        from bolt.series.parcellate import parcellate, write_parcellated

        scan = self._scan()
        layout, settings = self.layout, self.config.parcellate
        denoise = configuration.load_denoise(self.config.denoise)
        raw = scan.kind == "raw"
        bold = layout.bold(scan.scan_id) if raw else Path(scan.bold)
        mask = layout.mask(scan.scan_id) if raw else _path(scan.mask)
        confounds = layout.confounds(scan.scan_id) if raw else _path(scan.confounds)

        def work() -> None:
            atlases = [self._atlas(name) for name in self.config.atlas_places]
            outcome.facts = {"atlases": {atlas.name: atlas.sha256 for atlas in atlases}}
            if raw and layout.native:
                results = self._parcellate_native(scan, atlases, denoise)
                return write_parcellated(results, layout.series(scan.scan_id), scan_id=scan.scan_id)
            results = parcellate(
                bold,
                atlases,
                mask=mask,
                confounds=confounds,
                denoise=denoise,
                tr=None if pd.isna(scan.tr) else scan.tr,  # the header's then
                threshold=settings.coverage,
                space=self.config.preprocess.space,
            )
            write_parcellated(results, layout.series(scan.scan_id), scan_id=scan.scan_id)

        read = [Path(scan.bold) if layout.native else bold, mask, confounds]
        inputs = [path for path in read if path is not None]
        outcome = self._outcome("parcellate", layout.series_status(scan.scan_id), inputs)
        if raw:
            outcome.after(layout.functional_status(scan.scan_id))
        elif self.dataset.downloaded:
            outcome.after(self._download_status(scan.scan_id))
        outcome.empty = [layout.series_file(scan.scan_id, atlas) for atlas in self.config.atlas_places]
        outcome.of(work)

    def _parcellate_native(self, scan: pd.Series, atlases: list[Any], denoise: configuration.Denoise) -> dict[str, Any]:
        from bolt.config.derivatives import anatomical_names
        from bolt.preprocess.functional.workflow import functional_names
        from bolt.series.native_space import Transforms, parcellate_native

        settings, anatomical = self.config.preprocess, folder_of(scan.t1w)
        anat, func = self.layout.anatomical(anatomical), self.layout.functional(folder_of(scan.scan_id))
        from_t1w = anatomical_names(prefix_of(anatomical), settings.space)
        made = functional_names(scan.scan_id, settings.space, "native")
        return parcellate_native(
            Path(scan.bold),
            atlases,
            Transforms(
                forward=anat / from_t1w["forward"],
                inverse=anat / from_t1w["inverse"],
                **{name: func / made[name] for name in ("bold_to_t1w", "motion", "mask", "confounds")},
            ),
            space=settings.space,
            denoise=denoise,
            tr=scan.tr,
            threshold=self.config.parcellate.coverage,
            slice_timing=settings.slice_timing == "auto",
        )

    def quality(self) -> None:
        from bolt.cohort.quality import gather_quality

        table = gather_quality(self._scans(), self.config, self.layout)
        log.info("%d of %d scans are left out", (table.state != "ok").sum(), len(table))
        statuses = [self.layout.series_status(scan) for scan in table.scan_id]
        measures = sorted(self.layout.derivatives.glob("sub-*/**/*desc-quality.json"))
        self._note(beside(self.layout.quality), [self.layout.scans, statuses, measures])

    def quality_pages(self) -> None:
        from bolt.preprocess.bidsignore import write_bidsignore
        from bolt.report.pages.quality import write_pages

        write_pages(Study(self.config, self.dataset))
        if (self.layout.derivatives / "dataset_description.json").is_file():
            write_bidsignore(self.layout.derivatives)  # now that it is known who failed
        self._note(beside(self.layout.quality_page), [self.layout.quality])


def _path(value: object) -> Path | None:
    return Path(value) if isinstance(value, str) else None
