"""Training of connectivity models: the same files as BolT's, and nothing learned from test scans."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.cohort.units import permutations
from bolt.config import Dataset, Model
from bolt.evaluate.chance import LEVEL
from bolt.evaluate.metrics import write_metrics
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_table
from bolt.models.svm import SVM
from bolt.series.cache import SeriesCache, connectivity, connectivity_of
from bolt.training import features
from bolt.training.features import load_trained, permuted_aucs, train_features
from bolt.training.runner import Training
from tests.caches import pack, reseal, split

CLASSES = ["A", "B"]


def dataset(classes=CLASSES):
    return Dataset(name="toy", source="series", path="t.tsv", label="label", classes=classes)


def svm(**settings):
    return Model(name="svm", model="svm", **settings)


def make_cache(folder: Path, n=48, classes=CLASSES, shift=0.0, **changes):
    """Write a cache of eight ROIs: in each class a pair of ROIs shares a signal; a site can add noise to all pairs."""
    random, rows, everything = np.random.default_rng(0), [], []
    for i in range(n):
        label, site = classes[i % len(classes)], "xy"[i // len(classes) % 2]
        series = random.standard_normal((60 + i % 5, 8))
        first = classes.index(label) % 7
        series[:, first + 1] += series[:, first]
        series += shift * (site == "y") * random.standard_normal((len(series), 1))
        everything.append(series)
        rows.append((f"s{i:02d}", f"p{i:02d}", f"p{i:02d}", site, label))
    scans = pd.DataFrame(rows, columns=["scan_id", "subject", "group", "site", "label"])
    scans = scans.assign(age=np.nan, tr=2.0, n_volumes=60, kind="series")
    for column, value in changes.items():
        scans[column] = value(scans)
    pack(folder, everything, scans)
    split(folder, scans, 4)
    return folder


def files_of(folder: Path):
    return folder / "cache", folder / "folds.tsv"


def run(folder: Path, model: Model, out="run", fold=0, **options):
    target = folder / out / f"fold-{fold}"
    (error,) = train_features(*files_of(folder), model, options.get("dataset", dataset()), [Training(fold, 0, target)])
    return target, error


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    ages = np.random.default_rng(1).uniform(20, 60, 48)
    return make_cache(tmp_path_factory.mktemp("features"), age=lambda scans: ages)


def predicted_by(out):
    return read_table(out / "predictions.tsv").set_index("scan_id")


def edit(folder, *, index=None, series=None):
    """Change the index or the series of a cache; the manifest fits again."""
    cache = folder / "cache"
    table = read_table(cache / "index.tsv", text=("label", "subject", "group"))
    if index:
        index(table).to_csv(cache / "index.tsv", sep="\t", index=False, na_rep="n/a")
    if series:
        values = np.load(cache / "series.npy")
        series(values, table.set_index("scan_id"))
        np.save(cache / "series.npy", values)
    reseal(cache)


def test_it_learns_and_writes_the_files_of_any_run(folder):
    out, error = run(folder, svm())
    assert error is None
    names = "checkpoint.json checkpoint.safetensors config.yaml exclusions.tsv predictions.tsv status.json"
    assert {path.name for path in out.iterdir()} >= set(names.split())
    assert read_json(out / "status.json")["state"] == "ok"
    table = read_table(out / "predictions.tsv")
    assert " ".join(list(table)[:9]) == "scan_id subject group site role fold seed label predicted"
    assert len(table) == 48 and set(table["role"]) == {"train", "validation", "test"}
    held_out = table[table["role"] != "train"]
    assert (held_out["predicted"] == held_out["label"]).mean() > 0.9
    largest = table[["p_A", "p_B"]].to_numpy().argmax(axis=1)
    assert table["predicted"].tolist() == [CLASSES[i] for i in largest]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"harmonise": "combat", "fisher_z": True},
        {"harmonise": "combat", "preserve": ["age"]},
        {"hyper": {"kernel": "rbf", "calibration": "platt"}},
    ],
)
def test_a_checkpoint_predicts_what_the_run_did(folder, tmp_path, settings):
    about = dataset().model_copy(update={"age": "age"})
    assert train_features(*files_of(folder), svm(**settings), about, [Training(0, 0, tmp_path)]) == [None]
    cache, trained = SeriesCache(folder / "cache"), load_trained(tmp_path)
    due = predicted_by(tmp_path).loc[cache.index["scan_id"]]
    np.testing.assert_allclose(trained.predict(cache, range(len(cache))), due[["p_A", "p_B"]], rtol=1e-12)
    assert [column["column"] for column in trained.info.get("preserved", [])] == settings.get("preserve", [])
    assert "preserve" not in settings or trained.site_effects.effects.any()


@pytest.mark.parametrize("settings", [{}, {"harmonise": "combat"}])
def test_nothing_is_learned_from_test_scans(folder, tmp_path, settings):
    """Other labels and series of all scans except training scans give a bitwise identical checkpoint."""
    out, _ = run(folder, svm(**settings), out=f"plain-{len(settings)}")
    folds = read_table(folder / "folds.tsv").query("fold == 0").set_index("scan_id")["role"]

    def turned(scans):
        swapped = scans["label"].map({"A": "B", "B": "A"})
        return scans["label"].where(scans["scan_id"].map(folds) == "train", swapped)

    make_cache(tmp_path, label=turned)
    (tmp_path / "folds.tsv").write_bytes((folder / "folds.tsv").read_bytes())

    def spoil(series, index):
        for scan in index[index.index.map(folds) != "train"].itertuples():
            series[scan.offset : scan.offset + scan.length] = np.random.default_rng(7).standard_normal((scan.length, 8))

    edit(tmp_path, series=spoil)
    spoiled, error = run(tmp_path, svm(**settings))
    assert error is None
    assert (spoiled / "checkpoint.safetensors").read_bytes() == (out / "checkpoint.safetensors").read_bytes()


def test_harmonising_helps_where_a_site_blurs_everything(tmp_path, monkeypatch):
    make_cache(tmp_path, shift=3.0)
    probabilities, learned, fit = {}, [], SVM.fit
    monkeypatch.setattr(
        SVM, "fit", lambda self, inputs, *rest: learned.append(inputs.std()) or fit(self, inputs, *rest)
    )
    for name, settings in (("plain", {}), ("combat", {"harmonise": "combat"})):
        out, error = run(tmp_path, svm(**settings), out=name)
        assert error is None
        table = read_table(out / "predictions.tsv").query("role == 'test'")
        probabilities[name] = -np.log(np.where(table["label"] == "A", table["p_A"], table["p_B"])).mean()
    assert probabilities["combat"] < probabilities["plain"]
    assert learned[1] < 0.7 * learned[0]  # the training scans are without the difference between sites, too


def test_an_unseen_site_fails_the_fold_or_is_unchanged(tmp_path):
    make_cache(tmp_path)
    roles = read_table(tmp_path / "folds.tsv").query("fold == 0").set_index("scan_id")["role"]
    edit(tmp_path, index=lambda t: t.assign(site=t["site"].where(t["scan_id"].map(roles) != "test", "z")))
    out, error = run(tmp_path, svm(harmonise="combat"), out="refused")
    assert isinstance(error, DataError) and "(z)" in str(error) and not (out / "predictions.tsv").is_file()
    out, error = run(tmp_path, svm(harmonise="combat", unseen_site="pooled"), out="pooled")
    assert error is None and (out / "predictions.tsv").is_file()


def test_a_scan_outside_the_requested_folds_is_not_read(tmp_path):
    make_cache(tmp_path)
    folds = read_table(tmp_path / "folds.tsv")
    folds = folds[(folds["fold"] != 0) | (folds["scan_id"] != "s05")]
    write_table(folds, tmp_path / "folds.tsv", FOLD_COLUMNS)

    def spoil(series, index):
        series[index.at["s05", "offset"]] = np.nan

    edit(tmp_path, series=spoil)
    out, error = run(tmp_path, svm())
    assert error is None and "s05" not in set(read_table(out / "predictions.tsv")["scan_id"])
    _, error = run(tmp_path, svm(), fold=1)
    assert isinstance(error, DataError) and "scan 's05' has NaN or Inf" in str(error)


# ---- connectivity of whole scans, or of a crop of each ---------------------------------------------------------------
def learned_and_asked(folder, monkeypatch, seed=0, crop=40, **settings):
    """Return the vectors for training, those for prediction, and the roles of the latter."""
    seen = []
    original = SVM.fit
    with monkeypatch.context() as patch:
        patch.setattr(SVM, "fit", lambda self, x, *rest: (seen.append(x), original(self, x, *rest))[1])
        patch.setattr(SVM, "probabilities", lambda self, x: (seen.append(x), np.full((len(x), 2), 0.5))[1])
        model, toy = svm(**settings), dataset().model_copy(update={"crop": crop})
        out = folder / f"seen-{seed}"
        assert train_features(*files_of(folder), model, toy, [Training(0, seed, out)]) == [None]
    return seen[0], seen[1], predicted_by(out)["role"]


def test_whole_scans_or_crops_are_learned_and_whole_scans_asked(folder, monkeypatch):
    whole, asked, roles = learned_and_asked(folder, monkeypatch)
    cache = SeriesCache(folder / "cache")
    rows = [cache.index["scan_id"].tolist().index(scan) for scan in roles.index]
    np.testing.assert_array_equal(asked, connectivity_of(cache, rows))
    np.testing.assert_array_equal(whole, asked[(roles == "train").to_numpy()])
    cropped, also_asked, _ = learned_and_asked(folder, monkeypatch, connectivity="crop")
    np.testing.assert_array_equal(asked, also_asked)
    starts = []
    for vector, scan in zip(cropped[:12], roles.index[roles == "train"], strict=False):
        series = cache.series(cache.index["scan_id"].tolist().index(scan))
        stretches = [connectivity(series[i : i + 40]) for i in range(len(series) - 39)]
        starts += [i for i, stretch in enumerate(stretches) if np.array_equal(stretch, vector)]
    assert len(starts) == 12 and min(starts) < 5 and max(starts) > 15
    again, _, _ = learned_and_asked(folder, monkeypatch, connectivity="crop")
    other, _, _ = learned_and_asked(folder, monkeypatch, connectivity="crop", seed=1)
    np.testing.assert_array_equal(cropped, again)
    assert not np.array_equal(cropped, other)
    short, _, _ = learned_and_asked(folder, monkeypatch, connectivity="crop", crop=100)
    np.testing.assert_array_equal(short, whole)


# ---- cross-validation repeated on permuted labels --------------------------------------------------------------------
@pytest.mark.slow
def test_real_labels_stand_out_from_permuted_ones(folder, tmp_path):
    trainings = [Training(fold, 0, tmp_path / f"fold-{fold}") for fold in range(4)]
    assert train_features(*files_of(folder), svm(), dataset(), trainings) == [None] * 4
    null = permuted_aucs(*files_of(folder), svm(), dataset(), trainings, 60)
    assert null.shape == (60,) and abs(np.nanmean(null) - 0.5) < 0.15 and len(np.unique(null)) > 20
    write_metrics(tmp_path, CLASSES, range(4), tmp_path, null)
    found = read_json(tmp_path / "summary.json")["chance"]
    assert found["value"] > 0.9 and found["p"] < 0.05 and found["widened"] is None
    bar = pytest.approx(np.nanquantile(null, 1 - LEVEL, method="higher"))
    assert found["n_permutations"] == np.isfinite(null).sum() and found["bar"] == bar


def test_permutations_depend_on_the_seed_alone(folder):
    def aucs(*seeds):
        trainings = [Training(fold, seed, Path("unused")) for fold, seed in enumerate(seeds)]
        return permuted_aucs(*files_of(folder), svm(), dataset(), trainings, 4)

    first = aucs(0, 0)
    np.testing.assert_array_equal(first, aucs(0, 0))
    np.testing.assert_array_equal(first, aucs(0, 1))  # labels are drawn once for all folds, by the first one's seed
    assert not np.array_equal(first, aucs(1, 1))


def test_permutations_leave_out_scans_that_are_in_no_fold(tmp_path):
    make_cache(tmp_path)
    table = read_table(tmp_path / "folds.tsv", text=("scan_id",))
    table[table["scan_id"] != "s00"].to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    aucs = []
    for label in ("A", "of nobody else"):
        edit(tmp_path, index=lambda t, label=label: t.assign(label=t["label"].where(t["scan_id"] != "s00", label)))
        aucs.append(permuted_aucs(*files_of(tmp_path), svm(), dataset(), [Training(0, 0, tmp_path)], 4))
    np.testing.assert_array_equal(*aucs)


def test_permutations_keep_people_together_whose_recordings_are_copies(tmp_path, monkeypatch):
    make_cache(tmp_path)
    table = read_table(tmp_path / "folds.tsv", text=("scan_id", "subject", "group"))
    table.loc[table["scan_id"].isin(["s00", "s02"]), "group"] = "p00 + p02"  # as with 'duplicates: group'
    write_table(table, tmp_path / "folds.tsv", FOLD_COLUMNS)
    monkeypatch.setattr(features, "permutations", lambda scans, *how: seen.append(scans) or permutations(scans, *how))
    seen = []
    permuted_aucs(*files_of(tmp_path), svm(), dataset(), [Training(0, 0, tmp_path)], 2)
    assert seen[0]["group"].tolist()[:3] == ["p00 + p02", "p01", "p00 + p02"] and len(seen[0]) == 48


# ---- vectors and predictions of others


def test_vectors_of_a_file_are_learned_from_and_a_leak_is_noted(folder, tmp_path, caplog):
    scans = SeriesCache(folder / "cache").index
    vectors = pd.DataFrame(np.random.default_rng(0).standard_normal((48, 3)).round(6), columns=list("xyz"))
    vectors.assign(scan_id=scans["scan_id"], z=scans["label"] == "B").astype({"z": int}).to_csv(
        tmp_path / "v.tsv", sep="\t", index=False
    )
    model = Model(name="probe", model="features", file=tmp_path / "v.tsv")
    out, error = run(folder, model, "probe")
    assert error is None and read_json(out / "checkpoint.json")["separating"] == ["z"] and "perfectly: z" in caplog.text
    table = predicted_by(out)
    assert set(table["role"]) == {"train", "validation", "test"} and (table["predicted"] == table["label"]).all()
    with pytest.raises(DataError, match="reads a file of others"):
        load_trained(out).predict(SeriesCache(folder / "cache"), [0])
    (tmp_path / "v.tsv").write_text("scan_id\tx\ns00\t1\n")
    assert "no vector of 47 of 48 scans" in str(run(folder, model, "short")[1])


def test_predictions_of_a_file_are_taken_as_they_are_and_not_trained_again(folder, tmp_path):
    folds = read_table(folder / "folds.tsv", text=("scan_id",))
    tests = folds[folds["role"] == "test"]
    given = tests[["scan_id", "fold"]].assign(p=np.linspace(0, 1, len(tests)).round(3))
    given.to_csv(tmp_path / "p.tsv", sep="\t", index=False)
    model = Model(name="theirs", model="predictions", file=tmp_path / "p.tsv")
    out, error = run(folder, model, "theirs", fold=2)
    table, due = predicted_by(out), given[given["fold"] == 2].set_index("scan_id")["p"]
    tested = table[table["role"] == "test"]
    assert error is None and len(table) == 48 and table.loc[table["role"] != "test", "p_B"].isna().all()
    np.testing.assert_allclose(tested["p_B"], due[tested.index])
    assert (tested["predicted"] == np.where(tested["p_B"] > 0.5, "B", "A")).all()
    assert permuted_aucs(*files_of(folder), model, dataset(), [Training(2, 0, out)], 20) is None
    given.assign(fold=given["fold"] + 1).to_csv(tmp_path / "p.tsv", sep="\t", index=False)
    assert "folds 1, 2, 3, 4, not 0, 1, 2, 3" in str(run(folder, model, "theirs", fold=2)[1])
