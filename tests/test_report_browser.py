"""The report in a browser: no error, no request, all there, in the dark and small."""

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_wine
from typer.testing import CliRunner

import browser
from mklearn.cli.commands import make_app

pytestmark = pytest.mark.skipif(
    browser.find() is None, reason="there is no chromium; apt-get install chromium"
)

SECTIONS = [
    "Data", "Comparison", "Kernels", "Alignment", "Certificate", "Errors",
    "Loading the model",
]  # fmt: skip


def fit(folder, data, target, *options):
    frame = pd.DataFrame(data.data, columns=data.feature_names)
    frame[target] = np.asarray(data.target_names)[data.target]
    frame.iloc[::3].to_csv(folder / "data.csv", index=False)
    command = ["fit", folder / "data.csv", "--target", target, "--cv", 2, *options,
               "--kernels", "linear,rbf,laplacian", "--out", folder]  # fmt: skip
    result = CliRunner().invoke(make_app(), list(map(str, command)))
    assert result.exit_code == 0, result.output
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module", params=["two classes", "three classes"])
def address(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    if request.param == "two classes":
        size = "size=mean radius,mean area,worst radius,worst area"
        shape = "shape=mean smoothness,mean symmetry,worst concavity"
        return fit(folder, load_breast_cancer(), "diagnosis", "--views", size,
                   "--views", shape)  # fmt: skip
    return fit(folder, load_wine(), "grower", "--method", "bilinear")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


WINDOWS = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 390, "height": 844},
    "dark phone": {"width": 390, "height": 844, "dark": True},
}


@pytest.mark.parametrize("window", WINDOWS)
def test_the_report_in_a_browser(window, address, chromium, tmp_path):
    chromium.open(address, **WINDOWS[window])
    heads = "[...document.querySelectorAll('h2')].map(h => h.textContent)"
    assert chromium.value(heads) == SECTIONS

    # no error, no warning, and no request but for the page itself
    assert chromium.said("Log.entryAdded", "Runtime.consoleAPICalled",
                         "Runtime.exceptionThrown") == []  # fmt: skip
    requests = [r["request"]["url"] for r in chromium.said("Network.requestWillBeSent")]
    assert [url for url in requests if not url.startswith("data:")] == [address]

    # nothing is cut off: what is too wide scrolls by itself
    width = WINDOWS[window].get("width", 1000)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    sizes = (
        "[...document.querySelectorAll('{}')].map(s => "
        "[s.getBoundingClientRect().width, s.getBoundingClientRect().height])"
    )
    figures = chromium.value(sizes.format("figure"))
    assert len(figures) >= 2
    assert all(100 < w <= width and h > 100 for w, h in figures)
    # and names are not broken letter by letter
    rows = chromium.value(sizes.format("tbody tr"))
    assert max(h for _, h in rows) < 120

    # ink can be told from paper, as the guidelines for contrast ask
    contrast = chromium.value(
        """(() => {
          const light = c => { const [r, g, b] = c.match(/\\d+/g).map(v => {
            v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b };
          const paper = light(getComputedStyle(document.body).backgroundColor);
          return [...document.querySelectorAll('p, td, th, h1, h2, a, caption, code')]
            .map(e => light(getComputedStyle(e).color))
            .map(ink => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05))
        })()"""
    )
    assert min(contrast) > 4.5
    paper = chromium.value("getComputedStyle(document.body).backgroundColor")
    dark = WINDOWS[window].get("dark", False)
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == dark
    chromium.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_links_go_to_their_sections(address, chromium):
    chromium.open(address)
    broken = (
        "[...document.querySelectorAll('nav a')].filter("
        "a => !document.querySelector(a.getAttribute('href'))).length"
    )
    assert chromium.value("document.querySelectorAll('nav a').length") == len(SECTIONS)
    assert chromium.value(broken) == 0
