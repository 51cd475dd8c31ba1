"""Which connections predictions follow."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from bolt.explain.connections import MOST, correlate, fold_maps, sample, usable_folds, write_connections
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status, write_table
from bolt.series.cache import connectivity
from bolt.training.outputs import write_predictions
from tests.explain.runs import MemoryCache

CLASSES = ["control", "patient"]
N_ROIS, PLANTED = 8, (2, 5)
TEXT = ("scan_id", "subject", "group", "site")


def made_up(folder, classes=CLASSES, networks=None, n=60, follows=True):
    """Write predictions of two folds that follow the planted connection; folds differ in scale and offset."""
    random = np.random.default_rng(0)
    strength = random.uniform(0, 2, n)
    label = np.arange(n) // 2 % len(classes)  # each class is in both folds
    strength[np.argsort(label, kind="stable")] = np.sort(strength) if follows else strength
    series = random.standard_normal((n, 80, N_ROIS))
    series[..., PLANTED[1]] += strength[:, None] * series[..., PLANTED[0]]
    cache = MemoryCache(list(series), [classes[i] for i in label], networks)
    cache.index["subject"] = cache.index["group"] = [f"{i // 2}" for i in range(n)]
    for fold in (0, 1):
        odds = (strength - 1) * (1, 10)[fold] + (0, 3)[fold] + 0.1 * random.standard_normal(n)
        share = 1 / (1 + np.exp(-odds))
        roles = np.where(np.arange(n) % 2 == fold, "test", "train")
        table = cache.index.assign(site="here", role=roles, fold=fold, seed=0, predicted=classes[0])
        table = table.assign(**{f"p_{name}": (1 - share) / (len(classes) - 1) for name in classes[:-1]})
        (folder / f"fold-{fold}").mkdir(parents=True)
        write_predictions(table.assign(**{f"p_{classes[-1]}": share}), folder / f"fold-{fold}/predictions.tsv")
        write_status(folder / f"fold-{fold}/status.json", "ok", "train")
    return cache


def test_the_planted_connection_is_found_and_no_other(tmp_path):
    cache = made_up(tmp_path, networks=["visual"] * 4 + ["default"] * 4)
    write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)
    table = read_table(tmp_path / "connections.tsv")
    assert len(table) == N_ROIS * (N_ROIS - 1) // 2 < MOST and set(table["class"]) == {"patient"}
    first = table.iloc[0]
    ends = ["name_a", "name_b", "value_a", "value_b", "n_folds", "n"]
    assert first[ends].tolist() == ["roi2", "roi5", 30, 60, 2, 60]
    assert first["r"] > 0.8 and first["p"] == pytest.approx(1 / 1001) and first["same_sign"] == 1
    assert first["r_label"] > 0.6 and (table["p"].iloc[1:] > 0.05).all() and table["r"].abs().is_monotonic_decreasing
    networks = read_table(tmp_path / "connection_networks.tsv").set_index(["network_a", "network_b"])
    assert networks.index.tolist() == [("default", "default"), ("default", "visual"), ("visual", "visual")]
    assert networks["n_significant"].tolist() == [0, 1, 0] and networks["n_connections"].tolist() == [6, 16, 6]
    matrix = np.load(tmp_path / "connections.npy")
    assert matrix.shape == (1, 28) and matrix.max() == pytest.approx(first["r"], abs=1e-6)
    between = [i < 4 <= j for i, j in zip(*np.triu_indices(N_ROIS, k=1), strict=True)]
    assert networks.loc[("default", "visual"), "mean_r"] == pytest.approx(matrix[0, between].mean(), abs=1e-6)


def test_correlations_are_pearsons_within_folds():
    random, fold = np.random.default_rng(1), np.repeat([0, 1], 20)
    output, values = random.standard_normal(40), random.standard_normal((40, 3))
    for one in (0, 1):
        output[fold == one] -= output[fold == one].mean()
        values[fold == one] -= values[fold == one].mean(axis=0)
    values[:, 2] = 0  # of a region that is not covered
    r, p, _ = correlate(fold, output, values.astype(np.float32), shuffles=200)
    assert r == pytest.approx([*(pearsonr(output, column)[0] for column in values.T[:2]), 0], abs=1e-5) and p[2] == 1


def test_p_values_hold_for_all_connections_together():
    """Of predictions that follow nothing, 5 % have a connection with p < 0.05."""
    random, n_wrong = np.random.default_rng(2), 0
    for _ in range(200):
        values, output = random.standard_normal((30, 50)).astype(np.float32), random.standard_normal(30)
        _, p, _ = correlate(np.zeros(30, int), output - output.mean(), values - values.mean(axis=0), shuffles=99)
        n_wrong += bool((p < 0.05).any())
    assert 1 <= n_wrong <= 20


def test_each_of_several_classes_has_correlations_of_its_own(tmp_path):
    classes = ["rest", "motor", "gambling"]
    write_connections(made_up(tmp_path, classes), tmp_path, [0, 1], classes, tmp_path)
    table = read_table(tmp_path / "connections.tsv")
    assert table.groupby("class", sort=False).size().to_dict() == dict.fromkeys(classes, 28)
    top = table[table["rank"] == 1].set_index("class")
    assert top.loc["gambling", "r"] > 0.8 and top.loc["rest", "r"] < -0.8
    assert read_table(tmp_path / "connection_networks.tsv").empty  # the atlas has no networks


def test_folds_that_predict_on_other_scales_weigh_alike(tmp_path):
    """Log odds near zero follow a connection as well as large ones."""
    cache, file = made_up(tmp_path), tmp_path / "fold-0/predictions.tsv"
    table, found = read_table(file, text=TEXT), []
    for scale in (1.0, 0.001):
        odds = scale * np.log(table["p_patient"] / table["p_control"])
        table = table.assign(p_control=1 / (1 + np.exp(odds)), p_patient=1 / (1 + np.exp(-odds)))
        write_predictions(table, file)
        write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)
        found.append(np.load(tmp_path / "connections.npy"))
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_scans_of_a_person_with_one_label_are_averaged_first(tmp_path):
    cache = made_up(tmp_path, n=64)
    for fold in (0, 1):
        file = tmp_path / f"fold-{fold}/predictions.tsv"
        pairs = [str(i // 4) for i in range(64)]  # the test scans i and i + 2 of a fold are one person's
        write_predictions(read_table(file, text=TEXT).assign(subject=pairs, group=pairs, label="control"), file)
    write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)
    assert read_table(tmp_path / "connections.tsv")["n"].eq(32).all()
    averaged = np.load(tmp_path / "connections.npy")
    for file in tmp_path.glob("fold-*/predictions.tsv"):  # the mean of a person whose scans are there twice is the same
        table = read_table(file, text=TEXT)
        write_predictions(pd.concat([table, table[table["subject"] == "3"]]), file)
    write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "connections.npy"), averaged, atol=1e-6)


@pytest.mark.parametrize("numbers", [True, False])
def test_people_are_units_where_labels_are_numbers_and_one_with_two_labels_does_not_split_the_others(tmp_path, numbers):
    cache = made_up(tmp_path)
    table = read_table(tmp_path / "fold-0/predictions.tsv", text=(*TEXT, "label")).query("role == 'test'")
    table["subject"] = table["group"] = [f"{i // 2}" for i in range(len(table))]  # two scans a person
    if numbers:  # ages differ between them
        table = table.assign(label=np.arange(len(table)) * 1.5, predicted=np.arange(len(table)) * 1.0)
    else:
        table["label"] = ["control", "patient", *["control"] * 12, *["patient"] * (len(table) - 14)]
    fold, outputs, _, values = sample(cache, {0: table}, *((None, ["age"]) if numbers else (CLASSES, CLASSES[1:])))
    assert len(fold) == len(outputs) == len(values) == len(table) // 2 + (not numbers)


def test_connections_of_regions_that_were_not_imaged_are_missing_not_zero(tmp_path):
    cache = made_up(tmp_path)
    table = read_table(tmp_path / "fold-0/predictions.tsv", text=TEXT).query("role == 'test'")
    people = [f"{i // 2:02d}" for i in range(len(table))]  # two scans each
    tested, (a, b) = [cache.arrays[i] for i in table.index], np.triu_indices(N_ROIS, k=1)
    for scan, roi in ((0, 3), (2, 1), (3, 1), (3, 4), *((i, 6) for i in range(len(table)))):
        tested[scan][:, roi] = 0  # of one scan of a person, of both, and of all
    table = table.assign(subject=people, group=people, label="control")
    _, _, _, values = sample(cache, {0: table}, CLASSES, ["patient"])
    z = pd.DataFrame([connectivity(series, fisher_z=True) for series in tested])
    dead = np.array([(series == 0).all(axis=0) for series in tested])
    means = z.mask(dead[:, a] | dead[:, b]).groupby(people).mean()
    np.testing.assert_allclose(values, (means - means.mean()).fillna(0), atol=1e-6)


def test_folds_that_failed_or_tested_one_person_are_not_usable(tmp_path):
    made_up(tmp_path, n=3)
    assert usable_folds(tmp_path, [0, 1, 2]) == [0]  # fold 1 tested one scan, fold 2 is missing
    write_status(tmp_path / "fold-0/status.json", "failed", "train", DataError("loss is NaN"))
    assert usable_folds(tmp_path, [0, 1, 2]) == []


def test_what_goes_with_the_prediction_alone_is_not_significant(tmp_path):
    """A model that learned noise follows its connection, which the classes do not differ in."""
    cache = made_up(tmp_path, follows=False)
    write_connections(cache, tmp_path, [0, 1], CLASSES, tmp_path)
    table = read_table(tmp_path / "connections.tsv")
    assert table["r"].iloc[0] > 0.8 and abs(table["r_label"].iloc[0]) < 0.4 and (table["p"] > 0.05).all()
    assert not read_table(tmp_path / "connection_regions.tsv")["selected"].any()


def test_significant_connections_are_listed_before_stronger_ones(tmp_path, monkeypatch):
    """The strongest goes with the label in the other direction, so that the second is the only significant one."""
    r = np.linspace(0.9, 0.1, N_ROIS * (N_ROIS - 1) // 2)
    found = iter([(r, np.where(r > 0.85, 0.001, 1), r), (np.where(r == 0.9, -r, r), np.where(r > 0.85, 0.001, 1), r)])
    monkeypatch.setattr("bolt.explain.connections.correlate", lambda *_: next(found))
    write_connections(made_up(tmp_path), tmp_path, [0, 1], CLASSES, tmp_path)
    table = read_table(tmp_path / "connections.tsv")
    assert table["r"].iloc[:3].tolist() == pytest.approx([r[1], r[0], r[2]])
    assert table["p"].iloc[:2].tolist() == [0.001, 1]


def test_the_strength_of_regions_is_the_sum_of_significant_connections(tmp_path):
    write_connections(made_up(tmp_path), tmp_path, [0, 1], CLASSES, tmp_path, fraction=0.25)
    r = read_table(tmp_path / "connections.tsv")["r"].iloc[0]
    table = read_table(tmp_path / "connection_regions.tsv")
    assert len(table) == 2 * N_ROIS and set(table.loc[table["selected"], "direction"]) == {"stronger"}
    chosen = table[table["selected"]].set_index("name")
    assert sorted(chosen.index) == ["roi2", "roi5"] and (chosen["n_significant"] == 1).all()
    assert chosen["strength"].to_numpy() == pytest.approx(r, abs=1e-6) and (chosen["selection_frequency"] == 1).all()
    means = read_table(tmp_path / "connection_stability.tsv").set_index("one").loc["mean"]
    assert means["pearson"] > 0.9 and means["p"] < 0.05 and means["what"] == "connections"


def test_a_folds_map_is_of_its_strongest_connections():
    """Three regions; of three connections, ceil(2 %) = 1 counts: that of the first two."""
    values = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]], np.float32)
    output = np.array([-3.0, 3, 1, -1])
    [found] = fold_maps(np.zeros(4, int), output, values, shuffles=3)
    r = -6 / np.sqrt(2 * 20)
    assert found.shape == (4, 3) and found[0] == pytest.approx([r, r, 0], abs=1e-6)


def test_predicted_numbers_have_connections(tmp_path):
    cache = made_up(tmp_path)
    for fold in (0, 1):
        file = tmp_path / f"fold-{fold}/predictions.tsv"
        table = read_table(file, text=TEXT)
        odds = np.log(table["p_patient"] / table["p_control"])
        age = odds + np.random.default_rng(fold).standard_normal(len(odds))
        table = table.drop(columns=["p_control", "p_patient"]).assign(predicted=odds, label=age)
        write_table(table, file, dict.fromkeys(table, ""))
    write_connections(cache, tmp_path, [0, 1], None, tmp_path, label="age")
    first = read_table(tmp_path / "connections.tsv").iloc[0]
    assert first[["class", "name_a", "name_b"]].tolist() == ["age", "roi2", "roi5"] and first["p"] < 0.01
