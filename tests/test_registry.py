"""Names of solvers, what "auto" takes, and what each solver needs."""

import re

import numpy as np
import pytest

from cases import signs, stack
from mklearn import KernelBank, MKLProblem
from mklearn.problems import (
    BilinearProblem,
    BlockNorm,
    CrammerSinger,
    ElasticNet,
    Ellipsoid,
    Hinge,
    Logistic,
    LpBall,
    Squared,
    SquaredHinge,
)
from mklearn.solvers import (
    ActiveSet,
    Alternating,
    Conic,
    CuttingPlane,
    MulticlassNewton,
    Multilevel,
    Need,
    Newton,
    Screened,
    Semidefinite,
)
from mklearn.solvers.registry import MULTICLASS, SOLVERS, check, choose_solver

N = 12


def problem(loss=Hinge, weights=None, n=N, M=3):
    X, y = signs(n)
    bank = KernelBank.from_grams(stack(X, M))
    return MKLProblem(bank, loss(y[:, None], np.ones((n, 1))), weights or LpBall(1))


def classes(weights, shared=True):
    X, _ = signs(N)
    loss = CrammerSinger(np.arange(N) % 3, np.ones(N), 3)
    kind = MKLProblem if shared else BilinearProblem
    return kind(KernelBank.from_grams(stack(X, 3)), loss, weights)


@pytest.mark.parametrize("name", sorted({*SOLVERS, *MULTICLASS}))
def test_needs_say_what_would_work(name):
    for table in (SOLVERS, MULTICLASS):
        for need in table[name]().needs if name in table else ():
            text = need.otherwise.format(loss="this loss", weights="this set")
            assert re.search(r"[uU]se .*(solver='\w+'|MulticlassNewton)", text)


@pytest.mark.parametrize("given", [problem(), problem(Squared), classes(LpBall(1))])
def test_a_name_that_suits_is_an_instance(given):
    known = MULTICLASS if isinstance(given.loss, CrammerSinger) else SOLVERS
    for name, make in known.items():
        suits = all(need.met(given) for need in make().needs)
        if suits:
            assert choose_solver(name, given) == make()
        else:
            with pytest.raises(ValueError, match=r"[uU]se "):
                choose_solver(name, given)


def test_the_papers_names_are_settings():
    given = problem(Squared)
    given = MKLProblem(
        given.bank, Squared(given.loss.Y, given.loss.C, False), LpBall(1)
    )
    assert choose_solver("silp", given) == CuttingPlane(level=0.0)
    assert choose_solver("qcqp", given) == Conic()
    assert choose_solver("sdp", given) == Semidefinite()
    assert choose_solver("sdp-approx", given) == Semidefinite(approximate=True)


@pytest.mark.parametrize(
    ("given", "solver"),
    [
        (problem(M=1), Alternating),
        (problem(weights=LpBall(np.inf)), Alternating),
        (problem(weights=BlockNorm(4)), Alternating),
        (problem(), Newton),
        (problem(weights=Ellipsoid(np.eye(3))), Newton),
        (problem(weights=LpBall(8)), Newton),
        (problem(weights=LpBall(9)), Alternating),
        (problem(SquaredHinge), Screened),
        (problem(Logistic), Screened),
        (problem(Logistic, LpBall(2)), Newton),
        (problem(n=1500), Multilevel),
        (problem(M=200), Newton),
        (problem(weights=LpBall(2), M=500), Newton),
        (problem(M=201), ActiveSet),
        (problem(SquaredHinge, M=201), ActiveSet),
        (problem(weights=LpBall(1.05), M=501), ActiveSet),
        (problem(weights=ElasticNet(0.5), M=501), ActiveSet),
        (problem(weights=LpBall(2), M=501), Alternating),
        (classes(LpBall(1)), MulticlassNewton),
        (classes(LpBall(1), False), MulticlassNewton),
        (classes(LpBall(2)), MulticlassNewton),
        (classes(LpBall(2), False), Alternating),
    ],
)
def test_auto_is_what_the_documentation_says(given, solver):
    assert isinstance(choose_solver("auto", given), solver)


def test_pseudo_samples_are_no_samples_to_choose_from():
    assert isinstance(choose_solver("auto", problem(n=1500), samples=False), Newton)
    block = problem(weights=BlockNorm(4))
    assert isinstance(choose_solver("auto", block, samples=False), Alternating)


def test_wrappers_need_what_their_solver_needs():
    given = problem(weights=BlockNorm(4))
    for solver in (Newton(), Multilevel(), Multilevel(CuttingPlane()), Screened()):
        with pytest.raises(ValueError, match="BlockNorm is not; use solver='alternat"):
            check(solver, given)


def test_a_need_names_what_it_got():
    class Picky:
        needs = (Need("got {loss} and {weights}", weights=Ellipsoid),)

        def iterates(self, problem, start):
            yield from ()

    with pytest.raises(ValueError, match=r"got Hinge and LpBall\(p=2\)"):
        choose_solver(Picky(), problem(weights=LpBall(2)))


@pytest.mark.parametrize("given", [None, 3, Newton, object()])
def test_what_is_no_solver_is_refused(given):
    with pytest.raises(ValueError, match="needs and iterates"):
        choose_solver(given, problem())
