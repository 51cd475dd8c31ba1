"""The methods section: what preprocessing recorded beside its outputs, then ``templates/methods.txt``.

References are those of ``references.yaml`` that the text cites.

References as BibTeX (UTF-8), for reference managers and LaTeX.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from bolt import __version__
from bolt.atlases.description import describe_atlas
from bolt.atlases.spaces import carried_from
from bolt.config import Model, load_denoise
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.config.study import Study
from bolt.evaluate.chance import DRAWS, LEVEL
from bolt.evaluate.paired import FEWEST_FOLDS
from bolt.explain.explainable import can_be_explained
from bolt.io.errors import ConfigError
from bolt.io.files import read_json, read_table, read_yaml
from bolt.jobs.versions import versions
from bolt.models.registry import has_epochs, settings_of
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.sections.comparison import reference
from bolt.report.sections.model_text import model_text

REFERENCES = Path(__file__).parents[1] / "references.yaml"
CITATION = re.compile(r"\[(@\w+(?:; @\w+)*)\]")


def methods(study: Study, preprocessing: Sequence[str] = ()) -> list[str]:
    """Return paragraphs for a manuscript, including `preprocessing`, with citation keys such as ``[@nilearn]``."""
    config, dataset = study.config, study.dataset
    models = list({part.run_name: part for model in study.models.values() for part in reversed(model.parts)}.values())
    cutoffs, partly_known = _cutoffs(study)
    text = _template().render(
        config=config,
        dataset=dataset,
        models=models,
        model_texts=[model_text(model, dataset, _found(study, model)) for model in models],
        networks=[model for model in models if has_epochs(model.model)],
        explained=[model for model in study.models.values() if can_be_explained(model, dataset)],
        folds_run=_folds_run(study),
        atlases=[describe_atlas(place) for place in config.atlas_places.values()],
        carried=_carried(study),
        cutoffs=cutoffs,
        partly_known=partly_known,
        rated=config.quality.ratings is not None,
        several_sites=_several_sites(study),
        raw=dataset.source in ("phantom", "bids"),
        preprocessing=preprocessing,
        denoise=load_denoise(config.denoise),
        shortened=_shortened(study),
        reference=reference(study).shown,
        folds_compared=folds_compared(study),
        fewest_folds=FEWEST_FOLDS,
        chance_draws=DRAWS,
        level=LEVEL,
        version=__version__,
        versions=versions(),
    )
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("bolt.report"), undefined=StrictUndefined, autoescape=False)
    return environment.get_template("methods.txt")


def _found(study: Study, model: Model) -> list[dict[str, Any]]:
    """Return the settings of a model in each trained fold, if the TR of its scans is one of them."""
    if "tr" not in settings_of(model.model):
        return []
    member = f"fold-*/members/*-{model.name}/checkpoint.json"
    patterns = [(run, "fold-*/checkpoint.json" if run.model == model.run_name else member) for run in study.runs]
    return [read_json(file)["model"]["hyper"] for run, pattern in patterns for file in run.folder.glob(pattern)]


def _shortened(study: Study) -> tuple[int, int]:
    """Return how many scans have fewer volumes in their series than in their image, and how many scans have series."""
    folder, atlas = study.layout.results / "series" / study.layout.variant, next(iter(study.config.atlas_places))
    scans = sorted(folder.glob(f"*/*_atlas-{atlas}_timeseries.json"))
    facts = [read_json(scan) for scan in scans]
    shorter = [about.get("NumberOfVolumesKept", 0) < about.get("NumberOfVolumes", 0) for about in facts]
    return sum(shorter), len(shorter)


def folds_compared(study: Study) -> int:
    """Return the largest number of folds that the reference and another model finished, with all seeds; 0: no tests."""
    most = 0
    for atlas in study.config.atlas_places:
        finished = {name: _finished(study, atlas, model) for name, model in study.models.items()}
        compared = finished.pop(reference(study).run_name)
        most = max([most, *(len(compared & folds) for folds in finished.values())])
    return most


def _finished(study: Study, atlas: str, model: Model) -> set[str]:
    """Return the folds that all seeds of a model finished, according to their ``metrics.tsv``."""
    folds = []
    for seed in study.config.seeds:
        file = study.layout.run(atlas, model, seed).folder / "metrics.tsv"
        table = read_table(file, text=("fold", "state")) if file.is_file() else pd.DataFrame({"fold": [], "state": []})
        folds.append(set(table.loc[table["state"] == "ok", "fold"]))
    return set.intersection(*folds)


def _carried(study: Study) -> dict[str, str]:
    """Return the atlases that were carried over to the space of the images, with the space of their own image."""
    space, home = study.space, study.config.paths.templateflow_home
    described = map(describe_atlas, study.config.atlas_places.values())
    return {about.name: source for about in described if (source := carried_from(about, space, home))}


def _cutoffs(study: Study) -> tuple[list[str], bool]:
    """Describe the cut-offs of measures that are known of some scan; return also whether one is unknown of others."""
    table = read_table(study.layout.quality, text=("scan_id",)) if study.layout.quality.is_file() else pd.DataFrame()
    measured = table[[name for name in MEASURES if name in table]].dropna(how="all")
    known = [cutoff for cutoff in study.config.quality.cutoffs() if cutoff[1] in measured.dropna(axis=1, how="all")]
    partly = measured[[name for _, name, _ in known]].isna().any(axis=None)
    return [_cutoff(*cutoff) for cutoff in known], bool(partly)


def _several_sites(study: Study) -> bool:
    """Return whether the scans are known to be of several sites, by which folds are then stratified."""
    if not study.layout.scans.is_file():
        return study.dataset.site is not None
    return read_table(study.layout.scans, text=("site",))["site"].nunique() > 1


def _cutoff(bound: str, name: str, cutoff: float) -> str:
    """Describe for what a scan is excluded."""
    measure = MEASURES[name]
    side = "below" if bound == "min" else "above"
    return f"{measure.label} {side} {cutoff:g}{f' {measure.unit}' if measure.unit else ''}"


def _folds_run(study: Study) -> str:
    """Name the folds that were run, if not all."""
    models_of: dict[tuple[int, ...], list[str]] = {}
    for model in study.models.values():
        models_of.setdefault(tuple(study.config.folds.of(model.name)), []).append(model.shown)
    every = models_of.pop(tuple(range(study.config.folds.outer)), [])
    parts = [f"{', '.join(map(str, folds))} with {', '.join(names)}" for folds, names in models_of.items()]
    if len(parts) == 1 and not every:
        return f" (folds run: {', '.join(map(str, next(iter(models_of))))})"
    return f" (folds run: {'; '.join(parts + ['all with the others'] * bool(every))})" if parts else ""


def preprocessing_texts(layout: Layout, scans: pd.DataFrame) -> list[str]:
    """Return the paragraphs that preprocessing wrote beside its outputs, each once.

    A paragraph that applies to only some of the images states to how many.
    """
    raw = scans[scans["kind"] == "raw"]
    folders = sorted({folder_of(str(t1w)) for t1w in raw["t1w"].dropna()})
    anatomical = [layout.anatomical(folder) / f"{prefix_of(folder)}desc-preproc_T1w.json" for folder in folders]
    functional = [
        file  # at most one per scan, whatever its space
        for scan in map(str, raw["scan_id"])
        for file in _files(layout.functional(folder_of(scan)), f"{scan}_", "boldref.json")[:1]
    ]
    return [*_paragraphs(anatomical, "T1-weighted images"), *_paragraphs(functional, "BOLD scans")]


def _files(folder: Path, start: str, end: str) -> list[Path]:
    """Return the sorted files of a folder by the start and end of their names; a pattern per scan would be slow."""
    names = os.listdir(folder) if folder.is_dir() else []
    return [folder / name for name in sorted(names) if name.startswith(start) and name.endswith(end)]


def _paragraphs(files: Iterable[Path], images: str) -> list[str]:
    texts = [list(dict.fromkeys(read_json(file).get("Methods", []))) for file in files if file.is_file()]
    counts = Counter(text for of_image in texts for text in of_image)
    return [text if n == len(texts) else f"In {n} of {len(texts)} {images}: {text}" for text, n in counts.items()]


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
    keys = cited(paragraphs)

    def numbered(citation: re.Match[str]) -> str:
        return "[" + ", ".join(str(keys.index(key) + 1) for key in _keys(citation)) + "]"

    return [CITATION.sub(numbered, text) for text in paragraphs], [_reference(key) for key in keys]


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
    """Read authors, year, title, journal, and doi or url of each reference by its key."""
    return read_yaml(REFERENCES)


def _reference(key: str) -> str:
    about = load_references()[key]
    place = f"doi:{about['doi']}" if "doi" in about else about["url"]
    return f"{about['authors'].rstrip('.')} ({about['year']}). {about['title']}. {about['journal']}. {place}"


def methods_page(paragraphs: Sequence[str], references: Sequence[str]) -> str:
    """Return the section as Markdown, for a manuscript."""
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(references, 1))
    return "\n\n".join(["# Methods", *paragraphs, "## References", listed]) + "\n"


JOURNAL = re.compile(r"(?P<journal>.+) (?P<volume>\w+)(?:\((?P<number>[^)]+)\))?:(?P<pages>[\w-]+)")
"""``NeuroImage 54(3):2033-2044``."""
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


def bibtex(keys: Sequence[str], references: Mapping[str, Mapping[str, str]]) -> str:
    """Return the entries of the cited references, numbered as in the text.

    Parameters
    ----------
    keys : sequence of str
        The first is number 1.
    references : mapping
        Authors, year, title, journal, and doi or url of each key, as in ``references.yaml``.
    """
    entries = [f"[{number}]\n{_entry(key, references[key])}" for number, key in enumerate(keys, 1)]
    return "\n".join(["References of methods.md, by their numbers in the text.\n", *entries])


def _entry(key: str, about: Mapping[str, str]) -> str:
    place = JOURNAL.fullmatch(about["journal"])
    fields = {
        "author": _authors(about["authors"]),
        "title": f"{{{_escaped(about['title'])}}}",  # a second pair of braces: styles must not change capitals
        "year": str(about["year"]),
    }
    if place:
        fields |= {name: _escaped(text) for name, text in place.groupdict().items() if text}
        fields["pages"] = fields["pages"].replace("-", "--")
    else:
        fields["howpublished"] = _escaped(about["journal"])
    if "doi" in about:
        fields["doi"] = about["doi"]  # verbatim: these two are no LaTeX
    else:
        fields["url"] = about["url"] if "://" in about["url"] else f"https://{about['url']}"
    lines = "".join(f"  {name} = {{{text}}},\n" for name, text in fields.items())
    return f"@{'article' if place else 'misc'}{{{key},\n{lines}}}\n"


def _authors(names: str) -> str:
    """Return ``Tustison NJ, Avants BB, et al.`` as ``Tustison, N. J. and Avants, B. B. and others``."""
    return " and ".join(_author(name) for name in names.rstrip(".").split(", "))


def _author(name: str) -> str:
    if name == "et al":
        return "others"
    family, _, initials = name.rpartition(" ")
    return f"{_escaped(family)}, {' '.join(f'{letter}.' for letter in initials)}"


def _escaped(text: str) -> str:
    """Return a text in which LaTeX finds no commands."""
    return "".join(SPECIAL.get(character, character) for character in text)
