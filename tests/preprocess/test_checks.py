"""Every kind of bad image in `docs/bad_input.md` gives the documented outcome and message."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.transform import Rotation

from bolt.config import load_registration
from bolt.io.files import read_json
from bolt.io.volumes import check_bold
from bolt.jobs.outcome import Outcome
from bolt.preprocess import images
from bolt.preprocess.anatomical import anatomical_names, preprocess_anatomical
from bolt.preprocess.checks import check_t1w, check_together, check_voxels
from tests.bad_inputs import PREPROCESSING_CASES, Case

Result = tuple[str, str]
MAKERS: dict[str, Callable[[Path], Result]] = {}
SLOW = ("T1w of a child, or of an unusually sized head",)
AFFINE = np.array([[4.0, 0, 0, -60], [0, 4, 0, -70], [0, 0, 4, -50], [0, 0, 0, 1]])


def of(name: str):
    """Register the maker of the case with this input."""

    def register(make):
        assert name not in MAKERS
        MAKERS[name] = make
        return make

    return register


@pytest.mark.parametrize("case", [c for c in PREPROCESSING_CASES if c.input not in SLOW], ids=lambda case: case.input)
def test_bad_image(case: Case, tmp_path):
    outcome, text = MAKERS[case.input](tmp_path)
    assert outcome == case.outcome and (outcome == "used" or case.is_said(text)), f"{outcome}: {text}"


def test_every_case_is_made():
    assert {*MAKERS, *SLOW} == {case.input for case in PREPROCESSING_CASES}


def test_good_images_are_used(tmp_path):
    assert outcome_of(tmp_path, t1w(tmp_path)) == outcome_of(tmp_path, bold(tmp_path)) == ("used", "")


@pytest.mark.slow
def test_a_small_head_is_scaled(head, tmp_path):
    image = nib.load(head.t1w)
    path, out = tmp_path / "sub-01_T1w.nii.gz", tmp_path / "derivatives" / "sub-01" / "anat"
    images.save(np.asarray(image.dataobj), image.affine @ np.diag([0.8, 0.8, 0.8, 1]), path)
    settings = load_registration("testing").model_copy(update={"working_resolution": 3.2})
    space = "MNI152NLin2009aSym"
    preprocess_anatomical(path, head.template, space, [settings], out, tmp_path / "work", prefix="sub-01_")
    mask = images.read(out / anatomical_names("sub-01_", space)["mask"])
    expected = nib.load(head.template / "brain_mask.nii.gz").get_fdata().sum() * 4**3 * 0.8**3
    assert mask.numpy().sum() * np.prod(mask.spacing) == pytest.approx(expected, rel=0.1)
    assert read_json(out / "sub-01_desc-quality.json")["template_mask_dice"] > 0.9


# ---- outcomes --------------------------------------------------------------------------------------
def outcome_of(folder: Path, path: Path, tr: float | None = 2.0) -> Result:
    """Check one image in a job; return outcome and message from its status file."""
    check = (lambda: check_t1w(path)) if "T1w" in path.name else (lambda: check_voxels(path, tr) and None)
    return worked(folder, check)


def worked(folder: Path, work: Callable[[], None]) -> Result:
    Outcome("functional", folder / "status.json", attempt=1).run(work)
    status = read_json(folder / "status.json")
    warned = "; ".join(entry["warning"] for entry in status.get("warnings", []))
    if status["state"] != "ok":
        return "excluded", status["reason"]
    return ("warned", warned) if warned else ("used", "")


# ---- images ----------------------------------------------------------------------------------------
def ball(shape=(30, 34, 28)) -> np.ndarray:
    """Return a smooth, bright and asymmetric image."""
    noise = np.random.default_rng(0).uniform(1, 2, shape)
    return (100 * ndimage.gaussian_filter(noise, 1) * np.linspace(1, 2, shape[0])[:, None, None]).astype(np.float32)


def save(path: Path, data: np.ndarray, affine: np.ndarray = AFFINE, tr: float = 2.0, unit: str = "sec") -> Path:
    image = nib.Nifti1Image(data, affine)
    image.set_sform(affine, 1)
    image.set_qform(affine, 1)
    if data.ndim == 4:
        image.header.set_zooms((*image.header.get_zooms()[:3], tr))
    image.header.set_xyzt_units("mm", unit)
    nib.save(image, path)
    return path


def t1w(folder: Path, data: np.ndarray | None = None, affine: np.ndarray = AFFINE) -> Path:
    return save(folder / "sub-01_T1w.nii.gz", ball() if data is None else data, affine)


def bold(folder: Path, data: np.ndarray | None = None, affine: np.ndarray = AFFINE, n: int = 6, **time) -> Path:
    return save(folder / "sub-01_task-rest_bold.nii.gz", still(n) if data is None else data, affine, **time)


def turned(degrees: float, axis: str = "z") -> np.ndarray:
    return nib.affines.from_matvec(Rotation.from_euler(axis, degrees, degrees=True).as_matrix()) @ AFFINE


def with_forms(path: Path, sform: np.ndarray | None, qform: np.ndarray | None) -> Path:
    image = nib.load(path)
    data, header = np.asarray(image.dataobj), image.header.copy()
    header.set_sform(sform, 0 if sform is None else 1)
    header.set_qform(qform, 0 if qform is None else 1)
    nib.save(nib.Nifti1Image(data, None, header), path)
    return path


def patched(path: Path, **fields) -> Path:
    """Set header fields of a compressed image to values that no library would write."""
    raw = bytearray(gzip.decompress(path.read_bytes()))
    for name, value in fields.items():
        kind, offset = nib.nifti1.header_dtype.fields[name][:2]
        part = np.asarray(value, kind.base).tobytes()
        raw[offset : offset + len(part)] = part
    path.write_bytes(gzip.compress(bytes(raw)))
    return path


def changed(data: np.ndarray, where: tuple, value: float = 0) -> np.ndarray:
    data[where] = value
    return data


def still(n: int = 6) -> np.ndarray:
    return np.stack([ball()] * n, axis=-1)


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-5000])
    return path


# ---- head position ---------------------------------------------------------------------------------
@of("only a qform, or only an sform")
def _(folder):
    outcomes = []
    for forms in ((AFFINE, None), (None, AFFINE)):
        path = with_forms(bold(folder), *forms)
        np.testing.assert_allclose(check_bold(path).affine, AFFINE, atol=1e-4)
        outcomes.append(outcome_of(folder, path))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


@of("sform and qform more than a voxel apart")
def _(folder):
    assert outcome_of(folder, with_forms(bold(folder), AFFINE, turned(0.5))) == ("used", "")
    path = with_forms(bold(folder), AFFINE, turned(8))
    np.testing.assert_allclose(check_bold(path).affine, AFFINE)
    return outcome_of(folder, path)


@of("sform and qform that disagree about left and right")
def _(folder):
    assert outcome_of(folder, with_forms(bold(folder), AFFINE, turned(180)))[0] == "excluded"
    return outcome_of(folder, with_forms(t1w(folder), AFFINE, np.diag([-1.0, 1, 1, 1]) @ AFFINE))


@of("left-right flip declared only in the header")
def _(folder):
    data = ball()
    straight = images.read(t1w(folder, data))
    flipped = AFFINE @ np.array([[-1.0, 0, 0, len(data) - 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    path = t1w(folder, data[::-1], flipped)
    image = images.read(path)
    np.testing.assert_array_equal(image.numpy(), straight.numpy())
    np.testing.assert_allclose(images.affine_of(image), AFFINE, atol=1e-4)
    return outcome_of(folder, path)


@of("oblique slices")
def _(folder):
    oblique = turned(25, "x")
    path = bold(folder, affine=oblique)
    np.testing.assert_allclose(images.affine_of(images.read(t1w(folder, affine=oblique))), oblique, atol=1e-3)
    return outcome_of(folder, path)


@of("BOLD and T1w stored in different orientations")
def _(folder):
    straight = nib.load(t1w(folder))
    turned_image = straight.as_reoriented(nib.orientations.axcodes2ornt("PSR"))
    data = np.stack([np.asarray(turned_image.dataobj)] * 6, axis=-1)
    path = bold(folder, data, turned_image.affine)
    check_together(path, folder / "sub-01_T1w.nii.gz")
    expected = nib.affines.apply_affine(straight.affine, np.unravel_index(ball().argmax(), ball().shape))
    brightest = nib.affines.apply_affine(turned_image.affine, np.unravel_index(data[..., 0].argmax(), data.shape[:3]))
    np.testing.assert_allclose(brightest, expected)
    return outcome_of(folder, path)


# ---- sizes -----------------------------------------------------------------------------------------
@of("T1w with a fourth axis of length 1")
def _(folder):
    path = t1w(folder, ball()[..., None])
    assert nib.load(path).shape == (*ball().shape, 1)
    np.testing.assert_allclose(images.read(path).numpy(), ball())
    np.testing.assert_allclose(images.load(path)[0], ball())
    return outcome_of(folder, path)


# ---- voxels ----------------------------------------------------------------------------------------


@of("all-zero slices in a T1w")
def _(folder):
    data = ball()
    data[10:12] = 0
    data[-3:] = 0  # empty slices at the edge are not reported
    return outcome_of(folder, t1w(folder, data))


@of("unsigned integers declared as signed")
def _(folder):
    bright = np.rint(ball() / ball().max() * 45000).astype(np.uint16)
    assert outcome_of(folder, t1w(folder, bright)) == ("used", "")
    return outcome_of(folder, t1w(folder, bright.view(np.int16)))


@of("signed integers declared as unsigned")
def _(folder):
    data = np.stack([ball() - np.percentile(ball(), 2)] * 6, axis=-1).astype(np.int16)
    assert (data < 0).any() and outcome_of(folder, bold(folder, data)) == ("used", "")
    return outcome_of(folder, bold(folder, data.view(np.uint16)))


# ---- time ------------------------------------------------------------------------------------------
@of("header TR correctly declared in milliseconds")
def _(folder):
    path = bold(folder, tr=2000, unit="msec")
    assert check_bold(path).tr == 2.0
    return outcome_of(folder, path, tr=None)


@of("header TR without a unit")
def _(folder):
    path = bold(folder, unit="unknown")
    assert check_bold(path).tr == 2.0
    return outcome_of(folder, path, tr=None)


EMPTY_AFFINE = {"srow_x": [0] * 4, "srow_y": [0] * 4, "srow_z": [0] * 4}
SHEARED, FAR = (changed(AFFINE.copy(), where, value) for where, value in (((0, 1), 1), ((2, 3), 250)))
IMAGES = {
    "all-zero affine": lambda folder: patched(with_forms(t1w(folder), AFFINE, None), **EMPTY_AFFINE),
    "affine with shear": lambda folder: with_forms(t1w(folder), SHEARED, None),
    "all-zero slices": lambda folder: bold(folder, changed(still(), np.index_exp[:, :, 11, 3:5])),
    "empty volume": lambda folder: bold(folder, changed(still(), np.index_exp[..., 3])),
    "NaN in a T1w": lambda folder: t1w(folder, changed(ball(), (3, 3, 3), np.nan)),
    "NaN in a scan": lambda folder: bold(folder, changed(still(), (3, 3, 3, 3), np.nan)),
    "truncated compressed T1w": lambda folder: cut(t1w(folder)),
    "truncated compressed scan": lambda folder: cut(bold(folder)),
    "neither sform nor qform": lambda folder: with_forms(t1w(folder), None, None),
    "qform that is not a rotation": lambda folder: patched(t1w(folder), quatern_b=2.0),
    "qform that is not a rotation, without an sform": lambda folder: patched(
        with_forms(t1w(folder), None, AFFINE), quatern_b=2.0
    ),
    "voxel sizes in metres": lambda folder: t1w(folder, affine=np.diag([0.004, 0.004, 0.004, 1])),
    "tiny matrix (T1w)": lambda folder: t1w(folder, ball((16, 16, 16)), np.diag([12.0, 12, 12, 1])),
    "few slices (BOLD)": lambda folder: bold(folder, np.stack([ball((30, 30, 4))] * 6, axis=-1)),
    "thick slices": lambda folder: t1w(folder, ball((60, 60, 24)), np.diag([1.5, 1.5, 6, 1])),
    "scan with two volumes": lambda folder: bold(folder, n=2),
    "T1w with several volumes": lambda folder: t1w(folder, np.stack([ball()] * 3, axis=-1)),
}
MAKERS |= {name: lambda folder, make=make: outcome_of(folder, make(folder)) for name, make in IMAGES.items()}
MAKERS |= {
    "BOLD and T1w whose fields of view do not overlap": lambda folder: worked(
        folder, lambda: check_together(bold(folder, affine=FAR), t1w(folder))
    ),
    "RepetitionTime in milliseconds": lambda folder: outcome_of(folder, bold(folder), tr=2000),
    "header TR without a unit, with an impossible value": lambda folder: outcome_of(
        folder, bold(folder, tr=2000, unit="unknown"), tr=None
    ),
}
