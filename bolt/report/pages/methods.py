"""The methods section: what preprocessing recorded beside its outputs, then ``templates/methods.txt``.

References are those of ``references.yaml`` that the text cites; also as BibTeX (UTF-8), for reference managers.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from bolt import __version__
from bolt.atlases.description import carried_from, describe_atlas
from bolt.config import Dataset, Model, load_denoise
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.config.models import MIN_SCANS, told_apart
from bolt.config.study import Study
from bolt.evaluate.chance import DRAWS, LEVEL
from bolt.evaluate.paired import FEWEST_FOLDS
from bolt.explain.connections import SHUFFLES
from bolt.explain.explainable import can_be_explained, sees_brain
from bolt.io.errors import ConfigError
from bolt.io.files import read_json, read_table, read_yaml
from bolt.jobs.process import versions
from bolt.models.parts.calibration import INNER_FOLDS
from bolt.models.parts.settings import window_volumes
from bolt.models.registry import crops_alike, defaults_of, has_epochs, ignores_tail, inputs_of, matrices_in_words
from bolt.models.ridge import PENALTIES
from bolt.models.tangent import SHRINKAGES
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.html import TEMPLATES, all_words, say, text_environment
from bolt.report.pages.performance import reference
from bolt.report.tables import read_result
from bolt.training.schedule import HIGH_BETA, LOW_BETA

REFERENCES = TEMPLATES.with_name("references.yaml")
CITATION = re.compile(r"\[(@\w+(?:; @\w+)*)\]")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


def methods(study: Study, preprocessing: Sequence[str] = ()) -> list[str]:
    """Return paragraphs for a manuscript, including `preprocessing`, with citation keys such as ``[@nilearn]``."""
    config, dataset, layout = study.config, study.dataset, study.layout
    atlases = [describe_atlas(place) for place in config.atlas_places.values()]
    carried = {about.name: carried_from(about, study.space, config.paths.templateflow_home) for about in atlases}
    models = list({part.run_name: part for model in study.models.values() for part in reversed(model.parts)}.values())
    series = layout.results / "series" / layout.variant
    facts = [read_json(scan) for scan in series.glob(f"*/*_atlas-{next(iter(config.atlas_places))}_timeseries.json")]
    made = next(series.glob("*/provenance.json"), None)  # in another environment, perhaps, than this text
    shorter = [about.get("NumberOfVolumesKept", 0) < about.get("NumberOfVolumes", 0) for about in facts]
    quality = read_result(layout.quality)
    measured = quality[[name for name in MEASURES if name in quality]].dropna(how="all")
    known = [cutoff for cutoff in config.quality.cutoffs() if cutoff[1] in measured.dropna(axis=1, how="all")]
    several_sites = study.dataset.site is not None
    if layout.scans.is_file():
        several_sites = read_table(layout.scans, text=("site",))["site"].nunique() > 1
    folds_run: dict[tuple[int, ...], list[str]] = {}
    for model in study.models.values():
        folds_run.setdefault(tuple(config.folds.of(model.name)), []).append(model.shown)
    template = text_environment().get_template("methods.txt")
    text = template.render(
        config=config,
        dataset=dataset,
        models=models,
        model_texts=[model_text(model, dataset, _found(study, model)) for model in models],
        networks=[model for model in models if has_epochs(model.model)],
        explained=[model for model in study.models.values() if can_be_explained(model, dataset)],
        connected=[model for model in study.models.values() if sees_brain(model)],
        shuffles=SHUFFLES,
        alike=_alike(study),
        folds_run=folds_run,
        atlases=atlases,
        carried={name: space for name, space in carried.items() if space},
        cutoffs=[(MEASURES[name], bound, cutoff) for bound, name, cutoff in known],
        partly_known=measured[[name for _, name, _ in known]].isna().any(axis=None),
        rated=config.quality.ratings is not None,
        several_sites=several_sites,
        raw=dataset.source in ("phantom", "bids"),
        preprocessing=preprocessing,
        denoise=load_denoise(config.denoise),
        shortened=(sum(shorter), len(shorter)),
        reference=reference(study).shown,
        folds_compared=folds_compared(study),
        fewest_folds=FEWEST_FOLDS,
        chance_draws=DRAWS,
        level=LEVEL,
        version=__version__,
        versions=versions() | (read_json(made).get("packages", {}) if made else {}),
    )
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _found(study: Study, model: Model) -> list[dict[str, Any]]:
    """Return the settings of a model in each trained fold, if the TR of its scans is one of them."""
    if "tr" not in defaults_of(model.model):
        return []
    member = f"fold-*/members/*-{model.name}/checkpoint.json"
    patterns = [(run, "fold-*/checkpoint.json" if run.model == model.run_name else member) for run in study.runs]
    return [read_json(file)["model"]["hyper"] for run, pattern in patterns for file in run.folder.glob(pattern)]


def _alike(study: Study) -> list[str]:
    """Return in which covariates the classes were balanced, of the first run for which that was possible."""
    for file in filter(Path.is_file, (run.folder / "balanced.tsv" for run in study.runs)):
        table = read_table(file, text=("covariates",)).dropna(subset=["value"])  # without them, it was refused
        names = [names for names in table["covariates"].dropna() if names]
        if names:
            return str(names[0]).split(", ")
    return []


def folds_compared(study: Study) -> int:
    """Return the largest number of folds that the reference and another model finished, with all seeds; 0: no tests."""
    most = 0
    for atlas in study.config.atlas_places:
        finished = {}
        for name, model in study.models.items():
            folders = [study.layout.run(atlas, model, seed).folder for seed in study.config.seeds]
            tables = [read_result(folder / "metrics.tsv") for folder in folders]
            of_seeds = [set(table.loc[table["state"] == "ok", "fold"]) if len(table) else set() for table in tables]
            finished[name] = set.intersection(*of_seeds)
        compared = finished.pop(reference(study).run_name)
        most = max([most, *(len(compared & folds) for folds in finished.values())])
    return most


# ---- models


def model_text(model: Model, dataset: Dataset, found: Sequence[Mapping[str, Any]] = ()) -> str:
    """Describe a model and its training (``templates/model.txt``), from its configuration as `bolt.training` reads it.

    Parameters
    ----------
    model : Model
    dataset : Dataset
    found : sequence of mapping
        Settings of the model in folds that were trained, with those that follow from the data (`tr` and `crop`).
    """
    model, dataset = model.on(dataset)
    t = model.training

    def setting(name: str) -> Any:
        """Return a setting of the model's class: as configured, or its default."""
        return model.hyper.get(name, defaults_of(model.model).get(name))

    strengths = {name: setting(name) for name in all_words()["regularisation"]}
    strengths |= {"mixup": t.mixup, "clip_gradient": t.clip_gradient}
    strengths["label_smoothing"] = t.label_smoothing if dataset.classes else 0
    if setting("cls_token") != "local":
        strengths["cwr_weight"] = 0
    if not dataset.classes or t.mixup:  # `SeriesModel.label_losses`
        strengths["consistency_weight"] = 0
    each = setting("dropout_before_fusion")
    seconds, stride, least = (setting(name) for name in ("window_seconds", "stride_seconds", "least_windows"))
    lengths = [(known.get("tr", setting("tr")), known["crop"]) for known in found if seconds and "crop" in known]
    windows = sorted({(window_volumes(seconds, stride, tr, crop, least), tr) for tr, crop in lengths})
    times = Counter(member.shown for member in told_apart(model.members))
    template = text_environment().get_template("model.txt")
    text = template.render(
        model=model,
        dataset=dataset,
        t=t,
        setting=setting,
        number=number,
        network=has_epochs(model.model),
        inputs=inputs_of(model.model),
        matrices=matrices_in_words(model.model),
        alike=crops_alike(model.model),
        ignores_tail=ignores_tail(model.model, model.hyper),
        crop_lengths=t.crop_lengths(dataset.crop),
        regularisation=[
            say(f"regularisation.{name}", value=number(value), before_fusion=each)
            for name, value in strengths.items()
            if value
        ],
        volumes=list(dict.fromkeys(str(window) for window, _ in windows)),
        lasted=list(dict.fromkeys(number(round(window * tr, 1)) for window, tr in windows)),
        shortened=any(window < round(seconds / tr) for window, tr in windows),
        members=[f"{name} with {n} seeds" if n > 1 else name for name, n in times.items()],
        betas=(number(HIGH_BETA), number(LOW_BETA)),
        inner_folds=INNER_FOLDS,
        penalties=PENALTIES,
        shrinkages=[number(value) for value in SHRINKAGES],
        min_scans=MIN_SCANS,
        versions=versions(),
    )
    return " ".join(text.split())


def number(value: float) -> str:
    """Write a number as in an article: 0.0001, 2 × 10⁻⁷."""
    mantissa, e, exponent = f"{value:g}".partition("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}" if e else mantissa


# ---- preprocessing


def preprocessing_texts(layout: Layout, scans: pd.DataFrame) -> list[str]:
    """Return the paragraphs that preprocessing wrote beside its outputs, each once.

    A paragraph that applies to only some of the images states to how many.
    """
    raw = scans[scans["kind"] == "raw"]
    folders = sorted({folder_of(str(t1w)) for t1w in raw["t1w"].dropna()})
    anatomical = [layout.anatomical(folder) / f"{prefix_of(folder)}desc-preproc_T1w.json" for folder in folders]
    functional = []
    for scan in map(str, raw["scan_id"]):
        folder = layout.functional(folder_of(scan))
        names = sorted(os.listdir(folder)) if folder.is_dir() else []  # a pattern per scan would be slow
        files = [folder / name for name in names if name.startswith(f"{scan}_") and name.endswith("boldref.json")]
        functional += files[:1]  # at most one per scan, whatever its space
    paragraphs = []
    for files, images in ((anatomical, "T1-weighted images"), (functional, "BOLD scans")):
        texts = [list(dict.fromkeys(read_json(file).get("Methods", []))) for file in files if file.is_file()]
        for text, n in Counter(text for of_image in texts for text in of_image).items():
            paragraphs.append(text if n == len(texts) else f"In {n} of {len(texts)} {images}: {text}")
    return paragraphs


# ---- references


def cite(paragraphs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Turn citation keys into numbers, in the order of their first mention.

    Returns
    -------
    paragraphs : list of str
        ``[@ants_n4; @ants_syn]`` has become ``[1, 2]``.
    references : list of str
        The first is number 1.

    Raises
    ------
    ConfigError
        A key is not in ``references.yaml``.
    """
    keys, known = cited(paragraphs), load_references()
    references = [say("methods.reference", **known[key]) for key in keys]

    def numbered(citation: re.Match[str]) -> str:
        return "[" + ", ".join(str(keys.index(key) + 1) for key in _keys(citation)) + "]"

    return [CITATION.sub(numbered, text) for text in paragraphs], references


def cited(paragraphs: Sequence[str]) -> list[str]:
    """Return the keys that paragraphs cite, in the order of their first mention.

    Raises
    ------
    ConfigError
        A key is not in ``references.yaml``.
    """
    citations = (citation for text in paragraphs for citation in CITATION.finditer(text))
    keys = list(dict.fromkeys(key for citation in citations for key in _keys(citation)))
    unknown = sorted(set(keys) - set(load_references()))
    if unknown:
        raise ConfigError(f"the methods text cites '{unknown[0]}'", where=REFERENCES, hint="Add the reference there")
    return keys


def _keys(citation: re.Match[str]) -> list[str]:
    return citation[1].replace("@", "").split("; ")


@cache
def load_references() -> dict[str, dict[str, str]]:
    """Read authors, year, title, journal (volume, number, pages), and doi or url of each reference by its key."""
    return read_yaml(REFERENCES)


def methods_page(paragraphs: Sequence[str], references: Sequence[str]) -> str:
    """Return the section as Markdown, for a manuscript."""
    listed = "\n".join(f"{n}. {text}" for n, text in enumerate(references, 1))
    return "\n\n".join(["# Methods", *paragraphs, "## References", listed]) + "\n"


def bibtex(keys: Sequence[str], references: Mapping[str, Mapping[str, str]]) -> str:
    """Return the entries of the cited references, numbered as in the text.

    Parameters
    ----------
    keys : sequence of str
        The first is number 1.
    references : mapping
        As in ``references.yaml``.
    """

    def author(name: str) -> str:
        """Return ``Tustison NJ`` as ``Tustison, N. J.``."""
        family, _, initials = name.rpartition(" ")
        return "others" if name == "et al" else f"{escaped(family)}, {' '.join(f'{letter}.' for letter in initials)}"

    entries = []
    for key in keys:
        authors = references[key]["authors"].rstrip(".").split(", ")
        entries.append({"key": key, "author": " and ".join(map(author, authors)), **references[key]})
    return text_environment().get_template("methods.bib").render(entries=entries, escaped=escaped)


def escaped(text: str) -> str:
    """Return a text in which LaTeX finds no commands."""
    return "".join(SPECIAL.get(character, character) for character in text)
