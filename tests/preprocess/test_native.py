"""ROI means in the scan's own voxels, on a small head whose truth is known, and against those in template space."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.atlases import Atlas
from bolt.config import Config, load_denoise, load_registration
from bolt.files import read_json, read_table
from bolt.layout import Layout
from bolt.native import Transforms, parcellate_native
from bolt.parcellate import Parcellated, parcellate, write_parcellated
from bolt.preprocess.anatomical import preprocess_anatomical
from bolt.preprocess.functional import functional_names, preprocess_functional
from bolt.preprocess.names import anatomical_names
from bolt.report.spaces import SPACE_COLUMNS, spaces_section

SPACE, SCAN = "MNI152NLin2009aSym", "sub-01_task-rest"
SETTINGS = load_registration("testing").model_copy(update={"working_resolution": 4.0})


@pytest.fixture(scope="module")
def atlas(head) -> Atlas:
    """Grey matter in eight octants, and one ROI that lies outside the field."""
    grey = nib.load(head.template / "gm.nii.gz")
    where = np.argwhere(grey.get_fdata() > 0.5)
    labels = np.zeros(grey.shape, dtype=np.int32)
    labels[tuple(where.T)] = 1 + (where > np.median(where, axis=0)) @ [1, 2, 4]
    labels[:2, :2, :2] = 9
    table = pd.DataFrame({"value": range(1, 10), "name": list("abcdefghi"), "network": "n", "hemisphere": "L"})
    return Atlas("octants", [SPACE], table, nib.Nifti1Image(labels, grey.affine), "0" * 64)


@pytest.fixture(scope="module")
def preprocessed(head, tmp_path_factory) -> Path:
    """Derivatives of a scan whose first two volumes are before the steady state, in both output spaces."""
    folder = tmp_path_factory.mktemp("both")
    anat = folder / "sub-01" / "anat"
    preprocess_anatomical(head.t1w, head.template, SPACE, SETTINGS, anat, folder / "work", prefix="sub-01_")
    scan = nib.load(head.bold)
    data = scan.get_fdata(dtype=np.float32)
    data[..., :2] *= [1.5, 1.2]
    nib.save(nib.Nifti1Image(data, scan.affine, scan.header), folder / f"{SCAN}_bold.nii.gz")
    for output in ("template", "native"):
        preprocess_functional(
            folder / f"{SCAN}_bold.nii.gz",
            anat,
            head.template,
            SPACE,
            4.0,
            SETTINGS,
            folder / "sub-01" / output,
            folder / "work",
            scan_id=SCAN,
            prefix="sub-01_",
            tr=2.0,
            output=output,
        )
    return folder


def series(folder: Path, atlas: Atlas, output: str, denoise: str = "none") -> Parcellated:
    """Series of the scan in one output space."""
    made = {port: folder / "sub-01" / output / name for port, name in functional_names(SCAN, SPACE, output).items()}
    keys = {"denoise": load_denoise(denoise), "tr": 2.0, "threshold": 0.5, "space": SPACE}
    if output == "template":
        return parcellate(made["bold"], [atlas], mask=made["mask"], confounds=made["confounds"], **keys)["octants"]
    anat = {port: folder / "sub-01" / "anat" / name for port, name in anatomical_names("sub-01_", SPACE).items()}
    known = Transforms(
        anat["forward"], anat["inverse"], *(made[p] for p in ("bold_to_t1w", "motion", "mask", "confounds"))
    )
    return parcellate_native(folder / f"{SCAN}_bold.nii.gz", [atlas], known, slice_timing=True, **keys)["octants"]


def test_no_4d_image_is_written(head, preprocessed):
    folder = preprocessed / "sub-01" / "native"
    assert sorted(functional_names(SCAN, SPACE, "native").values()) == sorted(
        p.name for p in folder.glob("*") if p.suffix in (".gz", ".tsv", ".txt")
    )
    mask = nib.load(folder / f"{SCAN}_desc-brain_mask.nii.gz")
    assert mask.shape == nib.load(head.bold).shape[:3]
    np.testing.assert_allclose(mask.affine, nib.load(head.bold).affine, atol=1e-4)
    figures = [p.name for p in (preprocessed / "sub-01" / "figures").glob(f"{SCAN}*")]
    assert len(figures) >= 3


def test_native_series_follow_the_truth_as_well(head, atlas, preprocessed):
    found = {output: series(preprocessed, atlas, output) for output in ("template", "native")}
    for output, result in found.items():
        assert result.metadata["KeptVolumes"].tolist() == list(range(2, 24)), output
        assert result.series.shape == (22, 9)
        r = [np.corrcoef(column, head.signal[2:])[0, 1] for column in result.series[:, :8].T]
        assert np.median(r) > 0.95, output
        assert np.isnan(result.series[:, 8]).all() and result.coverage["covered"].tolist() == [1] * 8 + [0]
    assert found["native"].metadata["Space"] == "native"
    shares = [result.coverage["coverage"][:8] for result in found.values()]
    np.testing.assert_allclose(*shares, atol=0.15)


def test_volumes_before_the_steady_state_are_found_and_kept_out(preprocessed):
    for output in ("template", "native"):
        folder = preprocessed / "sub-01" / output
        table = read_table(folder / f"{SCAN}_desc-confounds_timeseries.tsv")
        assert table.filter(like="non_steady").shape[1] == 2
        assert read_json(folder / f"{SCAN}_desc-quality.json")["n_unsteady"] == 2
        tsnr = nib.load(folder / functional_names(SCAN, SPACE, output)["tsnr"]).get_fdata()
        assert np.median(tsnr[tsnr > 0]) > 25  # two bright volumes would bring it to about 7


def test_report_compares_both_output_spaces(atlas, preprocessed, tmp_path):
    config = Config(dataset="phantom", denoise="none", preprocess={"space": SPACE}, paths={"results": tmp_path})
    layout = Layout(config)
    assert layout.variants == (layout.variant, "native-none")
    assert spaces_section(layout, [SCAN], ["octants"]) == []
    for output, variant in zip(("template", "native"), layout.variants, strict=True):
        result = series(preprocessed, atlas, output)
        write_parcellated({"octants": result}, layout.series(SCAN, variant), SCAN)
    blocks = spaces_section(layout, [SCAN], ["octants"])
    table = read_table(layout.tables / "output_spaces.tsv")
    assert list(table) == list(SPACE_COLUMNS) and len(blocks) == len(table) == 1
    assert table.n_rois[0] == 8 and table.n_volumes[0] == 22
    assert table["median"][0] > 0.9
