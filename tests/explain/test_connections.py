"""Which connections predictions follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from bolt.explain.connections import MOST, Sample, correlate, usable_folds, write_connections
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.training.outputs import write_predictions

CLASSES = ["control", "patient"]
N_ROIS, PLANTED = 8, (2, 5)


class MemoryCache:
    """As much of `bolt.series.cache.SeriesCache` as is used."""

    def __init__(self, series: list[np.ndarray], networks: list[str] | None) -> None:
        self.index = pd.DataFrame({"scan_id": [f"scan-{i}" for i in range(len(series))]})
        self.n_rois, self.finite_series = N_ROIS, series.__getitem__
        about = {"value": np.arange(N_ROIS) * 10 + 10, "name": [f"roi{i}" for i in range(N_ROIS)]}
        self.rois = pd.DataFrame(about | {"network": networks or [np.nan] * N_ROIS, "hemisphere": "L"})


def made_up(folder: Path, classes: list[str] = CLASSES, networks: list[str] | None = None, n: int = 60) -> MemoryCache:
    """Write predictions of two folds that follow the planted connection; folds differ in scale and offset."""
    random = np.random.default_rng(0)
    strength = random.uniform(0, 2, n)
    series = []
    for s in strength:
        x = random.standard_normal((80, N_ROIS))
        x[:, PLANTED[1]] += s * x[:, PLANTED[0]]
        series.append(x)
    cache = MemoryCache(series, networks)
    for fold in (0, 1):
        tests = np.arange(n) % 2 == fold
        odds = (strength - 1) * (1, 10)[fold] + (0, 3)[fold] + 0.1 * random.standard_normal(n)
        share = 1 / (1 + np.exp(-odds))
        probability = {f"p_{name}": (1 - share) / (len(classes) - 1) for name in classes[:-1]}
        table = pd.DataFrame({"scan_id": cache.index["scan_id"], "subject": [f"{i // 2}" for i in range(n)]})
        table = table.assign(
            group=table["subject"], site="here", role=np.where(tests, "test", "train"), fold=fold, seed=0
        )
        table["label"] = [classes[i % len(classes)] for i in range(n)]
        table = table.assign(**probability, **{f"p_{classes[-1]}": share}, predicted=classes[0])
        (folder / f"fold-{fold}").mkdir(parents=True)
        write_predictions(table, folder / f"fold-{fold}/predictions.tsv")
        write_status(folder / f"fold-{fold}/status.json", "ok", "train")
    return cache


def test_the_planted_connection_is_found_and_no_other(tmp_path: Path) -> None:
    cache = made_up(tmp_path, networks=["visual"] * 4 + ["default"] * 4)
    write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)  # type: ignore[arg-type]
    table = read_table(tmp_path / "connections.tsv")
    assert len(table) == min(MOST, N_ROIS * (N_ROIS - 1) // 2) and set(table["class"]) == {"patient"}
    first = table.iloc[0]
    assert (first["name_a"], first["name_b"]) == ("roi2", "roi5") and (first["value_a"], first["value_b"]) == (30, 60)
    assert first["r"] > 0.8 and first["p"] == pytest.approx(1 / 1001) and first["same_sign"] == 1
    assert (table["p"].iloc[1:] > 0.05).all() and table["r"].abs().is_monotonic_decreasing
    assert first["n_folds"] == 2 and first["n"] == 60
    networks = read_table(tmp_path / "connection_networks.tsv").set_index(["network_a", "network_b"])
    assert networks["n_significant"].to_dict() == {
        ("default", "default"): 0,
        ("default", "visual"): 1,
        ("visual", "visual"): 0,
    }
    assert networks["n_connections"].tolist() == [6, 16, 6]
    matrix = np.load(tmp_path / "connections.npy")
    assert matrix.shape == (1, 28) and matrix.max() == pytest.approx(first["r"], abs=1e-6)
    between = [i < 4 <= j for i, j in zip(*np.triu_indices(N_ROIS, k=1), strict=True)]
    assert networks.loc[("default", "visual"), "mean_r"] == pytest.approx(matrix[0, between].mean(), abs=1e-6)


def test_correlations_are_pearsons_within_folds() -> None:
    random = np.random.default_rng(1)
    fold = np.repeat([0, 1], 20)
    output, values = random.standard_normal((40, 1)), random.standard_normal((40, 3))
    for one in (0, 1):
        output[fold == one] -= output[fold == one].mean(axis=0)
        values[fold == one] -= values[fold == one].mean(axis=0)
    found = correlate(Sample(fold, output, values.astype(np.float32)), shuffles=200)
    assert found.r == pytest.approx([pearsonr(output[:, 0], column)[0] for column in values.T], abs=1e-5)


def test_p_values_hold_for_all_connections_together() -> None:
    """Of predictions that follow nothing, 5 % have a connection with p < 0.05."""
    random, n_wrong = np.random.default_rng(2), 0
    for _ in range(200):
        values, output = random.standard_normal((30, 50)).astype(np.float32), random.standard_normal((30, 1))
        tested = Sample(np.zeros(30, int), output - output.mean(), values - values.mean(axis=0))
        n_wrong += bool((correlate(tested, shuffles=99).p < 0.05).any())
    assert 1 <= n_wrong <= 20


def test_each_of_several_classes_has_correlations_of_its_own(tmp_path: Path) -> None:
    classes = ["rest", "motor", "gambling"]
    cache = made_up(tmp_path, classes)
    write_connections(cache, tmp_path, [0, 1], classes, tmp_path)  # type: ignore[arg-type]
    table = read_table(tmp_path / "connections.tsv")
    assert table.groupby("class", sort=False).size().to_dict() == dict.fromkeys(classes, 28)
    top = table[table["rank"] == 1].set_index("class")
    assert top.loc["gambling", "r"] > 0.8 and top.loc["rest", "r"] < -0.8
    assert read_table(tmp_path / "connection_networks.tsv").empty  # the atlas has no networks


def test_folds_that_predict_on_other_scales_weigh_alike(tmp_path: Path) -> None:
    """Log odds near zero follow a connection as well as large ones."""
    found = []
    for name, scale in (("as they are", 1.0), ("faint", 0.001)):
        cache = made_up(tmp_path / name)
        file = tmp_path / name / "fold-0/predictions.tsv"
        table = read_table(file, text=("scan_id", "subject", "group", "site"))
        odds = scale * np.log(table[f"p_{CLASSES[1]}"] / table[f"p_{CLASSES[0]}"])
        table[f"p_{CLASSES[1]}"], table[f"p_{CLASSES[0]}"] = 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds))
        write_predictions(table, file)
        write_connections(cache, tmp_path / name, [0, 1], CLASSES, tmp_path / name)  # type: ignore[arg-type]
        found.append(np.load(tmp_path / name / "connections.npy"))
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_scans_of_a_person_with_one_label_are_averaged_first(tmp_path: Path) -> None:
    cache = made_up(tmp_path, n=64)
    for fold in (0, 1):
        file = tmp_path / f"fold-{fold}/predictions.tsv"
        table = read_table(file, text=("scan_id", "subject", "group", "site"))
        pairs = [str(i // 4) for i in range(64)]  # the test scans i and i + 2 of a fold are one person's
        write_predictions(table.assign(subject=pairs, group=pairs, label="control"), file)
    write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)  # type: ignore[arg-type]
    assert read_table(tmp_path / "connections.tsv")["n"].eq(32).all()


def test_constant_connections_and_folds_of_few_people(tmp_path: Path) -> None:
    cache = made_up(tmp_path)
    for x in (cache.finite_series(i) for i in range(60)):
        x[:, 0] = 0
    write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)  # type: ignore[arg-type]
    table = read_table(tmp_path / "connections.tsv")
    assert (table.loc[(table["name_a"] == "roi0"), "r"] == 0).all() and table["p"].between(0, 1).all()


def test_folds_that_failed_or_tested_one_person_are_not_usable(tmp_path: Path) -> None:
    made_up(tmp_path, n=3)
    assert usable_folds(tmp_path, [0, 1, 2]) == [0]  # fold 1 tested one scan, fold 2 is missing
    write_status(tmp_path / "fold-0/status.json", "failed", "train", DataError("loss is NaN"))
    assert usable_folds(tmp_path, [0, 1, 2]) == []
