"""ROI series in a folder of BIDS derivatives, in the layouts of XCP-D's releases."""

import json

import numpy as np
import pandas as pd
import pytest

from bolt.atlases.labels import describe_names, load_labels
from bolt.config import Config, Dataset
from bolt.datasets import index
from bolt.datasets.bids_series import SeriesFile
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table, write_json
from bolt.io.series_files import plain_name, read_series
from bolt.workflow.checks import check_names
from bolt.workflow.run import Run
from bolt.workflow.watched import files_of
from tests.fake_xcpd import NAMES, RELEASES, SOURCES, T, participants
from tests.snake import write_yaml


def written(release, folder):
    """Derivatives and the atlas that they describe; return the folder of the derivatives."""
    derivatives = release.write(folder / "xcp_d")
    describe_names(derivatives / release.atlas, folder / "4S5Parcels")
    return derivatives


def configured(folder, name="4S5Parcels"):
    return Config(dataset="mine", atlases=[str(folder / name)])


def about(folder, **keys):
    source = {"name": "mine", "source": "bids_series", "path": folder / "xcp_d"}
    labelled = {"subjects_table": participants(folder), "label": "dx", "classes": ["a", "b"]}
    return Dataset(**(source | labelled | keys))


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_read_as_it_is_written(release, tmp_path):
    written(RELEASES[release], tmp_path)
    scans = index(configured(tmp_path), about(tmp_path))
    assert scans.exclude_reason.isna().all() and scans.scan_id.tolist() == SOURCES
    assert set(scans.kind) == {"series"} and set(scans.tr) == {2.2} and set(scans.n_volumes) == {T}
    assert scans.mean_fd.round(6).tolist() == [0.3] * 4 and scans.label.tolist() == ["a", "b"] * 2
    assert all(path.endswith(f"{RELEASES[release].series}.tsv") for path in scans.bold)
    rois = load_labels(str(tmp_path / "4S5Parcels"))
    assert rois.name.tolist() == NAMES and rois.hemisphere.tolist() == list("LLRRL")


@pytest.fixture
def newest(tmp_path):
    return written(RELEASES["0.14"], tmp_path)


def test_columns_in_another_order_are_no_fault_and_other_names_are(newest, tmp_path):
    file = next(newest.rglob("sub-02*stat-mean_timeseries.tsv"))
    table = read_table(file)
    table[NAMES[::-1]].to_csv(file, sep="\t", index=False)
    assert index(configured(tmp_path), about(tmp_path)).exclude_reason.isna().all()
    table.rename(columns={"RH_Vis_1": "RH_Vis_2"}).to_csv(file, sep="\t", index=False)
    reasons = index(configured(tmp_path), about(tmp_path)).set_index("scan_id").exclude_reason.dropna()
    assert reasons.index.tolist() == ["sub-02_task-rest"]
    assert "the first that differs is 'RH_Vis_2', where the atlas has 'RH_Vis_1'" in reasons.iloc[0]


def test_values_of_the_atlas_in_the_first_row_are_no_volume(newest, tmp_path):
    file = next(newest.rglob("sub-02*stat-mean_timeseries.tsv"))
    read_table(file).set_axis([3, 1, 2, 5, 4], axis=1).to_csv(file, sep="\t", index=False)
    assert set(index(configured(tmp_path), about(tmp_path)).n_volumes) == {T}


def test_an_atlas_is_chosen_by_name_or_entity(newest, tmp_path):
    for path in sorted(newest.rglob("*atlas-4S5Parcels_stat-mean_timeseries.tsv")):
        path.with_name(path.name.replace("4S5Parcels", "Tian")).write_bytes(path.read_bytes())
    assert all("4S5Parcels" in path for path in index(configured(tmp_path), about(tmp_path)).bold)
    chosen = index(configured(tmp_path), about(tmp_path, entities={"atlas": "Tian"}))
    assert all("Tian" in path for path in chosen.bold)
    describe_names(newest / RELEASES["0.14"].atlas, tmp_path / "mine")
    with pytest.raises(DataError, match="series of 2 atlases .4S5Parcels, Tian., none called 'mine'"):
        index(configured(tmp_path, "mine"), about(tmp_path))
    with pytest.raises(DataError, match="no series with atlas-Glasser .found: 4S5Parcels, Tian"):
        index(configured(tmp_path), about(tmp_path, entities={"atlas": "Glasser"}))
    with pytest.raises(ConfigError, match="2 atlases, but a scan's series are of one"):
        config = Config(dataset="mine", atlases=[str(tmp_path / "mine"), str(tmp_path / "4S5Parcels")])
        index(config, about(tmp_path))


def test_the_only_atlas_in_a_folder_may_be_another_than_the_configured_one(newest, tmp_path):
    """Names of columns decide; of series without them, the entity, unless the dataset's file names it."""
    describe_names(newest / RELEASES["0.14"].atlas, tmp_path / "mine")
    assert index(configured(tmp_path, "mine"), about(tmp_path)).exclude_reason.isna().all()
    for path in sorted(newest.rglob("*stat-mean_timeseries.tsv")):
        np.save(path.with_suffix(".npy"), read_series(path))
        path.unlink()
    assert index(configured(tmp_path), about(tmp_path)).exclude_reason.isna().all()
    with pytest.raises(DataError, match="of atlas '4S5Parcels', but 'atlases' names mine. .*{atlas: 4S5Parcels}"):
        index(configured(tmp_path, "mine"), about(tmp_path))
    chosen = about(tmp_path, entities={"atlas": "4S5Parcels"})
    assert index(configured(tmp_path, "mine"), chosen).exclude_reason.isna().all()
    for path in newest.rglob("*stat-mean_timeseries.npy"):
        write_json({"Atlas": "mine"}, path.with_suffix(".json"))
    assert index(configured(tmp_path, "mine"), about(tmp_path)).exclude_reason.isna().all()
    for path in newest.rglob("sub-01*stat-mean_timeseries.npy"):
        write_json({"Atlas": "Tian"}, path.with_suffix(".json"))
    reasons = index(configured(tmp_path, "mine"), chosen).set_index("scan_id").exclude_reason.dropna()
    assert list(reasons.index) == ["sub-01_task-rest"] and "series of atlas 'Tian'" in reasons.iloc[0]


@pytest.mark.parametrize(
    ("entities", "name"),
    [("atlas-Schaefer2018_scale-400", "Schaefer2018400"), ("seg-4S5", "4s5"), ("atlas-A_seg-2_desc-x", "A2")],
)
def test_an_atlas_is_named_by_one_or_several_entities(tmp_path, entities, name):
    assert plain_name(name) in SeriesFile(tmp_path / f"sub-1_{entities}_timeseries.npy").atlas_names


def test_one_series_in_several_formats_and_several_series_of_a_scan(newest, tmp_path):
    for path in sorted(newest.rglob("*stat-mean_timeseries.tsv")):
        np.save(path.with_name(path.name.replace("_stat", "_den-91k_stat")).with_suffix(".npy"), read_series(path))
    assert all(path.endswith(".tsv") for path in index(configured(tmp_path), about(tmp_path)).bold)
    path = next(newest.rglob("sub-03*stat-mean_timeseries.tsv"))
    path.with_name(path.name.replace("2009cAsym", "6Asym")).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="'sub-03_task-rest': space- is MNI152NLin2009cAsym, MNI152NLin6Asym"):
        index(configured(tmp_path), about(tmp_path))
    scans = index(configured(tmp_path), about(tmp_path, entities={"space": "MNI152NLin2009cAsym"}))
    assert scans.exclude_reason.isna().all()


def test_what_lies_among_series_does_not_stop_the_index(newest, tmp_path):
    """Series of nobody, a table of motion by R, and further runs beside a first without a number."""
    path = next(newest.rglob("sub-01*stat-mean_timeseries.tsv"))
    path.with_name("task-rest_atlas-4S5Parcels_timeseries.tsv").write_bytes(path.read_bytes())
    for run in (2, 3):  # shorter, as after censoring
        name = path.name.replace("_task-rest", f"_task-rest_run-{run}")
        path.with_name(name).write_text("".join(path.read_text().splitlines(True)[:-run]))
    motion = next(newest.rglob("sub-02*_motion.tsv"))
    motion.write_text(motion.read_text().replace("n/a", "NA"))
    scans = index(configured(tmp_path), about(tmp_path))
    assert scans.scan_id.tolist() == [SOURCES[0], f"{SOURCES[0]}_run-2", f"{SOURCES[0]}_run-3", *SOURCES[1:]]
    assert scans.exclude_reason.isna().all() and scans.mean_fd[3] == pytest.approx(0.3)


def test_joined_runs_are_not_used_beside_the_single_ones(newest, tmp_path):
    for path in sorted(newest.rglob("sub-01_*")):
        for run in ("01", "02"):
            path.with_name(path.name.replace("_task-rest", f"_task-rest_run-{run}")).write_bytes(path.read_bytes())
    whole = next(newest.rglob("sub-01_task-rest_space*stat-mean_timeseries.tsv"))
    whole.write_text(whole.read_text() + "".join(whole.read_text().splitlines(True)[1:]))
    scans = index(configured(tmp_path), about(tmp_path)).set_index("scan_id")
    joined = scans.loc["sub-01_task-rest"]
    assert joined.exclude_stage == "selection" and "several runs in one file" in joined.exclude_reason
    assert scans.loc[scans.subject == "sub-01", "run"].dropna().tolist() == ["1", "2"]
    assert scans.exclude_reason.notna().sum() == 1
    chosen = index(configured(tmp_path), about(tmp_path, runs=["2"])).set_index("scan_id").exclude_reason
    assert pd.isna(chosen["sub-01_task-rest_run-02"]) and chosen["sub-01_task-rest_run-01"] == "run '1' is not selected"


def test_runs_are_selected_by_their_number(newest, tmp_path):
    for path in sorted(newest.rglob("sub-01_*")):
        path.rename(path.with_name(path.name.replace("_task-rest", "_task-rest_run-01")))
    for runs in (["1"], ["01"]):
        chosen = index(configured(tmp_path), about(tmp_path, runs=runs)).set_index("scan_id").exclude_reason
        assert chosen.isna().tolist() == [True, False, False, False]


def test_the_scale_of_an_atlas_is_no_part_of_the_scan(newest, tmp_path):
    for path in sorted(newest.rglob("*stat-mean_timeseries.tsv")):
        for scale in "12":
            name = path.name.replace("_stat-mean", f"_scale-{scale}_stat-mean")
            path.with_name(name).write_bytes(path.read_bytes())
        path.unlink()
    with pytest.raises(DataError, match=r"'sub-01_task-rest': scale- is 1, 2. .*'entities: {scale: \"2\"}'"):
        index(configured(tmp_path), about(tmp_path))
    scans = index(configured(tmp_path), about(tmp_path, entities={"scale": "2"}))
    assert scans.scan_id.tolist() == SOURCES and set(scans.tr) == {2.2} and scans.mean_fd.notna().all()


@pytest.mark.parametrize(
    ("sidecar", "tr"), [({"RepetitionTime": 0.8}, 0.8), ({"SamplingFrequency": 0.5}, 2.0), (None, 1.4)]
)
def test_the_repetition_time_is_that_of_a_sidecar_or_of_the_dataset(newest, tmp_path, sidecar, tr):
    for path in newest.rglob("*denoised_bold.json"):
        path.unlink()
    for path in newest.rglob("*stat-mean_timeseries.tsv") if sidecar else ():
        path.with_suffix(".json").write_text(json.dumps(sidecar))
    assert set(index(configured(tmp_path), about(tmp_path, tr=1.4)).tr) == {tr}


def test_the_repetition_time_is_not_that_of_a_scan_whose_name_begins_alike(newest, tmp_path):
    for path in sorted(newest.rglob("sub-01_*")):
        path.with_name(path.name.replace("_task-rest", "_task-rest_acq-mb")).write_bytes(path.read_bytes())
    next(newest.rglob("*acq-mb*denoised_bold.json")).write_text('{"RepetitionTime": 0.8}')
    assert index(configured(tmp_path), about(tmp_path)).tr.tolist() == [2.2, 0.8, 2.2, 2.2, 2.2]


def test_people_without_series_and_without_a_table(newest, tmp_path):
    dataset = about(tmp_path).model_copy(update={"subjects_table": participants(tmp_path, 5)})
    scans = index(configured(tmp_path), dataset).set_index("scan_id")
    assert scans.exclude_reason.dropna().to_dict() == {"sub-05": "the subject has no series of atlas '4S5Parcels'"}
    with pytest.raises(ConfigError, match="no table of subjects: .*participants.tsv. Set 'subjects_table'"):
        check_names(configured(tmp_path), about(tmp_path, subjects_table=None))
    unlabelled = index(configured(tmp_path), about(tmp_path, subjects_table=None, label=None, classes=None))
    assert unlabelled.exclude_reason.isna().all() and len(unlabelled) == 4
    for path in newest.rglob("*timeseries.tsv"):
        path.unlink()
    with pytest.raises(DataError, match=r"no ROI series found. Expected sub-\*"):
        index(configured(tmp_path), about(tmp_path))


def test_a_table_of_people_that_is_not_needed_runs_the_index_again_once_it_is_there(newest, tmp_path):
    write_yaml(tmp_path / "mine.yaml", {"source": "bids_series", "path": str(newest), "label": None})
    run = Run({"dataset": str(tmp_path / "mine.yaml"), "atlases": [str(tmp_path / "4S5Parcels")]})
    assert run.tables_of_index == []
    table = participants(newest)
    assert run.tables_of_index == [run.subjects_table] == [table]


def test_changed_files_are_indexed_anew(newest, tmp_path):
    before = files_of(about(tmp_path))
    file = next(newest.rglob("sub-02*stat-mean_timeseries.tsv"))
    file.write_text(file.read_text() + "\n")
    assert files_of(about(tmp_path)) != before


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a_dseg.tsv", "index\tname\n1\tx\n", "columns missing: label"),
        ("a_dseg.tsv", "index\tlabel\n1.5\tx\n", "must hold whole numbers"),
        ("a_dseg.tsv", "index\tlabel\n1\tx\n2\tx\n", "a name is missing or not unique: 'x'"),
        ("a.tsv", "1.5\t2\n3\t4\n", "its columns have no names"),
    ],
)
def test_what_names_no_rois_describes_no_atlas(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        describe_names(tmp_path / name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_header_describes_an_atlas_too_but_none_that_is_there(newest, tmp_path):
    file = next(newest.rglob("sub-02*stat-mean_timeseries.tsv"))
    assert describe_names(file, tmp_path / "by_header") == len(NAMES)
    assert load_labels(str(tmp_path / "by_header")).name.tolist() == NAMES
    with pytest.raises(DataError, match="described already"):
        describe_names(file, tmp_path / "by_header")
