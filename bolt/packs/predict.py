"""Predictions for new scans by all models of a pack, and whether a scan resembles the training cohort."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.metrics import metrics_of, pooled
from bolt.io.errors import DataError
from bolt.models.parts.temperature import with_temperature
from bolt.packs.cohort import distance, flags, percentile, refusal
from bolt.packs.floor import floor_name, predict_floor
from bolt.packs.known import KNOWN, TRAINED, Known, known_scans
from bolt.packs.pack import Pack
from bolt.packs.sources import NewScans, Wanted
from bolt.series.connectivity import connectivity
from bolt.series.parcellate import NATIVE
from bolt.training.ensembles import predict_each

log = logging.getLogger(__name__)

COLUMNS = {
    "scan_id": "Scan",
    "subject": "Subject",
    "group": "Family if known, else subject",
    "label": "True class, or number, if given",
    "predicted": "Most probable class, or number in the unit of the label",
    "agreement": "Share of the models that predict this class",
    "spread": "Standard deviation (ddof 0) over models of the predicted class's probability, or of the number",
    "n_models": "Models that were averaged",
    "training_scan": "The same recording in the training cohort: it is predicted by those models alone that were not "
    "trained on its subject, if there are any; n/a: none, or the models are a pack, which does not know its cohort",
    "n_volumes": "Volumes of the series",
    "tr": "Repetition time in seconds",
    "mean_fd": "Mean framewise displacement in mm",
    "n_uncovered": "ROIs without a signal",
    "distance": "1 minus the correlation of the scan's functional connectivity with the training cohort's mean",
    "distance_percentile": "Share of the training cohort that is nearer to its mean, in percent",
    "flags": "In what the scan differs from the training cohort",
}
EXCLUDED = {"scan_id": "Scan", "stage": "Always predict", "reason": "Why it is not predicted"}
METRIC_COLUMNS = {
    "model": "The model; the model with calibrated probabilities; or a logistic regression of the training cohort's "
    "label on motion, age or sex alone",
    "metric": "Metric, as in metrics.tsv of a run",
    "value": "Its value over all labelled new scans",
    "low": "Lower end of its 95 % interval; n/a: too few groups",
    "high": "Upper end",
    "n_scans": "Labelled scans",
    "n_groups": "Their subjects or families",
}


def wanted_by(pack: Pack) -> Wanted:
    """Return what series must be for a pack."""
    about, info = pack.about, pack.estimator.members_[0].info
    rois = about.get("rois") or {"value": info["rois"], "name": [f"ROI {value}" for value in info["rois"]]}
    series = about.get("series", {})
    denoising = (series.get("denoising") or {}).get("name")
    shortest = max(member.shortest for member in pack.estimator.members_)
    atlas = about.get("atlas", {"name": "", "sha256": None})
    space = NATIVE if series.get("output") == NATIVE else series.get("space")
    return Wanted(pd.DataFrame(rois), atlas["name"], atlas["sha256"], space, denoising, shortest)


def predict_scans(pack: Pack, scans: NewScans, *, any_tr: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Predict new scans.

    Parameters
    ----------
    pack : Pack
    scans : NewScans
    any_tr : bool
        Predict scans of any repetition time.

    Returns
    -------
    table : DataFrame
        `COLUMNS` (label only if known), and after ``predicted`` for each class ``p_<class>``, the mean over models, and
        ``calibrated_<class>``, the mean after temperature scaling, where the pack has a temperature.
    excluded : DataFrame
        `EXCLUDED`.

    """
    excluded = [(name, "predict", reason) for name, reason in scans.excluded]
    cache, used, rows = scans.cache, list[int](), list[dict[str, Any]]()
    for i, scan in enumerate(cache.index.itertuples() if cache is not None else ()):
        reason = _unseen_site(pack, scan.site)
        reason = reason or ("" if any_tr else refusal(scan, pack.about.get("cohort", {})))
        if reason:
            excluded.append((str(scan.scan_id), "predict", reason))
        else:
            used.append(i)
    if cache is not None and used:
        known = known_scans(pack, cache)
        values = predict_each(pack.estimator.members_, cache, pack.estimator.device, used)
        scan_rows = list(cache.index.itertuples())
        for position, i in enumerate(used):
            compared = _compared(pack, scan_rows[i], cache.series(i), int(scans.n_uncovered[i]), known[i])
            label = {"label": scans.labels.iloc[i]} if scans.labels is not None else {}
            rows.append(label | _combined(pack, values[known[i].models, position]) | compared)
    return _ordered(pd.DataFrame(rows), pack), pd.DataFrame(excluded, columns=list(EXCLUDED))


def _compared(pack: Pack, scan: Any, series: NDArray[np.floating], n_uncovered: int, known: Known) -> dict[str, Any]:
    """Return what a scan is, which models predict it, and in what it differs from the training cohort."""
    row = {"scan_id": scan.scan_id, "subject": scan.subject, "group": scan.group, "training_scan": known.twin}
    row |= {"n_models": int(known.models.sum()), "n_volumes": scan.length, "tr": scan.tr, "mean_fd": scan.mean_fd}
    cohort, place = pack.about.get("cohort", {}), None
    if pack.facts is not None:
        away = distance(connectivity(series), pack.facts.connectivity)
        place = percentile(away, cohort["distance"])
        row |= {"distance": away, "distance_percentile": place}
    found = [known.flag, *flags(scan, n_uncovered, place, cohort)]
    return row | {"n_uncovered": n_uncovered, "flags": "; ".join(filter(None, found))}


def _unseen_site(pack: Pack, site: Any) -> str:
    """Return why models that remove site effects cannot read a scan of this site; empty if they can."""
    for part in (part for member in pack.estimator.members_ for part in member.parts):
        effects = getattr(part.model, "site_effects", None)
        if effects is not None and part.info["model"]["unseen_site"] != "pooled" and site not in effects.sites:
            name = f"site '{site}'" if isinstance(site, str) else "no site"
            return f"{name}, but the models remove the effects of the sites that they know: {', '.join(effects.sites)}"
    return ""


def _combined(pack: Pack, values: NDArray[np.float64]) -> dict[str, Any]:
    """Combine the predictions of some models for one scan, (models, classes) or (models,)."""
    classes = pack.classes
    if classes is None:
        return {"predicted": float(values.mean()), "spread": float(values.std())}
    mean = values.mean(axis=0)
    best = int(mean.argmax())
    row: dict[str, Any] = {"predicted": classes[best]}
    row |= {f"p_{name}": float(p) for name, p in zip(classes, mean, strict=True)}
    if temperature := pack.about.get("temperature"):
        calibrated = with_temperature(values, temperature).mean(axis=0)
        row |= {f"calibrated_{name}": float(p) for name, p in zip(classes, calibrated, strict=True)}
    agreement = float((values.argmax(axis=1) == best).mean())
    return row | {"agreement": agreement, "spread": float(values[:, best].std())}


def _ordered(table: pd.DataFrame, pack: Pack) -> pd.DataFrame:
    """Return the columns in their documented order."""
    names = column_descriptions(pack)
    return table.reindex(columns=[name for name in names if name in table or name != "label"])


def column_descriptions(pack: Pack) -> dict[str, str]:
    """Return the columns of the table of predictions with their descriptions, in order."""
    probabilities = {f"p_{name}": f"Probability of class {name}, mean over models" for name in pack.classes or ()}
    if pack.about.get("temperature"):
        probabilities |= {
            f"calibrated_{name}": f"The same after temperature scaling of each model ({pack.about['temperature']:g})"
            for name in pack.classes or ()
        }
    columns = {}
    for name, description in COLUMNS.items():
        if pack.classes is not None or name != "agreement":
            columns[name] = description
        if name == "predicted":
            columns |= probabilities
    return columns


def external_metrics(pack: Pack, table: pd.DataFrame, scans: NewScans) -> pd.DataFrame:
    """Compute the metrics of labelled new scans, and of the confound floor.

    Parameters
    ----------
    pack : Pack
    table : DataFrame
        From `predict_scans`, with labels.
    scans : NewScans

    Returns
    -------
    DataFrame
        `METRIC_COLUMNS`.

    Raises
    ------
    DataError
        A label is missing, or is no class of the model.
    """
    classes = pack.classes
    known = table[table["label"].notna() & ~table["flags"].str.startswith(TRAINED)]
    if known.empty:
        raise DataError("no predicted scan has a label, unless the models were trained on it", hint="Leave --label out")
    if classes is not None:
        strange = sorted(set(known["label"].astype(str)) - set(classes))
        if strange:
            raise DataError(
                f"label '{strange[0]}' is no class of the model",
                hint=f"Its classes: {', '.join(classes)}. Rename yours",
            )
    judged = {"model": known}
    if pack.about.get("temperature"):
        p = known[[f"calibrated_{name}" for name in classes or ()]].to_numpy()
        named = {f"p_{name}": p[:, k] for k, name in enumerate(classes or ())}
        judged["model, calibrated"] = known.assign(predicted=[(classes or [])[k] for k in p.argmax(axis=1)], **named)
    of_cohort = known["training_scan"].notna() | known["flags"].str.contains(KNOWN, regex=False)
    if of_cohort.any() and pack.floor is not None:
        log.info(
            "no confound floor: %d of these scans are of the training cohort, to which it is fitted", of_cohort.sum()
        )
    can = pack.floor is not None and scans.cache is not None and not of_cohort.any()
    floor = predict_floor(pack.floor, scans.cache) if can else None  # type: ignore[arg-type]
    if floor is not None and pack.floor is not None:
        judged[floor_name(pack.floor)] = known[["scan_id", "label", "group"]].join(floor, on="scan_id")
    rows = []
    for name, predictions in judged.items():
        summary = pooled(predictions, classes)
        counts = {"n_scans": len(predictions), "n_groups": summary["n_groups"]}
        rows += [{"model": name, "metric": metric, **summary[metric], **counts} for metric in metrics_of(classes)]
    return pd.DataFrame(rows, columns=list(METRIC_COLUMNS))
