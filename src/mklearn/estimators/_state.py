"""Checks of a fitted model that was loaded from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from mklearn.data.covariates import Fixed, with_values
from mklearn.data.views import MultiView
from mklearn.estimators._base import BaseKernelMachine
from mklearn.estimators._predictor import LARGEST, Predictor, check_finite, require
from mklearn.estimators._targets import Decides
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.specs import Kernel
from mklearn.solvers import Solution

# what a fitted model may be asked about samples
ANSWERS = ("predict", "decision_function", "predict_proba", "transform")


def check_state(model: BaseKernelMachine) -> None:
    """Raise ValueError if the fitted attributes of a model are inconsistent.

    This is for models loaded from files: arrays of other shapes, or with NaN, could
    also give predictions, but wrong ones. If everything seems consistent, the model has
    to predict for example samples.
    """
    require(isinstance(model, BaseKernelMachine), "no estimator")
    M = len(model.kernel_names_)
    require(M > 0 and len(model.kernels_) == M, "kernels and their names")
    require(all(isinstance(name, str) for name in model.kernel_names_), "names")
    known = (isinstance(kernel, (Kernel, type(None))) for kernel in model.kernels_)
    require(all(known), "kernels")
    require(np.shape(model.kernel_weights_)[-1:] == (M,), "kernel weights")
    predictor = model.predictor_
    require(isinstance(predictor, Predictor), "no predictor")
    require(predictor.n_kernels == M, "kernels")
    predictor.check()
    fixed = model._fixed
    count = None if fixed is None else len(fixed.coding.names)
    require(isinstance(fixed, (Fixed, type(None))), "covariates")
    effects = predictor.effects
    require(count == (None if effects is None else len(effects)), "covariates")
    if fixed is not None:
        fixed.check()
    expected = model._views_in
    require(isinstance(expected, (dict, type(None))), "views")
    for view, names in (expected or {}).items():
        listed = isinstance(names, tuple) and all(isinstance(n, str) for n in names)
        require(isinstance(view, str) and (names is None or listed), "views")
    for name in ("kernel_weights_", "kernel_contributions_", "dual_coef_",
                 "coef_", "means_", "temperature_"):  # fmt: skip
        check_finite(name, vars(model).get(name, 0.0))
    classes = vars(model).get("classes_")
    if classes is not None:
        require(np.ndim(classes) == 1 and len(classes) > 0, "classes")
        if classes.dtype.kind == "f":
            check_finite("classes_", classes)
        require(len(set(classes.tolist())) == len(classes), "classes")
        scores, one = len(predictor.bias), vars(model).get("_multilabel") is True
        count = len(classes)
        suits = scores in (1, 2) if count == 2 else scores == count
        suits = suits and (count > 1 or one)
        decides = isinstance(model, Decides)
        require(not decides or suits, "a score for each class")
    found = vars(model).get("solution_", [])
    for one in found if isinstance(found, list) else [found]:
        require(isinstance(one, Solution) and bool(one.message), "solution")
    inner = vars(model).get("estimator_")
    if inner is not None:
        check_state(inner)
    model._check_own_state()
    X, width = predictor.example(2), model.n_features_in_
    require(isinstance(width, int), "columns")
    if X is not None:
        columns = X.shape[1] if len(X.shape) > 1 else 1
        # of views some may be in no kernel, or covariates
        views = isinstance(X, MultiView) or fixed is not None
        require(columns == width or (views and columns < width), "columns")
        if not isinstance(X, KernelBank):
            X = MultiView.wrap(X)
        if fixed is not None and isinstance(X, MultiView):
            X = with_values(X, (), fixed.coding.example(2))
        elif fixed is not None:
            X = X.with_covariates(fixed.coding.example(2))
        check_answers(model, X)


def check_answers(model: Any, X: Any) -> None:
    """Raise ValueError unless a model has a finite answer for each sample of X."""
    asked = [getattr(model, name) for name in ANSWERS if hasattr(model, name)]
    if vars(model).get("_spread") is not None:
        asked.append(lambda X: np.column_stack(model.predict(X, return_std=True)))
    require(bool(asked), "nothing to predict")
    for ask in asked:
        answer = np.asarray(ask(X))
        require(len(answer) == len(X), "an answer for each sample")
        if answer.dtype.kind == "f":
            sound = bool((np.abs(answer) < LARGEST).all())  # which NaN is not
            require(sound, "the answer for a sample is not finite")
