"""Dask: the same answers from a cluster, whatever becomes of its workers."""

import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import dask
import dask.array as da
import dask.dataframe as dd
import demo_large
import joblib
import numpy as np
import pandas as pd
import pytest
from dask.distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from mklearn import (
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLRegressor,
)
from mklearn.blocks import ArrayBlocks, DaskBlocks
from mklearn.data.dask import ClusterError, is_dask
from mklearn.data.reading import as_blocks, by_blocks
from mklearn.datasets import make_groups
from mklearn.kernels import RBF, Linear
from mklearn.solvers import Newton, Status
from reproduction import Settings, Table, run
from reproduction.cells import Protocol

N = 600


# The time-out of connections keeps its default of 30 seconds: a worker that wants data
# from a killed one tries to connect until then.
SETTINGS = {
    "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
    # a worker that takes longer to come back is given up for good
    "distributed.deploy.lost-worker-timeout": "10 minutes",
    # on a busy machine workers are slow to answer
    "distributed.comm.timeouts.tcp": "10 minutes",
    "distributed.scheduler.worker-ttl": None,
}


@contextmanager
def workers(count):
    with (
        dask.config.set(SETTINGS),
        # closing fails if the removal of a killed worker is announced once more, which
        # depends on the load (dask/distributed#5407)
        suppress(KeyError),
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs="CRITICAL",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def cluster():
    with workers(2) as client:
        yield client


@pytest.fixture
def client(cluster):
    # a test before may have killed a worker, whose successor takes a while
    cluster.wait_for_workers(2, timeout=600)
    return cluster


@pytest.fixture(scope="module")
def samples():
    return make_groups(N, n_noise=0, random_state=0)


def scatter(block):
    return (block.X * block.weight[:, None]).T @ block.X


def double(block):
    return block._replace(X=2 * block.X)


def count(block):
    return block.n_rows


def labels(block):
    return block.y


# --- blocks ---------------------------------------------------------------------------


def test_what_is_of_dask(samples):
    X, y = samples
    assert is_dask(da.from_array(X))
    assert is_dask(dd.from_pandas(pd.DataFrame(X), npartitions=2))
    assert not any(is_dask(thing) for thing in (X, pd.DataFrame(X), None, "dask", dask))
    assert as_blocks(X, y) is None
    assert isinstance(as_blocks(da.from_array(X), y), DaskBlocks)


@pytest.mark.parametrize("chunks", [(100, 12), (37, 5), (N, 1)])
def test_arrays_are_summed_as_in_memory(samples, chunks):
    X, y = samples
    weight = np.arange(N) % 3.0
    expected = ArrayBlocks(X, y, weight).reduce(scatter)
    with dask.config.set(scheduler="synchronous"):
        for targets in (y, da.from_array(y, chunks=50), da.from_array(y, chunks=N)):
            blocks = DaskBlocks(da.from_array(X, chunks=chunks), targets, weight)
            assert np.allclose(blocks.reduce(scatter), expected, rtol=1e-12)
            assert np.array_equal(np.concatenate(blocks.map(labels)), y)
            assert sum(blocks.map(count)) == N
            assert np.allclose(blocks.then(double).reduce(scatter), 4 * expected)


def test_frames_are_summed_as_in_memory(samples):
    X, y = samples
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)]).assign(label=y)
    table = dd.from_pandas(frame, npartitions=5)
    chosen = table[table.c0 > 0.5]  # sizes are unknown now
    kept = X[:, 0] > 0.5
    columns = [f"c{i}" for i in range(12)]
    with dask.config.set(scheduler="synchronous"):
        blocks = DaskBlocks(chosen[columns], chosen["label"])
        assert blocks.names == tuple(columns)
        expected = X[kept].T @ X[kept]
        assert np.allclose(blocks.reduce(scatter), expected, rtol=1e-12)
        assert np.array_equal(np.concatenate(blocks.map(labels)), y[kept])
        none = table[table.c0 > 100.0]
        assert DaskBlocks(none[columns], none["label"]).map(count) == []
        with pytest.raises(ValueError, match="contains no samples"):
            DaskBlocks(none[columns], none["label"]).reduce(count)


def test_partitions_that_a_filter_empties_say_nothing(samples):
    X, y = samples
    columns = [f"c{i}" for i in range(12)]
    frame = pd.DataFrame(X, columns=columns).assign(label=np.array(["a", "b"])[y])
    parts = [frame.iloc[:0], frame.iloc[:150], pd.DataFrame(columns=frame.columns)]
    table = dd.from_map(lambda i: [*parts, frame.iloc[150:]][i], range(4), meta=frame)
    model = MKLClassifier(SPECS, loss="logistic", **LOW)
    expected = clone(model).fit(frame[columns], frame["label"])
    with dask.config.set(scheduler="synchronous"):
        blocks = DaskBlocks(table[columns], table["label"])
        assert blocks.map(count) == [150, 450]
        assert [block.n_rows for block in blocks] == [150, 450]
        model.fit(table[columns], table["label"])
        answers = model.predict(table[columns]).compute()
    np.testing.assert_allclose(
        model.decision_function(frame[columns]),
        expected.decision_function(frame[columns]),
        atol=1e-3,
    )
    assert np.array_equal(answers, expected.predict(frame[columns]))


def test_what_samples_and_targets_share_is_computed_once():
    made = []

    def make(number):
        made.append(number)
        return make_groups(20, n_noise=0, random_state=[0, number])

    pairs = [dask.delayed(make, nout=2)(number) for number in range(3)]
    X = da.concatenate([da.from_delayed(X, (20, 12), float) for X, _ in pairs])
    y = da.concatenate([da.from_delayed(y, (20,), int) for _, y in pairs])
    with dask.config.set(scheduler="synchronous"):
        assert DaskBlocks(X, y).reduce(count) == 60
    assert sorted(made) == [0, 1, 2]


def test_large_partitions_are_worked_on_in_blocks(samples):
    X, y = samples
    with dask.config.set(scheduler="synchronous"):
        blocks = DaskBlocks(da.from_array(X, chunks=(N // 2, 12)), y, rows=70)
        assert blocks.map(count) == 2 * [70, 70, 70, 70, 20]


class Tally:
    """A sum that knows how many of its kind are alive."""

    alive: ClassVar[set] = set()
    most = 0

    def __init__(self, value):
        self.value = value
        Tally.alive.add(id(self))
        Tally.most = max(Tally.most, len(Tally.alive))

    def __del__(self):
        Tally.alive.discard(id(self))

    def __add__(self, other):
        return Tally(self.value + other.value)


@pytest.mark.parametrize("partitions", [1, 3, 16, 50, 800])
def test_few_sums_are_held_however_many_partitions(partitions, monkeypatch):
    monkeypatch.setattr("mklearn.data.dask._leaves", lambda: 16)
    Tally.alive, Tally.most = set(), 0
    X = da.ones((2 * partitions, 3), chunks=(2, 3))
    with dask.config.set(scheduler="synchronous"):
        total = DaskBlocks(X).reduce(lambda block: Tally(float(block.X.sum())))
    assert total.value == 6 * partitions
    # three on each of two levels, one that grows, what is added to it, and their sum
    assert Tally.most <= 10


def test_large_clusters_have_more_sums_at_a_time(monkeypatch):
    from mklearn.data import dask as distributed

    class Cluster:
        def __init__(self, cores):
            self.cores = cores

        def nthreads(self):
            return {"a": self.cores - 1, "b": 1}

    for cores, leaves in ((1, 16), (4, 16), (5, 64), (16, 64), (800, 4096)):
        monkeypatch.setattr("distributed.get_client", lambda n=cores: Cluster(n))
        assert distributed._leaves() == leaves


def test_bad_partitions_are_told(samples):
    X, y = samples
    array = da.from_array(X, chunks=(100, 12))
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    for bad, message in (
        (lambda: DaskBlocks(X), "needs a Dask array"),
        (lambda: DaskBlocks(array[0]), "needs a Dask array"),
        (lambda: DaskBlocks(array, y[:-1]), "600 samples but y has 599"),
        (lambda: DaskBlocks(array, da.ones(599)), "600 samples but y has 599"),
        (lambda: DaskBlocks(frame, y), "sizes of X's partitions are not known"),
        (lambda: DaskBlocks(frame, da.ones(N, chunks=N)), "3 partitions but y has 1"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()
    holes = array.map_blocks(torn, dtype=float)
    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(ValueError, match=r"Partition 2 of .* NaN or infinity"):
            DaskBlocks(holes, y).reduce(count)
        short = frame.to_dask_array()
        with pytest.raises(ValueError, match="X has 200 samples but y has 300"):
            DaskBlocks(short, da.ones(900, chunks=300)).reduce(count)


def torn(part, block_id=None):
    return np.full_like(part, np.nan) if block_id[0] == 2 else part


# --- workers --------------------------------------------------------------------------


def die_once(part, marker, block_id=None):
    """Return the part; the first worker that is asked for partition 4 dies of it."""
    if block_id[0] == 4 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def test_sums_are_the_same_to_the_last_digit(client, samples):
    X, y = samples
    blocks = DaskBlocks(da.from_array(X, chunks=(50, 12)), y)
    with dask.config.set(scheduler="synchronous"):
        alone = blocks.reduce(scatter)
    assert np.array_equal(blocks.reduce(scatter), alone)
    assert np.array_equal(blocks.then(double).reduce(scatter), 4 * alone)


def test_a_killed_worker_does_not_change_a_sum(client, samples, tmp_path):
    X, y = samples
    array = da.from_array(X, chunks=(50, 12))
    expected = DaskBlocks(array, y).reduce(scatter)
    dying = array.map_blocks(die_once, marker=str(tmp_path / "died"), dtype=float)
    blocks = DaskBlocks(dying, y).then(double)
    assert np.array_equal(blocks.reduce(scatter), 4 * expected)
    assert (tmp_path / "died").exists()


# --- predictions ----------------------------------------------------------------------


class Half:
    """A model whose answers are known."""

    classes = np.array(["no", "yes"])
    calls = 0

    @by_blocks
    def predict(self, X):
        """Return a word for each sample."""
        type(self).calls += 1
        return self.classes[(np.asarray(X)[:, 0] > 0).astype(int)]

    @by_blocks
    def transform(self, X):
        """Return half of some columns."""
        return 0.5 * np.asarray(X)[:, :3]


def test_predictions_are_lazy(samples):
    X, _ = samples
    model = Half()
    expected = model.predict(X)
    Half.calls = 0
    answer = model.predict(da.from_array(X, chunks=(100, 5)))
    assert Half.calls == 1  # one made-up sample, for the type
    assert is_dask(answer)
    assert answer.shape == (N,)
    assert answer.dtype == expected.dtype
    assert answer.chunks == ((100,) * 6,)
    with dask.config.set(scheduler="synchronous"):
        assert np.array_equal(answer.compute(), expected)
        half = model.transform(da.from_array(X, chunks=(100, 12)))
        assert half.chunks == ((100,) * 6, (3,))
        assert np.array_equal(half.compute(), model.transform(X))
    assert Half.calls == 7


def test_predictions_on_frames(samples):
    X, _ = samples
    model = Half()
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)])
    table = dd.from_pandas(frame, npartitions=4)
    table = table[table.c1 > 1.0]  # one partition may be empty
    with dask.config.set(scheduler="synchronous"):
        expected = model.predict(frame[frame.c1 > 1.0])
        assert np.array_equal(model.predict(table).compute(), expected)
        none = table[table.c1 > 100.0]
        assert model.transform(none).compute().shape == (0, 3)


# --- models ---------------------------------------------------------------------------

SPECS = [
    RBF(0.1, columns=range(4)),
    RBF(0.5, columns=range(4, 8)),
    Linear(columns=range(8, 12)),
]
LOW = {"approximation": "nystroem", "rank": 20}


def die_at(part, folder, time, block_id=None):
    """Return the part; a worker dies when partition 2 is made for the nth time."""
    if block_id[0] == 2:
        before = len(list(Path(folder).iterdir()))
        (Path(folder) / str(before)).touch()
        if before + 1 == time:
            os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize("chunks", [(90, 12), (250, 7)])
def test_models_are_those_in_memory(samples, chunks, scheduler):
    X, y = samples
    model = MKLClassifier(SPECS, loss="squared", **LOW)
    expected = clone(model).fit(X, y)
    rows, labels = da.from_array(X, chunks=chunks), da.from_array(y, chunks=200)
    with dask.config.set(scheduler=scheduler):
        model.fit(rows, labels)
        scores = model.decision_function(rows).compute()
        classes = model.predict(rows).compute()
    np.testing.assert_allclose(
        model.kernel_weights_, expected.kernel_weights_, atol=1e-8
    )
    np.testing.assert_allclose(scores, expected.decision_function(X), atol=1e-8)
    assert np.array_equal(classes, expected.predict(X))


def test_partitions_in_single_precision_give_the_same_model(samples):
    # rounding is all that the numbers differ by: no other landmarks, no other answer
    X, y = samples
    whole = da.from_array(X, chunks=(100, 12))
    single = whole.astype(np.float32)
    mixed = da.concatenate([single[:300], whole[300:]])
    model = MKLClassifier(SPECS, loss="squared", tol=1e-8, **LOW)
    with dask.config.set(scheduler="synchronous"):
        expected = clone(model).fit(whole, y).decision_function(X)
        for rows in (mixed, single):
            found = clone(model).fit(rows, y).decision_function(X)
            np.testing.assert_allclose(found, expected, atol=1e-4)


def counted(part, folder, block_id=None):
    (Path(folder) / f"{block_id[0]}-{uuid4().hex}").touch()
    return part


@pytest.mark.parametrize("room", [None, 2**16])
@pytest.mark.parametrize("scheduler", ["synchronous", "distributed"])
def test_workers_keep_features_where_they_have_memory(
    client, samples, tmp_path, scheduler, room
):
    # a partition is read for the sample and its labels, and once for its features; or
    # in every pass
    X, y = samples
    rows = da.from_array(X, chunks=(100, 12)).map_blocks(
        counted, tmp_path, dtype=float, meta=np.zeros((0, 0))
    )
    model = MKLClassifier(SPECS, loss="logistic", **LOW)
    if room is not None:  # less than the features take
        model.set_params(memory_limit=room, rank=2)
    expected = clone(model).fit(da.from_array(X, chunks=(100, 12)), y)
    scheduler = client if scheduler == "distributed" else scheduler
    with dask.config.set(scheduler=scheduler):
        model.fit(rows, y)
    read = len(list(tmp_path.glob("2-*")))
    assert read == 3 if room is None else read > model.n_iter_
    np.testing.assert_allclose(
        model.kernel_weights_, expected.kernel_weights_, atol=1e-8
    )


@pytest.mark.parametrize("model", [MKLClassifier, MKLRegressor, MKLDiscriminant])
def test_a_fit_joins_samples_and_targets_once(samples, model, monkeypatch):
    X, y = samples
    built = []
    joined = DaskBlocks.__init__
    monkeypatch.setattr(
        DaskBlocks,
        "__init__",
        lambda self, *args: built.append(self) or joined(self, *args),
    )
    with dask.config.set(scheduler="synchronous"):
        model(SPECS, **LOW).fit(da.from_array(X, chunks=(300, 12)), y)
    assert len(built) == 1


def test_models_on_frames(samples):
    X, y = samples
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)])
    words = np.array(["no", "yes"])[y]
    table = dd.from_pandas(frame.assign(label=words), npartitions=4)
    rows = table[list(frame.columns)]
    model = MKLClassifier(SPECS, loss="logistic", **LOW)
    expected = clone(model).fit(frame, words)
    with dask.config.set(scheduler="synchronous"):
        model.fit(rows, table["label"])
        assert model.feature_names_in_.tolist() == list(frame.columns)
        probabilities = model.predict_proba(rows)
        assert is_dask(probabilities)
        found = probabilities.compute()
        assert (
            model.predict(rows).compute().tolist() == expected.predict(frame).tolist()
        )
    np.testing.assert_allclose(found, expected.predict_proba(frame), atol=1e-3)


def test_discriminants_transform_lazily(samples):
    X, y = samples
    model = MKLDiscriminant(SPECS, **LOW)
    expected = clone(model).fit(X, y)
    rows = da.from_array(X, chunks=(150, 12))
    with dask.config.set(scheduler="synchronous"):
        model.fit(rows, da.from_array(y, chunks=150))
        turned = model.transform(rows)
        assert is_dask(turned) and turned.chunks == ((150,) * 4, (1,))
        sign = np.sign(turned[0].compute() @ expected.transform(X[:1])[0])
        np.testing.assert_allclose(
            sign * turned.compute(), expected.transform(X), atol=1e-6
        )
        assert np.array_equal(model.predict(rows).compute(), expected.predict(X))


def test_regression_on_weighted_rows(samples):
    X, _ = samples
    y, weight = X[:, 0] ** 2 + X[:, 9], np.arange(N) % 3.0
    model = MKLRegressor(SPECS, tol=1e-8, **LOW)
    expected = clone(model).fit(X, y, sample_weight=weight).predict(X)
    rows = da.from_array(X, chunks=(100, 12))
    with dask.config.set(scheduler="synchronous"):
        model.fit(rows, da.from_array(y, chunks=100), sample_weight=weight)
        np.testing.assert_allclose(model.predict(rows).compute(), expected, atol=1e-6)


@pytest.mark.parametrize(("loss", "time"), [("squared", 3), ("squared_hinge", 6)])
def test_a_killed_worker_does_not_change_a_model(client, samples, tmp_path, loss, time):
    X, y = samples
    # no room to keep features: a part is made again in every pass
    model = MKLClassifier(SPECS, loss=loss, memory_limit=2**16, **LOW)
    rows = da.from_array(X, chunks=(100, 12))
    expected = clone(model).fit(rows, y)
    dying = rows.map_blocks(die_at, folder=str(tmp_path), time=time, dtype=float)
    model.fit(dying, y)
    assert len(list(tmp_path.iterdir())) > time  # it died, and the part was made again
    assert np.array_equal(model.kernel_weights_, expected.kernel_weights_)
    assert np.array_equal(model.decision_function(X), expected.decision_function(X))


def test_dask_needs_an_approximation(samples):
    X, y = samples
    with pytest.raises(ValueError, match="approximation='nystroem'"):
        MKLClassifier(SPECS).fit(da.from_array(X), y)


def test_the_large_demonstration(client, capsys):
    found = demo_large.learn(client.cluster, 3000, rank=20, block=500, n_test=1000)
    assert found["accuracy"] > 0.75
    assert found["gap"] <= 1e-3
    weights = found["weights"]
    noise = sum(w for name, w in weights.items() if name.startswith("noise"))
    assert len(weights) == 10 and noise < 0.2
    assert "of 18 partitions" in capsys.readouterr().err  # three passes over six


# --- many targets ---------------------------------------------------------------------

OWN = {
    EvidenceMKLRegressor: {"weights": "per-target", "tol": 1e-6},
    MKLRegressor: {"weights": "per-target", "tol": 1e-9},
}
BOTH = pytest.mark.parametrize("model", OWN)


def many_targets():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    Y = np.sin(X @ rng.standard_normal((4, 40))) + 0.3 * rng.standard_normal((60, 40))
    return X, Y


def noted(part, folder, dies=False, block_id=None):
    """Return the part, and note who reads it; the first to read chunk 2 may die."""
    first = not list(Path(folder).glob(f"{block_id[1]}-*"))
    (Path(folder) / f"{block_id[1]}-{os.getpid()}-{uuid4().hex}").touch()
    if dies and first and block_id[1] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


class Marked(Newton):
    """A solver that notes where it arrives."""

    def __reduce__(self):
        return arrived, (self.folder,)


def arrived(folder):
    (Path(folder) / f"solver-{os.getpid()}-{uuid4().hex}").touch()
    return marked(folder)


def marked(folder):
    solver = Marked()
    object.__setattr__(solver, "folder", folder)
    return solver


@BOTH
@pytest.mark.parametrize("dies", [False, True])
def test_chunks_of_targets_are_fitted_on_workers(client, model, tmp_path, dies):
    X, Y = many_targets()
    held = model("rbf", **OWN[model]).fit(X, Y)
    folder = str(tmp_path)
    lazy = da.from_array(Y, chunks=(60, 6)).map_blocks(
        noted, folder, dies=dies, dtype=float, meta=np.zeros((0, 0))
    )
    options = {"solver": marked(folder)} if model is MKLRegressor else {}
    found = model("rbf", **OWN[model], **options).fit(X, lazy)
    size = 0.01 * np.abs(held.kernel_weights_).max()
    np.testing.assert_allclose(found.kernel_weights_, held.kernel_weights_, atol=size)
    np.testing.assert_allclose(found.predict(X), held.predict(X), atol=0.01)
    assert found.solution_.status is held.solution_.status
    readers = [path.name.split("-") for path in tmp_path.glob("[0-9]-*")]
    assert all(int(pid) != os.getpid() for _, pid, _ in readers)
    if dies:
        assert len([number for number, *_ in readers if number == "2"]) > 1
    else:
        # each chunk was read once, and the problem sent to workers, not with each chunk
        assert sorted(number for number, *_ in readers) == list("0123456")
        arrivals = [path.name.split("-")[1] for path in tmp_path.glob("solver-*")]
        assert len(set(arrivals)) == (2 if options else 0)
        assert len(arrivals) < 7  # on a busy machine Dask may send it once more


def test_the_only_worker_may_die(tmp_path):
    X, Y = many_targets()
    lazy = da.from_array(Y, chunks=(60, 15)).map_blocks(
        noted, str(tmp_path), dies=True, dtype=float, meta=np.zeros((0, 0))
    )
    model = EvidenceMKLRegressor("rbf", **OWN[EvidenceMKLRegressor])
    with dask.config.set(scheduler="synchronous"):
        expected = clone(model).fit(X, da.from_array(Y, chunks=(60, 15)))
    with workers(1):
        found = model.fit(X, lazy)
    assert np.array_equal(found.kernel_weights_, expected.kernel_weights_)
    readers = {path.name.split("-")[1] for path in tmp_path.glob("2-*")}
    assert len(readers) == 2


@BOTH
def test_targets_keep_the_limits_on_workers(client, model):
    X, Y = many_targets()
    lazy = da.from_array(Y.astype(np.float32), chunks=(60, 6))
    with pytest.warns(ConvergenceWarning):
        found = model("rbf", weights="per-target", time_limit=1e-9).fit(X, lazy)
    assert found.solution_.status is Status.TIME_LIMIT
    np.testing.assert_allclose(found.predict(X)[0], Y.mean(axis=0), atol=1e-5)
    calls = []

    def stop(history):
        calls.append(len(history))
        return len(history) == 3

    with pytest.warns(ConvergenceWarning):
        found = model("rbf", weights="per-target", callback=stop).fit(X, lazy)
    assert calls == [1, 2, 3]
    assert found.solution_.status is Status.CALLBACK
    # three chunks are fitted, the targets of others have their mean
    varied = np.ptp(found.predict(X), axis=0) > 1e-5
    assert sum(part.any() for part in np.split(varied, range(6, 40, 6))) == 3
    with pytest.raises(ValueError, match="y contains NaN"):
        found.fit(X, da.where(lazy > 1, np.nan, lazy))


# --- many fits at a time --------------------------------------------------------------


def fit_cell(cell, seed):
    """Return what a cell would, and where it was worked on."""
    X, y = make_groups(60, n_noise=0, random_state=[seed, cell.repetition])
    model = MKLClassifier(Linear(), C=1.0).fit(X, y)
    return {"accuracy": 100 * model.score(X, y), "process": os.getpid()}


PLAN = Protocol(
    name="plan",
    title="A plan",
    tables=(Table("1", "one", ("wine",), ("linear",), 6),),
    work=fit_cell,
    choices={},
    files={"wine": "wine"},
    printed=lambda folder: {},
    quick=(),
    bands=(),
)


def test_reproduction_runs_on_a_cluster(client, tmp_path):
    with joblib.parallel_config(backend="dask"):
        found = run(PLAN, tmp_path / "cluster", Settings())
    alone = run(PLAN, tmp_path / "alone", Settings())
    assert len(found.cells) == 6
    for cell, values in found.cells.items():
        assert values["accuracy"] == alone.cells[cell]["accuracy"]
        assert values["process"] != os.getpid()


def judged(model, X, y):
    return {"accuracy": model.score(X, y), "process": os.getpid()}


def test_model_selection_runs_on_a_cluster(client, samples):
    X, y = samples[0][:90], samples[1][:90]
    search = GridSearchCV(
        MKLClassifier([Linear(), RBF(0.1)]),
        {"C": [0.1, 10.0]},
        cv=3,
        scoring=judged,
        refit="accuracy",
    )
    alone = search.fit(X, y).cv_results_
    with joblib.parallel_config(backend="dask"):
        found = search.fit(X, y).cv_results_
    for split in range(3):
        name = f"split{split}_test_accuracy"
        assert np.array_equal(found[name], alone[name])
        assert (found[f"split{split}_test_process"] != os.getpid()).all()
    own = MKLClassifierCV([Linear(), RBF(0.1)], Cs=[0.1, 10.0], cv=3)
    alone = own.fit(X, y).mean_scores_
    with joblib.parallel_config(backend="dask"):
        assert np.array_equal(own.fit(X, y).mean_scores_, alone)


# --- clusters that are lost -----------------------------------------------------------


def die_until(part, flag, block_id=None):
    """Return the part; from partition 17 on workers die until a file is there."""
    if block_id[0] > 16 and not Path(flag).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def wait_for_ever(part, flag):
    Path(flag).touch()
    threading.Event().wait()
    return part


def test_sums_go_on_where_a_cluster_was_lost(client, samples, tmp_path, monkeypatch):
    X, y = samples
    flag = tmp_path / "mended"
    model = MKLClassifier(SPECS, loss="squared", **LOW)
    sums = model.accumulator(X)
    expected = sums.copy()
    expected.update(X, y)
    rows = da.from_array(X, chunks=(30, 12)).map_blocks(die_until, flag, dtype=float)
    labels = da.from_array(y, chunks=30)
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(
        ClusterError,
        match=r"the first 16 of 20 partitions have been added.*partitions\[16:",
    ):
        sums.update(rows, labels)
    assert sums.n_rows == 16 * 30
    flag.touch()
    client.wait_for_workers(2, timeout=600)
    sums.update(rows.partitions[16:], labels.partitions[16:])
    assert sums.n_rows == N
    a, b = sums.gathered().statistics, expected.gathered().statistics
    np.testing.assert_allclose(a.ZZ, b.ZZ, atol=1e-9 * np.abs(b.ZZ).max())
    np.testing.assert_allclose(a.ZH, b.ZH, atol=1e-9 * np.abs(b.ZH).max())


def fit_targets(rows, y):
    targets = da.concatenate([rows, rows], axis=1)
    MKLRegressor("linear", weights="per-target").fit(np.eye(len(y)), targets)


FITS = pytest.mark.parametrize(
    "fit", [MKLClassifier(SPECS, **LOW).fit, fit_targets], ids=["rows", "targets"]
)


@FITS
def test_a_scheduler_that_was_restarted_is_told(client, samples, tmp_path, fit):
    X, y = samples
    flag = tmp_path / "begun"
    rows = da.from_array(X, chunks=(100, 12)).map_blocks(
        wait_for_ever, flag, dtype=float, meta=np.zeros((0, 0))
    )

    def restart():
        while not flag.exists():
            time.sleep(0.05)
        client.restart(timeout=600)

    thread = threading.Thread(target=restart)
    thread.start()
    with pytest.raises(ClusterError, match=r"restarted.*fit again"):
        fit(rows, y)
    thread.join()


@FITS
def test_a_cluster_without_workers_is_told(samples, fit):
    X, y = samples
    rows = da.from_array(X, chunks=(100, 12))
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
        dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"}),
        pytest.raises(ClusterError, match="no worker"),
    ):
        fit(rows, y)
