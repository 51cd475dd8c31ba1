"""Outcome of the sanity checks: correlations over scans, and what they show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from bolt.explain.trust.similarity import FEWEST, GONE, contrast_and_interval, mean_and_interval

SANITY_COLUMNS = {
    "check": "cascade: all layers from the classifier down to this one are random; independent: only this layer is "
    "random; permuted labels: a model trained on permuted labels; trained again: the positive control, a model trained "
    "in the same way with another seed",
    "step": "cascade: number of random layers; else n/a",
    "layer": "layer that was randomised last; n/a for other models",
    "fold": "outer fold whose model was checked; 'all': the test scans of all folds together",
    "rho": "Spearman's correlation of a scan's importance with the original, after the mean curve of the other scans "
    "is removed from both; mean over test scans (and over draws of random weights)",
    "low": f"lower end of its 95 % bootstrap interval over families (else subjects); n/a with fewer than {FEWEST}",
    "high": "upper end",
    "rho_raw": "the same without removing the mean curve, so that it includes the effect of position",
    "raw_low": "lower end of its interval",
    "raw_high": "upper end",
    "n_scans": "number of test scans",
    "n_undefined": "number of them without a rank correlation, because nothing is left after the mean curve is "
    "removed; if more than half, rho is n/a",
    "contrast": "for the last step of each check: rho of the model trained again minus |rho|, on the scans of both",
    "contrast_low": "lower end of its 95 % bootstrap interval",
    "contrast_high": "upper end",
    "verdict": "for the last step of each check, all folds together: 'not passed' if rho is undefined or "
    f"|rho| >= {GONE}; 'not shown' if its interval is not between -{GONE} and {GONE}; 'no control' without a model "
    "trained again; 'not reproducible' unless rho of that model and the contrast have intervals above 0; else "
    "'passed'. For the model trained again: 'reproducible' if the interval of rho is above 0, else 'not reproducible'. "
    "'not done': see note. n/a in other rows",
    "note": "remarks",
}
KEYS = ["check", "step", "layer"]
PERMUTED, RETRAINED = "permuted labels", "trained again"


class Interval(NamedTuple):
    """An estimate and its 95 % interval; NaN where undefined."""

    value: float
    low: float
    high: float

    @property
    def is_positive(self) -> bool:
        """Return whether the whole interval is above 0."""
        return self.low > 0

    @property
    def is_none(self) -> bool:
        """Return whether the whole interval is closer to 0 than `GONE`: an equivalence test, of two one-sided ones."""
        return self.low > -GONE and self.high < GONE


def summary(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return mean and interval of each check and layer, for all folds together and for each fold.

    Parameters
    ----------
    comparisons : DataFrame
        One row per scan, check, layer and draw: scan_id, group, fold, `KEYS`, rho, rho_raw.

    Returns
    -------
    DataFrame
        Columns of `SANITY_COLUMNS`.
    """
    single = comparisons.groupby([*KEYS, "fold", "scan_id", "group"], sort=False, dropna=False, as_index=False)
    scans = single[["rho", "rho_raw"]].mean()
    retrained = scans.loc[scans["check"] == RETRAINED, ["fold", "scan_id", "group", "rho"]]
    control = Interval(*mean_and_interval(retrained["rho"].to_numpy(), retrained["group"])) if len(retrained) else None
    last = {"cascade": scans.loc[scans["check"] == "cascade", "step"].max(), PERMUTED: np.nan}
    rows = []
    for whole in (True, False):
        for _, part in scans.groupby(KEYS if whole else ["fold", *KEYS], sort=False, dropna=False):
            keys = part.iloc[0][KEYS].to_dict()
            check, rho = keys["check"], Interval(*mean_and_interval(part["rho"].to_numpy(), part["group"]))
            contrast, outcome = None, None
            if whole and check == RETRAINED:
                outcome = reproducibility(rho)
            elif whole and check in last and (check == PERMUTED or keys["step"] == last[check]):
                both = part.merge(retrained, on=["fold", "scan_id", "group"], suffixes=("", "_control"))
                values = both["rho_control"].to_numpy(), both["rho"].to_numpy()
                contrast = Interval(*contrast_and_interval(*values, both["group"])) if control else None
                outcome = verdict(rho, control, contrast)
            raw = Interval(*mean_and_interval(part["rho_raw"].to_numpy(), part["group"]))
            rows.append(
                {
                    **keys,
                    "fold": "all" if whole else part["fold"].iloc[0],
                    **{"rho": rho.value, "low": rho.low, "high": rho.high},
                    **{"rho_raw": raw.value, "raw_low": raw.low, "raw_high": raw.high},
                    "n_scans": len(part),
                    "n_undefined": int(part["rho"].isna().sum()),
                    **dict(zip(("contrast", "contrast_low", "contrast_high"), contrast or (), strict=False)),
                    "verdict": outcome,
                    "note": None,
                }
            )
    return pd.DataFrame(rows, columns=list(SANITY_COLUMNS))


def reproducibility(rho: Interval) -> str:
    """Return what the model trained again shows; 'not shown' if too few scans have an interval."""
    if np.isnan(rho.low):
        return "not shown"
    return "reproducible" if rho.is_positive else "not reproducible"


def verdict(rho: Interval, control: Interval | None, contrast: Interval | None) -> str:
    """Return the outcome of a check, see `SANITY_COLUMNS`.

    Parameters
    ----------
    rho : Interval
        Correlation that remains.
    control : Interval or None
        Correlation of the model trained again.
    contrast : Interval or None
        By how much the control exceeds the size of what remains, on the same scans.
    """
    if not abs(rho.value) < GONE:
        return "not passed"
    if not rho.is_none:
        return "not shown"
    if control is None or contrast is None or np.isnan(control.low) or np.isnan(contrast.low):
        return "no control"
    return "passed" if control.is_positive and contrast.is_positive else "not reproducible"
