"""The interleaved solver: same answers, bounded memory, a model at any time."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mklearn import KernelBank, LpBall, MKLProblem, kernels, solve
from mklearn.problems import EpsilonInsensitive, Hinge, OneClass, SquaredHinge
from mklearn.solvers import Interleaved, Multilevel, Newton

n = 90
rng = np.random.default_rng(5)
X = rng.standard_normal((n, 3))
y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)
signs = np.where(y > 0, 1.0, -1.0)[:, None]
C = np.full((n, 1), 2.0)
bank = KernelBank(X, [kernels.Linear(), *kernels.rbf_ladder(5)]).stored()
LOSSES = {
    "hinge": Hinge(signs, C),
    "hinge without bias": Hinge(signs, C, with_bias=False),
    "two tasks": Hinge(np.hstack([signs, -np.sign(X[:, [1]])]), np.hstack([C, C])),
    "squared hinge": SquaredHinge(signs, C),
    "epsilon": EpsilonInsensitive(y[:, None], C, epsilon=0.05),
    "one class": OneClass(np.full((n, 1), 1 / (0.3 * n))),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("p", [4 / 3, 2.0, np.inf])
@pytest.mark.parametrize("working_set", [24, 128])
def test_it_reaches_the_optimum_of_newton(name, p, working_set):
    problem = MKLProblem(bank, LOSSES[name], LpBall(p))
    solution = solve(problem, Interleaved(working_set), tol=1e-5, max_iter=5000)
    best = solve(problem, "newton", tol=1e-6)
    assert solution.check(problem) <= 1e-5
    assert solution.upper == pytest.approx(best.upper, rel=2e-5)


def test_smooth_losses_are_declined_with_advice():
    from mklearn.problems import Squared

    problem = MKLProblem(bank, Squared(y[:, None], C), LpBall(2))
    with pytest.raises(ValueError, match="use solver='newton'"):
        solve(problem, "interleaved")


@pytest.mark.parametrize("steps", [1, 3, 10])
@pytest.mark.parametrize(
    "solver", [Interleaved(16), Newton(), Multilevel(Newton(), coarsest=20)]
)
def test_stopping_at_any_time_gives_a_feasible_model_and_its_true_gap(solver, steps):
    problem = MKLProblem(bank, LOSSES["hinge"], LpBall(4 / 3))

    def interrupt(history):
        if len(history) == steps:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning):
        solution = solve(problem, solver, tol=1e-14, callback=interrupt, max_iter=50)
    alpha = signs * solution.A
    assert (alpha >= 0).all() and (alpha <= C).all()
    assert abs(solution.A.sum()) < 1e-9
    assert problem.weights.contains(solution.theta)
    assert solution.gap == pytest.approx(solution.check(problem), rel=1e-6, abs=1e-15)


def test_a_small_budget_chooses_it_and_is_kept():
    """Thirty Grams of 128 MB each are learned from within 20 MB."""
    pytest.importorskip("resource")
    script = """
        import resource, sys
        import numpy as np
        from mklearn import Hinge, KernelBank, LpBall, MKLProblem, kernels, solve

        def work(n, limit):
            rng = np.random.default_rng(0)
            X = rng.normal(size=(n, 3))
            y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)[:, None]
            ladder = kernels.rbf_ladder(gammas=np.geomspace(0.01, 10, 30))
            bank = KernelBank(X, ladder).stored(limit)
            problem = MKLProblem(bank, Hinge(y, np.ones((n, 1))), LpBall(2))
            solver = "auto" if n > 1000 else "interleaved"
            return bank, solve(problem, solver, tol=0.05)

        def peak():
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return used * (1 if sys.platform == "darwin" else 1024)

        work(100, 2**28)  # compiles, and starts the threads of BLAS
        before = peak()
        limit = 20_000_000
        bank, solution = work(4000, limit)
        grew = peak() - before
        assert bank.estimate_memory(limit).all_grams > 100 * limit
        assert solution.solver == "Interleaved", solution.solver
        assert solution.gap <= 0.05
        assert grew < limit, f"grew by {grew}"
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
