"""Packs: nothing of participants in them, and predictions that equal those of the run."""

from __future__ import annotations

import argparse
import errno
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.linear_model import LogisticRegression

import bolt
from bolt.cli import run_app
from bolt.cli.main import main
from bolt.cli.predict import predict, scans_to_predict, wishes_of
from bolt.config import Config, Dataset, load_config, load_denoise, load_model
from bolt.config.models import DatasetSettings
from bolt.config.study import Study
from bolt.evaluate.metrics import pooled
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table, read_yaml, sha256, write_json, write_yaml
from bolt.models.parts.calibration import fit_temperature, with_temperature
from bolt.series.cache import SeriesCache, connectivity
from bolt.share.cohort import (
    distance,
    fit_floor,
    flags,
    known_scans,
    percentile,
    predict_floor,
    refusal,
    series_facts,
    summarise_cohort,
)
from bolt.share.models import Pack, on_crops, pack, read_pack
from bolt.share.predict import read_new_scans, read_results, require_same
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds
from tests.caches import pack as make_cache
from tests.caches import scan_table, split
from tests.fake_cifti import ptseries, seconds
from tests.fake_fmriprep import write_fmriprep
from tests.report.before import as_before
from tests.share.test_estimators import LABELS, SERIES, SMALL, small


def make_pack(run, out, licence=None):
    pack(argparse.Namespace(run=run, out=out, licence=licence))
    return out


def build_run(folder: Path, model: str, seeds=(0, 1), outer=3, run=None, **changes):
    """The results of a small study with one model, as the workflow leaves them; returns the model's folder."""
    rng = np.random.default_rng(0)
    about = {"site": ["north", "north", "south", "south"] * 6, "age": rng.integers(20, 50, 24).astype(float)}
    table = scan_table(LABELS, **about, sex=["F", "M"] * 12)
    table["mean_fd"] = np.where(LABELS == "b", 0.3, 0.1) + rng.random(24) / 10
    results = folder / "results" / "toy"
    made = make_cache(folder, SERIES, table)
    cache = results / "cache" / "toy" / "space-none"
    cache.parent.mkdir(parents=True)
    made.rename(cache)
    folds = split(results, table, outer=outer)
    config = Config(dataset="toy", atlases=["toy"], models=[model])
    write_yaml(config.model_dump(mode="json"), results / "config.yaml")
    dataset = Dataset(
        name="toy", source="series", path=folder / "secret" / "x.tsv", label="diagnosis", classes=["a", "b"], crop=30
    )
    settings = load_model(model).model_copy(update=changes)
    runs = results / "runs" / "toy" / "space-none" / settings.run_name
    trainings = [
        Training(fold, seed, runs / f"seed-{seed}" / f"fold-{fold}") for seed in seeds for fold in run or range(outer)
    ]
    assert train_folds(cache, folds, settings, dataset, trainings, device="cpu") == [None] * len(trainings)
    for training in trainings:
        write_json({}, training.folder / "provenance.json")
    return runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return build_run(tmp_path_factory.mktemp("svm"), "svm")


@pytest.fixture(scope="module")
def packed(run, tmp_path_factory):
    return make_pack(run, tmp_path_factory.mktemp("packed") / "model", "cc-by-4.0")


@pytest.fixture
def copied(packed, tmp_path):
    """A pack to be altered."""
    return Path(shutil.copytree(packed, tmp_path / "model"))


def role_test(tables):
    return pd.concat([table[table["role"] == "test"] for table in tables])


def predictions(run, pattern):
    return [read_table(path, text=("scan_id", "subject", "group")) for path in run.glob(f"{pattern}/predictions.tsv")]


@pytest.fixture
def files(tmp_path):
    """The study's series as files, and their table."""
    folder = tmp_path / "files"
    folder.mkdir()
    rows = []
    for i, (series, label) in enumerate(zip(SERIES, LABELS, strict=True)):
        np.save(folder / f"x{i}.npy", series)
        rows.append((f"p{i:03d}", f"x{i}.npy", label, 2.0, 30.0, "F", 0.2, "north"))
    table = pd.DataFrame(rows, columns=["subject", "file", "group_label", "tr", "age", "sex", "mean_fd", "site"])
    table.to_csv(folder / "scans.tsv", sep="\t", index=False)
    return folder / "scans.tsv"


def run_predict(model, source, out, **options):
    defaults = {"label": None, "tr": None, "any_tr": False, "explain": None, "atlas": None}
    source = source if isinstance(source, list) else [source]
    predict(argparse.Namespace(model=model, source=source, out=out, **defaults | options))
    return read_table(out, text=("scan_id", "subject", "training_scan", "label", "predicted", "flags"))


# ---- the pack ----
def test_a_pack_holds_no_participant(packed):
    everything = b"".join(path.read_bytes() for path in sorted(packed.rglob("*")) if path.is_file())
    index = [f"s{i:03d}" for i in range(24)] + [f"p{i:03d}" for i in range(24)] + ["secret"]
    assert not [name for name in index if name.encode() in everything]
    about = read_json(packed / "model.json")
    assert about["cohort"]["label"] == {"a": 12, "b": 12} and about["cohort"]["site"] == {"north": 12, "south": 12}
    assert not {"age_min", "min", "max"} & set(about["cohort"]["age"]), "extremes belong to single participants"
    sums = read_json(packed / "sha256.json")
    assert set(sums) == {p.relative_to(packed).as_posix() for p in packed.rglob("*.*") if p.name != "sha256.json"}
    assert all(sha256(packed / name) == digest for name, digest in sums.items())


def test_a_model_that_holds_participants_is_not_packed(tmp_path):
    run = build_run(tmp_path, "svm", hyper={"kernel": "rbf"})
    with pytest.raises(DataError, match=r"checkpoint.*matrices of training participants .*'kernel: linear'"):
        make_pack(run, tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_the_card_is_as_it_was_read_and_its_metrics_are_of_scans_not_trained_on(run, packed):
    card = (packed / "README.md").read_text()
    as_before("model_card.md", re.sub(r"\d+\.\d+", "#", card.replace(bolt.__version__, "#")))
    ((_, (result,)),) = [model.values() for model in yaml.safe_load(card.split("---")[1])["model-index"]]
    stated = read_json(packed / "model.json")["metrics"]["auc"]["value"]
    expected = pooled(role_test(predictions(run, "seed-*/fold-*")), ["a", "b"])["auc"]["value"]
    assert stated == pytest.approx(expected, abs=1e-4) and f"| AUC | {stated:.3f} |" in card
    assert {"type": "auc", "name": "AUC", "value": stated} in result["metrics"]


def test_a_run_that_has_failed_folds_says_so(run, tmp_path):
    run = Path(shutil.copytree(run.parents[3], tmp_path / "toy")) / run.relative_to(run.parents[3])
    shutil.rmtree(run / "seed-1")
    status = run / "seed-0" / "fold-0" / "status.json"
    write_json(read_json(status) | {"state": "failed", "reason": "x"}, status)
    for name in ("checkpoint.json", "checkpoint.safetensors", "config.yaml"):
        (status.parent / name).unlink()
    packed = make_pack(run, tmp_path / "model")
    assert "1 further trainings failed" in (packed / "README.md").read_text() and len(bolt.load(packed).members_) == 2
    for status in run.glob("seed-0/fold-*/status.json"):
        write_json(read_json(status) | {"state": "failed", "reason": "x"}, status)
    with pytest.raises(DataError, match="no fold has finished"):
        make_pack(run, tmp_path / "other")
    for place in (tmp_path, tmp_path / "results/toy"):
        with pytest.raises(DataError, match="not a run's folder"):
            make_pack(place, tmp_path / "other")


def test_a_pack_of_another_model_is_not_overwritten(run, tmp_path):
    packed = make_pack(run, tmp_path / "model")
    make_pack(run, packed)  # of the same run, which may have more folds now
    assert (packed / "cohort.safetensors").stat().st_mode & 0o044 == 0o044
    about = read_json(packed / "model.json")
    write_json(about | {"model": about["model"] | {"name": "other"}}, packed / "model.json")
    with pytest.raises(ConfigError, match="the pack of another model"):
        make_pack(run, packed)


def test_folds_of_an_earlier_split_are_left_out(run, tmp_path):
    run = Path(shutil.copytree(run.parents[3], tmp_path / "toy")) / run.relative_to(run.parents[3])
    for fold, content in (("seed-1/fold-2", "0" * 64), ("seed-1/fold-1", sha256(tmp_path / "toy/folds.tsv"))):
        write_json({"inputs": {"results/toy/folds.tsv": content}}, run / fold / "provenance.json")
    packed = make_pack(run, tmp_path / "model")
    assert len(bolt.load(packed).members_) == 5 and read_json(packed / "model.json")["runs"]["trained"] == 5
    with pytest.raises(DataError, match="all models were trained on an earlier split"):
        bolt.load(run / "seed-1" / "fold-2")


def damaged(pack):
    """A pickle in place of arrays."""
    (pack / "cohort.safetensors").write_bytes(b"\x80\x04cos\nsystem\n")
    return {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rois": {"value": [1, 2], "name": ["x", "y"]}}, "for 2 ROIs|differ"),
        ({"cohort": None}, "not a model's description"),
        ({"temperature": "hot"}, "not a model's description"),
        ({"atlas": None}, "not a model's description"),
        ({"institutions": {"north": [{}]}}, "not a model's description"),
        ({"cohort": {"volumes": [1, 2], "distance": [], "tr": None}}, "not described in finite numbers"),
        ({"cohort": {"volumes": [1, 2], "distance": [1], "tr": ["a", 2]}}, "not a model's description"),
        ({"series": {"crop": 30, "denoising": "24p"}}, "not described"),
        (damaged, "not readable"),
    ],
)
def test_a_hostile_pack_is_refused(copied, change, message):
    (copied / "sha256.json").unlink()  # the checksums
    change = change(copied) if callable(change) else change
    write_json(read_json(copied / "model.json") | change, copied / "model.json")
    with pytest.raises(DataError, match=message):
        read_pack(copied)


def test_a_pack_that_was_altered_is_refused(copied):
    with (copied / "README.md").open("a") as card:
        card.write("\nMore about the cohort.\n")
    read_pack(copied)  # people may add to the card
    info = copied / "member-1" / "checkpoint.json"
    write_json(read_json(info) | {"seed": 9}, info)
    with pytest.raises(DataError, match="'member-1/checkpoint.json' is altered"):
        read_pack(copied)
    shutil.rmtree(copied / "floor")
    with pytest.raises(DataError, match="'floor/checkpoint.json' is missing"):
        read_pack(copied)


def test_a_pack_that_cannot_be_written_leaves_the_earlier_one_and_otherwise_nothing_of_it(
    run, copied, tmp_path, monkeypatch
):
    before = {path: path.read_bytes() for path in copied.rglob("*.*") if path.is_file()}

    def full(text, path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("bolt.share.models.write_text", full)
    with pytest.raises(BoltError, match=f"{tmp_path}.*no space left"):
        make_pack(run, copied)
    assert {path: path.read_bytes() for path in copied.rglob("*.*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (copied / "floor").is_dir() and (copied / "member-5").is_dir()
    bolt.load(run / "seed-0" / "fold-0").save(copied)
    assert not (copied / "floor").exists() and [path.name for path in copied.glob("member-*")] == ["member-0"]
    assert len(bolt.load(copied).members_) == 1


# ---- predictions ----
def test_known_test_scans_get_the_predictions_of_their_fold(run, files, tmp_path):
    expected = role_test(predictions(run, "seed-*/fold-*")).groupby("scan_id")["p_b"].mean()
    table = run_predict(run, files, tmp_path / "out.tsv")
    assert table["training_scan"].tolist() == [f"s{i:03d}" for i in range(24)], "recognised by content, not by name"
    np.testing.assert_allclose(table["p_b"], expected.loc[table["training_scan"]], atol=1e-9)
    assert (table["n_models"] == 2).all(), "one fold of each seed"


def test_a_fold_alone_flags_scans_that_it_was_trained_on(run, files, tmp_path):
    fold = run / "seed-0" / "fold-1"
    expected = predictions(fold, ".")[0].set_index("scan_id")
    table = run_predict(fold, files, tmp_path / "out.tsv", label="group_label").set_index("training_scan")
    np.testing.assert_allclose(table["p_b"], expected["p_b"].loc[table.index], atol=1e-9)
    trained = table["flags"].fillna("").str.contains("every model was trained on this scan")
    assert trained.loc[expected.index].tolist() == (expected["role"] != "test").tolist()
    metrics = read_table(tmp_path / "out_metrics.tsv")
    assert set(metrics["n_scans"]) == {8}, "scans that were trained on are in no metric"


def test_new_scans_get_all_models_of_the_run_and_metrics(run, packed, tmp_path, files):
    spreadsheet = files.with_suffix(".csv")
    pd.read_csv(files, sep="\t").to_csv(spreadsheet, sep=";", index=False)
    table = run_predict(packed, spreadsheet, tmp_path / "out.tsv", label="group_label")
    each = np.stack([bolt.load(folder).predict_proba(SERIES) for folder in sorted(run.glob("seed-*/fold-*"))])
    assert (table["n_models"] == len(each)).all() and len(each) == 6 and table["training_scan"].isna().all()
    for mean in (table[["p_a", "p_b"]], bolt.load(packed).predict_proba(SERIES)):
        np.testing.assert_allclose(mean, each.mean(axis=0), atol=1e-9)
    best = each.mean(axis=0).argmax(axis=1)
    np.testing.assert_allclose(table["agreement"], (each.argmax(axis=2) == best).mean(axis=0))
    np.testing.assert_allclose(table["spread"], each[:, np.arange(24), best].std(axis=0), atol=1e-9)
    temperature = read_json(packed / "model.json")["temperature"]
    np.testing.assert_allclose(table["calibrated_b"], with_temperature(each, temperature).mean(axis=0)[:, 1], atol=1e-9)
    assert set(table) <= set(json.dumps(read_json(tmp_path / "out.json")).replace('"', " ").split())
    metrics = read_table(tmp_path / "out_metrics.tsv").set_index(["model", "metric"])
    expected = pooled(table.assign(group=table["subject"]), ["a", "b"])
    assert metrics.at[("model", "auc"), "value"] == pytest.approx(expected["auc"]["value"])
    assert metrics.at[("model", "auc"), "low"] == pytest.approx(expected["auc"]["low"])
    assert metrics.at[("motion, age and sex alone", "accuracy"), "value"] == pytest.approx(0.5), "all scans moved alike"
    assert metrics.at[("model, calibrated", "accuracy"), "value"] == metrics.at[("model", "accuracy"), "value"]


def test_the_floor_learns_from_the_training_cohort(packed):
    floor = read_pack(packed).floor
    cache = bolt.load(packed)._checked(SERIES)
    cache.index["mean_fd"], cache.index["age"], cache.index["sex"] = np.linspace(0.05, 0.45, 24), 30.0, "F"
    predicted = predict_floor(floor, cache)["p_b"].to_numpy()
    assert (np.diff(predicted) > 0).all() and predicted[0] < 0.3 and predicted[-1] > 0.7
    for unknown in (None, "female"):
        cache.index["sex"] = unknown
        assert predict_floor(floor, cache) is None
    assert floor.info["model"]["hyper"]["C"] == LogisticRegression().C


def test_the_floor_does_not_learn_the_label_from_itself():
    sex = np.array(["female", "male"] * 12)
    scans = pd.DataFrame({"label": sex, "sex": [name[0].upper() for name in sex], "age": np.arange(24.0)})
    assert fit_floor(SimpleNamespace(index=scans), ["female", "male"]).info["model"]["covariates"] == ["age"]


def test_a_table_of_new_scans_is_read_as_that_of_the_training_scans(packed, files):
    columns = {"age": ["999", "-9", "31"], "site": ["1.0", "2", "unknown"], "group": ["NA", "f", "f"]}
    table = pd.read_csv(files, sep="\t", dtype=str)[:3].assign(**columns, group_label=["1.0", "NA", "0"])
    table.to_csv(files, sep="\t", index=False)
    scans = read_new_scans([files], read_pack(packed), None, "group_label")
    index = scans.cache.index
    assert index["age"].isna().tolist() == [True, True, False] and index["site"][:2].tolist() == ["1", "2"]
    assert index["group"].tolist() == ["p000", "f", "f"] and index["site"].isna()[2]
    assert scans.labels[[0, 2]].tolist() == ["1", "0"] and scans.labels.isna()[1]


@pytest.mark.parametrize("names", [[f"r{value}" for value in range(1, 7)], list(range(1, 7))])
@pytest.mark.parametrize("model", ["run", "packed"])
def test_columns_with_names_or_values_are_sorted_as_in_training(model, names, files, tmp_path, request):
    model = request.getfixturevalue(model)
    pd.DataFrame(SERIES[0], columns=names)[names[::-1]].to_csv(tmp_path / "x.csv", index=False)
    table = run_predict(model, [files.with_name("x0.npy"), tmp_path / "x.csv"], tmp_path / "out.tsv")
    assert table["p_b"].nunique() == 1 and table["training_scan"].nunique(dropna=False) == 1


def test_scans_that_do_not_fit_are_left_out_with_their_reasons(packed, files, tmp_path):
    changes = [
        (lambda scan: np.save(scan, SERIES[0][:, :5]), "5 ROIs, but this model reads 6 .atlas 'toy'.. Make series"),
        (lambda scan: np.save(scan, SERIES[0][:1]), "1 time points"),
        (lambda scan: np.save(scan, np.full((40, 6), np.nan)), "no ROI varies"),
        (lambda scan: scan.unlink(), "file not found"),
        (lambda scan: write_json({"Atlas": "aal116"}, scan.with_suffix(".json")), "made with atlas aal116, but .* toy"),
        (lambda scan: write_json({"RepetitionTime": "fast"}, scan.with_suffix(".json")), "RepetitionTime"),
        (lambda scan: write_json([1], scan.with_suffix(".json")), "not a description"),
    ]
    for i, (change, _) in enumerate(changes):
        change(files.with_name(f"x{i}.npy"))
    assert len(run_predict(packed, files, tmp_path / "out.tsv")) == 24 - len(changes)
    excluded = read_table(tmp_path / "out_exclusions.tsv").set_index("scan_id")["reason"]
    assert len(excluded) == len(changes)
    for i, (_, reason) in enumerate(changes):
        assert re.search(reason, excluded[f"x{i}"])


def test_another_repetition_time_is_refused_unless_asked_for(packed, files, tmp_path):
    lines = pd.read_csv(files, sep="\t").assign(tr=[2.0] * 10 + [2.5] * 10 + [0.72] * 4)
    lines.to_csv(files, sep="\t", index=False)
    table = run_predict(packed, files, tmp_path / "out.tsv")
    flagged = table["flags"].fillna("").str.contains("TR 2.5 s, trained at 2 s")
    assert flagged.tolist() == [False] * 10 + [True] * 10
    excluded = read_table(tmp_path / "out_exclusions.tsv")
    assert excluded["reason"].str.contains("repetition time 0.72 s, but the model was trained at 2 s").all()
    assert len(run_predict(packed, files, tmp_path / "out.tsv", any_tr=True)) == 24


def test_the_repetition_time_of_a_new_scan_is_found_where_training_finds_it(packed, tmp_path):
    names, pack = [f"r{value}" for value in range(1, 7)], read_pack(packed)
    series = ptseries(tmp_path / "sub-1.ptseries.nii", names, seconds(0.72, n=len(SERIES[0])), SERIES[0])
    assert read_new_scans([series], pack, None, None).cache.index["tr"].round(3).tolist() == [0.72]
    table = tmp_path / "scans.tsv"
    pd.DataFrame({"subject": ["1"], "file": [series.name], "tr": [2.0]}).to_csv(table, sep="\t", index=False)
    ((_, reason),) = read_new_scans([table], pack, None, None).excluded
    assert "repetition time of 0.72 s, but 2 s is stated" in reason
    series = tmp_path / "sub-2_task-rest_space-X_seg-toy_stat-mean_timeseries.tsv"
    pd.DataFrame(SERIES[0], columns=names).to_csv(series, sep="\t", index=False)
    write_json({"RepetitionTime": 0.8}, tmp_path / "sub-2_task-rest_space-X_desc-denoised_bold.json")
    assert read_new_scans([series], pack, None, None).cache.index["tr"].tolist() == [0.8]
    write_json({"SamplingFrequency": 0.5}, series.with_suffix(".json"))
    assert read_new_scans([series], pack, None, None).cache.index["tr"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"out": "x.csv"}, ConfigError, "ends in .tsv"),
        ({"out": "files/scans.tsv"}, ConfigError, "is a source"),
        ({"label": "diagnosys"}, ConfigError, "no such column"),
        ({"tr": -2.0}, ConfigError, "no repetition time"),
        ({"source": "nothing.npy"}, DataError, "file not found"),
        ({"source": ["four.npy", "four.json"]}, DataError, r"four.json: '.json' is no format of series. Give .npy, "),
        ({"source": ["four.npy", "files"]}, DataError, "files: not a file. Correct the path"),
        ({"source": "four.npy"}, DataError, "none of the 1 scans can be predicted"),
        ({"rename": str.upper}, DataError, "needs the columns subject and file; .* or semicolons in a .csv"),
        (
            {"rename": {"subject": "ID", "file": "series"}.get},
            DataError,
            "needs the columns subject and file; found ID",
        ),
        ({"columns": {"scan_id": [f"../x{i}" for i in range(24)]}}, DataError, "'../x0' cannot name a scan"),
        ({"columns": {"scan_id": [f"a\n{i}" for i in range(24)]}}, DataError, "cannot name a scan"),
        ({"columns": {"tr": -2}}, DataError, "none of the 24 scans can be predicted"),
        ({"columns": {"age": "old"}}, DataError, "none of the 24 scans can be predicted"),
    ],
)
def test_options_and_tables_that_make_no_sense_are_refused(packed, files, tmp_path, options, error, message):
    given, table = dict(options), pd.read_csv(files, sep="\t")
    (tmp_path / "four.json").write_text("{}")
    np.save(tmp_path / "four.npy", SERIES[0][:, :4])
    table = table.rename(columns=given.pop("rename", str)).assign(**given.pop("columns", {}))
    table.to_csv(files, sep="\t", index=False)
    source, out = given.pop("source", files), tmp_path / given.pop("out", "out.tsv")
    source = [tmp_path / name for name in source] if isinstance(source, list) else tmp_path / source
    with pytest.raises(error, match=message):
        run_predict(packed, source, out, **given)
    assert out == files or not out.exists()


def test_an_estimator_saved_from_python_predicts_too(tmp_path, files):
    bolt.estimator("svm").fit(SERIES, LABELS).save(tmp_path / "model")
    table = run_predict(tmp_path / "model", files, tmp_path / "out.tsv")
    assert len(table) == 24 and (table["flags"] == "training cohort unknown").all()
    assert "calibrated_b" not in table


# ---- numbers ----
def test_temperature_scaling():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=4000)
    logits = rng.normal(size=4000) + np.where(truth == 1, 1, -1)
    honest = 1 / (1 + np.exp(-2 * logits))  # the true posterior of this mixture
    p = np.column_stack([1 - honest, honest])
    assert fit_temperature(p, truth) == pytest.approx(1, abs=0.08)
    sharp = with_temperature(p, 1 / 3)
    assert fit_temperature(sharp, truth) == pytest.approx(3, abs=0.25)
    np.testing.assert_allclose(with_temperature(sharp, 3.0), p, atol=1e-6)
    assert (with_temperature(p, 2.0).argmax(axis=1) == p.argmax(axis=1)).all()
    certain = np.eye(2)[[0, 1] * 6] * 0.98 + 0.01
    scaled = with_temperature(certain, fit_temperature(certain, np.array([0, 1] * 6)))
    assert scaled.max() == pytest.approx(7 / 8, abs=0.01), "six scans of a class: (6 + 1) / (6 + 2)"
    truth = np.array([0, 1] * 6)  # seeds are not further scans
    once, many = fit_temperature(certain, truth), (np.tile(certain, (5, 1)), np.tile(truth, 5))
    assert fit_temperature(*many, 5) == pytest.approx(once, rel=1e-3) and fit_temperature(*many) < 0.9 * once


def test_the_distance_to_a_cohort(tmp_path):
    cache = SeriesCache(make_cache(tmp_path, SERIES, scan_table(LABELS)))
    summary, mean = summarise_cohort(cache, range(24))
    each = [connectivity(cache.series(i)) for i in range(24)]
    np.testing.assert_allclose(mean, np.mean(each, axis=0), atol=1e-6)
    others = [np.mean(each[:i] + each[i + 1 :], axis=0) for i in range(24)]
    away = [1 - np.corrcoef(c, mean_of_others)[0, 1] for c, mean_of_others in zip(each, others, strict=True)]
    np.testing.assert_allclose(summary["distance"], np.percentile(away, range(1, 100)), atol=1e-4)
    assert distance(mean, mean) == pytest.approx(0, abs=1e-6) and distance(-mean, mean) == pytest.approx(2, abs=1e-6)
    assert distance(np.zeros(0), np.zeros(0)) == 1, "one ROI has no connectivity"
    assert percentile(-1, summary["distance"]) == 0 and percentile(9, summary["distance"]) == 100
    assert abs(percentile(float(np.median(away)), summary["distance"]) - 50) <= 3
    assert summary["volumes"] == [min(map(len, SERIES)), max(map(len, SERIES))] and summary["tr"] == [2, 2]


def scan(**changes):
    about = {"tr": 2.0, "length": 100, "mean_fd": 0.2, "age": 30.0, "site": "A"}
    return pd.DataFrame([about | changes]).iloc[0]


COHORT = {
    "tr": [2.0, 2.5],
    "volumes": [90, 110],
    "mean_fd": {"5": 0.1, "95": 0.3},
    "age": {"5": 20.0, "95": 40.0},
    "site": {"A": 10, "B": 9},
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"tr": 1.5}, ["TR 1.5 s, trained at 2–2.5 s"]),
        ({"tr": np.nan}, ["TR unknown"]),
        ({"length": 80}, ["80 volumes, trained on 90–110"]),
        ({"mean_fd": 0.5}, ["0.5 mm mean FD, 90 % of the training cohort: 0.1–0.3"]),
        ({"mean_fd": 0.34}, []),
        ({"age": 10.0}, ["10 years, 90 % of the training cohort: 20–40"]),
        ({"site": "C"}, ["site 'C' is new"]),
        ({"site": None}, []),
    ],
)
def test_flags(changes, expected):
    assert flags(scan(**changes), 0, 50, COHORT) == expected
    assert flags(scan(**changes), 2, 100, COHORT) == [
        "2 ROIs without signal", *expected, "connectivity farther from the mean than 100 % of the training cohort"
    ]  # fmt: skip


def test_refusal_by_repetition_time():
    refused = [tr for tr in (1.3, 1.34, 2.0, 3.7, 3.8) if refusal(scan(tr=tr), COHORT)]
    assert refused == [1.3, 3.8]
    assert not refusal(scan(tr=np.nan), COHORT) and not refusal(scan(tr=9), {})


# ---- honesty ----
def test_another_scan_of_a_training_subject_is_not_new(run, files, tmp_path):
    rng = np.random.default_rng(5)
    for name in ("named", "recognised", "stranger", "sibling"):
        np.save(files.parent / f"{name}.npy", rng.normal(size=(40, 6)).astype(np.float32))
    rows = [("sub-p002", "named.npy"), ("p7", "x7.npy"), ("p7", "recognised.npy"), ("q", "stranger.npy")]
    rows += [("r", "sibling.npy")]
    table = pd.DataFrame(rows, columns=["subject", "file"]).assign(tr=2.0, label="a", age=[20, 30, 40, 50, 60.0])
    table["group"] = [None, None, None, "sub-p003", "p005"]  # a family whose name looks like a person's, and one's own
    table["file"] = [str(files.parent / file) for file in table["file"]]
    table.to_csv(tmp_path / "t.tsv", sep="\t", index=False)
    folds = read_table(run.parents[3] / "folds.tsv", text=("scan_id",)).query("role == 'test'").set_index("scan_id")
    predicted = run_predict(run, tmp_path / "t.tsv", tmp_path / "out.tsv", label="label").set_index("scan_id")
    assert predicted["n_models"].tolist() == [2, 2, 2, 6, 2], "one fold of each seed did not train on a known subject"
    flags = predicted["flags"].fillna("")
    assert flags.str.contains("is in the training cohort").tolist() == [True, False, True, False, True]
    values = np.load(files.parent / "named.npy")
    members = [bolt.load(run / f"seed-{seed}" / f"fold-{folds.at['s002', 'fold']}") for seed in (0, 1)]
    expected = np.mean([member.predict_proba([values])[0] for member in members], axis=0)
    np.testing.assert_allclose(predicted.loc["named", ["p_a", "p_b"]].astype(float), expected)
    models = set(read_table(tmp_path / "out_metrics.tsv")["model"])
    assert models == {"model", "model, calibrated"}, "the confound floor was fitted to these scans"
    fold = next(k for k in range(3) if k != folds.at["s002", "fold"])
    alone = run_predict(run / "seed-0" / f"fold-{fold}", tmp_path / "t.tsv", tmp_path / "o.tsv").set_index("scan_id")
    assert alone.at["named", "flags"].startswith("every model was trained on this subject")


def test_a_pack_of_one_seed_is_described_by_that_seed(run, tmp_path):
    about = read_json(make_pack(run / "seed-1", tmp_path / "model") / "model.json")
    assert about["runs"] == {"trained": 3, "failed": 0, "seeds": [1], "tested": ""} and len(about["members"]) == 3
    card = (make_pack(run / "seed-1" / "fold-2", tmp_path / "one") / "README.md").read_text()
    assert "In 8 scans of the training cohort" in card and "the mean of" not in card


def test_the_card_has_the_crop_of_the_training(tmp_path):
    """A recipe may have another crop than the dataset, which has 30 volumes."""
    once = {"training": load_model("meanmlp").training.model_copy(update={"epochs": 1})}
    run = build_run(tmp_path, "meanmlp", seeds=(0,), run=[0], by_dataset={"toy": DatasetSettings(crop=12)}, **once)
    assert "Crops of 12 volumes; all settings are" in (make_pack(run, tmp_path / "model") / "README.md").read_text()
    some = ("bolt", "svm_published", "bnt", "svm", "ensemble", "site_only")
    assert [name for name in some if on_crops(load_model(name))] == ["bolt", "svm_published"]


def test_images_of_abide_are_said_to_be_preprocessed_by_others():
    about = series_facts(Study.of(Config(dataset="abide1_images", atlases=["aal116"])), None)
    assert about["made_by"] == "the Preprocessed Connectomes Project (cpac)" and about["preprocessing"] is None


def test_sites_of_new_people_are_the_institutions_of_the_training_cohort(run, copied, files, tmp_path):
    """As in training, by the list in the dataset's file, which the pack keeps."""
    pd.read_csv(files, sep="\t").assign(site=["north_1", "south"] * 12).to_csv(files, sep="\t", index=False)
    joined = Path(shutil.copytree(run.parents[3], tmp_path / "toy")) / run.relative_to(run.parents[3])
    for kept in joined.glob("seed-*/fold-*/config.yaml"):
        about = read_yaml(kept)
        about["dataset"] |= {"site": "site", "institutions": {"north": ["north_1", "north_2"]}}
        write_yaml(about, kept)
    made, old = read_pack(make_pack(joined, tmp_path / "joined")), read_pack(copied)
    assert read_new_scans([files], made, None, None).cache.index["site"].tolist() == ["north", "south"] * 12
    del old.about["institutions"]  # as in packs of earlier versions
    assert read_new_scans([files], old, None, None).cache.index["site"].tolist() == ["north_1", "south"] * 12
    old.about["institutions"] = {"pole": ["north"]}
    assert set(read_results(run.parents[3], old, None).cache.index["site"]) == {"pole", "south"}


def test_a_scan_of_an_unknown_site_costs_no_other_scan(files, tmp_path):
    model = make_pack(build_run(tmp_path, "svm", seeds=(0,), run=[0], harmonise="combat"), tmp_path / "model")
    expected = run_predict(model, files, tmp_path / "all.tsv").set_index("scan_id")
    table = pd.read_csv(files, sep="\t")
    table.loc[[3, 5], "site"] = ["mars", None]
    table.to_csv(files, sep="\t", index=False)
    predicted = run_predict(model, files, tmp_path / "out.tsv").set_index("scan_id")
    pd.testing.assert_series_equal(predicted["p_b"], expected["p_b"].drop(["x3", "x5"]))
    reasons = read_table(tmp_path / "out_exclusions.tsv").set_index("scan_id")["reason"]
    assert reasons["x3"].startswith("site 'mars', but the models remove") and reasons["x5"].startswith("no site")


def test_explanations_are_of_the_models_that_predict(tmp_path, files, monkeypatch):
    """By `bolt predict --explain`, and by `bolt explain` of a run, a fold, a pack and an estimator."""
    for name in ("draw_time", "write_page"):
        monkeypatch.setattr(f"bolt.share.one_scan.{name}", lambda *_, **__: None)
    asked = []
    monkeypatch.setattr(
        "bolt.share.one_scan.known_scans", lambda *given: asked.append(given[2].index) or known_scans(*given)
    )
    training = load_model("bolt").training.model_copy(update={"epochs": 1, "batch_size": 8})
    run = build_run(tmp_path, "bolt", seeds=(0,), hyper={**load_model("bolt").hyper, **SMALL}, training=training)
    series = files.parent / "x1.npy"
    kept = [*range(4, 10), *range(12, 2 + 4 + len(SERIES[1]))]  # dummy and scrubbed volumes are left out
    write_json({"KeptVolumes": kept}, series.with_suffix(".json"))
    table = run_predict(run, [series], tmp_path / "out.tsv", tr=2.0, explain=tmp_path / "explained")
    assert table["subject"].tolist() == ["x1"] and (table["tr"] == 2).all()

    def explained(model, name, series=series):
        assert main(["explain", str(model), str(series), "--out", str(tmp_path / name)]) == 0
        return read_json(tmp_path / name / "explanation.json")

    predicted, of_run = read_json(tmp_path / "explained/x1/explanation.json"), explained(run, "run")
    assert table["n_models"].tolist() == [1] == [of_run["provenance"]["models"]]
    assert predicted["tr"] == 2 and of_run["tr"] is None
    for found in (predicted, of_run):
        assert found["probabilities"]["b"] == pytest.approx(table["p_b"][0], abs=1e-6)
    assert of_run["landmarks"]["volume"] == predicted["landmarks"]["volume"] and of_run["tested"]["scans"] == 24
    importance = read_table(tmp_path / "explained/x1/importance.tsv")
    assert importance["volume"].tolist() == kept and importance["seconds"].tolist() == [2.0 * volume for volume in kept]
    assert any("1 of 3 models that were not trained on it" in note for note in of_run["notes"])
    assert [index[["subject", "group"]].to_numpy().tolist() for index in asked] == [[["x1", "x1"]]] * 2

    paths = [series, files.parent / "x2.npy"]
    packed = run_predict(make_pack(run, tmp_path / "model"), paths, tmp_path / "packed.tsv", tr=2.0)
    expected = bolt.load(tmp_path / "model").predict_proba(SERIES[1:3])
    np.testing.assert_allclose(packed[["p_a", "p_b"]], expected, atol=1e-7)
    bolt.load(run).save(tmp_path / "saved")
    copied = shutil.copytree(run, tmp_path / "copied")
    of_pack, of_saved, of_copy = (explained(tmp_path / name, f"of_{name}") for name in ("model", "saved", copied.name))
    assert of_pack["log_odds"] == pytest.approx(of_saved["log_odds"]) == pytest.approx(of_copy["log_odds"])
    assert of_pack["provenance"]["models"] == 3 and of_pack["tested"] == of_run["tested"] and not of_saved["tested"]

    other = series.with_name("sub-p001_again.npy")
    np.save(other, SERIES[1][::-1])
    folds = [explained(run / f"seed-0/fold-{fold}", f"fold-{fold}", other) for fold in range(3)]
    assert sum("Every model was trained on this subject" in " ".join(found["notes"]) for found in folds) == 2


def test_whole_numbers_with_gaps_are_classes_that_can_be_explained(tmp_path, files, monkeypatch):
    for name in ("draw_time", "write_page"):
        monkeypatch.setattr(f"bolt.share.one_scan.{name}", lambda *_, **__: None)
    model = small(epochs=1).fit(SERIES, (LABELS == "b").astype(float))
    model.save(tmp_path / "model")
    given = [str(tmp_path / "model"), str(files.parent / "x1.npy"), "--out", str(tmp_path / "out")]
    assert main(["explain", *given]) == 0
    found = read_json(tmp_path / "out/explanation.json")
    assert found["explained"] in ("0", "1") and found["probability"] == found["probabilities"][found["explained"]]


# ---- images, and series made of others: the workflow is asked for series like the model's ----
SPACE = "MNI152NLin6Asym"
MADE = {"space": SPACE, "made_by": "fMRIPrep", "output": "template", "coverage": 0.4, "preprocessing": None}


def described(atlas, denoising, classes=None, sha256=None, **series):
    """A pack of one model of two ROIs."""
    made = MADE | {"denoising": load_denoise(denoising).model_dump(mode="json")} | series
    about = {"series": made, "rois": {"value": [1, 2], "name": ["a", "b"]}, "atlas": {"name": atlas, "sha256": sha256}}
    member = SimpleNamespace(info={"rois": [1, 2], "classes": classes}, shortest=2)
    return Pack(SimpleNamespace(members_=[member]), about)


@pytest.mark.parametrize("fetch", [False, True])
def test_series_are_made_with_the_settings_of_the_model(tmp_path, monkeypatch, fetch):
    targets = []

    def run(command, env, check):
        targets.append(command[3])
        return subprocess.CompletedProcess(command, int(command[3] == "series"))

    monkeypatch.setattr(run_app.subprocess, "run", run)
    pack = described("dosenbach160", "24p", ["control", "patient"])
    source = [write_fmriprep(tmp_path / "study", n_subjects=2)]
    given = {"source": source, "label": None, "atlas": None, "out": tmp_path / "new.tsv", "model": tmp_path}
    options = argparse.Namespace(**given, work_dir=None, n_cpus=1, fetch=fetch, tr=None)
    with pytest.raises(DataError, match="could not be made.*the same command resumes"):
        scans_to_predict(options, pack)
    assert targets == (["resources", "series"] if fetch else ["series"])
    config = load_config(tmp_path / "new_work/new.yaml")
    assert (config.atlases, config.denoise, config.parcellate.coverage) == (["dosenbach160"], "24p", 0.4)
    options.tr = 2.0
    with pytest.raises(ConfigError, match="a folder have their own"):
        scans_to_predict(options, pack)


def test_series_in_native_space_fit_models_of_such_series(tmp_path):
    """Their sidecars state `native`, while the template's space is kept for making more of them."""
    pack = described("toy", "none", output="native")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 2)))
    for space, excluded in (("native", 0), (SPACE, 1)):
        write_json({"Space": space, "RepetitionTime": 2.0}, tmp_path / "x.json")
        scans = read_new_scans([tmp_path / "x.npy"], pack, None, None)
        assert len(scans.excluded) == excluded, scans.excluded
    wishes = wishes_of(argparse.Namespace(label=None, atlas="dosenbach160"), pack, tmp_path)
    assert wishes.settings["preprocess"] == {"space": SPACE, "output": "native"}


def test_series_made_otherwise_than_the_models_are_refused():
    pack = described("toy", "24p", sha256="ours")
    made = {"Atlas": "toy", "AtlasSHA256": "ours", "Space": SPACE, "Denoising": {"name": "24p"}}
    require_same(made, pack, None)
    for key, (stated, shown) in {
        "Atlas": ("aal116", "atlas aal116.* Make series with atlas toy"),
        "AtlasSHA256": ("theirs", "an atlas image with checksum theirs.* Make series with an atlas image .* ours"),
        "Space": ("native", f"space native.* Make series with space {SPACE}"),
        "Denoising": ({"name": "36p"}, "denoising 36p.* Make series with --denoise 24p"),
    }.items():
        require_same(made | {key: None}, pack, None)
        with pytest.raises(DataError, match=f"made with {shown}"):
            require_same(made | {key: stated}, pack, None)


def test_results_of_another_image_of_the_models_atlas_are_refused(run, tmp_path):
    model, results = make_pack(run, tmp_path / "model"), Path(shutil.copytree(run.parents[3], tmp_path / "toy"))
    for scan in ("s003", "s004"):  # the first sidecar counts
        write_json({"AtlasSHA256": scan}, results / f"series/space-none/{scan}/{scan}_atlas-toy_timeseries.json")
    assert len(read_results(results, read_pack(model), None).cache) == 24
    ours = read_pack(model)
    ours.about["atlas"]["sha256"] = "s003"
    read_results(results, ours, None)
    ours.about["atlas"]["sha256"] = "s004"
    with pytest.raises(DataError, match="s003_atlas-toy.*made with an atlas image with checksum s003"):
        read_results(results, ours, None)
