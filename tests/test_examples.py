"""The examples run, on fewer samples."""

import importlib.util
import os
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
    monkeypatch.setenv("MKLEARN_DATA", str(tmp_path))
    assert example("plot_mfeat_views").main() is None
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
