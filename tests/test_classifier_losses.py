"""MKLClassifier beyond the hinge loss: reductions, probabilities, C learned, norms."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import conic_optimum, samples, squared_distances, stack
from mklearn import (
    BestKernelClassifier,
    BlockNorm,
    ElasticNet,
    Ellipsoid,
    KernelBank,
    LpBall,
    MKLClassifier,
    MultiView,
    UniformMKLClassifier,
    block_norm,
    kernels,
)
from mklearn.kernels.normalise import fit_normaliser

# tolerances ask for all the digits that there are, and a few more
pytestmark = pytest.mark.filterwarnings("ignore:.*rounding (allows|limits)")

LOSSES = ["hinge", "squared_hinge", "squared", "logistic"]
LEARN = {"loss": "squared_hinge", "C": "learn"}
SETTINGS = [*({"loss": loss} for loss in LOSSES), LEARN]
NAMES = [*LOSSES, "learn"]


@parametrize_with_checks(
    [
        MKLClassifier(loss="squared_hinge"),
        MKLClassifier(loss="squared"),
        MKLClassifier(loss="logistic"),
        MKLClassifier(loss="squared_hinge", C="learn"),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def linear(**settings):
    return MKLClassifier(
        kernels.Linear(), **{"normalize": None, "tol": 1e-11, **settings}
    )


def precomputed(**settings):
    return MKLClassifier("precomputed", **{"normalize": None, "tol": 1e-7, **settings})


# --- one kernel: the classifiers everybody knows --------------------------------------


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_hinge_is_svc(C):
    X, y = samples(60)
    Z, _ = samples(50, seed=1)
    K, T = np.exp(-0.2 * squared_distances(X)), np.exp(-0.2 * squared_distances(Z, X))
    model = precomputed(C=C, tol=1e-11).fit(K, y)
    svc = SVC(C=C, kernel="precomputed", tol=1e-10).fit(K, y)
    np.testing.assert_allclose(
        model.decision_function(T), svc.decision_function(T), atol=1e-4
    )


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_squared_hinge_is_linear_svc(C):
    X, y = samples(60)
    ours = linear(loss="squared_hinge", C=C).fit(X, y)
    # theirs has no factor ½, and a bias that is penalised unless its scale is large
    theirs = LinearSVC(
        C=C / 2, dual=False, tol=1e-12, intercept_scaling=1e3, max_iter=100_000
    ).fit(X, y)
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), atol=1e-4
    )


def test_squared_hinge_is_a_hard_margin_with_a_ridge():
    X, y = samples(60)
    K = np.exp(-0.2 * squared_distances(X))
    ours = precomputed(loss="squared_hinge", C=3.0, tol=1e-11).fit(K, y)
    hard = SVC(C=1e6, kernel="precomputed", tol=1e-10).fit(K + np.eye(60) / 3.0, y)
    alpha = np.zeros(60)
    alpha[hard.support_] = hard.dual_coef_[0]
    np.testing.assert_allclose(
        ours.decision_function(K), K @ alpha + hard.intercept_, atol=1e-4
    )


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_squared_is_kernel_ridge_on_centred_kernels_and_labels(C):
    X, y = samples(60)
    K = np.exp(-0.2 * squared_distances(X))
    P = np.eye(60) - 1 / 60
    sign = np.where(y == 1, 1.0, -1.0)
    ours = precomputed(loss="squared", C=C, tol=1e-11).fit(K, y)
    ridge = KernelRidge(alpha=1 / C, kernel="precomputed").fit(P @ K @ P, P @ sign)
    coef = np.zeros(60)
    coef[ours.support_] = ours.dual_coef_[0]
    np.testing.assert_allclose(coef, ridge.dual_coef_, atol=1e-4 * C)
    fitted = K @ ridge.dual_coef_
    np.testing.assert_allclose(
        ours.decision_function(K), fitted + np.mean(sign - fitted), atol=1e-4
    )


@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("weight", [None, {0: 0.3, 1: 2.0}, "balanced"])
def test_logistic_is_logistic_regression(C, weight):
    X, y = samples(60)
    X, y = X[:50], y[:50]
    Z, _ = samples(30, seed=1)
    settings = {"C": C, "class_weight": weight}
    ours = linear(loss="logistic", **settings).fit(X, y)
    theirs = LogisticRegression(**settings, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(
        ours.decision_function(Z), theirs.decision_function(Z), atol=1e-4
    )
    np.testing.assert_allclose(
        ours.predict_proba(Z), theirs.predict_proba(Z), atol=1e-4
    )


def test_probabilities_of_many_classes_are_those_of_one_against_the_rest():
    X, y = samples(60, n_classes=3)
    ours = linear(loss="logistic", C=0.5).fit(X, y)
    theirs = OneVsRestClassifier(LogisticRegression(C=0.5, tol=1e-10)).fit(X, y)
    np.testing.assert_allclose(
        ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4
    )


# --- probabilities --------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weights", ["shared", "per-class"])
def test_probabilities(n_classes, weights):
    X, y = samples(60, n_classes=n_classes)
    model = MKLClassifier(loss="logistic", weights=weights).fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (60, n_classes) and (p > 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


def test_probabilities_far_from_all_classes():
    X, y = samples(60, n_classes=3)
    model = linear(loss="logistic", C=1e3, tol=1e-4).fit(X, y)
    p = model.predict_proba(np.array([[0.0, 0.0, 1e5, 1e5, -1e5], 1e8 * np.ones(5)]))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_only_the_logistic_loss_has_probabilities():
    assert hasattr(MKLClassifier(loss="logistic"), "predict_proba")
    for loss in LOSSES[:3]:
        assert not hasattr(MKLClassifier(loss=loss), "predict_proba")
    assert not hasattr(UniformMKLClassifier(), "predict_proba")
    assert not hasattr(BestKernelClassifier(), "predict_proba")


# --- weights of samples and classes ---------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("normalize", [None, "multiplicative", "trace"])
def test_weights_are_repetitions_and_zero_is_absence(settings, normalize):
    X, y = samples(40)
    times = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), times)
    B = stack(X)
    settings = {**settings, "normalize": normalize}
    weighted = precomputed(**settings).fit(B, y, sample_weight=times)
    copies = precomputed(**settings).fit(B[np.ix_(rows, rows)], y[rows])
    assert weighted.solution_.upper == pytest.approx(copies.solution_.upper, rel=1e-6)
    assert weighted.C_ == pytest.approx(copies.C_, rel=1e-2)
    np.testing.assert_allclose(
        weighted.decision_function(B), copies.decision_function(B[:, rows]), atol=3e-3
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
def test_class_weight_is_a_cost_per_class(settings):
    X, y = samples(45, n_classes=3)
    B = stack(X)
    weight = {0: 0.3, 1: 2.0, 2: 1.0}
    a = precomputed(class_weight=weight, **settings).fit(B, y)
    b = precomputed(**settings).fit(
        B, y, sample_weight=np.array([weight[c] for c in y])
    )
    assert a.solution_.upper == pytest.approx(b.solution_.upper, rel=1e-6)
    np.testing.assert_allclose(
        a.decision_function(B), b.decision_function(B), atol=3e-3
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
@pytest.mark.parametrize("norm", [1, 2])
def test_weights_per_class_are_separate_fits(settings, norm):
    X, y = samples(45, n_classes=3)
    B = stack(X)
    model = precomputed(weights="per-class", norm=norm, tol=1e-5, **settings).fit(B, y)
    assert model.kernel_weights_.shape == (3, 5)
    for c in range(3):
        alone = precomputed(norm=norm, tol=1e-5, **settings).fit(B, y == c)
        np.testing.assert_array_equal(model.kernel_weights_[c], alone.kernel_weights_)
        assert np.atleast_1d(model.C_)[c if np.ndim(model.C_) else 0] == alone.C_


@pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)
def test_string_labels(settings):
    X, y = samples(45, n_classes=3)
    names = np.array(["ash", "birch", "oak"])
    model, numbered = (
        MKLClassifier(**settings).fit(X, labels) for labels in (names[y], y)
    )
    np.testing.assert_array_equal(model.predict(X), names[numbered.predict(X)])
    assert model.score(X, names[y]) > 0.6


# --- what is optimal ------------------------------------------------------------------


def value(loss, sign, f):
    margin = sign * f
    return {
        "hinge": np.maximum(0, 1 - margin),
        "squared_hinge": 0.5 * np.maximum(0, 1 - margin) ** 2,
        "squared": 0.5 * (sign - f) ** 2,
        "logistic": np.log1p(np.exp(-margin)),
    }[loss].sum()


@pytest.mark.parametrize("loss", LOSSES)
def test_objective_by_hand(loss):
    X, y = samples(40)
    B = stack(X)
    model = precomputed(loss=loss, C=0.7, norm=2, tol=1e-5).fit(B, y)
    sign = np.where(y == 1, 1.0, -1.0)
    c = np.zeros(40)
    c[model.support_] = model.dual_coef_[0]
    K = B @ model.kernel_weights_
    total = 0.7 * value(loss, sign, K @ c + model.intercept_) + 0.5 * c @ K @ c
    assert model.solution_.upper == pytest.approx(total)
    assert model.duality_gap_ == model.solution_.gap <= 1e-5
    assert np.linalg.norm(model.kernel_weights_) == pytest.approx(1.0)
    share = model.kernel_weights_ * np.einsum("i,ijm,j->m", c, B, c)
    np.testing.assert_allclose(model.kernel_contributions_, share / share.sum())


@pytest.mark.parametrize("loss", ["squared_hinge", "squared", "logistic"])
def test_no_other_weights_are_better(loss):
    X, y = samples(40)
    B = stack(X, 3)
    best = precomputed(loss=loss, norm=1).fit(B, y).solution_
    for theta in np.random.default_rng(0).dirichlet(np.ones(3), 5):
        other = precomputed(loss=loss).fit(B @ theta, y).solution_
        assert other.upper >= best.lower


# --- C learned ------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 4 / 3, 2, np.inf])
def test_learned_cost_is_the_weight_of_the_identity(p):
    X, y = samples(40)
    B = stack(X, 3)
    model = precomputed(norm=p, tol=1e-6, **LEARN).fit(B, y)
    with_identity = np.concatenate([B, np.eye(40)[:, :, None]], axis=2)
    sign = np.where(y == 1, 1.0, -1.0)
    # the 2-norm soft margin has no bound on alpha: one that is never reached
    optimum = conic_optimum(with_identity, sign, 1e4, p)
    assert model.solution_.upper == pytest.approx(optimum, rel=1e-5)
    assert model.solution_.lower == pytest.approx(optimum, rel=1e-5)
    weights = np.append(model.kernel_weights_, 1 / model.C_)
    assert np.linalg.norm(weights, p) == pytest.approx(1.0, abs=1e-6)
    assert model.kernel_weights_.shape == model.kernel_contributions_.shape == (3,)
    assert model.kernel_contributions_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "norm", [1, 2, ElasticNet(0.5), BlockNorm(4.0), np.diag([1.0, 2.0, 3.0, 0.5])]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_learned_cost_gives_the_classifier_of_that_cost(norm, n_classes):
    X, y = samples(45, n_classes=n_classes)
    B = stack(X)[:, :, :3]  # a narrow kernel could stand in for the identity
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 45)
    learned = precomputed(norm=norm, **LEARN).fit(B, y, sample_weight=weight)
    given = precomputed(loss="squared_hinge", C=learned.C_, norm=1)
    K = B @ learned.kernel_weights_
    given.fit(K, y, sample_weight=weight)
    assert learned.solution_.upper == pytest.approx(given.solution_.upper, rel=1e-6)
    np.testing.assert_allclose(
        learned.decision_function(B), given.decision_function(K), atol=1e-3
    )


def test_no_other_cost_is_better():
    X, y = samples(40)
    B = stack(X, 3)
    best = precomputed(norm=1, **LEARN).fit(B, y)
    assert 1 < best.C_ < np.inf
    for C in best.C_ * np.array([0.8, 1.2, 3.0]):
        if C > 1:  # the kernels get what the identity leaves of the sum of weights
            other = precomputed(norm=1, loss="squared_hinge", C=C)
            other.fit(B * (1 - 1 / C), y)
            assert other.solution_.upper > best.solution_.lower


def test_learned_cost_of_hopeless_labels():
    # nothing to learn: the identity takes all the weight, and f is constant
    n = 20
    y = np.arange(n) % 2
    B = np.kron(np.eye(n // 2), np.ones((2, 2)))[:, :, None]
    model = precomputed(norm=1, **LEARN).fit(B, y)
    assert model.C_ == pytest.approx(1.0)
    np.testing.assert_allclose(model.decision_function(B), 0.0, atol=1e-6)


def test_learned_cost_in_units_of_the_normalisation():
    X, y = samples(40)
    B = stack(X, 3)
    given = precomputed(norm=1, normalize="trace", **LEARN).fit(B, y)
    by_hand = precomputed(norm=1, **LEARN).fit(40 * B / np.trace(B), y)
    assert given.C_ == pytest.approx(40 * by_hand.C_, rel=1e-2)


def test_a_diagonal_is_a_kernel_of_the_bank():
    X, _ = samples(12)
    values = np.arange(1.0, 13.0)
    for kind in (None, "center", "spherical"):
        raw = KernelBank.from_grams(stack(X, 3))
        plain = fit_normaliser(kind, raw).train(raw)
        bank = plain.with_diagonal(values)
        assert bank.shape == (12, 12, 4) and bank.names[-1] == "identity"
        full = np.stack([*(plain.gram(m) for m in range(3)), np.diag(values)], axis=2)
        rows, cols = np.array([3, 0, 7, 7]), np.array([7, 1, 3, 3, 5])
        theta = np.array([0.3, 0.0, 1.0, 2.0])
        A = np.random.default_rng(0).normal(size=(12, 2))
        A[4:6] = 0.0
        np.testing.assert_allclose(bank.combine(theta), full @ theta, atol=1e-12)
        np.testing.assert_allclose(
            bank[np.ix_(rows, cols)].combine(theta),
            full[np.ix_(rows, cols)] @ theta,
            atol=1e-12,
        )
        np.testing.assert_allclose(
            bank[np.ix_(rows, cols)].multiply(A[:5]),
            np.einsum("ijm,jt->itm", full[np.ix_(rows, cols)], A[:5]),
            atol=1e-12,
        )
        np.testing.assert_allclose(
            bank.quad(A), np.einsum("it,ijm,jt->m", A, full, A), atol=1e-12
        )
        np.testing.assert_allclose(bank.diag()[:, 3], values)
        np.testing.assert_allclose(bank.select([3, 0]).gram(0), np.diag(values))
    with pytest.raises(ValueError, match="only defined on the training samples"):
        KernelBank(X, kernels.Linear()).with_diagonal(values).cross(X)
    with pytest.raises(ValueError, match="one value for each sample"):
        KernelBank(X, kernels.Linear()).with_diagonal(values[:3])


# --- norms ----------------------------------------------------------------------------


EQUAL = [
    (1.5, LpBall(1.5)),
    (2, np.eye(5)),
    (2, np.eye(5).tolist()),
    (2, Ellipsoid(np.eye(5))),
    (2, ElasticNet(1.0)),
    (1, block_norm(1)),
    (np.inf, block_norm(2)),
]


@pytest.mark.parametrize(("number", "given"), EQUAL, ids=str)
@pytest.mark.parametrize("loss", ["hinge", "squared"])
def test_norms_by_number_matrix_and_set(number, given, loss):
    X, y = samples(40)
    B = stack(X)
    a = precomputed(norm=number, loss=loss, tol=1e-6).fit(B, y)
    b = clone(precomputed(norm=given, loss=loss, tol=1e-6)).fit(B, y)
    assert a.solution_.upper == pytest.approx(b.solution_.upper, rel=1e-5)
    np.testing.assert_allclose(a.kernel_weights_, b.kernel_weights_, atol=2e-2)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm", [ElasticNet(0.3), BlockNorm(4.0), LpBall(4.0)])
def test_weight_sets(loss, norm):
    X, y = samples(45, n_classes=3)
    model = MKLClassifier(norm=norm, loss=loss).fit(X, y)
    assert norm.contains(model.kernel_weights_)
    assert model.duality_gap_ <= 1e-3
    assert model.score(X, y) > 0.6


def test_kernels_that_should_not_work_together():
    X, y = samples(60)
    B = stack(X, 3)
    E = np.eye(3)
    together = precomputed(norm=E).fit(B, y).kernel_weights_
    E[0, 1] = E[1, 0] = 0.99
    apart = precomputed(norm=E).fit(B, y).kernel_weights_
    assert apart @ E @ apart == pytest.approx(1.0)
    assert min(apart[:2]) < min(together[:2])


# --- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"norm": np.ones((2, 3))}, "symmetric and positive definite"),
        ({"norm": -np.eye(2)}, "symmetric and positive definite"),
        ({"norm": np.eye(2)}, "matrix of size 2.*5 kernels"),
        ({"norm": LpBall}, "norm must be a number"),
        ({"norm": np.ones(3)}, "norm must be a number"),
        ({"loss": "huber"}, "loss must be 'hinge', .* or 'multinomial'"),
        ({"loss": None}, "loss must be"),
        ({"C": "learn"}, "needs loss='squared_hinge', .*got loss='hinge'"),
        ({"C": "guess", "loss": "squared_hinge"}, "positive number or 'learn'"),
        ({"C": 0.0, "loss": "squared_hinge"}, "positive number or 'learn'"),
        ({**LEARN, "norm": np.eye(5)}, "matrix of size 5.*6 kernels"),
    ],
    ids=str,
)
def test_parameters(settings, match):
    X, y = samples(20)
    with pytest.raises(ValueError, match=match):
        MKLClassifier("precomputed", **settings).fit(stack(X), y)


# --- model selection ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["table", "views", "bank", "array"])
def test_grid_search(kind):
    X, y = samples(60)
    specs = [kernels.Linear(), kernels.RBF(0.1)]
    given, data = {
        "table": (specs, X),
        "views": (
            [kernels.per_view(*specs)],
            MultiView({"a": X[:, :2], "b": X[:, 2:]}),
        ),
        "bank": ("precomputed", KernelBank(X, specs)),
        "array": ("precomputed", stack(X, 2)),
    }[kind]
    grid = [
        {"loss": LOSSES},
        {"norm": [1, ElasticNet(0.5)]},
        {"loss": ["squared_hinge"], "C": ["learn"]},
    ]
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(MKLClassifier(given), grid, cv=cv).fit(data, y)
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 7 and (scores > 0.6).all()
    model = MKLClassifier(given, loss="logistic")
    likely = cross_val_score(model, data, y, cv=cv, scoring="neg_log_loss")
    assert likely.mean() > -np.log(2)
