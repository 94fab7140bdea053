"""Saved models: the same predictions, nothing executed, and bad files refused."""

import io
import json
import os
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

from mklearn import (
    AlignmentMKLClassifier,
    BestKernelClassifier,
    BilinearMKLClassifier,
    CrammerSingerClassifier,
    ElasticNet,
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MultiView,
    SingleKernelCV,
    SubspaceClassifier,
    SubspaceKernel,
    UniformMKLClassifier,
    __version__,
    kernels,
    persistence,
)
from mklearn.persistence import ModelFileError, load, read_header, save
from mklearn.table import TableModel

X, Y = load_iris(return_X_y=True)
X, Y = X[::2], Y[::2]
TWO = Y > 0
SETS = [kernels.RBF(), kernels.Linear(standardize=True), kernels.Polynomial(2)]


def again(model, path):
    save(model, path)
    return load(path)


def same(model, other, new):
    for name in ("decision_function", "predict", "predict_proba", "transform"):
        if hasattr(model, name):
            a, b = getattr(model, name)(new), getattr(other, name)(new)
            if np.asarray(a).dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
            else:
                assert np.asarray(a).tolist() == np.asarray(b).tolist()


MODELS = {
    "binary": (MKLClassifier(SETS, norm=1), TWO),
    "multi-class": (MKLClassifier("auto", norm=2), Y),
    "strings": (MKLClassifier("auto"), np.array(["a", "bc", "d"])[Y]),
    "per class": (MKLClassifier(SETS, weights="per-class", norm=1.5), Y),
    "probabilities": (MKLClassifier(SETS, loss="logistic"), TWO),
    "centred": (MKLClassifier(SETS, normalize="center", loss="squared"), Y),
    "spherical": (MKLClassifier(SETS, normalize="spherical"), TWO),
    "elastic net": (MKLClassifier(SETS, norm=ElasticNet(0.5)), TWO),
    "matrix": (MKLClassifier(SETS, norm=np.eye(3)), TWO),
    "class weight": (MKLClassifier(SETS, class_weight={0: 2.0, 1: 1.0}), Y),
    "learned C": (MKLClassifier(SETS, loss="squared_hinge", C="learn"), TWO),
    "search": (MKLClassifierCV(SETS, Cs=[1.0], norms=[1, 2], cv=3), Y),
    "regression": (MKLRegressor("auto"), X[:, 0]),
    "outputs": (MKLRegressor(SETS), X[:, :2]),
    "regression search": (MKLRegressorCV(SETS, Cs=[1.0], norms=[2], cv=3), X[:, 0]),
    "evidence": (EvidenceMKLRegressor(SETS), X[:, :2] + 0.1 * X[:, 2:]),
    "one class": (MKLOneClass([kernels.RBF(), kernels.Laplacian()]), None),
    "discriminant": (MKLDiscriminant(SETS), Y),
    "two discriminants": (MKLDiscriminant(SETS, reg="learn"), TWO),
    "bilinear": (BilinearMKLClassifier(SETS), Y),
    "Crammer-Singer": (CrammerSingerClassifier(SETS), Y),
    "subspace": (SubspaceClassifier(SETS), Y),
    "joint subspace": (SubspaceClassifier(SETS, criterion="svm"), Y),
    "features": (SubspaceKernel(SETS), Y),
    "uniform": (UniformMKLClassifier(SETS), Y),
    "aligned": (AlignmentMKLClassifier(SETS), Y),
    "best": (BestKernelClassifier(SETS, cv=3), Y),
    "single": (SingleKernelCV(MKLDiscriminant(), SETS, values=[1e-3], cv=3), Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_stay_the_same(name, tmp_path):
    model, y = MODELS[name]
    model = model.fit(X + 0.0, y)
    loaded = again(model, tmp_path / "m.mkl")
    assert type(loaded) is type(model)
    same(model, loaded, X[::-1] + 0.01)
    assert loaded.kernel_names_ == model.kernel_names_
    np.testing.assert_array_equal(loaded.kernel_weights_, model.kernel_weights_)
    np.testing.assert_array_equal(
        loaded.kernel_contributions_, model.kernel_contributions_
    )
    if hasattr(model, "solution_"):
        assert str(loaded.solution_) == str(model.solution_)
    assert set(loaded.get_params()) == set(model.get_params())


def test_views_and_sequences(tmp_path):
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ACGT"), 8)) for _ in range(len(X))]
    views = MultiView({"flower": X, "dna": words, "sparse": sparse.csr_array(X)})
    model = MKLClassifier(
        [
            kernels.RBF(view="flower"),
            kernels.Spectrum(2, view="dna"),
            kernels.WeightedDegree(2, view="dna"),
            kernels.Linear(view="sparse"),
            kernels.Linear(view="flower", columns=slice(0, 2)),
        ],
        norm=4,
    ).fit(views, Y)
    loaded = again(model, tmp_path / "m.mkl")
    same(model, loaded, views[::-1])
    assert loaded.kernels_ == model.kernels_


def test_grams_and_clipping(tmp_path):
    grams = np.stack(
        [X @ X.T, np.tanh((X @ X.T - 40) / 20), (1 + X @ X.T) ** 2], axis=2
    )
    model = MKLClassifier("precomputed", psd="clip").fit(grams, TWO)
    same(model, again(model, tmp_path / "m.mkl"), grams[:9])
    one = MKLRegressor([kernels.Precomputed(X @ X.T)]).fit(
        np.arange(len(X))[:, None], Y
    )
    same(one, again(one, tmp_path / "m.mkl"), np.arange(9)[:, None])


def test_tables(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X.copy(), columns=list("abcd"))
    frame["e"] = np.where(X[:, 0] > 5, "big", "small")
    frame.loc[3, "a"] = np.nan
    model = TableModel(MKLClassifier(), views={"l": ["a", "b"], "r": ["c", "e"]})
    model.fit(frame, Y)
    loaded = again(model, tmp_path / "m.mkl")
    same(model, loaded, frame)
    assert loaded.columns_ == model.columns_ and loaded.views_ == model.views_


def test_only_samples_that_predictions_need_are_kept(tmp_path):
    rng = np.random.default_rng(0)
    many = rng.normal(size=(400, 30)) + 3 * np.repeat([[0.0], [1.0]], 200, axis=0)
    model = MKLClassifier("linear").fit(many, np.repeat([0, 1], 200))
    save(model, tmp_path / "m.mkl")
    assert len(model.support_) < 100
    assert os.path.getsize(tmp_path / "m.mkl") < many.nbytes / 2


def test_what_is_only_for_fitting_becomes_the_default(tmp_path):
    model = MKLClassifierCV(
        SETS, Cs=[1.0], norms=[2], cv=StratifiedKFold(3), callback=lambda history: False
    ).fit(X, Y)
    loaded = again(model, tmp_path / "m.mkl")
    assert (loaded.cv, loaded.callback) == (5, None)
    same(model, loaded, X)


def test_code_is_not_saved(tmp_path):
    model = MKLClassifier([lambda a, b: a @ b.T]).fit(X, Y)
    with pytest.raises(ValueError, match="cannot be saved in a file without code"):
        save(model, tmp_path / "m.mkl")
    with pytest.raises(ValueError, match="not an estimator of mklearn"):
        save(StratifiedKFold(3), tmp_path / "m.mkl")
    assert os.listdir(tmp_path) == []


# --- the file -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.mkl"
    save(MKLClassifier(SETS).fit(X, Y), path, notes={"target": "kind"})
    return path


@pytest.fixture(scope="module")
def centred(tmp_path_factory):
    """Of a model that predicts with all that a model may have."""
    path = tmp_path_factory.mktemp("saved") / "c.mkl"
    save(MKLClassifier(SETS, normalize="center", loss="squared").fit(X, Y), path)
    return path


def test_header(saved):
    header = read_header(saved)
    assert header["class"] == "MKLClassifier"
    assert header["versions"]["mklearn"] == __version__
    assert header["notes"] == {"target": "kind"}


def test_the_same_model_gives_the_same_file(saved, tmp_path):
    save(load(saved), tmp_path / "m.mkl", notes={"target": "kind"})
    first, second = ({k: v for k, v in _members(p).items() if k != "sha256"}
                     for p in (saved, tmp_path / "m.mkl"))  # fmt: skip
    assert first == second


def test_a_failed_save_keeps_the_old_file(saved, tmp_path, monkeypatch):
    path = tmp_path / "m.mkl"
    path.write_bytes(saved.read_bytes())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(OSError):
        save(load(saved), path)
    assert path.read_bytes() == saved.read_bytes()
    assert os.listdir(tmp_path) == ["m.mkl"]


def _members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _forged(path, members, digest=True):
    """Write a file with a digest that fits."""
    members = {k: v for k, v in members.items() if k != "sha256"}
    if digest:
        members["sha256"] = persistence._digest(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def _changed(saved, path, change, **kwargs):
    members = _members(saved)
    content = json.loads(members["model.json"])
    change(content)
    members["model.json"] = json.dumps(content).encode()
    return _forged(path, members, **kwargs)


def test_changed_contents_are_refused(saved, tmp_path):
    path = tmp_path / "m.mkl"

    def more(content):
        content["model"]["is"]["intercept_"] = [9.0]

    _changed(saved, path, more, digest=False)
    with pytest.raises(ModelFileError, match="SHA-256"):
        load(path)
    members = _members(saved)
    del members["arrays/1.npy"]
    with pytest.raises(ModelFileError, match="SHA-256"):
        load(_forged(path, {**members, "sha256": b"0" * 64}, digest=False))


def test_newer_formats_are_refused(saved, tmp_path):
    def newer(content):
        content["format_version"] = 99

    path = _changed(saved, tmp_path / "m.mkl", newer)
    with pytest.raises(ModelFileError, match=r"format version 99.*Update mklearn"):
        load(path)


def test_older_formats_are_refused(saved, tmp_path):
    def older(content):
        content["format_version"] = 2

    path = _changed(saved, tmp_path / "m.mkl", older)
    with pytest.raises(ModelFileError, match=r"format version 2.*Fit the model again"):
        load(path)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "m.mkl"
    for content in (b"", b"hello", b"\x80\x04\x95", b"PK\x03\x04 nothing"):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="not a model file"):
            load(path)
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(ModelFileError, match="not a model file"):
        load(tmp_path / "a.npz")
    with pytest.raises(ModelFileError, match="not a model file"):
        load(_forged(path, {"model.json": b'{"format": "other"}'}))
    with pytest.raises(ModelFileError, match="not JSON"):
        load(_forged(path, {"model.json": b"{"}))
    with pytest.raises(OSError):
        load(tmp_path / "absent.mkl")


def test_compressed_archives_are_refused(saved, tmp_path):
    with zipfile.ZipFile(tmp_path / "m.mkl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _members(saved).items():
            archive.writestr(name, data)
    with pytest.raises(ModelFileError, match="not a model file"):
        load(tmp_path / "m.mkl")


FORGERIES = {
    "class": lambda c: c["model"].update({"class": "Popen"}),
    "record": lambda c: c["model"]["is"].update(
        loss={"$": "record", "class": "Function", "is": {"function": "print"}}
    ),
    "kind": lambda c: c["model"]["is"].update(loss={"$": "import", "is": "os"}),
    "method": lambda c: c["model"]["is"].update(predict="x"),
    "array": lambda c: c["model"]["is"].update(loss={"$": "array", "is": 999}),
    "parameter": lambda c: c["model"]["is"].update(
        loss={"$": "record", "class": "RBF", "is": {"gamma": -1}}
    ),
    "other class": lambda c: c.update({"class": "MKLRegressor"}),
    "no model": lambda c: c.pop("model"),
    "sparse": lambda c: c["model"]["is"].update(
        loss={"$": "csr", "shape": [2, 2], "data": 1, "indices": 2, "indptr": 3}
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_files_are_refused(name, saved, tmp_path):
    path = _changed(saved, tmp_path / "m.mkl", FORGERIES[name])
    with pytest.raises(ModelFileError):
        load(path)


def test_arrays_are_as_long_as_they_say(saved, tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (10**9,)}
    )
    members = {**_members(saved), "arrays/0.npy": stream.getvalue()}
    with pytest.raises(ModelFileError, match="size of an array differs"):
        load(_forged(tmp_path / "m.mkl", members))


def test_pickled_arrays_are_refused(saved, tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.array([print], dtype=object), allow_pickle=True)
    members = {**_members(saved), "arrays/0.npy": stream.getvalue()}
    with pytest.raises(ModelFileError, match="objects"):
        load(_forged(tmp_path / "m.mkl", members))


def _numbers(value):
    """Return the numbers of the arrays that a JSON value mentions."""
    if isinstance(value, list):
        return [n for v in value for n in _numbers(v)]
    if not isinstance(value, dict):
        return []
    if value.get("$") == "array":
        return [value["is"]]
    return [n for v in value.values() for n in _numbers(v)]


def _array(members, number):
    return np.load(io.BytesIO(members[f"arrays/{number}.npy"]))


def _npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: np.full_like(a, np.nan) if a.dtype.kind == "f" else a - 1000,
        lambda a: a[:-1] if a.ndim else a[None],
        lambda a: a[..., None],
        lambda a: a + 10**6 if a.dtype.kind == "i" else np.full_like(a, np.inf),
        lambda a: a.astype("U8"),
    ],
    ids=["nan or negative", "shorter", "deeper", "out of range or inf", "text"],
)
@pytest.mark.parametrize(
    "name", ["A", "theta", "cols", "used", "bias", "normaliser", "reference",
             "kernel_weights_"]
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(name, spoil, centred, tmp_path):
    members = _members(centred)
    content = json.loads(members["model.json"])
    state = content["model"]["is"]
    if name not in state:
        state = state["predictor_"]["is"]
    numbers = _numbers(state[name])
    assert numbers
    for number in numbers:
        bad = {**members, f"arrays/{number}.npy": _npy(spoil(_array(members, number)))}
        path = _forged(tmp_path / "m.mkl", bad)
        with pytest.raises(ModelFileError):
            load(path)


def test_kernels_that_do_not_fit_are_refused(saved, tmp_path):
    def change(edit):
        def apply(content):
            edit(content["model"]["is"]["predictor_"]["is"]["reference"]["is"]["is"])

        with pytest.raises(ModelFileError):
            load(_changed(saved, tmp_path / "m.mkl", apply))

    change(lambda bank: bank["names"]["is"].pop())
    change(lambda bank: bank["names"]["is"].__setitem__(0, bank["names"]["is"][1]))
    change(lambda bank: bank["references"]["is"].pop())
    change(lambda bank: bank["references"]["is"][0]["is"].update(samples=None))
    change(lambda bank: bank["references"]["is"][0]["is"].update(features=None))
    change(lambda bank: bank["references"]["is"][0]["is"]["kernels"]["is"].clear())
    change(lambda bank: bank.update(present=[[1.0]]))
    change(
        lambda bank: bank["references"]["is"][0]["is"]["features"]["is"].update(width=9)
    )


def test_names_in_the_archive_go_nowhere(saved, tmp_path):
    """A member is found by its name in memory; nothing is ever extracted."""
    inside = tmp_path / "deep" / "deeper"
    inside.mkdir(parents=True)
    path = _forged(
        inside / "m.mkl",
        {**_members(saved), "../../escaped.txt": b"x", "/tmp/absolute.txt": b"x"},
    )
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ModelFileError, match="not a model file"):
        load(path)
    assert set(tmp_path.rglob("*")) == before


def test_archives_that_say_they_are_huge_are_refused(saved, tmp_path):
    path = tmp_path / "m.mkl"
    content = bytearray(saved.read_bytes())
    at = content.rindex(b"PK\x01\x02")  # a member of the list of contents
    content[at + 24 : at + 28] = (2**31).to_bytes(4, "little")  # its size
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        load(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "is", "class", "shape"]), inner)
    ),
    max_leaves=6,
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(at=st.integers(0, 10**6), value=JSON)
def test_forged_values_are_refused_or_loaded(saved, tmp_path, at, value):
    """Any value of model.json may be any other, with a digest that fits."""
    members = _members(saved)
    content = json.loads(members["model.json"])
    places = _places(content["model"])
    container, key = places[at % len(places)]
    container[key] = value
    members["model.json"] = json.dumps(content).encode()
    try:
        model = load(_forged(tmp_path / "m.mkl", members))
    except ModelFileError as error:
        assert "\n" not in str(error)
        return
    assert isinstance(model, MKLClassifier)


def _places(value):
    """Return every container and key in a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], (dict, list)):
            found += _places(value[key])
    return found


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damaged_files_never_crash(saved, tmp_path, data):
    content = bytearray(saved.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "m.mkl"
    path.write_bytes(content)
    try:
        model = load(path)
    except ModelFileError:
        return
    # a byte of the archive's own that carries nothing, such as a date
    assert model.predict(X).tolist() == load(saved).predict(X).tolist()


# --- files that would take more than they have ---------------------------------------


def _header(shape, descr="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


def _peak(action):
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["stack", "array"])
def test_axes_without_elements_take_no_memory(kind, saved, tmp_path):
    """A stack of 1e8 arrays of nothing is a header and a million objects."""

    def put(content):
        value = {"$": "array", "is": 0}
        if kind == "stack":
            value = {"$": "stack", "kind": "list", "is": value}
        content["model"]["is"]["loss"] = value

    path = _changed(saved, tmp_path / "m.mkl", put)
    shape = (10**6, 0)  # of the 10**8 that it could be, so that the test may fail
    members = {**_members(path), "arrays/0.npy": _header(shape)}
    _forged(path, members)

    def refused():
        with pytest.raises(ModelFileError):
            load(path)

    assert _peak(refused) < 20 * 2**20


@pytest.mark.parametrize("descr", ["<U0", "|b1", "<f8", "<U4", "|O", "<c16", "V8"])
@pytest.mark.parametrize("shape", [(10**18,), (2**62, 4), (-1,), (3, 0, 10**17)])
def test_arrays_have_the_elements_that_they_say(descr, shape, saved, tmp_path):
    def put(content):
        content["model"]["is"]["loss"] = {"$": "array", "is": 0}

    path = _changed(saved, tmp_path / "m.mkl", put)
    members = {**_members(path), "arrays/0.npy": _header(shape, descr)}
    with pytest.raises(ModelFileError):
        load(_forged(path, members))


@pytest.mark.parametrize("fortran", [True, False])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(2, 3, 4),
        np.array(3.5),
        np.array(["a", "", "β"]),
        np.array([True, False]),
        np.zeros((0, 3), dtype=np.float32),
        np.arange(5, dtype=">i4"),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_are_read_as_numpy_reads_them(array, fortran):
    array = np.asfortranarray(array) if fortran else array
    found, expected = persistence._read_array(_npy(array)), np.load(
        io.BytesIO(_npy(array))
    )  # fmt: skip
    assert found.dtype == expected.dtype and found.flags.writeable
    assert found.flags.f_contiguous == expected.flags.f_contiguous
    np.testing.assert_array_equal(found, expected)


def _overlapping(path, count, size):
    """Write an archive whose members are all the same bytes."""
    body = b"\0" * size
    name = b"arrays/0.npy"
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, zlib.crc32(body),
                        size, size, len(name), 0) + name  # fmt: skip
    entries = []
    for i in range(count):
        name = b"arrays/%d.npy" % i
        entries.append(struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, zlib.crc32(body), size,
            size, len(name), 0, 0, 0, 0, 0, 0,
        ) + name)  # fmt: skip
    listing = b"".join(entries)
    start = len(local) + size
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(listing), start, 0)
    path.write_bytes(local + body + listing + end)


def test_members_that_overlap_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path, reads = tmp_path / "m.mkl", []
    _overlapping(path, 50, 10**5)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *args: reads.append(args))
    with pytest.raises(ModelFileError, match="larger than the file"):
        load(path)
    assert not reads


def test_a_list_of_contents_without_end_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "m.mkl"
    _overlapping(path, 60_001 * 70 // 59 + 1, 1)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(ModelFileError, match="too long"):
        load(path)


def test_arrays_are_not_repeated_without_end(saved, tmp_path):
    """A reference has thirty bytes, and what is made of an array may have as many."""
    big = np.zeros(2**16)

    def put(count):
        def change(content):
            one = {"$": "array", "is": 999}
            content["model"]["is"]["loss"] = [{"$": "tuple", "is": [one]}] * count

        path = _changed(saved, tmp_path / "m.mkl", change)
        return _forged(path, {**_members(path), "arrays/999.npy": _npy(big)})

    load(put(3))
    with pytest.raises(ModelFileError, match="too often"):
        load(put(2000))


def test_wide_sparse_arrays_are_refused(saved, tmp_path):
    def put(content):
        content["model"]["is"]["loss"] = {
            "$": "csr", "shape": [1, 10**12], "data": {"$": "array", "is": 901},
            "indices": {"$": "array", "is": 902}, "indptr": {"$": "array", "is": 903},
        }  # fmt: skip

    path = _changed(saved, tmp_path / "m.mkl", put)
    members = {
        **_members(path),
        "arrays/901.npy": _npy(np.zeros(0)),
        "arrays/902.npy": _npy(np.zeros(0, dtype=np.int64)),
        "arrays/903.npy": _npy(np.zeros(2, dtype=np.int64)),
    }
    with pytest.raises(ModelFileError, match="sparse"):
        load(_forged(path, members))


def test_an_array_that_is_used_often_is_written_again(tmp_path):
    writer, array = persistence._Writer(), np.ones(3)
    used = [writer.encode([array], "m")[0]["is"] for _ in range(200)]
    assert max(np.bincount(used)) <= 64 and len(dict(writer.members())) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["model"]["is"].pop("classes_"),
        lambda c: c["model"]["is"].update(n_features_in_=5),
        lambda c: c["model"]["is"].update(n_features_in_="4"),
        lambda c: c["model"]["is"].update(loss="\ud800"),
        lambda c: c["model"]["is"]["kernel_names_"]["is"].__setitem__(0, 1),
        lambda c: c["model"]["is"].update(solution_={"$": "slice", "is": [0, 1, 2]}),
    ],
)
def test_models_that_could_not_answer_are_refused(change, saved, tmp_path):
    with pytest.raises(ModelFileError):
        load(_changed(saved, tmp_path / "m.mkl", change))


def test_classes_and_numbers_are_finite(saved, tmp_path):
    members = _members(saved)
    state = json.loads(members["model.json"])["model"]["is"]
    (number,) = _numbers(state["classes_"])
    for bad in ([0.0, np.nan, 2.0], [0, 1, 1]):
        array = {f"arrays/{number}.npy": _npy(np.array(bad))}
        with pytest.raises(ModelFileError):
            load(_forged(tmp_path / "m.mkl", {**members, **array}))
    (number,) = _numbers(state["predictor_"]["is"]["A"])
    array = _array(members, number)
    array[array != 0] = 1.7e308 * np.sign(array[array != 0])  # finite, and no sum is
    with pytest.raises(ModelFileError):
        load(
            _forged(
                tmp_path / "m.mkl", {**members, f"arrays/{number}.npy": _npy(array)}
            )
        )


def test_one_score_is_for_two_classes(tmp_path):
    save(MKLClassifier(SETS).fit(X, TWO), tmp_path / "m.mkl")
    members = _members(tmp_path / "m.mkl")
    state = json.loads(members["model.json"])["model"]["is"]
    (number,) = _numbers(state["classes_"])
    for classes in ([False], [0, 1, 2]):
        array = {f"arrays/{number}.npy": _npy(np.array(classes))}
        with pytest.raises(ModelFileError, match="score for each class"):
            load(_forged(tmp_path / "m.mkl", {**members, **array}))


def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path):
    model = MKLClassifier(SETS).fit(X, Y)
    model.intercept_ = np.full(3, np.nan)
    with pytest.raises(ValueError, match="finite"):
        save(model, tmp_path / "m.mkl")
    assert os.listdir(tmp_path) == []
