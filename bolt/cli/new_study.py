"""A configuration for a folder of data that was looked into: what `bolt init` and `bolt run` write."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from bolt import config as configuration
from bolt.config import ROOT, Config, Dataset, Model, nearest, shipped_file
from bolt.config.keys import parse
from bolt.datasets.participants import read_series_table
from bolt.io.errors import ConfigError, DataError, shorten_list
from bolt.io.files import SEPARATORS, read_json, read_text, read_yaml, write_text
from bolt.io.names import is_name
from bolt.io.people import known_values
from bolt.io.places import WRITTEN_BY_BOLT, snakemake_command
from bolt.models.registry import FROM_FILE
from bolt.models.suitability import check_file

SCHEMA = "# yaml-language-server: $schema={root}/config/schemas/{kind}.json\n"
WORDS = read_yaml(Path(__file__).with_name("words.yaml"))
ABOUT: dict[str, list[str]] = WORDS["columns"]
"""Keys of a dataset, and what tables of participants call these columns."""
CONTROLS = frozenset(WORDS["controls"])
"""Names of classes, as words without a plural s, that are not the positive one by default."""
MOST_CLASSES = 10
FEW, SMALL = 100, "bolt_small"
"""Of fewer labelled scans, the model by default."""
FILTERS = {"task": "tasks", "session": "sessions", "run": "runs"}
"""Entities of a BIDS filter, and the dataset's keys."""
FILES = {*configuration.NAMED, "quality.ratings", "subjects_table", "restricted_table"}
FOLDERS = {"atlases", "paths.atlas_dir", "paths.templateflow_home", "bids"}
"""Keys that may name what a user has; `paths.results` and `paths.work` are places in the output folder."""
log = logging.getLogger("bolt")


@dataclass
class Wishes:
    """What a user asks of a study; None or empty: decide from the data.

    Attributes
    ----------
    label : str or None
        Column to predict; None: nothing.
    classes : list of str
    positive : str or None
        The positive class of two.
    columns : dict
        group, site, age, sex → column.
    participants : list of str
    filters : dict
        The dataset's keys that choose scans: tasks, sessions, runs, bids_filter (of T1w and BOLD).
    atlases, models : list of str
    given : dict
        Path → ``features`` or ``predictions``: files of others, to be judged beside simple models.
    settings : dict
        Further keys of the configuration, which are taken as they are.
    """

    label: str | None = None
    classes: list[str] = field(default_factory=list)
    positive: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    participants: list[str] = field(default_factory=list)
    filters: dict[str, Any] = field(default_factory=dict)
    atlases: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    given: dict[Path, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: argparse.Namespace) -> Wishes:
        """Return what the options of a study ask for (``commands.toml``)."""
        keys = ("denoise", "device")
        given = {key: value for key in keys if (value := getattr(options, key)) is not None}
        settings: dict[str, Any] = {key: from_here(key, value) for key, value in given.items()}
        settings |= {"preprocess": {"space": options.space}} if options.space else {}
        settings |= {"seeds": options.seed} if options.seed else {}
        settings |= {"folds": {"outer": options.folds}} if options.folds is not None else {}
        for assignment in options.set or []:
            _assign(settings, assignment)
        columns = {"group": options.group_column, "site": options.site, "age": options.age, "sex": options.sex}
        return cls(
            label=options.label,
            classes=options.classes or [],
            positive=options.positive,
            columns={key: column for key, column in columns.items() if column is not None},
            filters={"tasks": options.task_id, "sessions": options.session_id, "runs": options.run_id},
            atlases=from_here("atlases", options.atlas or []),
            models=from_here("models", options.model or []),
            given={file: kind for kind in FROM_FILE for file in getattr(options, kind) or []},
            settings=settings,
        )


def _assign(settings: dict[str, Any], assignment: str) -> None:
    """Add ``a.b=value`` to nested settings."""
    key, equals, text = assignment.partition("=")
    *above, last = key.split(".")
    if not equals or not last:
        raise ConfigError(f"--set {assignment}: no assignment", hint="As in --set quality.max_mean_fd=0.5")
    group = settings
    for part in above:
        group = group.setdefault(part, {})
        if not isinstance(group, dict):
            raise ConfigError(f"--set {assignment}: '{part}' is not a group of keys", hint="See config/config.yaml")
    try:
        group[last] = from_here(key, yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {assignment}: not a value ({' '.join(str(error).split())})") from None


def from_here(key: str, value: Any) -> Any:
    """Return a setting, as absolute paths where it names what is there: those of a configuration lead from its folder.

    Parameters
    ----------
    key : str
        Of a configuration or dataset, such as ``quality.ratings``.
    value : object
        Names of what comes with BolT stay names.
    """
    if isinstance(value, list):
        return [from_here(key, one) for one in value]
    kind = configuration.NAMED.get(key)
    if not isinstance(value, str) or (kind and shipped_file(kind, value)):
        return value
    there = (key in FILES and os.path.isfile(value)) or (key in FOLDERS and os.path.isdir(value))
    return str(_as_given(Path(value))) if there else value


def read_filter(path: Path) -> dict[str, Any]:
    """Read a file as fMRIPrep's ``--bids-filter-file``: ``{"bold": {"task": "rest", "session": ["1", "2"]}}``.

    Returns
    -------
    dict
        tasks, sessions and runs of BOLD images, and bids_filter with all else.

    Raises
    ------
    ConfigError
        It filters other images than T1w and BOLD, or by something that is no value.
    """
    filters = read_json(path)
    if not isinstance(filters, dict) or not all(isinstance(value, dict) for value in filters.values()):
        raise ConfigError("not a BIDS filter", where=path, hint='As in {"bold": {"task": "rest"}}')
    wanted: dict[str, Any] = {}
    for query, entities in filters.items():
        for entity, value in entities.items():
            if query not in ("bold", "t1w"):
                raise ConfigError(f"'{query}' cannot be filtered", where=path, hint="Use 'bold' and 't1w'")
            if entity in ("datatype", "suffix"):
                continue
            values = value if isinstance(value, list) else [value]
            if not values or not all(isinstance(v, str | int) and not isinstance(v, bool) for v in values):
                raise ConfigError(f"'{query}: {entity}' is {json.dumps(value)}", where=path, hint="Give its values")
            if query == "bold" and entity in FILTERS:
                wanted[FILTERS[entity]] = [str(v) for v in values]
            else:
                wanted.setdefault("bids_filter", {}).setdefault(query, {})[entity] = value
    return wanted


def source_of_folder(path: Path) -> str:
    """Return which source reads a folder or table: ``bids``, ``fmriprep``, ``bids_series`` (XCP-D) or ``series``.

    Raises
    ------
    DataError
        It is none of them.
    """
    if path.is_file() and path.suffix in (".tsv", ".csv"):
        return "series"
    about = path / "dataset_description.json"
    if not path.exists():
        raise DataError("no such file or folder", where=path, hint="Correct the path")
    if not about.is_file():
        what = "neither a BIDS folder (no dataset_description.json) nor a table of series"
        hint = "Give the top folder of a BIDS dataset or of fMRIPrep's output, or a table with 'subject' and 'file'"
        raise DataError(what, where=path, hint=hint)
    described = read_json(about)
    described = described if isinstance(described, dict) else {}
    # BIDS 1.4 and later, fMRIPrep 1 before and fMRIPrep until 1.3 name the tool that made a folder in different ways
    tools: list[Any] = [name for name in [described.get("Name")] if str(name).startswith("fMRIPrep - ")]
    for made_by in (described.get("GeneratedBy"), described.get("PipelineDescription")):
        tools += made_by if isinstance(made_by, list) else [made_by]
    called = [tool.get("Name") if isinstance(tool, dict) else tool for tool in tools]
    names = [name for name in called if isinstance(name, str)]
    for tool, source in (("fmriprep", "fmriprep"), ("xcp", "bids_series")):
        if tool in " ".join(names).casefold():
            return source
    if described.get("DatasetType") == "derivative":
        what = f"derivatives of {', '.join(names) or 'an unknown tool'}"
        raise DataError(what, where=about, hint="Those of fMRIPrep and XCP-D are read; for others see docs/data.md")
    return "bids"


def dataset_of(path: Path, wishes: Wishes, name: str) -> tuple[Dataset, pd.DataFrame]:
    """Describe the dataset in a folder; returns also its table of participants or series, empty if there is none.

    Parameters
    ----------
    path : Path
        BIDS folder, fMRIPrep's output, or a table of series.
    wishes : Wishes
    name : str

    Raises
    ------
    DataError
        It is no dataset; the label has one value.
    ConfigError
        A column does not exist.
    """
    source, table_path = source_of_folder(path), participants_of(path)
    read = read_series_table if source == "series" else read_text
    table = read(table_path) if table_path is not None else pd.DataFrame()

    def require(column: str, option: str) -> str:
        if table_path is None:
            raise ConfigError(f"{option} {column}: there is no participants.tsv", hint="Add it to the folder")
        if column not in table:
            listed = [str(name) for name in table]
            hint = f"Its columns: {', '.join(listed)}{nearest(column, listed)}"
            raise ConfigError(f"{option} {column}: no such column in {table_path}", hint=hint)
        return column

    if source == "series" and not {"subject", "file"} <= set(table):
        what = f"a table of series needs the columns subject and file; found {shorten_list(table)}"
        raise ConfigError(what, where=path, hint=f"Name them so. {SEPARATORS}")
    keys: dict[str, Any] = {"name": name, "source": source, "path": _as_given(path), "label": wishes.label}
    if table_path is not None and source in ("fmriprep", "bids_series") and table_path.parent != path:
        keys["subjects_table"] = _as_given(table_path)
    named = {str(column).casefold(): str(column) for column in reversed(table.columns)}
    for key, usual in ABOUT.items():  # the column that was asked for, or one with a usual name that has values
        if key in wishes.columns:
            keys[key] = require(wishes.columns[key], f"--{key}")
            continue
        for column in (named[name] for name in usual if name in named):
            if key not in keys and known_values(table[column]).notna().any():
                keys[key] = column
    if wishes.label is not None:
        values = known_values(table[require(wishes.label, "--label")], label=True)
        if absent := set(wishes.classes or ()) - set(values):
            hint = f"It has {shorten_list(sorted(values.dropna().unique()))}"
            raise ConfigError(f"--classes: no '{wishes.label}' is {' or '.join(sorted(absent))}", hint=hint)
        keys["classes"] = wishes.classes or _classes(values, wishes.label)
        if wishes.positive is not None:  # which comes last
            classes = keys["classes"] or []
            if len(classes) != 2 or wishes.positive not in classes:
                hint = f"Classes: {', '.join(classes or ['none'])}"
                raise ConfigError(f"--positive {wishes.positive}: not one of two classes", hint=hint)
            keys["classes"] = sorted(classes, key=lambda name: name == wishes.positive)
    keys |= {key: values for key, values in wishes.filters.items() if values}
    keys |= {key: value for key, value in wishes.settings.items() if _of_dataset(key)}
    if wishes.participants:  # as their table writes them, with or without ``sub-``
        if table_path is None:
            raise ConfigError("--participant-label needs a participants.tsv", hint="Add it to the folder")
        key = "subject" if source == "series" else "participant_id"
        known = {str(name).removeprefix("sub-"): str(name) for name in table[key].dropna()}
        for name in wishes.participants:
            if name.removeprefix("sub-") not in known:
                hint = f"It has {', '.join(sorted(known)[:5])} …"
                raise ConfigError(f"--participant-label {name}: not in {table_path}", hint=hint)
        keys["include"] = {key: [known[name.removeprefix("sub-")] for name in wishes.participants]}
    return parse(Dataset, keys, path), table


def _of_dataset(key: str) -> bool:
    """Return whether a setting belongs in the dataset's file, as ``tr_conflict`` does."""
    return key in Dataset.model_fields and key not in Config.model_fields


def participants_of(path: Path) -> Path | None:
    """Return the table of participants, if there is one: in the folder, or in the BIDS folder that holds it."""
    source, places = source_of_folder(path), [path]
    if source == "series":
        return path
    if source in ("fmriprep", "bids_series"):  # a linked folder is looked for where it is given, then where it lies
        places += [*_as_given(path).parents[:2], *path.resolve().parents[:2]]
    return next((place / "participants.tsv" for place in places if (place / "participants.tsv").is_file()), None)


def _as_given(path: Path) -> Path:
    """Return an absolute path through the same links, unless ``..`` after a link leads elsewhere without them."""
    given = Path(os.path.abspath(path))
    return given if given.exists() and given.samefile(path) else path.resolve()


def _classes(values: pd.Series, label: str) -> list[str] | None:
    """Return the classes of a label, sorted, but of two controls first; None if it is a number."""
    found = sorted(values.dropna().astype(str).unique())
    if len(found) < 2:
        raise DataError(f"label '{label}' has {len(found)} values", hint="Choose a column with two at least")
    if len(found) <= MOST_CLASSES:
        if len({name.casefold() for name in found}) < len(found):
            what = f"label '{label}' has values that differ in case alone: {', '.join(found)}"
            raise DataError(what, hint="Write them alike, or name some with --classes")
        words = {name: re.sub("[^a-z]+", " ", name.casefold()).strip().removesuffix("s") for name in found}
        return sorted(found, key=lambda name: words[name] not in CONTROLS) if len(found) == 2 else found
    if pd.to_numeric(values, errors="coerce").notna().sum() == values.notna().sum():
        return None
    raise DataError(f"label '{label}' has {len(found)} values, such as '{found[0]}'", hint="Name some with --classes")


def write_study(
    folder: Path, name: str, data: Path, wishes: Wishes, *, scratch: Path | None = None
) -> tuple[Path, Config, Dataset]:
    """Write ``<folder>/<name>.yaml`` and ``<folder>/datasets/<name>.yaml``, unless they were edited since.

    Parameters
    ----------
    folder : Path
    name : str
        Of the dataset: its results are in ``results/<name>``.
    data : Path
        As for `dataset_of`.
    wishes : Wishes
    scratch : Path, optional
        For a dry run: another folder, in which the files are written if those in `folder` would change.

    Returns
    -------
    path : Path
        Of the configuration.
    config : Config
    dataset : Dataset
        As in the files.

    Raises
    ------
    ConfigError, DataError
        As `dataset_of`; a setting is wrong. Nothing is written then.
    """
    if not is_name(name):
        raise ConfigError(f"'{name}' cannot name a dataset", hint="Give a name of letters, digits, - and _")
    dataset, table = dataset_of(data, wishes, name)
    keys: dict[str, Any] = {"dataset": name}
    keys |= {"atlases": wishes.atlases} if wishes.atlases else {}
    keys |= {"models": wishes.models} if wishes.models else {}
    keys |= {key: value for key, value in wishes.settings.items() if not _of_dataset(key)}
    models = models_of(wishes, dataset)
    if models:
        keys["models"] = [*(wishes.models or _baselines(dataset, table)), *models]
    if dataset.label is not None:
        rows, folds = table, keys.get("folds", {})  # those with a label: scans of ready series, else people
        for column, wanted in dataset.include.items():
            rows = rows[rows[column].isin(wanted)] if column in rows else rows
        labels = known_values(rows[dataset.label], label=True)
        rows = rows[labels.notna() if dataset.classes is None else labels.isin(dataset.classes)]
        if dataset.classes is not None and isinstance(folds, dict) and "outer" not in folds:
            # fewer folds where the smallest class has fewer people, each counted once, than the default of 10
            person = rows.get("subject" if dataset.source == "series" else "participant_id", rows.index.to_series())
            unit = person if dataset.group is None else known_values(rows[dataset.group]).fillna(person)
            people = rows[~rows.assign(unit=unit).duplicated(["unit", dataset.label])]
            counts = known_values(people[dataset.label], label=True).value_counts().reindex(dataset.classes).fillna(0)
            if 2 <= counts.min() < Config.model_fields["folds"].default.outer:
                keys["folds"] = {**folds, "outer": int(counts.min())}
        if "models" not in keys and len(rows) < FEW:
            keys["models"] = [SMALL]
            log.info("model %s, which suits %d scans better than bolt (--model bolt: the paper's)", SMALL, len(rows))
    config = parse(Config, keys, "command line")
    for model in config.models:
        if model not in models:
            configuration.load_model(model)
    described = dataset.model_dump(mode="json", exclude_unset=True, exclude={"name"})
    place, about, root = Path(f"{name}.yaml"), Path("datasets", f"{name}.yaml"), ROOT.resolve()
    found = f"# What `bolt` found in {_quoted(str(data))}.\n"
    run = f"# Run it: snakemake --cores 8 --configfile {place} --snakefile {root}/Snakefile\n"
    run += f"# All keys: {root}/config/config.yaml\n"
    contents = {about: ("dataset", described, found), place: ("config", keys, run)}
    contents |= {Path("models", f"{own}.yaml"): ("model", settings, "") for own, settings in models.items()}
    texts = {file: _text(folder / file, *content) for file, content in contents.items()}
    if scratch is not None and any(_present(folder / file) not in (None, text) for file, text in texts.items()):
        folder = scratch
    for file, text in texts.items():
        if _present(folder / file) != text:  # an equal file keeps its time
            write_text(text, folder / file)
    place, about = folder / place, folder / about
    return place, parse(Config, read_yaml(place), place), parse(Dataset, read_yaml(about) | {"name": name}, about)


def models_of(wishes: Wishes, dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Return the models of others' files by their names, after the files; refuse what cannot be judged."""
    models: dict[str, dict[str, Any]] = {}
    for file, kind in wishes.given.items():
        name = name_of(file)
        name += f"_{kind}" if name in {*models, *configuration.known("model")} else ""
        if name in models:
            raise ConfigError(f"two files of {kind} would be called '{name}'", where=file, hint="Rename one of them")
        if dataset.classes is None:
            raise ConfigError(f"the label '{dataset.label}' has no classes, which {kind} of others need", where=file)
        models[name] = {"model": kind, "title": file.stem, "file": str(_as_given(file))}
        check_file(parse(Model, models[name] | {"name": name}, file), dataset)
    return models


def _baselines(dataset: Dataset, table: pd.DataFrame) -> list[str]:
    """Return the simple models beside which those of others are judged: of the brain, motion and site."""
    listed = "mean_fd" in table and bool(known_values(table["mean_fd"]).notna().any())
    moves = listed or dataset.source not in ("series", "bids_series")
    return ["ridge", "svm", *["motion_only"] * moves, *["site_only"] * (dataset.site is not None)]


def _text(path: Path, kind: str, keys: dict[str, Any], comment: str) -> str:
    """Return a YAML file with its schema and a comment, or the one at `path` if it was edited since."""
    body = "".join(f"{key}: {_quoted(value)}\n" for key, value in keys.items())
    present, mark = _present(path), WRITTEN_BY_BOLT + "{}).\n"
    if present is not None:
        written = present.partition(WRITTEN_BY_BOLT)[2].partition("\n")[2]
        if mark.format(_digest(written)) not in present:
            log.warning("%s was edited and is used as it is; delete it to have it written again", path)
            return present
    return SCHEMA.format(root=ROOT.resolve(), kind=kind) + comment + mark.format(_digest(body)) + body


def _present(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _quoted(value: Any) -> str:
    """Return a value as JSON, which is YAML once characters that YAML takes for line breaks are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in text)


def name_of(data: Path) -> str:
    """Return a name for the dataset in a folder, after the folder or table."""
    path = data.resolve()
    name = path.stem if path.is_file() else path.name
    if name in ("fmriprep", "derivatives", "bids"):
        name = next((p.name for p in path.parents if p.name not in ("fmriprep", "derivatives", "bids", "")), name)
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")
    return cleaned or "study"


def init(options: argparse.Namespace) -> None:
    """Run ``bolt init DATA``: look into a folder, ask what it cannot say, write two files, and show the next steps.

    Parameters
    ----------
    options : Namespace
        data, out, name, and the options of a study (`Wishes.of`).

    Raises
    ------
    ConfigError, DataError
        As `write_study`.
    """
    wishes = Wishes.of(options)
    if wishes.label is None and sys.stdin.isatty():
        wishes.label = ask_label(options)
    place, config, dataset = write_study(options.out, options.name or name_of(options.data), options.data, wishes)
    label = "nothing to predict" if dataset.label is None else f"label '{dataset.label}'"
    classes = f" ({', '.join(dataset.classes)})" if dataset.classes else ""
    print(f"{options.data}: {dataset.source}, {label}{classes}; atlases {', '.join(config.atlases)}")
    print(f"wrote {place} and {options.out / 'datasets' / place.name}; every other key has its default")
    print(f"next: bolt check --config {place}")
    print(f"      {snakemake_command(place)}")


def ask_label(options: argparse.Namespace) -> str | None:
    """Ask which column is predicted; an empty answer is none."""
    path = participants_of(options.data)
    if path is None:
        return None
    table = read_text(path)
    candidates = []
    for column in table:  # a few classes that repeat, or numbers
        known = table[column].dropna()
        n = known.nunique()
        numbers = n > MOST_CLASSES and pd.to_numeric(known, errors="coerce").notna().all()
        if numbers or (2 <= n <= MOST_CLASSES and n < len(known)):
            candidates.append(str(column))
    print(f"Columns of {path}: {', '.join(map(str, table))}")
    print(f"What shall be predicted? {' / '.join(candidates)} [nothing: ROI series alone]: ", end="", flush=True)
    return sys.stdin.readline().strip() or None
