"""The report: one file that needs nothing else and believes no name."""

import os
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_predict

from mklearn import (
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MultiView,
    SubspaceClassifier,
)
from mklearn.kernels import RBF, Linear
from mklearn.model_selection import compare
from mklearn.report import (
    DataSummary,
    Predictions,
    Report,
    describe_data,
    kernel_alignment,
    plain_words,
    report_html,
    write_html,
)
from mklearn.report.facts import model_facts
from mklearn.report.page import SCRIPT

EVIL = "<script>alert('x')</script>&\"\x00 $x$ 核"


def make_report(n_classes=2, **changes):
    data = load_iris()
    keep = data.target < n_classes
    X = MultiView({"sepal": data.data[keep, :2], EVIL: data.data[keep, 2:]})
    y = np.array(["<b>a</b>", "b & c", 'd"'])[data.target[keep]]
    kernels = [Linear(view="sepal"), RBF(view="sepal"), RBF(view=EVIL, name=EVIL)]
    model = MKLClassifier(kernels).fit(X, y)
    found = cross_val_predict(model, X, y, cv=3, method="decision_function")
    decisions = found.reshape(len(y), -1)
    parts = np.stack([0.25 * decisions, 0.75 * decisions], axis=2)
    predicted = cross_val_predict(model, X, y, cv=3)
    more = {"decisions": decisions, "classes": model.classes_, "parts": parts}
    more["views"] = X.names
    scores = found if n_classes == 2 else None
    settings = {
        "title": EVIL,
        "data": describe_data(X, y, missing=3, source=EVIL),
        "model": model,
        "comparison": compare({EVIL: model, "sum": model}, X, y, cv=2),
        "alignment": kernel_alignment(model, X),
        "predictions": Predictions(y, predicted, scores, **more),
        "loading": f"load({EVIL!r})",
        "verdict": EVIL,
        "findings": (EVIL,),
        "notes": (EVIL,),
        "origin": {"command": EVIL, EVIL: "0"},
    }
    return Report(**{**settings, **changes})


class Reader(HTMLParser):
    """Collects tags, attributes and visible text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module", params=[2, 3])
def html(request):
    pytest.importorskip("matplotlib")
    return report_html(make_report(request.param))


def test_all_sections_are_there(html):
    root = ElementTree.fromstring(html)
    heads = ["".join(h.itertext()) for h in root.iter("h2")]
    assert heads == [
        "In short", "Checks", "Views", "Comparison", "Errors", "Samples", "Kernels",
        "Alignment", "Certificate", "Data", "Methods", "Origin", "Loading the model",
    ]  # fmt: skip
    words = "".join(root.itertext())
    for part in (
        "3 missing values",
        "is certified to be optimal",
        "sepal",
        "within",
        "b & c",
    ):
        assert part in words


def test_names_are_text_and_never_code(html):
    reader = Reader(html)
    assert not {"b", "link", "iframe", "img"} & set(reader.tags)
    # one script, the one that the policy knows
    assert reader.tags.count("script") == 1
    (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    known = b64encode(sha256(script.encode()).digest()).decode()
    assert script == SCRIPT and f"script-src &#x27;sha256-{known}&#x27;" in html
    assert not [a for a in reader.attributes if a[1].startswith("on")]
    assert "<script>alert('x')</script>" in "".join(reader.words)
    assert "\x00" not in html


def test_nothing_comes_from_elsewhere(html):
    images = 0
    for tag, name, value in Reader(html).attributes:
        if name not in ("src", "href", "xlink:href", "action", "data"):
            continue
        if tag == "image":
            head, content = value.split(",", 1)
            assert head == "data:image/png;base64"
            assert b64decode(content).startswith(b"\x89PNG")
            images += 1
        else:
            assert value.startswith("#")
    assert images >= 1
    assert not re.search(r"url\((?!#)|@import", html)
    assert "default-src &#x27;none&#x27;" in html


def test_it_is_readable_by_all(html):
    root = ElementTree.fromstring(html)
    assert root.get("lang") == "en" and len(list(root.iter("h1"))) == 1
    assert "width=device-width" in html and "prefers-color-scheme: dark" in html
    for table in root.iter("table"):
        assert "".join(table.find("caption").itertext())
        assert all(cell.get("scope") for cell in table.iter("th"))
    figures = list(root.iter("figure"))
    assert len(figures) == 4  # folds, curves, alignment, bounds
    for figure in figures:
        svg = figure.find("{http://www.w3.org/2000/svg}svg")
        assert svg.get("role") == "img" and svg.get("aria-label")
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [a.get("href") for a in root.iter("a")]
    assert {link[1:] for link in links} <= set(ids)


def test_it_shows_the_numbers_of_the_model():
    report = make_report()
    root = ElementTree.fromstring(report_html(report))
    tables = {"".join(t.find("caption").itertext()): t for t in root.iter("table")}
    (weights,) = (t for name, t in tables.items() if name.startswith("Kernel weights"))
    shown = [[*map("".join, map(ElementTree.Element.itertext, row))] for row in
             weights.find("tbody")]  # fmt: skip
    assert [row[2] for row in shown] == [
        f"{w:.3f}" for w in report.model.kernel_weights_
    ]
    (confusion,) = (t for name, t in tables.items() if name.startswith("Confusion"))
    counts = [int(cell.text) for cell in confusion.iter("td")]
    assert sum(counts) == report.data.n_samples


def test_a_regression_shows_the_size_of_its_errors():
    pytest.importorskip("matplotlib")
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = X[:, 0] + 0.1 * X[:, 1] ** 2
    model = MKLRegressor("linear").fit(X, y)
    predicted = cross_val_predict(model, X, y, cv=3)
    found = report_html(
        Report("title", describe_data(X), model, predictions=Predictions(y, predicted))
    )
    words = "".join(ElementTree.fromstring(found).itertext())
    assert f"R²{r2_score(y, predicted):.3f}" in words.replace("\n", "")
    assert f"mean absolute error{np.abs(y - predicted).mean():.3g}" in words
    assert f"with R² {r2_score(y, predicted):.3f}; on the dashed line" in found
    assert "Confusion" not in found


def test_parts_that_are_not_known_are_left_out():
    report = make_report(comparison=None, alignment=None, predictions=None, loading="")
    page = report_html(report)
    assert "Comparison" not in page and "Errors" not in page
    assert "not saved" in page


def test_it_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    report = make_report(comparison=None, predictions=None)
    path = tmp_path / "report.html"
    write_html(path, report)
    before = path.read_text(encoding="utf-8")
    assert before.startswith("<!DOCTYPE html>") and before.endswith("</html>\n")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_html(path, report)
    assert path.read_text(encoding="utf-8") == before
    assert os.listdir(tmp_path) == ["report.html"]


def test_without_matplotlib_there_are_tables():
    code = (
        "import sys; sys.modules['matplotlib'] = None;"
        "sys.modules['matplotlib.figure'] = None;"
        "import numpy as np; from mklearn import MKLClassifier;"
        "from mklearn.report import *;"
        "X = np.random.default_rng(0).normal(size=(30, 2)); y = np.arange(30) % 2;"
        "m = MKLClassifier(['linear', 'rbf']).fit(X, y);"
        "p = Predictions(y, m.predict(X), m.decision_function(X));"
        "r = Report('t', describe_data(X, y), m, alignment=kernel_alignment(m, X),"
        " predictions=p);"
        "h = report_html(r); print('<svg' in h, 'most similar' in h, 'ROC curve' in h)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split() == ["False", "True", "True"], run.stderr


def test_data_are_described():
    X, y = load_iris(return_X_y=True)
    found = describe_data(X, y)
    assert found == DataSummary(150, {"X": 4}, {"0": 50, "1": 50, "2": 50})
    bank = describe_data(KernelBank(X, ["linear", "rbf"]))
    assert bank.views == {"precomputed kernels": 2} and not bank.classes
    assert describe_data(MultiView({"s": ["AC", "GT"]})).views == {"s": 1}


@pytest.mark.parametrize(
    "model, words",
    [
        (MKLClassifier("linear", C=0.5), ["C = 0.5", "other classifier"]),
        (MKLRegressor("linear", C=2), ["C = 2", "other regression function"]),
        (MKLOneClass("rbf", nu=0.25), ["nu = 0.25", "other boundary"]),
        (MKLDiscriminant(["linear", "rbf"], reg=1e-3), ["reg = 0.001", "directions"]),
        (MKLDiscriminant(["linear", "rbf"], reg="learn"), ["this criterion", "regul"]),
        (SubspaceClassifier("rbf", criterion="svm"), ["settings", "subspace"]),
    ],
)
def test_words_fit_the_method(model, words):
    X, y = load_iris(return_X_y=True)
    model.fit(X[:100:3], y[:100:3])
    said = plain_words(model.solution_, model)
    assert all(word in said for word in words), said
    assert "certified" in said
    assert "this C" in plain_words(model.solution_)


def test_absent_views_are_told():
    X = MultiView({"a": [[1.0], [np.nan], [2.0]], "b": [[1.0], [2.0], [3.0]]})
    html = report_html(make_report(data=describe_data(X, [0, 1, 1])))
    assert "samples without it" in html and "are assigned the average" in html
    # what is absent is not called complete
    assert "1 sample lacks view a; no other values were missing" in html


@pytest.mark.parametrize("weights", ["shared", "per-target", ["a", "a", "b"]])
def test_evidence_is_the_sum_over_targets_with_their_own_weights(weights):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    Y = X @ rng.standard_normal((3, 3)) + rng.standard_normal((40, 3))
    model = EvidenceMKLRegressor(weights=weights).fit(X, Y)
    found = model_facts(model)["evidence"]
    parts = model.evidence_ if isinstance(model.evidence_, list) else [model.evidence_]
    assert found["log_evidence"] == pytest.approx(
        sum(np.sum(part.evidence) for part in parts)
    )
    assert found["log_evidence_of_nothing"] < found["log_evidence"]
    assert np.isfinite(found["promise"]) and len(found["noise"]) == 3
    text = report_html(Report("targets", describe_data(X, Y[:, 0]), model))
    assert "noise of output 3" in text
