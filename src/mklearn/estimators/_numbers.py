"""Values to predict: their checks, and how scores become values again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length

from mklearn.data.dask import by_blocks
from mklearn.estimators._base import check_given


class NumbersMixin(RegressorMixin):
    """Regression on top of scores, one column for each output."""

    def _target(self, y: Any, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        y = check_array(
            check_given(y), ensure_2d=False, dtype=np.float64, input_name="y"
        )
        check_consistent_length(weight, y)
        self._flat = y.ndim == 1
        return y.reshape(len(y), -1) + 0.0  # no negative zeros

    @by_blocks
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the values: (n_samples,), or (n_samples, n_outputs) if y was 2-D.

        Parameters
        ----------
        X : as in ``fit``; with precomputed kernels (n_samples, n_training, n_kernels)
        """
        scores = self._scores(X)
        return scores[:, 0] if self._flat else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
