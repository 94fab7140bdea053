"""Proofs that kernels have weight or none: against solutions of high accuracy."""

from dataclasses import replace

import numpy as np
import pytest

from mklearn import (
    KernelBank,
    LpBall,
    MKLClassifier,
    MKLClassifierCV,
    MKLProblem,
    MKLRegressor,
    kernels,
    mkl_path,
    solve,
)  # fmt: skip
from mklearn.inference import (
    certified_path,
    certified_selection,
    selection_of,
    selection_path,
)
from mklearn.problems import EpsilonInsensitive, Hinge, Logistic, Squared, SquaredHinge

LOSSES = [Hinge, SquaredHinge, Squared, Logistic, EpsilonInsensitive]


def setting(loss_type, n=60, seed=3, C=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    bank = KernelBank(X, kernels.per_feature(kernels.RBF(0.5))).stored()
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    if loss_type not in (Squared, EpsilonInsensitive):
        y = np.where(y > 0, 1.0, -1.0)
    return MKLProblem(bank, loss_type(y[:, None], np.full((n, 1), C)), LpBall(1))


@pytest.mark.parametrize("loss_type", LOSSES)
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-7])
def test_what_is_proved_is_so_at_high_accuracy(loss_type, tol):
    problem = setting(loss_type)
    best = solve(problem, "newton", tol=1e-11, max_iter=3000)
    found = selection_of(problem, solve(problem, "newton", tol=tol))
    # how far a weight may be from an optimal one of an optimum known to a gap: no
    # farther than what the gap bounds, where a kernel has none
    for m, state in enumerate(found.states):
        if state == "zero":
            assert best.theta[m] <= best.weight_bounds[m] <= 1e-3
            assert found.most[m] == 0
        elif state == "not zero":
            kept = [k for k in range(6) if k != m]
            part = replace(problem, bank=problem.bank.select(kept))
            assert solve(part, "newton", tol=1e-9).lower > best.upper
    assert (best.theta <= found.most + best.weight_bounds * (found.most == 0)).all()


@pytest.mark.parametrize("loss_type", LOSSES)
def test_a_small_gap_decides(loss_type):
    problem = setting(loss_type)
    solution = solve(problem, "newton", tol=1e-9)
    found = selection_of(problem, solution)
    used = solution.theta > 1e-3
    assert all(found.states[m] == "not zero" for m in np.flatnonzero(used))
    if problem.loss.concavity > 0:
        idle = np.flatnonzero(solution.theta < 1e-9)
        assert len(idle) and all(found.states[m] == "zero" for m in idle)
    else:
        assert "zero" not in found.states


def test_a_rough_solution_proves_nothing_false():
    """With a gap of a half there is a ball around everything."""
    problem = setting(Squared)
    rough = solve(problem, "newton", tol=0.5)
    found = selection_of(problem, rough)
    sure = selection_of(problem, solve(problem, "newton", tol=1e-10))
    for one, two in zip(found.states, sure.states, strict=True):
        assert one in ("undecided", two)


def test_of_two_equal_kernels_neither_is_proved_to_have_weight():
    problem = setting(Squared)
    twice = problem.bank.select([0, 0, 1, 2, 3, 4])
    problem = replace(problem, bank=twice)
    found = selection_of(problem, solve(problem, "newton", tol=1e-9))
    assert found.states[0] == found.states[1] == "undecided"
    assert found.weights[:2].sum() > 0.1


def test_one_kernel_alone():
    problem = setting(Squared)
    problem = replace(problem, bank=problem.bank.select([0]))
    found = selection_of(problem, solve(problem, "newton", tol=1e-9))
    assert found.states == ("not zero",)


def test_along_a_path():
    problem = setting(SquaredHinge)
    Y = problem.loss.Y

    def loss_at(C):
        return SquaredHinge(Y, np.full(Y.shape, C))

    path = mkl_path(problem.bank, loss_at, [0.01, 0.1, 1.0], [1, 2], tol=1e-8)
    found = selection_path(path, problem.bank, loss_at)
    assert len(found) == 3
    for C, one, solution in zip(path.Cs, found, path.solutions[0], strict=True):
        again = selection_of(MKLProblem(problem.bank, loss_at(C), LpBall(1)), solution)
        assert one.states == again.states
        assert "not zero" in one.states and "zero" in one.states
    with pytest.raises(ValueError, match="no norm=1"):
        selection_path(
            mkl_path(problem.bank, loss_at, [0.1], [2]), problem.bank, loss_at
        )


def test_models_and_their_samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    family = kernels.per_feature("rbf")
    model = MKLRegressor(family, norm=1, tol=1e-8).fit(X, y)
    found = certified_selection(model, X, y)
    assert found.names == model.kernel_names_ and found.states[0] == "not zero"
    frame = found.frame()
    assert list(frame["state"]) == list(found.states)
    with pytest.raises(ValueError, match="not the samples"):
        certified_selection(model, X, y[::-1])
    with pytest.raises(ValueError, match="norm=1"):
        certified_selection(MKLRegressor(family).fit(X, y), X, y)
    with pytest.raises(ValueError, match="without approximation"):
        low = MKLRegressor(family, norm=1, approximation="nystroem", rank=20)
        certified_selection(low.fit(X, y), X, y)


def test_classes_with_weights_of_their_own():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 3))
    X[:, 0] += y
    model = MKLClassifier(
        kernels.per_feature("rbf"), loss="squared_hinge", norm=1, weights="per-class",
        tol=1e-7,
    ).fit(X, y)  # fmt: skip
    found = certified_selection(model, X, y)
    assert len(found) == 3
    assert [one.weights.tolist() for one in found] == model.kernel_weights_.tolist()
    search = MKLClassifierCV(kernels.per_feature("rbf"), Cs=[1.0], norms=[1]).fit(X, y)
    with pytest.raises(ValueError, match="after a search"):
        certified_selection(search, X, y)


@pytest.mark.parametrize("labels", [False, True], ids=["numbers", "classes"])
def test_a_path_of_models_whose_truth_is_known(labels):
    """Kernels on orthogonal columns, of which the target has two of different size.

    A linear kernel orthogonal to the residuals of any model with the first two has zero
    slope there, so its weight is zero at every optimum.
    """
    n = 64
    bits = (np.arange(n)[:, None] >> np.arange(6)) % 2
    X = 1.0 - 2.0 * bits  # products of columns have a mean of zero
    y = 2.0 * X[:, 0] + X[:, 1]
    family = kernels.per_feature("linear")
    if labels:
        y = np.where(y > 0, "yes", "no")
        model = MKLClassifier(family, loss="squared_hinge", norm=1, tol=1e-8)
    else:
        model = MKLRegressor(family, norm=1, tol=1e-8)
    path = certified_path(model, X, y, [10.0, 0.01])
    assert path.Cs == (10.0, 0.01) and path.names == path.selections[0].names
    # labels depend on the first column only
    known = 1 if labels else 2
    for states in path.states:
        assert states[0] == "not zero"
        assert set(states[known:]) == {"zero"}
    assert not hasattr(model, "solution_")  # the model itself is not fitted


def test_paths_and_their_tables():
    pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    model = MKLRegressor(kernels.per_feature("rbf"), norm=1, tol=1e-8).fit(X, y)
    path = certified_path(model, X, y, [0.01, 1.0])
    frame = path.frame()
    assert frame["C"].tolist() == [0.01] * 3 + [1.0] * 3
    assert frame["state"].tolist() == [s for states in path.states for s in states]
    shown = model.inference_frame(selection=path.selections[1])
    assert shown["proved"].tolist() == list(path.states[1])
    with pytest.raises(ValueError, match="other weights"):
        model.inference_frame(selection=path.selections[0])


@pytest.mark.parametrize(
    "change, Cs, words",
    [
        ({}, [], "positive costs"),
        ({}, [1.0, -1.0], "positive costs"),
        ({}, [1.0, np.nan], "positive costs"),
        ({"norm": 2}, [1.0], "norm=1"),
        ({"approximation": "nystroem", "rank": 20}, [1.0], "without approximation"),
    ],
)
def test_paths_that_cannot_be_proved(change, Cs, words):
    X = np.random.default_rng(0).standard_normal((30, 2))
    model = MKLRegressor(kernels.per_feature("rbf"), norm=1).set_params(**change)
    with pytest.raises(ValueError, match=words):
        certified_path(model, X, X[:, 0], Cs)
