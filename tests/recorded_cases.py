"""Small fits of every public estimator, whose results must not change unnoticed.

``python tests/recorded_cases.py FILE`` writes the current results; the test in
``test_recorded.py`` compares them with the committed file.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

import mklearn
from mklearn import MultiView
from mklearn.kernels import RBF, Linear, rbf_ladder

FILE = Path(__file__).parent / "recorded" / "answers.npz"

BANK = [Linear(), *rbf_ladder(3)]


def _tables():
    rng = np.random.default_rng(0)
    X, y = load_wine(return_X_y=True)
    pick = rng.permutation(len(X))
    wine = (X[pick][:90], y[pick][:90], X[pick][90:102])
    X, y = load_breast_cancer(return_X_y=True)
    pick = rng.permutation(len(X))
    cancer = (X[pick][:110], y[pick][:110], X[pick][110:122])
    X, y = load_diabetes(return_X_y=True)
    pick = rng.permutation(len(X))
    diabetes = (X[pick][:100], y[pick][:100] / 50.0, X[pick][100:112])
    return wine, cancer, diabetes


def _views(X, holes=0):
    a, b = X[:, :5], X[:, 5:10].copy()
    if holes:
        b[::holes] = np.nan
    return MultiView({"a": a, "b": b})


def _grams(train, test=None):
    bank = mklearn.KernelBank(train, BANK)
    if test is None:
        return np.stack([bank.gram(m) for m in range(bank.shape[2])], axis=2)
    cross = bank.cross(test)
    return np.stack([cross.gram(m) for m in range(cross.shape[2])], axis=2)


def cases():
    """Yield the name of a case, an unfitted model, and training and test data."""
    wine, cancer, diabetes = _tables()
    Xw, yw, _ = wine
    Xc, yc, Tc = cancer
    Xd, yd, Td = diabetes
    Yd = np.column_stack([yd, np.sin(yd), Xd[:, 2]])
    folds = list(StratifiedKFold(3).split(Xc, yc))
    thirds = list(StratifiedKFold(3).split(Xw, yw))
    parts = list(KFold(3).split(Xd))
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 110)
    C = mklearn.MKLClassifier
    for loss in ("hinge", "squared_hinge", "squared", "logistic"):
        for p in (1, 1.5, 2, np.inf):
            yield f"classifier {loss} {p}", C(BANK, loss=loss, norm=p), cancer, {}
        yield f"classifier {loss} three", C(BANK, loss=loss, norm=2), wine, {}
        own = C(BANK, loss=loss, norm=1, weights="per-class")
        yield f"classifier {loss} own", own, wine, {}
        for kind in ("nystroem", "rff"):
            low = C(BANK, loss=loss, norm=1.5, approximation=kind, rank=12)
            yield f"classifier {loss} {kind}", low, cancer, {}
            yield f"classifier {loss} {kind} three", low, wine, {}
    yield "classifier auto", C(), cancer, {}
    yield "classifier weighted", C(BANK, norm=1), cancer, {"sample_weight": weight}
    yield "classifier balanced", C(BANK, class_weight="balanced"), wine, {}
    learned = C(BANK, loss="squared_hinge", C="learn", norm=1)
    yield "classifier learned cost", learned, cancer, {}
    yield "classifier elastic", C(BANK, norm=mklearn.ElasticNet(0.5)), cancer, {}
    yield "classifier block", C(BANK, norm=mklearn.BlockNorm(4)), cancer, {}
    for how in ("center", "trace", "spherical", None):
        yield f"classifier {how}", C([RBF(1e-4), RBF(1e-5)], normalize=how), cancer, {}
    for solver in ("alternating", "cutting_plane", "reduced_gradient", "interleaved",
                   "multilevel", "newton"):  # fmt: skip
        yield f"classifier by {solver}", C(BANK, norm=1, solver=solver), cancer, {}
    yield (
        "classifier lbfgs",
        C(BANK, loss="squared", norm=2, solver="lbfgs"),
        cancer,
        {},
    )
    sparse = C(BANK, loss="squared_hinge", norm=1, solver="screened")
    yield "classifier screened", sparse, cancer, {}
    views = (_views(Xc), yc, _views(Tc))
    yield "classifier views", C(norm=1), views, {}
    holes = (_views(Xc, 4), yc, _views(Tc, 5))
    yield "classifier holes", C(norm=1), holes, {}
    given = (_grams(Xc), yc, _grams(Xc, Tc))
    yield "classifier grams", C("precomputed", norm=1), given, {}
    R = mklearn.MKLRegressor
    for loss in ("squared", "epsilon_insensitive"):
        for p in (1, 2):
            yield f"regressor {loss} {p}", R(BANK, loss=loss, norm=p), diabetes, {}
        low = R(BANK, loss=loss, approximation="nystroem", rank=12)
        yield f"regressor {loss} low", low, diabetes, {}
        yield f"regressor {loss} several", R(BANK, loss=loss), (Xd, Yd, Td), {}
    one = mklearn.MKLOneClass
    yield "one-class nu", one(BANK, nu=0.3), (Xc, None, Tc), {}
    yield "one-class grams", one("precomputed", nu=0.3), (given[0], None, given[2]), {}
    D = mklearn.MKLDiscriminant
    for criterion in ("rkda", "kfda"):
        yield f"discriminant {criterion}", D(BANK, criterion=criterion), cancer, {}
    for reg in (1e-3, "learn", "loo", "gcv"):
        yield f"discriminant reg {reg}", D(BANK, reg=reg), wine, {}
    low = D(BANK, approximation="nystroem", rank=12, reg=1e-3)
    yield "discriminant low", low, wine, {}
    yield (
        "discriminant low learned",
        low.__class__(BANK, approximation="nystroem", rank=12, reg="learn"),
        wine,
        {},
    )
    for criterion in ("hsic", "svm", "alignment"):
        S = mklearn.SubspaceClassifier
        yield f"subspace {criterion}", S(BANK, criterion=criterion), wine, {}
    fewer = mklearn.SubspaceClassifier(BANK, criterion="svm", n_components=1)
    yield "subspace fewer", fewer, wine, {}
    plain = mklearn.SubspaceClassifier([RBF(1e-4)], criterion="svm", uncorrelated=False)
    yield "subspace correlated", plain, wine, {}
    yield "subspace features", mklearn.SubspaceKernel(BANK), wine, {}
    yield "bilinear", mklearn.BilinearMKLClassifier(BANK), wine, {}
    shared = mklearn.BilinearMKLClassifier(BANK, weights="shared", norm=2)
    yield "bilinear shared", shared, wine, {}
    yield "crammer-singer", mklearn.CrammerSingerClassifier(BANK), wine, {}
    E = mklearn.EvidenceMKLRegressor
    yield "evidence", E(BANK), diabetes, {}
    yield "evidence several", E(BANK), (Xd, Yd, Td), {}
    yield "evidence weighted", E(BANK), diabetes, {"sample_weight": weight[:100]}
    yield "uniform", mklearn.UniformMKLClassifier(BANK), wine, {}
    yield "alignment", mklearn.AlignmentMKLClassifier(BANK), wine, {}
    yield "best", mklearn.BestKernelClassifier(BANK, cv=thirds), wine, {}
    single = mklearn.SingleKernelCV(C(), BANK, values=[0.1, 1.0], cv=folds)
    yield "single", single, cancer, {}
    search = mklearn.MKLClassifierCV(BANK, Cs=[0.1, 1.0], norms=[1, 2], cv=folds)
    yield "classifier cv", search, cancer, {}
    yield "classifier cv weighted", search, cancer, {"sample_weight": weight}
    low = (
        mklearn.MKLClassifierCV(
            BANK,
            Cs=[0.1, 1.0],
            norms=[1, 2],
            cv=thirds,
            approximation="nystroem",
            rank=12,
        )
        if "approximation" in mklearn.MKLClassifierCV().get_params()
        else search
    )
    yield "classifier cv low", low, wine if low is not search else cancer, {}
    search = mklearn.MKLRegressorCV(BANK, Cs=[0.1, 1.0], norms=[1, 2], cv=parts)
    yield "regressor cv", search, diabetes, {}
    search = mklearn.SubspaceClassifierCV(
        [RBF(1e-4), RBF(1e-5)], regs=[0.1, 1.0], Cs=[1.0, 10.0], cv=thirds
    )
    yield "subspace cv", search, wine, {}


def answers(model, X, y, T, fitted):
    """Return the results of a fitted model, as numbers."""
    model = model.fit(X, y, **fitted) if y is not None else model.fit(X, **fitted)
    out = {}
    for name in ("decision_function", "predict_proba", "transform"):
        if hasattr(model, name):
            out[name] = np.asarray(getattr(model, name)(T), dtype=float)
    if hasattr(model, "predict"):
        out["predict"] = np.asarray(model.predict(T), dtype=float)
    for name in ("kernel_weights_", "kernel_contributions_", "duality_gap_",
                 "n_iter_", "scores_", "intercept_", "noise_"):  # fmt: skip
        if hasattr(model, name):
            out[name] = np.asarray(getattr(model, name), dtype=float)
    return out


def record():
    """Return the results of all cases."""
    out = {}
    for name, model, (X, y, T), fitted in cases():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", UserWarning)
            for key, value in answers(model, X, y, T, fitted).items():
                out[f"{name}|{key}"] = value
    return out


def differing(path):
    """Return the results that differ from those of a file by more than 1e-9."""
    was, now = np.load(path), record()
    return [
        key
        for key in was.files
        if key not in now
        or np.shape(now[key]) != was[key].shape
        or not np.allclose(now[key], was[key], rtol=1e-9, atol=1e-9, equal_nan=True)
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        found = differing(sys.argv[2] if len(sys.argv) > 2 else FILE)
        print("\n".join(found) or "all answers are the same")
        sys.exit(bool(found))
    to = Path(sys.argv[1] if len(sys.argv) > 1 else FILE)
    to.parent.mkdir(exist_ok=True)
    np.savez_compressed(to, **record())
