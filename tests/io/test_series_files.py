"""Ready series in the formats that people save."""

import codecs
import csv
import os
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

import bolt
from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import write_json
from bolt.io.series_files import kept_volumes, read_series

SERIES = np.random.default_rng(0).normal(size=(20, 12))
TABLE = pd.DataFrame(SERIES)
NAMES = [f"LH_{i}" for i in range(12)]
ROIS = [f"roi {i}" for i in range(12)]


def table(separator=",", **options):
    return lambda path: TABLE.to_csv(path, sep=separator, index=False, **options)


def text(content):
    return lambda path: path.write_text(content)


WRITERS = {
    "saved by numpy.csv": lambda path: np.savetxt(path, SERIES, delimiter=","),
    "columns from 0, as pandas writes.csv": table(),
    "columns from 1.csv": table(header=range(1, 13)),
    "labels of an atlas.tsv": table("\t", header=range(2001, 2037, 3)),
    "names.tsv": table("\t", header=NAMES),
    "names in quotation marks.csv": table(header=ROIS, quoting=csv.QUOTE_ALL),
    "names below a comment.csv": lambda path: path.write_text("# by hand\n" + TABLE.to_csv(index=False, header=NAMES)),
    "semicolons.csv": lambda path: np.savetxt(path, SERIES, delimiter=";"),
    "byte order mark.csv": table(header=NAMES, encoding="utf-8-sig"),
    "spaces.1D": lambda path: np.savetxt(path, SERIES, header="a comment"),
    "tabs.txt": lambda path: np.savetxt(path, SERIES, delimiter="\t"),
    "doubles.npy": lambda path: np.save(path, SERIES),
    "one variable.mat": lambda path: scipy.io.savemat(path, {"ts": SERIES}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_volumes_and_rois_are_those_that_were_saved(tmp_path, name):
    WRITERS[name](tmp_path / name)
    read = bolt.read_series(tmp_path / name)
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, SERIES, rtol=1e-6)


@pytest.mark.parametrize(("separator", "empty"), [("\t", "n/a"), ("\t", ""), (",", "nan"), (",", "")])
def test_an_empty_column_stays_where_it_is(tmp_path, separator, empty):
    """As XCP-D writes a parcel that is not covered."""
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    TABLE.assign(**{"3": np.nan}).drop(columns=3)[[0, 1, 2, "3", *range(4, 12)]].to_csv(
        path, sep=separator, index=False, header=NAMES, na_rep=empty
    )
    read = read_series(path)
    assert np.isnan(read[:, 3]).all()
    np.testing.assert_allclose(np.delete(read, 3, axis=1), np.delete(SERIES, 3, axis=1), rtol=1e-6)


def test_one_roi_is_a_series(tmp_path):
    (tmp_path / "a.1D").write_text("1\n2\n4\n")
    assert read_series(tmp_path / "a.1D").tolist() == [[1], [2], [4]]


def test_the_first_volume_is_no_header(tmp_path):
    """Whole numbers, but not those of columns."""
    counts = np.random.default_rng(1).integers(300, 900, (9, 14))
    counts[0, :2] = 5, 3
    np.savetxt(tmp_path / "a.csv", counts, delimiter=",", fmt="%d")
    np.testing.assert_array_equal(read_series(tmp_path / "a.csv"), counts)


def test_volumes_that_are_not_the_rows_of_a_series_are_refused(tmp_path):
    write_json({"KeptVolumes": [2, 3, 5]}, tmp_path / "a.json")
    assert kept_volumes(tmp_path / "a.npy", 3).tolist() == [2, 3, 5]
    assert kept_volumes(tmp_path / "b.npy", 3).tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"a\.json: KeptVolumes lists 3 volumes, but the series has 4"):
        kept_volumes(tmp_path / "a.npy", 4)


def claim(path):
    """Write an array whose header claims 1.2 TB."""
    np.save(path, SERIES)
    path.write_bytes(path.read_bytes().replace(b"(20, 12), }", b"(2000000000, 75), }"))


def array(values, **options):
    return lambda path: np.save(path, values, **options)


def variables(**values):
    return lambda path: scipy.io.savemat(path, values, do_compression=True)


def spoilt(save, start, junk):
    """Write a file and overwrite a part of it."""

    def write(path):
        save(path)
        content = path.read_bytes()
        path.write_bytes(content[:start] + junk + content[start + len(junk) :])

    return write


HDF5 = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM" + bytes(512)
BAD = [
    ("time.csv", text("volume,A\n1,2.4\n2,3.2\n3,2.1\n"), "the first column 'volume' counts the rows (1, 2, 3 …)"),
    ("clock.csv", text("s,A\n0,2.4\n2.5,3.2\n5,2.1\n"), "the first column 's' counts the rows"),
    ("hole in the first row.csv", text("n/a,2\n1,3\n"), "nan in row 0, column 0"),
    ("text.csv", text("1.5,2\n3,x\n4,5\n"), "'x' in row 1, column 1 (counted from 0) is not"),
    ("typing.csv", text("1.5,O.3\n3,4\n4,5\n"), "'O.3' in row 0, column 1"),
    ("cut off.1D", text("1.5 2 4\n3 2 4\n4 5\n"), "has 2 cells, the first 3"),
    ("ragged.csv", text("1.5,2\n3,2,4\n4,5\n"), "rows of unequal length"),
    ("utf16.csv", lambda path: path.write_text("1.5,2\n3,2\n", encoding="utf-16"), "not UTF-8 text"),
    ("decimal commas.csv", text("1,5;2,5\n3,5;4,5\n2,5;1,5\n"), "is not a number"),
    ("names and numbers.csv", text(",".join(NAMES) + "\n" + TABLE.to_csv(index=False)), "row 0 (counted from 0"),
    ("names alone.csv", text("a,b\n"), "0 time points"),
    ("empty.csv", text(""), "0 time points"),
    ("one volume.csv", text("4,2\n"), "1 time points"),
    ("no array.npy", text("x" * 100), "not in NumPy's format"),
    ("mask.npy", array(SERIES > 0), "contains bool, not numbers"),
    ("complex.npy", array(SERIES + 1j), "complex"),
    ("image.npy", array(np.zeros((2, 3, 4))), "shape (2, 3, 4)"),
    ("no rois.npy", array(np.zeros((5, 0))), "shape (5, 0)"),
    ("objects.npy", array(np.array([{}]), allow_pickle=True), "not a readable array"),
    ("huge.npy", claim, "not a readable array"),
    ("large.npy", array(np.full((5, 2), 1e300)), "inf in row 0, column 0"),
    ("pipe.csv", os.mkfifo, "not a regular file"),
    (f"{'long' * 80}.npy", lambda path: None, "file not found"),
    ("sparse.mat", variables(x=scipy.sparse.csc_matrix(SERIES)), "not an array of numbers"),
    ("two.mat", variables(x=SERIES, y=SERIES), "2 variables: x, y"),
    ("failing disk.csv", lambda path: path.symlink_to("/proc/self/mem"), "cannot be read"),
    ("damaged.npy", spoilt(array(SERIES), 20, b"(" * 40), "not a readable array"),
    ("damaged.mat", spoilt(variables(x=SERIES), 1000, b"\0" * 100), "not a readable .mat"),
    ("hdf5.mat", lambda path: path.write_bytes(HDF5), ".mat version 7.3 (HDF5) is not supported"),
    ("no matrix.mat", text("junk"), "not a readable .mat"),
    ("sheet.xlsx", text("junk"), "unknown file format '.xlsx'"),
]


@pytest.mark.parametrize(("name", "write", "message"), BAD, ids=[name for name, *_ in BAD])
def test_what_is_no_series_is_refused_with_its_place(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(DataError) as caught:
        read_series(tmp_path / name)
    assert message in str(caught.value) and name in str(caught.value) and caught.value.hint
    assert "allow_pickle" not in str(caught.value) and "\n" not in str(caught.value)


# ---- names and numbers of columns --------------------------------------------------------------
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_named_columns_follow_the_atlas(tmp_path, suffix):
    path, shuffled = tmp_path / f"a{suffix}", np.random.default_rng(1).permutation(12)
    named = TABLE.set_axis(ROIS, axis=1).iloc[:, shuffled]
    named.to_csv(path, sep="," if suffix == ".csv" else "\t", index=False)
    np.testing.assert_allclose(read_series(path, names=ROIS), SERIES, rtol=1e-6)
    np.testing.assert_allclose(read_series(path), SERIES[:, shuffled], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::bolt.io.errors.BoltWarning")
def test_columns_with_names_of_their_own_keep_their_order_unless_some_are_misplaced(tmp_path):
    for header in (NAMES, [*ROIS[:10], "other", "names"]):
        TABLE.to_csv(tmp_path / "a.csv", index=False, header=header)
        np.testing.assert_allclose(read_series(tmp_path / "a.csv", names=ROIS), SERIES, rtol=1e-6)
    TABLE.to_csv(tmp_path / "a.csv", index=False, header=[*ROIS[1:], "another"])
    with pytest.raises(DataError, match="the first that differs is 'roi 1', where the atlas has 'roi 0' .1 of"):
        read_series(tmp_path / "a.csv", names=ROIS)


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
@pytest.mark.parametrize("header", ["C,A,B", "made by hand\nC,A,B", "30,10,20"])
def test_columns_that_a_comment_names_follow_the_atlas(tmp_path, name, header):
    """As `numpy.savetxt` writes a header, whatever separates the numbers."""
    np.savetxt(tmp_path / name, SERIES[:, [2, 0, 1]], delimiter="," if name == "a.csv" else " ", header=header)
    read = read_series(tmp_path / name, [10, 20, 30], list("ABC"))
    np.testing.assert_allclose(read, SERIES[:, :3], rtol=1e-6)


@pytest.mark.parametrize(("prefix", "own"), [("7Networks_", ""), ("", "17Networks_"), ("7Networks_", "7Networks_")])
def test_names_of_schaefers_parcels_agree_with_and_without_the_networks(tmp_path, prefix, own):
    """The publisher and nilearn write them with it."""
    header = ",".join(f"{prefix}{name}" for name in "CAB")
    for comments in ("", "# ", f"# {header}\n"):
        np.savetxt(tmp_path / "a.csv", SERIES[:, [2, 0, 1]], delimiter=",", header=header, comments=comments)
        read = read_series(tmp_path / "a.csv", [1, 2, 3], [f"{own}{name}" for name in "ABC"])
        np.testing.assert_allclose(read, SERIES[:, :3], rtol=1e-6)


def test_columns_whose_names_are_unknown_are_read_by_position_with_a_warning(tmp_path):
    TABLE.to_csv(tmp_path / "a.csv", index=False, header=NAMES)
    with pytest.warns(BoltWarning, match="a.csv: none of the 12 names of columns, such as 'LH_0', is an ROI's"):
        read_series(tmp_path / "a.csv", names=ROIS)
    with warnings.catch_warnings(action="error"):
        read_series(tmp_path / "a.csv", names=NAMES)
        read_series(tmp_path / "a.csv")


@pytest.mark.parametrize("above", [codecs.BOM_UTF8, b"# made by AFNI\n", b"\n", b"#!ascii\n"])
def test_values_are_found_below_other_comments(tmp_path, above):
    (tmp_path / "a.1D").write_bytes(above + b"#30\t#10\t#20\n3\t1\t2\n6\t4\t5\n")
    assert read_series(tmp_path / "a.1D", [10, 20, 30]).tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("first", ["#30\t#10\t#20", "#030\t#010\t#020"])
def test_columns_follow_the_values_in_the_first_line(tmp_path, first):
    (tmp_path / "a.1D").write_text(f"{first}\n3\t1\t2\n6\t4\t5\n")
    assert read_series(tmp_path / "a.1D", [10, 20, 30]).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert read_series(tmp_path / "a.1D").tolist() == [[3, 1, 2], [6, 4, 5]]
    (tmp_path / "b.1D").write_text("# made by hand\n3\t1\t2\n6\t4\t5\n")
    assert read_series(tmp_path / "b.1D", [10, 20, 30]).tolist() == [[3, 1, 2], [6, 4, 5]]


@pytest.mark.parametrize("n", [3, 12])
def test_values_of_the_atlas_in_the_first_row_are_no_volume(tmp_path, n):
    """Whatever their number and order, and where an ROI is not covered."""
    values, expected = [12, 13, 700, *range(2001, 1998 + n)], SERIES[:, :n].copy()
    expected[:, 1] = np.nan
    shuffled = pd.DataFrame(expected, columns=values)[values[::-1]]
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"a{suffix}"
        shuffled.to_csv(path, sep=separator, index=False, na_rep="n/a")
        np.testing.assert_allclose(read_series(path, values, ROIS[:n]), expected, rtol=1e-6)
    path.write_text("1\n2\n4\n")
    assert len(read_series(path, [1])) == 3


@pytest.mark.parametrize(
    ("first", "n"),
    [("#30\t#10\t#40", 3), ("#10\t#20", 3), ("#10\t#20\t#20", 3), ("#20\t#10", 2), ("#10\t#20", 2)],
)
def test_values_in_the_first_line_of_another_atlas_are_refused(tmp_path, first, n):
    (tmp_path / "a.1D").write_text(f"{first}\n3\t1\t2\n6\t4\t5\n")
    with pytest.raises(DataError, match=f"a.1D: . named ROIs do not match the {n} of the atlas: the first that"):
        read_series(tmp_path / "a.1D", [10, 20, 30][:n])


def test_a_row_of_column_numbers_is_a_second_header_only_of_three_columns(tmp_path):
    """Of two ROIs, a volume with the values 0 and 1 is nothing odd."""
    values = np.random.default_rng(0).normal(5, 1, (20, 3)).round(3)
    values[7] = 0, 1, 2
    np.savetxt(tmp_path / "two.csv", values[:, :2], delimiter=",")
    assert read_series(tmp_path / "two.csv").shape == (20, 2)
    np.savetxt(tmp_path / "three.csv", values, delimiter=",")
    with pytest.raises(DataError, match="row 7 .* a second header"):
        read_series(tmp_path / "three.csv")
