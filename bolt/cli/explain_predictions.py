"""Explanations of the scans that ``bolt predict`` has predicted: a folder each, as `bolt explain` writes."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from bolt.api.explanation import explain_members
from bolt.cli.explain_scan import facts_of, known_atlas, using, write_explanation
from bolt.explain.given_scan import GivenScan, find_atlas, name_rois
from bolt.jobs.provenance import provenance
from bolt.packs.known import known_scans
from bolt.packs.pack import Pack
from bolt.packs.sources import NewScans

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
    rois, classes = pack.estimator.members_[0].info["rois"], pack.classes or []
    atlas = find_atlas(argparse.Namespace(**vars(options), labels=None), rois, known_atlas(pack))
    known, space = known_scans(pack, scans.cache), pack.about.get("series", {}).get("space")
    for i, scan in enumerate(scans.cache.index.itertuples()):
        rows = table[table["scan_id"] == scan.scan_id]
        if rows.empty:
            continue
        model, series = using(pack.estimator, known[i].models), scans.cache.series(i)
        explanation = explain_members(model, series, classes.index(rows["predicted"].iloc[0]), TOKENS)
        tr = float(scan.tr) if scan.tr is not None and scan.tr == scan.tr else None
        given = GivenScan(series, np.arange(len(series)), tr, name_rois(rois, atlas.labels), atlas.name)
        given.notes += rows["flags"][rows["flags"].fillna("") != ""].tolist()
        given.add_image(atlas, space)
        facts = facts_of(classes, given, explanation) | {"scan": scan.scan_id, "standardized": True}
        facts["provenance"] = provenance([], model=model.configuration.name, models=len(model.members_))
        write_explanation(given, explanation, facts, options.explain / str(scan.scan_id))
