"""Harmonisation of connectivity: removal of site effects, estimated on training scans without their labels.

``combat`` removes effects on each feature's mean and variance: estimates are combatlearn's (Johnson et al. 2007,
Biostatistics 8:118; Fortin et al. 2018, NeuroImage 167:104), parametric empirical Bayes, without covariates. ``means``
subtracts the difference between a site's mean and that of all scans. Either is a linear function for each site
and feature; only slopes and intercepts are kept, so that a test scan is changed by those of its own site alone.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config.models import MIN_SCANS
from bolt.io.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SiteEffects:
    """Fitted harmonisation: feature × `scale` + `offset`.

    Attributes
    ----------
    sites : list of str
        Sites to which it was fitted, sorted.
    scale, offset : (sites, F) float32 array
    """

    sites: list[str]
    scale: NDArray[np.float32]
    offset: NDArray[np.float32]

    @classmethod
    def fit(
        cls, features: NDArray[np.float32], sites: Sequence[str] | pd.Series, method: str = "combat"
    ) -> SiteEffects:
        """Estimate site effects from training scans.

        Parameters
        ----------
        features : (n, F) array
        sites : (n,) sequence of str
            Sites with fewer than `MIN_SCANS` scans, and scans without a site, are ignored.
        method : {"combat", "means"}

        Raises
        ------
        DataError
            There are fewer than two sites.
        """
        site = pd.Series(list(sites), dtype=object)
        counts = site.value_counts()
        known = sorted(str(name) for name in counts.index[counts >= MIN_SCANS])
        if len(known) < 2:
            raise DataError(
                f"harmonising needs two sites with at least {MIN_SCANS} training scans each, not {len(known)}",
                hint="Set 'harmonise: null' in the model's configuration, or set 'site' in the dataset's file",
            )
        used = site.isin(known).to_numpy()
        values = features[used].astype(np.float64)
        varies = np.ptp(values, axis=0) > 0
        scale = np.ones((len(known), features.shape[1]), np.float32)
        offset = np.zeros_like(scale)
        if method == "means":
            means = pd.DataFrame(values).groupby(site[used].to_numpy()).mean().loc[known].to_numpy()
            return cls(known, scale, (values.mean(axis=0) - means).astype(np.float32))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scale[:, varies], offset[:, varies] = _slopes(values[:, varies], site[used].to_numpy(), known)
        for text in sorted({str(warning.message) for warning in caught}):
            log.info("ComBat: %s", text)
        return cls(known, scale, offset)

    def apply(
        self, features: NDArray[np.float32], sites: Sequence[str] | pd.Series, *, pooled: bool
    ) -> NDArray[np.float32]:
        """Harmonise scans.

        Parameters
        ----------
        features : (n, F) array
        sites : (n,) sequence of str
        pooled : bool
            Use the pooled estimate for scans of other sites, which leaves them unchanged; if False, refuse them.

        Raises
        ------
        DataError
            There is a scan of another site, and not `pooled`.
        """
        site = pd.Series(list(sites), dtype=object)
        row_of_site = site.map({name: row for row, name in enumerate(self.sites)})
        unseen = row_of_site.isna().to_numpy()
        if unseen.any():
            names = ", ".join(sorted(set(site[unseen].fillna("none").astype(str))))
            if not pooled:
                raise DataError(
                    f"{unseen.sum()} scans are from sites with fewer than {MIN_SCANS} training scans ({names})",
                    hint="Set 'unseen_site: pooled' in the model's configuration to leave them unchanged",
                )
            log.warning(
                "harmonisation: %d scans of sites without training scans (%s) are unchanged", unseen.sum(), names
            )
        harmonised = features.astype(np.float32)
        rows = row_of_site[~unseen].to_numpy(int)
        harmonised[~unseen] = harmonised[~unseen] * self.scale[rows] + self.offset[rows]
        return harmonised


def _slopes(
    values: NDArray[np.float64], site: NDArray[np.object_], known: list[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return slope and intercept of each site and feature, (sites, F), by applying the fitted ComBat to 0 and 1."""
    n = len(values)
    batch = pd.Series([*site, *known, *known])
    from combatlearn import ComBat  # trainings without harmonisation need not wait for it

    combat = ComBat(batch=batch, method="fortin")
    combat.fit(pd.DataFrame(values, index=range(n)))
    probes = np.repeat([0.0, 1.0], len(known))[:, None] * np.ones(values.shape[1])
    transformed = combat.transform(pd.DataFrame(probes, index=range(n, n + len(probes)))).to_numpy()
    zeros, ones = transformed[: len(known)], transformed[len(known) :]
    return ones - zeros, zeros
