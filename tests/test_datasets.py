"""Data sets are the documented ones, whatever their source, or a clear error."""

import hashlib
import inspect
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets
from sklearn.model_selection import train_test_split

from mklearn import MKLClassifier, MultiView
from mklearn.datasets import (
    available,
    bayes_error,
    load,
    make_groups,
    make_multiview,
    make_waveform,
)
from mklearn.datasets.catalogue import CATALOGUE, VARIABLE, DataSet, OpenML, table
from mklearn.kernels import RBF, Linear, per_view
from written import run_page

FETCH = sklearn.datasets.fetch_openml
DATA = os.environ.get(VARIABLE, "")
DOCS = Path(__file__).parents[1] / "docs" / "datasets.md"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(**_):
        raise URLError("no network in tests")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)


@pytest.fixture
def nothing(monkeypatch):
    """Take the folder away."""
    monkeypatch.delenv(VARIABLE, raising=False)


def write(folder, monkeypatch, entry, **arrays):
    """Put a file into a folder and the data set into the catalogue; return the path."""
    path = folder / f"{entry.title}.npz"
    np.savez_compressed(path, **arrays)
    entry = replace(
        entry,
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    monkeypatch.setitem(CATALOGUE, entry.title, entry)
    monkeypatch.setenv(VARIABLE, str(folder))
    return path


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return the file of a data set "small" of 6 samples."""
    return write(
        tmp_path,
        monkeypatch,
        DataSet("small", 6, 2, {1: 4, 2: 2}, classes=("no", "yes"), test={1: 1, 2: 1}),
        X=np.arange(12, dtype=np.uint8).reshape(6, 2),
        y=np.array([1, 1, 2, 1, 2, 1], dtype=np.int8),
        split=np.array(["train"] * 4 + ["test"] * 2),
        feature_names=np.array(["a", "b"]),
    )


def test_a_table_from_a_file(small):
    bunch = load("small")
    assert bunch.data.dtype == np.uint8
    assert bunch.data.tolist()[5] == [10, 11]
    assert bunch.target.dtype == np.int64
    assert bunch.split.tolist()[3:] == ["train", "test", "test"]
    assert (bunch.feature_names, bunch.target_names) == (["a", "b"], ["no", "yes"])
    assert (bunch.views, bunch.sample_names) == ((), None)
    assert bunch.source == "file small.npz"
    assert bunch.DESCR.startswith("small: 6 samples; 2 features; 1: 4, 2: 2 (test")
    X, y = load("small", return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


def test_folder_goes_before_the_variable(small, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "elsewhere"))
    assert load("small", folder=tmp_path).source == "file small.npz"
    with pytest.raises(FileNotFoundError, match=r"elsewhere.small\.npz does not exist"):
        load("small")


def test_another_file_is_an_error_that_names_both_sums(small):
    right = CATALOGUE["small"].sha256
    small.write_bytes(small.read_bytes() + b"x")
    wrong = hashlib.sha256(small.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match=f"{re.escape(str(small))}.*{wrong}.*{right}"):
        load("small")


@pytest.mark.parametrize(
    ("fact", "sentence"),
    [
        ({"n_samples": 7}, r"samples and features \(6, 2\), expected \(7, 2\)"),
        ({"counts": {1: 3, 2: 3}}, r"class counts \{1: 4, 2: 2\}, expected"),
        ({"test": {1: 2}}, r"test part \{1: 1, 2: 1\}, expected \{1: 2\}"),
    ],
)
def test_data_are_held_to_the_catalogue(small, monkeypatch, fact, sentence):
    monkeypatch.setitem(CATALOGUE, "small", replace(CATALOGUE["small"], **fact))
    with pytest.raises(ValueError, match=rf"file small\.npz .*{sentence}"):
        load("small")


def test_views_are_sliced_together(tmp_path, monkeypatch):
    write(
        tmp_path,
        monkeypatch,
        DataSet("pair", 10, {"a": 2, "b": 1}, {0: 5, 1: 5}, extras={"grade": "g"}),
        X_a=np.arange(20, dtype=np.uint8).reshape(10, 2),
        X_b=np.arange(10.0)[:, None],
        y=np.arange(10, dtype=np.int8) % 2,
        g=np.arange(10),
        names_a=np.array(["left", "right"]),
        names_b=np.array(["middle"]),
    )
    bunch = load("pair")
    assert isinstance(bunch.data, MultiView)
    assert bunch.views == bunch.data.names == ("a", "b")
    assert bunch.feature_names == {"a": ["left", "right"], "b": ["middle"]}
    assert bunch.grade.tolist() == list(range(10))
    train, test, y_train, y_test = train_test_split(
        bunch.data, bunch.target, test_size=4, random_state=0, stratify=bunch.target
    )
    assert (len(train), len(test)) == (6, 4)
    for part, y in ((train, y_train), (test, y_test)):
        np.testing.assert_array_equal(part["a"][:, 0], 2 * part["b"][:, 0])
        np.testing.assert_array_equal(part["b"][:, 0] % 2, y)


def test_sequences_are_a_view_of_strings(tmp_path, monkeypatch):
    write(
        tmp_path,
        monkeypatch,
        DataSet("words", 3, {"sequence": 1}, {"x": 2, "y": 1}, sample_names="ids"),
        seq=np.frombuffer(b"ABBAACCA", dtype=np.uint8),
        offsets=np.array([0, 2, 5, 8]),
        y=np.array(["x", "y", "x"]),
        ids=np.array(["one", "two", "three"]),
    )
    bunch = load("words")
    assert bunch.data["sequence"].tolist() == ["AB", "BAA", "CCA"]
    assert bunch.data.is_text("sequence")
    assert bunch.sample_names.tolist() == ["one", "two", "three"]
    assert bunch.target.tolist() == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("name", "loader", "offset"),
    [
        ("wine", "load_wine", 1),
        ("breast_cancer_diagnostic", "load_breast_cancer", 0),
        ("iris", "load_iris", 0),
        ("digits", "load_digits", 0),
    ],
)
def test_scikit_learn_has_some(nothing, name, loader, offset):
    bunch = load(name)
    X, y = getattr(sklearn.datasets, loader)(return_X_y=True)
    np.testing.assert_array_equal(bunch.data, X)
    np.testing.assert_array_equal(bunch.target, y + offset)
    assert bunch.source == f"scikit-learn {sklearn.__version__}, {loader}"
    assert len(bunch.feature_names) == X.shape[1]


@pytest.fixture
def online(small, monkeypatch):
    """Move "small" to an OpenML of one data set; return that set."""
    X = np.arange(14.0).reshape(7, 2)
    X[6, 1] = np.nan
    answer = SimpleNamespace(
        data=X,
        target=np.array(list("nnynynn"), dtype=object),
        feature_names=["a", "b"],
    )
    calls = []

    def fetch(**options):
        calls.append(options)
        return answer

    small.unlink()
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    openml = OpenML(123, {"n": 1, "y": 2}, 5.5, "uint8")
    monkeypatch.setitem(CATALOGUE, "small", replace(CATALOGUE["small"], openml=openml))
    answer.calls = calls
    return answer


def test_openml_gives_the_same_as_the_file(online):
    bunch = load("small")
    (call,) = online.calls
    assert inspect.signature(FETCH).bind(**call).arguments["data_id"] == 123
    assert bunch.data.dtype == np.uint8
    assert bunch.data.tolist() == np.arange(12).reshape(6, 2).tolist()
    assert bunch.target.tolist() == [1, 1, 2, 1, 2, 1]
    assert bunch.split.tolist() == ["train"] * 4 + ["test"] * 2
    assert bunch.source == "OpenML 123"


def test_openml_is_asked_only_if_allowed(online):
    with pytest.raises(FileNotFoundError, match="because of download=False"):
        load("small", download=False)
    assert online.calls == []


def test_a_wrong_openml_set_is_refused(online):
    online.target[0] = "z"
    with pytest.raises(ValueError, match=r"123 is not 'small': it has labels \['z'\]"):
        load("small")
    online.target[0] = "y"
    with pytest.raises(ValueError, match=r"OpenML 123 .* class counts"):
        load("small")
    online.target[0] = "n"
    online.data[0, 0] = 1.0
    with pytest.raises(ValueError, match=r"mean of its values is 5\.58.*expected 5\.5"):
        load("small")


@pytest.mark.parametrize("name", [n for n, e in CATALOGUE.items() if e.openml])
def test_openml_labels_are_ours(name):
    entry = CATALOGUE[name]
    assert set(entry.openml.labels.values()) == set(entry.counts)
    assert not entry.loader


def test_without_file_and_network_the_error_says_what_to_put_where(nothing):
    with pytest.raises(FileNotFoundError) as caught:
        load("sonar")
    text = str(caught.value)
    assert "MKLEARN_DATA is not set, and OpenML did not return data set 40" in text
    assert "no network in tests" in text
    assert f"put sonar.npz (SHA-256 {CATALOGUE['sonar'].sha256})" in text
    with pytest.raises(FileNotFoundError, match=r"'mfeat'.*not set; put mfeat\.npz"):
        load("mfeat")
    with pytest.raises(FileNotFoundError, match="put waveform40"):
        load("waveform21")


def test_unknown_names_get_a_hint():
    with pytest.raises(ValueError, match=r"no data set 'sonra'\. Did you mean 'sonar'"):
        load("sonra")
    with pytest.raises(ValueError, match=r"no data set 'qqqq'\. The names are sonar"):
        load("qqqq")


def test_available_tells_sources(small, nothing, tmp_path):
    lines = {line.name: line for line in available()}
    assert list(lines) == list(CATALOGUE)
    assert lines["iris"] == ("iris", 150, 4, 3, (), "scikit-learn, load_iris", True)
    assert lines["sonar"][5:] == ("OpenML 40", False)
    assert lines["waveform21"][5:] == ("OpenML 60", False)
    assert lines["small"][5:] == ("file small.npz", False)
    assert lines["mfeat"][2:5] == (649, 10, tuple(CATALOGUE["mfeat"].features))
    lines = {line.name: line for line in available(tmp_path)}
    assert lines["small"][5:] == ("file small.npz", True)


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_is_consistent(name):
    entry = CATALOGUE[name]
    assert sum(entry.counts.values()) in (0, entry.n_samples)
    assert bool(entry.file) == (len(entry.sha256) == 64)
    assert entry.file or entry.loader or CATALOGUE[entry.base].file
    assert len(entry.classes) in (0, len(entry.counts))
    assert list(entry.counts) == sorted(entry.counts)
    assert all(entry.test[label] < entry.counts[label] for label in entry.test)


def test_the_documented_table_is_the_catalogue():
    text = DOCS.read_text(encoding="utf-8")
    shown = re.search(r"^\| name \|.*?(?=\n\n)", text, flags=re.DOTALL | re.MULTILINE)
    assert shown[0] == table()


def test_the_documented_example_runs(capsys):
    run_page("datasets.md")
    assert len(capsys.readouterr().out.splitlines()) == len(CATALOGUE)


def needs(name):
    """Skip a test if the file of a data set is not at hand."""
    entry = CATALOGUE[name]
    file = CATALOGUE[entry.base or name].file
    if file and not (DATA and (Path(DATA) / file).is_file()):
        pytest.skip(f"{file} is not in the folder of {VARIABLE}")


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_data_set_at_hand_is_as_documented(name):
    needs(name)
    entry = CATALOGUE[name]
    bunch = load(name, download=False)
    assert bunch.data.shape == (entry.n_samples, entry.n_features)
    assert len(bunch.data) == entry.n_samples
    if entry.counts:
        assert Counter(bunch.target.tolist()) == entry.counts
    else:
        assert bunch.target is None
    assert bunch.views == entry.views
    assert isinstance(bunch.data, MultiView) == bool(entry.views)
    if entry.test:
        assert Counter(bunch.target[bunch.split == "test"].tolist()) == entry.test
    else:
        assert bunch.split is None
    if not entry.views:
        assert np.all(np.isfinite(bunch.data))
    if entry.openml:
        mean = bunch.data.mean(dtype=np.float64)
        assert mean == pytest.approx(entry.openml.mean, rel=1e-5)
        assert bunch.data.dtype == entry.openml.dtype


@pytest.mark.parametrize(
    "name",
    [n for n, e in CATALOGUE.items() if e.openml and n != "mnist"],  # it is large
)
def test_files_and_openml_agree_where_the_values_do(name, monkeypatch):
    needs(name)
    file = load(name)
    openml = CATALOGUE[name].openml
    theirs = {ours: label for label, ours in openml.labels.items()}

    def fetch(data_id, **_):
        assert data_id == openml.data_id
        return SimpleNamespace(
            data=file.data,
            target=[theirs[label] for label in file.target.tolist()],
            feature_names=range(file.data.shape[1]),
        )

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    monkeypatch.delenv(VARIABLE)
    there = load(name)
    assert there.source == f"OpenML {openml.data_id}"
    for key in ("data", "target"):
        np.testing.assert_array_equal(there[key], file[key])
        assert there[key].dtype == file[key].dtype
    assert (there.split is None) == (file.split is None)
    if file.split is not None:
        np.testing.assert_array_equal(there.split, file.split)


def test_a_part_is_held_to_the_catalogue_too(monkeypatch):
    needs("waveform21")
    wrong = replace(CATALOGUE["waveform21"], n_samples=1)
    monkeypatch.setitem(CATALOGUE, "waveform21", wrong)
    with pytest.raises(ValueError, match=r"'waveform21'.*\(1, 21\); put waveform40"):
        load("waveform21")


def test_every_file_of_the_folder_is_in_the_catalogue():
    if not (DATA and Path(DATA).is_dir()):
        pytest.skip(f"{VARIABLE} names no folder")
    files = {path.name for path in Path(DATA).glob("*.npz")}
    assert files <= {entry.file for entry in CATALOGUE.values()}


def test_wine_is_the_same_from_both_sources(monkeypatch):
    needs("wine")
    file = load("wine")
    monkeypatch.delenv(VARIABLE)
    bundled = load("wine")
    np.testing.assert_array_equal(file.data, bundled.data)
    np.testing.assert_array_equal(file.target, bundled.target)
    assert file.feature_names == bundled.feature_names
    assert file.source != bundled.source


def test_proteins_are_those_of_the_training_rows():
    needs("tcga_breast")
    whole, part = load("tcga_breast"), load("tcga_breast_train")
    train = whole.split == "train"
    np.testing.assert_array_equal(part.data["mrna"], whole.data["mrna"][train])
    np.testing.assert_array_equal(part.data["protein"], whole.protein)
    np.testing.assert_array_equal(part.target, whole.target[train])
    for view in part.views:
        assert len(part.feature_names[view]) == part.data[view].shape[1]


def test_the_network_has_its_edges():
    needs("yeast_network150")
    bunch = load("yeast_network150")
    assert bunch.adjacency.sum() == 2 * 168
    np.testing.assert_allclose(np.diag(bunch.data), 1.0)
    assert len(bunch.sample_names) == 150


def wave_pairs():
    """Return the two waves of each waveform class, written out."""
    up = [1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1]
    at7, at11, at15 = (np.r_[np.zeros(k), up, np.zeros(10 - k)] for k in (1, 5, 9))
    return [(at7, at15), (at7, at11), (at15, at11)]


@pytest.mark.parametrize("n_noise", [0, 19])
def test_waveforms_have_the_means_and_variances_of_their_classes(n_noise):
    X, y = make_waveform(60_000, n_noise, random_state=0)
    assert X.shape == (60_000, 21 + n_noise)
    np.testing.assert_allclose(np.bincount(y) / len(y), 1 / 3, atol=0.01)
    for label, (h, g) in enumerate(wave_pairs()):
        part = X[y == label]
        mean, variance = part.mean(axis=0), part.var(axis=0)
        np.testing.assert_allclose(mean[:21], (h + g) / 2, atol=0.06)
        # u is uniform: its variance is 1 / 12
        np.testing.assert_allclose(variance[:21], 1 + (h - g) ** 2 / 12, atol=0.15)
        np.testing.assert_allclose(mean[21:], 0, atol=0.04)
        np.testing.assert_allclose(variance[21:], 1, atol=0.05)


def test_waveforms_are_those_of_the_file():
    needs("waveform40")
    bunch = load("waveform40")
    for label, (h, g) in enumerate(wave_pairs()):
        mean = bunch.data[bunch.target == label].mean(axis=0)
        np.testing.assert_allclose(mean[:21], (h + g) / 2, atol=0.15)
        np.testing.assert_allclose(mean[21:], 0, atol=0.1)
    np.testing.assert_array_equal(load("waveform21").data, bunch.data[:, :21])


def test_generators_repeat_and_name_mistakes():
    for make in (make_waveform, make_multiview):
        first, again = make(20, random_state=3), make(20, random_state=3)
        np.testing.assert_array_equal(first[1], again[1])
    np.testing.assert_array_equal(
        make_waveform(20, random_state=3)[0], make_waveform(20, random_state=3)[0]
    )
    assert first[0].names == again[0].names
    for view in first[0]:
        np.testing.assert_array_equal(first[0][view], again[0][view])
    with pytest.raises(ValueError, match="n_samples must be at least 1, got 0"):
        make_waveform(0)
    with pytest.raises(ValueError, match="n_noise must be at least 0, got -1"):
        make_waveform(5, -1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"relevant": 0}, "relevant must be a positive number"),
        ({"relevant": (1.0, -1.0)}, r"above 0, got \[1.0, -1.0\]"),
        ({"relevant": 5, "n_redundant": 2}, "n_views=6 cannot hold 5 relevant"),
        ({"n_redundant": -1}, "n_redundant=-1"),
        ({"n_classes": 1}, "n_classes must be from 2 to n_samples=30, got 1"),
        ({"n_classes": 4, "n_features": 2}, "n_features must be at least n_classes"),
    ],
)
def test_impossible_views_are_named(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_multiview(30, **options)


def test_views_have_the_strengths_asked_for():
    strengths = [2.0, 1.0, 0.5]
    X, y, relevant = make_multiview(
        40_000, 6, relevant=strengths, n_redundant=1, n_classes=3, random_state=0
    )
    assert np.bincount(y).tolist() == [13334, 13333, 13333]
    assert [X.names[i] for i in relevant] == [f"relevant{i}" for i in range(3)]
    kinds = Counter(name.rstrip("0123456789") for name in X.names)
    assert kinds == {"relevant": 3, "redundant": 1, "noise": 2}
    sizes = dict.fromkeys(X.names, 0.0)
    sizes |= {f"relevant{i}": s for i, s in enumerate(strengths)}
    sizes["redundant0"] = 2.0
    for name, strength in sizes.items():
        centres = np.array([X[name][y == k].mean(axis=0) for k in range(3)])
        noise = X[name] - centres[y]
        variance = 2.0 if name == "redundant0" else 1.0
        np.testing.assert_allclose(np.cov(noise.T), variance * np.eye(5), atol=0.06)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            distance = np.linalg.norm(centres[a] - centres[b])
            assert distance == pytest.approx(2 * strength, abs=0.06)


def test_two_classes_overlap_by_the_bayes_error():
    X, y, _ = make_multiview(40_000, relevant=(1.0, 0.5), random_state=1)
    score = 0.0
    for name in ("relevant0", "relevant1"):
        gap = X[name][y == 1].mean(axis=0) - X[name][y == 0].mean(axis=0)
        score = score + X[name] @ gap
    error = np.mean((score > 0) != (y == 1))
    assert error == pytest.approx(bayes_error(np.hypot(1.0, 0.5)), abs=0.01)


def test_a_redundant_view_tells_nothing_more():
    X, y, _ = make_multiview(40_000, relevant=(1.0,), n_redundant=1, random_state=2)
    both = np.hstack([X["relevant0"], X["redundant0"], np.ones((len(X), 1))])
    weights = np.linalg.lstsq(both, 2.0 * y - 1.0, rcond=None)[0]
    assert np.linalg.norm(weights[:5]) > 0.4
    assert np.linalg.norm(weights[5:10]) < 0.02


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.1)], ids=["linear", "rbf"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_weights_find_the_relevant_views(kernel, n_classes):
    X, y, relevant = make_multiview(
        240, 8, relevant=(1.5, 1.2), n_classes=n_classes, random_state=0
    )
    model = MKLClassifier(per_view(kernel), norm=1, C=0.1).fit(X, y)
    share = model.kernel_contributions_
    assert set(np.argsort(share)[-2:]) == set(relevant)
    assert share[relevant].sum() > 0.8


def test_groups_matter_as_they_are_said_to():
    X, y = make_groups(20_000, n_noise=1, flip=0.1, random_state=[7, 0])
    assert X.shape == (20_000, 16)
    shell = 0.5 * ((X[:, :4] ** 2).sum(axis=1) - 4)
    wave = 1.5 * np.sin(X[:, 4:8].sum(axis=1))
    line = 0.5 * X[:, 8:12].sum(axis=1)
    agree = np.mean((shell + wave + line > 0) == y)
    np.testing.assert_allclose(agree, 0.9, atol=0.01)
    # noise columns know nothing, neither do blocks of one another
    assert np.abs(np.corrcoef(X[:, 12:].T, y)[-1, :-1]).max() < 0.03
    again, _ = make_groups(20_000, n_noise=1, random_state=[7, 0])
    other, _ = make_groups(20_000, n_noise=1, random_state=[7, 1])
    np.testing.assert_array_equal(X, again)
    assert np.abs(np.mean(X * other)) < 0.01


@pytest.mark.parametrize("options", [{"n_samples": 0}, {"n_noise": -1}, {"flip": 0.5}])
def test_groups_name_mistakes(options):
    with pytest.raises(ValueError, match=str(next(iter(options.values())))):
        make_groups(**{"n_samples": 5} | options)
