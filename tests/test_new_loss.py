"""A newcomer's losses: formulas alone make them work exactly, in passes, everywhere."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from mklearn import KernelBank, LpBall, MKLClassifier, MKLProblem, MKLRegressor, solve
from mklearn.data.blocks import ArrayBlocks
from mklearn.kernels.feature_map import FeatureMap
from mklearn.kernels.normalise import Scaling
from mklearn.problems import losses
from mklearn.problems.losses import Piece, Piecewise, Pointwise
from mklearn.problems.lowrank import FeatureProblem
from mklearn.problems.protocols import BoxLoss, SmoothLoss
from mklearn.problems.scatter import Statistics
from mklearn.solvers import mkl_path


@dataclass(frozen=True)
class Huber(Piecewise):
    """``½ r^2`` for residuals up to one, ``|r| - ½`` beyond."""

    ridge = 1.0

    def value(self, f, y):
        r = np.abs(y - f)
        return np.where(r < 1, 0.5 * r**2, r - 0.5)

    def pieces(self, y):
        return (Piece(y, -1.0, 1.0),)


@dataclass(frozen=True)
class Pinball(Piecewise):
    """``q r`` for positive residuals, ``(q - 1) r`` for negative ones: quantiles."""

    q: float = 0.3

    def value(self, f, y):
        return np.maximum(self.q * (y - f), (self.q - 1) * (y - f))

    def pieces(self, y):
        return (Piece(y, self.q - 1, self.q),)


@dataclass(frozen=True)
class SmoothedHinge(Piecewise):
    """``½ (1 - y f)^2`` within the margin, straight where more than one is missing."""

    targets = "labels"
    ridge = 1.0

    def value(self, f, y):
        short = np.maximum(0.0, 1 - y * f)
        return np.where(short < 1, 0.5 * short**2, short - 0.5)

    def pieces(self, y):
        return (Piece(y, np.minimum(0.0, y), np.maximum(0.0, y)),)


@dataclass(frozen=True)
class PseudoHuber(Pointwise):
    """``sqrt(1 + r^2) - 1``."""

    concavity = 1.0

    def value(self, f, y):
        return np.hypot(1.0, y - f) - 1.0

    def dual(self, a, y):
        return y * a + np.sqrt(np.maximum(1.0 - a**2, 0.0)) - 1.0

    def domain(self, y):
        return -1.0, 1.0

    def slope(self, f, y, mu=0.0, a0=0.0):
        return (y - f) / np.hypot(1.0, y - f)

    def bend(self, f, y, mu=0.0, a0=0.0):
        return np.hypot(1.0, y - f) ** -3.0

    def curvature(self, a, y):
        return np.maximum(1.0 - a**2, 1e-300) ** -1.5


NEW = {
    "huber": Huber,
    "pinball": Pinball,
    "smoothed_hinge": SmoothedHinge,
    "pseudo_huber": PseudoHuber,
}


@pytest.fixture(autouse=True)
def entered(monkeypatch):
    """Enter the losses in the table of names, the one thing beside their formulas."""
    for name, loss in NEW.items():
        monkeypatch.setitem(losses.LOSSES, name, loss)


def data(name, n=40, seed=0):
    """Return samples and targets, with outliers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = 2 * np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.standard_cauchy(n)
    if NEW[name].targets == "labels":
        y = np.where(y > 0, 1.0, -1.0)
    return X, y


def exact(name, p=2, with_bias=True, smooth=False):
    X, y = data(name)
    bank = KernelBank(X, ["linear", "rbf", "laplacian"]).stored()
    rng = np.random.default_rng(1)
    C = rng.uniform(0.5, 2.0, (len(y), 1))
    C[3] = 0.0
    loss = NEW[name]().on(y[:, None], C, with_bias)
    if smooth:
        loss = losses.Smooth(y[:, None], C, with_bias, formula=NEW[name]())
    return MKLProblem(bank, loss, LpBall(p))


@pytest.mark.parametrize("name", NEW)
def test_formulas_are_conjugate(name):
    # D(a) = min over f of V(f) + a f, and V_mu is what slope and bend say
    loss, f = NEW[name](), np.linspace(-30, 30, 60001)
    for y in (1.0, -1.0):
        low, high = loss.domain(np.full(1, y))
        for share in (0.1, 0.3, 0.5, 0.9):
            a = low + share * (high - low)
            least = np.min(loss.value(f, y) + a * f)
            assert loss.dual(a, np.full(1, y))[0] == pytest.approx(least, abs=1e-5)
    if not loss.kinks:
        y, f, h = np.ones(9), np.linspace(-3.1, 3.3, 9), 1e-6
        slope = (loss.value(f - h, y) - loss.value(f + h, y)) / (2 * h)
        assert np.allclose(loss.slope(f, y), slope, atol=1e-6)
        bend = (loss.slope(f - h, y) - loss.slope(f + h, y)) / (2 * h)
        assert np.allclose(loss.bend(f, y), bend, atol=1e-6)
        inside = loss.bend(f, y) > 0
        curvature = loss.curvature(loss.slope(f, y), y)[inside]
        assert np.allclose(curvature * loss.bend(f, y)[inside], 1.0)


def reference(problem, theta):
    """Return the least value at fixed weights, by a general minimiser."""
    K = problem.bank.combine(theta)
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-10 * values[-1]
    Z = vectors[:, kept] * np.sqrt(values[kept])
    loss = problem.loss
    free = float(loss.with_bias)

    def value(x):
        F, bias = (Z @ x[:-1])[:, None], free * x[-1:]
        a = (loss.C * loss.point.slope(F + bias, loss.Y))[:, 0]
        slope = np.append(x[:-1] - Z.T @ a, -free * a.sum())
        return loss.primal(F, bias) + 0.5 * x[:-1] @ x[:-1], slope

    return minimize(
        value,
        np.zeros(Z.shape[1] + 1),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
    ).fun


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("solver", ["alternating", "newton"])
@pytest.mark.parametrize("smooth", [False, True], ids=["derived", "smooth"])
@pytest.mark.parametrize("name", ["huber", "smoothed_hinge", "pseudo_huber"])
def test_new_losses_are_solved_exactly(name, smooth, solver, with_bias):
    problem = exact(name, 2, with_bias, smooth)
    wanted = SmoothLoss if smooth or name == "pseudo_huber" else BoxLoss
    assert isinstance(problem.loss, wanted)
    solution = solve(problem, solver, tol=1e-7)
    assert solution.check(problem) <= 1e-7
    least = reference(problem, solution.theta)
    assert solution.upper == pytest.approx(least, rel=1e-6)
    assert solution.lower <= least * (1 + 1e-9)


def test_a_new_loss_with_kinks_is_the_conic_program():
    problem = exact("pinball", 1)
    solution = solve(problem, tol=1e-7)
    cp = pytest.importorskip("cvxpy")
    K = problem.bank.combine(solution.theta)
    values, vectors = np.linalg.eigh(K)
    Z = vectors * np.sqrt(np.maximum(values, 0.0))
    w, b = cp.Variable(len(K)), cp.Variable()
    r = problem.loss.Y[:, 0] - Z @ w - b
    pinball = cp.maximum(0.3 * r, -0.7 * r)
    value = problem.loss.C[:, 0] @ pinball + 0.5 * cp.sum_squares(w)
    known = cp.Problem(cp.Minimize(value)).solve(solver="CLARABEL")
    assert solution.upper == pytest.approx(known, rel=1e-6)
    # q of the cost lies below: the optimality condition of the bias
    below = problem.loss.C[(r.value < 1e-6)[:, None]].sum()
    assert below >= 0.3 * problem.loss.C.sum() - 1e-6


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("name", NEW)
def test_new_losses_are_solved_in_passes(name, p):
    X, y = data(name, 60)
    features = FeatureMap.fit(X, ["linear", "rbf"], rank=12)
    Z = features.transform(X)
    blocks = ArrayBlocks(Z, y[:, None], np.ones(len(y)), rows=17)
    found = blocks.reduce(Statistics.of_block)
    scaling = Scaling.fit(
        "multiplicative", features, found.total, found.mean, np.diagonal(found.ZZ)
    )
    loss = NEW[name]()
    problem = FeatureProblem(
        blocks, loss, 0.7, LpBall(p), features.slices, scaling, found
    )
    ours = solve(problem, tol=1e-6)
    rows = scaling.root * (Z - scaling.shift)
    grams = [rows[:, s] @ rows[:, s].T for s in features.slices]
    costs = np.full((len(y), 1), 0.7)
    same = MKLProblem(
        KernelBank.from_grams(grams), loss.on(y[:, None], costs), LpBall(p)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        known = solve(same, tol=1e-8)
    assert ours.gap <= 1e-6
    assert ours.lower <= known.upper * (1 + 1e-9)
    assert known.lower <= ours.upper * (1 + 1e-9)
    assert ours.upper == pytest.approx(known.upper, rel=2e-6)


@pytest.mark.parametrize("name", NEW)
def test_a_path_takes_new_losses(name):
    problem = exact(name)
    loss = problem.loss
    path = mkl_path(
        problem.bank, lambda C: loss.take(np.arange(len(loss.Y)), C), [0.1, 1.0], [1, 2]
    )
    assert (path.gap <= 1e-3).all()


@pytest.mark.parametrize("name", NEW)
def test_estimators_take_new_losses_by_name(name):
    X, y = data(name, 60)
    labels = NEW[name].targets == "labels"
    kind, wrong = (MKLClassifier, MKLRegressor)[:: 1 if labels else -1]
    settings = {"loss": name, "tol": 1e-6, "rank": 60, "landmarks": "uniform"}
    # all samples are landmarks: features are as good as kernels
    models = [
        kind(["rbf", "laplacian"], approximation=how, **settings).fit(X, y)
        for how in (None, "nystroem")
    ]
    assert all(model.duality_gap_ <= 1e-6 for model in models)
    objectives = [model.solution_.upper for model in models]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-5)
    with pytest.raises(ValueError, match="loss must be"):
        wrong(loss=name).fit(X, np.sign(y))


@pytest.mark.parametrize("name", ["huber", "smoothed_hinge"])
@pytest.mark.usefixtures("few_to_choose_from")
def test_the_command_line_takes_new_losses_by_name(name, tmp_path):
    typer_testing = pytest.importorskip("typer.testing")
    pandas = pytest.importorskip("pandas")
    from mklearn.cli.commands import make_app
    from mklearn.persistence import load

    X, y = data(name, 60)
    labels = NEW[name].targets == "labels"
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["y"] = np.where(y > 0, "yes", "no") if labels else y
    frame.to_csv(tmp_path / "table.csv", index=False)
    arguments = [
        "fit", tmp_path / "table.csv", "--target", "y", "--loss", name, "--norm", 2,
        "--reg", 1, "--kernels", "linear,rbf", "--cv", 2, "--out", tmp_path / "out",
    ]  # fmt: skip
    done = typer_testing.CliRunner().invoke(make_app(), [str(x) for x in arguments])
    assert done.exit_code == 0, done.output
    model = load(tmp_path / "out" / "model.mkl").estimator_
    assert model.loss == name and model.duality_gap_ <= model.tol
