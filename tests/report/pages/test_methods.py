"""The methods text says what really ran, and cites what it says; the table of what it cost."""

import re
from pathlib import Path

import pandas as pd
import pytest

from bolt import __version__
from bolt.cohort.quality import QUALITY_COLUMNS
from bolt.config import Config, Parcellate, Quality, load_config, load_dataset
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.config.study import Study
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError
from bolt.io.files import read_yaml, write_json, write_table, write_yaml
from bolt.jobs.process import versions
from bolt.report.pages.methods import bibtex, cite, cited, load_references, methods, methods_page, preprocessing_texts
from bolt.report.pages.report import LISTED, costs_section
from bolt.report.runs import run_title
from tests.jobs.test_ledger import measured, noted
from tests.report.before import as_before
from tests.report.results import ATLAS, make_scans, settings
from tests.snake import series_dataset


@pytest.fixture
def run(tmp_path):
    """Forty raw scans."""
    study = settings(tmp_path)
    scans = make_scans(study.layout, 40)
    scans["t1w"] = [f"bids/{folder_of(scan)}/anat/{folder_of(scan)}_T1w.nii.gz" for scan in scans["scan_id"]]
    return study, scans


def said(study):
    return " ".join(" ".join(methods(study)).split())


def changed(study, models=(), source=None, dataset=None, **config):
    """Return the study with other settings; a model is a name, or what is in its file; `source` names a dataset."""
    files = [study.layout.results.parent / f"other{i}.yaml" for i in range(len(models))]
    for model, file in zip(models, files, strict=True):
        if isinstance(model, dict):
            write_yaml(model, file)
    named = {"models": [m if isinstance(m, str) else str(f) for m, f in zip(models, files, strict=True)]}
    config = Config.model_validate(study.config.model_dump() | config | (named if models else {}))
    about = load_dataset(source) if source else study.dataset
    return Study(config, about.model_copy(update=dataset or {}))


def cases():
    """Yield the settings of ``settings.yaml``, datasets as they are shipped, and policies for ROIs without coverage."""
    yield from read_yaml(Path(__file__).with_name("settings.yaml")).items()
    for source in ("abide1", "hcp_rest", "hcp_task", "phantom", "series", "xcpd"):
        yield source, {"source": source}
    for policy in Parcellate.model_fields["uncovered"].annotation.__args__:
        for source in ("phantom", "abide1"):
            yield f"{policy} of {source}", {"source": source, "parcellate": {"uncovered": policy}}


def test_the_text_follows_the_settings(run):
    """The whole text, then what other settings remove (-) and add (+)."""
    usual, parts = [], []
    for name, changes in cases():
        text = methods(changed(run[0], **changes))
        words, references = cite(text)
        assert references and "[@" not in "".join(words), name
        assert re.findall(r"^@\w+\{([\w-]+),$", bibtex(cited(text), load_references()), re.M) == cited(text), name
        text = "\n".join(text)
        for version in sorted({__version__, *versions().values()}, key=len, reverse=True):
            text = text.replace(f" {version}", " <version>")
        lines = re.sub(r"([.:;]) (?=[A-Z])", r"\1\n", text).splitlines()
        usual = usual or lines
        less, more = ([line for line in a if line not in b] for a, b in ((usual, lines), (lines, usual)))
        shown = [*(f"- {line}" for line in less), *(f"+ {line}" for line in more)] if parts else usual
        parts.append("\n".join([f"# {name}", *shown]))
    as_before("methods_by_settings.txt", "\n\n".join(parts) + "\n")


def test_each_paragraph_of_preprocessing_stands_once_and_says_to_how_many_it_applies(run):
    study, scans = run
    for number, scan in enumerate(scans["scan_id"]):
        folder = folder_of(scan)
        text = "Normalised with 'fast' [@ants_syn]." if number < 2 else "Normalised with 'precise' [@ants_syn]."
        anatomical = study.layout.anatomical(folder) / f"{prefix_of(folder)}desc-preproc_T1w.json"
        write_json({"Methods": [text]}, anatomical)
        motion = {"Methods": ["Motion was estimated [@friston_realign; @ants_syn]."]}
        write_json(motion, study.layout.functional(folder) / f"{scan}_space-X_boldref.json")
    texts = preprocessing_texts(study.layout, scans)
    assert texts == [
        "In 2 of 40 T1-weighted images: Normalised with 'fast' [@ants_syn].",
        "In 38 of 40 T1-weighted images: Normalised with 'precise' [@ants_syn].",
        "Motion was estimated [@friston_realign; @ants_syn].",
    ]
    assert preprocessing_texts(study.layout, scans.iloc[2:])[0] == "Normalised with 'precise' [@ants_syn]."
    assert preprocessing_texts(study.layout, scans.assign(kind="preprocessed")) == []
    words, references = cite(methods(study, texts))
    text = "\n".join(words)
    assert "In 2 of 40 T1-weighted images: Normalised with 'fast'" in text
    assert "No susceptibility distortion correction" in text and not re.search(r"\{|\}|None|@", text)
    page = methods_page(words, references)
    assert page.startswith("# Methods\n") and f"\n{len(references)}. " in page and "Bedel HA" in page


@pytest.mark.parametrize(("kept", "words"), [(96, "removed (in 1 of 2 scans)"), (100, "over all volumes of")])
def test_volumes_are_said_to_be_removed_where_some_were(run, kept, words):
    study, scans = run
    for scan, n_kept in zip(scans["scan_id"], (kept, 100), strict=False):
        about = {"NumberOfVolumes": 100, "NumberOfVolumesKept": n_kept}
        write_json(about, study.layout.series_file(scan, ATLAS).with_suffix(".json"))
    text = said(study)
    assert words in text and ("retained volumes" in text) == (kept < 100)
    assert ("before the steady state were removed" in text) == (kept < 100)


@pytest.mark.parametrize("name", ["phantom", "abide1"])
def test_exclusions_for_image_quality_are_in_the_text_of_raw_and_ready_scans(run, name, tmp_path):
    study, scans = run
    dataset = study.dataset if name == "phantom" else load_dataset(name)

    def text(known, **quality):
        changed = Study(study.config.model_copy(update={"quality": Quality(**quality)}), dataset)
        table = pd.DataFrame({"scan_id": scans["scan_id"]} | known).reindex(columns=list(QUALITY_COLUMNS))
        write_table(table, changed.layout.quality, QUALITY_COLUMNS)
        return said(changed)

    start = "Scans were excluded for poor image quality if any of the following held: "
    known = {"mean_fd": 0.1, "coregistration_mask_dice": 0.9}
    some = text(known, max_mean_fd=0.5)
    assert f"{start}mean FD above 0.5 mm; Dice of BOLD and T1w brain below 0.6. " in some
    assert "not known for a scan" not in some and "unusable" not in some and "No scan was excluded" not in some
    assert f"{start}mean FD above 0.5 mm. " in text({"mean_fd": 0.1}, max_mean_fd=0.5)  # what no scan has excludes none
    partly = text({"mean_fd": [0.1, None] * 20, "n_volumes": 90}, max_mean_fd=0.5)
    assert "mean FD above 0.5 mm. A measure that was not known for a scan did not exclude it." in partly
    off = dict.fromkeys(Quality.model_fields)
    assert f"No {'further ' * (name == 'abide1')}scan was excluded for poor image quality." in text(known, **off)
    by_eye = text(known, **off | {"ratings": tmp_path / "ratings.tsv"})
    assert "Scans rated as unusable by eye were excluded." in by_eye and "was excluded" not in by_eye


def test_sites_are_named_in_the_stratification_where_there_are_several(run):
    study, scans = run
    assert "stratified by label and site (by label alone where" in said(study)
    for sites in ("london", None):
        write_table(scans.assign(site=sites), study.layout.scans, COLUMNS)
        assert "stratified by label; all scans" in said(study)


def test_tests_that_were_done_are_named_and_no_others(run):
    def evaluated(folds, **config):
        study = changed(run[0], [*run[0].config.models, {"model": "svm"}], **config)
        for place in study.runs:
            rows = [{"fold": str(fold), "state": "ok" if fold < folds else "failed"} for fold in range(10)]
            write_table(pd.DataFrame(rows), place.folder / "metrics.tsv", dict.fromkeys(("fold", "state"), "Test"))
        return said(study)

    words = {1: "subject (or family)", 5: "resampled t-test over folds", 10: "Wilcoxon signed-rank test over folds"}
    for folds in (0, *words):
        text = evaluated(folds)
        assert [word in text for word in words.values()] == [True, folds >= 2, folds >= 6] or folds == 0
        assert ("Models were compared with tiny on the same test scans by" in text) == (folds > 0)
        assert ("Holm's method" in text) == (folds > 0) and "seeds" not in text
    several = evaluated(10, seeds=[0, 1])
    assert "over folds (of means over 2 seeds) and over seeds;" in several
    assert "include the variance between seeds" in several and "averaged over seeds before they were tested" in several


def test_covariates_are_named_in_which_the_classes_were_balanced(run):
    study = changed(run[0], ["ridge", "tangent"])
    for place, names in zip(study.runs, (None, "motion, age"), strict=True):
        assert "overlap weights" not in said(study)
        table = pd.DataFrame({"covariates": ["", names], "value": 0.7})
        write_table(table, place.folder / "balanced.tsv", dict.fromkeys(table, "Test"))
    assert "the same distribution of motion and age was estimated with overlap weights" in said(study)


def test_windows_in_seconds_are_those_of_the_runs(run):
    """TR and crop are in the checkpoints of folds, and of members of ensembles; before training, neither is known."""
    checkpoint = {"model": {"hyper": {"tr": 0.72, "crop": 150}}}
    pair = {"model": "ensemble", "members": ["gc_lstm", "ridge"]}
    for model, place in (("gc_lstm", "checkpoint.json"), (pair, "members/0-gc_lstm/checkpoint.json")):
        study = changed(run[0], [model])
        assert "Its windows lasted 120 s, or less where" in said(study)
        write_json(checkpoint, study.runs[0].fold(0) / place)
        assert "Its windows had 123 volumes (88.6 s), not 120 s, because" in said(study)


def test_the_atlas_of_a_run_is_named_if_there_are_several(tmp_path):
    one, two = (settings(tmp_path, models=["svm"], atlases=names) for names in ([ATLAS], [ATLAS, "cc200"]))
    assert [run_title(one, run) for run in one.runs] == ["SVM"]
    assert [run_title(two, run) for run in two.runs] == [f"SVM on {ATLAS}", "SVM on cc200"]


def test_citations_are_numbered_by_first_mention_and_known():
    words, references = cite(["A [@nilearn].", "B [@bids; @nilearn] and C [@bids]."])
    assert words == ["A [1].", "B [2, 1] and C [2]."]
    assert len(references) == 2 and references[0].startswith("Abraham A") and references[0].endswith("00014")
    with pytest.raises(ConfigError, match="cites 'nobody'"):
        cite(["A [@nobody]."])


def test_references_are_complete_and_stand_once():
    about = load_references()
    for key, entry in about.items():
        assert {"authors", "year", "title", "journal"} <= set(entry), key
        assert re.fullmatch(r"10\.\d{4,}/\S+", entry["doi"]) if "doi" in entry else entry["url"], key
    places = [entry.get("doi", entry.get("url")) for entry in about.values()]
    assert len(set(places)) == len(places)


def test_entries_for_reference_managers_are_those_that_were_read_last():
    """All references, and one with the signs of LaTeX, which are escaped but in doi and url."""
    about = {"authors": "O'Brien_Smith K, van der A B, et al.", "year": "2020", "url": "example.org/a_b%20c"}
    about |= {"title": r"50 % of {R&D} at $1 ~ #2_3 ^ C:\x", "journal": "Brain & Mind", "volume": "1", "pages": "2-3"}
    references = load_references() | {"signs": about}
    as_before("methods.bib", bibtex(list(references), references))


def test_dearest_first_the_rest_in_one_line_and_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layout = Layout(load_config(series_dataset(tmp_path)))
    assert costs_section(layout) == []
    for i in range(LISTED + 2):
        measured(tmp_path / "results", f"stage_{i}", "all", 360.0 * (i + 1), 360.0 * (i + 1))
    measured(tmp_path / "results", "stage_0", "all", 1e6, 1e6, dataset="other")
    (block,) = costs_section(layout)
    assert block.frame["stage"].tolist() == [*(f"stage_{i}" for i in range(9, 1, -1)), "2 other stages", "all"]
    assert block.frame["processor time"].tolist()[-2:] == ["18.0 min", "5.5 h"]
    assert block.frame["jobs"].tolist()[-2:] == ["2", "10"] and "GPU time" not in block.frame
    assert block.file == Path("results/ledger.tsv")
    noted(tmp_path / "results", "stage_9", "all", device="cuda: NVIDIA H200")
    (block,) = costs_section(layout)
    assert block.frame["GPU time"].tolist() == ["1.0 h", *["–"] * 8, "1.0 h"]
