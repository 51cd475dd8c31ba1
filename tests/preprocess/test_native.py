"""Native series agree with the truth of a small simulated head, and with the series in template space."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.atlases.image import Atlas
from bolt.config import Config, load_denoise
from bolt.config.layout import Layout, anatomical_names
from bolt.io.errors import BoltWarning
from bolt.io.files import read_json, read_table
from bolt.preprocess.functional.workflow import functional_names
from bolt.report.pages.cohort import SPACE_COLUMNS, spaces_section
from bolt.series.native_space import Transforms, parcellate_native
from bolt.series.parcellate import Parcellated, parcellate, write_parcellated
from tests.preprocess.conftest import SCAN, SPACE, VOLUMES, run_functional

pytestmark = pytest.mark.slow
UNSTEADY = 2


@pytest.fixture(scope="module")
def atlas(head) -> Atlas:
    """Return grey matter in eight octants, and one ROI outside the field of view."""
    grey = nib.load(head.template / "gm.nii.gz")
    where = np.argwhere(grey.get_fdata() > 0.5)
    labels = np.zeros(grey.shape, dtype=np.int32)
    labels[tuple(where.T)] = 1 + (where > np.median(where, axis=0)) @ [1, 2, 4]
    labels[:2, :2, :2] = 9
    table = pd.DataFrame({"value": range(1, 10), "name": list("abcdefghi"), "network": "n", "hemisphere": "L"})
    return Atlas("octants", [SPACE], table, nib.Nifti1Image(labels, grey.affine), "0" * 64)


@pytest.fixture(scope="module")
def native(head, anat, tmp_path_factory) -> Path:
    """Write native derivatives of a scan whose first volumes are not in the steady state."""
    folder = tmp_path_factory.mktemp("native")
    scan = nib.load(head.bold)
    data = scan.get_fdata(dtype=np.float32)
    data[..., :UNSTEADY] *= [1.5, 1.2]
    nib.save(nib.Nifti1Image(data, scan.affine, scan.header), folder / head.bold.name)
    with pytest.warns(BoltWarning, match=f"first {UNSTEADY} volume.* are not in the steady state"):
        return run_functional(head, anat, folder, folder / head.bold.name, output="native")


KEYS = {"denoise": load_denoise("none"), "tr": 2.0, "threshold": 0.5, "space": SPACE}


@pytest.fixture(scope="module")
def native_series(head, anat, native, atlas) -> Parcellated:
    made = {port: native / name for port, name in functional_names(SCAN, SPACE, "native").items()}
    made |= {port: anat / name for port, name in anatomical_names("sub-01_", SPACE).items() if port != "mask"}
    known = Transforms(**{port: made[port] for port in Transforms.__dataclass_fields__})
    scan = native.parent.parent / head.bold.name
    return parcellate_native(scan, [atlas], known, slice_timing=True, **KEYS)["octants"]


@pytest.fixture(scope="module")
def template_series(func, atlas) -> Parcellated:
    made = {port: func / name for port, name in functional_names(SCAN, SPACE).items()}
    return parcellate(made["bold"], [atlas], mask=made["mask"], confounds=made["confounds"], **KEYS)["octants"]


def test_no_4d_image_is_written(head, native):
    named = functional_names(SCAN, SPACE, "native").values()
    assert sorted(named) == sorted(p.name for p in native.glob("*") if p.suffix in (".gz", ".tsv", ".txt"))
    mask = nib.load(native / f"{SCAN}_desc-brain_mask.nii.gz")
    assert mask.shape == nib.load(head.bold).shape[:3]
    np.testing.assert_allclose(mask.affine, nib.load(head.bold).affine, atol=1e-4)
    assert len(list((native.parent / "figures").glob(f"{SCAN}*"))) >= 3


def test_native_series_follow_the_truth_as_well(head, native_series, template_series):
    assert native_series.series.shape == (VOLUMES - UNSTEADY, 9)
    assert native_series.metadata["Space"] == "native"
    assert native_series.coverage["covered"].tolist() == [1] * 8 + [0]  # the last is outside the field of view
    assert np.isnan(native_series.series[:, 8]).all()
    for result in (native_series, template_series):
        truth = head.signal[-len(result.series) :]
        r = [np.corrcoef(column, truth)[0, 1] for column in result.series[:, :8].T]
        assert np.median(r) > 0.95
    shares = [result.coverage["coverage"][:8] for result in (native_series, template_series)]
    np.testing.assert_allclose(*shares, atol=0.15)


def test_volumes_before_the_steady_state_are_found_and_kept_out(native, native_series, template_series):
    table = read_table(native / f"{SCAN}_desc-confounds_timeseries.tsv")
    assert table.filter(like="non_steady").shape[1] == UNSTEADY
    assert read_json(native / f"{SCAN}_desc-quality.json")["n_unsteady"] == UNSTEADY
    tsnr = nib.load(native / f"{SCAN}_desc-tsnr_boldmap.nii.gz").get_fdata()
    assert np.median(tsnr[tsnr > 0]) > 25  # about 7 if the bright volumes were included
    assert native_series.metadata["KeptVolumes"].tolist() == list(range(UNSTEADY, VOLUMES))
    assert "KeptVolumes" not in template_series.metadata


def test_report_compares_both_output_spaces(native_series, template_series, tmp_path):
    config = Config(dataset="phantom", denoise="none", preprocess={"space": SPACE}, paths={"results": tmp_path})
    layout = Layout(config)
    assert layout.variants == (layout.variant, "native-none")
    assert spaces_section(layout, [SCAN], ["octants"]) == []
    for result, variant in zip((template_series, native_series), layout.variants, strict=True):
        write_parcellated({"octants": result}, layout.series(SCAN, variant), SCAN)
    blocks = spaces_section(layout, [SCAN], ["octants"])
    table = read_table(layout.tables / "output_spaces.tsv")
    assert list(table) == list(SPACE_COLUMNS) and len(blocks) == len(table) == 1
    assert table.n_rois[0] == 8 and table.n_volumes[0] == VOLUMES - UNSTEADY  # volumes in both
    assert table["median"][0] > 0.9
