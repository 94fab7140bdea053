"""Banks: every operation against explicit Grams, whatever the storage."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import tracemalloc
import types
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from mklearn.data import threads
from mklearn.kernels import (
    RBF,
    Cosine,
    KernelBank,
    Laplacian,
    Linear,
    Matern32,
    MultiView,
    Polynomial,
    Spectrum,
    Tanimoto,
    alignment,
    hsic,
    memory,
    rbf_ladder,
)
from mklearn.kernels.computed_source import BaseSource
from mklearn.kernels.normalise import fit_normaliser

rng = np.random.default_rng(0)
n, n_new = 61, 17
X = np.abs(rng.normal(size=(n, 4))) + 0.1
X_NEW = np.abs(rng.normal(size=(n_new, 4))) + 0.1
KERNELS = [
    RBF(0.5),
    Linear(),
    lambda A, B: (A @ B.T + 1.0) ** 2,
    RBF("median"),
    Laplacian(),
    Matern32(columns=[0, 2]),
    Cosine(),
    Polynomial(2),
    Tanimoto(),
]
M = len(KERNELS)
STORAGES = ["float64", "float32", "mmap", "recompute"]
NORMALIZATIONS = [None, "center", "trace", "multiplicative", "spherical"]


def tolerance(storage):
    # entries of a float32 base have a relative error of 6e-8, their maps a few times it
    return {"rtol": 5e-6, "atol": 5e-6} if storage == "float32" else {"rtol": 1e-10}


def grams(bank):
    return np.stack([bank.gram(m) for m in range(bank.shape[2])], axis=2)


def by_definition(kind, K):
    """Return the training Grams normalised, from their definition."""
    diag = np.einsum("iim->im", K)
    if kind == "center":
        P = np.eye(len(K)) - 1.0 / len(K)
        return np.einsum("ai,ijm,jb->abm", P, K, P, optimize=True)
    if kind == "trace":
        return K / diag.sum(axis=0)
    if kind == "multiplicative":
        return K / (diag.mean(axis=0) - K.mean(axis=(0, 1)))
    if kind == "spherical":
        return K / np.sqrt(diag[:, None] * diag[None])
    return K


@pytest.fixture
def small_blocks(monkeypatch):
    """Cut the work into blocks of a few rows, on threads, as for large banks."""
    monkeypatch.setattr(memory, "block_bytes", lambda limit=None: 8 * n * 7)
    monkeypatch.setattr(memory, "_MIN_WORK", 1)
    monkeypatch.setattr(memory, "_MIN_ROWS", 1)


def targets(n_rows, n_targets=2):
    A = rng.normal(size=(n_rows, n_targets))
    A[rng.permutation(n_rows)[: n_rows // 3]] = 0.0
    return A


def check_all(bank, K, square=True, **tol):
    """Compare every answer of ``bank`` with those of the Grams ``K``."""
    n_rows, n_cols, n_kernels = K.shape
    assert bank.shape == K.shape
    tol["atol"] = tol.get("atol", 1e-11) * np.abs(K).max()
    theta = rng.random(n_kernels)
    theta[::2] = 0.0
    A = targets(n_cols)
    for m in range(n_kernels):
        np.testing.assert_allclose(bank.gram(m), K[:, :, m], **tol)
    for t in (theta, np.ones(n_kernels), 0.0 * theta):
        np.testing.assert_allclose(bank.combine(t), K @ t, **tol)
        np.testing.assert_allclose(bank.apply(t, A), (K @ t) @ A, **tol)
    products = np.einsum("ijm,jt->itm", K, A)
    tol["atol"] *= n_cols
    np.testing.assert_allclose(bank.multiply(A), products, **tol)
    np.testing.assert_allclose(bank.multiply(A[:, 0])[:, 0], products[:, 0], **tol)
    matrix = rng.normal(size=(n_rows, n_cols))
    wide = {**tol, "atol": tol["atol"] * n_rows}
    np.testing.assert_allclose(
        bank.inner(matrix), np.einsum("ijm,ij->m", K, matrix), **wide
    )
    w = np.abs(A[:, 0]) / np.abs(A[:, 0]).sum()
    means, mean = bank.totals(w)
    np.testing.assert_allclose(means, np.einsum("ijm,j->mi", K, w), **tol)
    if square:
        np.testing.assert_allclose(mean, np.einsum("i,ijm,j->m", w, K, w), **tol)
        np.testing.assert_allclose(bank.diag(), np.einsum("iim->im", K), **tol)
        idx = rng.permutation(n_rows)[:5]
        np.testing.assert_allclose(bank.columns(idx, theta), (K @ theta)[idx], **tol)
        tol["atol"] *= n_cols
        for a in (A, np.ones((n_rows, 1)), A[:, 0], 0.0 * A):
            a2 = a.reshape(n_rows, -1)
            quads = np.einsum("it,ijm,jt->m", a2, K, a2)
            np.testing.assert_allclose(bank.quad(a), quads, **tol)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", NORMALIZATIONS)
@pytest.mark.parametrize("storage", STORAGES)
def test_answers_are_those_of_the_grams(storage, kind):
    raw = KernelBank(X, KERNELS)
    K = by_definition(kind, grams(raw))
    stored = raw.stored(storage=storage)
    assert stored.storage == storage
    bank = fit_normaliser(kind, stored).train(stored)
    check_all(bank, K, **tolerance(storage))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("kind", [None, "center", "spherical"])
def test_slices_and_selections_compose(storage, kind):
    raw = KernelBank(X, KERNELS).stored(storage=storage)
    bank = fit_normaliser(kind, raw).train(raw)
    K = by_definition(kind, grams(KernelBank(X, KERNELS)))
    rows, cols = rng.permutation(n)[:40], rng.permutation(n)[:30]
    part = rng.permutation(40)[:20]
    kernels = [7, 2, 0, 5, 2]
    tol = tolerance(storage)
    scale = np.abs(K).max()
    tol["atol"] = tol.get("atol", 1e-11) * scale

    def same(got, want):
        np.testing.assert_allclose(grams(got), want, **tol)

    same(bank[np.ix_(rows, cols)], K[np.ix_(rows, cols)])
    same(bank[rows], K[rows])
    same(bank[rows, ...], K[rows])
    same(bank[:, cols], K[:, cols])
    same(bank[5:10, ::2], K[5:10, ::2])
    same(bank[-3:][[-1, 0]], K[-3:][[-1, 0]])
    mask = rng.random(n) < 0.5
    same(bank[np.ix_(mask, mask)], K[np.ix_(mask, mask)])
    same(bank[3], K[3:4])
    same(
        bank[np.ix_(rows, rows)][np.ix_(part, part)], K[np.ix_(rows[part], rows[part])]
    )
    same(bank.select(kernels), K[:, :, kernels])
    same(bank.select([-1]), K[:, :, -1:])
    same(bank.select(2), K[:, :, 2:3])
    same(bank.select(np.arange(M) % 2 == 0), K[:, :, ::2])
    same(bank.select([bank.names[4], bank.names[1]]), K[:, :, [4, 1]])
    smaller = bank[np.ix_(rows, rows)].select(kernels).select([3, 0])
    want = K[np.ix_(rows, rows)][:, :, [5, 7]]
    check_all(smaller, want, **tolerance(storage))
    check_all(smaller.stored(), want, **tolerance(storage))


def test_bad_indices():
    bank = KernelBank(X, KERNELS)
    theta = np.ones(M)
    for samples in (n, -n - 1, [0.5], np.ones(3, bool), (0, 1, 2)):
        with pytest.raises(IndexError):
            bank[samples]
    for kernels in (M, [-M - 1], np.ones(2, bool)):
        with pytest.raises(IndexError):
            bank.select(kernels)
    for kernels in ([], np.zeros(M, bool), "nobody"):
        with pytest.raises(ValueError, match="kernel"):
            bank.select(kernels)
    with pytest.raises(IndexError):
        bank.columns([n], theta)
    with pytest.raises(IndexError):
        bank.gram(M)
    with pytest.raises(ValueError, match=r"theta must have shape \(9,\)"):
        bank.combine(np.ones(2))
    for A in (np.ones(n + 1), np.ones((n, 1, 1))):
        with pytest.raises(ValueError, match="one row for each of the 61"):
            bank.apply(theta, A)
    with pytest.raises(ValueError, match=r"matrix must have shape \(61, 61\)"):
        bank.inner(np.ones(n))
    for method in (
        lambda: bank[:3].quad(np.ones(n)),
        lambda: bank[:3].columns([0], theta),
    ):
        with pytest.raises(ValueError, match="square"):
            method()
    with pytest.raises(TypeError, match="not an array"):
        np.asarray(bank)


# --- Grams that are given -------------------------------------------------------------


def as_given(layout, K):
    if layout == "kernels last":
        return np.ascontiguousarray(K)
    if layout == "one after the other":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(K, 2, 0)), 0, 2)
    if layout == "fortran":
        return np.asfortranarray(K)
    if layout == "every other":
        return np.repeat(np.repeat(K, 2, axis=1), 2, axis=2)[:, ::2, ::2]
    if layout == "read only":
        K = np.ascontiguousarray(K)
        K.flags.writeable = False
        return K
    if layout == "list":
        return [np.ascontiguousarray(K[:, :, m]) for m in range(K.shape[2])]
    return np.ascontiguousarray(K, dtype=np.float32)


LAYOUTS = [
    "kernels last", "one after the other", "fortran", "every other", "read only",
    "list", "float32",
]  # fmt: skip


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [None, "center", "spherical"])
def test_given_grams(layout, kind):
    K = grams(KernelBank(X, KERNELS))
    bank = KernelBank.from_grams(as_given(layout, K)).stored()
    assert bank.storage == "given"
    normalised = fit_normaliser(kind, bank).train(bank)
    tol = tolerance("float32" if layout == "float32" else "float64")
    check_all(normalised, by_definition(kind, K), **tol)
    for kernels in ([3, 1, 0, 4, 2, 8, 7, 6, 5], [8, 1], [5, 5, 4]):
        want = by_definition(kind, K)[:, :, kernels]
        check_all(normalised.select(kernels), want, **tol)
    rows, cols = rng.permutation(n)[:20], rng.permutation(n)[:15]
    want = by_definition(kind, K)[np.ix_(rows, cols)]
    check_all(normalised[np.ix_(rows, cols)], want, square=False, **tol)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_given_grams_are_used_where_they_lie(layout):
    K = as_given(layout, grams(KernelBank(X, KERNELS)))
    first = K[0] if layout == "list" else K[:, :, 0]
    bank = KernelBank.from_grams(K)
    before = bank.gram(0)
    if layout != "read only":
        first[0, 1] += 7.0
        assert bank.gram(0)[0, 1] == pytest.approx(before[0, 1] + 7.0)
    tracemalloc.start()
    KernelBank.from_grams(K)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < first.nbytes


def test_a_single_gram():
    K = X @ X.T
    check_all(KernelBank.from_grams(K), K[:, :, None])


def test_whole_numbers_become_floats():
    K = np.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(KernelBank.from_grams(K).gram(0), K)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones(3), "kernels last"),
        (np.ones((2, 2, 2, 2)), "kernels last"),
        (np.ones((2, 2, 0)), "not be empty"),
        ([], "At least one"),
        ([np.eye(2), np.eye(3)], "the same shape"),
        ([np.ones(3)], "2-D"),
        (np.eye(2) * 1j, "real numbers"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "NaN or infinity"),
        ([np.eye(2), np.full((2, 2), np.inf)], "NaN or infinity"),
    ],
)
def test_bad_grams(given, message):
    with pytest.raises(ValueError, match=message):
        KernelBank.from_grams(given)


def test_given_grams_keep_no_samples():
    bank = KernelBank.from_grams(X @ X.T)
    for ask in (lambda: bank.cross(X), lambda: bank.reference([0])):
        with pytest.raises(ValueError, match="has no samples"):
            ask()
    with pytest.raises(ValueError, match="2 names for 1 kernel"):
        KernelBank.from_grams(X @ X.T, ["a", "b"])


def test_a_cross_gram_has_no_diagonal_unless_given():
    K = (X_NEW @ X.T)[:, :n_new]  # as many rows as columns
    with pytest.raises(ValueError, match="row_diag"):
        KernelBank.from_grams(K, cross=True).diag()
    with pytest.raises(ValueError, match="row_diag"):
        KernelBank.from_grams(X_NEW @ X.T).diag()
    diag = np.arange(n_new, dtype=float)[:, None]
    bank = KernelBank.from_grams(K, cross=True, row_diag=diag)
    np.testing.assert_array_equal(bank[[3, 1]].diag(), diag[[3, 1]])
    with pytest.raises(ValueError, match="row_diag must have shape"):
        KernelBank.from_grams(K, row_diag=diag[:2])


# --- shared bases, new samples --------------------------------------------------------


def test_widths_on_the_same_columns_share_one_base(monkeypatch):
    made = []
    original = BaseSource.store

    def count(self, storage, limit):
        made.append(self)
        return original(self, storage, limit)

    monkeypatch.setattr(BaseSource, "store", count)
    kernels = [
        *rbf_ladder(20), Matern32(), Matern32(0.3), RBF(columns=range(4)),
        RBF(columns=slice(None)), Laplacian(0.1), Laplacian(0.2), RBF(columns=[1]),
    ]  # fmt: skip
    bank = KernelBank(X, kernels)
    plan = bank.estimate_memory(storage="float64")
    assert plan.stored == 3 * 8 * n * n  # squared distances, L1 distances, one column
    assert plan.all_grams == 8 * n * n * 27
    bank.stored(storage="float64")
    assert len(made) == 3


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_cross_is_a_block_of_the_joint_bank(storage, kind):
    # parameters are found on the training samples, so give them
    kernels = [k for k in KERNELS if getattr(k, "gamma", 1) != "median"]
    kernels.remove(KERNELS[2])
    joint = KernelBank(kind(np.vstack([X, X_NEW])), kernels)
    bank = KernelBank(kind(X), kernels).stored(storage=storage)
    cross = bank.cross(kind(X_NEW))
    check_all(cross, grams(joint[n:, :n]), square=False)
    np.testing.assert_allclose(cross.diag(), joint.diag()[n:])
    cols = rng.permutation(n)[:9]
    for reference in (bank.reference(cols), bank[::-1].reference(cols)):
        assert reference.shape == (0, 9, len(kernels))
        cross = reference.cross(kind(X_NEW))
        check_all(cross, grams(joint[n:, cols]), square=False)
    part = bank.select([3, 0]).reference(cols).cross(kind(X_NEW))
    K = grams(joint[n:, cols].select([3, 0]))
    check_all(part, K, square=False)
    check_all(part.stored(storage=storage), K, square=False, **tolerance(storage))


def test_a_reference_holds_the_columns_and_nothing_else():
    wide = rng.normal(size=(400, 200))
    bank = KernelBank(wide, [RBF(0.1), Linear()]).stored()
    reference = bank.reference(np.arange(4))
    assert len(pickle.dumps(reference)) < 0.1 * wide.nbytes


def test_replaced_grams_keep_their_samples():
    bank = KernelBank(X, KERNELS).stored()
    K = grams(bank)
    new = np.diag(np.arange(1.0, n + 1))
    for m in (1, 2):
        K[:, :, m] = new
        bank = bank.replace_gram(m, new)
    check_all(bank, K)
    np.testing.assert_allclose(
        grams(bank.reference([4, 2]).cross(X_NEW)),
        grams(KernelBank(X, KERNELS).cross(X_NEW)[:, [4, 2]]),
    )
    again = pickle.loads(pickle.dumps(bank.select([1, 3])))
    np.testing.assert_allclose(again.gram(0), new)
    with pytest.raises(ValueError, match="must have shape"):
        bank.replace_gram(0, new[:3])


# --- memory ---------------------------------------------------------------------------

STRINGS = ["".join(rng.choice(list("ACGT"), 10)) for _ in range(40)]


@pytest.mark.parametrize("storage", STORAGES)
def test_pickling_drops_stored_values(storage):
    big = rng.normal(size=(500, 2))
    text = ["".join(rng.choice(list("ACGT"), 10)) for _ in range(500)]
    data = MultiView({"x": big, "s": text})
    bank = KernelBank(data, [RBF(0.1, view="x"), Spectrum(2, view="s")])
    stored = bank.stored(storage=storage)
    data = pickle.dumps(stored)
    assert len(data) < 8 * 500 * 500 / 4
    again = pickle.loads(data)
    assert again.storage == "recompute"
    theta = np.ones(2)
    np.testing.assert_allclose(again.combine(theta), bank.combine(theta))
    np.testing.assert_allclose(
        again[np.ix_([3, 1], [2])].combine(theta), bank.combine(theta)[[3, 1]][:, [2]]
    )


def test_pickling_given_grams_takes_them_once():
    K = grams(KernelBank(X, KERNELS))
    for layout in LAYOUTS:
        bank = KernelBank.from_grams(as_given(layout, K))
        data = pickle.dumps(bank)
        assert len(data) < 1.1 * K.nbytes
        np.testing.assert_array_equal(pickle.loads(data).gram(3), bank.gram(3))


def test_the_estimate_allocates_nothing_and_is_kept():
    bank = KernelBank(rng.normal(size=(1500, 3)), rbf_ladder(3))[::-1][:, :900]
    tracemalloc.start()
    plans = {s: bank.estimate_memory(storage=s) for s in ("auto", *STORAGES)}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert "all Grams in float64: 32.4 MB" in str(plans["auto"])
    for storage, bytes_each in (("float64", 8), ("float32", 4)):
        gc.collect()
        tracemalloc.start()
        stored = bank.stored(storage=storage)
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        plan = plans[storage]
        assert plan.stored == 1500 * 900 * bytes_each == getattr(plan, storage)
        assert plan.stored <= kept < plan.stored + 300_000
        # told again, nothing more is needed
        assert stored.estimate_memory(storage=storage).stored == plan.stored
        assert stored.stored(storage=storage).storage == storage


def test_the_budget_decides():
    n = 1500
    text = ["".join(rng.choice(list("ACGT"), 3)) for _ in range(n)]
    data = MultiView({"x": rng.normal(size=(n, 3)), "s": text})
    plain = KernelBank(data, rbf_ladder(5, view="x"))
    costly = KernelBank(data, [RBF(0.1, view="x"), Spectrum(1, view="s")])
    full = 8 * n * n
    for bank, cheapest in ((plain, "recompute"), (costly, "mmap")):
        limits = range(full // 3, 16 * full, full // 9)
        plans = [bank.estimate_memory(limit) for limit in limits]
        # more memory, better storage
        assert list(dict.fromkeys(p.storage for p in plans)) == [
            cheapest, "float32", "float64",
        ]  # fmt: skip
        for plan in plans:
            assert plan.stored + plan.working <= plan.limit
            kept = {"float64": plan.float64, "float32": plan.float32}
            assert plan.stored == kept.get(plan.storage, 0)
    # what is a formula of the distance is not read from disk
    stored = costly.stored(full // 3)
    assert stored.select([0]).storage == "recompute"
    assert stored.select([1]).storage == "mmap"
    assert stored.storage == "mixed"
    with pytest.raises(ValueError, match="memory_limit=1000 is too small"):
        plain.stored(1000)
    with pytest.raises(ValueError, match="storage must be"):
        plain.stored(storage="float16")


@pytest.mark.parametrize("limit", [2**22, 2**24, 2**26, 2**28])
def test_the_rows_of_a_solver_fit_beside_what_is_stored(limit):
    bank = KernelBank(rng.normal(size=(1500, 3)), rbf_ladder(5)).stored(limit)
    plan = bank.estimate_memory(limit)
    rows = bank.row_budget()
    assert 64 <= rows <= 1500
    assert plan.stored + plan.working + 8 * 1500 * rows <= limit
    assert (rows == 1500) == (limit >= 2**26)


def test_small_budgets_cut_small_blocks():
    limit = 8 * memory.BLOCKS * threads.n_threads() * n  # one row for each thread
    bank = KernelBank(X, KERNELS[:2]).stored(limit)
    assert bank.storage == "recompute"
    check_all(bank, grams(KernelBank(X, KERNELS[:2])))


def test_mapped_files_have_no_names(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = MultiView({"x": X[:40], "s": STRINGS})
    bank = KernelBank(data, [RBF(0.1, view="x"), Spectrum(2, view="s")])
    stored = bank.stored(storage="mmap")
    if os.name != "nt":
        assert os.listdir(tmp_path) == []
    part = stored[:5].select([1])
    del stored
    gc.collect()
    np.testing.assert_allclose(part.gram(0), bank.gram(1)[:5])
    del part
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_peak_memory_stays_within_the_budget():
    """A bank of 20 Grams of 200 MB each works within 40 MB."""
    pytest.importorskip("resource")
    script = """
        import resource, sys
        import numpy as np
        from mklearn.kernels import KernelBank, Tanimoto, Linear, rbf_ladder

        def work(n, limit):
            X = np.abs(np.random.default_rng(0).normal(size=(n, 3)))
            kernels = rbf_ladder(gammas=np.geomspace(0.1, 10, 20))
            kernels += [Linear(), Tanimoto()]
            bank = KernelBank(X, kernels).stored(limit)
            theta = np.ones(22)
            A = np.zeros((n, 1))
            A[: n // 5] = 1.0
            bank.quad(A)
            bank.apply(theta, A)
            bank.columns(np.arange(16), theta)
            bank.diag()
            return bank

        def peak():
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return used * (1 if sys.platform == "darwin" else 1024)

        work(60, 2**28)  # compiles, and starts the threads of BLAS
        before = peak()
        limit = 40_000_000
        bank = work(5000, limit)
        grew = peak() - before
        assert bank.storage == "recompute", bank.storage
        assert bank.estimate_memory(limit).all_grams > 100 * limit
        assert grew < limit, f"grew by {grew}"
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


# --- measures -------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 2**20])
def test_alignment_is_that_of_centred_grams(limit):
    bank = KernelBank(X, KERNELS).stored(limit)
    K = by_definition("center", grams(bank)).reshape(-1, M)
    np.testing.assert_allclose(
        alignment(bank),
        K.T @ K / np.outer(*[np.linalg.norm(K, axis=0)] * 2),
        atol=1e-12,
    )


def test_hsic_is_the_inner_product_of_centred_grams():
    K, L = (X @ X.T), np.exp(X @ X.T / 10)
    centred = by_definition("center", np.stack([K, L], axis=2))
    inner = np.sum(centred[:, :, 0] * centred[:, :, 1]) / (n - 1) ** 2
    assert hsic(K, L) == pytest.approx(inner) == hsic(L, K)
    for wrong in ((K, L[:3]), (K[:3], L[:3]), (np.eye(1), np.eye(1))):
        with pytest.raises(ValueError, match="hsic needs"):
            hsic(*wrong)


@pytest.mark.skipif(os.name == "nt", reason="files in use keep their names")
def test_a_killed_process_leaves_no_grams_on_disk(tmp_path):
    code = (
        "import os, signal, numpy as np\n"
        "from mklearn import KernelBank\n"
        "X = np.random.default_rng(0).standard_normal((200, 3))\n"
        "bank = KernelBank(X, [lambda a, b: a @ b.T]).stored(storage='mmap')\n"
        "assert bank.storage == 'mmap'\n"
        "assert np.allclose(bank.gram(0), X @ X.T)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = os.environ | {"TMPDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=env, check=False)
    assert run.returncode == -signal.SIGKILL
    assert not list(tmp_path.glob("mklearn-*"))


def test_what_killed_processes_left_is_removed_where_names_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "mklearn-grams-left"
    left.mkdir()
    (left / "0.f64").touch()
    monkeypatch.setattr(memory, "os", types.SimpleNamespace(name="nt", path=os.path))
    folder = memory.Folder()
    assert not left.exists()
    assert Path(folder.path).exists()
    assert folder.mapped("0.f64", (2, 2)).shape == (2, 2)
    assert (Path(folder.path) / "0.f64").exists()


def test_half_of_a_symmetric_matrix_is_enough():
    bank = KernelBank(X, KERNELS)
    A = rng.normal(size=(n, n))
    A += A.T
    expected = np.einsum("ijm,ij->m", grams(bank), A)
    np.testing.assert_allclose(bank.inner(A), expected, rtol=1e-10)
    upper = np.triu(A) + np.tril(np.full((n, n), 7.0), -1)  # what is not to be read
    np.testing.assert_allclose(bank.inner(upper, upper=True), expected, rtol=1e-10)
