"""MultiView: what may be a view, and slicing as scikit-learn does it."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from mklearn import KernelBank, MultiView
from mklearn.kernels import per_view

rng = np.random.default_rng(0)
n = 12
TABLE = rng.normal(size=(n, 3))
STRINGS = ["".join(rng.choice(list("ACGT"), 6)) for _ in range(n)]
VIEWS = {
    "array": TABLE,
    "float32": TABLE.astype(np.float32),
    "whole": np.arange(2 * n).reshape(n, 2),
    "bool": TABLE > 0,
    "frame": pd.DataFrame(TABLE, columns=["a", "b", "c"]),
    "mixed": pd.DataFrame({"x": np.arange(n), "y": TABLE[:, 0] > 0, "z": TABLE[:, 1]}),
    "nullable": pd.DataFrame({"x": pd.array(range(n), dtype="Int64")}),
    "csr": sparse.csr_array(TABLE * (TABLE > 0)),
    "csc": sparse.csc_matrix(TABLE * (TABLE > 0)),
    "column": np.arange(n),
    "series": pd.Series(np.arange(n) / 2),
    "list": [[float(i), 1.0] for i in range(n)],
    "strings": STRINGS,
    "string array": np.array(STRINGS),
    "object array": np.array(STRINGS, dtype=object),
    "string series": pd.Series(STRINGS),
    "string frame": pd.DataFrame({"s": STRINGS}),
}
TEXT = {name for name in VIEWS if name.startswith(("string", "object"))}
DATA = MultiView(VIEWS)


def plain(view):
    return view.toarray() if sparse.issparse(view) else view


def as_table(view):
    table = view.to_numpy() if hasattr(view, "to_numpy") else plain(view)
    return np.asarray(table, dtype=float).reshape(n, -1)


@pytest.mark.parametrize("name", VIEWS)
def test_kinds_of_views(name):
    view = DATA[name]
    assert DATA.is_text(name) == (name in TEXT)
    if name in TEXT:
        assert view.tolist() == STRINGS
    else:
        assert view.dtype == np.float64
        np.testing.assert_allclose(plain(view), as_table(VIEWS[name]), rtol=1e-6)


def test_shape_and_names():
    assert DATA.names == tuple(VIEWS) == tuple(DATA)
    columns = [1 if name in TEXT else DATA[name].shape[1] for name in VIEWS]
    assert DATA.shape == (n, sum(columns))
    assert len(DATA) == n
    assert DATA.ndim == 2
    assert "csr" in DATA and "nothing" not in DATA
    assert DATA.column_names("frame") == ("a", "b", "c")
    assert DATA.column_names("array") is None
    assert "frame: 3" in repr(DATA) and "strings: strings" in repr(DATA)


@pytest.mark.parametrize(
    "key",
    [
        [3, 0, 3], np.array([-1, 2]), np.arange(n) % 2 == 0, [True] * n, slice(2, 9, 3),
        [], np.array([], dtype=int), 4, np.int64(4), slice(None), pd.Series([1, 2]),
    ],
    ids=str,
)  # fmt: skip
def test_rows_are_sliced_in_all_views(key):
    index = key if isinstance(key, slice) or np.size(key) else np.empty(0, dtype=int)
    rows = np.atleast_1d(np.arange(n)[index])
    for part in (DATA[key], DATA[key, ...], DATA[key, :]):
        assert part.shape == (len(rows), DATA.shape[1])
        assert part.names == DATA.names
        assert part.column_names("frame") == ("a", "b", "c")
        for name in VIEWS:
            np.testing.assert_array_equal(plain(part[name]), plain(DATA[name])[rows])
    assert DATA[[1, 3]][[1]]["strings"].tolist() == STRINGS[3:4]


@pytest.mark.parametrize("key", [n, [n], [True, False], [0.5], (0, 1), ([0], [1]), ()])
def test_bad_rows(key):
    with pytest.raises(IndexError):
        DATA[key]


def test_splitters_take_it():
    y = np.arange(n) % 2
    for splitter in (KFold(3), StratifiedKFold(3)):
        for train, test in splitter.split(DATA, y):
            assert len(DATA[train]) + len(DATA[test]) == n
    parts = train_test_split(DATA, TABLE, y, test_size=0.25, random_state=0)
    train, test, train_table, test_table, *_ = parts
    assert isinstance(train, MultiView)
    np.testing.assert_array_equal(train["array"], train_table)
    np.testing.assert_array_equal(test["array"], test_table)
    np.testing.assert_array_equal(plain(test["csr"]), np.maximum(test_table, 0.0))


def test_a_bank_of_a_slice_is_a_slice_of_the_bank():
    data = MultiView({"num": TABLE, "sparse": VIEWS["csr"], "seq": STRINGS})
    kernels = [per_view("linear"), per_view("spectrum")]
    rows = [5, 2, 7]
    whole, part = KernelBank(data, kernels), KernelBank(data[rows], kernels)
    theta = np.ones(3)
    np.testing.assert_allclose(
        part.combine(theta), whole[np.ix_(rows, rows)].combine(theta)
    )


def test_from_columns():
    for table in (TABLE, VIEWS["frame"], VIEWS["csr"]):
        data = MultiView.from_columns(
            table, {"one": [2, 0], "two": slice(1, 3), "three": 1}
        )
        want = plain(table) if sparse.issparse(table) else np.asarray(table)
        np.testing.assert_array_equal(plain(data["one"]), want[:, [2, 0]])
        np.testing.assert_array_equal(plain(data["two"]), want[:, 1:])
        np.testing.assert_array_equal(plain(data["three"]), want[:, [1]])
    data = MultiView.from_columns(VIEWS["frame"], {"one": ["c", "a"]})
    assert data.column_names("one") == ("c", "a")
    with pytest.raises(ValueError, match="'z' is not in view 'X'"):
        MultiView.from_columns(VIEWS["frame"], {"one": "z"})
    with pytest.raises(ValueError, match="at least one column"):
        MultiView.from_columns(TABLE, {"one": []})


def test_from_table_and_wrap():
    data = MultiView.from_table(TABLE, ["a", "b", "c"])
    assert data.column_names() == ("a", "b", "c")
    assert MultiView.from_table(TABLE).column_names() is None
    with pytest.raises(ValueError, match="2 names for 3 columns"):
        MultiView.from_table(TABLE, ["a", "b"])
    assert MultiView.wrap(data) is data
    assert MultiView.wrap(TABLE).names == ("X",)


def test_input_is_used_where_it_lies():
    assert np.shares_memory(MultiView({"x": TABLE})["x"], TABLE)
    assert np.shares_memory(MultiView({"x": VIEWS["csr"]})["x"].data, VIEWS["csr"].data)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ({}, "non-empty mapping"),
        ([TABLE], "non-empty mapping"),
        ({0: TABLE}, "named by strings"),
        ({"a": TABLE, "b": TABLE[:5]}, "same number of samples"),
        ({"a": TABLE, "b": STRINGS[:5]}, "same number of samples"),
        ({"a": ["A", 1.0]}, "neither numeric nor a sequence of strings"),
        ({"a": 3.0}, r"shape \(\)"),
        ({"a": None}, "NaN or infinity|shape"),
    ],
)
def test_bad_views(views, message):
    with pytest.raises(ValueError, match=message):
        MultiView(views)


def test_unknown_views_and_arrays():
    with pytest.raises(ValueError, match="Unknown view 'nothing'"):
        DATA["nothing"]
    with pytest.raises(TypeError, match="not an array"):
        np.asarray(DATA)
