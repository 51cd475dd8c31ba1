"""Files of a trained fold that do not depend on the kind of model: predictions, and what is wrong with a checkpoint.

Like `bolt.training.roles` and `bolt.training.targets`, it does not import torch: models without epochs do not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from safetensors import SafetensorError

from bolt.io.errors import ConfigError, DataError
from bolt.io.files import write_table

PREDICTIONS = {
    "scan_id": "Scan",
    "subject": "Subject",
    "group": "Family if known, else subject",
    "site": "Site",
    "role": "Role in the fold: train, validation or test",
    "fold": "Outer fold",
    "seed": "Seed of weights, order, crops and dropout",
    "label": "True class, or number",
    "predicted": "Most probable class, or number in the unit of the label",
}


def write_predictions(table: pd.DataFrame, path: Path) -> None:
    """Write ``predictions.tsv``.

    Parameters
    ----------
    table : DataFrame
        One row per scan, with the columns of `PREDICTIONS` and one ``p_<class>`` per class; others are not written.
    path : Path
    """
    probabilities = {name: f"Probability of class {name[2:]}" for name in table if name.startswith("p_")}
    write_table(table[[*PREDICTIONS, *probabilities]], path, PREDICTIONS | probabilities)


@contextmanager
def checked_info(folder: Path, name: str = "checkpoint.json") -> Iterator[None]:
    """Turn errors from the contents of ``checkpoint.json``, used within the block, into a `DataError`."""
    where, hint = folder / name, "Restore the file that was written with these weights"
    try:
        yield
    except ConfigError as error:
        raise DataError(error.what, where=where, hint=hint) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"not a model's description ({type(error).__name__}: {reason})", where=where, hint=hint
        ) from None


@contextmanager
def checked_weights(folder: Path) -> Iterator[Path]:
    """Yield the weights of a fold; turn errors from reading them within the block into a `DataError`."""
    weights = folder / "checkpoint.safetensors"
    try:
        yield weights
    except FileNotFoundError:
        raise DataError("file not found", where=weights, hint="Train this fold again") from None
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        what = f"not a readable checkpoint, or its weights do not fit checkpoint.json: {reason}"
        raise DataError(what, where=weights, hint="Train this fold again") from None
