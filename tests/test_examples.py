"""The examples run: two of them on fewer samples, the others as they are."""

import ast
import importlib.util
import os
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_log_gabor_filters():
    module = example("plot_texture_kernels")
    bank = module.log_gabor(32)
    assert bank.shape == (24, 32, 32)
    assert (bank[:, 0, 0] == 0).all()  # a constant has no texture
    radius = np.hypot(*np.meshgrid(np.fft.fftfreq(32), np.fft.fftfreq(32)))
    mean = (bank * radius).sum(axis=(1, 2)) / bank.sum(axis=(1, 2))
    by_scale = mean.reshape(4, 6)
    assert (np.diff(by_scale.mean(axis=1)) < 0).all()  # from fine to coarse
    # a grating answers to the filter across it
    x = np.arange(32)
    grating = np.broadcast_to(np.sin(2 * np.pi * x * 10 / 32), (32, 32))
    energy = np.abs(np.fft.ifft2(np.fft.fft2(grating) * bank)).mean(axis=(1, 2))
    assert energy.argmax() == 0


def test_texture_kernels(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    module = example("plot_texture_kernels")
    monkeypatch.setattr(module, "FACTORS", (1.0,))
    accuracy, model, n_test = module.compare(per_class=8, n_train=60, folds=2)
    assert n_test == 20
    assert model.kernel_weights_.shape == (24,)
    assert model.duality_gap_ <= 1e-6
    assert accuracy["learned weights"] > 0.2  # ten classes
    module.draw(model.kernel_weights_.reshape(4, 6), tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 5_000


def test_views_without_data(capsys, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setenv("MKLEARN_DATA", str(tmp_path))
    module = example("plot_mfeat_views")
    monkeypatch.setattr(module, "FACTORS", (1.0,))
    accuracy = module.main(n_train=100, figure=tmp_path / "weights.png")
    assert accuracy["learned weights"] > 0.85
    assert "MKLEARN_DATA" in capsys.readouterr().out


def test_views(monkeypatch, tmp_path, capsys):
    file = Path(os.environ.get("MKLEARN_DATA", "")) / "mfeat.npz"
    if not file.is_file():
        pytest.skip("MKLEARN_DATA names no folder with mfeat.npz")
    pytest.importorskip("matplotlib").use("Agg")
    module = example("plot_mfeat_views")
    monkeypatch.setattr(module, "FACTORS", (1.0,))
    accuracy = module.main(n_train=100, figure=tmp_path / "weights.png")
    assert accuracy["learned weights"] > 0.85
    assert "certified gap" in capsys.readouterr().out


SCRIPTS = sorted(
    path.stem
    for path in FOLDER.glob("plot_*.py")
    if "__main__" not in path.read_text(encoding="utf-8")
)
WITH_FILES = [
    name
    for name in SCRIPTS
    if "FileNotFoundError" in (FOLDER / f"{name}.py").read_text(encoding="utf-8")
]


def run_script(name, monkeypatch):
    """Run an example as ``python`` would, and return what it drew."""
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    drawn = []
    monkeypatch.setattr(pyplot, "show", lambda: drawn.extend(pyplot.get_fignums()))
    try:
        space = runpy.run_path(str(FOLDER / f"{name}.py"))
        figures = [pyplot.figure(number) for number in drawn]
        for figure in figures:
            figure.canvas.draw()
            assert all(ax.has_data() for ax in figure.axes)
        return space, figures
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name, monkeypatch):
    space, figures = run_script(name, monkeypatch)
    assert figures
    for value in space.values():
        gap = getattr(value, "duality_gap_", None)
        assert gap is None or gap <= value.tol


@pytest.mark.parametrize("name", WITH_FILES)
def test_script_without_files(name, monkeypatch, tmp_path):
    # where the tests run without the files, test_script has done this already
    if not os.environ.get("MKLEARN_DATA"):
        pytest.skip("MKLEARN_DATA names no folder, so this is test_script")
    monkeypatch.setenv("MKLEARN_DATA", str(tmp_path))
    _, figures = run_script(name, monkeypatch)
    assert figures


@pytest.mark.parametrize("path", sorted(FOLDER.glob("plot_*.py")), ids=lambda p: p.stem)
def test_title_and_source(path):
    text = path.read_text(encoding="utf-8")
    title, line = ast.get_docstring(ast.parse(text)).splitlines()[:2]
    assert set(line) == {"="} and len(line) == len(title)
    for call in ast.walk(ast.parse(text)):
        name = getattr(getattr(call, "func", None), "id", None)
        if (
            name == "load" and call.args[0].value != "mfeat"
        ):  # which has no other source
            given = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
            assert given["download"] is False  # nothing is fetched


def test_the_gallery_has_a_place_for_each():
    path = FOLDER.parent / "docs" / "_ext" / "gallery_order.py"
    order = runpy.run_path(str(path))["ORDER"]
    assert sorted(f"plot_{name}" for name in order) == sorted(
        path.stem for path in FOLDER.glob("plot_*.py")
    )
    assert len(order) >= 12


def test_the_gallery_leaves_programs_out(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    conf = runpy.run_path(str(FOLDER.parent / "docs" / "conf.py"))
    ignored = re.compile(conf["sphinx_gallery_conf"]["ignore_pattern"])
    left = {path.stem for path in FOLDER.glob("*.py") if ignored.search(str(path))}
    # tests/test_dask.py runs it
    assert left == {"demo_large"}
    assert all(path.stem in left or path.stem.startswith("plot_")
               for path in FOLDER.glob("*.py"))  # fmt: skip
