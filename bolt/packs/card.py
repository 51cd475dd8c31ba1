"""The model card of a pack: a README in Markdown, with the metadata that model hubs read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bolt import __version__
from bolt.config import Model
from bolt.evaluate.metrics import metrics_of
from bolt.models.registry import inputs_of
from bolt.report.tables.numbers import metric_name

TEMPLATES = Path(__file__).with_name("templates")


def model_card(estimator: Any, about: dict[str, Any], licence: str | None = None, floor: str = "") -> str:
    """Write the card.

    Parameters
    ----------
    estimator : Classifier or Regressor
    about : dict
        `bolt.packs.facts.Facts.about`.
    licence : str, optional
        Of the weights, as hubs name them: ``cc-by-4.0``, ``apache-2.0``, …
    floor : str
        What the pack's confound floor reads, in words; empty if it has none.

    Returns
    -------
    str
        Markdown, from `templates/card.md`.
    """
    model, classes = estimator.configuration, estimator.members_[0].info["classes"]
    title = f"{model.shown}: {about['label']} from {about['atlas']['name']} series"
    known = {name: about["metrics"][name] for name in metrics_of(classes)}
    metrics = {metric_name(name): value for name, value in known.items() if value["value"] is not None}
    environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=False)
    cohort = dict.fromkeys(("label", "site", "sex", "age", "mean_fd")) | about["cohort"]
    return environment.get_template("card.md").render(
        front=_metadata(about, classes, licence, title, known),
        title=title,
        about=about,
        cohort=cohort,
        classes=classes,
        model=model,
        floor=floor,
        crop=estimator.members_[0].info.get("crop", about["series"]["crop"]) if on_crops(model) else None,
        metrics=metrics,
        n_models=len(estimator.members_),
        n_rois=len(about["rois"]["value"]),
        span=span,
        version=__version__,
    )


def on_crops(model: Model) -> bool:
    """Return whether a model itself is trained on crops; the members of an ensemble state their own settings."""
    inputs = inputs_of(model.model)
    return inputs == "series" or (inputs == "connectivity" and model.connectivity == "crop")


def span(ends: list[float]) -> str:
    """Return a range in words, such as ``2–2.2``."""
    low, high = ends
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def _metadata(about: dict[str, Any], classes: Any, licence: str | None, title: str, metrics: dict[str, Any]) -> str:
    """Return the front matter."""
    values = [
        {"type": name, "name": metric_name(name), "value": metric["value"]}
        for name, metric in metrics.items()
        if metric["value"] is not None
    ]
    task = {"type": "time-series-classification" if classes else "time-series-regression"}
    dataset: dict[str, Any] = {"name": about["dataset"], "type": about["dataset"]}
    if about["runs"]["tested"]:
        dataset["args"] = {"tested": about["runs"]["tested"]}
    result = {"task": task, "dataset": dataset, "metrics": values}
    head: dict[str, Any] = {"license": licence} if licence else {}
    head |= {
        "library_name": "bolt-fmri",
        "tags": ["fmri", "neuroimaging", "bolt", f"atlas-{about['atlas']['name']}"],
        "model-index": [{"name": title, "results": [result]}],
    }
    return yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
