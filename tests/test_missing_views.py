"""Samples that lack a view: they stand at the mean of those that have it."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from mklearn import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MultiView,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceKernel,
    UniformMKLClassifier,
    kernels,
)
from mklearn.datasets import make_multiview
from mklearn.interpretation import decision_parts
from mklearn.kernels import RBF, Chi2, Linear, Spectrum, WeightedDegree, per_view
from mklearn.kernels.normalise import CENTRED_TRACE, NORMALIZATIONS, fit_normaliser
from mklearn.persistence import load, save
from written import run_page

# tolerances ask for all the digits that there are, and a few more
pytestmark = pytest.mark.filterwarnings("ignore:.*rounding (allows|limits)")

rng = np.random.default_rng(0)
N = 30
A, B = rng.normal(size=(N, 3)) + 1.0, rng.normal(size=(N, 2)) - 2.0
NO_A, NO_B = np.arange(N) % 5 == 1, np.arange(N) % 7 < 2
Y = (A[:, 0] + B[:, 0] + 0.3 * rng.normal(size=N) > -1).astype(int)


def holed(X, absent):
    return np.where(absent[:, None], np.nan, X)


DATA = MultiView({"a": holed(A, NO_A), "b": holed(B, NO_B)})
KERNELS = [Linear(view="a"), Linear(view="b"), RBF(0.3, view="b"), RBF(1.0, view="a")]


def imputed(weight=None):
    """Return the views with the mean in place of what is absent."""
    w = np.ones(N) if weight is None else weight
    return MultiView(
        {
            name: np.where(gone[:, None], np.average(X[~gone], 0, w[~gone]), X)
            for name, X, gone in (("a", A, NO_A), ("b", B, NO_B))
        }
    )


# --- MultiView ------------------------------------------------------------------------


def test_whole_rows_may_be_absent():
    assert DATA.absent("a").tolist() == NO_A.tolist()
    assert DATA.has_absent("b") and not DATA[~NO_B].has_absent("b")
    assert DATA[::-1].absent("b").tolist() == NO_B[::-1].tolist()
    assert f"a: 3 ({NO_A.sum()} absent)" in repr(DATA)
    words = MultiView({"w": ["A", None, float("nan"), "C"]})
    assert words.is_text("w") and words["w"].tolist() == ["A", None, None, "C"]
    assert words.absent("w").tolist() == [False, True, True, False]
    csr = sparse.csr_array(np.array([[1.0, 0.0], [np.nan, np.nan]]))
    assert MultiView({"s": csr}).absent("s").tolist() == [False, True]
    table = np.hstack([DATA["a"], DATA["b"]])
    split = MultiView.from_columns(table, {"a": [0, 1, 2], "b": [3, 4]})
    assert split.absent("b").tolist() == NO_B.tolist()


@pytest.mark.parametrize(
    "view",
    [
        np.array([[1.0, np.nan], [1.0, 2.0]]),
        np.array([[np.inf, np.inf], [1.0, 2.0]]),
        sparse.csr_array(np.array([[np.nan, 0.0], [1.0, 2.0]])),
    ],
)
def test_a_part_of_a_row_may_not(view):
    with pytest.raises(ValueError, match="NaN or infinity"):
        MultiView({"v": view, "w": ["A", "B"]})


def test_a_table_without_views_has_no_absent_samples():
    for make in (KernelBank, MultiView.wrap, MultiView.from_table):
        with pytest.raises(ValueError, match="NaN or infinity"):
            make(DATA["a"])
    with pytest.raises(ValueError, match="NaN"):
        MKLClassifier().fit(DATA["a"], Y)
    with pytest.raises(ValueError, match="missing"):
        KernelBank(["A", None], "spectrum")


def test_a_view_that_nobody_has():
    nothing = MultiView({"a": A, "b": np.full((N, 2), np.nan)})
    with pytest.raises(ValueError, match="'b' is missing for all 30"):
        KernelBank(nothing, KERNELS)
    with pytest.raises(ValueError, match="missing for all"):
        KernelBank(DATA, KERNELS, sample_weight=NO_A.astype(float))


# --- banks ----------------------------------------------------------------------------


def test_raw_rows_and_columns_are_zero_and_widths_are_from_those_present():
    bank = KernelBank(DATA, [RBF("scale", view="a", standardize=True)])
    alone = KernelBank(A[~NO_A], [RBF("scale", standardize=True)])
    here = np.ix_(~NO_A, ~NO_A)
    np.testing.assert_allclose(bank.gram(0)[here], alone.gram(0), atol=1e-12)
    assert bank.kernels[0].gamma == pytest.approx(alone.kernels[0].gamma)
    assert not bank.gram(0)[NO_A].any() and not bank.gram(0)[:, NO_A].any()
    assert bank.present[0].tolist() == (~NO_A).tolist()
    assert bank[np.ix_(~NO_A, ~NO_A)].present is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [*NORMALIZATIONS, CENTRED_TRACE])
def test_linear_kernels_are_those_of_imputed_means(kind, weighted):
    weight = 1.0 + np.arange(N) % 3 if weighted else None
    bank = KernelBank(DATA, KERNELS[:2])
    normaliser = fit_normaliser(kind, bank, weight)
    filled = KernelBank(imputed(weight), KERNELS[:2])
    new = MultiView({"a": holed(A[:8] + 0.1, NO_A[:8]), "b": holed(B[:8], NO_B[7:15])})
    mean = {v: imputed(weight)[v][DATA.absent(v)][:1] for v in new}
    full = {v: np.where(new.absent(v)[:, None], mean[v], new[v]) for v in new}
    for ours, theirs in (
        (normaliser.train(bank), filled),
        (normaliser.cross(bank.cross(new)), filled.cross(MultiView(full))),
    ):
        for m in range(2):
            K = theirs.gram(m)
            if kind == "spherical":  # the mean of samples on the sphere is inside it
                continue
            if normaliser.means is not None:
                w = normaliser.weight
                G = filled.gram(m)
                K = K - (K @ w)[:, None] - G @ w + w @ G @ w
            np.testing.assert_allclose(
                ours.gram(m), normaliser.scale[m] * K, atol=1e-12
            )
    if kind == CENTRED_TRACE:  # as if all samples were like those that are present
        total = np.ones(N) if weight is None else weight
        size = total @ normaliser.train(bank).diag() / (bank.present @ total)
        np.testing.assert_allclose(size, 1.0 / total.sum())


def features(K):
    """Return feature vectors with these inner products."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


@pytest.mark.parametrize("kind", [*NORMALIZATIONS, CENTRED_TRACE])
def test_absent_samples_stand_at_the_mean_of_the_features(kind):
    bank = KernelBank(DATA, [RBF(0.4, view="b")])
    K = fit_normaliser(kind, bank).train(bank).gram(0)
    assert np.linalg.eigvalsh(K)[0] > -1e-12
    phi = features(K)
    mean = phi[~NO_B].mean(axis=0)
    np.testing.assert_allclose(phi[NO_B], np.tile(mean, (NO_B.sum(), 1)), atol=1e-7)
    # and among themselves the others are as if they were alone
    alone = KernelBank(B[~NO_B], RBF(0.4))
    part = fit_normaliser(kind, alone).train(alone).gram(0)
    scale = (~NO_B).sum() / N if kind in ("trace", CENTRED_TRACE) else 1.0
    np.testing.assert_allclose(K[np.ix_(~NO_B, ~NO_B)], scale * part, atol=1e-12)


@pytest.mark.parametrize("storage", ["recompute", "float64", "given"])
@pytest.mark.parametrize("kind", [None, "center", "spherical"])
def test_all_questions_get_the_same_answer(kind, storage):
    raw = KernelBank(DATA, KERNELS)
    if storage == "given":
        grams = np.stack([raw.gram(m) for m in range(4)], axis=2)
        for m in range(4):
            raw = raw.replace_gram(m, grams[:, :, m])
    else:
        raw = raw.stored(storage=storage)
    normaliser = fit_normaliser(kind, raw)
    rows = rng.permutation(N)[:20]
    bank = normaliser.train(raw)[np.ix_(rows, rows)].select([2, 0, 3])
    grams = [bank.gram(m) for m in range(3)]
    theta, C = np.array([0.5, 0.0, 2.0]), rng.normal(size=(20, 2))
    C[::3] = 0.0
    K = sum(t * G for t, G in zip(theta, grams, strict=True))
    close = {"atol": 1e-10, "rtol": 1e-8}
    np.testing.assert_allclose(bank.combine(theta), K, **close)
    np.testing.assert_allclose(bank.columns([3, 1], theta), K[[3, 1]], **close)
    np.testing.assert_allclose(bank.apply(theta, C), K @ C, **close)
    each = np.stack([theta, theta[::-1]])
    turned = np.einsum("m,mij->ij", theta[::-1], np.stack(grams))
    np.testing.assert_allclose(bank.combine_each(each)[1], turned, **close)
    np.testing.assert_allclose(bank.apply_each(each, C)[:, 0], K @ C[:, 0], **close)
    np.testing.assert_allclose(
        bank.multiply(C), np.stack([G @ C for G in grams], axis=2), **close
    )
    matrix = rng.normal(size=K.shape)
    np.testing.assert_allclose(
        bank.inner(matrix), [np.sum(G * matrix) for G in grams], **close
    )
    quads = np.array([[c @ G @ c for G in grams] for c in C.T])
    np.testing.assert_allclose(bank.quads(C), quads, **close)
    np.testing.assert_allclose(bank.quad(C), quads.sum(axis=0), **close)
    np.testing.assert_allclose(
        bank.diag(), np.stack([np.diag(G) for G in grams], axis=1), **close
    )
    np.testing.assert_allclose(bank.rough().combine(theta), K, atol=1e-5)
    more = bank.with_diagonal(np.ones(20))
    np.testing.assert_allclose(
        more.combine([*theta, 3.0]), K + 3.0 * np.eye(20), **close
    )


def test_nothing_changes_where_nothing_is_missing():
    whole = MultiView({"a": A, "b": B})
    bank = KernelBank(whole, KERNELS)
    assert bank.present is None and bank._mask is None
    for kind in NORMALIZATIONS:
        affine = fit_normaliser(kind, bank).train(bank)._affine
        assert affine is None or affine.outer is None


@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_new_samples_may_lack_what_all_training_samples_had(kind):
    whole = MultiView({"a": A, "b": B})
    bank = KernelBank(whole, KERNELS)
    normaliser = fit_normaliser(kind, bank)
    cross = normaliser.cross(bank.cross(DATA))
    K = normaliser.train(bank)
    for m, gone in enumerate((NO_A, NO_B, NO_B, NO_A)):
        G, full = cross.gram(m), K.gram(m)
        np.testing.assert_allclose(G[~gone], full[~gone], atol=1e-12)
        np.testing.assert_allclose(G[gone], np.tile(full.mean(0), (gone.sum(), 1)),
                                   atol=1e-12)  # fmt: skip
    one = KernelBank(MultiView({"a": A}), ["linear"])
    lone = fit_normaliser(None, one)
    with pytest.raises(ValueError, match="lack a view that all training samples had"):
        lone.cross(one.cross(MultiView({"a": DATA["a"]})))


def test_sequences_and_sparse_views():
    words = ["".join(rng.choice(list("ACGT"), 6)) for _ in range(N)]
    strings = [None if gone else w for w, gone in zip(words, NO_B, strict=True)]
    dense = np.abs(holed(A, NO_A))
    data = MultiView({"w": strings, "s": sparse.csr_array(dense), "d": dense})
    bank = KernelBank(
        data,
        [
            Spectrum(2, view="w"), WeightedDegree(2, view="w"), Linear(view="s"),
            Chi2(1.0, view="d"), Linear(view="s", standardize=True),
        ],
    )  # fmt: skip
    alone = KernelBank([w for w in strings if w], [Spectrum(2), WeightedDegree(2)])
    here = np.ix_(~NO_B, ~NO_B)
    for m in range(2):
        np.testing.assert_allclose(bank.gram(m)[here], alone.gram(m))
    np.testing.assert_allclose(
        bank.gram(2)[np.ix_(~NO_A, ~NO_A)], (np.abs(A) @ np.abs(A).T)[~NO_A][:, ~NO_A]
    )
    nothing = MultiView({"w": [None], "s": [[np.nan] * 3], "d": [[np.nan] * 3]})
    cross = fit_normaliser("center", bank).cross(bank.cross(nothing))
    assert not any(cross.gram(m).any() for m in range(5))
    auto = KernelBank(data, "auto")
    assert "w:weighteddegree(degree=3, shift=0)" in auto.names


# --- estimators -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(KERNELS[:2], normalize=None, norm=2, tol=1e-6),
        MKLClassifier(KERNELS[:2], normalize="center", loss="squared", tol=1e-8),
        MKLOneClass(KERNELS[:2], normalize=None, tol=1e-6),
    ],
    ids=["svm", "squared", "one class"],
)
def test_linear_models_are_those_of_imputed_means(model):
    ours = clone(model).fit(DATA, Y)
    theirs = clone(model).fit(imputed(), Y)
    np.testing.assert_allclose(
        ours.decision_function(DATA), theirs.decision_function(imputed()), atol=2e-3
    )
    assert ours.solution_.upper == pytest.approx(theirs.solution_.upper, rel=1e-4)


def test_centring_makes_no_difference_to_an_svm():
    raw, centred = (
        MKLClassifier(KERNELS, normalize=kind, norm=2, tol=1e-6).fit(DATA, Y)
        for kind in (None, "center")
    )
    np.testing.assert_allclose(
        raw.decision_function(DATA), centred.decision_function(DATA), atol=2e-3
    )


MODELS = {
    "svm": MKLClassifier(KERNELS, norm=2),
    "sparse": MKLClassifier(KERNELS, norm=1),
    "spherical": MKLClassifier(KERNELS, normalize="spherical"),
    "trace": MKLClassifier(KERNELS, normalize="trace", loss="logistic", C=300),
    "per class": MKLClassifier(KERNELS, weights="per-class"),
    "search": MKLClassifierCV(KERNELS, Cs=[0.1, 1.0], norms=[1, 2], cv=3),
    "uniform": UniformMKLClassifier(KERNELS),
    "aligned": AlignmentMKLClassifier(KERNELS),
    "best": BestKernelClassifier(KERNELS, cv=3),
    "single": SingleKernelCV(MKLDiscriminant(), KERNELS, values=[1e-3, 1e-1], cv=3),
    "discriminant": MKLDiscriminant(KERNELS),
    "learned reg": MKLDiscriminant(KERNELS, reg="learn"),
    "bilinear": BilinearMKLClassifier(KERNELS),
    "subspace": SubspaceClassifier(KERNELS),
    "joint": SubspaceClassifier(KERNELS, criterion="svm"),
    "features": SubspaceKernel(KERNELS),
    "one class": MKLOneClass(KERNELS),
    "regression": MKLRegressor(KERNELS),
    "evidence": EvidenceMKLRegressor(KERNELS),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_estimator_takes_and_keeps_them(name, tmp_path):
    model = clone(MODELS[name]).fit(DATA, Y)
    ask = "decision_function" if hasattr(model, "decision_function") else "predict"
    ask = "transform" if name == "features" else ask
    found = np.asarray(getattr(model, ask)(DATA))
    assert np.isfinite(found).all() and np.ptp(found) > 0
    # one at a time, or in another order: a sample without a view is a sample
    order = rng.permutation(N)
    np.testing.assert_allclose(
        getattr(model, ask)(DATA[order]), found[order], atol=1e-9
    )
    lone = int(np.flatnonzero(NO_A)[0])
    np.testing.assert_allclose(
        getattr(model, ask)(DATA[[lone]]), found[[lone]], atol=1e-9
    )
    if hasattr(model, "score"):
        assert (
            name in ("regression", "evidence", "features")
            or model.score(DATA, Y) > 0.75
        )
    save(model, tmp_path / "m.mkl")
    np.testing.assert_allclose(getattr(load(tmp_path / "m.mkl"), ask)(DATA), found)


def test_parts_of_decisions_are_the_same_for_all_who_lack_a_view():
    model = MKLClassifier(KERNELS, norm=2).fit(DATA, Y)
    parts = decision_parts(model, DATA).parts
    assert np.ptp(parts[NO_A][:, [0, 3]], axis=0) == pytest.approx([0, 0], abs=1e-9)
    np.testing.assert_allclose(
        decision_parts(model, DATA).decision, model.decision_function(DATA)
    )


def test_banks_and_model_selection():
    bank = KernelBank(DATA, KERNELS)
    direct = MKLClassifier(KERNELS).fit(DATA, Y)
    given = MKLClassifier("precomputed").fit(bank, Y)
    np.testing.assert_allclose(
        given.decision_function(bank.cross(DATA)), direct.decision_function(DATA),
        atol=1e-6,
    )  # fmt: skip
    # Grams as arrays do not say who is absent; the model remembers of its own samples
    full = {"a": A[:4] + 1, "b": B[:4]}
    cross = KernelBank(imputed(), KERNELS).cross(MultiView(full))
    array = np.stack([cross.gram(m) for m in range(4)], axis=2)
    np.testing.assert_allclose(
        given.decision_function(array), direct.decision_function(MultiView(full)),
        atol=1e-6,
    )  # fmt: skip
    assert np.isfinite(cross_val_score(MKLClassifier(KERNELS), DATA, Y, cv=3)).all()
    search = GridSearchCV(MKLClassifier("precomputed"), {"C": [0.1, 1.0]}, cv=3)
    assert search.fit(bank, Y).best_score_ > 0.5


def test_keeping_samples_beats_dropping_them():
    """With two thirds of the samples incomplete, complete cases are too few."""
    kept, dropped, filled = [], [], []
    for seed in range(4):
        X, y, _ = make_multiview(
            390, 4, relevant=(0.9, 0.9, 0.9), n_redundant=0, random_state=seed
        )
        gone = np.random.default_rng(seed).integers(0, 6, size=390)
        views = {}
        for i, name in enumerate(X.names):  # one view at the most is absent
            views[name] = holed(X[name], gone == i)
        data, train = MultiView(views), np.arange(390) < 90
        complete = train & ~np.any([data.absent(v) for v in data], axis=0)
        model = MKLClassifier(per_view(kernels.RBF("scale")), norm=2)
        for rows, scores in ((train, kept), (complete, dropped)):
            fitted = clone(model).fit(data[rows], y[rows])
            scores.append(fitted.score(data[~train], y[~train]))
        filled.append(complete.sum())
    assert max(filled) < 45
    assert np.mean(kept) > np.mean(dropped) + 0.01


def test_the_page_about_it_runs():
    space = run_page("missing-views.md")
    assert space["kept"] > space["dropped"]


# --- features -------------------------------------------------------------------------

WEIGHT = 1.0 + np.arange(N) % 3


def agree(model, data, target, new, weight=None, atol=1e-6):
    """Check that features of full rank decide as the kernels themselves do."""
    exact = clone(model).set_params(tol=1e-10).fit(data, target, sample_weight=weight)
    full = clone(model).set_params(approximation="nystroem", rank=N)
    full.fit(data, target, sample_weight=weight)
    answer = "predict" if isinstance(model, MKLRegressor) else "decision_function"
    for X in (data, new):
        np.testing.assert_allclose(
            getattr(full, answer)(X), getattr(exact, answer)(X), atol=atol
        )
    np.testing.assert_allclose(full.kernel_weights_, exact.kernel_weights_, atol=atol)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", NORMALIZATIONS)
@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(KERNELS, loss="squared", tol=1e-10),
        MKLClassifier(KERNELS, loss="squared", class_weight="balanced", tol=1e-10),
        MKLRegressor(KERNELS, tol=1e-10),
    ],
    ids=["classes", "balanced", "values"],
)
def test_full_rank_is_exact_with_absent_views(model, kind, weighted):
    target = A[:, 0] if isinstance(model, MKLRegressor) else Y
    model = clone(model).set_params(normalize=kind)
    agree(model, DATA, target, DATA[::-1], WEIGHT if weighted else None)


@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_full_rank_is_exact_with_absent_views_in_passes(kind):
    """Up to the gap: a relative gap of g leaves decisions a distance of root g."""
    C = N if kind == "trace" else 1.0
    model = MKLClassifier(KERNELS, C=C, normalize=kind, tol=1e-6)
    agree(model, DATA, Y, DATA[::-1], atol=1e-4)


@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_full_rank_is_exact_where_only_new_samples_lack_a_view(kind):
    complete = MultiView({"a": A, "b": B})
    model = MKLClassifier(KERNELS, loss="squared", normalize=kind, tol=1e-10)
    agree(model, complete, Y, DATA)


def test_full_rank_discriminant_is_exact_with_absent_views():
    exact = MKLDiscriminant(KERNELS, reg=0.1, tol=1e-10).fit(DATA, Y)
    full = clone(exact).set_params(approximation="nystroem", rank=N).fit(DATA, Y)
    np.testing.assert_allclose(
        full.decision_function(DATA), exact.decision_function(DATA), atol=1e-6
    )


def test_full_rank_is_exact_with_absent_strings():
    words = ["ACGT"[i % 4 :] + "ACGT"[: i % 3] for i in range(N)]
    words = np.where(NO_B, None, np.array(words, dtype=object))
    data = MultiView({"a": holed(A, NO_A), "w": words})
    both = [Linear(view="a"), Spectrum(2, view="w")]
    model = MKLClassifier(both, loss="squared", tol=1e-10)
    agree(model, data, Y, data[::-1])


@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_means_are_those_of_all_rows_where_features_are_chosen_on_few(
    kind, monkeypatch
):
    monkeypatch.setattr(MKLClassifier, "_sample", lambda self: 12)
    linear = MKLClassifier(KERNELS[:2], loss="squared", normalize=kind, tol=1e-10)
    # a gap of g in an objective of J leaves scores within sqrt(2 g J)
    agree(linear, DATA, Y, DATA[::-1], atol=(2 * 2e-10 * len(Y)) ** 0.5)


def test_sums_over_samples_that_lack_views():
    exact = MKLClassifier(KERNELS, loss="squared", tol=1e-10).fit(DATA, Y)
    model = clone(exact).set_params(approximation="nystroem", rank=N)
    sums = model.accumulator(DATA)
    for rows in (slice(0, 11), slice(11, None)):
        sums.update(DATA[rows], Y[rows])
    np.testing.assert_allclose(
        model.fit_statistics(sums).decision_function(DATA),
        exact.decision_function(DATA),
        atol=1e-6,
    )


def test_features_chosen_on_complete_samples_have_no_place_for_others(tmp_path):
    complete = MultiView({"a": A, "b": B})
    features = kernels.FeatureMap.fit(complete, KERNELS, rank=5)
    with pytest.raises(ValueError, match="lack the view of kernel"):
        features.transform(DATA)
    model = MKLClassifier(KERNELS, approximation="nystroem", rank=5).fit(DATA, Y)
    save(model, tmp_path / "m.mkl")
    again = load(tmp_path / "m.mkl").decision_function(DATA)
    np.testing.assert_allclose(again, model.decision_function(DATA), atol=1e-12)


@pytest.mark.parametrize("lacking", ["nobody", "some"])
@pytest.mark.parametrize(
    "options", [{}, {"normalize": "spherical"}, {"approximation": "nystroem"}]
)
def test_new_samples_without_a_whole_view(lacking, options, tmp_path):
    # a view that is not given is missing for all samples, as a view of NaN is
    rng = np.random.default_rng(0)
    n = 30
    y = np.arange(n) % 2
    a, b = rng.normal(size=(n, 3)) + y[:, None], rng.normal(size=(n, 2)) + y[:, None]
    if lacking == "some":
        b[:4] = np.nan
    X = MultiView({"a": a, "b": b, "s": ["AC", "CA"] * (n // 2)})
    kernels = per_view(Linear(), Spectrum(2))
    model = MKLClassifier(kernels, random_state=0, **options).fit(X, y)
    holes = {"a": a, "b": np.full((n, 2), np.nan), "s": [None] * n}
    expected = model.decision_function(MultiView(holes))
    np.testing.assert_array_equal(model.decision_function({"a": a}), expected)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl").decision_function({"a": a})
    np.testing.assert_array_equal(again, expected)
    with pytest.raises(ValueError, match="lack view 'b' and have 'c' instead"):
        model.predict({"a": a, "c": b})


def test_a_covariate_is_needed_for_every_new_sample():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 2
    X = MultiView({"a": rng.normal(size=(30, 3)), "age": rng.normal(size=30)})
    model = MKLClassifier(per_view(Linear()), fixed="age").fit(X, y)
    with pytest.raises(ValueError, match="lack view 'age', which is a covariate"):
        model.predict({"a": X["a"]})
