"""ComBat on connectivity: what a site adds to each feature's mean and variance, estimated and removed.

The estimates are combatlearn's (Johnson et al. 2007, Biostatistics 8:118; Fortin et al. 2018, NeuroImage 167:104):
empirical Bayes, parametric, no covariates. The label plays no part, neither in training nor in test. What ComBat does
to a scan is a line for each site and feature; these lines are all that is kept, so that a test scan is changed by its
own site's line and by nothing else.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from combatlearn import ComBat
from numpy.typing import NDArray

from bolt.io.errors import DataError

log = logging.getLogger(__name__)

FEWEST = 2
"""Training scans of a site without which its variance cannot be estimated."""


@dataclass(frozen=True)
class Combat:
    """Fitted harmonisation: feature × `scale` + `offset`.

    Attributes
    ----------
    sites : list of str
        Sorted; those that were learned.
    scale, offset : (sites, F) float32 array
    """

    sites: list[str]
    scale: NDArray[np.float32]
    offset: NDArray[np.float32]

    @classmethod
    def fit(cls, features: NDArray[np.float32], sites: Sequence[str] | pd.Series) -> Combat:
        """Estimate from training scans.

        Parameters
        ----------
        features : (n, F) array
        sites : (n,) sequence of str
            Sites with fewer than two scans, and scans without a site, are left out.

        Raises
        ------
        DataError
            Fewer than two sites.
        """
        site = pd.Series(list(sites), dtype=object)
        counts = site.value_counts()
        known = sorted(str(name) for name in counts.index[counts >= FEWEST])
        if len(known) < 2:
            raise DataError(
                f"ComBat needs two sites with at least {FEWEST} training scans each, there are {len(known)}",
                hint="Set 'harmonise: null' in the model's configuration, or name the dataset's column 'site'",
            )
        used = site.isin(known).to_numpy()
        values = features[used].astype(np.float64)
        varies = np.ptp(values, axis=0) > 0
        scale = np.ones((len(known), features.shape[1]), np.float32)
        offset = np.zeros_like(scale)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            scale[:, varies], offset[:, varies] = _lines(values[:, varies], site[used].to_numpy(), known)
        for text in sorted({str(warning.message) for warning in said}):
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
            Give scans of a site that was not learned the pooled estimate, under which they stay as they are; else
            refuse them.

        Raises
        ------
        DataError
            Such a scan, and not `pooled`.
        """
        site = pd.Series(list(sites), dtype=object)
        place = site.map({name: row for row, name in enumerate(self.sites)})
        unseen = place.isna().to_numpy()
        if unseen.any():
            names = ", ".join(sorted(set(site[unseen].fillna("none").astype(str))))
            if not pooled:
                raise DataError(
                    f"{unseen.sum()} scans are from sites with fewer than {FEWEST} training scans ({names})",
                    hint="Set 'unseen_site: pooled' in the model's configuration to leave them as they are",
                )
            log.warning(
                "ComBat: %d scans of sites that were not learned (%s) are left as they are", unseen.sum(), names
            )
        changed = features.astype(np.float32)
        rows = place[~unseen].to_numpy(int)
        changed[~unseen] = changed[~unseen] * self.scale[rows] + self.offset[rows]
        return changed


def _lines(
    values: NDArray[np.float64], site: NDArray[np.object_], known: list[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope and intercept of each site and feature, (sites, F): what the fitted ComBat makes of ones and of zeros."""
    n = len(values)
    batch = pd.Series([*site, *known, *known])
    combat = ComBat(batch=batch, method="fortin")
    combat.fit(pd.DataFrame(values, index=range(n)))
    probes = np.repeat([0.0, 1.0], len(known))[:, None] * np.ones(values.shape[1])
    made = combat.transform(pd.DataFrame(probes, index=range(n, n + len(probes)))).to_numpy()
    zeros, ones = made[: len(known)], made[len(known) :]
    return ones - zeros, zeros
