"""Sanity checks, stability, deletion and insertion in words, tables and pictures; what pages omit; leaks."""

import numpy as np
import pandas as pd
import pytest

from bolt.atlases.labels import load_labels
from bolt.config import Faithfulness, Sanity
from bolt.config.study import Study
from bolt.datasets import COLUMNS
from bolt.explain.trust.faithfulness import AREA_COLUMNS, CURVE_COLUMNS, ORDERS, summarise
from bolt.explain.trust.similarity import SANITY_COLUMNS, summary
from bolt.explain.trust.stability import (
    NULL_COLUMNS,
    curve_pairs,
    half_pairs,
    map_pairs,
    with_summaries,
)
from bolt.io.files import read_table, write_table
from bolt.report.figures import style, trust
from bolt.report.pages import explanation
from bolt.report.pages.trust import faithfulness_blocks, leaks_section, outcome, sanity_blocks
from bolt.report.pages.verdicts import NOT_TESTED
from bolt.report.tables import NAMES, SUMMARIES
from bolt.series.gather import build_cache
from tests.explain.trust.test_faithfulness import made_up
from tests.report.pages.test_moments import landmarks
from tests.report.results import ATLAS, first_run, make_results, settings, words_only

LAYERS = ("none", "classifier", "block 1", "input")


def checked(end, *, independent=True, again=0.5):
    """A ``sanity.tsv`` of two folds whose correlation falls from 1 to `end`, beside a model trained again."""
    rows = []
    for fold, i in [(f, i) for f in "12" for i in range(6)]:
        about = {"scan_id": f"s{fold}{i}", "group": f"p{fold}{i}", "fold": fold, "step": np.nan, "rho_raw": 0.5}
        for step, layer in enumerate(LAYERS):
            rho = 1 + (end - 1) * step / 3 + 0.01 * i
            row = about | {"check": "cascade", "layer": layer, "rho": rho, "rho_raw": (1 + rho) / 2}
            rows.append(row | {"step": step})
            if step and independent:
                rows.append(row | {"check": "independent"})
        if fold == "1":
            rows.append(about | {"check": "permuted labels", "rho": end / 2})
        if fold == "1" and again is not None:
            rows.append(about | {"check": "trained again", "rho": again + 0.01 * i})
    return summary(pd.DataFrame(rows))


def folds_table(n, classes):
    """A ``stability.tsv`` of folds, and of two seeds."""
    random = np.random.default_rng(3)
    base = random.standard_normal((len(classes), 60))
    maps = {str(k): base + random.standard_normal(base.shape) for k in range(n)}
    scans = pd.DataFrame({"scan_id": [f"s{i}" for i in range(8)], "predicted": "a"})
    own = [random.random(30) for _ in range(8)]
    curves = {str(k): (scans, [x + random.random(30) for x in own]) for k in range(n)}
    halves = [(base[None] + random.standard_normal((1, *base.shape)), base[None]) for _ in range(4)]
    pairs = [*map_pairs(maps, classes, 0.05), *half_pairs(halves, classes, 0.05), *curve_pairs(curves)]
    rows = [{"between": "folds", **row} for row in pairs]
    rows += [{**row, "between": "seeds"} for row in rows if (row["one"], row["other"]) == ("0", "1")]
    table = with_summaries(rows)
    tested = (table["one"] == "mean") & (table["what"] != "importance")
    table.loc[tested, list(NULL_COLUMNS)] = 0.2, 0.3, 0.1, 0.4, 0.02
    return table


def tables(gain, n=12, seed=1):
    lines, areas = summarise([f"s{i}" for i in range(n)], made_up(n, gain, seed))
    about = {"folds": "4, 5", "missing_folds": "0"}
    return lines.assign(**about), areas.assign(**about)


CONTROLS = "controls (random orders, position alone, shifted importance): deletion (mean volume), "


def test_checks_and_agreement_are_drawn(tmp_path):
    trust.draw_sanity(checked(0.052), tmp_path / "sanity.png")
    table = folds_table(11, ["a", "b", "c"])
    pairs = (table["between"] == "folds") & (table["what"] != "halves") & ~table["one"].isin(SUMMARIES)
    trust.draw_stability(table[pairs], tmp_path / "stability.png")
    assert ">trained again<" in (tmp_path / "sanity.svg").read_text()
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in ("sanity", "stability"))


def test_controls_that_are_not_beaten_are_named():
    areas = tables(0.2)[1]
    areas.loc[areas["direction"] == "insertion", "better_than_position"] = "no"
    said = outcome(areas)
    assert CONTROLS + "deletion (scrambled" in said
    assert "better than a random order, but not shown to be better than position alone: insertion (mean vol" in said
    areas.loc[areas["direction"] == "insertion", "better_than_shifted"] = "worse"
    assert "better than position alone or shifted importance: insertion (mean volume), insertion" in outcome(areas)


def test_every_order_is_a_line_of_every_panel_and_the_legend_is_inside_the_picture(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "_save", lambda figure, out: drawn.append(figure))
    trust.draw_faithfulness(tables(0.1)[0], tmp_path / "curves.png")
    (figure,) = drawn
    assert [len(axis.lines) for axis in figure.axes] == [len(ORDERS)] * 4
    titles = [title for of_place in NAMES["curves"].values() for title in of_place.values()]
    assert [axis.get_title("left") for axis in figure.axes] == titles
    assert len({line.get_color() for line in figure.axes[0].lines}) == len(ORDERS)
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert min(box.x0, box.y0, figure.bbox.width - box.x1) >= 0


# ---- what the pages omit
TRUST = ("are randomised?", "are permuted?", "are removed?", "put back?")
"""Ends of the questions that these files answer."""


@words_only()
def test_files_of_parts_that_were_switched_off_are_ignored(tmp_path, monkeypatch):
    study = settings(tmp_path)
    out = first_run(study).explanation
    landmarks(out)
    write_table(checked(0.1), out / "sanity.tsv", SANITY_COLUMNS)
    lines, areas = tables(0.2)
    write_table(lines, out / "faithfulness.tsv", CURVE_COLUMNS)
    write_table(areas, out / "faithfulness_areas.tsv", AREA_COLUMNS)
    chapters = {"sanity": (sanity_blocks,), "faithfulness": (faithfulness_blocks,)}
    monkeypatch.setattr(explanation, "CHAPTERS", {"page": chapters})

    def shown(sanity, faithfulness):
        explain = study.config.explain.model_copy(update={"sanity": sanity, "faithfulness": faithfulness})
        changed = Study(study.config.model_copy(update={"explain": explain}), study.dataset)
        story = explanation.story_of(changed, first_run(changed))
        assert story is not None and len(story["verdicts"]) >= len(TRUST)
        tested = [v.question for v in story["verdicts"] if v.state != NOT_TESTED]
        return [c.title for c in story["chapters"]["page"]], [
            end for end in TRUST if any(q.endswith(end) for q in tested)
        ]

    assert shown(Sanity(), Faithfulness()) == (["sanity", "faithfulness"], list(TRUST))
    assert shown(Sanity(draws=0, permuted=False), Faithfulness()) == (["faithfulness"], list(TRUST[2:]))
    assert shown(Sanity(draws=0), Faithfulness(scans=0)) == (["sanity"], list(TRUST[:2]))


@pytest.mark.parametrize(("model", "words"), [("bolt", ""), ("bolt_hybrid", "those of the first BolT (tuned)")])
def test_what_of_an_ensemble_is_explained_is_said(tmp_path, model, words):
    study = settings(tmp_path, models=[model])
    note = explanation._note(study, first_run(study))
    assert words in note and bool(note) == bool(words)


# ---- leaks between the folds
def audited(chapter):
    *texts, table = chapter.blocks
    return texts, {row[0]: row[1:] for row in table.frame.to_numpy().tolist()}


def test_folds_without_leaks(tmp_path):
    study = make_results(tmp_path, n=8)
    [text], rows = audited(leaks_section(study))
    assert not text.warning
    assert rows["scans"] == rows["subjects"] and rows["scans"][0] == "7" and rows["scans"][2] == "0"
    assert any(name.startswith("recordings (") and row[2] == "0" for name, row in rows.items())
    study.layout.folds.unlink()
    assert leaks_section(study) is None


@pytest.mark.parametrize("kind", ["subjects", "families", "recordings"])
def test_what_is_on_two_sides_is_named(tmp_path, kind):
    study = make_results(tmp_path, n=8)
    folds = read_table(study.layout.folds)
    first = folds[folds["fold"] == folds["fold"].iloc[0]]
    trained, tested = (first.loc[first["role"] == role, "scan_id"].iloc[0] for role in ("train", "test"))
    scans = read_table(study.layout.scans)
    if kind == "recordings":
        series = {scan: study.layout.series_file(scan, ATLAS) for scan in scans["scan_id"]}
        series[tested].write_bytes(series[trained].read_bytes())
        used = scans[scans["scan_id"].isin(folds["scan_id"])]
        build_cache(used, ATLAS, load_labels(ATLAS), lambda scan: series[scan.scan_id], study.layout.cache(ATLAS))
    else:
        column = {"subjects": "subject", "families": "group"}[kind]
        scans.loc[scans["scan_id"].isin([trained, tested]), column] = "the same"
        write_table(scans, study.layout.scans, COLUMNS)
    texts, rows = audited(leaks_section(study))
    assert texts[0].warning and any(name.startswith(kind) and int(row[2]) > 0 for name, row in rows.items())
