"""Does the prediction depend on the important volumes? Curves of deletion and insertion, and the areas under them."""

from __future__ import annotations

import pandas as pd

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.trust.faithfulness import CONTROLS
from bolt.io.files import holds_something, read_table
from bolt.report.figures.trust import draw_faithfulness
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.runs import run_figure
from bolt.report.tables.explanation import CONTROL_NAMES, REPLACED_BY, area_table

TEXT = (
    "replacement",
    "direction",
    "order",
    "folds",
    "missing_folds",
    *(f"better_than_{control}" for control in CONTROLS),
)
CURVES = (
    "Left (deletion): parts of each test scan are replaced, the most important first; if the prediction rests on "
    "them, the probability of the originally predicted class falls early. Right (insertion): the most important parts "
    "are put back first into a fully replaced scan; the probability should rise early. Top: volumes are replaced by "
    "the scan's mean volume. Bottom: because a single volume can be inferred from its neighbours, blocks of {block} "
    "volumes are replaced by those of a copy of the scan that keeps spectra and correlations of the regions, but not "
    "the timing of events. If the bottom left curve ends high, the copy is predicted like the scan itself: the model "
    "does not need single moments, though it may use them. Importance counts evidence for the predicted class only; "
    "rollout and integrated gradients do not distinguish evidence for and against it. Controls: position alone (mean "
    "importance of the other test scans at each position), the scan's own importance shifted in time, and random "
    "orders. {scans} Bands: 95 % bootstrap intervals over subjects or families."
)
AREAS = (
    "Area under each curve, mean over test scans: lower is better for deletion, higher for insertion. Differences from "
    "the controls are those of the same scans; 'better than' names the controls for which the 95 % interval of the "
    "difference is on the better side of 0. {scans}"
)
SENTENCES = {
    "yes": "The prediction depends on important volumes more than on the controls (random orders, position alone, "
    "shifted importance): {}.",
    "controls": "Importance is better than a random order, but not shown to be better than {}: {}.",
    "no": "Importance is not shown to be better than a random order: {}.",
    "worse": "Importance is worse than a random order: {}.",
}


def faithfulness_blocks(study: Study, run: ModelRun) -> list[Block]:
    """Show the outcome, the curves and the areas; [] if they were not computed, or are disabled."""
    files = run.explanation / "faithfulness.tsv", run.explanation / "faithfulness_areas.tsv"
    options = study.config.explain.faithfulness
    if options.scans == 0 or not all(holds_something(file) for file in files):
        return []
    lines, areas = (read_table(file, text=TEXT) for file in files)
    picture = run_figure(study, run, "faithfulness")
    draw_faithfulness(lines, picture)
    scans = _scans(areas)
    return [
        Text(outcome(areas)),
        Picture(picture, CURVES.format(block=options.block, scans=scans)),
        Table(area_table(areas), AREAS.format(scans=scans), files[1]),
    ]


def outcome(areas: pd.DataFrame) -> str:
    """Describe whether important volumes matter more than random ones, and than the other controls."""
    judged = areas[(areas["order"] == "importance") & areas["better_than_random"].notna()]
    if judged.empty:
        return "Too few subjects to tell whether important volumes matter more to the model than random ones."
    places: dict[tuple[str, str], list[str]] = {}
    for row in judged.to_dict("records"):
        others = [CONTROL_NAMES[c] for c in CONTROLS if c != "random" and row[f"better_than_{c}"] != "yes"]
        beats_random = row["better_than_random"]
        answer = "controls" if beats_random == "yes" and others else beats_random
        place = f"{row['direction']} ({REPLACED_BY[row['replacement']]})"
        places.setdefault((answer, " or ".join(others) if answer == "controls" else ""), []).append(place)
    ordered = sorted(places.items(), key=lambda item: list(SENTENCES).index(item[0][0]))
    return " ".join(
        SENTENCES[answer].format(*([others] if others else []), ", ".join(where)) for (answer, others), where in ordered
    )


def _scans(areas: pd.DataFrame) -> str:
    """Name the test scans and folds behind the areas."""
    first = areas.iloc[0]
    missing = first["missing_folds"]
    without = f"; without fold {missing}" if isinstance(missing, str) else ""
    return f"{first['n_scans']} test scans of fold {first['folds']}{without}."
