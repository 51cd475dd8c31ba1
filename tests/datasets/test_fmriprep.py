"""fMRIPrep output as a source of scans."""

import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from bolt.config import Config, Dataset, load_config, load_dataset
from bolt.datasets import index
from bolt.datasets.bids import find_events
from bolt.datasets.spaces import use_space_of_images
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import sha256, write_yaml
from bolt.workflow.checks import check_names
from bolt.workflow.start import start
from tests.fake_bids import save_bold, write_bids
from tests.fake_fmriprep import describe

CONFIG = Config(dataset="prep")
SIX, NINE = "MNI152NLin6Asym", "MNI152NLin2009cAsym"
SCANS = [f"sub-{i}_task-rest" for i in range(4)]


@pytest.fixture
def derivatives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("derivatives")
    for i in range(4):
        add_scan(folder, f"sub-{i}")
    rows = [f"sub-{i}\t{label}\n" for i, label in enumerate("abab")]
    (folder / "participants.tsv").write_text("".join(["participant_id\tgroup\n", *rows]))
    describe(folder)
    return folder


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


@pytest.fixture
def no_home(monkeypatch, tmp_path):
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "empty-home"))


def written(derivatives, atlas):
    """Write the dataset's file into the working folder; returns the keys of a run."""
    keys = {"source": "fmriprep", "path": str(derivatives), "label": "group", "classes": ["a", "b"]}
    write_yaml(keys, "prep.yaml")
    return {"dataset": "prep.yaml", "atlases": [atlas], "experiments": [], "folds": {"outer": 2}}


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
        ([SIX, NINE], ["schaefer400", "aal116"], SIX),  # the configured one is there
        ([NINE], ["schaefer400", "dosenbach160"], NINE),  # fMRIPrep's default
        ([NINE, "T1w", "MNIInfant"], ["aal116"], NINE),  # no image in it, but carried over
        (["MNI152NLin2009aSym", NINE], ["schaefer400"], NINE),
        (["MNI152NLin2009aSym", NINE], ["dosenbach160"], None),  # two of them: never guessed
        (["T1w", "MNIInfant"], ["schaefer400"], None),
    ],
)
def test_the_space_is_that_of_the_images_if_only_one_serves(derivatives, no_home, written, atlases, space):
    in_spaces(derivatives, *written)
    config, note = use_space_of_images(Config(dataset="prep", atlases=atlases), dataset(derivatives))
    assert config.preprocess.space == (space or SIX)
    assert (f"{NINE} is used" in note) if space == NINE else not note
    if space is None:
        hint = f"found spaces: {', '.join(sorted(written))}.*--output-spaces {SIX}"
        with pytest.raises(DataError, match=hint):
            index(config, dataset(derivatives))
    else:
        check_names(config, dataset(derivatives))
        assert index(config, dataset(derivatives)).space.tolist() == [space] * 4


def test_the_message_names_atlases_for_the_spaces_found(derivatives, no_home):
    in_spaces(derivatives, "MNI152NLin2009aSym", "MNIPediatricAsym")
    with pytest.raises(DataError, match="to MNI152NLin2009aSym with dosenbach160. Or run fMRIPrep"):
        index(CONFIG, dataset(derivatives))
    config = Config(dataset="prep", atlases=["aal116"], preprocess={"space": "MNI152NLin2009aSym"})
    with pytest.raises(ConfigError, match=f"dosenbach160.*--output-spaces {SIX}"):
        check_names(config, dataset(derivatives))


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
        shutil.copy(path, path.with_name(path.name.replace("preproc", "smoothAROMAnonaggr")))
    scans = index(config, dataset(derivatives))
    assert scans.bold.str.endswith("desc-smoothAROMAnonaggr_bold.nii.gz").all() and set(scans.n_volumes) == {25}
    assert scans.scan_id.tolist() == SCANS and scans[["mask", "confounds"]].notna().all(axis=None)
    assert index(CONFIG, dataset(derivatives)).bold.str.endswith("desc-preproc_bold.nii.gz").all()


def test_old_names_of_confounds_and_masks_that_are_not_compressed_are_found_too(derivatives, caplog):
    path = derivatives / "sub-0/func/sub-0_task-rest_desc-confounds_timeseries.tsv"
    path.rename(path.with_name("sub-0_task-rest_desc-confounds_regressors.tsv"))
    names = [name.rsplit("_", 1)[1] for name in index(CONFIG, dataset(derivatives)).confounds]
    assert names == ["regressors.tsv"] + ["timeseries.tsv"] * 3
    first, second, *_ = sorted(derivatives.rglob("*_mask.nii.gz"))
    first.rename(first.with_suffix(""))
    second.unlink()
    masks = index(CONFIG, dataset(derivatives))["mask"]
    assert masks[0] == str(first.with_suffix("")) and masks.isna().tolist() == [False, True, False, False]
    assert "1 of 4 scans have no brain mask, such as sub-1_task-rest" in caplog.text


def test_options_that_need_fmriprep_are_refused_for_raw_images_and_native_output_for_preprocessed_ones(derivatives):
    keys, prep = {"dataset": "prep", "atlases": ["dosenbach160"]}, dataset(derivatives)
    raw = prep.model_copy(update={"source": "bids"})
    for strategy in ("simple", "scrubbing", "compcor", "24p_acompcor", "36p"):
        check_names(Config(**keys, denoise=strategy), raw)
    for config, fits, other, words in (
        (Config(**keys, denoise="ica_aroma"), prep, raw, "'ica_aroma' needs images that fMRIPrep has cleaned"),
        (Config(**keys, preprocess={"output": "native"}), raw, prep, "preprocessed already"),
    ):
        check_names(config, fits)
        with pytest.raises(ConfigError, match=words):
            check_names(config, other)


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
        scans = index(CONFIG, dataset(derivatives, resolution=resolution))
        stem = f"MNI152NLin6Asym_res-{expected}_desc" if expected else "MNI152NLin6Asym_desc"
        assert scans.bold.str.contains(stem).all() and scans["mask"].str.contains(stem).all()
        assert scans.scan_id.tolist() == SCANS and scans.confounds.notna().all()
        assert (f"'{expected or 'none'}' is read" in caplog.text) == (resolution is None)
    with pytest.raises(DataError, match="no images at resolution '9'; res- is"):
        index(CONFIG, dataset(derivatives, resolution="9"))


def test_scans_without_an_image_or_the_chosen_resolution_are_excluded_by_name(derivatives):
    shutil.rmtree(derivatives / "sub-2")
    at_resolutions(derivatives, {"native": 3.0, "2": 2.0})
    (derivatives / "sub-3/func/sub-3_task-rest_space-MNI152NLin6Asym_res-2_desc-preproc_bold.nii.gz").unlink()
    reasons = index(CONFIG, dataset(derivatives, resolution="2")).set_index("scan_id").exclude_reason
    assert sorted(reasons.dropna().index) == ["sub-2", "sub-3_task-rest"]
    assert reasons["sub-2"] == "the subject has no desc-preproc_bold image in space MNI152NLin6Asym"
    assert "no image at resolution '2'" in reasons["sub-3_task-rest"]


def test_every_acquisition_is_a_scan_of_its_own(derivatives):
    names = ["_acq-a_dir-AP_run-1", "_acq-a_dir-PA_run-1", "_acq-b_dir-AP_run-1", "_acq-a_dir-AP_run-02", "_rec-x"]
    add_scan(derivatives, "sub-0", *names)
    scans = index(CONFIG, dataset(derivatives)).set_index("scan_id", drop=False)
    assert {f"sub-0_task-rest{name}" for name in ["", *names]} == set(scans.index[scans.subject == "sub-0"])
    assert scans.exclude_reason.isna().all()
    for scan in scans.itertuples():
        assert Path(scan.confounds).name == f"{scan.scan_id}_desc-confounds_timeseries.tsv"
        assert all(Path(file).name.startswith(f"{scan.scan_id}_space-") for file in (scan.bold, scan.mask))
    assert scans.run["sub-0_task-rest_acq-a_dir-AP_run-1"] == "1"


def test_single_echoes_are_not_scans(derivatives, caplog):
    """The combined image is read; a scan that has none is excluded by name."""
    add_scan(derivatives, "sub-0", "_echo-1", "_echo-2")
    scans = index(CONFIG, dataset(derivatives))
    assert scans.scan_id.tolist() == SCANS and scans.exclude_reason.isna().all()
    assert "2 images of single echoes are not used" in caplog.text
    (derivatives / "sub-0/func/sub-0_task-rest_space-MNI152NLin6Asym_desc-preproc_bold.nii.gz").unlink()
    scans = index(CONFIG, dataset(derivatives)).set_index("scan_id")
    assert len(scans) == 4 and "only images of single echoes" in scans.exclude_reason["sub-0_task-rest"]


def test_the_table_of_events_is_a_scans_own_or_the_nearest_that_it_inherits(tmp_path):
    """Entities that are numbers are compared as numbers."""
    for place in (
        "sub-1/func/sub-1_task-rest_events.tsv",
        "sub-0/sub-0_task-rest_dir-AP_events.tsv",
        "sub-0/func/sub-0_task-rest_dir-PA_events.tsv",
        "sub-2/ses-1/func/sub-2_ses-1_task-rest_run-01_events.tsv",
        "task-nback_events.tsv",
        "task-rest_events.tsv",
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    found = {
        "sub-1_task-rest": "sub-1/func/sub-1_task-rest_events.tsv",
        "sub-0_task-rest_dir-AP_run-1": "sub-0/sub-0_task-rest_dir-AP_events.tsv",
        "sub-2_ses-1_task-rest_run-1": "sub-2/ses-1/func/sub-2_ses-1_task-rest_run-01_events.tsv",
        "sub-3_task-rest": "task-rest_events.tsv",
    }
    assert {scan: find_events(tmp_path, scan) for scan in found} == {s: str(tmp_path / p) for s, p in found.items()}
    assert find_events(tmp_path, "sub-3_task-motor") is None


def test_events_and_participants_come_from_the_raw_folder(derivatives, tmp_path_factory, caplog):
    raw = write_bids(tmp_path_factory.mktemp("raw"), 1)
    shutil.move(derivatives / "participants.tsv", raw / "participants.tsv")
    table = raw / "sub-1/func/sub-1_task-rest_events.tsv"
    table.parent.mkdir(parents=True)
    table.write_text("onset\tduration\ttrial_type\n0\t1\tgo\n")
    for file in sorted((derivatives / "sub-3/func").iterdir()):
        file.rename(file.with_name(file.name.replace("rest", "motor")))
    scans = index(CONFIG, dataset(derivatives, bids=raw))
    assert scans.events.dropna().to_dict() == {1: str(table)} and scans.label.tolist() == ["a", "b"] * 2
    assert "3 of 4 scans have no table of events" in caplog.text
    table.rename(raw / "task-rest_events.tsv")
    scans = index(Config(dataset="raw"), Dataset(name="raw", source="bids", path=raw, label=None))
    assert scans.events.dropna().tolist() == [str(raw / "task-rest_events.tsv")]
    with pytest.raises(ValueError, match="'bids' is for fMRIPrep output"):
        Dataset(name="x", source="bids", path=raw, bids=raw, label=None)


@pytest.mark.parametrize(
    ("bids", "tasks", "expected"), [("raw", None, True), ("raw", ["rest"], False), (None, None, False)]
)
def test_tasks_are_timed_where_the_raw_folder_has_events(bids, tasks, expected):
    keys = {"bids": bids and Path(bids), "tasks": tasks}
    assert load_dataset("fmriprep").model_copy(update=keys).has_tasks is expected


def test_a_run_says_which_space_it_reads_and_keeps_it(derivatives, no_home, tmp_path, monkeypatch, capsys):
    """The note comes before any work; jobs read the space from the saved configuration."""
    in_spaces(derivatives, NINE)
    monkeypatch.chdir(tmp_path)
    run = start(written(derivatives, "aal116"))
    said = capsys.readouterr().err
    assert f"not in {SIX} ('preprocess: space') but in {NINE}: {NINE} is used" in said
    assert f"atlas 'aal116' has no image in {NINE}: that in {SIX} is carried over" in said
    assert "is missing. Fetch it (bolt run" in said
    assert run.layout.variant.startswith(NINE) and load_config(run.save_config()).preprocess.space == NINE


@pytest.mark.parametrize("name", [f"atlas-Mine_space-{SIX}_dseg.nii.gz", f"Mine_space-{SIX}.nii.gz"])
def test_a_changed_image_of_an_own_atlas_runs_its_stage_again(derivatives, tmp_path, monkeypatch, name):
    """With a table of BIDS, or alone."""
    monkeypatch.chdir(tmp_path)
    save_bold(tmp_path / name, np.ones((4, 4, 4), np.int16))
    (tmp_path / "atlas-Mine_dseg.tsv").write_text("index\tlabel\n1\tA\n")
    assert sha256(tmp_path / name) in start(written(derivatives, name)).params("parcellate")["settings"](None)
