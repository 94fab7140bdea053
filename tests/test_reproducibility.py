"""The promises of docs/reproducibility.md: same bits, same bounds, equally good."""

import hashlib
import json
import os
import pickle
import platform
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack
from sklearn.base import clone

from cases import rounding, samples, small
from mklearn import (
    BestKernelClassifier,
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLRegressor,
    MKLRegressorCV,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceClassifierCV,
    kernels,
    solve,
)
from mklearn.data import threads
from mklearn.estimators._targets import decided
from mklearn.estimators._training import merge_equal
from mklearn.kernels import factors
from mklearn.persistence import load, save
from processors import THREADS, imitations

LADDER = [kernels.RBF(0.1), kernels.RBF(1.0), kernels.Linear()]
LOW = {"approximation": "nystroem", "rank": 30}


def data(n=120, n_classes=3):
    X, y = samples(n, n_classes=n_classes)
    return X, y, X[:, 0] + np.sin(3 * X[:, 1])


def models():
    return [
        MKLClassifier(LADDER),
        MKLClassifier(LADDER, norm=1, loss="logistic"),
        MKLClassifier(LADDER, loss="squared", **LOW),
        MKLClassifier(LADDER, approximation="rff", rank=40),
        MKLRegressor(LADDER),
        MKLRegressor(LADDER, **LOW),
        MKLDiscriminant(LADDER),
        MKLDiscriminant(LADDER, **LOW),
        BilinearMKLClassifier(LADDER[:2]),
        EvidenceMKLRegressor(LADDER[:2]),
        SubspaceClassifier(LADDER),
        SubspaceClassifier(LADDER[:1], criterion="alignment"),
    ]


def fitted(model, n=120):
    X, y, numbers = data(n)
    regression = "Regressor" in type(model).__name__
    return model.fit(X, numbers if regression else y)


def answers(model, X):
    scores = getattr(model, "decision_function", model.predict)(X)
    return np.concatenate([np.ravel(model.kernel_weights_), np.ravel(scores)])


# --- the same bits --------------------------------------------------------------------


def digests():
    """Return a hash of the answers of each model, some of them of more samples."""
    X = data()[0]
    found = {}
    for number, model in enumerate(models()):
        # one of a size at which factors are cut into pieces
        some = fitted(model, 1050 if number == 4 else 150)
        name = f"{number} {type(model).__name__}"
        found[name] = hashlib.sha256(answers(some, X).tobytes()).hexdigest()
    return found


def bounds():
    """Return the bounds of some problems, solved and judged here."""
    found = []
    for p in (1, 4 / 3, 2, np.inf):
        for C in (0.1, 10.0):
            task = small(C=C, p=p)
            solution = solve(task, tol=1e-5)
            above, below = rounding(task, solution)
            found.append((solution.lower - below, solution.upper + above, solution.gap))
    return found


def elsewhere(question, environment):
    """Return the answer of another process."""
    code = f"import json, test_reproducibility as t; print(json.dumps(t.{question}()))"
    root = Path(__file__).parents[1]
    paths = [str(root / "tests"), str(root / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_number_of_threads_does_not_change_a_bit():
    one, several = (
        elsewhere("digests", dict.fromkeys(THREADS, count)) for count in ("1", "3")
    )
    assert one == several


@pytest.mark.parametrize("n", [40, 1000, 1300])
def test_factors_are_the_same_on_any_number_of_threads(n, monkeypatch):
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(n, n + 9)), rng.normal(size=(n, 70))
    K = X @ X.T / n + 0.1 * np.eye(n)
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "n_threads", lambda count=count: count)
        L, positive = factors.cholesky(K.copy().T)
        assert positive
        np.testing.assert_array_equal(np.triu(L, 1), np.triu(K, 1))
        half, back = (factors.solve_triangle(L, B, trans) for trans in (False, True))
        P, W = factors.inverse(L), factors.invert_triangle(L.copy(order="F"))
        found.append([np.tril(L), half, back, P, np.tril(W)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    L, half, back, P, W = found[0]
    for a, b in [
        (L @ L.T, K),
        (L @ half, B),
        (L.T @ back, B),
        (W @ L, np.eye(n)),
        ((P + np.tril(P, -1).T) @ K, np.eye(n)),
    ]:
        np.testing.assert_allclose(a, b, atol=1e-9)
    assert not factors.cholesky(-K.copy().T)[1]


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifierCV(LADDER, Cs=[0.1, 1.0], norms=[1, 2], cv=2),
        MKLRegressorCV(LADDER, Cs=[0.1, 1.0], norms=[1, 2], cv=2),
        SubspaceClassifierCV(LADDER, regs=[0.1], Cs=[1.0, 10.0], cv=2),
        BestKernelClassifier(LADDER, cv=2),
        SingleKernelCV(MKLClassifier(), LADDER, values=[1.0, 10.0], cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_number_of_jobs_does_not_change_a_bit(model):
    X = data()[0]
    one, two = (fitted(clone(model).set_params(n_jobs=k)) for k in (None, 2))
    np.testing.assert_array_equal(answers(one, X), answers(two, X))
    if hasattr(one, "scores_"):
        np.testing.assert_array_equal(one.scores_, two.scores_)


def twice(X, Z):
    return X @ Z.T + (X @ Z.T) ** 2


@pytest.mark.parametrize("storage", ["float64", "float32", "mmap"])
def test_other_processes_see_the_values_that_were_computed_here(storage):
    X = data()[0]
    bank = KernelBank(X, [*LADDER, twice]).stored(storage=storage)
    sent = pickle.loads(pickle.dumps(bank.travelling()))
    assert sent.storage == bank.storage != "recompute"
    part = np.ix_(np.arange(0, 90, 2), np.arange(1, 90, 2))
    for m in range(len(LADDER) + 1):
        np.testing.assert_array_equal(sent[part].gram(m), bank[part].gram(m))
    # what is saved or sent otherwise is as small as the samples
    assert len(pickle.dumps(bank)) < 8 * X.size + 20_000
    assert pickle.loads(pickle.dumps(bank)).storage == "recompute"


def arrays(value, at="model"):
    """Yield the arrays of numbers in an object of ours, and where they stand."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield at, value
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from arrays(part, f"{at}[{i}]")
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from arrays(part, f"{at}[{key!r}]")
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays(getattr(value, field.name), f"{at}.{field.name}")


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_saving_does_not_change_a_bit(model, tmp_path):
    X, _, _ = data()
    fitted(model)
    save(model, tmp_path / "model.mkl")
    for again in (load(tmp_path / "model.mkl"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(answers(model, X), answers(again, X))
        found = dict(arrays(vars(again)))
        for at, array in arrays(vars(model)):
            order = array.flags.c_contiguous, array.flags.f_contiguous
            assert any(order), at
            same = found[at].flags
            assert (same.c_contiguous, same.f_contiguous) == order, at
            assert same.aligned and found[at].dtype == array.dtype


# --- the same up to the certificate ---------------------------------------------------


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"),
    reason="other processors are imitated on x86-64",
)
def test_another_processor_proves_the_same_optimum():
    known = imitations()
    other = elsewhere("bounds", {**known["prescott"], **known["numpy-sse"]})
    for (a, b, gap), (lower, upper, there) in zip(bounds(), other, strict=True):
        assert max(gap, there) <= 1e-5
        # the optimum lies between the bounds of both
        assert max(a, lower) <= min(b, upper)


def test_rounding_does_not_decide_between_classes():
    # a sample on the margins of two classes has the score -1 for both
    scores = np.array([[-1.0, -1.0, -3.0], [-3.0, -1.0, -1.0]]).repeat(30, axis=0)
    noise = np.random.default_rng(0).integers(-20, 21, size=scores.shape)
    noisy = scores * (1 + noise * np.finfo(float).eps)
    assert decided(noisy).tolist() == [0] * 30 + [1] * 30
    # what is larger than rounding decides
    larger = scores + np.array([0.0, 1e-9, 2e-9])
    assert decided(larger).tolist() == [1] * 30 + [2] * 30


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_rounding_of_the_data_does_not_change_the_folds(form):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 5)) * 10.0 ** np.arange(-2, 3)
    X[:, 3] = X[:, 3].mean() / 3.0  # constant
    y = X[:, 0] * 100 + X[:, 1] + rng.normal(size=90)
    off = np.finfo(float).eps * rng.integers(-8, 9, size=X.shape)
    order = rng.permutation(90)
    scores = []
    for rows, values in ((X, y), (X * (1 + off), y * (1 + off[:, 0])), (X, y)):
        centred = rows - (0.0 if form is csr_array else rows.mean(axis=0))
        if len(scores) == 2:
            centred, values = centred[order], values[order]
        # the sum of all kernels has a closed form, so that only folds could differ
        model = MKLRegressorCV("rbf", norms=[np.inf], Cs=[0.1, 10], cv=4, tol=1e-9)
        scores.append(model.fit(form(centred), values).scores_)
    np.testing.assert_allclose(scores[1], scores[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(scores[2], scores[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("largest", [3.0, 1e7])
def test_rows_with_the_same_columns_are_spread_over_the_folds(largest):
    rng = np.random.default_rng(0)
    # beside one very large value, the others are equal up to the resolution
    dose = np.append(np.repeat(np.arange(4.0), 25), largest)
    y = np.sin(dose) + 0.1 * rng.normal(size=101)
    off = np.finfo(float).eps * rng.integers(-8, 9, size=101)
    order = rng.permutation(101)
    scores = [
        MKLRegressorCV("rbf", norms=[np.inf], Cs=[10], tol=1e-9)
        .fit(X[:, None], values).scores_.ravel()
        for X, values in ((dose, y), (dose * (1 + off), y), (dose[order], y[order]))
    ]  # fmt: skip
    # without any sample of a dose in training, scores would be far below zero
    assert scores[0].min() > 0.8
    np.testing.assert_allclose(scores[1], scores[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(scores[2], scores[0], rtol=0, atol=1e-6)


def test_sparse_tables_may_have_several_numbers_in_one_place():
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, size=(30, 4)).astype(float)
    X[15:] = X[:15]
    plain = csr_array(X)
    y = np.tile(np.arange(15.0), 2)[:, None]
    known = merge_equal(plain, y, np.ones(30))
    values = [[v, 2.0**50, -(2.0**50)] for v in plain.data]
    parts = np.ravel(values), np.repeat(plain.indices, 3), 3 * plain.indptr
    several = vstack([plain[:15], csr_array(parts, shape=X.shape)[15:]], format="csr")
    size = len(several.data)
    for one, other in zip(known, merge_equal(several, y, np.ones(30)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(several.data) == size  # not changed


def test_wide_sparse_tables_are_ordered_in_large_parts(monkeypatch):
    parts = np.ones(50), np.arange(50), np.arange(51)
    wide = csr_array(parts, shape=(50, 10**6))
    looked, largest = [], csr_array.max

    def counted(self, **options):
        looked.append(1)
        return largest(self, **options)

    monkeypatch.setattr(csr_array, "max", counted)
    first, group, _ = merge_equal(wide, np.arange(50.0)[:, None], np.ones(50))
    assert sorted(first) == list(range(50)) and len(looked) == 1
    np.testing.assert_array_equal(first[group], np.arange(50))


# --- equally good ---------------------------------------------------------------------


def test_local_optima_say_that_they_are():
    X, y, _ = data()
    model = SubspaceClassifier(LADDER[:1], criterion="alignment").fit(X, y)
    assert np.isnan(model.duality_gap_)
    narrow = SubspaceClassifier(LADDER, criterion="svm", n_components=1).fit(X, y)
    assert "no certificate of global optimality" in narrow.solution_.message
