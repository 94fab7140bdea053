"""Fitted models: what a fit leaves behind, predictions, and tables of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from mklearn.data.containers import require_no_container, require_no_times
from mklearn.data.covariates import (
    Fixed,
    Place,
    columns_of_no_numbers,
    require_numbers,
    split,
    with_values,
)
from mklearn.data.frames import pandas_for
from mklearn.data.threads import one_blas_thread
from mklearn.data.views import MultiView, holds_views
from mklearn.estimators._inference import inference_columns
from mklearn.estimators._predictor import KnownScores, Predictor
from mklearn.estimators._training import OF_ONE, Training, as_views
from mklearn.kernels.bank import KernelBank, beside_grams
from mklearn.kernels.columns import columns_used

FloatArray = NDArray[np.float64]


class FittedMachine(BaseEstimator):
    """The fitted side of an estimator: its predictor, its weights and its covariates.

    :class:`~mklearn.estimators._base.BaseKernelMachine` is the other side, which leads
    from X and y to a predictor.
    """

    predictor_: Predictor
    classes_: NDArray[Any]
    _fixed: Fixed | None = None
    # columns of the views in training, where these have names; None for a table
    _views_in: dict[str, tuple[str, ...] | None] | None = None

    def _effects(
        self, bias: FloatArray, shift: Any = 0.0
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return intercepts (T,) and coefficients of covariates (k, T), None if none.

        Parameters
        ----------
        bias : array of shape (T,), or (1 + k, T) of the columns of the design
        shift : what was subtracted from the values
        """
        if self._fixed is None:
            return bias + shift, None
        found = self._fixed.coding.in_units(bias)
        return found[0] + shift, found[1:]

    def _keep(
        self,
        training: Training,
        predictor: Predictor,
        theta: FloatArray,
        A: FloatArray,
        shares: FloatArray,
    ) -> None:
        """Store the predictor and the fitted attributes."""
        self.predictor_ = predictor
        self.kernel_names_, self.kernels_ = training.names, training.kernels
        self.kernel_weights_, self.kernel_contributions_ = theta, shares
        for name in OF_ONE:  # an earlier fit may have left the others
            self.__dict__.pop(name, None)
        self.__dict__.update(training.fitted(A))

    @property
    def fixed_effects_(self) -> FloatArray:
        """Coefficients of the covariates, in the units of X.

        Shape (n_covariates,) for one score, else (n_scores, n_covariates); names are in
        ``fixed_names_``.
        """
        bias, effects = self.predictor_.bias, self.predictor_.effects
        rule = self.predictor_.rule
        if effects is not None and rule is not None:
            effects = effects @ rule.T
        found = np.zeros((len(bias), 0)) if effects is None else effects.T
        return np.asarray(found[0] if len(found) == 1 else found)

    @one_blas_thread
    def explained(self, X: Any) -> dict[str, float]:
        """Return how much of the scores' variance is due to covariates and to kernels.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)

        Returns
        -------
        dict
            Shares of the variance over these samples, summed over scores: the share of
            the ``"covariates"``, that of the ``"kernels"``, and ``"both"``, twice their
            covariance, which cannot be attributed to either alone. The shares sum to
            one.
        """
        check_is_fitted(self)
        rows = self.checked(X)
        beside = self.predictor_.of_covariates(rows)
        rest = self.predictor_.scores(rows) - beside
        parts = {
            "covariates": float(beside.var(axis=0).sum()),
            "kernels": float(rest.var(axis=0).sum()),
        }
        total = float((beside + rest).var(axis=0).sum())
        parts["both"] = total - parts["covariates"] - parts["kernels"]
        return {k: v / total if total > 0 else 0.0 for k, v in parts.items()}

    @property
    def fixed_names_(self) -> tuple[str, ...]:
        """Names of the columns that encode the covariates."""
        check_is_fitted(self)
        return () if self._fixed is None else self._fixed.coding.names

    @property
    def fixed_dropped_(self) -> tuple[str, ...]:
        """Names of columns dropped as constant or collinear with earlier ones."""
        check_is_fitted(self)
        return () if self._fixed is None else self._fixed.coding.dropped

    # --- predict ----------------------------------------------------------------------

    @one_blas_thread
    def _scores(self, X: Any) -> FloatArray:
        """Return ``f`` at new samples, shape (n_samples, T)."""
        check_is_fitted(self)
        return self.predictor_.scores(self.checked(X))

    def checked(self, X: Any) -> Any:
        """Return new samples, validated for ``predictor_``.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        require_no_container(X)
        if holds_views(X):
            X = MultiView(X)
        if isinstance(self.predictor_, KnownScores):
            return X  # which is not looked at
        if isinstance(X, MultiView) and X.covariates is None:
            X = X.in_form_of(self._expected_views(X))
        if self._fixed is not None:
            return self._with_covariates(X)
        return self._new_samples(X) if self.predictor_.takes_samples else X

    def _expected_views(self, X: MultiView) -> dict[str, tuple[str, ...] | None]:
        """Return the views of the training samples, but no lacking covariates."""
        places = () if self._fixed is None else self._fixed.places
        needed = {place.view for place in places}
        known = self._views_in or dict.fromkeys(X.names)
        return {k: names for k, names in known.items() if k in X or k not in needed}

    def _new_samples(self, X: Any) -> Any:
        """Return new samples, with the columns of the training samples."""
        if isinstance(X, MultiView):
            return X
        unused = self._unused(X)
        if unused:
            validate_data(self, X, skip_check_array=True, reset=False)
            return as_numbers(split(X, unused).numbers)
        return validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=False
        )

    def _unused(
        self, X: Any, places: tuple[Place, ...] = (), fitted: bool = True
    ) -> tuple[Place, ...]:
        """Return the columns of a DataFrame that are no numbers and that nothing uses.

        Raise ValueError if a kernel uses a column of text.

        Parameters
        ----------
        X : table
        places : tuple of Place
            The covariates.
        fitted : bool
            Whether to look at the kernels of the last fit, or at ``kernels``.
        """
        if not hasattr(X, "columns"):
            require_no_times(X)
        apart = {place.column for place in places}
        odd = [p for p in columns_of_no_numbers(X) if p.column not in apart]
        if not odd:
            return ()
        names = [str(c) for c in X.columns]
        empty = MultiView.from_table(np.zeros((1, len(names))), names)
        if places:
            empty = with_values(empty, places, np.zeros((1, 0)))
        used = self._columns_used(empty, fitted)
        require_numbers(X, [p for p in odd if p.column in used])
        return tuple(p for p in odd if p.column not in used)

    def _columns_used(self, like: MultiView, fitted: bool) -> set[int]:
        """Return the columns that kernels use, of samples with the columns of X."""
        return columns_used(self.kernels_, like)

    def _check_own_state(self) -> None:
        """Raise ValueError if attributes that only this estimator has are invalid."""

    def _with_covariates(self, X: Any) -> MultiView | KernelBank:
        """Return new samples that carry their coded covariates."""
        assert self._fixed is not None
        if isinstance(X, (MultiView, KernelBank)) and X.covariates is not None:
            return X
        if not self.predictor_.takes_samples:
            table, coding = beside_grams(X), self._fixed.coding
            names = [place.name for place in self._fixed.places]
            lacking = [name for name in names if name not in table]
            if lacking:
                raise ValueError(
                    f"The new samples lack the covariate {lacking[0]!r}; they have "
                    f"{list(table)}."
                )
            known = {name: table[name] for name in names}
            return X.with_covariates(coding.values(known, X.shape[0]))
        if isinstance(X, MultiView):
            return self._fixed.prepared(X, split(X, self._fixed.places).table)
        validate_data(self, X, skip_check_array=True, reset=False)
        places = self._fixed.places
        data = split(X, (*places, *self._unused(X, places))).numbers
        table = split(X, places).table
        return self._fixed.prepared(as_views(as_numbers(data), None), table)

    # --- reading ----------------------------------------------------------------------

    def weights_frame(self) -> Any:
        """Return a DataFrame of kernels: name, view, parameters, weight, contribution.

        If each class or target has its own weights, there is one weight column and one
        contribution column for each of them.
        """
        check_is_fitted(self)
        pd = pandas_for(
            "weights_frame()",
            "read kernel_names_, kernel_weights_ and kernel_contributions_",
        )
        table: dict[str, Any] = {
            "kernel": list(self.kernel_names_),
            "view": [None if k is None else k.view for k in self.kernels_],
            "parameters": [
                {} if kernel is None else kernel.parameters()
                for kernel in self.kernels_
            ],
        }
        weights = np.atleast_2d(self.kernel_weights_)
        shares = np.atleast_2d(self.kernel_contributions_)
        rows = getattr(self, "classes_", range(len(weights)))
        for j, (w, s) in enumerate(zip(weights, shares, strict=True)):
            suffix = "" if len(weights) == 1 else f"_{rows[j]}"
            table[f"weight{suffix}"], table[f"contribution{suffix}"] = w, s
        return pd.DataFrame(table)

    def inference_frame(
        self,
        tests: Any = None,
        stability: Any = None,
        *,
        level: float = 0.95,
        control: str = "holm",
        profile: Any = None,
        selection: Any = None,
        targets: Any = None,
    ) -> Any:
        """Return a DataFrame of kernel weights with intervals and p-values.

        If each target or group of targets has its own weights, there is a row for each
        kernel of each target.

        Parameters
        ----------
        tests : KernelTests, optional
            Tests of the same kernels, as returned by
            :func:`mklearn.inference.kernel_tests`. They give the columns ``p`` and
            ``p_holm`` (or that of another ``control``). If targets have their own
            weights, a list with the tests of each.
        stability : WeightStability, optional
            As returned by :func:`mklearn.interpretation.weight_stability`. It gives the
            column ``selected``, the share of resamples in which a kernel has nonzero
            weight, and the intervals if the model has no standard errors.
        level : float
            Confidence level of the intervals. They are based on standard errors for
            :class:`EvidenceMKLRegressor`, otherwise on the quantiles over resamples.
        control : str
            How p-values are adjusted, as in ``KernelTests.adjusted``.
        profile : array of shape (n_kernels, 2) or mapping, optional
            Intervals of the shares, as returned by
            :meth:`EvidenceMKLRegressor.profile_intervals`, in place of those of
            standard errors, which are too short for few samples. A mapping may contain
            them for ``"share"`` and for ``"weight"``. For several targets with their
            own weights, they have shape (n_targets, n_kernels, 2).
        selection : CertifiedSelection, optional
            As returned by :func:`mklearn.inference.certified_selection` for this model.
            It gives the column ``proved``: "zero", "not zero" or "undecided".
        targets : sequence of int, optional
            The targets in the table, as indices of columns of y, if they have their own
            weights; all by default. The standard errors of each take a factorisation.

        Returns
        -------
        DataFrame
            target (if targets have their own weights), kernel, weight, weight_low,
            weight_high, share (of the variance explained for EvidenceMKLRegressor, else
            ``kernel_contributions_``), share_low, share_high, p, p_holm, selected,
            proved; columns that cannot be computed are left out.

        Examples
        --------
        >>> import numpy as np
        >>> from mklearn import EvidenceMKLRegressor, kernels
        >>> from mklearn.inference import kernel_tests
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 2))
        >>> y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=60)
        >>> family = kernels.per_feature("rbf")
        >>> model = EvidenceMKLRegressor(family).fit(X, y)
        >>> frame = model.inference_frame(kernel_tests(X, y, family))
        >>> [str(column) for column in frame.columns[-3:]]
        ['share_high', 'p', 'p_holm']
        """
        check_is_fitted(self)
        columns = inference_columns(
            self, tests, stability, level=level, control=control, profile=profile,
            selection=selection, targets=targets,
        )  # fmt: skip
        pd = pandas_for(
            "inference_frame()", "read the attributes of the model and of the tests"
        )
        return pd.DataFrame(columns)


def as_numbers(data: Any) -> Any:
    """Return a table without its covariates as numbers, array or CSR matrix."""
    return check_array(data, accept_sparse="csr", dtype=np.float64, input_name="X")
