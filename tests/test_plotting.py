"""Figures show the numbers of the model, and can be read."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.datasets import load_iris

from mklearn import (
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MultiView,
)
from mklearn.inference import kernel_tests
from mklearn.interpretation import weight_stability
from mklearn.kernels import RBF, Linear, alignment
from mklearn.plotting import (
    ConvergenceDisplay,
    ForestDisplay,
    KernelAlignmentDisplay,
    KernelWeightsDisplay,
    PathDisplay,
    plot_convergence,
    plot_weights,
)
from mklearn.report import kernel_rows, rows_by_view, used_kernels


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = MultiView(
        {"signal": rng.normal(size=(60, 3)) + y[:, None], "noise": rng.random((60, 2))}
    )
    kernels = [
        Linear(view="signal", standardize=True, name="signal:linear"),
        RBF("median", view="signal", name="signal:rbf"),
        RBF("median", view="noise", name="noise:rbf"),
    ]
    return MKLClassifier(kernels, norm=2).fit(X, y)


def axes():
    return Figure().subplots()


def test_bars_are_the_weights(model):
    ax = plot_weights(model, axes())
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, model.kernel_weights_)


def test_kernels_and_views_are_named_and_axes_labelled(model):
    ax = plot_weights(model, axes(), label="A title")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["linear", "rbf", "rbf"]
    texts = {t.get_text() for t in ax.texts}
    assert {"signal", "noise"} <= texts
    bottom, top = ax.get_ylim()
    assert all(top < t.get_position()[1] < bottom for t in ax.texts)
    assert f"{100 * model.kernel_contributions_[0]:.0f} %" in texts
    assert "weight" in ax.get_xlabel() and ax.get_title() == "A title"


def test_views_have_different_colours(model):
    bars = plot_weights(model, axes()).patches
    colours = [bar.get_facecolor() for bar in bars]
    assert colours[0] == colours[1] != colours[2]


def test_precomputed_kernels_have_no_view_and_still_a_figure():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(30, 4))
    grams = np.stack([Z @ Z.T, (Z @ Z.T) ** 2], axis=-1)
    model = MKLClassifier("precomputed").fit(grams, np.arange(30) % 2)
    assert list(rows_by_view(kernel_rows(model))) == [None]
    assert len(plot_weights(model, axes()).patches) == 2


def test_bounds_are_those_of_the_history(model):
    ax = plot_convergence(model.solution_, axes())
    upper, lower = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(upper, model.solution_.history.upper)
    np.testing.assert_array_equal(lower, model.solution_.history.lower)
    assert ax.get_xlabel() and ax.get_ylabel() and ax.get_legend() is not None
    low, high = ax.get_ylim()
    assert low < model.solution_.lower <= model.solution_.upper < high


def test_new_axes_are_made_on_demand(model):
    for ax in (plot_weights(model), plot_convergence(model.solution_)):
        ax.figure.canvas.draw()  # warnings, as of missing letters, are errors
        pyplot.close(ax.figure)
    assert not pyplot.get_fignums()


def test_weights_per_class_are_averaged():
    rng = np.random.default_rng(2)
    y = np.repeat([0, 1, 2], 15)
    X = rng.normal(size=(45, 2)) + y[:, None]
    model = MKLClassifier(["linear", "rbf"], weights="per-class").fit(X, y)
    weights = [row.weight for row in kernel_rows(model)]
    np.testing.assert_allclose(weights, model.kernel_weights_.mean(axis=0))
    assert sum(row.contribution for row in kernel_rows(model)) == pytest.approx(1.0)


def test_weights_at_the_level_of_rounding_do_not_count():
    assert used_kernels([0.5, 1e-9, 0.0, 0.1]).tolist() == [True, False, False, True]
    per_class = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert used_kernels(per_class).tolist() == [True, True, False]


@pytest.fixture(scope="module")
def chosen():
    X, y = load_iris(return_X_y=True)
    return MKLClassifierCV(Cs=3, norms=[np.inf, 1, 4 / 3], cv=2).fit(X, y)


@pytest.mark.parametrize("against", ["C", "norm"])
def test_paths_show_the_mean_weights_of_the_folds(chosen, against):
    display = PathDisplay.from_estimator(chosen, against=against, top=2)
    assert display.ax_.figure is display.figure_
    theta = np.mean([path.theta for path in chosen.path_], axis=0)
    i, k = chosen.best_index_
    along = theta[i] if against == "C" else theta[[1, 2, 0], k]
    assert len(display.lines_) == 2
    line = display.lines_[0]
    m = chosen.kernel_names_.index(line.get_label())
    assert along[:, m].max() == pytest.approx(along.max())
    np.testing.assert_allclose(line.get_ydata(), along[:, m])
    if against == "norm":
        ticks = [text.get_text() for text in display.ax_.get_xticklabels()]
        assert ticks == ["1", "4/3", "∞"]
    else:
        np.testing.assert_allclose(line.get_xdata(), chosen.Cs_)
    assert "chosen" in [t.get_text() for t in display.ax_.get_legend().get_texts()]
    pyplot.close(display.figure_)


def test_paths_draw_into_given_axes(chosen):
    ax = Figure().subplots()
    assert PathDisplay.from_estimator(chosen, ax=ax).ax_ is ax
    with pytest.raises(ValueError, match="against"):
        PathDisplay.from_estimator(chosen, against="time")


@pytest.mark.parametrize("weights", ["shared", "per-class"])
def test_whiskers_are_the_intervals_of_the_resamples(weights):
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(["linear", "rbf"], weights=weights)
    found = weight_stability(model, X, y, n_resamples=4, random_state=0)
    display = KernelWeightsDisplay.from_stability(found, ax=axes())
    assert display.ax_.figure is display.figure_
    mean = found.mean if weights == "shared" else found.mean.mean(axis=0)
    widths = [bar.get_width() for bar in display.ax_.patches]
    np.testing.assert_allclose(widths, mean)
    (whiskers,) = display.ax_.collections
    ends = np.array([s[:, 0] for s in whiskers.get_segments()]).T
    np.testing.assert_allclose(ends, display.interval)
    if weights == "shared":
        np.testing.assert_allclose(ends, found.interval)
    assert "4 resamples" in display.ax_.get_title()


def test_convergence_of_several_problems_shows_the_widest_gap():
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(["linear", "rbf"], weights="per-class").fit(X, y)
    display = ConvergenceDisplay.from_estimator(model, ax=axes())
    worst = max(model.solution_, key=lambda solution: solution.gap)
    assert display.upper == worst.history.upper
    assert worst.gap == model.duality_gap_
    np.testing.assert_array_equal(display.lines_[1].get_ydata(), worst.history.lower)


def test_alignments_are_those_of_the_kernels():
    X, y = load_iris(return_X_y=True)
    bank = KernelBank(X, [Linear(), RBF(0.1), RBF(0.2)])
    display = KernelAlignmentDisplay.from_bank(bank, ax=axes())
    np.testing.assert_allclose(display.image_.get_array(), alignment(bank))
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == list(bank.names)
    assert display.text_[0].get_text() == "1.00"
    model = MKLClassifier([Linear(), RBF(0.1), RBF(0.2)]).fit(X, y)
    same = KernelAlignmentDisplay.from_estimator(model, X, ax=axes())
    np.testing.assert_allclose(same.alignment, alignment(bank))
    given = MKLClassifier("precomputed").fit(bank, y)
    grams = np.stack([bank.gram(m) for m in range(3)], axis=2)
    for kernels in (bank, grams):
        same = KernelAlignmentDisplay.from_estimator(given, kernels, ax=axes())
        np.testing.assert_allclose(same.alignment, alignment(bank))


def test_forest_plot_shows_estimates_intervals_and_p_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=60)
    family = [RBF(0.5, columns=[0]), RBF(0.5, columns=[1]), RBF(0.5, columns=[0])]
    model = EvidenceMKLRegressor(family).fit(X, y)
    assert np.isinf(model.kernel_weights_std_).any()  # two kernels say the same
    tests = kernel_tests(X, y, family)
    for of, values in (
        ("share", model.variance_explained_), ("weight", model.kernel_weights_)
    ):  # fmt: skip
        ax = Figure().subplots()
        display = ForestDisplay.from_estimator(model, tests=tests, of=of, ax=ax)
        assert display.points_.get_xdata() == pytest.approx(values)
        notes = [text.get_text() for text in display.ax_.texts]
        assert notes == [f"p = {p:.2g}" for p in tests.adjusted("holm")]
        low, high = ax.get_xlim()
        assert low < 0 <= values.max() < high
    with pytest.raises(ValueError, match="of must be"):
        ForestDisplay.from_estimator(model, of="size")


def test_forest_plot_of_other_models_needs_resamples(model):
    with pytest.raises(ValueError, match="weight_stability"):
        ForestDisplay.from_estimator(model)
