"""Every way in leads to a cache of the true series: files in the layouts of their tools go through the stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ants
import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from nilearn.maskers import NiftiMapsMasker
from scipy.io import savemat

from bolt.atlases import description
from bolt.atlases.description import transform_name
from bolt.cli.main import main
from bolt.io.files import read_table, write_yaml
from bolt.preprocess import images
from bolt.series.cache import SeriesCache
from bolt.workflow.job import PREPARES
from bolt.workflow.run import Run
from bolt.workflow.start import start
from tests import fake_cifti
from tests.fake_fmriprep import describe, save_scan
from tests.stages import stage

SIX, NINE = "MNI152NLin6Asym", "MNI152NLin2009cAsym"
GRID = nib.affines.from_matvec(np.diag([4.0, 4, 4]), [-24, -20, -16])
SHAPE = (12, 10, 8)
T, N_ROIS = 24, 4
NAMES = ["LH_a", "LH_b", "RH_a", "RH_b"]
SHIFT = 8.0
"""mm along x from the first space to the second: two voxels."""


@dataclass
class Way:
    """A dataset in its files, and what the cache of its atlas must hold.

    Attributes
    ----------
    dataset : dict
        Keys of its file; a label is added.
    atlas : path
    truth : dict
        scan_id → (T, R) series, not z-scored; NaN in columns of ROIs that are not covered.
    tr : float
        Seconds.
    excluded, warned : dict
        scan_id → words of the reason or warning.
    """

    dataset: dict
    atlas: Path
    truth: dict[str, np.ndarray]
    tr: float = 2.0
    excluded: dict[str, str] = field(default_factory=dict)
    warned: dict[str, str] = field(default_factory=dict)


def random_series(seed: int) -> np.ndarray:
    return 1000 + 20 * np.random.default_rng(seed).standard_normal((T, N_ROIS))


# ---- fMRIPrep ----------------------------------------------------------------------------------
def parcels(shift: int = 0) -> np.ndarray:
    """Return four blocks with a gap between them, `shift` voxels along x."""
    data = np.zeros(SHAPE, np.int16)
    for value, (x, y, z) in enumerate(([3, 1, 1], [3, 6, 1], [7, 1, 4], [7, 6, 4]), 1):
        data[x - shift : x - shift + 3, y : y + 3, z : z + 3] = value
    return data


def painted(series: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Return noise in which every voxel of an ROI has the ROI's series."""
    image = np.random.default_rng(seed).normal(1000, 50, (*SHAPE, T)).astype(np.float32)
    for value in range(1, N_ROIS + 1):
        image[labels == value] = series[:, value - 1]
    return image


def bids_atlas(folder: Path) -> Path:
    """Write a BIDS atlas with an image in the first space; returns its folder."""
    place = folder / "atlas-Toy"
    place.mkdir(parents=True)
    nib.save(nib.Nifti1Image(parcels(), GRID), place / f"atlas-Toy_space-{SIX}_res-4_dseg.nii.gz")
    table = pd.DataFrame({"index": range(1, N_ROIS + 1), "label": NAMES, "network_label": "Vis"})
    table.to_csv(place / "atlas-Toy_dseg.tsv", sep="\t", index=False)
    return place


def fmriprep(folder: Path, space: str, atlas: Path, labels: np.ndarray) -> Way:
    """Write four people; the mask of the second lacks the last ROI, and the fourth has no image."""
    derivatives, truth = folder / "fmriprep", {}
    for i in range(3):
        scan = f"sub-{i}_task-rest"
        truth[scan] = random_series(i)
        mask = labels != N_ROIS if i == 1 else None
        prefix = derivatives / f"sub-{i}/func/{scan}"
        save_scan(prefix, painted(truth[scan], labels, i), np.full(T - 1, 0.1), f"space-{space}", GRID, mask, tr=1.5)
    truth["sub-1_task-rest"][:, -1] = np.nan
    describe(derivatives)
    return Way(
        {"source": "fmriprep", "path": derivatives, **people(folder, "participants", 4)},
        atlas,
        truth,
        tr=1.5,
        excluded={"sub-3": "has no desc-preproc_bold image"},
        warned={"sub-1_task-rest": "1 of 4 ROIs not covered: RH_b"},
    )


def people(folder: Path, name: str, n: int) -> dict[str, str]:
    table = {"participant_id": [f"sub-{i}" for i in range(n)], "dx": ["ab"[i % 2] for i in range(n)]}
    pd.DataFrame(table).to_csv(folder / f"{name}.tsv", sep="\t", index=False)
    return {"subjects_table": str(folder / f"{name}.tsv")}


def in_the_atlas_space(folder: Path, patch: pytest.MonkeyPatch) -> Way:
    return fmriprep(folder, SIX, bids_atlas(folder), parcels())


def with_a_carried_atlas(folder: Path, patch: pytest.MonkeyPatch) -> Way:
    """The atlas has an image for the other space alone; a composite transform takes points to it."""
    path = folder / "home" / transform_name(SIX, NINE)
    path.parent.mkdir(parents=True)
    matrix = np.eye(4)
    matrix[0, 3] = SHIFT
    images.write_matrix(matrix, folder / "shift.mat")
    images.write_composite([ants.read_transform(str(folder / "shift.mat"))], path)
    patch.setitem(description.MD5, (SIX, NINE), description.md5(path))
    return fmriprep(folder, NINE, bids_atlas(folder), parcels(2))


def with_maps(folder: Path, patch: pytest.MonkeyPatch) -> Way:
    """Maps that overlap: the series are those of nilearn."""
    random = np.random.default_rng(3)
    weights = (parcels()[..., None] == np.arange(1, N_ROIS + 1)) + 0.2 * random.random((*SHAPE, N_ROIS))
    maps = nib.Nifti1Image(weights.astype(np.float32), GRID)
    place = folder / f"atlas-Modes_space-{SIX}_res-4_probseg.nii.gz"
    nib.save(maps, place)
    names = pd.DataFrame({"index": range(1, N_ROIS + 1), "label": NAMES})
    names.to_csv(folder / "atlas-Modes_probseg.tsv", sep="\t", index=False)
    way = fmriprep(folder, SIX, place, parcels())
    masker = NiftiMapsMasker(maps, standardize=None, resampling_target="data")
    bold = "{0}/func/{1}_space-" + SIX + "_desc-preproc_bold.nii.gz"
    for scan in ("sub-0_task-rest", "sub-2_task-rest"):
        way.truth[scan] = masker.fit_transform(way.dataset["path"] / bold.format(scan.split("_")[0], scan))
    lacking = way.dataset["path"] / f"sub-1/func/sub-1_task-rest_space-{SIX}_desc-brain_mask.nii.gz"
    nib.save(nib.Nifti1Image(np.zeros(SHAPE, np.uint8), GRID), lacking)
    del way.truth["sub-1_task-rest"]
    way.excluded["sub-1_task-rest"], way.warned = "the mask is empty", {}
    return way


# ---- ready series ------------------------------------------------------------------------------
def described(file: Path, atlas: Path) -> Path:
    """Make an atlas of the names in a file, as a user does."""
    assert main(["describe-atlas", str(file), "--out", str(atlas)]) == 0
    return atlas


def from_nilearn(folder: Path, patch: pytest.MonkeyPatch) -> Way:
    """Write the same kind of array in each format; the second has its columns in another order."""
    truth = {f"p{i}": random_series(i) for i in range(5)}
    pd.DataFrame(truth["p0"], columns=NAMES).to_csv(folder / "p0.csv", index=False)
    pd.DataFrame(truth["p1"], columns=NAMES)[NAMES[::-1]].to_csv(folder / "p1.tsv", sep="\t", index=False)
    np.save(folder / "p2.npy", truth["p2"])
    savemat(folder / "p3.mat", {"series": truth["p3"]})
    np.savetxt(folder / "p4.1D", truth["p4"])
    pd.DataFrame(random_series(9), columns=NAMES).to_csv(folder / "p5.csv")
    files = ["p0.csv", "p1.tsv", "p2.npy", "p3.mat", "p4.1D", "p5.csv"]
    rows = pd.DataFrame({"subject": [name[:2] for name in files], "file": files, "dx": ["a", "b"] * 3, "tr": 0.8})
    rows.to_csv(folder / "scans.tsv", sep="\t", index=False)
    dataset = {"source": "series", "path": folder / "scans.tsv"}
    excluded = {"p5": "first column counts"}
    return Way(dataset, described(folder / "p0.csv", folder / "toy"), truth, 0.8, excluded)


def dense_cifti(folder: Path, patch: pytest.MonkeyPatch) -> Way:
    """Greyordinates are averaged from the command line, as the documentation shows."""
    axis, truth = fake_cifti.brain(), {}
    dlabel = fake_cifti.save_labels(folder / "atlas-toy_den-91k_dseg.dlabel.nii", axis)
    labels = fake_cifti.label_of(axis)
    for i in range(4):
        scan = f"sub-{i}_task-rest"
        data = np.random.default_rng(i).normal(1000, 20, (T, len(axis)))
        image = folder / f"{scan}_space-fsLR_den-91k_bold.dtseries.nii"
        fake_cifti.save(image, data, fake_cifti.seconds(n=T), axis)
        arguments = ["parcellate", str(image), "--atlas", str(dlabel), "--out", f"{folder / 'series'}/"]
        assert main(arguments) == 0
        truth[scan] = np.stack([data[:, labels == value].mean(axis=1) for value in (2, 5, 7, 11)], axis=1)
    dataset = {"source": "bids_series", "path": folder / "series", **people(folder, "people", 4)}
    return Way(dataset, described(dlabel, folder / "toy"), truth, tr=0.72)


WAYS: dict[str, Callable[[Path, pytest.MonkeyPatch], Way]] = {
    "fMRIPrep in the atlas's space": in_the_atlas_space,
    "fMRIPrep's default space, with a carried atlas": with_a_carried_atlas,
    "probabilistic maps": with_maps,
    "nilearn's arrays": from_nilearn,
    "dtseries": dense_cifti,
}


def gather(way: Way, folder: Path) -> Run:
    """Run the workflow's stages up to the cache and the lists of exclusions."""
    labelled = {"label": "dx", "classes": ["a", "b"]} | way.dataset
    write_yaml(labelled | {"path": str(way.dataset["path"])}, folder / "mine.yaml")
    raw = {"dataset": str(folder / "mine.yaml"), "atlases": [str(way.atlas)], "folds": {"outer": 2}}
    run = start(raw | {"experiments": [], "models": ["bolt_small"]}, targets=["series"])
    config = run.save_config()
    assert stage(config, "index") == 0
    scans = run.study.layout.scans
    usable = read_table(scans, text=("scan_id", "exclude_reason")).query("exclude_reason.isna()")
    images = usable.scan_id[usable.kind == "preprocessed"]
    (atlas,) = run.config.atlas_places
    for scan in images:
        assert stage(config, "parcellate", scan=scan) == 0
    for rule in [*["quality"] * (len(images) > 0), "rois", "cache", "exclusions"]:
        assert stage(config, rule, atlas=atlas) == 0
    return run


@pytest.mark.parametrize("build", WAYS.values(), ids=list(WAYS))
def test_every_way_in_ends_in_a_cache_of_the_true_series(build, tmp_path, monkeypatch, experiments_known):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PREPARES, "1")  # so few people are not to be learned from
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BOLT_ATLAS_DIR", raising=False)
    monkeypatch.setattr("gc.collect", lambda *_: 0)  # nilearn collects garbage at every call
    way = build(tmp_path, monkeypatch)
    run = gather(way, tmp_path)
    (atlas,) = run.config.atlas_places
    cache = SeriesCache(run.layout.cache(atlas))
    assert cache.index.scan_id.tolist() == sorted(way.truth)
    assert set(cache.index.tr.round(3)) == {way.tr}
    if run.judged:
        measured = read_table(run.layout.quality, text=("scan_id",)).set_index("scan_id")["mean_fd"]
        np.testing.assert_array_equal(cache.index["mean_fd"], measured[cache.index["scan_id"]])
    for i, scan in enumerate(cache.index.scan_id):
        series = way.truth[scan]
        expected = np.nan_to_num((series - series.mean(axis=0)) / series.std(axis=0))
        assert cache.series(i).shape == expected.shape
        np.testing.assert_allclose(cache.series(i), expected, atol=2e-3)
    for listing, expected in ((run.layout.exclusions, way.excluded), (run.layout.warnings, way.warned)):
        listed = read_table(listing, text=("scan_id",)).set_index("scan_id").iloc[:, -1]
        assert set(listed.index) == set(expected)
        assert all(words in listed[scan] for scan, words in expected.items())
