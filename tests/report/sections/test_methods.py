"""The methods text says what really ran, and cites what it says."""

import re

import pandas as pd
import pytest

from bolt import __version__
from bolt.cohort.quality import QUALITY_COLUMNS
from bolt.config import Config, Parcellate, Quality, known, load_dataset
from bolt.config.layout import folder_of, prefix_of
from bolt.config.study import Study
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError
from bolt.io.files import write_json, write_table, write_yaml
from bolt.jobs.versions import versions
from bolt.report.runs import run_title
from bolt.report.sections.methods import (
    bibtex,
    cite,
    cited,
    load_references,
    methods,
    methods_page,
    preprocessing_texts,
)
from tests.report.results import ATLAS, make_scans, settings


@pytest.fixture
def run(tmp_path):
    """Forty raw scans."""
    study = settings(tmp_path)
    scans = make_scans(study.layout, 40)
    scans["t1w"] = [f"bids/{folder_of(scan)}/anat/{folder_of(scan)}_T1w.nii.gz" for scan in scans["scan_id"]]
    return study, scans


def said(study):
    return " ".join(" ".join(methods(study)).split())


def changed(study, models=(), dataset=None, **config):
    """Return the study with other settings; a model is a name, or what is in its file."""
    files = [study.layout.results.parent / f"other{i}.yaml" for i in range(len(models))]
    for model, file in zip(models, files, strict=True):
        if isinstance(model, dict):
            write_yaml(model, file)
    named = {"models": [m if isinstance(m, str) else str(f) for m, f in zip(models, files, strict=True)]}
    config = Config.model_validate(study.config.model_dump() | config | (named if models else {}))
    return Study(config, study.dataset.model_copy(update=dataset or {}))


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


@pytest.mark.parametrize("name", ["phantom", "abide1", "fmriprep", "hcp_rest", "series"])
def test_exclusions_for_image_quality_are_in_the_text_of_every_source(run, name, tmp_path):
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


CHOSEN = "those of validation scans to choose settings, and those of test scans only"
THREE = ["svm", "lstm", "majority"]
BY_FOLD = {"model": "lstm", "searched": "per-fold", "by_fold": {fold: {"training": {"epochs": 4}} for fold in range(3)}}
NO_LANDMARKS = ["andmark", "importance of each volume"]
UNSANE = {"sanity": {"draws": 0, "permuted": True, "retrained": False, "scans": None}, "faithfulness": {"scans": 0}}


@pytest.mark.parametrize(
    ("changes", "expected", "absent"),
    [
        ({}, ["the gradient of the logit of that class", "ranked by its coefficients, averaged", "Clopper-Pearson inte",
              "Labels of all scans were used to stratify the folds, those of training scans to train models and to fit",
              "Landmarks were selected for the predicted class, without using labels."],
         ["choose the epoch", "concatenated", "same series", "ensemble", CHOSEN, "had chosen"]),
        ({"explain": {"gradient": "loss"}}, ["the gradient of the training loss with that class as the label"], []),
        ({"explain": {"gradient": "minus_loss"}}, ["the gradient of the negative training loss"], []),
        ({"explain": {"odds_ratio": "published"}}, ["ranked by its odds ratios, averaged over folds"], []),
        ({"folds": {"duplicates": "exclude"}, "dataset": {"join_scans": "session"}},
         ["series of each session of a subject were concatenated.",
          "Of scans with the same series, one was included, or none if their labels differed."], []),
        ({"folds": {"duplicates": "group"}, "dataset": {"join_scans": "subject"}},
         ["Scans with the same series were never on both sides of a split."], []),
        ({"folds": {"scheme": "leave-site-out"},
          "models": [{"model": "lstm", "training": {"epoch_choice": "best_validation"}}]},
         ["Labels of training scans were used to train models, those of validation scans to choose the epoch",
          "of test scans only to evaluate models."], ["Landmarks"]),
        ({"models": [{"model": "bolt", "covariates": ["age"]}]}, [], NO_LANDMARKS),
        ({"models": [{"model": "bolt", "hyper": {"cls_token": "none"}}]}, [], NO_LANDMARKS),
        ({"models": [BY_FOLD]}, [CHOSEN, "had chosen"], ["are test scans of other folds"]),
        ({"models": [{"model": "svm", "searched": "paper"}]}, [CHOSEN, "are test scans of other folds"], []),
        ({"models": [{"model": "svm", "searched": "shared"}]}, [CHOSEN, "are test scans of other folds"], []),
        ({"dataset": {"classes": None, "label": "age"}}, ["percentiles of bootstrap samples"], ["Clopper", "landmark"]),
        ({"models": THREE, "folds": {"outer": 4}}, ["4-fold cross-validation, stratified"], ["folds run"]),
        ({"models": THREE, "folds": {"outer": 4, "run": [1, 2]}}, ["(folds run: 1, 2)"], []),
        ({"models": THREE, "folds": {"outer": 4, "run": {"svm": [3], "lstm": [3]}}},
         ["(folds run: 3 with SVM, LSTM; all with the others)"], []),
        ({"models": THREE, "folds": {"outer": 4, "run": {"svm": [3], "lstm": [0, 1], "majority": [3]}}},
         ["(folds run: 3 with SVM, Majority; 0, 1 with LSTM)"], []),
        ({"models": ["bolt", "svm"], "folds": {"outer": 4, "permutations": 50}},
         ["mean over folds, against 1999 permutations of the labels of the test scans within each fold",
          "The one-sided level was 0.025. For models that are fitted at once, labels were permuted 50 times",
          f"BolT {__version__} and Snakemake {versions()['snakemake']}", versions()["torch"],
          "networks whose weights were randomised, layer by layer from the output (2 draws)",
          "a network trained on permuted labels, beside that of a network trained again with another seed",
          "In at most 100 test scans of a fold, volumes were replaced in 10 steps"], []),
        ({"models": ["bolt"], "explain": UNSANE},
         ["importance was compared with that of a network trained on permuted labels. "],
         ["randomised", "deletion", "fitted at once, labels"]),
        ({"models": ["ensemble", "bolt"]}, [], ["For an ensemble"]),
    ],
    ids=str,
)  # fmt: skip
def test_the_text_follows_the_settings(run, changes, expected, absent):
    text = said(changed(run[0], **changes))
    assert [words for words in expected if words not in text] == [words for words in absent if words in text] == []


@pytest.mark.parametrize("policy", Parcellate.model_fields["uncovered"].annotation.__args__)
def test_every_rule_for_rois_without_signal_is_described(run, policy):
    study = changed(run[0], parcellate={"uncovered": policy})
    for dataset in (study.dataset, load_dataset("abide1").model_copy(update={"classes": None})):
        assert ("zero throughout" in said(Study(study.config, dataset))) == (policy == "drop-dead-scan")


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


@pytest.mark.parametrize("name", ["abide1", "fmriprep", "hcp_rest", "phantom", "series", "xcpd"])
def test_every_source_has_a_text_whose_references_are_known(run, name):
    words, references = cite(methods(Study(run[0].config, load_dataset(name))))
    assert words and references and all("[@" not in text for text in words)


def test_atlases_carried_over_are_named(run):
    study = changed(run[0], atlases=["schaefer400", "aal116"], preprocess={"space": "MNI152NLin2009cAsym"})
    texts = [text for text in methods(Study(study.config, load_dataset("fmriprep"))) if "nearest neighbour" in text]
    assert len(texts) == 1 and "atlas aal116 in MNI152NLin6Asym space was resampled to MNI152NLin2009cAsym" in texts[0]
    assert "atlas schaefer400 in" not in texts[0]


def test_maps_are_fitted_and_labels_are_averaged(run):
    both, maps = (
        said(Study(changed(run[0], atlases=names, preprocess={"space": "MNI152NLin6Asym"}).config, load_dataset(name)))
        for names, name in ((["schaefer400", "difumo64"], "fmriprep"), (["difumo64"], "fmriprep"))
    )
    assert "over the voxels of each ROI (schaefer400). The series of the maps of difumo64 were estimated" in both
    assert "(of maps: of the weight) was within" in both
    assert "averaged over the voxels" not in maps and "by least squares" in maps


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


def test_all_models_are_described_in_plain_text(run):
    """What any of the shipped models says has no trace of a template, of Python or of a missing value."""
    study = changed(run[0], known("model"))
    words, _ = cite(methods(study))
    names = [model.shown for model in study.models.values()]
    assert len({*names}) == len(known("model")) and {"BolT (published code)", "CNN-LSTM", "Motion only"} <= {*names}
    for name in names:
        its = re.compile(rf"{re.escape(name)}(, an? | \[| was | always | combined )")
        assert sum(its.match(text) is not None for text in words) == 1, name
    traces = re.compile(r"\{|\}|None|True|False|\bnan\b|@|  | [,.;]|\.\.|\(\)|\d[eE]-\d")
    assert [text for text in words if text[-1] not in ".;:" or traces.search(text)] == []


def test_windows_in_seconds_are_those_of_the_runs(run):
    """TR and crop are in the checkpoints of folds, and of members of ensembles; before training, neither is known."""
    checkpoint = {"model": {"hyper": {"tr": 0.72, "crop": 150}}}
    pair = {"model": "ensemble", "members": ["gc_lstm", "ridge"]}
    for model, place in (("gc_lstm", "checkpoint.json"), (pair, "members/0-gc_lstm/checkpoint.json")):
        study = changed(run[0], [model])
        assert "Its windows lasted 120 s, or less where" in said(study)
        write_json(checkpoint, study.runs[0].fold(0) / place)
        assert "Its windows had 123 volumes (88.6 s), not 120 s, because" in said(study)


def test_an_ensemble_is_described_with_its_members(run):
    study = changed(run[0], ["bolt_hybrid"])
    text = said(study)
    for words in (
        "of BolT (tuned) with 3 seeds, Ridge and Tangent, trained in the same folds",
        "those of validation scans to weigh the members of ensembles",
        "For an ensemble, its first BolT was explained",
    ):
        assert words in text
    assert text.count("BolT (tuned) [@bolt] was trained on ROI series") == 1
    assert text.count("Ridge, a kernel ridge regression") == 1
    assert any("Genest" in reference for reference in cite(methods(study))[1])


def test_the_atlas_of_a_run_is_named_if_there_are_several(tmp_path):
    one, two = (settings(tmp_path, models=["svm"], atlases=names) for names in ([ATLAS], [ATLAS, "cc200"]))
    assert [run_title(one, run) for run in one.runs] == ["SVM"]
    assert [run_title(two, run) for run in two.runs] == [f"SVM on {ATLAS}", "SVM on cc200"]


def braced(text, start):
    """Return the text between the brace at `start` and the one that closes it, and the position after that."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] in "{}" and text[position - 1] != "\\":
            depth += 1 if text[position] == "{" else -1
        if depth == 0:
            return text[start + 1 : position], position + 1
    raise AssertionError(f"a brace is not closed: {text[start : start + 60]}")


def parse(text):
    """Return type and fields of each entry by key, as BibTeX reads them: what is outside entries is a comment."""
    entries, position = {}, 0
    while (found := re.compile(r"@(\w+)(?=\{)").search(text, position)) is not None:
        body, position = braced(text, found.end())
        key, _, rest = body.partition(",")
        assert re.fullmatch(r"[\w-]+", key) and key not in entries
        fields, at = {}, 0
        while (field := re.compile(r"\s*(\w+) = (?=\{)").match(rest, at)) is not None:
            fields[field[1]], at = braced(rest, field.end())
            assert rest[at] == ","
            at += 1
        assert not rest[at:].strip(), rest[at:]
        entries[key] = found[1], fields
    return entries


def plain(text):
    """Return what LaTeX prints."""
    words = {r"\textbackslash{}": "\0", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"}
    for command, character in words.items():
        text = text.replace(command, character)
    text = re.sub(r"(?<!\\)[{}]", "", text)
    assert not re.search(r"(?<!\\)[&%$#_]", text), text
    return re.sub(r"\\([&%$#_{}])", r"\1", text).replace("\0", "\\")


@pytest.mark.parametrize("name", ["abide1", "fmriprep", "hcp_rest", "phantom", "series"])
def test_the_file_has_exactly_the_references_of_the_text(tmp_path, name):
    text = methods(Study(settings(tmp_path).config, load_dataset(name)))
    entries = parse(bibtex(cited(text), load_references()))
    assert list(entries) == cited(text) and len(entries) == len(cite(text)[1])
    assert set(entries) == set(re.findall(r"@(\w+)", " ".join(text)))


def test_every_reference_says_what_the_list_says():
    references = load_references()
    entries = parse(bibtex(list(references), references))
    for key, about in references.items():
        kind, fields = entries[key]
        assert fields["title"] == f"{{{fields['title'][1:-1]}}}" and plain(fields["title"]) == about["title"], key
        assert fields["year"] == str(about["year"])
        assert fields.get("doi") == about.get("doi") and ("url" in fields) == ("doi" not in about)
        if kind == "article":
            number = f"({fields['number']})" if "number" in fields else ""
            place = f"{plain(fields['journal'])} {fields['volume']}{number}:{fields['pages'].replace('--', '-')}"
            assert place == about["journal"], key
        else:
            assert kind == "misc" and plain(fields["howpublished"]) == about["journal"], key
        authors = fields["author"].split(" and ")
        assert all(re.fullmatch(r"[^,]+, ([^\W\d_]\.)( [^\W\d_]\.)*|others", author) for author in authors), authors
        assert len(authors) == about["authors"].count(", ") + 1 and "others" not in authors[:-1]
    articles = sum(kind == "article" for kind, _ in entries.values())
    assert articles > 30


def test_signs_of_latex_are_escaped():
    about = {"authors": "O'Brien_Smith K, van der A B, et al.", "year": "2020", "url": "example.org/a_b%20c"}
    about |= {"title": r"50 % of {R&D} at $1 ~ #2_3 ^ C:\x", "journal": "Brain & Mind 1:2-3"}
    kind, fields = parse(bibtex(["key"], {"key": about}))["key"]
    assert kind == "article" and plain(fields["title"]) == about["title"]
    assert fields["author"] == r"O'Brien\_Smith, K. and van der A, B. and others"
    assert fields["journal"] == r"Brain \& Mind" and fields["pages"] == "2--3"
    assert fields["url"] == "https://example.org/a_b%20c"
