"""Slice timing correction and non-steady-state volumes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nipype.algorithms.confounds import is_outlier

from bolt.config import load_registration
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import write_json
from bolt.preprocess.functional import timing, workflow

TR, SLICES = 2.0, 10
INTERLEAVED = [*np.arange(0, SLICES, 2), *np.arange(1, SLICES, 2)]
TIMES = np.argsort(INTERLEAVED) * TR / SLICES


def sine(times: np.ndarray, hertz: float, n_volumes: int = 100, tr: float = TR) -> np.ndarray:
    """Return (2, 2, S, T) volumes in which each slice samples the sine at its own times."""
    seen = np.sin(2 * np.pi * hertz * (tr * np.arange(n_volumes) + times[:, None]))
    return (500 + 10 * np.broadcast_to(seen, (2, 2, *seen.shape))).astype(np.float32)


@pytest.mark.parametrize("tr", [0.72, 2.0, 3.0])
@pytest.mark.parametrize("cycles", [0.02, 0.1, 0.2, 0.3])
def test_a_sine_is_the_same_in_all_slices(cycles, tr):
    """`cycles` per volume; 0.3 is 0.15 Hz at a repetition time of 2 s."""
    times, hertz = TIMES * tr / TR, cycles / tr
    slices = timing.SliceTimes(times, 2)
    scan = sine(times, hertz, tr=tr)
    done = np.stack(list(timing.slice_timed(np.moveaxis(scan, -1, 0), slices, tr)))
    expected = sine(np.full(SLICES, slices.middle), hertz, tr=tr)
    inner = slice(timing.TAPS, -timing.TAPS)
    before = np.abs(scan - expected)[..., inner].max()
    assert done.shape == (100, 2, 2, SLICES) and done.dtype == np.float32
    assert np.abs(np.moveaxis(done, 0, -1) - expected)[..., inner].max() < 0.03 * before
    assert np.abs(np.moveaxis(done, 0, -1) - expected).max() < 1.1 * before  # no worse at the ends than before


def test_volumes_before_the_steady_state_leak_into_none():
    slices = timing.SliceTimes(TIMES, 2)
    scan = np.moveaxis(sine(TIMES, 0.03), -1, 0)
    bright = scan.copy()
    bright[:3] *= 2
    done = np.stack(list(timing.slice_timed(bright, slices, TR, 3)))
    np.testing.assert_array_equal(done[:3], bright[:3])
    np.testing.assert_array_equal(done[3:], np.stack(list(timing.slice_timed(scan[3:], slices, TR))))


def test_a_window_of_volumes_is_held_and_no_more():
    asked = 0

    def volumes():
        nonlocal asked
        for _ in range(50):
            asked += 1
            yield np.ones((2, 2, SLICES), np.float32)

    stream = timing.slice_timed(volumes(), timing.SliceTimes(TIMES, 2), TR)
    next(stream)
    assert asked == timing.TAPS + 1
    assert len(list(stream)) == 49
    assert len(list(timing.slice_timed(volumes(), None, TR))) == 50
    for n_volumes in (1, 2, 5):
        scan = np.ones((n_volumes, 2, 2, SLICES), np.float32)
        assert len(list(timing.slice_timed(scan, timing.SliceTimes(TIMES, 2), TR))) == n_volumes


def write_bold(folder: Path, **about) -> Path:
    path = folder / "sub-01" / "func" / "sub-01_task-rest_bold.nii.gz"
    path.parent.mkdir(parents=True)
    nib.save(nib.Nifti1Image(np.zeros((4, 4, SLICES, 3), np.float32), np.eye(4)), path)
    write_json({"Name": "x", "BIDSVersion": "1.10.0"}, folder / "dataset_description.json")
    write_json(about, folder / "task-rest_bold.json")
    return path


def test_slice_times_are_inherited_and_turned(tmp_path):
    path = write_bold(tmp_path, SliceTiming=list(TIMES), SliceEncodingDirection="k-")
    own = path.parent / "sub-01_task-rest_bold.json"
    slice_times = timing.read_slice_times(path, (4, 4, SLICES), TR)
    np.testing.assert_allclose(slice_times.times, TIMES[::-1])
    assert (slice_times.axis, slice_times.middle) == (2, pytest.approx(0.9))
    write_json({"SliceEncodingDirection": "k"}, own)
    np.testing.assert_allclose(timing.read_slice_times(path, (4, 4, SLICES), TR).times, TIMES)
    for simultaneous_or_unknown in ([0.0] * SLICES, None):
        write_json({"SliceTiming": simultaneous_or_unknown}, own)
        assert timing.read_slice_times(path, (4, 4, SLICES), TR) is None


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"SliceTiming": list(1000 * TIMES)}, "milliseconds"),
        ({"SliceTiming": list(TIMES[:7])}, f"7 times for {SLICES} slices along k"),
        ({"SliceTiming": list(TIMES), "SliceEncodingDirection": "i"}, f"{SLICES} times for 4 slices along i"),
        ({"SliceTiming": ["a"] * SLICES}, "cannot be read"),
        ({"SliceTiming": [-1.0, *TIMES[1:]]}, "negative"),
    ],
)
def test_slice_times_that_cannot_be_are_refused(tmp_path, about, message):
    path = write_bold(tmp_path, **about)
    with pytest.raises(DataError, match=message) as error:
        timing.read_slice_times(path, (4, 4, SLICES), TR)
    assert "slice_timing" in error.value.hint


def scan_of(means: np.ndarray, folder: Path) -> Path:
    """Write a scan whose volumes have these means."""
    values = (means * np.linspace(0.5, 1.5, 125).reshape(5, 5, 5, 1)).astype(np.float32)
    nib.save(nib.Nifti1Image(values, np.eye(4)), folder / "bold.nii.gz")
    return folder / "bold.nii.gz"


@pytest.mark.parametrize("bright", [0, 1, 3])
def test_volumes_before_the_steady_state_are_counted_as_nipype_does(tmp_path, bright):
    means = 500 + np.random.default_rng(bright).normal(0, 1, 60)
    means[:bright] *= 1 + 0.3 / np.arange(1, bright + 1)
    with pytest.warns(BoltWarning, match=f"first {bright} volume") if bright else nullcontext():
        n_unsteady = timing.count_unsteady(scan_of(means, tmp_path), 60, TR)
    assert n_unsteady == bright == is_outlier(means[:50])


@pytest.mark.parametrize(("bright", "dropped"), [(8, 8), (9, 8), (20, 8)])
def test_no_more_volumes_are_left_out_than_saturation_explains(tmp_path, bright, dropped):
    means = 500 + np.random.default_rng(0).normal(0, 1, 120)
    means[:bright] *= 1.05
    assert timing.unsteady(means[:50]) == bright
    with pytest.warns(BoltWarning, match=f"first {dropped}.* dropped"):
        assert timing.count_unsteady(scan_of(means, tmp_path), 120, 2.0) == dropped


@pytest.mark.parametrize(("steady_state", "dropped"), [("auto", 2), (0, 0), (3, 3)])
def test_the_reference_leaves_out_as_many_volumes_as_are_asked_for(tmp_path, monkeypatch, steady_state, dropped):
    means = 100.0 + np.arange(12)
    means[:2] = 900
    seen = []

    def reference(volumes, *_):
        seen.extend(float(volume.mean()) for volume in volumes)
        return np.ones((4, 4, 4)), np.ones((4, 4, 4))

    monkeypatch.setattr(workflow, "motion_reference", reference)
    given = tmp_path, load_registration("testing"), str(scan_of(means, tmp_path)), TR
    with pytest.warns(BoltWarning) if steady_state == "auto" else nullcontext():
        made = workflow.make_reference(*given, steady_state)
    assert made["unsteady"] == dropped and seen == pytest.approx(means[dropped:].tolist(), rel=1e-4)
    with pytest.raises(DataError, match="leaves 4 of 12 volumes"):
        workflow.make_reference(*given, 8)


def test_how_many_volumes_saturation_explains():
    assert timing.most_unsteady(200, 2.0) == 8  # 15 s
    assert timing.most_unsteady(1200, 0.72) == 10
    assert timing.most_unsteady(24, 2.0) == 4  # a fifth
    assert timing.most_unsteady(4, 2.0) == 0
    assert timing.unsteady(np.array([900.0, 96, 104, 96, 104, 96, 104])) == 1  # the others are 8 or 0 from the median
    assert timing.unsteady(np.ones(20)) == 0  # a signal that never changes
