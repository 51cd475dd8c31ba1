"""The methods section: what preprocessing wrote of itself beside its outputs, then the rest from the configuration
that was run (``templates/methods.txt``). References are those of ``references.yaml`` that the text cites."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from bolt.atlases.description import describe_atlas
from bolt.config import Config, Dataset, Model, load_denoise
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.io.errors import ConfigError
from bolt.io.files import read_json, read_yaml
from bolt.jobs.versions import versions
from bolt.preprocess.quality.measures import MEASURES

REFERENCES = Path(__file__).parents[1] / "references.yaml"
CITATION = re.compile(r"\[(@\w+(?:; @\w+)*)\]")


def methods(config: Config, dataset: Dataset, models: Sequence[Model], preprocessing: Sequence[str] = ()) -> list[str]:
    """Paragraphs for a manuscript, with citation keys such as ``[@nilearn]`` (see `cite`).

    Parameters
    ----------
    config : Config
    dataset : Dataset
    models : sequence of Model
        Those of `config`, loaded.
    preprocessing : sequence of str
        From `preprocessing_texts`.
    """
    environment = Environment(loader=PackageLoader("bolt.report"), undefined=StrictUndefined, autoescape=False)
    text = environment.get_template("methods.txt").render(
        config=config,
        dataset=dataset,
        models=models,
        folds_run=_folds_run(config, models),
        atlases=[describe_atlas(place) for place in config.atlas_places.values()],
        cutoffs=[_in_words(*cutoff) for cutoff in config.quality.cutoffs()],
        raw=dataset.source in ("phantom", "bids"),
        preprocessing=preprocessing,
        denoise=load_denoise(config.denoise),
        versions=versions(),
    )
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _in_words(bound: str, name: str, cutoff: float) -> str:
    """What a scan is left out for."""
    measure = MEASURES[name]
    side = "below" if bound == "min" else "above"
    return f"{measure.label} {side} {cutoff:g}{f' {measure.unit}' if measure.unit else ''}"


def preprocessing_texts(layout: Layout, scans: pd.DataFrame) -> list[str]:
    """What really ran: the paragraphs that preprocessing left beside its outputs, each once.

    A paragraph that applies to some images only says to how many.

    Parameters
    ----------
    layout : Layout
    scans : DataFrame
        Those that are used.
    """
    raw = scans[scans["kind"] == "raw"]
    folders = sorted({folder_of(str(t1w)) for t1w in raw["t1w"].dropna()})
    anatomical = [layout.anatomical(folder) / f"{prefix_of(folder)}desc-preproc_T1w.json" for folder in folders]
    functional = [file for scan in raw["scan_id"] for file in _references_of(layout, str(scan))]
    return [*_gather(anatomical, "T1-weighted images"), *_gather(functional, "BOLD scans")]


def _references_of(layout: Layout, scan_id: str) -> list[Path]:
    """The JSON file of a scan's BOLD reference, whatever its space; at most one."""
    return sorted(layout.functional(folder_of(scan_id)).glob(f"{scan_id}_*boldref.json"))[:1]


def _gather(files: Iterable[Path], what: str) -> list[str]:
    found = [list(dict.fromkeys(read_json(file).get("Methods", []))) for file in files if file.is_file()]
    counts = pd.Series([text for texts in found for text in texts], dtype=object).value_counts(sort=False)
    return [text if n == len(found) else f"In {n} of {len(found)} {what}: {text}" for text, n in counts.items()]


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
        Where a key is not in ``references.yaml``.
    """
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        keys = found[1].replace("@", "").split("; ")
        return "[" + ", ".join(str(numbers.setdefault(key, len(numbers) + 1)) for key in keys) + "]"

    texts = [CITATION.sub(numbered, text) for text in paragraphs]
    unknown = sorted(set(numbers) - set(load_references()))
    if unknown:
        raise ConfigError(f"the methods text cites '{unknown[0]}'", where=REFERENCES, hint="Add the reference there")
    return texts, [_reference(key) for key in numbers]


@cache
def load_references() -> dict[str, dict[str, str]]:
    """Key to authors, year, title, journal, and doi or url."""
    return read_yaml(REFERENCES)


def _reference(key: str) -> str:
    about = load_references()[key]
    place = f"doi:{about['doi']}" if "doi" in about else about["url"]
    return f"{about['authors'].rstrip('.')} ({about['year']}). {about['title']}. {about['journal']}. {place}"


def methods_page(paragraphs: Sequence[str], references: Sequence[str]) -> str:
    """The section as Markdown, for a manuscript."""
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(references, 1))
    return "\n\n".join(["# Methods", *paragraphs, "## References", listed]) + "\n"


def _folds_run(config: Config, models: Sequence[Model]) -> str:
    """Which folds were run, where they were not all."""
    run = {model.name: config.folds.of(model.name) for model in models}
    if all(len(folds) == config.folds.outer for folds in run.values()):
        return ""
    named = {name: ", ".join(map(str, folds)) for name, folds in run.items()}
    if len(set(named.values())) == 1:
        return f" (folds run: {next(iter(named.values()))})"
    return f" (folds run: {'; '.join(f'{name} {folds}' for name, folds in named.items())})"
