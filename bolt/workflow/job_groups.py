"""Which jobs a cluster joins into one."""

from __future__ import annotations

from typing import Any


def joined(workflow: Any, name: str, place: str, position: int) -> str:
    """The group of a job that is the `position`-th of its kind at a place; neighbours share it.

    Snakemake's own chunks (`group-components`) grow each time it looks at the DAG anew, as it does when a run is
    resumed, and a job of two chunks is submitted twice. A group that has its name from the start stays as it is.

    Parameters
    ----------
    workflow : snakemake.workflow.Workflow
    name : str
        Key of `group-components`: how many are joined; without it, none.
    place : str
        What jobs that are joined have in common, such as a model and a seed.
    position : int
    """
    settings = workflow.group_settings
    size = settings.group_components.get(name, 1) if settings else 1
    group = "_".join(filter(None, [name, place, str(position // size)]))
    workflow.parent_groupids[group] = name
    return group
