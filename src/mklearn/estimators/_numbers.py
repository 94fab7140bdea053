"""Values to predict: their checks, and how scores become values again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from mklearn.data.checks import check_values
from mklearn.data.reading import by_blocks


class NumbersMixin(RegressorMixin):
    """Regression on top of scores, one column for each output."""

    def _target(self, y: Any, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        y = check_values(y, len(weight))
        self._flat = y.ndim == 1
        return y.reshape(len(y), -1)

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
