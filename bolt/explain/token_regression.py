"""Logistic regressions on a few volumes of each scan: fitted on training scans, evaluated on test scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bolt.evaluate.classes import METRICS, scores
from bolt.io.errors import DataError

LEVELS = {
    "token": "each volume is classified (each scan, where its volumes are one sample)",
    "scan": "majority vote of the volumes of a scan",
    "subject": "majority vote of the volumes of all test scans of a subject that have the same label",
}
"""What is classified; ties are broken by the larger mean probability."""

Chosen = Mapping[str, NDArray[np.intp]]
"""Scan to the volumes of it that a regression sees."""

Regression = tuple[list[dict[str, Any]], NDArray[np.floating]]
"""Rows of metrics, and coefficients, see `FoldScans.regress`."""


class ScanTokens(NamedTuple):
    """A scan: its series (T, rois), whose volumes are its tokens; its label (position in the classes)."""

    name: str
    series: NDArray[np.floating]
    label: int
    subject: str
    group: str


class FoldScans:
    """Training and test scans of one fold, each read once for many regressions.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    table : DataFrame
        scan_id, role; as in ``importance.tsv``.
    classes : sequence of str
        The last is the positive one.
    where : Path
        The fold's folder, for errors.
    side_by_side : bool
        The volumes of a scan are one sample of volumes × rois features, instead of one sample each.

    Raises
    ------
    DataError
        A class has no training scan, or there is no test scan.
    """

    def __init__(
        self, cache: Any, table: pd.DataFrame, classes: Sequence[str], where: Path, *, side_by_side: bool = False
    ) -> None:
        position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
        code = {name: i for i, name in enumerate(classes)}
        labels, *people = (cache.index[name].astype(str).tolist() for name in ("label", "subject", "group"))
        self.n_classes, self.side_by_side = len(classes), side_by_side
        self.parts: dict[str, list[ScanTokens]] = {}
        for role in ("train", "test"):
            named = [(name, position[name]) for name in table.loc[table["role"] == role, "scan_id"]]
            self.parts[role] = [
                ScanTokens(n, cache.series(i), code[labels[i]], *(of[i] for of in people)) for n, i in named
            ]
        present = {scan.label for scan in self.parts["train"]}
        if len(present) < self.n_classes or not self.parts["test"]:
            raise DataError(
                "landmarks cannot be evaluated: a class has no training scan, or there is no test scan",
                where=where,
                hint="Explain the fold again, or use fewer folds",
            )

    @property
    def ratio(self) -> float:
        """Return the number of test groups (families, else subjects) divided by that of training groups."""
        test, train = (len({scan.group for scan in self.parts[role]}) for role in ("test", "train"))
        return test / train

    def only(self, chosen: Chosen) -> FoldScans:
        """Return the same scans with only the chosen volumes, in that order, copied into memory."""
        few = object.__new__(FoldScans)
        few.n_classes, few.side_by_side = self.n_classes, self.side_by_side
        few.parts = {
            role: [scan._replace(series=scan.series[chosen[scan.name]]) for scan in part]
            for role, part in self.parts.items()
        }
        return few

    def regress(self, chosen: Chosen) -> Regression:
        """Fit on training scans, evaluate on test scans.

        L2-regularised logistic regression with ``C=1``, as in the paper's published code, on z-scored ROI values; each
        volume is a sample with its scan's label, or each scan (`side_by_side`).

        Parameters
        ----------
        chosen : mapping
            Volumes of every scan of both parts.

        Returns
        -------
        rows : list of dict
            level (of `LEVELS`), n_test (scans) and the metrics.
        coefficients : float array (classes, rois)
            In log odds per standard deviation; with two classes, those of the first are those of the second with the
            opposite sign. Side by side: mean over the volumes.
        """
        regression = LogisticRegression(C=1.0, max_iter=1000).fit(*self._samples("train", chosen))
        x, truth = self._samples("test", chosen)
        n_rois = self.parts["test"][0].series.shape[1]
        coefficients = regression.coef_.reshape(len(regression.coef_), -1, n_rois).mean(axis=1)
        if self.n_classes == 2:
            coefficients = np.concatenate([-coefficients, coefficients])
        return self._evaluated(regression.predict_proba(x), truth, chosen), coefficients

    def _samples(self, part: str, chosen: Chosen) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return samples (samples, features) and their labels."""
        scans = self.parts[part]
        volumes = [scan.series[chosen[scan.name]] for scan in scans]
        x = np.stack([each.ravel() for each in volumes]) if self.side_by_side else np.concatenate(volumes)
        return x.astype(float), np.repeat([scan.label for scan in scans], self._counts(scans, chosen))

    def _counts(self, scans: Sequence[ScanTokens], chosen: Chosen) -> list[int]:
        """Return the number of samples of each scan."""
        return [1 if self.side_by_side else len(chosen[scan.name]) for scan in scans]

    def _evaluated(
        self, probability: NDArray[np.floating], truth: NDArray[Any], chosen: Chosen
    ) -> list[dict[str, Any]]:
        """Return one row of metrics per level."""
        tests = self.parts["test"]
        n_each = self._counts(tests, chosen)
        subjects = pd.factorize(pd.Series([(scan.subject, scan.label) for scan in tests]))[0]
        units = {"token": range(len(truth)), "scan": np.repeat(range(len(tests)), n_each)}
        units["subject"] = np.repeat(subjects, n_each)
        rows = []
        for level, unit in units.items():
            metrics = _voted(np.asarray(unit), probability, truth)
            rows.append({"level": level, "n_test": len(tests), **{m: float(metrics[m][0]) for m in METRICS}})
        return rows


def _voted(
    unit: NDArray[np.intp], probability: NDArray[np.floating], truth: NDArray[Any]
) -> dict[str, NDArray[np.floating]]:
    """Return the metrics of units whose volumes vote; a unit's probability is the mean over its volumes."""
    votes, means = np.zeros((2, unit.max() + 1, probability.shape[1]))
    np.add.at(votes, (unit, probability.argmax(axis=1)), 1)
    np.add.at(means, unit, probability)
    means /= votes.sum(axis=1, keepdims=True)
    true = np.zeros(len(votes), int)
    true[unit] = truth
    return scores(true, (votes + means / 2).argmax(axis=1), means)
