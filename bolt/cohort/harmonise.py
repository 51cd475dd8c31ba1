"""Harmonisation of connectivity: removal of site effects, estimated on training scans without their labels.

``combat`` removes effects on each feature's mean and variance (Johnson et al. 2007, doi:10.1093/biostatistics/kxj037;
Fortin et al. 2018, doi:10.1016/j.neuroimage.2017.11.024), by parametric empirical Bayes, and keeps linear effects of
covariates. ``means`` subtracts the difference between a site's mean and that of all scans. Either is a linear function
for each site and feature; only coefficients are kept, so that a test scan is changed by those of its own site alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config.models import MIN_SCANS
from bolt.io.errors import DataError

log = logging.getLogger(__name__)
TOLERANCE, MOST_STEPS = 1e-4, 1000
"""Relative change at which the estimates of a site have converged, as in the published code."""
TINY = 1e-12


@dataclass(frozen=True)
class SiteEffects:
    """Fitted harmonisation: feature × `scale` + `offset` + covariates · `effects` × (1 - `scale`).

    Attributes
    ----------
    sites : list of str
        Sites to which it was fitted, sorted.
    scale, offset : (sites, F) float32 array
    effects : (K, F) float32 array
        Of the preserved covariates.
    """

    sites: list[str]
    scale: NDArray[np.float32]
    offset: NDArray[np.float32]
    effects: NDArray[np.float32]

    @classmethod
    def fit(
        cls,
        features: NDArray[np.float32],
        sites: Sequence[str] | pd.Series,
        method: str = "combat",
        covariates: NDArray[np.float32] | None = None,
    ) -> SiteEffects:
        """Estimate site effects from training scans.

        Parameters
        ----------
        features : (n, F) array
        sites : (n,) sequence of str
            Sites with fewer than `MIN_SCANS` scans, and scans without a site, are ignored.
        method : {"combat", "means"}
        covariates : (n, K) array, optional
            Encoded covariates whose effects `combat` keeps.

        Raises
        ------
        DataError
            There are fewer than two sites, or their differences cannot be told from those of a covariate.
        """
        site = pd.Series(list(sites), dtype=object)
        counts = site.value_counts()
        known = sorted(str(name) for name in counts.index[counts >= MIN_SCANS])
        if len(known) < 2:
            what = f"harmonising needs two sites with at least {MIN_SCANS} training scans each, not {len(known)}"
            hint = "Set 'harmonise: null' in the model's configuration, or set 'site' in the dataset's file"
            raise DataError(what, hint=hint)
        used = site.isin(known).to_numpy()
        values = features[used].astype(np.float64)
        varies = np.ptp(values, axis=0) > 0
        scale = np.ones((len(known), features.shape[1]), np.float32)
        offset = np.zeros_like(scale)
        if method == "means":
            means = pd.DataFrame(values).groupby(site[used].to_numpy()).mean().loc[known].to_numpy()
            return cls(known, scale, (values.mean(axis=0) - means).astype(np.float32), scale[:0])
        kept = np.zeros((used.sum(), 0)) if covariates is None else covariates[used].astype(np.float64)
        of_site = (site[used].to_numpy()[:, None] == known).astype(np.float64)
        rank = np.linalg.matrix_rank
        if kept.size and rank(np.hstack([of_site, kept])) < len(known) + rank(kept - kept.mean(axis=0)):
            what = "the covariates that ComBat preserves tell the sites apart, so that neither's effect can be "
            what += "estimated"
            raise DataError(what, hint="Remove from 'preserve' what is constant within the sites")
        effects = np.zeros((kept.shape[1], features.shape[1]), np.float32)
        scale[:, varies], offset[:, varies], effects[:, varies] = _combat(values[:, varies], of_site, kept)
        return cls(known, scale, offset, effects)

    def apply(
        self,
        features: NDArray[np.float32],
        sites: Sequence[str] | pd.Series,
        covariates: NDArray[np.float32] | None = None,
        *,
        pooled: bool,
    ) -> NDArray[np.float32]:
        """Harmonise scans.

        Parameters
        ----------
        features : (n, F) array
        sites : (n,) sequence of str
        covariates : (n, K) array, optional
            Those to which it was fitted.
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
            n, names = unseen.sum(), ", ".join(sorted(set(site[unseen].fillna("none").astype(str))))
            if not pooled:
                what = f"{n} scans are from sites with fewer than {MIN_SCANS} training scans ({names})"
                hint = "Set 'unseen_site: pooled' in the model's configuration to leave them unchanged"
                raise DataError(what, hint=hint)
            log.warning("harmonisation: %d scans of sites without training scans (%s) are unchanged", n, names)
        harmonised = features.astype(np.float32)
        rows = row_of_site[~unseen].to_numpy(int)
        harmonised[~unseen] = harmonised[~unseen] * self.scale[rows] + self.offset[rows]
        if covariates is not None:
            harmonised[~unseen] += covariates[~unseen] @ self.effects * (1 - self.scale[rows])
        return harmonised


def _combat(
    values: NDArray[np.float64], of_site: NDArray[np.float64], covariates: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return slope and intercept of each site and feature, (sites, F), and the covariates' effects, (K, F).

    Features are standardised by the mean over all scans, the covariates' effects and the residual standard deviation.
    A site's shifts have a normal prior over its features and its variances an inverse gamma one; both are estimated by
    the method of moments (Johnson et al. 2007, section 3.2).
    """
    n, n_sites = of_site.sum(axis=0), of_site.shape[1]
    design = np.hstack([of_site, covariates])
    coefficients = np.linalg.lstsq(design, values)[0]
    mean, effects = n @ coefficients[:n_sites] / n.sum(), coefficients[n_sites:]
    sd = np.sqrt(((values - design @ coefficients) ** 2).mean(axis=0))
    sd[sd < TINY] = 1.0
    z = (values - mean - covariates @ effects) / sd
    slopes, intercepts = np.empty((n_sites, len(mean))), np.empty((n_sites, len(mean)))
    for row, scans in enumerate(of_site.T.astype(bool)):
        shift, variance = _shrunk(z[scans])
        slopes[row] = 1 / np.sqrt(variance)
        intercepts[row] = mean - (mean + sd * shift) * slopes[row]
    return slopes, intercepts, effects.astype(np.float64)


def _shrunk(z: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the posterior shift and variance of each standardised feature of a site, (F,)."""
    n, n_features = z.shape
    own_shift, own_variance = z.mean(axis=0), np.maximum(z.var(axis=0, ddof=1), TINY)
    if (own_variance == TINY).all():  # copies of one scan, which tell nothing about the spread of others
        return own_shift, np.ones(n_features)
    if n_features < 2:
        return own_shift, own_variance
    m, t2 = own_shift.mean(), own_shift.var(ddof=1)
    v, s2 = own_variance.mean(), max(own_variance.var(ddof=1), TINY)
    shape, scale = 2 + v**2 / s2, v + v**3 / s2
    shift, variance = own_shift, own_variance
    for _ in range(MOST_STEPS):
        before = shift, variance
        shift = (t2 * n * own_shift + variance * m) / (t2 * n + variance)
        variance = (((z - shift) ** 2).sum(axis=0) / 2 + scale) / (n / 2 + shape - 1)
        steps = (np.abs(new - old) / (np.abs(old) + TINY) for new, old in zip((shift, variance), before, strict=True))
        if max(step.max() for step in steps) < TOLERANCE:
            break
    return shift, variance
