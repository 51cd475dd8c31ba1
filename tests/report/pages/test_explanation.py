"""What the pages of the explanation omit."""

import pytest

from bolt.config import Faithfulness, Sanity
from bolt.config.study import Study
from bolt.explain.trust.faithfulness import AREA_COLUMNS, CURVE_COLUMNS
from bolt.explain.trust.similarity import SANITY_COLUMNS
from bolt.io.files import write_table
from bolt.report.pages import explanation
from bolt.report.pages.trust import faithfulness_blocks, sanity_blocks
from bolt.report.pages.verdicts import NOT_TESTED
from tests.report.pages.test_moments import landmarks
from tests.report.pages.test_trust import checked, tables
from tests.report.results import first_run, settings, words_only

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
