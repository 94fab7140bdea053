"""The toy data are what they say, and the experiment on them runs and resumes."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from mklearn import MKLClassifier
from mklearn.datasets import bayes_error, make_toy
from mklearn.kernels import Linear, per_feature

SCRIPT = Path(__file__).parents[1] / "reproduction" / "lpmkl" / "toy.py"


@pytest.fixture(scope="module")
def toy():
    spec = importlib.util.spec_from_file_location("toy_experiment", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_linear_models_are_the_decision_functions(toy):
    X, y, _ = make_toy(40, 0.9, random_state=0)
    Z, _, _ = make_toy(30, 0.9, random_state=1)
    kernels = per_feature(Linear())
    model = MKLClassifier(kernels, C=0.3, norm=2, tol=1e-8).fit(X, y)
    raw = toy.KernelBank(X, kernels).stored()
    normaliser = toy.fit_normaliser("multiplicative", raw)
    Y = y[:, None]
    path = toy.mkl_path(
        normaliser.train(raw),
        lambda C: toy.Hinge(Y, np.full_like(Y, C)),
        [0.3],
        [2],
        tol=1e-8,
    )
    W, bias = toy.linear_models([path], X, normaliser.scale)
    ours = Z @ W[0, 0] + bias[0, 0]
    np.testing.assert_allclose(ours, model.decision_function(Z), atol=1e-3)


def test_model_error_is_the_distance_of_directions(toy):
    truth = np.array([1.0, 1.0, 0.0])
    theta = np.array([[2.0, 2.0, 0.0], [0.0, 0.0, 5.0]])
    np.testing.assert_allclose(toy.model_error(theta, truth), [0, 2**0.5], atol=1e-12)


def test_quick_run_writes_resumes_and_starts_again(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(toy, "COSTS", (0.03, 0.1, 0.3))
    command = ["--quick", "--repetitions", "1", "--out", str(tmp_path)]
    toy.main(command)
    files = sorted((tmp_path / "cells").iterdir())
    assert [file.name for file in files] == ["n50-s00-000.json", "n50-s98-000.json"]
    result = json.loads(files[1].read_text())
    assert result["largest_gap"] <= 1e-6
    assert result["test_error"][0] < result["test_error"][4]
    text = (tmp_path / "lpmkl_toy.md").read_text(encoding="utf-8")
    assert "ℓ1 is best when one kernel is informative: " in text
    assert (tmp_path / "lpmkl_toy.png").stat().st_size > 10_000
    # what is done stays; what is missing or broken is found again, the same
    times = files[0].stat().st_mtime_ns
    files[1].write_text("{")
    capsys.readouterr()
    toy.main(command)
    assert "1 of them done before" in capsys.readouterr().out
    assert files[0].stat().st_mtime_ns == times
    again = json.loads(files[1].read_text())
    assert {**again, "seconds": 0} == {**result, "seconds": 0}
    # and other settings do not mix with it
    setting = toy.settings(toy.parse([*command, "--seed", "1"]))
    assert toy.finished(files[0], setting) is None
