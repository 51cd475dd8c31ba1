"""The first screen: sentences that follow from numbers and verdicts, and nothing else."""

import re
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from bolt.evaluate.balanced import ALL, COLUMNS
from bolt.evaluate.results import gather
from bolt.io.files import read_json, write_json, write_table, write_text, write_yaml
from bolt.report.pages import report as module
from bolt.report.pages.performance import balanced_blocks, gathered
from bolt.report.pages.report import BELIEVED, PREDICTED, believed, findings, write_report
from bolt.report.pages.verdicts import NOT_SUPPORTED, NOT_TESTED, SUPPORTED, Verdict, questions
from bolt.report.runs import run_figure
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run
from tests.report.before import as_before
from tests.report.pages.test_comparison import two_models, with_models
from tests.report.results import ATLAS, make_results, words_only


def measured(study, run, **pooled):
    """Give a run made-up numbers."""
    file = run.folder / "summary.json"
    summary = read_json(file)
    summary["pooled"] |= {name: dict(zip(("value", "low", "high"), ends, strict=True)) for name, ends in pooled.items()}
    summary["chance"] = {"metric": "auc", "value": 0.8, "bar": 0.6, "p": 0.001, "n_folds": 10}
    write_json(summary, file)


def said(title, study, rows=None):
    """Return the first sentence, and the captions of the pictures, below a title."""
    found = findings(study, rows or gathered(study))
    captions = [f"{picture.file.stem}: {picture.caption}" for picture in found["pictures"]]
    return "\n".join([f"# {title}", found["sentences"].get(PREDICTED, "nothing"), *captions])


@words_only()
def test_the_first_screen_says_what_it_said_when_it_was_last_read(tmp_path):
    """Performance, chance, the strongest other model, one of fewer folds, and no model at all."""
    study = two_models(tmp_path)
    write_yaml({"model": "lstm"}, tmp_path / "third.yaml")
    three = with_models(study, [*study.config.models, str(tmp_path / "third.yaml")])
    first, second, third = three.runs
    measured(study, first, auc=(0.81, 0.7, 0.9), accuracy=(0.75, 0.65, 0.85))
    measured(study, second, auc=(0.61, 0.5, 0.7), accuracy=(0.6, 0.5, 0.7))
    parts = [said("two models", study)]
    summary = read_json(first.folder / "summary.json")
    summary["chance"] |= {"p": 0.07, "widened": 1.2}
    summary["pooled"] |= {"confusion": [[3, 3], [1, 5]], "log_loss": {"value": 1.28, "low": 1.0, "high": 1.5}}
    summary["pooled"]["calibration"] |= {"probability": [0.6, 0.95, 0.99], "accuracy": [0.6] * 3, "n_scans": [4, 3, 5]}
    write_json(summary, first.folder / "summary.json")
    parts.append(said("not better than chance, and too sure", study))
    summary["pooled"]["log_loss"]["value"] = 0.69
    write_json(summary, first.folder / "summary.json")
    parts.append(said("not too sure", study))
    shutil.copytree(first.folder, third.folder)
    measured(study, third, auc=(0.9, 0.8, 1.0), accuracy=(0.7, 0.6, 0.8))
    summary = read_json(third.folder / "summary.json")
    summary["missing_folds"] = [*summary["missing_folds"], summary["expected_folds"][0]]
    summary["pooled"]["n_scans"] -= 3
    write_json(summary, third.folder / "summary.json")
    parts.append(said("a model of fewer folds is not the strongest", three))
    only = [three.config.models[0], three.config.models[2]]
    parts.append(said("but if there is no other", with_models(three, only)))
    for run, r in zip(study.runs, (0.42, 0.2), strict=True):
        summary["pooled"] = {"n_scans": 11, "r": {"value": r, "low": r - 0.15, "high": r + 0.15}}
        summary["chance"] = {"metric": "r", "value": 0.4, "bar": 0.3, "p": 0.07, "n_folds": 10, "widened": 1.2}
        write_json(summary, run.folder / "summary.json")
    of_age = study.dataset.model_copy(update={"classes": None, "label": "age"})
    parts.append(said("a number", replace(study, dataset=of_age), gathered(study)))
    for run in study.runs:
        (run.folder / "summary.json").unlink()
    parts.append(said("no model was evaluated", study))
    as_before("findings.txt", "\n\n".join(parts) + "\n")


@pytest.mark.parametrize(("strength", "words"), [(0.0, "clearly better in accuracy"), (2.0, "not clearly better")])
def test_head_motion_alone_is_named(tmp_path, strength, words):
    study = two_models(tmp_path)
    study = with_models(study, ["motion_only", *study.config.models[:1]])
    motion, model = study.runs
    write_text((model.folder / "summary.json").read_text(), motion.folder / "summary.json")
    trained = list(zip(study.models.values(), (made_up(strength, 1), made_up(2.0, 0)), strict=True))
    entries = [replace(entry(m.shown, [write_run(tmp_path / m.name, table)]), model=m) for m, table in trained]
    text = findings(study, {ATLAS: (entries, [gather(row) for row in entries])})["sentences"][PREDICTED]
    assert f"It is {words} than " in text and text.endswith("which sees no brain data.")


def verdict(short, state):
    return Verdict(short, "?", "c", state=state)


def test_an_explanation_is_believed_only_if_nothing_speaks_against_it():
    good, bad, open_ = (verdict(s, s) for s in (SUPPORTED, NOT_SUPPORTED, NOT_TESTED))
    assert believed([good, good]) == "Yes, as far as it was tested: all 2 tests are passed."
    assert believed([good, open_]) == "In part: passed 1 of 2 tests; not tested 1 (not tested)."
    text = believed([good, bad, open_])
    assert text == "With care: passed 1 of 3 tests; failed 1 (not supported); not tested 1 (not tested)."
    assert believed([bad, good]).startswith("No: the model is not shown to predict better than chance")
    assert next(iter(questions())) == "prediction"  # the first verdict is about it


def test_what_differs_is_listed_by_size():
    rows = [
        ("Age", 0.1, "Cohen's d", 0.5, "similar"),
        ("Head motion", 0.6, "Cohen's d", 0.5, "differs"),
        ("Sex", 0.2, "Cramér's V", 0.3, "may differ"),
        ("Site", 0.5, "Cramér's V", 0.3, "differs"),
        ("Handedness", None, None, None, None),
    ]
    table = pd.DataFrame(rows, columns=["measure", "effect", "effect_name", "medium", "verdict"])
    table["groups"] = [None, "mean 2 (b) against 1 (a) mm, Welch p = 0.03", None, None, None]
    text = module._different(table.assign(low=0.1, high=0.9, n=[9, 9, 9, 9, 0]), classes=True)
    motion = "head motion (mean 2 (b) against 1 (a) mm, Welch p = 0.03; Cohen's d 0.60 [0.10, 0.90])"
    assert text.startswith(f"Differs between the classes: site (Cramér's V 0.50 [0.10, 0.90]); {motion}")
    assert "Too few people to tell whether these differ: sex" in text and "Similar: age" in text
    assert text.endswith("Not known: handedness.")


@pytest.mark.parametrize(("first", "moot"), [(SUPPORTED, False), (NOT_SUPPORTED, True)])
@words_only()
def test_nothing_is_green_or_interpreted_if_the_model_predicts_nothing(tmp_path, monkeypatch, first, moot):
    study = make_results(tmp_path, n=8)
    write_text("", run_figure(study, study.runs[0], "overview"))
    monkeypatch.setattr(module, "verdicts_of", lambda *_: [verdict("chance", first), verdict("deletion", SUPPORTED)])
    write_report(study)
    page = study.layout.report.read_text()
    header = page[page.index("<header") : page.index("</header")]
    assert PREDICTED in header and BELIEVED in header and header.index(PREDICTED) < header.index('class="facts"')
    assert "figures/models.png" in header and ("Not to be interpreted" in page) == moot
    classes = re.findall(r'<li class="([a-z-]+)">', header)
    assert classes == ([first.replace(" ", "-"), "not-tested"] if moot else ["supported", "supported"])


def test_the_first_screen_and_the_performance_say_what_it_would_be_if_the_classes_were_alike(tmp_path):
    study = two_models(tmp_path)
    run, auc = study.runs[0], {"metric": "auc", "n_scans": 90, "covariates": "motion, age, sex"}
    rows = [{"population": ALL, "value": 0.74}, {"population": "balanced", "value": 0.71}]
    table = pd.DataFrame([auc | row for row in rows]).assign(low=0.67, high=0.75, effective_n=80.4, note=None)
    write_table(table, run.folder / "balanced.tsv", COLUMNS)
    sentence = "AUC 0.74; 0.71 [0.67, 0.75] had motion, age and sex been balanced between the classes."
    assert sentence in said("", study)
    (shown,) = balanced_blocks(run)
    assert shown.frame.iloc[1].tolist() == ["balanced (motion, age, sex)", "90", "80", "0.71 [0.67, 0.75]"]
    table.loc[1, ["value", "low", "high", "note"]] = [None, None, None, "they hardly overlap in motion"]
    write_table(table, run.folder / "balanced.tsv", COLUMNS)
    refused = "if the classes were alike cannot be told: they hardly overlap in motion."
    assert refused in said("", study) and refused in balanced_blocks(run)[0].text
