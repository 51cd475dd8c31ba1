"""The methods text says what really ran, and cites what it says."""

import re

import pandas as pd
import pytest

from bolt import __version__
from bolt.cohort.quality import QUALITY_COLUMNS
from bolt.config import Config, Parcellate, Preprocess, Quality, known, load_dataset
from bolt.config.layout import folder_of, prefix_of
from bolt.config.study import Study
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError
from bolt.io.files import write_json, write_table, write_yaml
from bolt.jobs.versions import versions
from bolt.report.runs import run_title
from bolt.report.sections.methods import cite, load_references, methods, methods_page, preprocessing_texts
from tests.report.results import ATLAS, make_scans, settings


@pytest.fixture
def run(tmp_path):
    """Forty raw scans."""
    study = settings(tmp_path)
    scans = make_scans(study.layout, 40)
    scans["t1w"] = [f"bids/{folder_of(scan)}/anat/{folder_of(scan)}_T1w.nii.gz" for scan in scans["scan_id"]]
    return study, scans


@pytest.fixture
def preprocessed(run):
    """What preprocessing left of them; two of the T1w images took the second settings."""
    study, scans = run
    layout = study.layout
    for number, scan in enumerate(scans["scan_id"]):
        folder = folder_of(scan)
        text = "Normalised with 'fast' [@ants_syn]." if number < 2 else "Normalised with 'precise' [@ants_syn]."
        write_json({"Methods": [text]}, layout.anatomical(folder) / f"{prefix_of(folder)}desc-preproc_T1w.json")
        said = {"Methods": ["Motion was estimated [@friston_realign; @ants_syn]."]}
        write_json(said, layout.functional(folder) / f"{scan}_space-X_boldref.json")
    return run


def test_each_paragraph_stands_once_and_says_to_how_many_it_applies(preprocessed):
    study, scans = preprocessed
    assert preprocessing_texts(study.layout, scans) == [
        "In 2 of 40 T1-weighted images: Normalised with 'fast' [@ants_syn].",
        "In 38 of 40 T1-weighted images: Normalised with 'precise' [@ants_syn].",
        "Motion was estimated [@friston_realign; @ants_syn].",
    ]


def test_scans_that_are_not_used_have_no_say(preprocessed):
    study, scans = preprocessed
    assert preprocessing_texts(study.layout, scans.iloc[2:])[0] == "Normalised with 'precise' [@ants_syn]."
    assert preprocessing_texts(study.layout, scans.assign(kind="preprocessed")) == []


def test_what_ran_is_in_the_text_of_a_raw_dataset(preprocessed):
    study, scans = preprocessed
    words, references = cite(methods(study, preprocessing_texts(study.layout, scans)))
    text = "\n".join(words)
    assert "In 2 of 40 T1-weighted images: Normalised with 'fast'" in text
    assert "No susceptibility distortion correction" in text and "3-fold cross-validation" in text
    assert "@" not in text and not re.search(r"\{|\}|None", text)
    page = methods_page(words, references)
    assert page.startswith("# Methods\n") and f"\n{len(references)}. " in page
    assert "doi:10.1016/j.media.2007.06.004" in page and "Bedel HA" in page


@pytest.mark.parametrize(
    ("kept", "said"), [([96, 100], "removed (in 1 of 2 scans)"), ([100, 100], "over all volumes of")]
)
def test_volumes_are_said_to_be_removed_where_some_were(run, kept, said):
    study, scans = run
    atlas = next(iter(study.config.atlas_places))
    for scan, n_kept in zip(scans["scan_id"], kept, strict=False):
        about = {"NumberOfVolumes": 100, "NumberOfVolumesKept": n_kept}
        write_json(about, study.layout.series_file(scan, atlas).with_suffix(".json"))
    text = " ".join(methods(study))
    assert said in text and ("retained volumes" in text) == (min(kept) < 100)
    assert ("before the steady state were removed" in text) == (min(kept) < 100)


@pytest.mark.parametrize("name", ["phantom", "abide1", "fmriprep", "hcp_rest", "series"])
def test_exclusions_for_image_quality_are_in_the_text_of_every_source(run, name, tmp_path):
    study, scans = run
    dataset = study.dataset if name == "phantom" else load_dataset(name)

    def said(known, **quality):
        changed = Study(study.config.model_copy(update={"quality": Quality(**quality)}), dataset)
        table = pd.DataFrame({"scan_id": scans["scan_id"]} | known).reindex(columns=list(QUALITY_COLUMNS))
        write_table(table, changed.layout.quality, QUALITY_COLUMNS)
        return " ".join(methods(changed))

    start = "Scans were excluded for poor image quality if any of the following held: "
    known = {"mean_fd": 0.1, "coregistration_mask_dice": 0.9}
    some = said(known, max_mean_fd=0.5)
    assert f"{start}mean FD above 0.5 mm; Dice of BOLD and T1w brain below 0.6. " in some
    assert "not known for a scan" not in some and "unusable" not in some and "No scan was excluded" not in some
    assert f"{start}mean FD above 0.5 mm. " in said({"mean_fd": 0.1}, max_mean_fd=0.5)  # what no scan has excludes none
    partly = said({"mean_fd": [0.1, None] * 20, "n_volumes": 90}, max_mean_fd=0.5)
    assert "mean FD above 0.5 mm. A measure that was not known for a scan did not exclude it." in partly
    off = dict.fromkeys(Quality.model_fields)
    assert f"No {'further ' * (name == 'abide1')}scan was excluded for poor image quality." in said(known, **off)
    by_eye = said(known, **off | {"ratings": tmp_path / "ratings.tsv"})
    assert "Scans rated as unusable by eye were excluded." in by_eye and "was excluded" not in by_eye


def test_sites_are_named_in_the_stratification_where_there_are_several(run):
    study, scans = run
    assert "stratified by label and site (by label alone where" in " ".join(methods(study))
    for sites in ("london", None):
        write_table(scans.assign(site=sites), study.layout.scans, COLUMNS)
        assert "stratified by label; all scans" in " ".join(methods(study))


@pytest.mark.parametrize(
    ("explain", "words"),
    [
        ({}, ("the gradient of the logit of that class", "ranked by its coefficients, averaged")),
        ({"gradient": "loss"}, ("the gradient of the training loss with that class as the label",)),
        ({"gradient": "minus_loss"}, ("the gradient of the negative training loss",)),
        ({"odds_ratio": "published"}, ("ranked by its odds ratios, averaged over folds",)),
    ],
    ids=str,
)
def test_explanations_are_described_as_configured(run, explain, words):
    study, _ = run
    config = study.config.model_copy(update={"explain": study.config.explain.model_copy(update=explain)})
    text = " ".join(" ".join(methods(Study(config, study.dataset))).split())
    assert [each for each in words if each not in text] == []


@pytest.mark.parametrize("policy", Parcellate.model_fields["uncovered"].annotation.__args__)
@pytest.mark.parametrize("name", ["phantom", "abide1"])
def test_every_rule_for_rois_without_signal_is_described(run, policy, name):
    study, _ = run
    config = study.config.model_copy(update={"parcellate": Parcellate(uncovered=policy)})
    dataset = study.dataset if name == "phantom" else load_dataset("abide1").model_copy(update={"classes": None})
    text = " ".join(" ".join(methods(Study(config, dataset))).split())
    assert ("zero throughout" in text) == (policy == "drop-dead-scan")


def test_citations_are_numbered_by_first_mention():
    words, references = cite(["A [@nilearn].", "B [@bids; @nilearn] and C [@bids]."])
    assert words == ["A [1].", "B [2, 1] and C [2]."]
    assert len(references) == 2 and references[0].startswith("Abraham A") and references[0].endswith("00014")


def test_an_unknown_reference_is_an_error():
    with pytest.raises(ConfigError, match="cites 'nobody'"):
        cite(["A [@nobody]."])


def test_references_are_complete_and_stand_once():
    about = load_references()
    for key, entry in about.items():
        assert {"authors", "year", "title", "journal"} <= set(entry), key
        assert re.fullmatch(r"10\.\d{4,}/\S+", entry["doi"]) if "doi" in entry else entry["url"], key
    places = [entry.get("doi", entry.get("url")) for entry in about.values()]
    assert len(set(places)) == len(places)


def test_joined_scans_and_copies_are_in_the_text(run):
    study, _ = run

    def said(rule, join):
        folds = study.config.folds.model_copy(update={"duplicates": rule})
        config = study.config.model_copy(update={"folds": folds})
        return "\n".join(methods(Study(config, study.dataset.model_copy(update={"join_scans": join}))))

    plain = said("refuse", "none")
    assert "concatenated" not in plain and "same series" not in plain
    text = said("exclude", "session")
    assert "series of each session of a subject were concatenated." in " ".join(text.split())
    assert "Of scans with the same series, one was included, or none if their labels differed." in text
    assert "Scans with the same series were never on both sides of a split." in said("group", "subject")


@pytest.mark.parametrize("name", ["abide1", "fmriprep", "hcp_rest", "phantom", "series", "xcpd"])
def test_every_source_has_a_text_whose_references_are_known(run, name):
    words, references = cite(methods(Study(run[0].config, load_dataset(name))))
    assert words and references and all("[@" not in text for text in words)


def test_atlases_carried_over_are_named(run):
    config = run[0].config.model_copy(
        update={"atlases": ["schaefer400", "aal116"], "preprocess": Preprocess(space="MNI152NLin2009cAsym")}
    )
    words, _ = cite(methods(Study(config, load_dataset("fmriprep"))))
    texts = [text for text in words if "nearest neighbour" in text]
    assert len(texts) == 1 and "atlas aal116 in MNI152NLin6Asym space was resampled to MNI152NLin2009cAsym" in texts[0]
    assert not any("atlas schaefer400 in" in text for text in words)


def test_maps_are_fitted_and_labels_are_averaged(run):
    config = run[0].config.model_copy(
        update={"atlases": ["schaefer400", "difumo64"], "preprocess": Preprocess(space="MNI152NLin6Asym")}
    )
    words = " ".join(cite(methods(Study(config, load_dataset("fmriprep"))))[0])
    assert (
        "averaged over the voxels of each ROI (schaefer400). The series of the maps of difumo64 were estimated" in words
    )
    assert "(of maps: of the weight) was within" in words
    words = " ".join(
        cite(methods(Study(config.model_copy(update={"atlases": ["difumo64"]}), load_dataset("fmriprep"))))[0]
    )
    assert "averaged over the voxels" not in words and "by least squares" in words


def evaluated(run, folds: int, **config):
    """Return the study of two models that finished `folds` folds."""
    study, _ = run
    (study.layout.report.parents[2] / "other.yaml").write_text("model: svm\n")
    models = [*study.config.models, str(study.layout.report.parents[2] / "other.yaml")]
    study = Study(Config.model_validate(study.config.model_dump() | {"models": models} | config), study.dataset)
    for place in study.runs:
        rows = [{"fold": str(fold), "state": "ok" if fold < folds else "failed"} for fold in range(10)]
        write_table(pd.DataFrame(rows), place.folder / "metrics.tsv", dict.fromkeys(("fold", "state"), "Test"))
    return study


def test_tests_that_were_done_are_named_and_no_others(run):
    words = {1: "subject (or family)", 5: "resampled t-test over folds", 10: "Wilcoxon signed-rank test over folds"}
    for folds in (0, *words):
        text = " ".join(methods(evaluated(run, folds)))
        assert [word in text for word in words.values()] == [True, folds >= 2, folds >= 6] or folds == 0
        assert ("Models were compared with tiny on the same test scans by" in text) == (folds > 0)
        assert ("Holm's method" in text) == (folds > 0) and "seeds" not in text
    several = " ".join(methods(evaluated(run, 10, seeds=[0, 1])))
    assert "over folds (of means over 2 seeds) and over seeds;" in several
    assert "include the variance between seeds" in several and "averaged over seeds before they were tested" in several
    cite(methods(evaluated(run, 10)))


def test_what_labels_were_read_for_is_in_the_text(run):
    study, _ = run
    text = " ".join(methods(study))
    assert (
        "Labels of all scans were used to stratify the folds, those of training scans to train models and to fit"
        in text
    )
    assert (
        "Landmarks were selected for the predicted class, without using labels." in text
        and "choose the epoch" not in text
    )
    (study.layout.report.parents[2] / "best.yaml").write_text(
        "model: lstm\ntraining: {epoch_choice: best_validation}\n"
    )
    config = study.config.model_dump() | {"models": [str(study.layout.report.parents[2] / "best.yaml")]}
    config["folds"] |= {"scheme": "leave-site-out"}
    text = " ".join(methods(Study(Config.model_validate(config), study.dataset)))
    assert "Labels of training scans were used to train models, those of validation scans to choose the epoch" in text
    assert "of test scans only to evaluate models." in text and "Landmarks" not in text


@pytest.mark.parametrize("settings", [{"covariates": ["age"]}, {"hyper": {"cls_token": "none"}}], ids=str)
def test_what_cannot_be_explained_is_not_said_to_be(run, tmp_path, settings):
    study, _ = run
    write_yaml({"model": "bolt"} | settings, tmp_path / "other.yaml")
    config = Config.model_validate(study.config.model_dump() | {"models": [str(tmp_path / "other.yaml")]})
    text = " ".join(methods(Study(config, study.dataset)))
    assert "andmark" not in text and "importance of each volume" not in text


@pytest.mark.parametrize("scheme", [None, "per-fold", "paper", "shared"])
def test_labels_that_a_search_has_read_are_in_the_text(run, tmp_path, scheme):
    study, _ = run
    by_fold = {fold: {"training": {"epochs": 4}} for fold in range(3)} if scheme == "per-fold" else {}
    model = {"model": "lstm" if by_fold else "svm", "searched": scheme, "by_fold": by_fold}
    write_yaml(model, tmp_path / "m.yaml")
    config = Config.model_validate(study.config.model_dump() | {"models": [str(tmp_path / "m.yaml")]})
    text = " ".join(methods(Study(config, study.dataset)))
    chosen = "those of validation scans to choose settings, and those of test scans only"
    assert (chosen in text) == ("had chosen" in text) == (scheme is not None)
    assert ("are test scans of other folds" in text) == (scheme in ("paper", "shared"))


def test_intervals_are_those_of_the_label(run):
    study, _ = run
    assert "Clopper-Pearson intervals" in " ".join(methods(study))
    number = study.dataset.model_copy(update={"classes": None, "label": "age"})
    text = " ".join(methods(Study(study.config, number)))
    assert "percentiles of bootstrap samples" in text and "Clopper" not in text and "landmark" not in text


@pytest.mark.parametrize(
    ("settings", "expected", "absent"),
    [
        (
            {"model": "ridge"},
            ["chosen from 11 values", "Pearson correlations", "over the whole scan"],
            ["Site effects"],
        ),
        ({"model": "ridge", "hyper": {"penalty": 2}}, ["Its penalty was 2 times"], ["chosen from"]),
        (
            {"model": "ridge", "harmonise": "means"},
            ["Differences between the sites' means", "not accepted"],
            ["ComBat"],
        ),
        ({"model": "svm", "harmonise": "combat", "unseen_site": "pooled"}, ["ComBat", "left unchanged"], ["means of"]),
        (
            {"model": "svm", "connectivity": "crop"},
            ["over a random crop of at most 100 volumes of each scan (test scans: over the whole scan)"],
            ["over the whole scan."],
        ),
    ],
)
def test_linear_models_of_connectivity(run, tmp_path, settings, expected, absent):
    study, _ = run
    write_yaml(settings, tmp_path / "linear.yaml")
    config = Config.model_validate(study.config.model_dump() | {"models": [str(tmp_path / "linear.yaml")]})
    [text] = [" ".join(part.split()) for part in methods(Study(config, study.dataset)) if part.startswith("linear, a")]
    whole = " ".join(" ".join(methods(Study(config, study.dataset))).split())
    assert all(words in whole for words in expected) and not any(words in text for words in absent)


def test_all_models_are_described_in_plain_text(run):
    """What any of the shipped models says has no trace of a template, of Python or of a missing value."""
    study, _ = run
    config = Config.model_validate(study.config.model_dump() | {"models": known("model")})
    study = Study(config, study.dataset)
    words, _ = cite(methods(study))
    names = [model.shown for model in study.models.values()]
    assert len({*names}) == len(known("model")) and {"BolT (published code)", "CNN-LSTM", "Motion only"} <= {*names}
    for name in names:
        its = re.compile(rf"{re.escape(name)}(, an? | \[| was | always | combined )")
        assert sum(its.match(text) is not None for text in words) == 1, name
    for text in words:
        assert text[-1] in ".;:" and not re.search(
            r"\{|\}|None|True|False|\bnan\b|@|  | [,.;]|\.\.|\(\)|\d[eE]-\d", text
        ), text


def test_windows_in_seconds_are_those_of_the_runs(run):
    """TR and crop are in the checkpoints of folds, and of members of ensembles; before training, neither is known."""
    study, _ = run
    config = Config.model_validate(study.config.model_dump() | {"models": ["gc_lstm"]})
    study = Study(config, study.dataset)
    assert "Its windows lasted 120 s, or less where" in " ".join(methods(study))
    checkpoint = {"model": {"hyper": {"tr": 0.72, "crop": 150}}}
    write_json(checkpoint, study.runs[0].fold(0) / "checkpoint.json")
    assert "Its windows had 123 volumes (88.6 s), not 120 s, because" in " ".join(methods(study))
    (study.layout.report.parents[2] / "pair.yaml").write_text("model: ensemble\nmembers: [gc_lstm, ridge]\n")
    pair = str(study.layout.report.parents[2] / "pair.yaml")
    study = Study(Config.model_validate(config.model_dump() | {"models": [pair]}), study.dataset)
    write_json(checkpoint, study.runs[0].fold(0) / "members/0-gc_lstm/checkpoint.json")
    assert "Its windows had 123 volumes" in " ".join(methods(study))


def test_an_ensemble_is_described_with_its_members(tmp_path):
    text = " ".join(methods(settings(tmp_path, models=["bolt_hybrid"])))
    assert "of BolT (tuned) with 3 seeds, Ridge and Tangent, trained in the same folds" in text
    assert (
        "counted as much as 100 scans" in text and "those of validation scans to weigh the members of ensembles" in text
    )
    assert text.count("BolT (tuned) [@bolt] was trained on ROI series") == 1
    assert text.count("Ridge, a kernel ridge regression") == 1
    words, references = cite(methods(settings(tmp_path, models=["bolt_hybrid"])))
    assert any("Genest" in reference for reference in references) and "@" not in "".join(words)
    assert "For an ensemble, its first BolT was explained" in text
    for models in (["ridge"], ["bolt"]):
        assert "ensemble" not in " ".join(methods(settings(tmp_path, models=models)))
    assert "For an ensemble" not in " ".join(methods(settings(tmp_path, models=["ensemble", "bolt"])))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (None, "4-fold cross-validation, stratified"),
        ([1, 2], "(folds run: 1, 2)"),
        ({"svm": [3], "lstm": [3]}, "(folds run: 3 with SVM, LSTM; all with the others)"),
        ({"svm": [3], "lstm": [0, 1], "majority": [3]}, "(folds run: 3 with SVM, Majority; 0, 1 with LSTM)"),
    ],
)
def test_the_folds_of_each_model_are_named_once(tmp_path, run, words):
    folds = {"outer": 4} | ({"run": run} if run else {})
    assert words in " ".join(methods(settings(tmp_path, models=["svm", "lstm", "majority"], folds=folds)))


def test_the_atlas_of_a_run_is_named_if_there_are_several(tmp_path):
    one, two = (settings(tmp_path, models=["svm"], atlases=names) for names in ([ATLAS], [ATLAS, "cc200"]))
    assert [run_title(one, run) for run in one.runs] == ["SVM"]
    assert [run_title(two, run) for run in two.runs] == [f"SVM on {ATLAS}", "SVM on cc200"]


def test_the_permutation_test_the_checks_and_the_versions_are_those_of_the_run(tmp_path):
    study = settings(tmp_path, models=["bolt", "svm"], folds={"outer": 4, "permutations": 50})
    text = " ".join(methods(study))
    assert "mean over folds, against 1999 permutations of the labels of the test scans within each fold" in text
    assert "The one-sided level was 0.025. For models that are fitted at once, labels were permuted 50 times" in text
    assert f"BolT {__version__} and Snakemake {versions()['snakemake']}" in text and versions()["torch"] in text
    assert "networks whose weights were randomised, layer by layer from the output (2 draws)" in text
    assert "a network trained on permuted labels, beside that of a network trained again with another seed" in text
    assert "In at most 100 test scans of a fold, volumes were replaced in 10 steps" in text
    explain = {
        "sanity": {"draws": 0, "permuted": True, "retrained": False, "scans": None},
        "faithfulness": {"scans": 0},
    }
    text = " ".join(methods(settings(tmp_path, models=["bolt"], explain=explain)))
    assert "importance was compared with that of a network trained on permuted labels. " in text
    assert "randomised" not in text and "deletion" not in text and "fitted at once, labels" not in text
