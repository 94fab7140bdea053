"""Sums of exponentials by look-up: as good as the exponentials, and found in time."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mklearn import KernelBank, kernels
from mklearn.kernels.expsums import Grid, Tables
from mklearn.kernels.normalise import fit_normaliser

rng = np.random.default_rng(0)
M = 12
GAMMAS = 10.0 ** rng.uniform(-3, 1, M)
FAMILIES = {
    "rbf": lambda b, g: np.exp(-g * b),
    "laplacian": lambda b, g: np.exp(-g * np.sqrt(b)),
    "matern32": lambda b, g: (1 + g * np.sqrt(b)) * np.exp(-g * np.sqrt(b)),
    "matern52": lambda b, g: (
        (1 + g * np.sqrt(b) + g * g * b / 3) * np.exp(-g * np.sqrt(b))
    ),
}
NUMBERS = {
    "rbf": (0, 0, 0),
    "laplacian": (1, 0, 0),
    "matern32": (1, 1, 0),
    "matern52": (1, 1, 1 / 3),
}


def maps(family, gammas=GAMMAS):
    return np.array([(g, *NUMBERS[family]) for g in gammas], dtype=float)


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [
        *((s, np.float64) for s in (0.0, 1e-300, 1e-9, 1e-3, 1.0, 1e3, 1e6, 1e300)),
        *((s, np.float32) for s in (0.0, 1e-30, 1e-9, 1e-3, 1.0, 1e3, 1e6)),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_look_up_is_as_good_as_the_exponentials(family, scale, dtype):
    B = (scale * rng.gamma(1.0, size=(7, 300))).astype(dtype)
    B[0, :3] = 0.0
    grid = Grid(maps(family))
    for weights in (rng.random(M), rng.normal(size=M), np.eye(M)[3]):
        with np.errstate(over="ignore", invalid="ignore"):
            exact = sum(
                w * np.nan_to_num(FAMILIES[family](B.astype(float), g))
                for w, g in zip(weights, GAMMAS, strict=True)
            )
        out = np.ones(B.shape)
        grid.add(grid.coefficients(weights), B, out)
        atol = 2e-14 * np.abs(weights).sum()
        np.testing.assert_allclose(out, 1.0 + exact, rtol=0, atol=atol)


@pytest.mark.parametrize("family", FAMILIES)
def test_quadratic_forms_are_those_of_the_grams(family):
    B = rng.gamma(1.0, size=(40, 500)) * 10.0 ** rng.uniform(-4, 4, (40, 500))
    left, right = rng.normal(size=(40, 2)), rng.normal(size=(500, 2))
    found = Grid(maps(family)).quads(B, left, right)
    for g, q in zip(GAMMAS, found, strict=True):
        exact = np.sum(left * (FAMILIES[family](B, g) @ right))
        assert abs(q - exact) < 1e-13 * np.abs(left @ right.T).sum()


def test_there_are_tables_only_where_they_pay():
    assert Grid.suits(maps("rbf"))
    assert not Grid.suits(maps("rbf")[:3])
    assert not Grid.suits(np.r_[maps("rbf"), maps("laplacian")])
    assert not Grid.suits(maps("rbf", [0.0, 1.0, 1.0, 1.0, 1.0]))
    assert not Grid.suits(maps("rbf", [1e-30, 1.0, 1.0, 1.0, 1.0]))


def test_the_last_tables_are_kept():
    tables, weights = Tables(size=2), rng.random(M)
    grid, table = tables.table(maps("rbf"), weights)
    assert tables.table(maps("rbf"), weights)[1] is table
    for _ in range(2):  # others drive it out
        assert tables.table(maps("rbf"), rng.random(M))[0] is grid
    again = tables.table(maps("rbf"), weights)[1]
    assert again is not table
    np.testing.assert_array_equal(again, table)
    assert tables.table(maps("rbf")[:2], weights[:2]) is None
    assert pickle.loads(pickle.dumps(tables)).size == 2


def test_answers_do_not_depend_on_what_was_asked_before():
    X = np.random.default_rng(1).normal(size=(90, 3))
    first, second = (KernelBank(X, kernels.rbf_ladder(gammas=GAMMAS)) for _ in "ab")
    theta, rows = rng.random(M), [3]
    for bank in (first, second):
        bank.stored()
    fresh = first.columns(rows, theta)
    second.columns(rows, theta, many=True)  # makes a table
    np.testing.assert_array_equal(second.columns(rows, theta), fresh)


def test_threads_share_a_table():
    tables, weights = Tables(), rng.random(M)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(tables.table, maps("rbf"), weights) for _ in range(16)]
    found = [a.result()[1] for a in asked]
    assert all(table is found[0] for table in found)


@pytest.mark.parametrize("normalize", [None, "multiplicative", "center"])
@pytest.mark.parametrize("storage", ["float64", "recompute"])
@pytest.mark.parametrize(
    "ladder",
    [
        kernels.rbf_ladder(gammas=GAMMAS),
        [kernels.Laplacian(g) for g in GAMMAS],
        [kernels.Matern52(g) for g in GAMMAS],
        [kernels.Linear(), *(kernels.RBF(g) for g in GAMMAS)],
    ],
    ids=["rbf", "laplacian", "matern", "mixed"],
)
def test_large_banks_answer_by_look_up_as_small_ones_do(ladder, storage, normalize):
    n = 1100  # more than one tile of columns, and values enough for a table
    X = np.random.default_rng(1).normal(size=(n, 5))
    raw = KernelBank(X, ladder).stored(storage=storage)
    bank = fit_normaliser(normalize, raw).train(raw)
    theta = np.random.default_rng(2).random(bank.shape[2])
    rows = np.array([3, 700, 1099])
    few = bank[np.ix_(rows, np.arange(n))]  # too few values for a table
    K = sum(t * few.gram(m) for m, t in enumerate(theta))
    size = np.abs(K).max()
    for answer in (bank.combine(theta)[rows], bank.columns(rows, theta)):
        np.testing.assert_allclose(answer, K, rtol=0, atol=1e-12 * size)
    A = np.random.default_rng(3).normal(size=(n, 2))
    A[::3] = 0.0
    np.testing.assert_allclose(
        bank.apply(theta, A)[rows], K @ A, rtol=0, atol=1e-11 * size
    )
    S = bank.multiply(A)
    np.testing.assert_allclose(S[rows] @ theta, K @ A, rtol=0, atol=1e-11 * size)
    np.testing.assert_allclose(
        bank.quad(A), np.einsum("it,itm->m", A, S), rtol=1e-10, atol=1e-9 * size
    )
    rough = bank.rough().columns(rows, theta)
    np.testing.assert_allclose(rough, K, rtol=0, atol=1e-5 * size)


def test_a_rough_base_stays_exact_where_single_precision_would_not_do():
    X = np.random.default_rng(1).normal(size=(30, 5))
    fine = [kernels.RBF(1e4), kernels.RBF(1e5)]
    far = KernelBank(np.r_[X, X + 1e-3], fine)
    theta = np.ones(2)
    np.testing.assert_allclose(
        far.rough().combine(theta), far.combine(theta), rtol=0, atol=1e-5
    )
