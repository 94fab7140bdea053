"""Files are there whole or not at all, whoever else writes beside them."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_iris

from mklearn import MKLClassifier
from mklearn.data.writing import STALE, whole_file, whole_files, write_json
from mklearn.persistence import load, save


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


DIES = """
import os, signal, sys
from mklearn.data.writing import whole_file, whole_files

with whole_file(sys.argv[1] + "/a") as one, whole_files(sys.argv[1]) as several:
    one.write_text("half")
    (several / "b").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently")
def test_what_a_killed_run_left_neither_blocks_nor_stays(tmp_path):
    (tmp_path / ".mine.tmp").touch()
    subprocess.run([sys.executable, "-c", DIES, tmp_path], check=False)
    left = set(os.listdir(tmp_path)) - {".mine.tmp"}
    assert len(left) == 2
    with whole_file(tmp_path / "new") as living:  # nobody else writes: they are dead
        living.write_text("1")
        assert set(os.listdir(tmp_path)) == {".mine.tmp", living.name}
        write_json(tmp_path / "other", 2)  # this one is not
        assert living.exists()
    assert sorted(os.listdir(tmp_path)) == [".mine.tmp", "new", "other"]


def test_where_folders_cannot_be_locked_age_tells_who_is_dead(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    left = [tmp_path / f".mklearn-{number * 16}.tmp" for number in "ab"]
    left[0].touch()
    left[1].mkdir()
    (left[1] / "half").touch()
    write_json(tmp_path / "new", 1)  # they may belong to somebody who is writing
    assert all(path.exists() for path in left)
    long_ago = time.time() - STALE - 1
    for path in left:
        os.utime(path, (long_ago, long_ago))
    write_json(tmp_path / "new", 2)
    assert sorted(os.listdir(tmp_path)) == ["new"]


@pytest.mark.parametrize("stop", [OSError(28, "full"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_files_of_a_run_take_their_places_together(at, stop, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")
    (tmp_path / "c").write_text("old")
    replace, count = os.replace, iter(range(10))

    def limited(source, target):
        if next(count) == at:
            raise stop
        replace(source, target)

    monkeypatch.setattr(os, "replace", limited)
    with pytest.raises(type(stop)), whole_files(tmp_path) as folder:
        for name in "abc":
            (folder / name).write_text("new")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "a": "old", "c": "old",
    }  # fmt: skip


def test_a_folder_in_the_place_of_the_last_file_keeps_the_others(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").mkdir()
    with pytest.raises(OSError, match="folder"), whole_files(tmp_path) as folder:
        for name in "ab":
            (folder / name).write_text("new")
    assert (tmp_path / "a").read_text() == "old" and (tmp_path / "b").is_dir()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_stay_and_devices_are_refused(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    write_json(tmp_path / "link", 1)
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "far") == ["file"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="device"):
        write_json(tmp_path / "pipe", 1)
    assert (tmp_path / "pipe").is_fifo()


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
