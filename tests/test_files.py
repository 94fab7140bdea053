"""Files are there whole or not at all, whoever else writes beside them."""

import json
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_iris

from mklearn import MKLClassifier
from mklearn.persistence import load, save
from mklearn.report.files import STALE, whole_file, whole_files, write_json


def test_threads_that_write_one_path_leave_one_of_their_files(tmp_path):
    path, count = tmp_path / "results.json", 8
    together = threading.Barrier(count)

    def write(i):
        together.wait()
        for _ in range(5):
            write_json(path, {"writer": i, "long": [i] * 5000})
            found = json.loads(path.read_text())
            assert set(found["long"]) == {found["writer"]}

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(write, range(count)))
    assert os.listdir(tmp_path) == ["results.json"]


def test_threads_that_save_to_one_path_leave_one_of_their_models(tmp_path):
    X, y = load_iris(return_X_y=True)
    models = [MKLClassifier("rbf", C=C).fit(X, y) for C in (0.01, 0.1, 1.0, 10.0)]
    path, together = tmp_path / "model.mkl", threading.Barrier(len(models))

    def write(model):
        together.wait()
        for _ in range(3):
            save(model, path)

    with ThreadPoolExecutor(len(models)) as pool:
        list(pool.map(write, models))
    answers = [model.decision_function(X[:5]) for model in models]
    found = load(path).decision_function(X[:5])
    assert any(np.array_equal(found, answer) for answer in answers)
    assert os.listdir(tmp_path) == ["model.mkl"]


def test_runs_that_write_one_folder_do_not_disturb_each_other(tmp_path):
    with whole_files(tmp_path) as first, whole_files(tmp_path) as second:
        (first / "a").write_text("1")
        (second / "b").write_text("2")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "1", "b": "2"}


def test_what_a_dead_run_left_neither_blocks_nor_stays(tmp_path):
    mine = tmp_path / ".mine.tmp"
    mine.touch()
    with whole_file(tmp_path / "new") as temporary:
        temporary.touch()
    number = "0123456789abcdef"
    left = [temporary, temporary.with_name(f".mklearn-{number}.tmp")]
    left[0].touch()
    left[1].mkdir()
    (left[1] / "half").touch()
    write_json(tmp_path / "new", 1)  # they may belong to somebody who is writing
    assert all(path.exists() for path in left)
    long_ago = time.time() - STALE - 1
    for path in [mine, *left]:
        os.utime(path, (long_ago, long_ago))
    write_json(tmp_path / "new", 2)
    assert sorted(os.listdir(tmp_path)) == [".mine.tmp", "new"]


@pytest.mark.skipif(os.name == "nt", reason="permissions are set differently")
def test_files_have_the_permissions_of_others(tmp_path):
    (tmp_path / "usual").touch()
    write_json(tmp_path / "ours", 1)
    usual, ours = (
        stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "ours")
    )
    assert ours == usual


def test_contents_are_on_the_disk_before_they_have_their_name(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda n: (order.append("sync"), fsync(n))[1])
    monkeypatch.setattr(
        os, "replace", lambda *a: (order.append("name"), replace(*a))[1]
    )
    with whole_files(tmp_path) as folder:
        for name in "ab":
            (folder / name).write_text(name)
    assert order[:4] == ["sync", "sync", "name", "name"]
    order.clear()
    write_json(tmp_path / "c", 1)
    assert order[:2] == ["sync", "name"]
