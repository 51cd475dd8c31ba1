"""The list of all models, and its table for docs/models.md, made from their configurations."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from bolt.config import Model, known, load_model
from bolt.io.errors import DataError, list_entry
from bolt.io.files import atomic
from bolt.models.registry import inputs_of

START = "<!-- table of models: made by `bolt models --into docs/models.md` -->"
END = "<!-- end of the table of models -->"
COLUMNS = ("model", "in tables", "family", "learns from", "what it is", "reference")
FAMILIES = ("transformer", "RNN", "GNN", "CNN", "traditional", "baseline")
DOI, ARXIV = re.compile(r"doi:(\S+)"), re.compile(r"arXiv:([\d.]+\d)")


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
