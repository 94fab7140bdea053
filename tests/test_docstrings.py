"""Estimators say all that they take, keep and rest upon."""

import inspect
import re

import pytest
from sklearn.datasets import load_iris
from sklearn.utils import get_tags

import mklearn
from mklearn import estimators

X, Y = (part[20:130:3] for part in load_iris(return_X_y=True))
KERNELS = ["linear", "rbf"]
SETTINGS = {
    "MKLClassifierCV": {"Cs": [1.0], "norms": [1, 2], "cv": 2},
    "MKLRegressorCV": {"Cs": [1.0], "norms": [1, 2], "cv": 2},
    "MKLDiscriminant": {"reg": "loo"},
    "BestKernelClassifier": {"cv": 2},
    "SubspaceKernel": {"criterion": "svm"},
    "SubspaceClassifierCV": {"regs": [0.1], "Cs": [1.0], "cv": 2, "combine": True},
}


def section(doc, title):
    """Return a section of a numpydoc docstring, without its underline."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", doc, re.M | re.S)
    return found[1] if found else ""


def names(doc, title):
    """Return the names that a section describes."""
    heads = re.findall(r"^([A-Za-z_]\w*(?:, \w+)*)(?: :|$)", section(doc, title), re.M)
    return [name for head in heads for name in head.split(", ")]


@pytest.mark.parametrize("name", estimators.__all__)
class TestEstimator:
    def test_parameters(self, name):
        cls = getattr(mklearn, name)
        taken = [p for p in inspect.signature(cls).parameters]
        assert names(inspect.getdoc(cls), "Parameters") == taken

    def test_attributes(self, name):
        cls = getattr(mklearn, name)
        if name == "SingleKernelCV":
            model = cls(mklearn.MKLDiscriminant(), KERNELS, values=[0.1], cv=2)
        else:
            model = cls(KERNELS, **SETTINGS.get(name, {}))
        # times to an event are positive
        model.fit(X, Y + 1 if get_tags(model).target_tags.positive_only else Y)
        kept = {a for a in vars(model) if re.fullmatch(r"[A-Za-z]\w*_", a)}
        told = names(inspect.getdoc(cls), "Attributes")
        assert len(set(told)) == len(told)
        assert kept - {"n_features_in_"} <= set(told)
        told = set(told) - {"approximation_error_"}  # of low-rank kernels only
        assert all(hasattr(model, attribute) for attribute in told)

    def test_sources_and_examples(self, name):
        doc = inspect.getdoc(getattr(mklearn, name))
        assert re.search(r"\(?\b(19|20)\d\d\b", section(doc, "References")) or (
            "Kobayashi" in section(doc, "References")
        )
        assert ">>> model" in section(doc, "Examples") or (
            ">>> features" in section(doc, "Examples")
        )
