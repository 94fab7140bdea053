"""Tests of kernels, given covariates or all other kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from mklearn.data.checks import check_given
from mklearn.data.covariates import (
    Covariates,
    Fixed,
    Place,
    Split,
    find_columns,
    find_places,
    split,
)
from mklearn.data.frames import pandas_for
from mklearn.data.labels import is_missing
from mklearn.data.spelling import plural
from mklearn.data.threads import one_blas_thread
from mklearn.data.views import MultiView, holds_views, paired
from mklearn.inference.event_times import EventTimes, are_times
from mklearn.inference.forms import Form
from mklearn.inference.nulls import Null, null_models
from mklearn.inference.permutations import (
    Exchange,
    adjusted_p_values,
    check_count,
    permutation_p_values,
    smallest_p_value,
)
from mklearn.inference.tails import (
    flat,
    largest_ratio_tail,
    ratio_tails,
    tail_probabilities,
    weight_ratios,
)
from mklearn.kernels.bank import KernelBank, beside_grams
from mklearn.kernels.columns import fit_features
from mklearn.kernels.families import expand_kernels
from mklearn.kernels.normalise import check_definite, fit_normaliser
from mklearn.kernels.specs import Kernel

FloatArray = NDArray[np.float64]

METHODS = ("score", "lr", "permutation")
GIVEN = ("covariates", "others")
_KEPT = 2**28  # size in bytes up to which the columns of all kernels are stored
_ZERO = 1e-9  # a likelihood ratio that is zero up to rounding
_FEW = 0.25  # number of features, relative to n, up to which they replace a Gram matrix


@dataclass(frozen=True)
class KernelTests:
    """One test for each kernel.

    Attributes
    ----------
    names : tuple of str
    statistic : array of shape (n_kernels,)
        ``e'Ke / e'e`` of the residuals e without the kernel ("score", "permutation"),
        or twice the difference of the log likelihoods ("lr"). Where the variance of the
        residuals is known (the score test of two classes given other kernels, and of
        times to an event), ``e'Ke`` is divided by its mean if the kernel has no effect.
    p_values : array of shape (n_kernels,)
    resolution : float
        The smallest possible p-value. For permutations this is
        ``1 / (n_permutations + 1)``, or one divided by the number of different
        permutations if few subjects allow for fewer; zero for tests that compute the
        tail.
    error : array of shape (n_kernels,)
        Standard error of the p-values, from the number of permutations or simulations;
        zero for tests that compute the tail.
    joint : array of shape (n_kernels,) or None
        For permutations only: the share of them in which any kernel has a statistic at
        least as large (the family-wise p-values of Westfall and Young).
    method, given : str
        The arguments of :func:`kernel_tests`.
    covariates, dropped : tuple of str
        Columns of the design besides the intercept, and those dropped as collinear.
    """

    names: tuple[str, ...]
    statistic: FloatArray
    p_values: FloatArray
    resolution: float
    error: FloatArray
    joint: FloatArray | None = field(default=None, repr=False)
    method: str = "score"
    given: str = "covariates"
    covariates: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def adjusted(self, control: str = "holm") -> FloatArray:
        """Return p-values adjusted for the number of kernels.

        Parameters
        ----------
        control : {"holm", "bonferroni", "bh", "by", "joint"}
            "holm", "bonferroni" and "joint" control the family-wise error rate; "bh"
            (Benjamini-Hochberg) and "by" (Benjamini-Yekutieli, for any dependence)
            control the false discovery rate. "joint" needs permutations.
        """
        return adjusted_p_values(self.p_values, control, self.joint)

    def frame(self, control: str = "holm") -> Any:
        """Return a pandas DataFrame: kernel, statistic, p and adjusted p.

        Parameters
        ----------
        control : as in :meth:`adjusted`
        """
        pd = pandas_for("frame()", "read names, statistic and p_values")
        return pd.DataFrame(
            {
                "kernel": list(self.names),
                "statistic": self.statistic,
                "p": self.p_values,
                f"p ({control})": self.adjusted(control),
            }
        )


@one_blas_thread
def kernel_tests(
    X: Any,
    y: Any,
    kernels: Any = "auto",
    *,
    fixed: Any = None,
    given: str = "covariates",
    method: str = "score",
    groups: Any = None,
    n_permutations: int = 999,
    random_state: Any = 0,
    which: Any = None,
    strata: Any = None,
    ties: str = "breslow",
) -> KernelTests:
    """Test for each kernel whether its weight is zero.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame, MultiView, or Gram matrices (n, n, M)
        Or a :class:`TestedKernels`, which contains computed kernels to be reused for
        many targets.
    y : array of shape (n,), or times to an event
        Numbers, or labels. For two classes the model is logistic; more classes need
        ``method="permutation"``. More than two different integers are taken as numbers,
        so give such classes as strings. Times to an event are a structured array or two
        columns, time and event, as in :meth:`MKLCox.fit`; the model is that of Cox, and
        ``method="lr"`` and ``given="others"`` are not available.
    kernels : kernel, name, callable, list of these, "auto" or "precomputed"
    fixed : names or indices, array of shape (n, k), or DataFrame, optional
        Covariates, which enter linearly in addition to the intercept and are not
        tested: names or indices of columns of X, or names of its views, which the
        kernels then do not see (of Gram matrices, names in the covariates of the
        KernelBank); or the covariates themselves. Categories become indicators;
        collinear columns are dropped and listed in the result.
    given : {"covariates", "others"}
        The null model: covariates alone, or covariates and all other kernels, whose
        weights are estimated without the tested kernel by restricted likelihood. For
        two classes, the score test uses its Laplace approximation for a logistic model,
        and the other methods treat the labels as numbers.
    method : {"score", "lr", "permutation"}
        "score" computes the tail of ``e'Ke / e'e``, exactly for normal noise of unknown
        variance; for two classes given other kernels, of ``e'Ke`` with the variance
        that errors of labels have. "lr" compares likelihoods with and without the
        kernel, with the weights of the others fixed at their estimates without it; the
        distribution at the boundary is simulated from the spectrum of the kernel, with
        the same relative error in every tail. "permutation" permutes residuals
        (Freedman and Lane).
    groups : array of shape (n,), optional
        Subject of each sample, for permutations. If y is constant within subjects,
        subjects of equal size are permuted as a whole; otherwise samples are permuted
        within subjects. With covariates, each subject whose samples are permuted, or
        all subjects of a size, then have their own intercept (for times to an event,
        their own baseline hazard), and two classes are treated as numbers.
    n_permutations : int
    random_state : int, RandomState instance or None
        Seed for permutations and simulations.
    which : sequence of str or int, optional
        Names or indices of the kernels to test, all by default; the remaining ones
        still count as other kernels.
    strata : array of shape (n,), optional
        For times to an event only: samples are compared, and permuted, within the same
        stratum.
    ties : {"breslow", "efron"}
        For times to an event only: how tied events are treated.

    Returns
    -------
    KernelTests

    Notes
    -----
    ``given="covariates"`` asks whether a kernel is associated with the target at all,
    so similar kernels are all found. ``given="others"`` asks for what only this kernel
    explains, so if two kernels carry the same information, neither is found. With
    "others" the weights of the other kernels are estimated; the statistic is made
    orthogonal to their scores, which accounts for the estimation in large samples.

    For times to an event the residuals are martingale residuals, events minus expected
    events. Their covariance is that of Cox's model, so the score test of one linear
    kernel on one column is the score test of Cox regression (without covariates and
    ties, and with two values, the log-rank test), and censoring may depend on the
    kernel. Permutations are valid only if it does not, given the covariates.

    References
    ----------
    Liu, D., Lin, X. and Ghosh, D. (2007). Semiparametric regression of multidimensional
    genetic pathway data. *Biometrics* 63, 1079-1088.

    Chen, J., Chen, W., Zhao, N., Wu, M. C. and Schaid, D. J. (2016). Small sample
    kernel association tests for human genetic and microbiome association studies.
    *Genetic Epidemiology* 40, 5-19.

    Crainiceanu, C. M. and Ruppert, D. (2004). Likelihood ratio tests in linear mixed
    models with one variance component. *Journal of the Royal Statistical Society B* 66,
    165-185.

    Breslow, N. E. and Clayton, D. G. (1993). Approximate inference in generalized
    linear mixed models. *Journal of the American Statistical Association* 88, 9-25.

    Greven, S., Crainiceanu, C. M., Kuechenhoff, H. and Peters, A. (2008). Restricted
    likelihood ratio testing for zero variance components in linear mixed models.
    *Journal of Computational and Graphical Statistics* 17, 870-891.

    Naiman, D. Q. and Priebe, C. E. (2001). Computing scan statistic p values using
    importance sampling, with applications to genetics and medical image analysis.
    *Journal of Computational and Graphical Statistics* 10, 296-328.

    Freedman, D. and Lane, D. (1983). A nonstochastic interpretation of reported
    significance levels. *Journal of Business and Economic Statistics* 1, 292-298.

    Cai, T., Tonini, G. and Lin, X. (2011). Kernel machine approach to testing the
    significance of multiple genetic markers for risk prediction. *Biometrics* 67,
    975-986.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import kernels
    >>> from mklearn.inference import kernel_tests
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 3))
    >>> y = np.sin(X[:, 0]) + rng.standard_normal(100)
    >>> found = kernel_tests(X, y, kernels.per_feature("rbf"))
    >>> (found.p_values < 0.01).tolist()
    [True, False, False]
    """
    asked = _Asked.of(
        method, given, groups is None, n_permutations, check_random_state(random_state)
    )
    given_to = _Given.of(X, kernels, y, fixed, groups, strata, ties)
    parts = [[m] for m in given_to.tested.numbers(which)]
    return asked.tests(given_to, parts)


@dataclass(frozen=True)
class HierarchicalTests:
    """Tests of views, and of the kernels within them.

    Attributes
    ----------
    views, kernels : KernelTests
        Tests of each view as a whole, and of each kernel.
    places : tuple of int
        Index of the view of each kernel.
    """

    views: KernelTests
    kernels: KernelTests
    places: tuple[int, ...]

    def adjusted(self) -> tuple[FloatArray, FloatArray]:
        """Return adjusted p-values of the views and of the kernels.

        The p-value of a view with k out of M kernels is multiplied by M / k, that of a
        kernel by M, and the latter is at least that of its view. This controls the
        family-wise error rate over views and kernels together (Meinshausen 2008).
        """
        M, places = len(self.places), np.array(self.places)
        sizes = np.bincount(places, minlength=len(self.views.names))
        views = np.minimum(self.views.p_values * M / sizes, 1.0)
        kernels = np.minimum(self.kernels.p_values * M, 1.0)
        return views, np.maximum(kernels, views[places])

    def frame(self) -> Any:
        """Return a pandas DataFrame: a row for each view, then one for each kernel."""
        views, kernels = self.adjusted()
        frame = self.kernels.frame()[["kernel", "statistic", "p"]]
        frame["p (hierarchical)"] = kernels
        frame.insert(0, "view", [self.views.names[v] for v in self.places])
        whole = self.views.frame()[["kernel", "statistic", "p"]]
        whole["p (hierarchical)"] = views
        whole = whole.rename(columns={"kernel": "view"})
        whole.insert(1, "kernel", "(all)")
        pandas = type(frame)
        rows = [*whole.to_dict("records"), *frame.to_dict("records")]
        return pandas(rows)


@one_blas_thread
def hierarchical_tests(
    X: Any,
    y: Any,
    kernels: Any = "auto",
    *,
    fixed: Any = None,
    given: str = "covariates",
    method: str = "score",
    groups: Any = None,
    n_permutations: int = 999,
    random_state: Any = 0,
    strata: Any = None,
    ties: str = "breslow",
) -> HierarchicalTests:
    """Test each view as a whole, and then its kernels.

    A view is tested by the mean of its kernels, each scaled by its variance. If kernels
    of a view share an effect, each of them may be too weak to be detected among many,
    while the view as a whole is detected.

    Parameters
    ----------
    X, y, kernels, fixed, given, method, groups, n_permutations, random_state
        As in :func:`kernel_tests`; every kernel must belong to a view. With
        ``given="others"`` a view is tested against the kernels of all other views.
    strata, ties
        As in :func:`kernel_tests`, for times to an event.

    Returns
    -------
    HierarchicalTests

    References
    ----------
    Meinshausen, N. (2008). Hierarchical testing of variable importance. *Biometrika*
    95, 265-278.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MultiView, kernels
    >>> from mklearn.inference import hierarchical_tests
    >>> rng = np.random.default_rng(0)
    >>> X = MultiView({"a": rng.normal(size=(80, 2)), "b": rng.normal(size=(80, 2))})
    >>> y = X["a"].sum(axis=1) + rng.normal(size=80)
    >>> found = hierarchical_tests(X, y, kernels.per_view("linear", "rbf"))
    >>> (found.adjusted()[0] < 0.05).tolist()
    [True, False]
    """
    given_to = _Given.of(X, kernels, y, fixed, groups, strata, ties)
    tested = given_to.tested
    if any(view is None for view in tested.views):
        raise ValueError(
            "hierarchical_tests needs kernels of views; give a MultiView and "
            "kernels.per_view(...), or use kernel_tests."
        )
    names = tuple(dict.fromkeys(str(view) for view in tested.views))
    places = tuple(names.index(str(view)) for view in tested.views)
    parts = [[m for m, v in enumerate(places) if v == k] for k in range(len(names))]
    single = [[m] for m in range(len(places))]
    found = []
    for some, called in ((parts, names), (single, None)):
        rng = check_random_state(random_state)
        asked = _Asked.of(method, given, groups is None, n_permutations, rng)
        found.append(asked.tests(given_to, some, called))
    return HierarchicalTests(found[0], found[1], places)


@dataclass(frozen=True)
class _Asked:
    """Settings of the tests."""

    method: str
    given: str
    count: int
    rng: Any

    @classmethod
    def of(cls, method: str, given: str, alone: bool, count: Any, rng: Any) -> _Asked:
        """Check the settings; ``alone`` tells that samples have no groups."""
        for name, value, known in (
            ("method", method, METHODS), ("given", given, GIVEN)
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"{name} must be one of {known}, got {value!r}.")
        if not alone and method != "permutation":
            raise ValueError(
                f"groups= needs method='permutation'; method={method!r} assumes "
                "independent samples. Add covariates for the subjects, or use "
                "permutations."
            )
        return cls(method, given, check_count(count), rng)

    def tests(
        self,
        given: _Given,
        parts: Sequence[list[int]],
        names: tuple[str, ...] | None = None,
    ) -> KernelTests:
        """Return the tests of parts; kernels of a part are tested by their mean."""
        tested, n = given.tested, given.tested.n
        target = given.target()
        covariates = Covariates.fit(given.table, n)
        Z = covariates.design(given.table, n)
        if target.many and self.method != "permutation":
            raise ValueError(
                f"y has {plural(target.Y.shape[1], 'class')}, but "
                f"method={self.method!r} needs numbers or two classes. Use "
                "method='permutation'."
            )
        if self.given == "others" and any(len(p) == len(tested.names) for p in parts):
            what = "views" if len(tested.names) > 1 else "kernels"
            raise ValueError(f"given='others' needs at least two {what}, got one.")
        if self.method == "permutation":
            strata = target.stratum if isinstance(target, EventTimes) else None
            exchange = Exchange.of(n, target.Y, given.groups, strata)
            orders = exchange.drawn(self.count, self.rng)
            if Z.shape[1] == 1:
                exchange.check_changes(target.Y)
            elif given.groups is not None and exchange.parts is not None:
                target, Z = _within(target, Z, exchange)
            without = self._nulls(tested.forms, target, Z, parts)
            found = _permuted(tested, parts, without, orders, exchange.possible())
        else:
            without = self._nulls(tested.forms, target, Z, parts)
            found = _computed(tested, parts, without, self.method, self.rng)
        return KernelTests(
            tuple(tested.names[p[0]] for p in parts) if names is None else names,
            *found,
            method=self.method,
            given=self.given,
            covariates=covariates.names,
            dropped=covariates.dropped,
        )

    def _nulls(
        self,
        forms: Sequence[Form],
        target: _Target | EventTimes,
        Z: FloatArray,
        parts: Sequence[list[int]],
    ) -> Callable[[int], Null]:
        """Return a function from the index of a part to the model without it."""
        others = self.given == "others"
        if isinstance(target, EventTimes):
            if others or self.method == "lr":
                raise ValueError(
                    "Tests for times to an event have method='score' or 'permutation' "
                    f"and given='covariates', got method={self.method!r} and "
                    f"given={self.given!r}."
                )
            same = target.null(Z, permuted=self.method == "permutation")
            return lambda k: same
        if others and self.method != "score":
            target = target.as_numbers()
        if not target.binary:  # the logistic model detects separated classes itself
            check_left(target.Y, Z)
        return null_models(forms, target, Z, parts if others else None)


# --- kernels and targets --------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """Kernels, targets, covariates and subjects of the same samples."""

    tested: TestedKernels
    y: Any
    table: Any
    groups: Any
    strata: Any
    ties: str

    @classmethod
    def of(
        cls,
        X: Any,
        kernels: Any,
        y: Any,
        fixed: Any,
        groups: Any,
        strata: Any = None,
        ties: str = "breslow",
    ) -> _Given:
        """Compute the kernels; what has names is put into the order of the samples."""
        if isinstance(X, TestedKernels):
            if are_names(fixed, X.n):
                raise ValueError(
                    "fixed= names columns of X, which TestedKernels does not have; "
                    "give the covariates as an array or a DataFrame."
                )
            return cls(X, y, fixed, groups, strata, ties)
        X = MultiView(X) if holds_views(X) else X
        y, groups = paired(X, y), paired(X, groups, "groups")
        strata = paired(X, strata, "strata")
        if are_names(fixed, X.shape[0] if hasattr(X, "shape") else len(X)):
            X, table = _separated(X, kernels, fixed)
        else:
            table = paired(X, fixed, "fixed")
        return cls(TestedKernels.of(X, kernels), y, table, groups, strata, ties)

    def target(self) -> _Target | EventTimes:
        """Return the checked target."""
        if are_times(self.y):
            return EventTimes.of(self.y, self.tested.n, self.strata, self.ties)
        if self.strata is not None:
            raise ValueError(
                "strata= is for times to an event, a structured array or two columns; "
                "add the strata to fixed= instead."
            )
        return _Target.of(self.y, self.tested.n)


def are_names(fixed: Any, n: int) -> bool:
    """Return whether covariates are named; n values are those of one covariate.

    Parameters
    ----------
    fixed : as in :func:`kernel_tests`
    n : int
        The number of samples.
    """
    if isinstance(fixed, (str, int, np.integer)):
        return True
    if not isinstance(fixed, (list, tuple)) or len(fixed) in (0, n):
        return False
    return all(isinstance(one, (str, int, np.integer)) for one in fixed)


def split_named(
    X: Any, fixed: Any, precomputed: bool
) -> tuple[tuple[Place, ...], Split]:
    """Return the positions of named covariates in X, and X without them.

    Parameters
    ----------
    X : samples, or a KernelBank if ``precomputed``
    fixed : str, int, or a list of these
    precomputed : bool
    """
    if precomputed:
        known = beside_grams(X)
        places = find_columns(fixed, tuple(known))
        return places, Split(X, {p.name: known[p.name] for p in places})
    if not isinstance(X, MultiView) and not hasattr(X, "shape"):
        X = np.array(X, dtype=object)
    places = find_places(fixed, X)
    return places, split(X, places)


def _separated(X: Any, kernels: Any, fixed: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return the samples, with covariates hidden from kernels, and the covariates."""
    given = isinstance(kernels, str) and kernels == "precomputed"
    places, (numbers, table) = split_named(X, fixed, given)
    if given:
        return numbers, table
    if not isinstance(X, MultiView):
        array = check_array(numbers, accept_sparse="csr", dtype=np.float64)
        numbers = MultiView.from_table(array, getattr(X, "columns", None))
    coding = Covariates.fit(table, len(numbers))
    return Fixed(places, coding).prepared(numbers, table), table


@dataclass(frozen=True)
class TestedKernels:
    """Kernels that are computed once and tested for many targets.

    They are scaled by their variance, and missing views are imputed by the mean. Create
    them with :meth:`of`, and pass them to :func:`kernel_tests` in place of X.

    Attributes
    ----------
    names : tuple of str
    views : tuple of str or None
        The view of each kernel, if it has one.
    forms : sequence of Form
        The kernels, computed on demand.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn.inference import TestedKernels, kernel_tests
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(50, 3)), rng.normal(size=(50, 4))
    >>> tested = TestedKernels.of(X, ["linear", "rbf"])
    >>> [kernel_tests(tested, y).p_values.shape for y in Y.T]
    [(2,), (2,), (2,), (2,)]
    """

    __test__ = False  # not a test class for pytest

    names: tuple[str, ...]
    views: tuple[str | None, ...]
    forms: _Forms

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.forms.n

    def numbers(self, which: Any) -> list[int]:
        """Return the indices of kernels given by name or index; all if None."""
        M = len(self.names)
        if which is None:
            return list(range(M))
        places = {name: m for m, name in enumerate(self.names)}
        found = [places.get(k, k) if isinstance(k, str) else k for k in which]
        for k in found:
            if not isinstance(k, (int, np.integer)) or not 0 <= k < M:
                raise ValueError(
                    f"which= contains {k!r}; it may contain numbers of the "
                    f"{plural(M, 'kernel')}, from 0, or their names: "
                    f"{', '.join(self.names[:10])}{', ...' if M > 10 else ''}."
                )
        if not found or len(set(found)) < len(found):
            raise ValueError("which= must name at least one kernel, and none twice.")
        return [int(k) for k in found]

    @classmethod
    def of(cls, X: Any, kernels: Any) -> TestedKernels:
        """Return the kernels of samples, or the given Gram matrices.

        Parameters
        ----------
        X, kernels : as in :func:`kernel_tests`
        """
        if isinstance(kernels, str) and kernels == "precomputed":
            raw = X if isinstance(X, KernelBank) else KernelBank.from_grams(X)
            if raw.shape[0] != raw.shape[1]:
                raise ValueError(
                    f"Precomputed kernels must have shape (n, n, M), got {raw.shape}."
                )
            return cls._of_bank(raw, {})
        if not isinstance(X, MultiView) and not hasattr(X, "columns"):
            X = check_array(X, accept_sparse="csr", dtype=np.float64)
        data = MultiView.wrap(X)
        specs = expand_kernels(kernels, data)
        features = _explicit(specs, data) if len(data) else {}
        return cls._of_bank(KernelBank(X, specs), features)

    @classmethod
    def _of_bank(cls, raw: KernelBank, features: dict[int, Any]) -> TestedKernels:
        n, _, M = raw.shape
        dense = [m for m in range(M) if m not in features]
        bank = None
        if dense:
            part = raw.select(dense).stored()
            check_definite(part, "check")
            bank = fit_normaliser("multiplicative", part).train(part)
        views = tuple(None if k is None else k.view for k in raw.kernels)
        return cls(raw.names, views, _Forms(n, M, bank, dense, features))


@dataclass(frozen=True)
class _Forms(Sequence[Form]):
    """Kernels as forms: from features if these are few, otherwise from Grams."""

    n: int
    size: int
    bank: KernelBank | None
    dense: list[int]
    features: dict[int, Any]
    _kept: dict[int, Form] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, m: Any) -> Any:
        m = int(m)
        if not 0 <= m < self.size:
            raise IndexError(m)
        if m in self._kept:
            return self._kept[m]
        if m in self.features:
            kernel, samples = self.features[m]
            L = np.asarray(kernel.explicit(samples), dtype=np.float64)
            L = L - L.mean(axis=0)
            spread = float(np.sum(L**2)) / self.n
            form = Form.of_features(L / spread**0.5 if spread > 0 else L)
        else:
            assert self.bank is not None
            form = Form.of_gram(self.bank.gram(self.dense.index(m)))
        if form.scales is not None and self.size * form.columns.nbytes < _KEPT:
            self._kept[m] = form
        return form


def _explicit(specs: list[Any], data: MultiView) -> dict[int, Any]:
    """Return the kernels that have few explicit features, with their samples."""
    found = {}
    for m, spec in enumerate(specs):
        if type(spec).n_explicit is Kernel.n_explicit or spec.text:
            continue
        chosen = fit_features(spec, data, None)
        if chosen.absent(data) is not None:
            continue
        samples = chosen.take(data)
        spec.check_domain(samples)
        count = spec.n_explicit(samples)
        if count is not None and count <= _FEW * len(data):
            found[m] = (spec.resolve(samples, None, {}), samples)
    return found


@dataclass(frozen=True)
class _Target:
    """Values, or indicators of classes, of shape (n, T)."""

    Y: FloatArray
    classes: NDArray[Any] | None

    @property
    def many(self) -> bool:
        return self.classes is not None and len(self.classes) > 2

    @property
    def binary(self) -> bool:
        return self.classes is not None and len(self.classes) == 2

    @classmethod
    def of(cls, y: Any, n: int) -> _Target:
        y = np.asarray(check_given(y))
        if y.shape != (n,):
            raise ValueError(f"y must have shape ({n},), got {y.shape}.")
        gone = [i for i, label in enumerate(y.tolist()) if is_missing(label)]
        if gone and y.dtype.kind not in "iuf":
            raise ValueError(
                f"y is missing for {plural(len(gone), 'sample')}, first in row "
                f"{gone[0]}; leave out these samples."
            )
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError("y has only one value, so there is nothing to explain.")
        labels = y.dtype.kind not in "iuf"
        if not labels and not np.isfinite(y).all():
            raise ValueError(
                "y has missing or infinite values; leave out these samples."
            )
        if len(classes) == 2:
            return cls(codes[:, None].astype(float), classes)
        if labels:
            return cls(np.eye(len(classes))[codes], classes)
        values = y[:, None].astype(float)
        return cls(values - values.mean(), None)  # the constant is unpenalised

    def as_numbers(self) -> _Target:
        """Return labels of two classes as numbers, other targets as they are.

        Their residuals then have a variance that is estimated, so that other kernels
        or intercepts of subjects need not be kept from separating the classes.
        """
        if not self.binary:
            return self
        return _Target(self.Y - self.Y.mean(axis=0), None)


# --- tests ----------------------------------------------------------------------------


def _sum(tested: TestedKernels, part: list[int]) -> Form:
    """Return the mean of some kernels."""
    forms = [tested.forms[m] for m in part]
    if len(forms) == 1:
        return forms[0]
    share = np.full(len(forms) - 1, -1.0)
    whole = forms[0].minus(share, forms[1:])
    if whole.scales is None:
        return Form(whole.columns / len(part), None)
    return Form(whole.columns, whole.scales / len(part))


def _computed(
    tested: TestedKernels,
    parts: Sequence[list[int]],
    without: Callable[[int], Null],
    method: str,
    rng: Any,
) -> tuple[Any, ...]:
    """Return statistics, p-values, resolution and errors of "score" and "lr" tests."""
    M = len(parts)
    statistic, p, error = np.zeros(M), np.ones(M), np.zeros(M)
    ratios: list[tuple[int, float, FloatArray, FloatArray]] = []
    forms: list[tuple[int, float, FloatArray, FloatArray]] = []
    for k, part in enumerate(parts):
        null = without(k)
        B = null.seen(_sum(tested, part))
        left = null.adjusted(B)
        if left is None:
            continue  # explained by covariates and other kernels
        values, counts = left.spectrum(null.free)
        if flat(values, counts):
            continue  # cannot be distinguished from noise
        if method == "lr":
            statistic[k], p[k], error[k] = _likelihood_ratio(B, null, rng)
        else:
            form = float(left.quads(null.left)[0])
            if not null.scaled:
                statistic[k] = form / float(np.sum(null.left**2))
                ratios.append((k, statistic[k], values, counts))
                continue
            mean = float(values @ counts)
            statistic[k] = form / mean
            forms.append(
                (k, null.standardised(left, form) / mean, values / mean, counts)
            )
    for tails, of in ((ratio_tails, ratios), (tail_probabilities, forms)):
        if of:
            which, found, values_of, counts_of = zip(*of, strict=True)
            p[list(which)] = tails(found, values_of, counts_of)
    return statistic, p, 0.0, error


def check_left(Y: FloatArray, Z: FloatArray) -> None:
    """Raise ValueError if covariates explain the target exactly.

    Parameters
    ----------
    Y : array of shape (n, T)
    Z : array of shape (n, q)
        Ones and covariates.
    """
    Y = Y - Y.mean(axis=0)
    Q = np.linalg.qr(Z)[0]
    left = Y - Q @ (Q.T @ Y)
    if float(np.sum(left**2)) <= 1e-20 * float(np.sum(Y**2)):
        raise ValueError(
            "The covariates explain the target exactly, which leaves nothing for the "
            "kernels to explain; leave out the covariate that encodes the target."
        )


def _likelihood_ratio(B: Form, null: Null, rng: Any) -> tuple[float, float, float]:
    """Return the restricted likelihood ratio, its p-value and the error of the latter.

    In the coordinates of the eigenvectors of B it is a function of independent normal
    variables and the eigenvalues only, so its finite-sample distribution can be
    simulated. Draws come from the null model and from models in which the kernel has
    positive weight, and are weighted by their likelihood ratio under the null
    (importance sampling), so that p-values of any size have the same relative error.
    """
    e = null.left[:, 0]
    values, vectors = B.eigen()
    kept = np.argsort(-np.abs(values), kind="stable")[: null.free]
    values = np.maximum(values[kept], 0.0)
    largest = float(values.max(initial=0.0))
    if largest <= 0:
        return 0.0, 1.0, 0.0
    # eigenvalues that are zero up to rounding are pooled
    some = values > 1e-12 * largest
    squares = (vectors[:, kept[some]].T @ e) ** 2
    values, rest = values[some], null.free - int(some.sum())
    beyond = max(float(e @ e - squares.sum()), 0.0) if rest else 0.0
    # grid of weights, from almost none to almost all of the variance
    steps = np.concatenate([[0.0], np.logspace(-6, 6, 97)]) * len(e) / values.sum()
    one = squares[None, :], np.array([beyond])
    observed = float(weight_ratios(*one, values, rest, steps).max())
    if observed <= _ZERO:
        return 0.0, 1.0, 0.0
    return observed, *largest_ratio_tail(observed, values, rest, steps, rng)


def _within(
    target: _Target | EventTimes, Z: FloatArray, exchange: Exchange
) -> tuple[_Target | EventTimes, FloatArray]:
    """Return target and design for effects of covariates within subjects, or sizes.

    Permutations keep differences between subjects, or between subjects of different
    sizes. The effects of covariates must not depend on these, so each of them has its
    own intercept, or its own baseline hazard. Labels of two classes become numbers,
    because a logistic model cannot have that many intercepts.
    """
    parts = exchange.parts
    assert parts is not None
    if isinstance(target, EventTimes):
        stratum = np.unique(parts, return_inverse=True)[1]
        return replace(target, stratum=np.asarray(stratum, dtype=np.intp)), Z
    return target.as_numbers(), exchange.design(Z)


def _permuted(
    tested: TestedKernels,
    parts: Sequence[list[int]],
    without: Callable[[int], Null],
    orders: NDArray[np.intp],
    possible: float,
) -> tuple[Any, ...]:
    """Return statistics, p-values, resolution, errors and joint p-values."""
    (count, n), M = orders.shape, len(parts)
    resolution = smallest_p_value(count, possible)
    drawn, statistic = np.zeros((M, count)), np.zeros(M)
    for k, part in enumerate(parts):
        null = without(k)
        total = float(np.sum(null.left**2))
        B = null.adjusted(null.seen(_sum(tested, part)))
        if B is None:
            continue  # the statistic is the same for all permutations
        e = null.left
        T = e.shape[1]
        statistic[k] = float(np.sum(B.quads(e))) / total
        for start in range(0, count, 256):
            some = orders[start : start + 256]
            E = e[some]  # (permutations, n, T)
            E = np.moveaxis(E, 0, 1).reshape(n, -1)
            E = E - null.basis @ (null.basis.T @ E)
            up = B.quads(E).reshape(len(some), T).sum(axis=1)
            down = np.sum(E**2, axis=0).reshape(len(some), T).sum(axis=1)
            drawn[k, start : start + 256] = up / down
    p, error, joint = permutation_p_values(statistic, drawn, resolution)
    return statistic, p, resolution, error, joint
