"""The page that explains one scan: its importance curve, landmarks and map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn import plotting

from bolt.explain.courses import COURSE, Course, on_grid
from bolt.explain.given_scan import GivenScan
from bolt.explain.tasks import block_table, curve_table, event_masks
from bolt.report.figures.series import time_course
from bolt.report.figures.style import DIVERGING, canvas
from bolt.report.figures.tasks import draw_course
from bolt.report.figures.trust import colour_map
from bolt.report.html import Block, Chapter, Picture, Table, Text, write_page

LISTED = 12  # ROIs in the page's table
DRAWN = 0.1
"""Share of the ROIs, the strongest, in the picture of the map; the map itself has all."""


def write_one_scan(
    scan: GivenScan,
    facts: dict[str, Any],
    tables: Sequence[pd.DataFrame],
    image: nib.Nifti1Image | None,
    out: Path,
    *,
    shift: float = 0.0,
) -> None:
    """Write ``index.html`` and its pictures, each as PNG, SVG and PDF.

    Parameters
    ----------
    scan : GivenScan
    facts : dict
        ``explanation.json``.
    tables : sequence of DataFrame
        importance.tsv, landmarks.tsv, rois.tsv.
    image : image, optional
        The contributions painted on the atlas.
    out : Path
        Folder.
    shift : float
        Seconds by which events are drawn later.
    """
    for name in ("events", "map"):
        for suffix in (".png", ".svg", ".pdf"):
            (out / f"{name}{suffix}").unlink(missing_ok=True)  # of an earlier call
    chapters = [
        Chapter("Which moments", _moments(scan, facts["explained"], tables, out, shift)),
        Chapter("Which regions, at these moments", _regions(facts, tables[2], image, out)),
    ]
    if scan.notes:
        chapters.insert(0, Chapter("Warnings", [Text(note, warning=True) for note in scan.notes]))
    write_page(
        "one_scan.html",
        out / "index.html",
        title=facts["scan"],
        lead=_lead(facts),
        facts=_facts(facts),
        chapters=chapters,
    )


def _lead(facts: dict[str, Any]) -> str:
    """Return the first sentences of the page."""
    name, predicted = facts["explained"], facts["predicted"]
    probability = {label: _plain(p) for label, p in facts["probabilities"].items()}
    start = f"The model classifies this scan as “{predicted}” (probability {probability[predicted]}). This page shows"
    if name == predicted:
        return f"{start} what that rests on."
    return f"{start} the evidence for and against “{name}” (probability {probability[name]}), as requested."


def _plain(p: float) -> str:
    """Format a probability; those near 0 and 1 are not reliable to the third digit."""
    return "> 0.99" if p > 0.99 else "< 0.01" if p < 0.01 else f"{p:.2f}"


def _facts(facts: dict[str, Any]) -> dict[str, str]:
    """Return the key facts, name to value."""
    known, tested = facts["provenance"], facts["tested"]
    shown = {"class explained": facts["explained"], "probability": _plain(facts["probability"])}
    if tested is not None:
        right, scans = tested["right"], tested["scans"]
        shown["right in its test scans"] = f"{right} of {scans} ({right / scans:.0%})"
    return shown | {
        "scan": f"{facts['n_volumes']} volumes" + (f", TR {facts['tr']:g} s" if facts["tr"] else ""),
        "ROIs": f"{facts['n_rois']}" + (f" ({facts['atlas']})" if facts["atlas"] else ""),
        "model": f"{known['model']}" + (f", mean of {known['models']} models" if known["models"] > 1 else ""),
    }


def _moments(scan: GivenScan, name: str, tables: Sequence[pd.DataFrame], out: Path, shift: float) -> list[Block]:
    """Show importance above the series, importance beside the task's events, and the landmarks."""
    volumes, landmarks, _ = tables
    weights, rows = volumes["relative"].to_numpy(), np.flatnonzero(volumes["volume"].isin(landmarks["volume"]))
    time_course(weights, scan.series, scan.rois, rows, scan.tr or np.nan, out / "importance.png", volumes=scan.volumes)
    caption = (
        f"Above: importance of each volume for “{name}”, divided by the scan's mean; the landmarks are shaded. Below: "
        "the ROI series, by network where it is known."
    )
    blocks: list[Block] = [Picture(out / "importance.png", caption)]
    if scan.events is not None and scan.tr is not None:
        course = Course(dict.fromkeys(COURSE, ""), [name], scan.tr, on_grid(weights, scan.volumes)[None], [scan.events])
        _draw_events(course, shift, out / "events.png")
        blocks.append(Picture(out / "events.png", "Importance, divided by the scan's mean, and the task's events."))
    shown = {"rank": landmarks["rank"].astype(str), "volume": landmarks["volume"].astype(str)}
    shown |= {"time (s)": [f"{t:.1f}" for t in landmarks["seconds"]]} if scan.tr else {}
    shown |= {"importance / mean": [f"{value:.2f}" for value in landmarks["relative"]]}
    caption = "Landmarks: the most important volumes, counted from 0."
    return [*blocks, Table(pd.DataFrame(shown), caption, Path("landmarks.tsv"))]


def _draw_events(course: Course, shift: float, out: Path) -> None:
    """Draw importance beside the events."""
    with canvas(out, height=1.8) as figure:
        axis, key = figure.subplots(1, 2, width_ratios=[5.5, 1])
        draw_course(axis, key, curve_table(course), block_table(course, event_masks(course, shift)))
        axis.set(xlabel="time (s)", ylabel="importance")


def _regions(facts: dict[str, Any], rois: pd.DataFrame, image: nib.Nifti1Image | None, out: Path) -> list[Block]:
    """Show how the log odds change with the landmarks, and which ROIs change them."""
    name, before, after = facts["explained"], facts["log_odds"], facts["log_odds_without"]
    text = (
        f"With the landmarks the log odds of “{name}” are {before:+.2f}; with these volumes at the ROIs' means they "
        f"are {after:+.2f}. The contributions of all ROIs add up to this difference of {before - after:+.2f} "
        f"(as computed: {facts['sum_of_contributions']:+.2f})."
    )
    if abs(before - after) < 0.1 * abs(before):
        text += " This is little: the rest of the scan carries the same information, so do not rely on single regions."
    blocks: list[Block] = [Text(text)]
    if image is not None and rois["contribution"].any():
        classes = list(facts["probabilities"])[::-1]  # of two, the positive one is red, as in the report
        colours = colour_map(classes, name)
        draw_map(image, rois["contribution"].abs(), out / "map.png", colours)
        hues = ("red", "blue") if colours == DIVERGING else ("blue", "red")
        caption = (
            f"Contribution of the ROIs at the landmarks to the log odds of “{name}”: {hues[0]} is evidence for it, "
            f"{hues[1]} against it. The strongest {DRAWN:.0%} of the ROIs are drawn; {facts['map']} holds all."
        )
        blocks.append(Picture(out / "map.png", caption))
    top = rois.head(LISTED)
    shown = {"rank": top["rank"].astype(str), "ROI": top["name"]}
    shown |= {"network": top["network"].fillna("")} if top["network"].notna().any() else {}
    shown |= {"contribution (log odds)": [f"{value:+.3f}" for value in top["contribution"]]}
    shown |= {"mean z at the landmarks": [f"{value:+.2f}" for value in top["mean_z"]]}
    caption = f"The {len(top)} ROIs that change the log odds most."
    return [*blocks, Table(pd.DataFrame(shown), caption, Path("rois.tsv"))]


def draw_map(image: nib.Nifti1Image, sizes: pd.Series, out: Path, colours: str = DIVERGING) -> None:
    """Draw the strongest ROIs of a signed map on a glass brain and on slices of the MNI template.

    Parameters
    ----------
    image : image
        Log odds.
    sizes : Series
        Absolute value of each ROI.
    out : Path
        PNG.
    colours : str
        Colour map of matplotlib.
    """
    threshold = float(sizes.nlargest(max(1, round(DRAWN * len(sizes)))).min()) * (1 - 1e-5)
    limit = float(sizes.max())
    look = {"threshold": threshold, "vmin": -limit, "vmax": limit, "cmap": colours, "annotate": False}
    with canvas(out, height=3.5, layout=None) as figure:
        upper, lower = figure.add_axes((0.0, 0.46, 1.0, 0.54)), figure.add_axes((0.0, 0.0, 0.9, 0.4))
        glass = plotting.plot_glass_brain(image, axes=upper, display_mode="lyrz", plot_abs=False, **look)
        slices = plotting.plot_stat_map(image, axes=lower, display_mode="z", cut_coords=6, colorbar=False, **look)
        for display in (glass, slices):
            display.annotate(size=8)
