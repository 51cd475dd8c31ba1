"""Cross-validation repeated on permuted labels, of models that are fitted at once: what chance gives, without theory.

Each permutation exchanges the labels of the largest units with one label each among all scans, keeps them so in every
fold, fits the model again, and scores it on the permuted labels of the test scans (Ojala and Garriga 2010, JMLR
11:1833).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from bolt.config import Dataset, Model
from bolt.folds.label_permutation import permutations
from bolt.models.registry import inputs_of
from bolt.series.cache import SeriesCache
from bolt.series.connectivity import connectivity_of
from bolt.training.features import class_target, learn
from bolt.training.roles import Training, fold_table


def permuted_aucs(
    cache: Path, folds: Path, model: Model, dataset: Dataset, trainings: Sequence[Training], n: int
) -> NDArray[np.floating]:
    """Return the mean AUC over folds of each of `n` permutations, (n,); NaN where it is undefined in every fold.

    Parameters
    ----------
    cache, folds, model, dataset
        As in `bolt.training.features.train_features`; the dataset has classes.
    trainings : sequence of Training
        Folds to repeat; their folders are not used.
    n : int
        Permutations.
    """
    series, (model, dataset) = SeriesCache(cache), model.on(dataset)
    scans = series.index.sort_values("scan_id", ignore_index=True)
    permuted = permutations(scans, n, np.random.default_rng(trainings[0].seed))
    values = np.full((n, len(trainings)), np.nan)
    for column, training in enumerate(trainings):
        of_fold = model.for_fold(training.fold)
        table = fold_table(series, folds, training.fold, share=of_fold.train_share, seed=training.seed)
        vectors = None
        if inputs_of(model.model) != "covariates":
            vectors = connectivity_of(series, table.index.tolist(), fisher_z=of_fold.fisher_z)
        for row, labels in enumerate(permuted):
            drawn = table.assign(label=table["scan_id"].map(dict(zip(scans["scan_id"], labels, strict=True))))
            if drawn.loc[drawn["role"] == "train", "label"].nunique() < len(dataset.classes or []):
                continue
            target = class_target(of_fold, dataset, drawn, training.fold, folds)
            _, probability = learn(series, drawn, vectors, target, of_fold, training, dataset.crop)
            test = (drawn["role"] == "test").to_numpy()
            values[row, column] = _auc(target.encode(drawn)[test], probability[test])
    defined = np.isfinite(values)
    total = np.where(defined, values, 0).sum(axis=1)
    return np.divide(total, defined.sum(axis=1), out=np.full(n, np.nan), where=defined.any(axis=1))


def _auc(truth: NDArray[np.integer], probability: NDArray[np.floating]) -> float:
    """Return the AUC of the positive class, or the macro average; NaN unless every class occurs."""
    if len(np.unique(truth)) < probability.shape[1]:
        return float("nan")
    if probability.shape[1] == 2:
        return float(roc_auc_score(truth, probability[:, 1]))
    return float(np.mean([roc_auc_score(truth == c, probability[:, c]) for c in range(probability.shape[1])]))
