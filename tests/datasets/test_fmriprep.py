"""fMRIPrep output as a source of scans."""

import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from bolt.config import Config, Dataset, load_config, load_dataset
from bolt.datasets import index
from bolt.datasets.spaces import use_space_of_images
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table, sha256, write_yaml
from bolt.workflow.checks import check_names
from bolt.workflow.job import PREPARES
from bolt.workflow.start import start
from tests.fake_bids import AFFINE, save_bold, write_subject
from tests.fake_fmriprep import describe
from tests.stages import stage


@pytest.fixture
def derivatives(tmp_path):
    for i in range(4):
        add_scan(tmp_path, f"sub-{i}")
    rows = [f"sub-{i}\t{label}\n" for i, label in enumerate("abab")]
    (tmp_path / "participants.tsv").write_text("".join(["participant_id\tgroup\n", *rows]))
    describe(tmp_path)
    return tmp_path


def add_scan(derivatives, subject, *names):
    """Write images, masks and confounds, with these entities after the task; default: none."""
    func = derivatives / subject / "func"
    func.mkdir(parents=True, exist_ok=True)
    for name in names or [""]:
        start = f"{subject}_task-rest{name}"
        save_bold(func / f"{start}_space-MNI152NLin6Asym_desc-preproc_bold.nii.gz", np.ones((4, 4, 4, 25), np.int16))
        save_bold(func / f"{start}_space-MNI152NLin6Asym_desc-brain_mask.nii.gz", np.ones((4, 4, 4), np.uint8))
        (func / f"{start}_desc-confounds_timeseries.tsv").write_text("trans_x\n0\n")


def dataset(path, **keys):
    return Dataset(name="prep", source="fmriprep", path=path, label="group", classes=["a", "b"], **keys)


NINE = "MNI152NLin2009cAsym"


def in_spaces(derivatives, *spaces):
    """Give the images of all subjects these spaces instead, as with fMRIPrep's --output-spaces."""
    for path in sorted(derivatives.rglob("*_space-MNI152NLin6Asym_*")):
        content = path.read_bytes()
        path.unlink()
        for space in spaces:
            path.with_name(path.name.replace("MNI152NLin6Asym", space)).write_bytes(content)


@pytest.mark.parametrize(
    ("written", "atlases", "space"),
    [
        (["MNI152NLin6Asym", NINE], ["schaefer400", "aal116"], "MNI152NLin6Asym"),  # the configured one is there
        ([NINE], ["schaefer400", "dosenbach160"], NINE),  # fMRIPrep's default
        ([NINE, "T1w", "MNIInfant"], ["aal116"], NINE),  # no image in it, but carried over
        (["MNI152NLin2009aSym", NINE], ["schaefer400"], NINE),
        (["MNI152NLin2009aSym", NINE], ["dosenbach160"], None),  # two of them: never guessed
        (["T1w", "MNIInfant"], ["schaefer400"], None),
    ],
)
def test_the_space_is_that_of_the_images_if_only_one_serves(derivatives, monkeypatch, written, atlases, space):
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(derivatives / "empty-home"))
    in_spaces(derivatives, *written)
    config, note = use_space_of_images(Config(dataset="prep", atlases=atlases), dataset(derivatives))
    if space is None:
        assert config.preprocess.space == "MNI152NLin6Asym" and not note
        with pytest.raises(DataError, match=f"found spaces: {', '.join(sorted(written))}") as caught:
            index(config, dataset(derivatives))
        assert "--output-spaces MNI152NLin6Asym" in caught.value.hint
        return
    assert config.preprocess.space == space
    assert bool(note) == (space == NINE) and (not note or f"{NINE} is used" in note)
    check_names(config, dataset(derivatives))
    scans = index(config, dataset(derivatives))
    assert set(scans.space) == {space} and len(scans) == 4


def test_the_message_names_atlases_for_the_spaces_found(derivatives, monkeypatch):
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(derivatives / "empty-home"))
    in_spaces(derivatives, "MNI152NLin2009aSym", "MNIPediatricAsym")
    with pytest.raises(DataError) as caught:
        index(Config(dataset="prep"), dataset(derivatives))
    assert "to MNI152NLin2009aSym with dosenbach160. Or run fMRIPrep" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        config = Config(dataset="prep", atlases=["aal116"], preprocess={"space": "MNI152NLin2009aSym"})
        check_names(config, dataset(derivatives))
    assert "dosenbach160" in caught.value.hint and "--output-spaces MNI152NLin6Asym" in caught.value.hint


def test_each_cohort_of_a_template_is_a_space(derivatives):
    """Images of several are never taken together, nor averaged with an atlas of another."""
    in_spaces(derivatives, "UNCInfant_cohort-1")
    later = derivatives / "sub-3/func/sub-3_task-rest_space-UNCInfant_cohort-1_desc-preproc_bold.nii.gz"
    later.rename(later.with_name(later.name.replace("cohort-1", "cohort-2")))
    with pytest.raises(DataError, match="found spaces: UNCInfant_cohort-1, UNCInfant_cohort-2") as caught:
        index(Config(dataset="prep", preprocess={"space": "UNCInfant"}), dataset(derivatives))
    assert "'preprocess: space: UNCInfant_cohort-1'" in caught.value.hint
    config = Config(dataset="prep", preprocess={"space": "UNCInfant:cohort-1"})  # as on fMRIPrep's command line
    scans = index(config, dataset(derivatives))
    assert scans.exclude_reason.isna().tolist() == [True] * 3 + [False]
    with pytest.raises(ConfigError, match="the images will be in UNCInfant_cohort-1"):
        check_names(config, dataset(derivatives))


def test_ica_aroma_uses_the_images_cleaned_by_fmriprep(derivatives):
    config = Config(dataset="prep", denoise="ica_aroma")
    with pytest.raises(DataError, match=r"no desc-smoothAROMAnonaggr_bold images.*found spaces: none"):
        index(config, dataset(derivatives))
    for path in sorted(derivatives.rglob("*desc-preproc_bold.nii.gz")):
        save_bold(path.with_name(path.name.replace("preproc", "smoothAROMAnonaggr")), np.ones((4, 4, 4, 25), np.int16))
    scans = index(config, dataset(derivatives))
    assert scans.bold.str.endswith("desc-smoothAROMAnonaggr_bold.nii.gz").all() and scans["mask"].notna().all()
    assert scans.scan_id.tolist() == [f"sub-{i}_task-rest" for i in range(4)] and scans.confounds.notna().all()
    assert set(scans.kind) == {"preprocessed"} and set(scans.n_volumes) == {25}
    assert index(Config(dataset="prep"), dataset(derivatives)).bold.str.endswith("desc-preproc_bold.nii.gz").all()


def test_old_names_of_confounds_and_masks_that_are_not_compressed_are_found_too(derivatives, caplog):
    path = derivatives / "sub-0/func/sub-0_task-rest_desc-confounds_timeseries.tsv"
    path.rename(path.with_name("sub-0_task-rest_desc-confounds_regressors.tsv"))
    names = [name.rsplit("_", 1)[1] for name in index(Config(dataset="prep"), dataset(derivatives)).confounds]
    assert names == ["regressors.tsv"] + ["timeseries.tsv"] * 3
    first, second, *_ = sorted(derivatives.rglob("*_mask.nii.gz"))
    first.rename(first.with_suffix(""))
    second.unlink()
    masks = index(Config(dataset="prep"), dataset(derivatives))["mask"]
    assert masks[0] == str(first.with_suffix("")) and masks.isna().tolist() == [False, True, False, False]
    assert "1 of 4 scans have no brain mask, such as sub-1_task-rest" in caplog.text


def test_options_that_need_fmriprep_are_refused_for_raw_images(derivatives):
    keys = {"dataset": "prep", "atlases": ["dosenbach160"]}
    raw = dataset(derivatives).model_copy(update={"source": "bids"})
    for strategy in ("simple", "scrubbing", "compcor", "24p_acompcor", "36p"):
        check_names(Config(**keys, denoise=strategy), raw)
    cleaned = Config(**keys, denoise="ica_aroma")
    check_names(cleaned, dataset(derivatives))
    with pytest.raises(ConfigError, match="'ica_aroma' needs images that fMRIPrep has cleaned"):
        check_names(cleaned, raw)
    native = Config(**keys, preprocess={"output": "native"})
    check_names(native, raw)
    with pytest.raises(ConfigError, match="preprocessed already"):
        check_names(native, dataset(derivatives))


def at_resolutions(derivatives, voxels):
    """Write the images of all subjects with these `res-` entities and voxel sizes instead."""
    for path in sorted(derivatives.rglob("*_desc-*.nii.gz")):
        image = nib.load(path)
        data = np.asarray(image.dataobj)
        path.unlink()
        for name, size in voxels.items():
            entity = f"_res-{name}" if name else ""
            image.header.set_zooms((size, size, size, 2.0)[: image.ndim])
            coarse = nib.Nifti1Image(data, np.diag([size, size, size, 1.0]), image.header)
            nib.save(coarse, path.with_name(path.name.replace("_desc-", f"{entity}_desc-")))


@pytest.mark.parametrize(
    ("voxels", "chosen"),
    [
        ({"": 3.0, "2": 2.0}, ""),
        ({"native": 3.0, "2": 2.0}, "native"),
        ({"1": 1.0, "2": 2.0}, "2"),
        ({"01": 1.0, "04": 4.0}, "01"),
    ],
)
def test_one_of_several_resolutions_is_chosen_by_rule_or_by_name(derivatives, caplog, voxels, chosen):
    at_resolutions(derivatives, voxels)
    for resolution, expected in [(None, chosen), *((name or "none", name) for name in voxels if name != chosen)]:
        caplog.clear()
        scans = index(Config(dataset="prep"), dataset(derivatives, resolution=resolution))
        stem = f"MNI152NLin6Asym_res-{expected}_desc" if expected else "MNI152NLin6Asym_desc"
        assert scans.bold.str.contains(stem).all() and scans["mask"].str.contains(stem).all()
        assert scans.scan_id.tolist() == [f"sub-{i}_task-rest" for i in range(4)] and scans.confounds.notna().all()
        assert (f"'{expected or 'none'}' is read" in caplog.text) == (resolution is None)
    with pytest.raises(DataError, match="no images at resolution '9'; res- is"):
        index(Config(dataset="prep"), dataset(derivatives, resolution="9"))


def test_scans_without_an_image_or_the_chosen_resolution_are_excluded_by_name(derivatives):
    shutil.rmtree(derivatives / "sub-2")
    at_resolutions(derivatives, {"native": 3.0, "2": 2.0})
    (derivatives / "sub-3/func/sub-3_task-rest_space-MNI152NLin6Asym_res-2_desc-preproc_bold.nii.gz").unlink()
    reasons = index(Config(dataset="prep"), dataset(derivatives, resolution="2")).set_index("scan_id").exclude_reason
    assert sorted(reasons.dropna().index) == ["sub-2", "sub-3_task-rest"]
    assert reasons["sub-2"] == "the subject has no desc-preproc_bold image in space MNI152NLin6Asym"
    assert "no image at resolution '2'" in reasons["sub-3_task-rest"]


def test_every_acquisition_is_a_scan_of_its_own(derivatives):
    names = ["_acq-a_dir-AP_run-1", "_acq-a_dir-PA_run-1", "_acq-b_dir-AP_run-1", "_acq-a_dir-AP_run-02", "_rec-x"]
    add_scan(derivatives, "sub-0", *names)
    scans = index(Config(dataset="prep"), dataset(derivatives)).set_index("scan_id", drop=False)
    assert {f"sub-0_task-rest{name}" for name in ["", *names]} == set(scans.index[scans.subject == "sub-0"])
    assert scans.exclude_reason.isna().all()
    for scan in scans.itertuples():
        assert Path(scan.confounds).name == f"{scan.scan_id}_desc-confounds_timeseries.tsv"
        assert all(Path(file).name.startswith(f"{scan.scan_id}_space-") for file in (scan.bold, scan.mask))
    assert scans.run["sub-0_task-rest_acq-a_dir-AP_run-1"] == "1"


def test_single_echoes_are_not_scans(derivatives, caplog):
    """The combined image is read; a scan that has none is excluded by name."""
    add_scan(derivatives, "sub-0", "_echo-1", "_echo-2")
    scans = index(Config(dataset="prep"), dataset(derivatives))
    assert scans.scan_id.tolist() == [f"sub-{i}_task-rest" for i in range(4)] and scans.exclude_reason.isna().all()
    assert "2 images of single echoes are not used" in caplog.text
    (derivatives / "sub-0/func/sub-0_task-rest_space-MNI152NLin6Asym_desc-preproc_bold.nii.gz").unlink()
    scans = index(Config(dataset="prep"), dataset(derivatives)).set_index("scan_id")
    assert len(scans) == 4 and "only images of single echoes" in scans.exclude_reason["sub-0_task-rest"]


def test_events_and_participants_come_from_the_raw_folder(derivatives, tmp_path_factory):
    """A scan's own table has precedence over one that it inherits, of raw scans as well."""
    raw = tmp_path_factory.mktemp("raw")
    (derivatives / "participants.tsv").rename(raw / "participants.tsv")
    add_scan(derivatives, "sub-0", "_dir-AP_run-1")
    for place in (
        "sub-1/func/sub-1_task-rest_events.tsv",
        "sub-0/sub-0_task-rest_dir-AP_events.tsv",
        "sub-0/func/sub-0_task-rest_dir-PA_events.tsv",
        "sub-2/ses-1/func/sub-2_ses-1_task-rest_events.tsv",
        "task-nback_events.tsv",
    ):
        (raw / place).parent.mkdir(parents=True, exist_ok=True)
        (raw / place).write_text("onset\tduration\ttrial_type\n0\t1\tgo\n")
    with_raw = dataset(derivatives, bids=raw)
    scans = index(Config(dataset="prep"), with_raw).set_index("scan_id")
    events = scans.events.dropna().to_dict()
    assert events == {
        "sub-0_task-rest_dir-AP_run-1": str(raw / "sub-0/sub-0_task-rest_dir-AP_events.tsv"),
        "sub-1_task-rest": str(raw / "sub-1/func/sub-1_task-rest_events.tsv"),
    }
    assert scans.label.tolist() == ["a", "a", "b", "a", "b"]
    (raw / "task-rest_events.tsv").write_text("onset\tduration\ttrial_type\n0\t1\tgo\n")
    events = index(Config(dataset="prep"), with_raw).set_index("scan_id").events
    assert events["sub-3_task-rest"] == str(raw / "task-rest_events.tsv")
    assert events["sub-1_task-rest"].endswith("sub-1_task-rest_events.tsv")
    write_subject(raw, "sub-3")
    (raw / "dataset_description.json").write_text('{"Name": "raw", "BIDSVersion": "1.10.0"}')
    scans = index(Config(dataset="raw"), Dataset(name="raw", source="bids", path=raw, label=None))
    assert scans.set_index("scan_id").events["sub-3_task-rest"] == str(raw / "task-rest_events.tsv")
    with pytest.raises(ValueError, match="'bids' is for fMRIPrep output"):
        Dataset(name="x", source="bids", path=raw, bids=raw, label=None)


@pytest.mark.parametrize(
    ("bids", "tasks", "expected"), [("raw", None, True), ("raw", ["rest"], False), (None, None, False)]
)
def test_tasks_are_timed_where_the_raw_folder_has_events(bids, tasks, expected):
    keys = {"bids": bids and Path(bids), "tasks": tasks}
    assert load_dataset("fmriprep").model_copy(update=keys).has_tasks is expected


def test_a_run_says_which_space_it_reads_and_keeps_it(derivatives, tmp_path_factory, monkeypatch, capsys):
    """The note comes before any work; jobs read the space from the saved configuration."""
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(derivatives / "empty-home"))
    in_spaces(derivatives, NINE)
    place = tmp_path_factory.mktemp("run")
    keys = {"source": "fmriprep", "path": str(derivatives), "label": "group", "classes": ["a", "b"]}
    write_yaml(keys, place / "prep.yaml")
    raw = {"dataset": str(place / "prep.yaml"), "atlases": ["aal116"], "paths": {"results": str(place / "results")}}
    run = start(raw | {"experiments": [], "folds": {"outer": 2}})
    said = capsys.readouterr().err
    assert f"not in MNI152NLin6Asym ('preprocess: space') but in {NINE}: {NINE} is used" in said
    assert f"atlas 'aal116' has no image in {NINE}: that in MNI152NLin6Asym is carried over" in said
    assert "is missing. Fetch it (bolt run" in said
    assert run.layout.variant.startswith(NINE)
    assert load_config(run.save_config()).preprocess.space == NINE


@pytest.mark.parametrize("kind", ["dseg", "probseg", "without a table"])
def test_series_of_a_bids_atlas_in_the_space_of_fmriprep(derivatives, tmp_path_factory, monkeypatch, kind):
    """From fMRIPrep's default output to series, with the stages that the workflow runs."""
    in_spaces(derivatives, NINE)
    place = tmp_path_factory.mktemp("run")
    monkeypatch.chdir(place)
    monkeypatch.setenv(PREPARES, "1")  # four people are too few to learn from
    rng = np.random.default_rng(0)
    for path in derivatives.rglob("*_desc-preproc_bold.nii.gz"):
        save_bold(path, rng.normal(1000, 20, (4, 4, 4, 25)).astype(np.float32))
    for path in derivatives.rglob("*_desc-confounds_timeseries.tsv"):
        path.write_text("trans_x\n" + "0\n" * 25)
    values = rng.integers(1, 4, (4, 4, 4)).astype(np.int16)
    image = values if kind != "probseg" else np.stack([values == k for k in (1, 2, 3)], axis=-1).astype(np.float32)
    with_table = kind != "without a table"
    atlas = place / (f"atlas-Mine_space-{NINE}_res-2_{kind}.nii.gz" if with_table else f"Mine_space-{NINE}.nii.gz")
    name = "Mine" if with_table else f"Minespace{NINE}"
    names = ["LH_A", "RH_B", "C"] if with_table else ["1", "2", "3"]
    nib.save(nib.Nifti1Image(image, AFFINE), atlas)
    rows = ["index\tlabel\tnetwork_label", "1\tLH_A\tVis", "2\tRH_B\tVis", "3\tC\tn/a"]
    if with_table:
        (place / f"atlas-Mine_{kind}.tsv").write_text("\n".join(rows) + "\n")
    write_yaml({"source": "fmriprep", "path": str(derivatives), "label": "group", "classes": ["a", "b"]}, "prep.yaml")
    raw = {"dataset": "prep.yaml", "atlases": [atlas.name], "experiments": [], "folds": {"outer": 2}}
    run = start(raw)
    config = run.save_config()
    hashes = run.params("parcellate")["settings"](None)
    assert sha256(atlas) in hashes  # a changed image runs the stage again
    assert stage(config, "index") == 0
    assert stage(config, "parcellate", scan="sub-1_task-rest") == 0
    series = np.load(run.layout.series_file("sub-1_task-rest", name))
    bold = nib.load(next(derivatives.rglob("sub-1*_desc-preproc_bold.nii.gz"))).get_fdata()
    means = np.stack([bold[values == k].mean(axis=0) for k in (1, 2, 3)], axis=-1)
    np.testing.assert_allclose(series, means, rtol=1e-4)
    sidecar = read_json(run.layout.series_file("sub-1_task-rest", name).with_suffix(".json"))
    assert (sidecar["Atlas"], sidecar["Space"], sidecar["AtlasSpaces"]) == (name, NINE, [NINE])
    folder = run.layout.series("sub-1_task-rest")
    covered = read_table(folder / f"sub-1_task-rest_atlas-{name}_coverage.tsv", text=("name",))
    assert covered["name"].tolist() == names and covered["covered"].tolist() == [1, 1, 1]
