"""Blocks: every source gives the same samples, and tells what is wrong with them."""

import gzip
import os
import pickle
import subprocess
import sys
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from mklearn import MKLClassifier, MKLDiscriminant, MKLRegressor, MultiView
from mklearn.blocks import (
    ArrayBlocks,
    CSVBlocks,
    GeneratorBlocks,
    NpyBlocks,
    ParquetBlocks,
)
from mklearn.data.blocks import Block
from mklearn.data.reading import as_blocks
from mklearn.data.sampling import sample_rows
from mklearn.datasets import make_groups
from mklearn.kernels import RBF, Linear
from written import run_page

N = 57
LOW = {"approximation": "nystroem", "rank": 20}
SPECS = [
    RBF(0.1, columns=range(4)),
    RBF(0.5, columns=range(4, 8)),
    Linear(columns=range(8, 12)),
]


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    y = np.array(["no", "yes"])[(X[:, 0] + X[:, 1] > 0).astype(int)]
    return X, y, rng.integers(1, 4, N).astype(float)


@pytest.fixture
def frame(samples):
    X, y, weight = samples
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(label=y, times=weight)


def sources(tmp_path, frame, rows):
    """Yield all sources of the same samples."""
    X = frame[["a", "b", "c"]].to_numpy()
    y, weight = frame["label"].to_numpy(dtype=str), frame["times"].to_numpy()
    yield ArrayBlocks(X, y, weight, rows=rows)
    yield ArrayBlocks(frame[["a", "b", "c"]], y, weight, rows=rows)
    for name, part in (("X", X), ("y", y), ("w", weight)):
        np.save(tmp_path / f"{name}.npy", part)
    yield NpyBlocks(*(tmp_path / f"{name}.npy" for name in "Xyw"), rows=rows)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    yield ArrayBlocks(mapped, y, weight, rows=rows)
    table = {"target": "label", "sample_weight": "times", "rows": rows}
    frame.to_csv(tmp_path / "all.csv", index=False)
    yield CSVBlocks(tmp_path / "all.csv", **table)
    frame[:20].to_csv(tmp_path / "one.csv.gz", index=False)
    frame[20:].to_csv(tmp_path / "two.csv.gz", index=False)
    yield CSVBlocks([tmp_path / "one.csv.gz", tmp_path / "two.csv.gz"], **table)
    frame.to_parquet(tmp_path / "all.parquet", row_group_size=10)
    yield ParquetBlocks(tmp_path / "all.parquet", **table)
    (tmp_path / "parts").mkdir()
    frame[:33].to_parquet(tmp_path / "parts" / "0.parquet")
    frame[33:].to_parquet(tmp_path / "parts" / "1.parquet")
    yield ParquetBlocks(tmp_path / "parts", columns=["a", "b", "c"], **table)

    def produce():
        for start in range(0, N, rows):
            part = slice(start, start + rows)
            yield X[part], y[part], weight[part]

    yield GeneratorBlocks(produce)
    yield GeneratorBlocks(list(produce()))


@pytest.mark.parametrize("rows", [1, 8, N, 1000])
def test_every_source_gives_the_same_samples(tmp_path, frame, samples, rows):
    X, y, weight = samples
    for source in sources(tmp_path, frame, rows):
        for _ in range(2):
            blocks = list(source)
            assert max(len(block.X) for block in blocks) <= rows
            # CSV files hold numbers in the shortest form that reads as the same
            assert np.array_equal(np.vstack([b.X for b in blocks]), X), source
            assert np.array_equal(np.concatenate([b.y for b in blocks]), y), source
            assert np.array_equal(np.concatenate([b.weight for b in blocks]), weight)


def test_sums_do_not_depend_on_the_source(tmp_path, frame, samples):
    X, _, weight = samples
    expected = (X * weight[:, None]).T @ X
    for source in sources(tmp_path, frame, 10):
        found = source.reduce(
            lambda block: (block.X * block.weight[:, None]).T @ block.X
        )
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert sum(source.map(lambda block: len(block.y))) == N


def test_columns_have_names(tmp_path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    blocks = CSVBlocks(tmp_path / "t.csv", "label", columns=["c", "a"])
    assert next(iter(blocks)).X.shape == (N, 2)
    assert blocks.names == ("c", "a")


def test_sparse_rows_and_views_pass(samples):
    X, y, _ = samples
    blocks = list(ArrayBlocks(sparse.coo_array(X * (X > 0)), y, rows=20))
    assert all(sparse.issparse(block.X) for block in blocks)
    views = MultiView({"left": X[:, :1], "right": X[:, 1:]})
    blocks = list(ArrayBlocks(views, y, rows=20))
    assert [len(block.X) for block in blocks] == [20, 20, 17]
    assert np.array_equal(blocks[1].X["right"], X[20:40, 1:])


def test_what_counts_as_blocks(samples):
    X, y, _ = samples
    assert as_blocks(X, y) is None
    assert as_blocks(MultiView({"X": X}), y) is None
    assert as_blocks(pd.DataFrame(X), y) is None
    source = ArrayBlocks(X, y)
    assert as_blocks(source) is source
    assert not as_blocks(lambda: iter([(X, y)])).one_pass
    assert as_blocks(iter([(X, y)])).one_pass
    with pytest.raises(ValueError, match="contain their targets"):
        as_blocks(source, y)


# --- what can be wrong ----------------------------------------------------------------


def test_a_generator_is_read_once(samples):
    X, y, _ = samples
    blocks = GeneratorBlocks(iter([(X, y)]))
    assert blocks.reduce(lambda block: len(block.X)) == N
    with pytest.raises(ValueError, match="needs several passes"):
        blocks.reduce(lambda block: len(block.X))


def test_a_sample_is_the_same_in_any_precision_and_order():
    rng = np.random.default_rng(0)
    # the last column tells rows apart in double precision only, or is out of range
    X = np.column_stack([rng.integers(0, 3, (200, 2)), 1.0 + 1e-12 * np.arange(200)])
    X[:5, 2] = [1e-300, 1e300, -1e300, 0.0, -0.0]
    whole = sample_rows(Block(X, None, np.ones(200)), 50, 0)
    turn = rng.permutation(200)
    parts = [Block(X[some], None, np.ones(len(some))) for some in np.split(turn, 4)]
    cut = reduce(add, [sample_rows(part, 50, 0) for part in parts])
    assert np.array_equal(cut.X, whole.X)
    rows = rng.standard_normal((200, 3))
    single = sample_rows(Block(rows.astype(np.float32), None, np.ones(200)), 50, 0)
    double = sample_rows(Block(rows, None, np.ones(200)), 50, 0)
    assert np.array_equal(single.X, double.X.astype(np.float32))


def test_a_function_must_return_the_same_blocks(samples):
    _, y, _ = samples
    rng = np.random.default_rng(0)
    blocks = GeneratorBlocks(lambda: iter([(rng.standard_normal((N, 3)), y)]))
    list(blocks)
    with pytest.raises(ValueError, match="other values than in the first pass"):
        list(blocks)


def test_a_function_must_not_run_dry(samples):
    X, y, _ = samples
    left = iter([[(X, y), (X, y)], [(X, y)]])
    blocks = GeneratorBlocks(lambda: iter(next(left)))
    list(blocks)
    with pytest.raises(ValueError, match="had 114 samples in the first pass"):
        list(blocks)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: iter([]), "contains no samples"),
        (lambda: (np.ones((2, 2)), np.ones(2)), "use yield instead of return"),
        (lambda: iter([(np.ones((2, 2)), 1, 1, 1)]), "has 4 parts"),
        (lambda: iter([np.ones(2)]), "must be a table"),
        (lambda: iter([(np.array([["a"]]),)]), "not a table of numbers"),
        (lambda: iter([(np.ones((2, 2)), np.ones(3))]), "2 samples but targets"),
        (
            lambda: iter([(np.ones((2, 2)), np.ones(2), np.ones(3))]),
            "2 samples but weights",
        ),
        (lambda: iter([(np.full((2, 2), np.nan), np.ones(2))]), "NaN or infinity"),
        (lambda: iter([(np.ones((2, 2)), [1.0, np.nan])]), "lacks the target of 1"),
        (lambda: iter([(np.ones((2, 1)), ["a", None])]), "lacks the target of 1"),
        (
            lambda: iter([(np.ones((2, 2)), [1, 2]), (np.ones((2, 3)), [1, 2])]),
            "Block 1 .* has 3 columns .* first block has 2 columns",
        ),
        (
            lambda: iter([(np.ones((1, 1)), [1]), (np.ones((1, 1)), ["a"])]),
            "targets that are text, but the first block has .* numbers",
        ),
        (
            lambda: iter([np.ones((1, 1)), (np.ones((1, 1)), ["a"])]),
            "the first block has 1 column and no targets",
        ),
    ],
)
def test_bad_blocks_are_told(source, message):
    with pytest.raises(ValueError, match=message):
        GeneratorBlocks(source).reduce(lambda block: 1)


def test_blocks_without_rows_are_passed_over(samples):
    X, y, _ = samples
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    parts = [
        (table.iloc[:0], y[:0]),
        (table.iloc[:20], y[:20]),
        (pd.DataFrame(columns=["a", "b", "c"]), []),  # columns of objects
        (table.iloc[20:], y[20:]),
        ([], []),
    ]
    blocks = GeneratorBlocks(lambda: iter(parts))
    assert blocks.map(lambda block: block.n_rows) == [20, 37]
    assert blocks.names == ("a", "b", "c")
    with pytest.raises(ValueError, match="contains no samples"):
        GeneratorBlocks([parts[0], parts[2]]).reduce(lambda block: block.n_rows)


def test_no_source_is_no_source():
    with pytest.raises(ValueError, match="takes a function"):
        GeneratorBlocks(3)
    with pytest.raises(ValueError, match="rows must be a positive integer"):
        ArrayBlocks(np.ones((2, 2)), rows=0)
    with pytest.raises(ValueError, match="X has 2 samples but y has 3"):
        ArrayBlocks(np.ones((2, 2)), np.ones(3))
    with pytest.raises(ValueError, match="at least one file"):
        CSVBlocks([])


def test_a_file_that_changes_is_told(tmp_path, frame):
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    blocks = CSVBlocks(path, "label", rows=10)
    list(blocks)
    frame[:50].to_csv(path, index=False)
    with pytest.raises(ValueError, match="was changed after it was first read"):
        list(blocks)
    blocks = CSVBlocks(path, "label", rows=10)
    reading = iter(blocks)
    next(reading)
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match="was changed while it was read"):
        list(reading)
    path.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        list(CSVBlocks(path, "label"))


def test_a_truncated_file_is_told(tmp_path, frame, samples):
    X = samples[0]
    np.save(tmp_path / "X.npy", X)
    whole = (tmp_path / "X.npy").read_bytes()
    (tmp_path / "X.npy").write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"X\.npy cannot be read to its end"):
        NpyBlocks(tmp_path / "X.npy")
    frame.to_parquet(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"t\.parquet cannot be read to its end"):
        list(ParquetBlocks(tmp_path / "t.parquet", "label"))
    text = frame.to_csv(index=False)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode())[:-200])
    with pytest.raises(ValueError, match=r"t\.csv\.gz cannot be read to its end"):
        list(CSVBlocks(tmp_path / "t.csv.gz", "label"))
    (tmp_path / "t.csv").write_text(text[: text.rindex(",yes")])
    with pytest.raises(ValueError, match=r"lacks the target|NaN or infinity"):
        list(CSVBlocks(tmp_path / "t.csv", "label"))


def test_lines_of_another_width_are_told(tmp_path):
    (tmp_path / "long.csv").write_text("a,b,y\n1,2,0\n1,2,3,0\n")
    with pytest.raises(ValueError, match=r"long\.csv cannot be read to its end"):
        list(CSVBlocks(tmp_path / "long.csv", "y"))
    (tmp_path / "short.csv").write_text("y,a,b\n0,1,2\n0,1\n")
    with pytest.raises(ValueError, match="row 1 of the block, column 'b'"):
        list(CSVBlocks(tmp_path / "short.csv", "y"))
    (tmp_path / "other.csv").write_text("y,a,c\n0,1,2\n")
    (tmp_path / "first.csv").write_text("y,a,b\n0,1,2\n")
    files = [tmp_path / "first.csv", tmp_path / "other.csv"]
    with pytest.raises(ValueError, match="has columns"):
        list(CSVBlocks(files, "y"))
    with pytest.raises(ValueError, match=r"other\.csv has no column 'b'"):
        list(CSVBlocks(files, "y", columns=["b"]))
    (tmp_path / "text.csv").write_text("y,a\n0,red\n")
    with pytest.raises(ValueError, match="column 'a' that are not numeric"):
        list(CSVBlocks(tmp_path / "text.csv", "y"))
    with pytest.raises(ValueError, match="no parquet file"):
        ParquetBlocks(tmp_path)


def test_files_of_different_lengths_are_told(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((5, 2)))
    np.save(tmp_path / "y.npy", np.ones(4))
    with pytest.raises(ValueError, match=r"samples, \[5, 4\]"):
        NpyBlocks(tmp_path / "X.npy", tmp_path / "y.npy")


# --- blocks made from blocks ----------------------------------------------------------


def test_derived_blocks_are_kept_where_there_is_room(samples):
    X, y, _ = samples
    made = []

    def double(block):
        made.append(block.n_rows)
        return block._replace(X=2 * block.X)

    expected = 2 * X.sum(axis=0)
    for keep, passes in ((0, 3), (10**6, 1)):
        source = ArrayBlocks(X, y, rows=10).keeping(keep)
        derived = source.then(double)
        made.clear()
        for _ in range(3):
            found = derived.reduce(lambda block: block.X.sum(axis=0))
            assert np.allclose(found, expected)
        assert sum(made) == passes * N
    block = next(iter(source.then(double).then(double)))
    assert np.array_equal(block.X, 4 * X[:10])


def test_some_blocks_are_kept_where_there_is_some_room(samples):
    X, y, _ = samples
    source = ArrayBlocks(X, y, rows=10).keeping(1000)  # for three blocks or so
    made = []
    derived = source.then(lambda block: made.append(0) or block)
    for _ in range(2):
        assert derived.map(lambda block: block.n_rows) == [10, 10, 10, 10, 10, 7]
    assert 6 < len(made) < 12


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_a_digit(samples, threads):
    X, y, _ = samples
    source = ArrayBlocks(X, y, rows=5)
    source.threads = threads
    expected = sum(X[i : i + 5].T @ X[i : i + 5] for i in range(0, N, 5))
    assert np.array_equal(source.reduce(lambda block: block.X.T @ block.X), expected)


def test_an_error_in_a_thread_comes_through(samples):
    X, y, _ = samples
    source = ArrayBlocks(X, y, rows=5)
    source.threads = 2

    def fail(block):
        raise ArithmeticError("no such sum")

    with pytest.raises(ArithmeticError, match="no such sum"):
        source.reduce(fail)


# --- models ---------------------------------------------------------------------------

MODELS = {
    "squared": MKLClassifier(SPECS, loss="squared", **LOW),
    "squared hinge": MKLClassifier(SPECS, loss="squared_hinge", tol=1e-8, **LOW),
    "regression": MKLRegressor(SPECS, **LOW),
    "discriminant": MKLDiscriminant(SPECS, **LOW),
}


MANY = MODELS | {"hinge": MKLClassifier(SPECS, loss="hinge", **LOW)}


@pytest.fixture(scope="module")
def groups():
    return make_groups(300, n_noise=0, random_state=0)


def answers(model, X):
    """Return what a model says, as numbers."""
    return getattr(model, "decision_function", model.predict)(X)


@pytest.mark.parametrize("name", MODELS)
def test_models_do_not_depend_on_blocks(name, groups):
    X, y = groups
    alone = clone(MODELS[name]).fit(X, y)
    expected = answers(alone, X)
    for rows in (37, 100, 1000):
        model = clone(MODELS[name]).fit(ArrayBlocks(X, y, rows=rows))
        assert model.kernel_names_ == alone.kernel_names_
        np.testing.assert_allclose(
            model.kernel_weights_, alone.kernel_weights_, atol=1e-6
        )
        np.testing.assert_allclose(answers(model, X), expected, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_models_do_not_depend_on_the_order(name, groups):
    X, y = groups
    alone = clone(MODELS[name]).fit(X, y)
    order = np.random.default_rng(1).permutation(len(X))
    blocks = ArrayBlocks(X[order], y[order], rows=64)
    model = clone(MODELS[name]).fit(blocks)
    np.testing.assert_allclose(model.kernel_weights_, alone.kernel_weights_, atol=1e-6)
    np.testing.assert_allclose(answers(model, X), answers(alone, X), atol=1e-5)


def fitted_in_a_process(threads, blas):
    """Return the answers of all models that a process with so many threads fits."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
import test_blocks
from sklearn.base import clone
X, y = test_blocks.make_groups(5000, n_noise=0, random_state=0)
for name, model in test_blocks.MANY.items():
    model = clone(model).fit(X, y)
    answer = np.append(test_blocks.answers(model, X), model.kernel_weights_)
    print(name, answer.tobytes().hex(), sep="|")
"""
    sizes = {"NUMBA_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(blas)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | sizes,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("|") for line in run.stdout.splitlines())


def test_threads_do_not_change_a_digit_of_a_model():
    alone = fitted_in_a_process(1, 1)
    assert list(alone) == list(MANY)
    for threads, blas in ((2, 2), (3, 1)):
        for name, answer in fitted_in_a_process(threads, blas).items():
            assert answer == alone[name], (name, threads, blas)


def test_models_on_all_files(tmp_path, frame, samples):
    X, y, weight = samples
    model = MKLClassifier(RBF(0.5), loss="squared", **LOW)
    expected = model.fit(X, y, sample_weight=weight).decision_function(X)
    for source in sources(tmp_path, frame, 10):
        model.fit(source)
        assert model.classes_.tolist() == ["no", "yes"]
        names = getattr(model, "feature_names_in_", None)
        rows = X if names is None else frame[list(names)]
        np.testing.assert_allclose(
            model.decision_function(rows), expected, atol=1e-8, err_msg=repr(source)
        )


def test_predictions_on_blocks(tmp_path, frame, samples):
    X, y, _ = samples
    model = MKLClassifier(RBF(0.5)).fit(X, y)  # any model can read new rows so
    expected = model.decision_function(X)
    named = clone(model).fit(frame[["a", "b", "c"]], y)
    for source in sources(tmp_path, frame, 10):
        chosen = model
        if isinstance(source, CSVBlocks | ParquetBlocks) or hasattr(
            getattr(source, "X", None), "columns"
        ):
            chosen = named
        np.testing.assert_allclose(
            chosen.decision_function(source), expected, atol=1e-12, err_msg=repr(source)
        )
        assert np.array_equal(chosen.predict(source), model.predict(X))
    assert len(model.predict(iter([X[:5], X[5:9]]))) == 9
    with pytest.raises(ValueError, match="contains no samples"):
        model.predict(iter([]))


def test_blocks_need_an_approximation(groups):
    X, y = groups
    for source in (ArrayBlocks(X, y), iter([(X, y)]), lambda: iter([(X, y)])):
        with pytest.raises(ValueError, match="comes in blocks"):
            MKLClassifier().fit(source)


def test_a_generator_is_enough_where_one_pass_is(groups):
    X, y = groups
    parts = [(X[i : i + 50], y[i : i + 50]) for i in range(0, 300, 50)]
    for name in ("squared", "regression", "discriminant"):
        expected = answers(clone(MODELS[name]).fit(X, y), X)
        model = clone(MODELS[name]).fit(iter(parts))
        np.testing.assert_allclose(answers(model, X), expected, atol=1e-8)
    model = MKLClassifier(SPECS, loss="logistic", **LOW)
    with pytest.raises(ValueError, match="needs several passes"):
        model.fit(iter(parts))
    model.fit(lambda: iter(parts))
    assert model.score(X, y) > 0.7
    with pytest.raises(ValueError, match="contains no samples"):
        clone(MODELS["squared"]).fit(iter([]))


# --- sums of samples that arrive over time --------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sums_fit_the_model_of_all_samples(groups, n_classes):
    X, y = groups
    y = np.array(["b", "a", "c"])[y + (X[:, 3] > 1) * (n_classes > 2)]
    model = MKLClassifier(SPECS, loss="squared", **LOW)
    first = model.accumulator(X)
    # one class after the other: later ones are not known at first
    order = np.argsort(y, kind="stable")
    parts = []
    for rows in np.array_split(order, 5):
        parts.append(pickle.loads(pickle.dumps(first)))  # as if sent elsewhere
        for few in np.array_split(rows, 3):
            parts[-1].update(X[few], y[few])
    a, b, c, d, e = parts
    for settings in ({"C": 1.0}, {"C": 0.1, "norm": 1}, {"weights": "per-class"}):
        expected = clone(model).set_params(**settings).fit(X, y)
        for sums in (a + b + c + d + e, a + ((b + c) + (d + e)), e + d + c + b + a):
            assert sums.n_rows == 300
            found = clone(model).set_params(**settings).fit_statistics(sums)
            assert found.classes_.tolist() == expected.classes_.tolist()
            np.testing.assert_allclose(
                found.decision_function(X), expected.decision_function(X), atol=1e-6
            )
            np.testing.assert_allclose(
                found.kernel_weights_, expected.kernel_weights_, atol=1e-6
            )
    assert first.n_rows == 0  # copies are added to, not what they are copied from


def test_sums_of_values_and_weights(groups):
    X, _ = groups
    Y = np.column_stack([X[:, 0] ** 2 + 3.0, X[:, 9]])
    weight = np.arange(300) % 3 + 0.5
    for y in (Y, Y[:, 0]):
        model = MKLRegressor(SPECS, tol=1e-8, **LOW)
        expected = clone(model).fit(X, y, sample_weight=weight).predict(X)
        sums = model.accumulator(X, sample_weight=weight)
        for part in np.array_split(np.arange(300), 7):
            sums.update(X[part], y[part], sample_weight=weight[part])
        found = model.fit_statistics(sums).predict(X)
        assert found.shape == y.shape
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_sums_fit_discriminants(groups):
    X, y = groups
    model = MKLDiscriminant(SPECS, **LOW)
    sums = model.accumulator(X)
    for part in np.array_split(np.arange(300), 4):
        sums.update(X[part], y[part])
    for reg in (1e-3, 1e-1, "learn", "gcv"):
        expected = clone(model).set_params(reg=reg).fit(X, y)
        found = clone(model).set_params(reg=reg).fit_statistics(sums)
        np.testing.assert_allclose(found.reg_, expected.reg_, rtol=1e-5)
        np.testing.assert_allclose(
            np.abs(found.transform(X)), np.abs(expected.transform(X)), atol=1e-5
        )
    with pytest.raises(ValueError, match="reg='loo', which needs several passes"):
        model.set_params(reg="loo").fit_statistics(sums)


def test_sums_keep_names(groups):
    X, y = groups
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)])
    model = MKLClassifier(SPECS, loss="squared", **LOW)
    sums = model.accumulator(frame)
    sums.update(frame, y)
    assert model.fit_statistics(sums).feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="has columns"):
        sums.update(frame[frame.columns[::-1]], y)


def test_bad_sums_are_told(groups):
    X, y = groups
    model = MKLClassifier(SPECS, loss="squared", **LOW)
    sums = model.accumulator(X)
    for bad, message in (
        (lambda: model.fit_statistics(sums), "Found n_samples=0"),
        (lambda: model.fit_statistics((X, y)), "takes an Accumulator, got tuple"),
        (lambda: MKLRegressor(SPECS, **LOW).fit_statistics(sums), "learns from values"),
        (lambda: sums + model.accumulator(X), "over different features"),
        (lambda: sums.update(X[:, :3], y), "X has 3 columns"),
        (lambda: sums.update(X, None), "y is None"),
        (lambda: sums.update(X, y[:-1]), "300 samples but targets"),
        (lambda: MKLClassifier(loss="hinge", **LOW).accumulator(X), "loss='hinge'"),
        (lambda: MKLClassifier(loss="squared").accumulator(X), "approximation="),
        (
            lambda: clone(model).set_params(class_weight="balanced").accumulator(X),
            "class_weight='balanced'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            bad()
    sums.update(X[y == 0], y[y == 0])
    with pytest.raises(ValueError, match="at least 2 classes"):
        model.fit_statistics(sums)


def test_pages_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_page("blocks.md")
    assert names["model"].score(names["X"], names["y"]) > 0.7
