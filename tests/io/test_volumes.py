"""Checks of NIfTI headers, and streams of volumes that equal nibabel's."""

import gzip
import struct

import ants
import nibabel as nib
import numpy as np
import pytest

from bolt.io.bids import space_of
from bolt.io.errors import DataError
from bolt.io.streams import ahead, iter_volumes, volume_writer
from bolt.io.volumes import check_bold, check_image

AFFINE = np.array([[-2.0, 0, 0, 90], [0, 2.1, -0.1, -126], [0, 0.1, 2.2, -72], [0, 0, 0, 1]])


def save(path, data, tr=2.0, unit="sec", scale=None):
    image = nib.Nifti1Image(data, AFFINE)
    if data.ndim == 4:
        image.header.set_zooms((*image.header.get_zooms()[:3], tr))
    image.header.set_xyzt_units("mm", unit)
    if scale:
        image.header.set_slope_inter(*scale)
    nib.save(image, path)
    return path


@pytest.fixture
def data():
    return np.random.default_rng(0).integers(-3000, 3000, (7, 8, 9, 6)).astype(np.int16)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("dtype", ["int16", "uint8", "float32", "float64", "int32", ">i2", ">f4"])
def test_stream_equals_nibabel(tmp_path, data, name, dtype):
    image = nib.Nifti1Image(np.abs(data % 200).astype(dtype), AFFINE)
    if dtype.startswith(">"):
        image = nib.Nifti1Image(np.asarray(image.dataobj), AFFINE, nib.Nifti1Header(endianness=">"), dtype=dtype)
    nib.save(image, tmp_path / name)
    volumes = list(iter_volumes(tmp_path / name))
    assert len(volumes) == 6
    assert all(v.dtype == np.float32 and v.shape == (7, 8, 9) for v in volumes)
    np.testing.assert_array_equal(np.stack(volumes, -1), np.asarray(nib.load(tmp_path / name).dataobj))


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_stream_of_some_voxels(tmp_path, data, name):
    path = save(tmp_path / name, data, scale=(0.5, 7))
    voxels = np.array([0, 3, 8, 7 * 8 * 9 - 1])
    some, whole = list(iter_volumes(path, voxels)), list(iter_volumes(path))
    np.testing.assert_allclose(np.stack(whole, -1), data * 0.5 + 7, rtol=1e-6)
    assert all(v.dtype == np.float32 for v in some)
    np.testing.assert_array_equal(np.stack(some), [volume.ravel(order="F")[voxels] for volume in whole])
    (only,) = iter_volumes(save(tmp_path / f"3d_{name}", data[..., 0]))
    np.testing.assert_array_equal(only, data[..., 0])


def test_cut_off_gzip_names_the_volume(tmp_path):
    path = save(tmp_path / "a.nii.gz", np.random.default_rng(1).random((16, 16, 16, 6)).astype(np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 4])
    volumes = iter_volumes(path)
    for _ in range(4):
        next(volumes)
    with pytest.raises(DataError, match=r"cut off at volume 4 of 6.*Copy"):
        next(volumes)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(200) + whole[middle + 200 :])
    with pytest.raises(DataError, match=r"damaged|cut off"):
        list(iter_volumes(path))


SMALL, LARGE = (7, 8, 9, 6), (64, 64, 40, 3)


@pytest.mark.parametrize(
    ("shape", "change", "message"),
    [
        (SMALL, lambda content: content[:-4], "cut off at volume 0 of 6 or soon after"),  # all are less than a block
        (LARGE, lambda content: content[:-4], "cut off (at volume 2 of 3 or soon after|after the last volume)"),
        (SMALL, lambda content: content[:-8] + b"xxxx" + content[-4:], "damaged in one of its 6 volumes"),
    ],
    ids=["trailer cut off", "trailer of a large image", "wrong checksum"],
)
def test_damage_in_the_gzip_trailer_is_noticed(tmp_path, shape, change, message):
    path = save(tmp_path / "a.nii.gz", np.random.default_rng(0).integers(-3000, 3000, shape).astype(np.int16))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        list(iter_volumes(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.nii.gz", b"", "empty"),
        ("a.nii.gz", b"\n <html>404</html>", "web page"),  # after white space
        ("a.nii.gz", b"plain text", "not compressed with gzip"),
        ("a.nii.gz", gzip.compress(bytes(400), mtime=0), "not a readable NIfTI"),
        ("a.nii.gz", gzip.compress(b"short", mtime=0), "not a readable NIfTI|cut off"),
        ("a.nii.gz", gzip.compress(bytes(1000), mtime=0)[:15], "cut off within its header|not a readable"),
        ("a.nii", b"text" * 200, "not a readable NIfTI"),
        ("a.img", b"x", "not a .nii"),
    ],
)
def test_invalid_images_are_refused_with_a_hint(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"^{tmp_path / name}: .*({message})") as caught:
        check_image(tmp_path / name)
    assert caught.value.hint


def test_colours_and_lengths_in_another_unit_are_refused(tmp_path):
    colour = nib.Nifti1Image(np.zeros((4, 4, 4), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")]), AFFINE)
    metres, microns = (nib.Nifti1Image(np.ones((8, 8, 8), np.int16), np.eye(4)) for _ in range(2))
    metres.header.set_xyzt_units("meter")
    microns.header.set_xyzt_units("micron")
    for image, words in ((colour, "not real numbers"), (metres, "lengths in metres"), (microns, "in micrometres")):
        nib.save(image, tmp_path / "a.nii")
        with pytest.raises(DataError, match=words):
            check_image(tmp_path / "a.nii")


@pytest.mark.parametrize(
    ("kind", "place", "dims"),
    [
        (nib.Nifti1Image, 40, np.array([4, 12000, 10000, 100, 100], "<i2")),  # 1.2 TB
        (nib.Nifti1Image, 40, np.array([4, -5, 8, 8, 20], "<i2")),
        (nib.Nifti1Image, 40, np.array([4, 8, 8, 8, 0], "<i2")),
        (nib.Nifti1Image, 40, np.array([0], "<i2")),
        (nib.Nifti2Image, 16, np.array([4, 2**40, 8, 8, 20], "<i8")),
    ],
    ids=["huge", "negative", "no volumes", "no axes", "2^40"],
)
def test_absurd_dimensions_are_refused_by_the_header_alone(tmp_path, kind, place, dims):
    nib.save(kind(np.ones((8, 8, 8, 20), np.int16), np.eye(4)), tmp_path / "a.nii")
    content = bytearray((tmp_path / "a.nii").read_bytes())
    content[place : place + dims.nbytes] = dims.tobytes()
    (tmp_path / "a.nii").write_bytes(content)
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(content))
    for name in ("a.nii", "a.nii.gz"):
        with pytest.raises(DataError, match="the header gives an impossible size"):
            check_bold(tmp_path / name)


@pytest.mark.parametrize(("tr", "unit", "seconds"), [(2.0, "sec", 2.0), (720.0, "msec", 0.72), (0.72, "sec", 0.72)])
def test_repetition_time_in_any_unit(tmp_path, data, tr, unit, seconds):
    info = check_bold(save(tmp_path / "a.nii.gz", data, tr, unit))
    assert (info.tr, info.shape, info.n_volumes) == (seconds, (7, 8, 9), 6)
    assert info.voxel_sizes == pytest.approx(nib.affines.voxel_sizes(AFFINE), rel=1e-6)
    np.testing.assert_allclose(info.affine, AFFINE, atol=1e-5)


@pytest.mark.parametrize(
    ("tr", "unit"), [(0.0, "sec"), (2.0, "msec"), (2000.0, "sec"), (2.0, "hz"), (-2.0, "sec"), (np.nan, "sec")]
)
@pytest.mark.filterwarnings("ignore")
def test_no_usable_repetition_time(tmp_path, data, tr, unit):
    path = save(tmp_path / "a.nii", data, 1.0, unit)
    with path.open("r+b") as stream:  # nibabel refuses to write some of these
        stream.seek(76 + 16)
        stream.write(struct.pack("<f", tr))
    with pytest.raises(DataError, match="no repetition time.*sidecar"):
        check_bold(path)
    assert check_bold(path, tr=2.0).tr == 2.0


def test_sidecar_takes_precedence_with_a_warning(tmp_path, data, recwarn):
    path = save(tmp_path / "a.nii.gz", data, 1.79)
    with pytest.warns(UserWarning, match=r"1\.79 s in the header and 2 s"):
        assert check_bold(path, tr=2.0).tr == 2.0
    recwarn.clear()
    assert check_bold(path, tr=1.795).tr == 1.795
    assert not recwarn
    for tr in (0, -1, np.nan, np.inf):
        with pytest.raises(DataError, match="RepetitionTime"):
            check_bold(path, tr=tr)


def test_an_image_of_one_volume_or_of_five_dimensions_is_refused(tmp_path, data):
    with pytest.raises(DataError, match=r"expected a 4D image.*one volume"):
        check_bold(save(tmp_path / "1.nii.gz", data[..., :1].reshape(7, 8, 9, 1)))
    with pytest.raises(DataError, match="5 dimensions"):
        check_bold(save(tmp_path / "5.nii.gz", data.reshape(7, 8, 9, 3, 2)))


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_writer_round_trip(tmp_path, data, dtype):
    path, again = tmp_path / "sub-01_space-MNI152NLin6Asym_bold.nii.gz", tmp_path / "again.nii.gz"
    for made in (path, again):
        with volume_writer(made, AFFINE, (7, 8, 9), tr=0.72, dtype=dtype, code=4) as append:
            for t in range(6):
                append(data[..., t])
            assert not made.exists()
    assert path.read_bytes() == again.read_bytes() and sorted(tmp_path.iterdir()) == [again, path]
    np.testing.assert_array_equal(ants.image_read(str(again)).numpy(), data)
    image, info = nib.load(path), check_bold(path)
    np.testing.assert_array_equal(np.asarray(image.dataobj), data)
    np.testing.assert_allclose(image.affine, AFFINE, atol=1e-5)
    assert image.get_data_dtype() == dtype and image.header.get_xyzt_units() == ("mm", "sec")
    assert int(image.header["sform_code"]) == int(image.header["qform_code"]) == 4
    assert (info.tr, info.n_volumes) == (0.72, 6)


def test_an_error_while_writing_leaves_no_file(tmp_path, data):
    for volumes, error in (([data[..., 0], data[1:, ..., 0]], "shape"), ([], "no volume")):
        writer = volume_writer(tmp_path / "a.nii.gz", AFFINE, (7, 8, 9), tr=2, code=4)
        with pytest.raises(ValueError, match=error), writer as append:
            for volume in volumes:
                append(volume)
    assert not list(tmp_path.iterdir())


def test_writer_rounds_whole_numbers_and_refuses_those_beyond_their_range(tmp_path, data):
    with volume_writer(tmp_path / "a.nii.gz", AFFINE, (7, 8, 9), tr=2, dtype="int16", code=4) as append:
        with pytest.raises(ValueError, match="range"):
            append(data[..., 0] + 40000.0)
        append(data[..., 0] + 0.4)
    np.testing.assert_array_equal(next(iter_volumes(tmp_path / "a.nii.gz")), data[..., 0])


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("sub-01_task-rest_space-MNI152NLin6Asym_res-2_desc-preproc_bold.nii.gz", "MNI152NLin6Asym"),
        ("space-T1w_bold.nii.gz", "T1w"),
        ("sub-01_space-UNCInfant_cohort-2_res-1_bold.nii.gz", "UNCInfant_cohort-2"),
        ("tpl-UNCInfant_cohort-1_atlas-A_dseg.nii.gz", "UNCInfant_cohort-1"),
        ("sub-01_task-myspace-x_bold.nii.gz", None),
        ("bold.nii.gz", None),
    ],
)
def test_space_of(name, space):
    assert space_of(f"/data/space-wrong/{name}") == space


def test_items_are_made_ahead_in_order_and_errors_arrive():
    def items():
        yield from range(3)
        raise DataError("cut off")

    made = ahead(items())
    assert [next(made) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="cut off"):
        next(made)
    assert list(ahead(iter([]))) == []
