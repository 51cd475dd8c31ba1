"""ComBat removes planted site effects, and test scans do not influence each other."""

import numpy as np
import pandas as pd
import pytest

from bolt.cohort.covariates import Covariates
from bolt.cohort.harmonise import SiteEffects
from bolt.io.errors import DataError

SITES = np.array(["a", "b", "c"])


def planted(n=150, n_features=60, seed=0, shift=1.0):
    """Return features whose mean and variance differ between three sites, and the sites."""
    random = np.random.default_rng(seed)
    site = SITES[np.arange(n) % 3]
    plain = random.standard_normal((n, n_features))
    effects = np.random.default_rng(99)
    moved, stretched = shift * effects.standard_normal((3, n_features)), effects.uniform(0.6, 1.7, (3, n_features))
    row = np.arange(n) % 3
    return (plain * stretched[row] + moved[row]).astype(np.float32), site


def between(features, site):
    """Return the share of variance between sites, mean over features."""
    means = pd.DataFrame(features).groupby(site).transform("mean").to_numpy()
    return float((means.var(axis=0) / features.var(axis=0)).mean())


def spread_ratio(features, site):
    """Return the ratio of largest to smallest standard deviation of the sites, mean over features."""
    spread = pd.DataFrame(features).groupby(site).std().to_numpy()
    return float((spread.max(axis=0) / spread.min(axis=0)).mean())


def test_a_planted_site_effect_is_removed_from_test_scans():
    training, site = planted(seed=0)
    test, test_site = planted(seed=1)
    changed = SiteEffects.fit(training, site).apply(test, test_site, pooled=False)
    assert between(test, test_site) > 0.25 and between(changed, test_site) < 0.03
    assert spread_ratio(test, test_site) > 1.6 and spread_ratio(changed, test_site) < 1.35


# of five, four and three scans; what neuroCombat 0.2.12, of the authors of Fortin et al. 2018, makes of them
SCANS = """0.0 0.3 -0.27 -0.89  -0.45 -0.99 0.06 1.34  -0.49 -0.62 0.49 0.36
0.11 -0.93 -0.03 0.7  -1.34 -0.46 -1.9 -1.29
-0.84 0.76 -0.27 1.27  1.16 0.81 -1.52 0.46  0.95 1.11 -0.53 0.52  0.02 0.19 2.06 0.19
-1.03 -0.12 -1.58 -1.11  -0.89 -0.94 -2.23 -0.92  0.36 -2.55 -0.14 -0.88"""
HARMONISED = """0.13764 0.46181 -0.22402 -0.65077  -0.32303 -0.87573 0.11092 1.07692  -0.36398 -0.49209 0.54736 0.31766
0.25024 -0.81352 0.01957 0.58108  -1.23413 -0.3262 -1.87843 -0.96067  -1.23617 -0.03397 -0.92239 0.67892
0.46858 0.01891 -1.95314 -0.18677  0.28958 0.3362 -1.13679 -0.12264  -0.50313 -0.63683 0.99892 -0.47533
-0.43149 0.31374 -0.58425 -0.30743  -0.31271 -0.24723 -1.16584 -0.11236  0.74785 -1.34866 0.70421 -0.07129"""


PRESERVED = """0.07049 0.4152 -0.1574 -0.65272  -0.37218 -0.79435 0.13508 1.09537  -0.37183 -0.4609 0.57803 0.30885
0.22571 -0.76895 0.05088 0.58539  -1.18237 -0.29816 -1.78574 -0.91006  -1.32721 -0.04932 -0.99124 0.66853
0.61702 0.04606 -2.22843 -0.2446  0.28771 0.32547 -1.25241 -0.18518  -0.49885 -0.63121 1.31595 -0.53533
-0.4739 0.38098 -0.75242 -0.27265  -0.31721 -0.28477 -0.93745 -0.08857  0.87137 -1.53122 0.46015 -0.04825"""
PEOPLE = pd.DataFrame({"age": [21, 35, 28, 50, 44, 30, 61, 39, 25, 47, 33, 52], "sex": list("FMFFMMFMFMFF")})
SITE = np.repeat(["a", "b", "c"], [5, 4, 3])


@pytest.mark.parametrize(("names", "harmonised"), [([], HARMONISED), (["age", "sex"], PRESERVED)])
def test_it_is_the_published_combat(names, harmonised):
    """Priors are over a site's features, not over the sites of a feature."""
    scans, expected = (np.array(text.split(), np.float32).reshape(12, 4) for text in (SCANS, harmonised))
    kept = Covariates.fit(PEOPLE, names).encode(PEOPLE)
    fitted = SiteEffects.fit(scans, SITE, "combat", kept)
    np.testing.assert_allclose(fitted.apply(scans, SITE, kept, pooled=False), expected, atol=2e-5)


def test_a_covariate_that_is_the_site_is_refused():
    scans = np.array(SCANS.split(), np.float32).reshape(12, 4)
    scanner = pd.DataFrame({"scanner": np.where(SITE == "c", "old", "new"), "sex": PEOPLE["sex"]})
    kept = Covariates.fit(scanner, list(scanner)).encode(scanner)
    with pytest.raises(DataError, match="tell the sites apart") as caught:
        SiteEffects.fit(scans, SITE, "combat", kept)
    assert "'preserve'" in caught.value.hint


def test_no_test_scan_changes_another():
    training, site = planted()
    test, test_site = planted(n=30, seed=1)
    fitted = SiteEffects.fit(training, site)
    together = fitted.apply(test, test_site, pooled=False)
    spoiled = test.copy()
    spoiled[1:] = 1e6
    np.testing.assert_array_equal(fitted.apply(spoiled, test_site, pooled=False)[0], together[0])
    np.testing.assert_array_equal(fitted.apply(test[:1], test_site[:1], pooled=False)[0], together[0])


def test_an_unseen_site_is_refused_or_left_as_it_is():
    training, site = planted()
    fitted = SiteEffects.fit(np.vstack([training, training[:1]]), [*site, "once"])
    assert fitted.sites == ["a", "b", "c"]
    scans = training[:4]
    for name in ("elsewhere", "once", None):
        with pytest.raises(DataError, match=f"1 scans are from sites .*{name or 'none'}") as caught:
            fitted.apply(scans, ["a", "b", name, "c"], pooled=False)
        assert "unseen_site: pooled" in caught.value.hint
        changed = fitted.apply(scans, ["a", "b", name, "c"], pooled=True)
        np.testing.assert_array_equal(changed[2], scans[2])
        assert (changed[[0, 1, 3]] != scans[[0, 1, 3]]).any(axis=1).all()


def test_features_without_variance_are_left_alone_and_one_site_is_not_enough():
    training, site = planted()
    training[:, 5] = 0
    training[site == "b", 7] = 0  # an ROI that one site does not cover
    changed = SiteEffects.fit(training, site).apply(training, site, pooled=False)
    assert not changed[:, 5].any() and np.isfinite(changed).all()
    with pytest.raises(DataError, match="needs two sites"):
        SiteEffects.fit(training, ["a"] * len(site))


def test_means_are_removed_and_nothing_else():
    training, site = planted()
    fitted = SiteEffects.fit(training, site, "means")
    changed = fitted.apply(training, site, pooled=False)
    for name in fitted.sites:
        of_site = np.asarray(site) == name
        np.testing.assert_allclose(changed[of_site].mean(axis=0), training.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(changed[of_site].std(axis=0), training[of_site].std(axis=0), atol=1e-5)
    np.testing.assert_array_equal(fitted.apply(training[:1], ["elsewhere"], pooled=True), training[:1])
