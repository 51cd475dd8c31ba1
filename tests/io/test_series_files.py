"""Ready series in the formats that people save."""

import os

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from nilearn.maskers import NiftiLabelsMasker

import bolt
from bolt.io.errors import DataError
from bolt.io.series_files import read_series

SERIES = np.random.default_rng(0).normal(size=(20, 12))
TABLE = pd.DataFrame(SERIES)
NAMES = [f"LH_{i}" for i in range(12)]

WRITERS = {
    "saved by numpy.csv": lambda path: np.savetxt(path, SERIES, delimiter=","),
    "columns from 0, as pandas writes.csv": lambda path: TABLE.to_csv(path, index=False),
    "columns from 1.csv": lambda path: TABLE.to_csv(path, index=False, header=range(1, 13)),
    "labels of an atlas.tsv": lambda path: TABLE.to_csv(path, sep="\t", index=False, header=range(2001, 2037, 3)),
    "names.tsv": lambda path: TABLE.to_csv(path, sep="\t", index=False, header=NAMES),
    "semicolons.csv": lambda path: np.savetxt(path, SERIES, delimiter=";"),
    "byte order mark.csv": lambda path: TABLE.to_csv(path, index=False, header=NAMES, encoding="utf-8-sig"),
    "spaces.1D": lambda path: np.savetxt(path, SERIES, header="a comment"),
    "tabs.txt": lambda path: np.savetxt(path, SERIES, delimiter="\t"),
    "doubles.npy": lambda path: np.save(path, SERIES),
}


@pytest.mark.parametrize("name", WRITERS)
def test_volumes_and_rois_are_those_that_were_saved(tmp_path, name):
    WRITERS[name](tmp_path / name)
    np.testing.assert_allclose(read_series(tmp_path / name), SERIES, rtol=1e-6)


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize("empty", ["n/a", "", "nan"])
def test_an_empty_column_stays_where_it_is(tmp_path, separator, empty):
    """As XCP-D writes a parcel that is not covered."""
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    TABLE.assign(**{"3": np.nan}).drop(columns=3)[[0, 1, 2, "3", *range(4, 12)]].to_csv(
        path, sep=separator, index=False, header=NAMES, na_rep=empty
    )
    read = read_series(path)
    assert np.isnan(read[:, 3]).all()
    np.testing.assert_allclose(np.delete(read, 3, axis=1), np.delete(SERIES, 3, axis=1), rtol=1e-6)


def test_the_reader_is_offered_to_others(tmp_path):
    np.save(tmp_path / "a.npy", SERIES)
    assert bolt.read_series is read_series and bolt.read_series(tmp_path / "a.npy").shape == (20, 12)
    with pytest.raises(AttributeError, match="no attribute 'read_serie'"):
        bolt.read_serie  # noqa: B018


def test_the_first_volume_is_no_header(tmp_path):
    """Whole numbers, but not those of columns."""
    counts = np.random.default_rng(1).integers(300, 900, (9, 14))
    counts[0, :2] = 5, 3
    np.savetxt(tmp_path / "a.csv", counts, delimiter=",", fmt="%d")
    np.testing.assert_array_equal(read_series(tmp_path / "a.csv"), counts)


def claim(path):
    """Write an array whose header claims 1.2 TB."""
    np.save(path, SERIES)
    path.write_bytes(path.read_bytes().replace(b"(20, 12), }", b"(2000000000, 75), }"))


def objects(path):
    np.save(path, np.array([{}]), allow_pickle=True)


def names_and_numbers(path):
    path.write_text(",".join("ABCDEFGHIJKL") + "\n" + TABLE.to_csv(index=False))


def archive(path):
    with path.open("wb") as file:
        np.savez(file, SERIES)


BAD = [
    (
        "index.csv",
        lambda path: TABLE.to_csv(path),
        "the first column counts the rows (0, 1, 2 …): an index, not an ROI",
    ),
    (
        "time.csv",
        lambda path: path.write_text("volume,A\n1,2.4\n2,3.2\n3,2.1\n"),
        "the first column 'volume' counts the rows (1, 2, 3 …)",
    ),
    (
        "hole.tsv",
        lambda path: TABLE.replace(SERIES[3, 2], np.nan).to_csv(path, sep="\t", index=False),
        "nan in row 3, column 2",
    ),
    ("text.csv", lambda path: path.write_text("1.5,2\n3,x\n4,5\n"), "'x' in row 1, column 1 (counted from 0) is not"),
    ("typing.csv", lambda path: path.write_text("1.5,O.3\n3,4\n4,5\n"), "'O.3' in row 0, column 1"),
    ("cut off.1D", lambda path: path.write_text("1.5 2 4\n3 2 4\n4 5\n"), "has 2 cells, the first 3"),
    ("ragged.csv", lambda path: path.write_text("1.5,2\n3,2,4\n4,5\n"), "rows of unequal length"),
    ("utf16.csv", lambda path: path.write_text("1.5,2\n3,2\n", encoding="utf-16"), "not UTF-8 text"),
    ("decimal commas.csv", lambda path: path.write_text("1,5;2,5\n3,5;4,5\n2,5;1,5\n"), "is not a number"),
    ("clock.csv", lambda path: path.write_text("s,A\n0,2.4\n2.5,3.2\n5,2.1\n"), "the first column 's' counts the rows"),
    ("two tables.csv", lambda path: path.write_text(2 * TABLE.to_csv(index=False)), "row 20 (counted from 0, without"),
    (
        "names and numbers.csv",
        names_and_numbers,
        "row 0 (counted from 0, without the header) has the numbers of",
    ),
    ("no array.npy", lambda path: path.write_bytes(b"x" * 100), "not in NumPy's format"),
    ("mask.npy", lambda path: np.save(path, SERIES > 0), "contains bool, not numbers"),
    ("pipe.csv", os.mkfifo, "not a regular file"),
    ("loop.npy", lambda path: path.symlink_to(path.name), "file not found"),
    (f"{'long' * 80}.npy", lambda path: None, "file not found"),
    ("archive.npy", archive, "an archive of arrays (.npz), not one array"),
    ("objects.npy", objects, "not a readable array"),
    ("huge.npy", claim, "not a readable array"),
    ("large.npy", lambda path: np.save(path, np.full((5, 2), 1e300)), "inf in row 0, column 0"),
    ("constant.npy", lambda path: np.save(path, np.full((5, 2), 3.0)), "no ROI varies"),
    (
        "sparse.mat",
        lambda path: scipy.io.savemat(path, {"x": scipy.sparse.csc_matrix(SERIES)}),
        "not an array of numbers",
    ),
    ("folder.npy", lambda path: path.mkdir(), "not a regular file"),
    ("absent.npy", lambda path: None, "file not found"),
]


@pytest.mark.parametrize(("name", "write", "message"), BAD, ids=[name for name, *_ in BAD])
def test_what_is_no_series_is_refused_with_its_place(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(DataError) as caught:
        read_series(tmp_path / name)
    assert message in str(caught.value) and name in str(caught.value)
    assert "allow_pickle" not in str(caught.value) and "\n" not in str(caught.value)


# ---- names of columns --------------------------------------------------------------------------
ROIS = [f"roi {i}" for i in range(12)]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_named_columns_follow_the_atlas(tmp_path, suffix):
    path, shuffled = tmp_path / f"a{suffix}", np.random.default_rng(1).permutation(12)
    named = TABLE.set_axis(ROIS, axis=1).iloc[:, shuffled]
    named.to_csv(path, sep="," if suffix == ".csv" else "\t", index=False)
    np.testing.assert_allclose(read_series(path, names=ROIS), SERIES, rtol=1e-6)
    np.testing.assert_allclose(read_series(path), SERIES[:, shuffled], rtol=1e-6)


def test_columns_with_names_of_their_own_keep_their_order(tmp_path):
    TABLE.to_csv(tmp_path / "a.csv", index=False, header=NAMES)
    np.testing.assert_allclose(read_series(tmp_path / "a.csv", names=ROIS), SERIES, rtol=1e-6)
    TABLE.to_csv(tmp_path / "b.csv", index=False, header=[*ROIS[:10], "other", "names"])
    np.testing.assert_allclose(read_series(tmp_path / "b.csv", names=ROIS), SERIES, rtol=1e-6)


def test_columns_that_cannot_be_sorted_are_refused(tmp_path):
    TABLE.to_csv(tmp_path / "a.csv", index=False, header=[*ROIS[1:], "another"])
    with pytest.raises(DataError, match="the first that differs is 'roi 1', where the atlas has 'roi 0' .1 of"):
        read_series(tmp_path / "a.csv", names=ROIS)


@pytest.mark.parametrize("how", ["array.npy", "table.csv", "table.tsv"])
def test_what_nilearn_gives_is_read(tmp_path, how):
    rng = np.random.default_rng(0)
    labels = nib.Nifti1Image(rng.integers(0, 6, (6, 6, 6)).astype(np.int16), np.eye(4))
    image = nib.Nifti1Image(rng.standard_normal((6, 6, 6, 20)).astype(np.float32), np.eye(4))
    series = NiftiLabelsMasker(labels, standardize=False).fit_transform(image)
    path = tmp_path / how
    if path.suffix == ".npy":
        np.save(path, series)
    else:
        separator = "," if path.suffix == ".csv" else "\t"
        pd.DataFrame(series, columns=ROIS[:5]).to_csv(path, sep=separator, index=False)
    np.testing.assert_allclose(read_series(path, names=ROIS[:5]), series, rtol=1e-5)


def test_a_row_of_column_numbers_is_a_second_header_only_of_three_columns(tmp_path):
    """Of two ROIs, a volume with the values 0 and 1 is nothing odd."""
    values = np.random.default_rng(0).normal(5, 1, (20, 3)).round(3)
    values[7] = 0, 1, 2
    np.savetxt(tmp_path / "two.csv", values[:, :2], delimiter=",")
    assert read_series(tmp_path / "two.csv").shape == (20, 2)
    np.savetxt(tmp_path / "three.csv", values, delimiter=",")
    with pytest.raises(DataError, match="row 7 .* a second header"):
        read_series(tmp_path / "three.csv")
