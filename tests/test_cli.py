"""The command line: what it writes, what it says, and how it ends."""

import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
from html import escape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_iris

pytest.importorskip("typer")
from typer.testing import CliRunner

from mklearn import MKLClassifier, __version__
from mklearn import kernels as kernel_module
from mklearn.cli import commands, demo, screen
from mklearn.cli.commands import make_app
from mklearn.report import (
    Predictions,
    Report,
    describe_data,
    whole_file,
    words,
    write_json,
)

PAGE = Path(__file__).parents[1] / "docs" / "first-report.md"
FIRST_REPORT = PAGE.read_text(encoding="utf-8")


def run(*args):
    return CliRunner().invoke(make_app(), [str(arg) for arg in args])


def without(*modules):
    """Return code that makes modules missing."""
    return "import sys; " + "; ".join(f"sys.modules[{m!r}] = None" for m in modules)


def python(code, *args, **kwargs):
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


def test_the_package_is_a_program():
    command = [sys.executable, "-m", "mklearn", "--version"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0 and __version__ in result.stdout, result.stderr


# --- demo -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The command of docs/first-report.md, on fewer folds and in another folder."""
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    (command,) = re.findall(r"^\$ mklearn (demo.*)$", FIRST_REPORT, re.MULTILINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")  # whatever the width of the terminal
        return run(*shlex.split(command), "--out", out, "--folds", 2), out


def test_demo_shows_table_views_and_certificate(shown):
    result, _ = shown
    assert result.exit_code == 0, result.output
    for name in (*demo.make_models(), demo.PLAIN, demo.NOISY, demo.GAPS):
        assert name in result.stdout
    said = ("accuracy", "Fourier", "noise 4", "interval", "within", "certified", "█")
    for word in said:
        assert word in result.stdout
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80


def test_demo_leaves_whole_files_and_nothing_else(shown):
    _, out = shown
    usual = inspect.signature(commands.demo).parameters["out"].default
    assert f"`{usual.as_posix()}/report.html`" in FIRST_REPORT
    files = ["convergence.png", "report.html", "results.json", "weights.png"]
    assert sorted(os.listdir(out)) == files
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Confusion matrix" in page and page.endswith("</html>\n")
    for name in ("convergence.png", "weights.png"):
        content = (out / name).read_bytes()
        assert content.startswith(b"\x89PNG") and content.endswith(b"IEND\xaeB`\x82")


def test_the_report_of_the_demo_shows_what_its_terminal_shows(shown):
    result, out = shown
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    page = (out / "report.html").read_text(encoding="utf-8")
    part = page[page.index("Views, with all their kernels") :].split("</table>")[0]
    rows = dict(re.findall(r'<th scope="row">(.*?)</th><td[^>]*>(.*?)</td>', part))
    for view in results["model"]["views"]:
        lines = [s for s in result.stdout.splitlines() if s.startswith(view["view"])]
        share = words.percent(view["share"])
        assert share in lines[-1] and rows[view["view"]] == escape(share)
    for kernel in results["model"]["kernels"]:
        shown = f'<td class="number">{words.weight(kernel)}</td>'
        (row,) = re.findall(rf">{re.escape(kernel['name'])}</th>(.*?)</tr>", page)
        assert shown in row


def test_results_have_their_schema(shown):
    _, out = shown
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert set(results) == {
        "mklearn", "data", "scoring", "n_folds", "reference", "situations", "model",
        "figures",
    }  # fmt: skip
    assert results["mklearn"] == __version__
    assert results["data"]["n_samples"] == 300 and len(results["data"]["views"]) == 8
    names = list(demo.make_models())
    assert list(results["situations"]) == [demo.PLAIN, demo.NOISY, demo.GAPS]
    for situation in results["situations"].values():
        assert [m["model"] for m in situation["methods"]] == names
        for method in situation["methods"]:
            assert set(method) == {
                "model", "score", "standard_error", "fit_seconds", "relative_time",
                "kernels_used", "n_kernels", "fold_scores", "fold_fit_seconds",
                "difference", "difference_error", "learned_better_by",
                "learned_better_by_error",
            }  # fmt: skip
            assert 0.5 < method["score"] <= 1.0  # guessing has 0.1
            assert len(method["fold_scores"]) == results["n_folds"] == 2
        assert situation["methods"][-1]["learned_better_by"] == 0.0
    assert results["situations"][demo.PLAIN]["absent"] == 0
    model = results["model"]
    assert {"name", "view", "weight"} <= set(model["kernels"][0])
    assert {k["view"] for k in model["kernels"]} == set(results["data"]["views"])
    assert sum(view["share"] for view in model["views"]) == pytest.approx(1.0)
    for view in model["views"]:
        own = [k for k in model["kernels"] if k["view"] == view["view"]]
        assert view["share"] == pytest.approx(sum(k["contribution"] for k in own))
        assert view["low"] <= view["high"] and 0.0 < view["p_value"] <= 1.0
    bounds = model["certificate"]
    assert bounds["lower_bound"] <= bounds["objective"]
    assert bounds["relative_gap"] <= 1e-3 and bounds["status"] == "OPTIMAL"


def test_views_of_noise_are_told_from_views_of_digits(shown):
    # each view of digits has a larger share than any of noise
    results = json.loads((shown[1] / "results.json").read_text(encoding="utf-8"))
    shares = {view["view"]: view["share"] for view in results["model"]["views"]}
    noise = max(share for view, share in shares.items() if view.startswith("noise"))
    assert all(s > noise for view, s in shares.items() if not view.startswith("noise"))


def test_situations_of_the_demo_are_what_they_are_called():
    data, y = demo.load_views()
    assert np.bincount(y).tolist() == [demo.SAMPLES] * 10
    plain, gaps = data[demo.PLAIN], data[demo.GAPS]
    for name in plain:
        there = ~gaps.absent(name)
        np.testing.assert_array_equal(gaps[name][there], plain[name][there])
        assert not data[demo.NOISY].has_absent(name)
    lacking = np.stack([gaps.absent(name) for name in plain])
    assert not lacking.all(axis=0).any()  # something is known of each
    # Parseval, image by image: the magnitudes hold the energy around the mean
    images = plain["pixels"].reshape(-1, 8, 8)
    half = plain["Fourier"].reshape(-1, 8, 5) ** 2
    energy = half[:, :, [0, 4]].sum((1, 2)) + 2 * half[:, :, 1:4].sum((1, 2))
    spread = ((images - images.mean((1, 2), keepdims=True)) ** 2).sum((1, 2))
    np.testing.assert_allclose(energy / 64, spread, rtol=1e-12)
    # profiles and edges keep what there is in all
    np.testing.assert_allclose(plain["profiles"].sum(1), 2 * images.sum((1, 2)))
    size = np.hypot(*np.gradient(images, axis=(1, 2))).sum((1, 2))
    np.testing.assert_allclose(plain["edges"].sum(1), size, rtol=1e-12)


def test_json_is_all_there_is_on_standard_output(tmp_path, monkeypatch, shown):
    results = json.loads((shown[1] / "results.json").read_text(encoding="utf-8"))

    class Done:
        def as_dict(self):
            return {k: v for k, v in results.items() if k != "figures"}

    monkeypatch.setattr(demo, "run_demo", lambda folds, callback: Done())
    monkeypatch.setattr(demo, "save_figures", lambda *_: results["figures"])
    result = run("demo", "--json", "--out", tmp_path)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == results
    assert json.loads((tmp_path / "results.json").read_text()) == results


def test_methods_of_the_demo_see_the_same_folds(monkeypatch):
    seen = []

    class ComparedError(Exception):
        pass

    def compared(models, X, y, cv, **_):
        seen.append((X, cv))
        if len(seen) == 3:
            raise ComparedError

    monkeypatch.setattr(demo, "_compile", lambda *_: None)
    monkeypatch.setattr(demo, "compare", compared)
    with pytest.raises(ComparedError):
        demo.run_demo(3)
    assert [len(X) for X, _ in seen] == [300] * 3
    y = demo.load_views()[1]
    splits = [list(cv.split(y, y)) for _, cv in seen]
    for folds in zip(*splits, strict=True):
        (a, b), *others = [(train.tolist(), test.tolist()) for train, test in folds]
        assert all(other == (a, b) for other in others)


def test_demo_without_matplotlib_says_so_and_writes_the_report(tmp_path, monkeypatch):
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(["linear", "rbf"]).fit(X[:100:4], y[:100:4])
    parts = Predictions(y[:100], model.predict(X[:100]))
    page = Report("t", describe_data(X, y), model, predictions=parts)
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    done = SimpleNamespace(report=lambda: page, as_dict=dict)
    monkeypatch.setattr(demo, "run_demo", lambda *_: done)
    result = run("demo", "--json", "--out", tmp_path)
    assert json.loads(result.stdout) == {"figures": ["report.html"]}
    said = [line for line in result.stderr.splitlines() if "matplotlib" in line]
    assert len(said) == 1 and "pip install matplotlib" in said[0]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Confusion matrix" in page and "<svg" not in page


# --- errors and ends ------------------------------------------------------------------


def test_folder_that_is_a_file_is_one_line_and_two(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "below"):
        result = run("demo", "--out", out)
        assert result.exit_code == 2
        assert result.stdout == "" and result.stderr.count("\n") == 1
        assert "cannot write to" in result.stderr
    assert file.read_text() == "mine"


def test_error_while_writing_is_one_line_and_two(tmp_path, monkeypatch):
    class Done:
        def as_dict(self):
            return {}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo, "run_demo", lambda *_: Done())
    monkeypatch.setattr(demo, "save_figures", full)
    result = run("demo", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("No space left on device")
    assert "Traceback" not in result.output
    assert os.listdir(tmp_path) == []


def test_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupted)
    result = run("demo", "--out", tmp_path / "out")
    assert result.exit_code == 130
    assert os.listdir(tmp_path) == []
    assert "Traceback" not in result.output


def test_interrupt_while_writing_keeps_the_old_file(tmp_path):
    path = tmp_path / "results.json"
    write_json(path, {"old": 1})
    with pytest.raises(KeyboardInterrupt), whole_file(path) as temporary:
        temporary.write_text('{"ne')
        raise KeyboardInterrupt
    assert json.loads(path.read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["results.json"]


def test_numbers_that_json_lacks_are_refused_before_writing(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "results.json", {"nan": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently")
def test_ctrl_c_within_a_solver_ends_the_demo(tmp_path):
    # the signal comes while a solver runs, which would answer KeyboardInterrupt with
    # its best iterate and let the demonstration go on
    code = """
import os, signal
from mklearn.solvers.loop import Run
consider = Run.consider
def interrupted(self, iterate):
    os.kill(os.getpid(), signal.SIGINT)
    return consider(self, iterate)
Run.consider = interrupted
from mklearn.cli.commands import main
main()
"""
    result = python(code, "demo", "--out", tmp_path / "out", timeout=600)
    assert result.returncode == 130, result.stderr
    assert "Traceback" not in result.stderr and "interrupted" in result.stderr
    assert os.listdir(tmp_path) == []


def test_ctrl_c_means_what_it_meant_before_once_a_command_ends(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    run("kernels")
    assert signal.getsignal(signal.SIGINT) is before


def test_missing_packages_are_one_line_and_two():
    for missing in ("typer", "rich"):
        code = f"{without(missing)}; from mklearn.cli.commands import main; main()"
        result = python(code, "demo")
        assert result.returncode == 2
        assert result.stdout == "" and result.stderr.count("\n") == 1
        assert "pip install typer rich" in result.stderr
        version = python(code, "--version")
        assert (version.returncode, version.stdout) == (0, f"mklearn {__version__}\n")


def test_the_library_does_not_need_the_command_line():
    optional = (
        "typer",
        "rich",
        "click",
        "matplotlib",
        "pandas",
        "mklearn.cli.commands",
    )
    result = python(f"{without(*optional)}; import mklearn")
    assert result.returncode == 0, result.stderr


# --- the rest -------------------------------------------------------------------------


def test_version():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"mklearn {__version__}\n")


def test_every_kernel_is_listed_with_its_parameters():
    result = run("kernels")
    assert result.exit_code == 0
    for name in kernel_module.__all__:
        thing = getattr(kernel_module, name)
        if isinstance(thing, type) and issubclass(thing, kernel_module.Kernel):
            assert (name in result.stdout) or thing is kernel_module.Kernel
    for said in ("exp(-gamma * |x - z|^2)", "degree=3", "rbf_ladder", "per_view"):
        assert said in result.stdout


def test_kernels_for_machines():
    content = json.loads(run("kernels", "--json").stdout)
    assert {"kernel", "formula", "parameters"} == set(content["kernels"][0])
    assert "rbf" in content["by_name"]


def test_unknown_option_is_two():
    assert run("demo", "--nonsense").exit_code == 2
    assert run("demo", "--folds", 1).exit_code == 2


def test_notes_are_for_users_and_not_for_developers(capsys):
    with screen.notes(screen.standard_error()):
        warnings.warn("a name will change", DeprecationWarning, stacklevel=2)
        warnings.warn("later, too", PendingDeprecationWarning, stacklevel=2)
        warnings.warn("few samples", UserWarning, stacklevel=2)
        warnings.warn("few samples", UserWarning, stacklevel=2)
    assert capsys.readouterr().err == "note: few samples\n"
