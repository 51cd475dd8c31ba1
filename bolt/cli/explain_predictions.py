"""Explanations of the scans that ``bolt predict`` has predicted: a folder each, as `bolt explain` writes."""

from __future__ import annotations

import argparse
import logging
from copy import copy
from typing import Any

import numpy as np
import pandas as pd

from bolt.api.explanation import explain_members
from bolt.atlases.image import load_atlas
from bolt.cli.explain_scan import facts_of, write_explanation
from bolt.explain.given_scan import GivenScan
from bolt.io.errors import BoltError
from bolt.io.text import shorten_list
from bolt.jobs.provenance import provenance
from bolt.packs.known import known_scans
from bolt.packs.pack import Pack
from bolt.packs.predict import wanted_by
from bolt.packs.sources import NewScans

log = logging.getLogger("bolt")

TOKENS = 5
"""Landmarks at which contributions are computed, as in `bolt explain`."""


def explain_predictions(pack: Pack, scans: NewScans, table: pd.DataFrame, options: argparse.Namespace) -> None:
    """Explain the predicted class of every predicted scan, in ``<explain>/<scan_id>``.

    Parameters
    ----------
    pack : Pack
        Of BolT models on series alone.
    scans : NewScans
    table : DataFrame
        From `bolt.packs.predict.predict_scans`.
    options : Namespace
        model, explain, atlas.
    """
    assert scans.cache is not None, "there is a prediction"
    wanted = wanted_by(pack)
    rois, image, space, note = _atlas(pack, options.atlas or wanted.atlas)
    classes = pack.classes or []
    made_from = provenance([], models=len(pack.estimator.members_), model=pack.estimator.configuration.name)
    known = known_scans(pack, scans.cache)
    for i, scan in enumerate(scans.cache.index.itertuples()):
        rows = table[table["scan_id"] == scan.scan_id]
        if rows.empty:
            continue
        predicted = classes.index(rows["predicted"].iloc[0])
        series = scans.cache.series(i)
        model = copy(pack.estimator)
        model.members_ = [member for member, used in zip(model.members_, known[i].models, strict=True) if used]
        explanation = explain_members(model, series, predicted, TOKENS)
        tr = float(scan.tr) if scan.tr is not None and scan.tr == scan.tr else None
        given = GivenScan(series, np.arange(len(series)), tr, rois, wanted.atlas, image, space)
        given.notes = [text for text in (rows["flags"].iloc[0], note) if isinstance(text, str) and text]
        facts = facts_of(classes, given, explanation) | {"scan": scan.scan_id}
        facts |= {"standardized": True, "provenance": made_from}
        write_explanation(given, explanation, facts, options.explain / str(scan.scan_id))


def _atlas(pack: Pack, name: str) -> tuple[pd.DataFrame, Any, str, str]:
    """Return the model's ROIs, the atlas's image and its space, and why there is no image."""
    rois = pd.DataFrame(pack.about.get("rois") or wanted_by(pack).rois)
    rois = rois.reindex(columns=["value", "name", "network", "hemisphere"])
    space = pack.about.get("series", {}).get("space")
    try:
        atlas = load_atlas(name, space=space)
    except BoltError as error:
        return rois, None, "", f"No map: {error}"
    missing = set(rois["value"]) - set(atlas.labels["value"])
    if missing:
        absent = shorten_list([str(value) for value in sorted(missing)])
        return rois, None, "", f"No map: the atlas's image lacks ROIs of the model ({absent})."
    return rois, atlas.image, space or next(iter(atlas.spaces), ""), ""
