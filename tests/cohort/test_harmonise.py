"""ComBat removes planted site effects, and test scans do not influence each other."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.cohort.covariates import Covariates
from bolt.cohort.harmonise import SiteEffects
from bolt.io.errors import DataError

SITES = np.array(["a", "b", "c"])


def planted(n=150, n_features=60, seed=0):
    """Return features whose mean and variance differ between three sites, and the sites."""
    effects, row = np.random.default_rng(99), np.arange(n) % 3
    moved, stretched = effects.standard_normal((3, n_features)), effects.uniform(0.6, 1.7, (3, n_features))
    plain = np.random.default_rng(seed).standard_normal((n, n_features))
    return (plain * stretched[row] + moved[row]).astype(np.float32), SITES[row]


PEOPLE = pd.read_csv(Path(__file__).with_name("combat.tsv"), sep="\t")
"""Scans of three sites, and what neuroCombat 0.2.12, of the authors of Fortin et al. 2018, makes of them."""
SITE, SCANS = PEOPLE["site"].to_numpy(str), PEOPLE.filter(like="scan_").to_numpy(np.float32)


@pytest.mark.parametrize(("names", "harmonised"), [([], "harmonised_"), (["age", "sex"], "preserved_")])
def test_it_is_the_published_combat(names, harmonised):
    """Priors are over a site's features, not over the sites of a feature."""
    kept = Covariates.fit(PEOPLE, names).encode(PEOPLE)
    fitted = SiteEffects.fit(SCANS, SITE, "combat", kept)
    expected = PEOPLE.filter(like=harmonised)
    np.testing.assert_allclose(fitted.apply(SCANS, SITE, kept, pooled=False), expected, atol=2e-5)


def test_a_covariate_that_is_the_site_is_refused():
    scanner = pd.DataFrame({"scanner": np.where(SITE == "c", "old", "new"), "sex": PEOPLE["sex"]})
    kept = Covariates.fit(scanner, list(scanner)).encode(scanner)
    with pytest.raises(DataError, match="tell the sites apart") as caught:
        SiteEffects.fit(SCANS, SITE, "combat", kept)
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


def test_copies_of_a_scan_do_not_stretch_others_of_their_site():
    features, sites = planted(30)
    features[1], sites = features[0], np.array(["copied"] * 2 + list(sites[2:]))
    fitted = SiteEffects.fit(features, sites, "combat")
    new = fitted.apply(planted(30, seed=1)[0], np.array(["copied"] * 30), None, pooled=False)
    assert np.abs(new).max() < 20


def test_means_are_removed_and_nothing_else():
    training, site = planted()
    fitted = SiteEffects.fit(training, site, "means")
    changed = fitted.apply(training, site, pooled=False)
    for name in fitted.sites:
        of_site = np.asarray(site) == name
        np.testing.assert_allclose(changed[of_site].mean(axis=0), training.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(changed[of_site].std(axis=0), training[of_site].std(axis=0), atol=1e-5)
    np.testing.assert_array_equal(fitted.apply(training[:1], ["elsewhere"], pooled=True), training[:1])
