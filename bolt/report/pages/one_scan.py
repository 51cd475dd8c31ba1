"""The explanation of one scan as a page: its importance curve, landmarks and map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn import plotting

from bolt.explain.events import event_mask, kinds_of
from bolt.explain.one_scan import OneScan
from bolt.report.figures.series import carpet, with_gaps
from bolt.report.figures.style import DIVERGING, INK, MUTED, canvas
from bolt.report.figures.tasks import draw_course
from bolt.report.html import Block, Chapter, Picture, Table, Text, write_page

if TYPE_CHECKING:
    from bolt.explain.given_scan import Scan

LISTED = 12  # ROIs in the page's table
DRAWN = 0.1
"""Share of the ROIs, the strongest, that the picture of the map shows; the map itself has all."""
Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def write_one_scan(
    scan: Scan,
    found: OneScan,
    facts: dict[str, Any],
    tables: Tables,
    image: nib.Nifti1Image | None,
    out: Path,
    *,
    shift: float = 0.0,
) -> None:
    """Draw ``importance.png`` and, with an image, ``map.png`` (each with SVG and PDF), and write ``index.html``.

    Parameters
    ----------
    scan : bolt.explain.given_scan.Scan
    found : OneScan
    facts : dict
        ``explanation.json``.
    tables : tuple of DataFrame
        importance.tsv, landmarks.tsv, rois.tsv.
    image : image, optional
        The contributions painted on the atlas.
    out : Path
        Folder.
    shift : float
        Seconds by which events are drawn later.
    """
    volumes, landmarks, rois = tables
    name = facts["explained"]
    draw_scan(scan, volumes, landmarks, out / "importance.png", shift=shift)
    moments = (
        f"Above: importance of each volume for “{name}”, over the scan's mean; the triangles are the landmarks, "
        "numbered by rank. Below: the ROI series, by network where it is known."
    )
    chapters = [
        Chapter("Which moments", [Picture(out / "importance.png", moments), _landmark_table(landmarks, scan.tr)]),
        Chapter("Which regions, at these moments", _regions(facts, rois, image, out)),
    ]
    if scan.notes:
        chapters.insert(0, Chapter("To be known", [Text(note, warning=True) for note in scan.notes]))
    write_page(
        "one_scan.html",
        out / "index.html",
        title=Path(next(iter(facts["provenance"]["inputs"]))).name,
        lead=_lead(facts),
        facts=_facts(facts),
        chapters=chapters,
    )


def _lead(facts: dict[str, Any]) -> str:
    name, p = facts["explained"], facts["probability"]
    if name == facts["predicted"]:
        return f"The model takes this scan for “{name}” (probability {_share(p)}). This page shows what that rests on."
    other = facts["predicted"]
    return (
        f"The model takes this scan for “{other}” (probability {_share(facts['probabilities'][other])}). This page "
        f"shows what speaks for and against “{name}” (probability {_share(p)}), as was asked."
    )


def _share(p: float) -> str:
    """A probability; a network that is sure is not to be taken at its word to the third digit."""
    return "> 0.99" if p > 0.99 else "< 0.01" if p < 0.01 else f"{p:.2f}"


def _record(facts: dict[str, Any]) -> dict[str, str]:
    """How often the model is right, where its predictions lie beside the checkpoint."""
    tested = facts["tested"]
    if tested is None:
        return {}
    right, scans = tested["right"], tested["scans"]
    return {"right in its test scans": f"{right} of {scans} ({right / scans:.0%})"}


def _facts(facts: dict[str, Any]) -> dict[str, str]:
    known = facts["provenance"]
    length = f"{facts['n_volumes']} volumes" + (f", TR {facts['tr']:g} s" if facts["tr"] else "")
    return {
        "class explained": facts["explained"],
        "probability": _share(facts["probability"]),
        **_record(facts),
        "scan": length,
        "ROIs": f"{facts['n_rois']}" + (f" ({facts['atlas']})" if facts["atlas"] else ""),
        "model": f"{known['model']}, fold {known['fold']}, seed {known['seed']}",
    }


def _landmark_table(landmarks: pd.DataFrame, tr: float | None) -> Table:
    shown = {"rank": landmarks["rank"].astype(str), "volume": landmarks["volume"].astype(str)}
    shown |= {"time (s)": [f"{t:.1f}" for t in landmarks["seconds"]]} if tr else {}
    shown |= {"importance / mean": [f"{value:.2f}" for value in landmarks["relative"]]}
    return Table(pd.DataFrame(shown), "Landmarks: the most important volumes, counted from 0.", Path("landmarks.tsv"))


def _regions(facts: dict[str, Any], rois: pd.DataFrame, image: nib.Nifti1Image | None, out: Path) -> list[Block]:
    name = facts["explained"]
    before, after = facts["log_odds"], facts["log_odds_without"]
    said = (
        f"With the landmarks the log odds of “{name}” are {before:+.2f}; with these volumes at the ROIs' means they "
        f"are {after:+.2f}. The contributions of all ROIs add up to this difference of {before - after:+.2f} "
        f"(as computed: {facts['sum_of_contributions']:+.2f})."
    )
    if abs(before - after) < 0.1 * abs(before):
        said += " That is little: the rest of the scan tells the model the same, so do not build on single regions."
    blocks: list[Block] = [Text(said)]
    for ending in (".png", ".svg", ".pdf"):
        (out / f"map{ending}").unlink(missing_ok=True)
    if image is not None and rois["contribution"].any():
        draw_map(image, rois, out / "map.png")
        caption = (
            f"Contribution of the ROIs at the landmarks to the log odds of “{name}”: red speaks for it, blue against "
            f"it. The strongest {DRAWN:.0%} of the ROIs are drawn; {facts['map']} holds all."
        )
        blocks.append(Picture(out / "map.png", caption))
    top = rois.head(LISTED)
    known = top["network"].notna().any()
    shown = {"rank": top["rank"].astype(str), "ROI": top["name"]} | (
        {"network": top["network"].fillna("")} if known else {}
    )
    shown |= {"contribution (log odds)": [f"{value:+.3f}" for value in top["contribution"]]}
    shown |= {"mean z at the landmarks": [f"{value:+.2f}" for value in top["mean_z"]]}
    caption = f"The {len(top)} ROIs that move the log odds most."
    return [*blocks, Table(pd.DataFrame(shown), caption, Path("rois.tsv"))]


def draw_scan(scan: Scan, volumes: pd.DataFrame, landmarks: pd.DataFrame, out: Path, *, shift: float = 0.0) -> None:
    """Importance with landmarks and the task's blocks, above the ROI series; dropped volumes are gaps."""
    step, unit = (scan.tr, "time (s)") if scan.tr else (1.0, "volume")
    curve = pd.DataFrame({"volume": volumes["volume"], "time": volumes["volume"] * step, "mean": volumes["relative"]})
    series, first = with_gaps(scan.series, scan.volumes), int(scan.volumes[0])
    with canvas(out, height=4.4) as figure:
        grid = figure.subplots(2, 2, height_ratios=[1, 1.8], width_ratios=[5.5, 1])
        upper, lower = grid[:, 0]
        draw_course(
            upper,
            grid[0, 1],
            curve.assign(low=curve["mean"], high=curve["mean"]),
            _blocks(scan, step, shift),
            headroom=0.3,
        )
        lift = 0.05 * float(np.diff(upper.get_ylim())[0])
        for volume, value in landmarks[["volume", "relative"]].itertuples(index=False):
            upper.plot((volume + 0.5) * step, value + lift, "v", ms=5, color=INK, clip_on=False)
        for text, place in _ranks(landmarks, step):
            upper.annotate(text, place, (0, 8), textcoords="offset points", ha="center", fontsize=7.5)
        upper.set_ylabel("importance / mean")
        limits = (first * step, (first + len(series)) * step)
        picture = carpet(lower, series, scan.rois, limits)
        for axis in (upper, lower):
            axis.set_xlim(limits)
        upper.tick_params(axis="x", labelbottom=False)
        lower.set_xlabel(unit)
        grid[1, 1].set_axis_off()
        figure.colorbar(picture, ax=grid[1, 1], label="BOLD (z)", fraction=0.4, aspect=14, location="left")


def _ranks(landmarks: pd.DataFrame, step: float) -> list[tuple[str, tuple[float, float]]]:
    """Ranks of neighbouring landmarks share a label, at the middle of their triangles."""
    order = landmarks.sort_values("volume")
    groups = (order["volume"].diff() > 6).cumsum()
    return [
        (
            ", ".join(map(str, sorted(own["rank"]))),
            ((own["volume"].mean() + 0.5) * step, float(own["relative"].max()) * 1.02),
        )
        for _, own in order.groupby(groups)
    ]


def _blocks(scan: Scan, step: float, shift: float) -> pd.DataFrame:
    """The scan's events as `draw_course` takes them."""
    columns = ["trial_type", "volume", "time", "share"]
    if scan.events is None or scan.tr is None:
        return pd.DataFrame(columns=columns)
    n = int(scan.volumes[-1]) + 1
    masks = {
        kind: event_mask(scan.events, kind, n, scan.tr, shift)[None] for kind in sorted(set(scan.events["trial_type"]))
    }
    masks = {kind: mask for kind, mask in masks.items() if mask.any()}
    rows = [
        (kind, volume, volume * step, 1.0)
        for kind in kinds_of([scan.events], masks)
        for volume in np.flatnonzero(masks[kind][0])
    ]
    return pd.DataFrame(rows, columns=columns)


def draw_map(image: nib.Nifti1Image, rois: pd.DataFrame, out: Path) -> None:
    """The strongest ROIs of a signed map on a glass brain and on slices of the MNI template."""
    size = rois["contribution"].abs()
    threshold = float(size.nlargest(max(1, round(DRAWN * len(size)))).min()) * (1 - 1e-5)
    limit = float(size.max())
    look: dict[str, Any] = {
        "threshold": threshold,
        "vmax": limit,
        "vmin": -limit,
        "cmap": DIVERGING,
        "colorbar": False,
        "annotate": False,
    }
    with canvas(out, height=3.5, layout=None) as figure:
        upper, lower = figure.add_axes((0.0, 0.46, 0.9, 0.54)), figure.add_axes((0.0, 0.0, 0.9, 0.4))
        glass = plotting.plot_glass_brain(image, axes=upper, display_mode="lyrz", plot_abs=False, **look)
        slices = plotting.plot_stat_map(image, axes=lower, display_mode="z", cut_coords=6, **look)
        for display in (glass, slices):
            display.annotate(size=8)
        scale = figure.add_axes((0.925, 0.2, 0.018, 0.6))
        levels = np.linspace(limit, -limit, 256)[:, None]
        scale.imshow(levels, cmap=DIVERGING, aspect="auto", extent=(0, 1, -limit, limit))
        scale.axhspan(-threshold, threshold, color="white", lw=0)
        scale.set_xticks([])
        scale.yaxis.tick_right()
        scale.set_title("log odds", fontsize=7.5, color=MUTED, loc="center", fontweight="normal")
