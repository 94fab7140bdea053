"""The toy data are what they say, and so is the experiment on them."""

from zlib import crc32

import numpy as np
import pytest

from mklearn import Hinge, MKLClassifier, mkl_path
from mklearn.datasets import bayes_error, make_toy
from mklearn.kernels import KernelBank, Linear, per_feature
from mklearn.kernels.normalise import fit_normaliser
from reproduction import Cell, Settings, protocol
from reproduction import lpmkl_toy as toy
from reproduction.cells import Results


@pytest.mark.parametrize(
    ("sparsity", "informative"),
    [(0, 50), (0.44, 28), (0.64, 18), (0.82, 9), (0.92, 4), (0.98, 1), (0.999, 1)],
)
def test_classes_means_and_bayes_error(sparsity, informative):
    X, y, weights = make_toy(20_000, sparsity, random_state=0)
    assert np.sum(y == 1) == np.sum(y == -1) == 10_000
    assert weights.sum() == informative
    mean = (y[:, None] * X).mean(axis=0)
    np.testing.assert_allclose(mean, 1.75 * weights / informative**0.5, atol=0.04)
    np.testing.assert_allclose(np.cov((X - y[:, None] * mean).T), np.eye(50), atol=0.05)
    error = np.mean((X @ weights > 0) != (y > 0))
    assert error == pytest.approx(bayes_error(), abs=0.006)


def test_bayes_error_is_that_of_the_normal_distribution():
    assert bayes_error() == pytest.approx(0.04005915686381709)
    assert bayes_error(0) == 0.5


def test_seeds_repeat_and_mistakes_are_named():
    for a, b in zip(
        make_toy(9, random_state=1), make_toy(9, random_state=1), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="sparsity"):
        make_toy(10, 1.0)
    with pytest.raises(ValueError, match="n_samples"):
        make_toy(1)


def test_linear_models_are_the_decision_functions():
    X, y, _ = make_toy(40, 0.9, random_state=0)
    Z, _, _ = make_toy(30, 0.9, random_state=1)
    kernels = per_feature(Linear())
    model = MKLClassifier(kernels, C=0.3, norm=2, tol=1e-8).fit(X, y)
    raw = KernelBank(X, kernels).stored()
    normaliser = fit_normaliser("multiplicative", raw)
    Y = y[:, None]
    path = mkl_path(
        normaliser.train(raw),
        lambda C: Hinge(Y, np.full_like(Y, C)),
        [0.3],
        [2],
        tol=1e-8,
    )
    W, bias = toy.linear_models(path.solutions[0], X, normaliser.scale)
    ours = Z @ W[0] + bias[0]
    np.testing.assert_allclose(ours, model.decision_function(Z), atol=1e-3)
    wrong = np.mean((ours > 0) != (Z[:, 0] > 0))
    assert toy.errors(Z, Z[:, 0], W, bias) == pytest.approx([wrong])


def test_model_error_is_the_distance_of_directions():
    truth = np.array([1.0, 1.0, 0.0])
    assert toy.model_error(np.array([2.0, 2.0, 0.0]), truth) == pytest.approx(0)
    assert toy.model_error(np.array([0.0, 0.0, 5.0]), truth) == pytest.approx(2**0.5)


def test_cells_share_data_and_find_what_is_known(monkeypatch):
    monkeypatch.setitem(toy.SIZES, 50, (1, (0.03, 0.1, 0.3), 1e-6))
    monkeypatch.setattr(toy, "POINTS", 2000)
    data = toy.name_of(50, 0.98)
    values = [
        toy.work(Cell("lpmkl", "figure1-50", data, method, 0), 0)
        for method in ("p = 1", "p = inf")
    ]
    assert all(v["gap"] <= 1e-6 for v in values)
    # one feature tells all: the sparse norm finds it, the sum drowns it
    assert values[0]["error"] < 100 * bayes_error() + 2 < values[1]["error"]
    assert values[0]["model error"] < 0.1
    assert values[1]["model error"] == pytest.approx(np.sqrt(2 - 2 / np.sqrt(50)))


def made_up(difference):
    """Return results in which p = 1 is so much better than the others everywhere."""
    plan = protocol("lpmkl")
    tables = tuple(toy.table(n) for n in toy.SIZES)
    cells = {
        cell: {
            "error": 10.0 - difference * (cell.method == "p = 1") + noise(cell),
            "model error": 1.0,
            "spent": 0.0,
            "commit": "",
        }
        for table in tables
        for cell in table.cells("lpmkl", 3)
    }
    return Results(plan, tables, Settings(repetitions=3), cells)


def noise(cell):
    return 0.1 * (crc32(cell.file.encode()) % 7) / 7


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_claims_follow_the_numbers(tmp_path):
    better, worse = (toy.claims(made_up(d)) for d in (3.0, -3.0))
    one = "ℓ1 is best when one kernel is informative: "
    line = {kind: next(t for t in text if one in t) for kind, text in
            (("better", better), ("worse", worse))}  # fmt: skip
    assert "**holds**" in line["better"] and "**does not hold**" in line["worse"]
    assert any("ℓ1 is worst at 0% noise: **holds**" in text for text in worse)
    assert toy.draw(made_up(3.0), tmp_path) == ["figure1.png"]
    assert (tmp_path / "figure1.png").stat().st_size > 10_000
    empty = Results(protocol("lpmkl"), (toy.table(50),), Settings(), {})
    assert toy.claims(empty) == [] == toy.draw(empty, tmp_path)
