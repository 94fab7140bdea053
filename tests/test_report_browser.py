"""The report in a browser: no error, no request, all there, in the dark and small.

``pytest tests/test_report_browser.py --screenshots FOLDER`` keeps pictures of them.
"""

import base64
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_wine
from typer.testing import CliRunner

import browser
from mklearn import MKLClassifier, MultiView
from mklearn.cli.commands import make_app
from mklearn.kernels import RBF, Linear, per_view
from mklearn.report import Report, describe_data, kernel_alignment, write_html

pytestmark = pytest.mark.skipif(
    browser.find() is None, reason="there is no chromium; apt-get install chromium"
)

BEGIN = ["Checks", "Views"]
END = [
    "Alignment", "Certificate", "Data", "Methods", "Origin",
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


@pytest.fixture
def pictures(request, tmp_path):
    """The folder of pictures, and how those of a test begin."""
    folder = Path(request.config.getoption("--screenshots") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    named = getattr(request.node, "callspec", None)
    words = [str(v) for v in named.params.values()] if named else []
    return folder, re.sub(r"\W+", "-", " ".join(words))


WINDOWS = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 390, "height": 844},
    "dark phone": {"width": 390, "height": 844, "dark": True},
}


@pytest.mark.parametrize("window", WINDOWS)
def test_the_report_in_a_browser(window, address, chromium, pictures):
    chromium.open(address, **WINDOWS[window])
    heads = "[...document.querySelectorAll('h2')].map(h => h.textContent)"
    found = [head for head in chromium.value(heads) if head != "In short"]
    assert found[:2] == BEGIN and found[-len(END) :] == END
    assert {"Comparison", "Errors", "Kernels"} <= set(found)

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
    # and the tables of views need no scrolling on a desk
    if width == 1000:
        wide = (
            "[...document.querySelectorAll('.scroll')].slice(0, 2)"
            ".filter(s => s.scrollWidth > s.clientWidth + 1).length"
        )
        assert chromium.value(wide) == 0
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
    folder, named = pictures
    chromium.picture(folder / f"report-{named}.png")
    assert (folder / f"report-{named}.png").stat().st_size > 10_000


def test_links_go_to_their_sections(address, chromium):
    chromium.open(address)
    broken = (
        "[...document.querySelectorAll('nav a')].filter("
        "a => !document.querySelector(a.getAttribute('href'))).length"
    )
    links = chromium.value("document.querySelectorAll('nav a').length")
    assert links == chromium.value("document.querySelectorAll('h2').length") > 8
    assert chromium.value(broken) == 0


def press(chromium, key, text=""):
    for kind in ("keyDown", "keyUp"):
        chromium.ask(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key,
            windowsVirtualKeyCode={"Tab": 9, "Enter": 13}[key], text=text,
        )  # fmt: skip


SHOWN = (
    "[...document.activeElement.closest('table').tBodies[0].rows]"
    ".map(r => parseFloat(r.cells[{}].textContent))"
)


def test_tables_are_sorted_by_keys(address, chromium):
    chromium.open(address)
    column = "[...document.querySelectorAll('th button')].findIndex({})"
    weight = column.format("b => b.textContent == 'weight'")
    chromium.value(f"document.querySelectorAll('th button')[{weight}].focus()")
    place = chromium.value("document.activeElement.parentElement.cellIndex")
    before = chromium.value(SHOWN.format(place))
    press(chromium, "Enter", "\r")
    assert chromium.value(SHOWN.format(place)) == sorted(before)
    state = "document.activeElement.parentElement.getAttribute('aria-sort')"
    assert chromium.value(state) == "ascending"
    press(chromium, "Enter", "\r")
    assert chromium.value(SHOWN.format(place)) == sorted(before, reverse=True)
    assert chromium.value(state) == "descending"
    assert chromium.said("Log.entryAdded", "Runtime.exceptionThrown") == []


FOCUS = (
    "[...document.querySelectorAll('a, button, [tabindex]')]"
    ".indexOf(document.activeElement)"
)


def test_keys_reach_all_there_is_and_show_where_they_are(address, chromium):
    chromium.open(address)
    chromium.value("document.body.focus()")
    wanted = chromium.value("document.querySelectorAll('a, button, [tabindex]').length")
    for number in range(wanted):
        press(chromium, "Tab")
        # on a busy machine the focus follows a little later
        end = time.monotonic() + 60
        while chromium.value(FOCUS) != number and time.monotonic() < end:
            time.sleep(0.05)
        assert chromium.value(FOCUS) == number
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert chromium.value(outline) == "solid"


def test_without_script_nothing_is_missing(address, chromium):
    chromium.open(address)
    rows = "document.querySelectorAll('tbody tr').length"
    words = "document.body.innerText.replace(/\\s+/g, ' ').length"
    with_script = chromium.value(rows), chromium.value(words)
    chromium.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(address)
        assert chromium.value("document.querySelectorAll('button').length") == 0
        assert (chromium.value(rows), chromium.value(words)) == with_script
    finally:
        chromium.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_scripts_that_are_not_the_reports_own_are_refused(address, chromium):
    chromium.open(address)
    chromium.value(
        "(() => { const s = document.createElement('script');"
        "s.textContent = 'window.evil = 1'; document.body.append(s); })()"
    )
    assert chromium.value("window.evil") is None


def test_on_paper_it_is_black_on_white_and_whole(address, chromium, pictures):
    chromium.open(address, dark=True, width=794)  # of A4
    chromium.ask("Emulation.setEmulatedMedia", media="print", features=[])
    try:
        style = "getComputedStyle(document.{}).{}"
        assert chromium.value(style.format("body", "color")) == "rgb(0, 0, 0)"
        paper = chromium.value(style.format("body", "backgroundColor"))
        assert paper == "rgb(255, 255, 255)"
        hidden = style.format("querySelector('nav')", "display")
        assert chromium.value(hidden) == "none"
        page = chromium.ask("Page.printToPDF", preferCSSPageSize=True)
        printed = base64.b64decode(page["data"])
        assert printed.startswith(b"%PDF")
        folder, named = pictures
        (folder / f"report-{named}-print.pdf").write_bytes(printed)
        # paper cannot be scrolled
        assert chromium.value("document.documentElement.scrollWidth") <= 794
        chromium.picture(folder / f"report-{named}-print.png")
    finally:
        chromium.ask("Emulation.setEmulatedMedia", media="", features=[])


INSIDE = """[...document.querySelectorAll('figure svg')].map(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect())
    .filter(b => b.left + 2 < frame.left || b.right - 2 > frame.right ||
                 b.top + 2 < frame.top || b.bottom - 2 > frame.bottom).length })"""


@pytest.mark.parametrize("n_views", [2, 12, 25])
def test_labels_of_many_kernels_are_not_cut_off(n_views, chromium, tmp_path, pictures):
    rng, y = np.random.default_rng(0), np.arange(40) % 2
    views = {
        f"a view with a long name, number {i}": rng.normal(size=(40, 2)) + y[:, None]
        for i in range(n_views)
    }
    X = MultiView(views)
    model = MKLClassifier(per_view(Linear(), RBF(), RBF(gamma=0.1))).fit(X, y)
    alike = kernel_alignment(model, X)
    page = Report("t", describe_data(X, y), model, alignment=alike)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nor does matplotlib complain
        write_html(tmp_path / "report.html", page)
    chromium.open((tmp_path / "report.html").as_uri())
    assert chromium.value(INSIDE) == [0, 0]  # the heat map, the bounds
    chromium.open((tmp_path / "report.html").as_uri(), width=390, height=844)
    assert chromium.value("document.documentElement.scrollWidth") <= 390
    folder, named = pictures
    chromium.picture(folder / f"kernels-{named}-views.png")
