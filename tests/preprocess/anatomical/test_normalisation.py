"""Settings are tried in order, and implausible normalisations are refused."""

from __future__ import annotations

import json
from pathlib import Path

import ants
import numpy as np
import pytest

from bolt.config import load_registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.anatomical import extraction, normalisation, workflow
from bolt.preprocess.anatomical import steps as anatomical_steps
from bolt.preprocess.anatomical.workflow import preprocess_anatomical

SPACE = "MNI152NLin2009aSym"
SETTINGS = load_registration("testing").model_copy(
    update={"working_resolution": 4.0, "mask_resolution": 4.0, "tissue_resolution": 4.0}
)


@pytest.fixture
def mask(head) -> ants.ANTsImage:
    return images.read(head.template / "brain_mask.nii.gz")


def linear(path: Path, scale: float = 1.0, shift: float = 0.0) -> Path:
    matrix = np.diag([scale, scale, scale, 1.0])
    matrix[0, 3] = shift
    images.write_matrix(matrix, path)
    return path


def field(path: Path, template: ants.ANTsImage, shift: np.ndarray) -> Path:
    """Write a displacement field; `shift` (X, Y, Z) in mm along the first axis of space."""
    values = np.stack([shift, np.zeros_like(shift), np.zeros_like(shift)], axis=-1)
    image = ants.from_numpy(
        values.astype(np.float32),
        origin=template.origin,
        spacing=template.spacing,
        direction=template.direction,
        has_components=True,
    )
    ants.image_write(image, str(path))
    return path


def test_what_can_be_right_passes(mask, tmp_path):
    normalisation.check_transform([linear(tmp_path / "a.mat", 0.97, 3)], mask, mask)


@pytest.mark.parametrize(("scale", "shift", "message"), [(1.3, 0, "volume"), (0.6, 0, "volume"), (1, 40, "overlap")])
def test_wrong_size_and_wrong_place_are_refused(mask, tmp_path, scale, shift, message):
    with pytest.raises(DataError, match=message) as error:
        normalisation.check_transform([linear(tmp_path / "a.mat", scale, shift)], mask, mask)
    assert error.value.hint


def test_folds_are_refused(mask, tmp_path):
    wave = 14 * np.sin(np.indices(mask.shape)[0] * 4.0 / 6)
    with pytest.raises(DataError, match="folds space"):
        normalisation.check_transform([field(tmp_path / "fold.nii.gz", mask, wave)], mask, mask)


def test_points_at_infinity_are_refused(mask, monkeypatch):
    monkeypatch.setattr(images, "places_of_grid", lambda shape, *rest: np.full((*shape, 3), np.nan))
    with pytest.raises(DataError, match="infinity"):
        normalisation.check_transform([], mask, mask)


@pytest.mark.slow
def test_the_next_settings_are_tried(head, tmp_path, monkeypatch, caplog):
    """The first settings give an implausible transform; the result and the name of the second are kept."""
    whole = normalisation.normalise

    def broken(brain, template_brain, alignment, settings, folder):
        if settings.name == "broken":
            return (linear(Path(folder) / "wrong.mat", 1.5),) * 2
        return whole(brain, template_brain, alignment, settings, folder)

    monkeypatch.setattr(anatomical_steps, "normalise", broken)
    second = SETTINGS.model_copy(update={"mask_resolution": 8.0, "normalisation_resolution": 8.0})
    first = second.model_copy(update={"name": "broken"})
    out = tmp_path / "sub-01" / "anat"
    preprocess_anatomical(head.t1w, head.template, SPACE, [first, second], out, tmp_path / "work", prefix="sub-01_")
    assert json.loads((out / "sub-01_desc-quality.json").read_text())["registration"] == "testing"
    assert "'broken' failed, trying 'testing' next" in caplog.text


def test_the_error_of_the_last_settings_is_raised(head, tmp_path, monkeypatch):
    def fails(flow, folder, where):
        raise DataError(f"no transform is plausible: {flow.inputs.normalise.settings['name']}", where=where)

    monkeypatch.setattr(workflow, "run", fails)
    settings = [SETTINGS.model_copy(update={"name": name}) for name in ("one", "two")]
    with pytest.raises(DataError, match="plausible: two"):
        preprocess_anatomical(head.t1w, head.template, SPACE, settings, tmp_path, tmp_path / "work", prefix="sub-01_")


def test_an_error_in_ants_is_bad_data(head, mask, tmp_path, monkeypatch):
    def fails(*args, **options):
        raise RuntimeError("Registration failed with error code 1")

    monkeypatch.setattr(ants, "registration", fails)
    t1w = images.read(head.t1w)
    with pytest.raises(DataError, match="could not register"):
        extraction.align_brain(t1w, t1w, mask, SETTINGS, tmp_path)


def test_the_refinement_is_composed_with_the_alignment_and_can_be_undone(mask, tmp_path):
    """A brain that was displaced by a known affine and wave; forward and inverse cancel out."""
    brain = mask * 100 + ants.smooth_image(mask, 12) * 80
    wave = 3 * np.sin(np.indices(mask.shape)[0] * 4.0 / 25)
    matrix, bent = linear(tmp_path / "a.mat", 1.03, 2.0), field(tmp_path / "bent.nii.gz", mask, wave)
    back = field(tmp_path / "back.nii.gz", mask, np.zeros(mask.shape))
    subject = ants.apply_transforms(mask, brain, [str(matrix)], whichtoinvert=[True])
    alignment = extraction.Alignment(mask, matrix, bent, back)
    none = SETTINGS.model_copy(update={"syn_iterations": [0]})
    forward, _ = normalisation.normalise(subject, brain, alignment, none, tmp_path)
    inner = np.argwhere(mask.numpy() > 0.5)[::50]
    places = images.places_of_grid(mask.shape, images.affine_of(mask), [forward])[tuple(inner.T)]
    expected = images.places_of_grid(mask.shape, images.affine_of(mask), [bent, matrix])[tuple(inner.T)]
    np.testing.assert_allclose(places, expected, atol=0.01)
    zero = field(tmp_path / "zero.nii.gz", mask, np.zeros(mask.shape))
    forward, inverse = normalisation.normalise(
        subject, brain, extraction.Alignment(mask, matrix, zero, zero), SETTINGS, tmp_path
    )
    here = images.apply(images.affine_of(mask), inner.astype(float))
    there = images.places_of_grid(mask.shape, images.affine_of(mask), [forward, inverse])[tuple(inner.T)]
    np.testing.assert_allclose(there, here, atol=0.3)
