"""One problem, one loop, one model: what holds for every method alike."""

import dataclasses
import warnings
from itertools import chain

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning

import mklearn
from mklearn import (
    BilinearProblem,
    CrammerSinger,
    EvidenceMKLRegressor,
    Hinge,
    KernelBank,
    LpBall,
    MKLClassifier,
    MKLCox,
    MKLCoxCV,
    MKLProblem,
    MKLSurvivalSVM,
    MultiView,
    SingleKernelCV,
    Solution,
    Squared,
    SubspaceClassifier,
    solve,
)
from mklearn.data.blocks import ArrayBlocks, Block
from mklearn.estimators._predictor import Predictor
from mklearn.estimators._targets import AgainstRest
from mklearn.kernels import RBF, FeatureMap
from mklearn.kernels.normalise import CENTRED_TRACE, Scaling, fit_normaliser
from mklearn.problems.discriminant import kfda, rkda
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.laplace import LaplaceProblem, Whole
from mklearn.problems.losses import by_name
from mklearn.problems.lowrank import FeatureProblem
from mklearn.problems.pseudo_samples import Reduced
from mklearn.problems.scatter import Statistics, gather
from mklearn.problems.subspace import JointProblem, Kernels, label_factor
from mklearn.solvers import Multilevel, Newton, Status
from recorded_cases import cases

X, LABELS = load_wine(return_X_y=True)
X, LABELS = (X - X.mean(axis=0))[::3] / X.std(axis=0), LABELS[::3]
N = len(X)
SIGNS = np.where(LABELS == 1, 1.0, -1.0)[:, None]
BANK = KernelBank(X, [RBF(0.05), RBF(0.5)]).stored()


def centred():
    return fit_normaliser(CENTRED_TRACE, BANK).train(BANK)


def joint(n_components):
    targets = label_factor(LABELS, 3)
    group = Kernels(centred(), 0.01, True, np.ones(N))
    Y = np.where(LABELS[:, None] == np.arange(3), 1.0, -1.0)
    return JointProblem(Hinge(Y, np.full(Y.shape, 5.0)), n_components, group, targets)


def in_features(loss):
    """Return a problem in feature space, from passes or from statistics."""
    features = FeatureMap.fit(
        MultiView.from_table(X), [RBF(0.05), RBF(0.5)], approximation="nystroem",
        rank=10, random_state=0,
    )  # fmt: skip
    raw = Block(features.transform(MultiView.from_table(X)), LABELS == 1, np.ones(N))
    rows = AgainstRest(np.ones(2))(
        Block(raw.X, np.asarray(raw.y, dtype=int), raw.weight)
    )
    found = gather(rows)
    moments = found.moments
    scaling = Scaling.fit(
        "multiplicative", features, moments.total, moments.mean, moments.scatter
    )
    if loss == "squared":
        reduced = Reduced.of(found.statistics, scaling, features.slices)
        return reduced.squared(1.0, LpBall(2.0))
    blocks = ArrayBlocks(rows.X, rows.y, rows.weight, rows=16)
    return FeatureProblem(
        blocks, by_name(loss), 1.0, LpBall(2.0), features.slices, scaling,
        Statistics.of_block(rows),
    )  # fmt: skip


PROBLEMS = {
    "hinge": lambda: MKLProblem(BANK, Hinge(SIGNS, np.ones((N, 1))), LpBall(1.0)),
    "squared": lambda: MKLProblem(BANK, Squared(SIGNS, np.ones((N, 1))), LpBall(2.0)),
    "discriminant": lambda: rkda(centred(), label_factor(LABELS, 3), 1e-2, LpBall(1.0)),
    "fisher": lambda: kfda(centred(), (LABELS == 1).astype(int), 1e-2, LpBall(1.0)),
    "classes at once": lambda: BilinearProblem(
        BANK, CrammerSinger(LABELS, np.ones(N), 3), LpBall(1.0)
    ),
    "passes": lambda: in_features("hinge"),
    "smooth passes": lambda: in_features("logistic"),
    "statistics": lambda: in_features("squared"),
    "subspace": lambda: joint(3),
    "fewer features": lambda: joint(1),
    "evidence": lambda: EvidenceProblem(BANK, X[:, :1], np.ones(N)),
    "evidence of labels": lambda: LaplaceProblem(
        Whole(BANK, np.ones((N, 1))), (LABELS == 1).astype(float), np.zeros(N)
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_solution_can_be_checked(name):
    problem = PROBLEMS[name]()
    solution = solve(problem, tol=1e-4)
    assert isinstance(solution, Solution)
    again = problem.certify(
        solution.iterate(),
        dataclasses.replace(solution.iterate(), A=solution.dual),
    )
    # computed twice from the same point: what differs is rounding
    size = max(abs(solution.upper), 1.0)
    assert again.upper == pytest.approx(solution.upper, abs=1e-7 * size)
    if np.isfinite(solution.lower):
        assert again.lower <= again.upper + 1e-7 * size
        assert solution.check(problem) <= 1e-4 + solution.gap
    else:
        assert solution.slack <= 1e-4


@pytest.mark.parametrize("name", PROBLEMS)
def test_limits_mean_the_same_for_every_problem(name, capsys):
    problem = PROBLEMS[name]()
    seen = []

    def stop(history):
        seen.append(len(history))
        return True

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        stopped = solve(problem, tol=1e-13, callback=stop)
        assert stopped.status in (Status.CALLBACK, Status.OPTIMAL, Status.STATIONARY)
        if stopped.status is Status.CALLBACK:
            assert seen == [1] and stopped.n_iter == 1
        late = solve(problem, tol=1e-13, time_limit=1e-9)
        assert late.n_iter >= 1 and np.isfinite(late.upper)
        assert late.status in (Status.TIME_LIMIT, Status.OPTIMAL, Status.STATIONARY)
        capsys.readouterr()
        shown = solve(problem, tol=1e-13, max_iter=2, verbose=2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == shown.n_iter and all("objective" in line for line in lines)
    assert len(shown.history) == shown.n_iter <= 2


@pytest.mark.parametrize("name", PROBLEMS)
def test_ctrl_c_keeps_the_best_point_of_every_problem(name):
    problem = PROBLEMS[name]()

    def interrupt(history):
        raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = solve(problem, tol=1e-13, callback=interrupt)
    assert found.status in (Status.INTERRUPTED, Status.OPTIMAL)
    assert np.isfinite(found.upper) and np.isfinite(found.theta).all()


def times_to_an_event():
    """Yield the models of survival as ``cases`` has the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.column_stack([rng.exponential(np.exp(X[:, 0])), np.arange(40) % 3 > 0])
    for cls in (MKLCox, MKLCoxCV, MKLSurvivalSVM):
        yield cls.__name__, cls(), (X, y, X[:7]), {}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_fitted_estimator_has_a_solution_and_a_frozen_predictor():
    # the first case of each estimator
    seen = set()
    for _, model, (samples, y, new), fitted in chain(cases(), times_to_an_event()):
        if type(model) in seen:
            continue
        seen.add(type(model))
        model.fit(samples, y, **fitted)
        solutions = model.solution_
        for solution in solutions if isinstance(solutions, list) else [solutions]:
            assert isinstance(solution, Solution) and solution.message
        predictor = model.predictor_
        assert isinstance(predictor, Predictor)
        with pytest.raises(dataclasses.FrozenInstanceError):
            predictor.bias = np.zeros(1)
        parts = predictor.parts(model.checked(new))
        np.testing.assert_allclose(
            parts.sum(axis=2) + predictor.bias,
            predictor.scores(model.checked(new)),
            rtol=1e-6,
            atol=1e-6,
        )
        np.testing.assert_allclose(model.kernel_contributions_.sum(axis=-1), 1.0)
    names = set(mklearn.estimators.__all__)
    assert {cls.__name__ for cls in seen} == names


def test_what_only_grams_can_do_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="approximation=None"):
        MKLClassifier(
            loss="squared_hinge", C="learn", approximation="nystroem", rank=5
        ).fit(X, LABELS)


def test_a_model_forgets_the_other_representation():
    model = MKLClassifier(norm=2, rank=5).fit(X, LABELS)
    assert hasattr(model, "support_")
    model.set_params(approximation="nystroem", loss="squared").fit(X, LABELS)
    assert not hasattr(model, "support_") and hasattr(model, "approximation_error_")
    model.set_params(approximation=None).fit(X, LABELS)
    assert hasattr(model, "dual_coef_") and not hasattr(model, "approximation_error_")


def test_closed_forms_are_solutions_as_well():
    model = SubspaceClassifier([RBF(0.1)]).fit(X, LABELS)
    assert model.solution_.status is Status.OPTIMAL and model.duality_gap_ == 0
    assert "closed form" in model.solution_.message
    likely = EvidenceMKLRegressor([RBF(0.1)]).fit(X[:, 1:], X[:, 0])
    assert likely.evidence_ is likely.solution_.about
    assert likely.solution_.upper == -likely.evidence_.evidence


class OneStep:
    """A solver that knows one point and ends."""

    needs = ()

    def iterates(self, problem, start):
        yield problem.first() if start is None else start


def test_a_solver_may_end_on_a_part_of_the_samples():
    with pytest.warns(ConvergenceWarning, match="cannot improve"):
        found = solve(PROBLEMS["hinge"](), Multilevel(OneStep(), coarsest=10))
    assert found.status is Status.STALLED and np.isfinite(found.upper)


def test_a_problem_of_another_kind_is_solved_by_an_instance():
    @dataclasses.dataclass(frozen=True)
    class Foreign(MKLProblem):
        kind = "foreign"

    problem = PROBLEMS["hinge"]()
    foreign = Foreign(problem.bank, problem.loss, problem.weights)
    known = solve(problem, "newton", tol=1e-6)
    assert solve(foreign, Newton(), tol=1e-6).upper == known.upper
    with pytest.raises(ValueError, match="Unknown solver 'auto'"):
        solve(foreign)


@pytest.mark.parametrize(
    "model",
    [MKLClassifier(), SingleKernelCV(MKLClassifier(), values=[1.0], cv=2)],
    ids=["classifier", "single"],
)
def test_an_intercept_that_is_set_moves_decisions(model):
    y = LABELS == 1
    before = clone(model).fit(X, y)
    moved = clone(model).fit(X, y)
    moved.intercept_ = moved.intercept_ + 0.5
    np.testing.assert_allclose(
        moved.decision_function(X), before.decision_function(X) + 0.5, rtol=1e-12
    )
    with pytest.raises(ValueError, match="The intercept must have shape"):
        moved.intercept_ = np.zeros(3)
