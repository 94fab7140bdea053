"""Searches that may do without the narrowest widths: theorems and known answers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from mklearn import MKLClassifier, MKLClassifierCV, MKLRegressorCV, MultiView
from mklearn.estimators import _path_search
from mklearn.kernels import RBF, KernelBank, Laplacian, Linear, rbf_ladder
from mklearn.kernels.families import auto_kernels, width_ranges
from mklearn.persistence import load, save
from mklearn.report.facts import headline, model_facts

SMALL = {"Cs": [0.1, 10.0], "norms": [1, 2, np.inf], "cv": 3}


def noisy_line(n=120, seed=1):
    """Return classes on two sides of a line, a fifth of them wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (X[:, 0] > 0) ^ (rng.random(n) < 0.2)


# --- the choices ----------------------------------------------------------------------


def test_choices_leave_out_the_narrowest_of_each_ladder():
    X = MultiView({"a": np.random.default_rng(0).normal(size=(9, 2)), "b": np.eye(9)})
    kernels = list(KernelBank(X, auto_kernels(X)).kernels)
    everything, fewer, fewest = width_ranges(kernels)
    assert_array_equal(everything, np.arange(12))
    assert_array_equal(np.setdiff1d(everything, fewer), [5, 11])
    assert_array_equal(np.setdiff1d(everything, fewest), [4, 5, 10, 11])
    # whatever their order
    order = np.random.default_rng(1).permutation(12)
    mixed = width_ranges([kernels[m] for m in order])
    for choice, same in zip((everything, fewer, fewest), mixed, strict=True):
        assert_array_equal(np.sort(order[same]), choice)


@pytest.mark.parametrize(
    "kernels",
    [
        [None] * 6,
        [Linear()] * 6,
        rbf_ladder(gammas=[1, 2, 4, 8]),
        [*rbf_ladder(gammas=[1, 2, 4]), Laplacian(1.0), Laplacian(2.0)],
        [RBF(float(g), columns=[g % 2]) for g in range(1, 9)],
    ],
)
def test_without_a_ladder_all_are_kept(kernels):
    (choice,) = width_ranges(kernels)
    assert_array_equal(choice, np.arange(len(kernels)))


# --- the search -----------------------------------------------------------------------


def test_scores_of_widths_are_those_of_sums():
    X, y = noisy_line()
    model = MKLClassifierCV(**SMALL).fit(X, y)
    for number, left_out in enumerate((0, 1, 2)):
        kernels = auto_kernels(MultiView.wrap(X))[: 6 - left_out]
        plain = MKLClassifierCV(
            kernels, **{**SMALL, "norms": [np.inf]}, select=None
        ).fit(X, y)
        assert_array_equal(model.select_scores_[number], plain.scores_[0])
    best = model.select_scores_.mean(axis=2).max(axis=1).round(12)
    last = int(np.flatnonzero(best == best.max())[-1])  # the fewest among equals
    assert model.rejected_ == model.kernel_names_[6 - last :]


@pytest.mark.parametrize("norms", [[1], [2], [np.inf]])
def test_the_rest_is_the_search_without_what_was_left_out(norms):
    X, y = noisy_line()
    options = {**SMALL, "norms": norms, "tol": 1e-6}
    model = MKLClassifierCV(**options).fit(X, y)
    kept = 6 - len(model.rejected_)
    assert 0 < kept < 6
    kernels = auto_kernels(MultiView.wrap(X))[:kept]
    small = MKLClassifierCV(kernels, select=None, **options).fit(X, y)
    assert_array_equal(model.scores_, small.scores_)
    assert (model.C_, model.norm_) == (small.C_, small.norm_)
    assert_allclose(model.kernel_weights_[:kept], small.kernel_weights_, rtol=1e-12)
    assert_array_equal(model.kernel_weights_[kept:], 0.0)
    assert_array_equal(model.kernel_contributions_[kept:], 0.0)
    assert model.kernel_contributions_.sum() == pytest.approx(1.0)
    assert_allclose(model.decision_function(X), small.decision_function(X), rtol=1e-9)
    # and the plain estimator at the choice, within the gaps of both
    plain = MKLClassifier(kernels, C=model.C_, norm=model.norm_, tol=1e-6).fit(X, y)
    assert model.duality_gap_ <= 1e-6
    assert model.solution_.upper == pytest.approx(plain.solution_.upper, rel=2e-6)


@pytest.mark.parametrize("norms", [[np.inf], [np.inf, 1], [1, np.inf, 2]])
@pytest.mark.parametrize("select", ["widths", "one"])
def test_the_sum_is_followed_once(norms, select, monkeypatch):
    X, y = noisy_line()
    kept = []
    follow = _path_search.rough_path

    def counted(kernels, loss_at, Cs, tried, **options):
        kept.append(tuple(getattr(norm, "p", norm) for norm in tried))
        return follow(kernels, loss_at, Cs, tried, **options)

    monkeypatch.setattr(_path_search, "rough_path", counted)
    options = {**SMALL, "norms": norms, "select": select}
    model = MKLClassifierCV(**options).fit(X, y)
    rest = tuple(p for p in norms if np.isfinite(p))
    choices = len(model.select_scores_)
    assert kept[: 3 * choices] == [(np.inf,)] * (3 * choices)
    assert kept[3 * choices :] == ([rest] * 3 if rest else [])
    # as the sum of the kernels that were kept, in the place of its norm
    used = [n for n in model.kernel_names_ if n not in model.rejected_]
    chosen = len(model.rejected_) if select == "widths" else None
    if select == "one":
        chosen = model.kernel_names_.index(used[0])
    at = norms.index(np.inf)
    assert_array_equal(model.scores_[at], model.select_scores_[chosen])
    assert model.path_[0].norms == tuple(map(float, norms))
    ones = [name in used for name in model.kernel_names_]
    assert_array_equal(model.path_[0].theta[at], np.tile(ones, (2, 1)))
    # and with the other norms in theirs
    alone = MKLClassifierCV(**{**options, "norms": rest or [1]}).fit(X, y)
    if rest:
        others = [i for i, p in enumerate(norms) if np.isfinite(p)]
        assert_array_equal(model.scores_[others], alone.scores_)
    assert model.duality_gap_ <= model.tol


def test_sums_of_many_kernels_start_afresh(monkeypatch):
    X, y = noisy_line()
    options = {**SMALL, "norms": [np.inf], "select": "one", "tol": 1e-6}
    held = MKLClassifierCV(**options).fit(X, y)
    monkeypatch.setattr(_path_search, "_HELD", 0)
    cold = MKLClassifierCV(**options).fit(X, y)
    assert cold.rejected_ == held.rejected_
    assert_array_equal(cold.scores_, held.scores_)
    # the same optimum, within the gaps of both
    assert cold.solution_.upper == pytest.approx(held.solution_.upper, rel=2e-6)


def test_all_keeps_all():
    X, y = noisy_line()
    model = MKLClassifierCV(**SMALL, select=None).fit(X, y)
    assert model.rejected_ == () and model.select_scores_ is None
    again = clone(model).set_params(select="widths").fit(X, y)
    assert again.set_params(select=None).fit(X, y).rejected_ == ()
    assert again.select_scores_ is None
    with pytest.raises(ValueError, match="'widths', 'one' or None, got 'no'"):
        MKLClassifierCV(select="no").fit(X, y)


def test_one_kernel_is_the_best_one():
    X, _ = noisy_line()
    y = (X[:, :2] ** 2).sum(axis=1) > 1.4  # a circle: one kernel is clearly the best
    kernels = auto_kernels(MultiView.wrap(X))
    exact = {**SMALL, "tol": 1e-8}
    model = MKLClassifierCV(kernels, **exact, select="one").fit(X, y)
    alone = [
        MKLClassifierCV([k], **{**exact, "norms": [np.inf]}).fit(X, y) for k in kernels
    ]
    for scores, one in zip(model.select_scores_, alone, strict=True):
        assert_array_equal(scores, one.scores_[0])
    best = int(np.argmax([one.mean_scores_.max().round(12) for one in alone]))
    assert_array_equal(np.flatnonzero(model.kernel_weights_), [best])
    assert model.kernel_contributions_[best] == 1.0 and len(model.rejected_) == 5
    # scores are as exact as the square root of the gap
    both = model.decision_function(X), alone[best].decision_function(X)
    assert_allclose(*both, atol=1e-3)
    # given as matrices, too: the same on the same folds
    folds = {**SMALL, "select": "one", "cv": list(StratifiedKFold(3).split(X, y))}
    grams = KernelBank(X, kernels).stored()
    given = MKLClassifierCV("precomputed", **folds).fit(grams, y)
    model = MKLClassifierCV(kernels, **folds).fit(X, y)
    assert given.rejected_ == model.rejected_


def test_narrow_widths_are_kept_where_they_are_needed():
    # classes alternate from sample to sample, with copies of each close to it: wide
    # kernels see equal numbers of both around every point
    rng = np.random.default_rng(0)
    centres = np.arange(11)
    X = (np.repeat(centres, 12) + 0.05 * rng.normal(size=132))[:, None]
    y = np.repeat(centres % 2, 12)
    order = rng.permutation(132)
    model = MKLClassifierCV(**SMALL).fit(X[order], y[order])
    best = model.select_scores_.mean(axis=2).max(axis=1)
    assert best[0] > best[1] and best[0] > best[2]
    assert model.rejected_ == () and model.mean_scores_.max() > 0.95


def test_values_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    y = X[:, 0] + rng.normal(size=120)  # a line, and as much noise
    model = MKLRegressorCV(**SMALL).fit(X, y)
    best = model.select_scores_.mean(axis=2).max(axis=1)
    assert best[2] > best[0]
    assert model.rejected_ == model.kernel_names_[-2:]


def test_what_was_left_out_is_saved_and_told(tmp_path):
    X, y = noisy_line()
    model = MKLClassifierCV(**SMALL).fit(X, y)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert again.rejected_ == model.rejected_
    assert_array_equal(again.predict(X), model.predict(X))
    assert model_facts(again)["rejected"] == list(model.rejected_)


# --- what is shown first --------------------------------------------------------------


def test_widths_are_one_row_and_views_come_first():
    X, y = noisy_line()
    views = MultiView({"a": X[:, :2], "b": X[:, 2:]})
    model = MKLClassifier(norm=2).fit(views, y)
    kernels = model_facts(model)["kernels"]
    shown = headline(kernels)
    assert [row["name"] for row in shown["views"]] == ["a", "b"]
    names = [row["name"] for row in shown["kernels"]]
    assert names == ["a:linear", "a:rbf, 5 widths", "b:linear", "b:rbf, 5 widths"]
    for rows in shown.values():
        assert sum(row["contribution"] for row in rows) == pytest.approx(1.0)
    two = MKLClassifier([RBF(0.1), RBF(1.0)]).fit(X, y)
    shown = headline(model_facts(two)["kernels"])
    assert len(shown["kernels"]) == 2 and shown["views"] == []
