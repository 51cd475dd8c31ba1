"""The lists of atlases (ROIs, spaces, images) and of models, also as the table of docs/models.md."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from bolt.atlases import description
from bolt.atlases.description import AtlasFile, describe_atlas, find_image, find_labels, known_atlases, reachable
from bolt.atlases.labels import count_rois, describe_names
from bolt.config import Model, Paths, known, load_config, load_model
from bolt.io.errors import DataError, list_entry
from bolt.io.files import atomic
from bolt.models.registry import inputs_of

START = "<!-- table of models: made by `bolt models --into docs/models.md` -->"
END = "<!-- end of the table of models -->"
COLUMNS = ("model", "in tables", "family", "learns from", "what it is", "reference")
MISSING = "not found"
FAMILIES = ("transformer", "RNN", "GNN", "CNN", "traditional", "baseline")
DOI, ARXIV = re.compile(r"doi:(\S+)"), re.compile(r"arXiv:([\d.]+\d)")


# ---- atlases ------------------------------------------------------------------------------------------
def show_atlases(options: Namespace) -> None:
    """Print every atlas: its ROIs and spaces, what it is, and where its image is or how to get it.

    Parameters
    ----------
    options : Namespace
        ``config``: configuration whose ``paths`` are searched for images, or None.
    """
    paths = load_config(options.config).paths if options.config else Paths()
    missing = False
    for name in known_atlases():
        about = describe_atlas(name)
        n_rois = count_rois(name, atlas_dir=paths.atlas_dir)
        spaces = ", ".join([*about.spaces, *(f"{space} (carried over)" for space in reachable(about))])
        facts = f"{n_rois} ROIs; {spaces}" if n_rois else spaces
        place = _image(name, about, paths)
        missing |= MISSING in place
        print(list_entry(f"{name}: {facts}", about.description.strip(), f"Image: {place}"))
    if missing:
        into = f"put it into the folder that {description.ATLAS_DIR} names"
        print("", list_entry(f"For an image that is not found: {description.FETCH}, or {into}."), sep="\n")


def _image(name: str, about: AtlasFile, paths: Paths) -> str:
    """Return where the image is, or what to get."""
    if about.kind == "spheres":
        return "drawn from coordinates"
    folder = description.atlas_folder(name)
    try:
        find_labels(about, folder, paths.atlas_dir)
    except DataError:
        return _not_found(about, about.image_in())
    places: dict[str, list[str]] = {}
    for space in about.spaces:
        try:
            place = str(find_image(about, folder, paths.atlas_dir, paths.templateflow_home, space))
        except DataError:
            place = _not_found(about, about.image_in(space))
        places.setdefault(place, []).append(space)
    return "; ".join(f"{', '.join(spaces)}: {place}" if len(places) > 1 else place for place, spaces in places.items())


def _not_found(about: AtlasFile, image: description.AtlasImage) -> str:
    return f"{MISSING}{'' if image.url else ', cannot be fetched'}: {image.file} (from {about.source})"


def describe_atlas_of(options: Namespace) -> None:
    """Write the folder of an atlas whose ROI names are in a file.

    Parameters
    ----------
    options : Namespace
        ``file``: table of labels, or series whose columns have names; ``out``: the new folder.
    """
    n_rois = describe_names(options.file, options.out)
    print(f"{options.out}: {n_rois} ROIs; use it with 'atlases: [{options.out}]'")


# ---- models ------------------------------------------------------------------------------------------
def model_table() -> str:
    """Return the table of models in Markdown, one row per file in `config/models`."""
    return _line(COLUMNS) + _line(("---",) * len(COLUMNS)) + "".join(map(model_row, _models()))


def _models() -> list[Model]:
    """Return the shipped models: BolT, then by family."""
    order = {name: place for place, name in enumerate(FAMILIES)}
    models = map(load_model, known("model"))
    return sorted(models, key=lambda one: (one.model != "bolt", order.get(one.family, len(order)), one.name))


def model_row(model: Model) -> str:
    """Return a model's line of the table."""
    reference = DOI.sub(r"[doi:\1](https://doi.org/\1)", model.reference)
    reference = ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", reference)
    cells = (model.shown, model.family, _inputs(model), model.description, reference)
    return _line((f"`{model.name}`", *(cell.replace("|", r"\|") or "–" for cell in cells)))


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _inputs(model: Model) -> str:
    """Return what a model learns from; of covariates, which."""
    inputs = inputs_of(model.model)
    if inputs == "covariates":
        return ", ".join(f"`{name}`" for name in model.covariates) or "labels alone"
    return " and ".join([inputs, *(f"`{name}`" for name in model.covariates)])


def show_models(options: Namespace) -> None:
    """Print the models, or write their table between the markers of the file ``options.into``.

    Raises
    ------
    DataError
        A file without the markers.
    """
    into: Path | None = options.into
    if into is None:
        for model in _models():
            head = f"{model.name}: {model.shown}; {model.family or 'other'}; learns from {_inputs(model)}"
            print(list_entry(head.replace("`", ""), *filter(None, (model.description, model.reference))))
        return
    text = into.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise DataError("the markers of the table are missing", where=into, hint=f"Add the lines {START} and {END}")
    with atomic(into) as temporary:
        temporary.write_text(f"{before}{START}\n{model_table()}{END}{after}", encoding="utf-8")
