"""Kernels on groups of columns: gene sets that overlap, and are not all in a table."""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from mklearn import KernelBank, MKLClassifier, MKLRegressor, MultiView
from mklearn.kernels import RBF, Linear, per_group
from mklearn.kernels.feature_source import SharedSource
from mklearn.kernels.groups import read_groups
from mklearn.persistence import load, save

rng = np.random.default_rng(0)
N, D = 40, 25
GENES = [f"g{j}" for j in range(D)]
TABLE = pd.DataFrame(rng.normal(size=(N, D)), columns=GENES)
Y = np.where(TABLE["g1"] + TABLE["g2"] + rng.normal(size=N) > 0, "ill", "well")
FEW = {"a": ["g1", "g2", "g3"], "b": ["g2", "g4", "other"], "tiny": ["g5", "elsewhere"]}
USED = {name: FEW[name] for name in ("a", "b")}


def many(count=50, size=4, seed=1):
    draw = np.random.default_rng(seed)
    return {
        f"set{i}": [GENES[j] for j in draw.choice(D, size, replace=False)]
        for i in range(count)
    }


# --- reading --------------------------------------------------------------------------


def test_groups_from_a_mapping_a_file_and_a_table(tmp_path):
    lines = ["\t".join([name, "an address", *genes]) for name, genes in FEW.items()]
    text = "\n".join(lines) + "\n"
    (tmp_path / "sets.gmt").write_text(text)
    with gzip.open(tmp_path / "sets.gmt.gz", "wt") as file:
        file.write(text)
    rows = [(name, gene) for name, genes in FEW.items() for gene in genes]
    table = pd.DataFrame(rows, columns=["set", "gene"])
    for groups in (FEW, tmp_path / "sets.gmt", str(tmp_path / "sets.gmt.gz"), table):
        assert read_groups(groups) == FEW
    assert read_groups({"twice": ["g1", "g1"], "numbers": np.array([1, 0])}) == {
        "twice": ["g1"], "numbers": [1, 0]
    }  # fmt: skip


def test_what_editors_leave_in_a_file_is_not_part_of_the_names(tmp_path):
    path = tmp_path / "sets.gmt"
    text = "# sets\r\n\r\n a\tx\tg1 \t g2\t\r\nb\t\tg3\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_groups(path) == {"a": ["g1", "g2"], "b": ["g3"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", "Line 1 .* has 2 fields"),
        ("\n# sets\na\tx\tg\n\nb\n", "Line 5 .* has 1 field;"),
        ("a\tx\t \n", "Line 1 .* has 2 fields"),
        ("a\tx\tg\n\tx\th\n", "Line 2 .* has no name"),
        ("a\tx\tg\na\tx\th\n", "several groups called 'a'"),
    ],
)
def test_files_that_are_no_gene_sets(tmp_path, text, message):
    path = tmp_path / "sets.gmt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        per_group(path)
    with pytest.raises(ValueError, match="cannot be read"):
        per_group(tmp_path / "nowhere.gmt")


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        ({}, {}, "no groups"),
        ([["g1"]], {}, "a mapping"),
        ({"a": "g1"}, {}, "is a single string, 'g1'"),
        (pd.DataFrame({"set": ["a"]}), {}, "in each row"),
        (FEW, {"min_size": 0}, "min_size must be"),
        (FEW, {"max_size": 1.5}, "max_size must be"),
        (FEW, {"kernel": Linear(columns=[0])}, "its own columns or view"),
        (FEW, {"kernel": "liner"}, "Unknown kernel"),
    ],
)
def test_groups_that_make_no_sense(groups, options, message):
    with pytest.raises(ValueError, match=message):
        per_group(groups, **options)


def test_numbers_that_name_columns_are_not_their_positions():
    # Entrez ids, read by pandas as integers, or as floats beside a missing one
    table = pd.DataFrame(TABLE.to_numpy(), columns=range(2, 2 + D))
    sets = pd.DataFrame({"set": list("aaabb"), "gene": [2, 3, 999, 3, 5]})
    floats = pd.DataFrame({"set": list("aaabbb"), "gene": [2, 3, 999, 3, 5, None]})
    for groups in (sets, floats, {"a": [2, 3, 999], "b": [3, np.int64(5), np.nan]}):
        report = per_group(groups).report(table)
        assert report.members == {"a": (0, 1), "b": (1, 3)}
        assert report.missing == {"a": ("999",)}
    positions = per_group({"a": [2, 3]}).report(TABLE)  # no column has such a name
    assert positions.members == {"a": (2, 3)}
    twice = table.set_axis([2, 2, *range(4, 2 + D)], axis=1)
    with pytest.raises(ValueError, match="several columns called '2'"):
        per_group(sets).report(twice)


def test_lazy_tables_of_groups():
    pl = pytest.importorskip("polars")
    sets = pl.DataFrame({"set": ["a", "a"], "gene": ["g1", "g2"]}).lazy()
    assert read_groups(sets) == {"a": ["g1", "g2"]}


def test_sizes_of_groups():
    assert per_group(FEW, min_size=np.int64(3)).min_size == 3
    with pytest.raises(ValueError, match="max_size must be at least min_size=5"):
        per_group(FEW, min_size=5, max_size=2)


def test_published_gene_sets():
    path = Path(os.environ.get("MKLEARN_DATA", "nowhere"), "omics", "hallmark.gmt")
    if not path.exists():
        pytest.skip("the gene sets are not in MKLEARN_DATA")
    sets = read_groups(path)
    assert len(sets) == 50 and "HALLMARK_HYPOXIA" in sets
    assert len(read_groups(path.with_name("pid.gmt"))) == 196


# --- what becomes of them -------------------------------------------------------------


def test_report_counts_and_names():
    family = per_group({**FEW, "one": ["g7"]})
    report = family.report(TABLE)
    assert report.sizes == {"a": 3, "b": 2}
    assert report.left_out == {"tiny": 1, "one": 1}
    assert report.missing == {"b": ("other",), "tiny": ("elsewhere",)}
    assert report.n_missing == 2  # of all groups, whether they are used or not
    assert (report.n_columns, report.n_covered, report.n_shared) == (D, 4, 1)
    assert report.largest_overlap == ("a", "b", 0.5)
    text = str(report)
    assert "2 columns named in groups are not in the table" in text
    assert "too many of the named columns are not in the table: 'tiny'" in text
    assert "1 group is left out because it is too small: 'one'" in text
    frame = report.to_frame()
    assert frame["used"].tolist() == [True, True, False, False]
    assert frame["missing"].tolist() == [0, 1, 1, 0]
    assert frame.loc["tiny", "reason"] == "too few columns in the table"
    assert frame.loc["a", "reason"] == ""
    largest = per_group(FEW, min_size=1, max_size=2).report(TABLE)
    assert largest.sizes == {"b": 2, "tiny": 1} and largest.left_out == {"a": 3}
    assert largest.reasons == {"a": "too large"}


def test_one_of_each_is_told_in_the_singular():
    one = per_group({"a": ["g1", "g2", "g3"], "b": ["g4", "g5", "x"]}, min_size=3)
    lines = str(one.report(TABLE)).split("\n")
    assert lines[0] == "1 group is used, of 3 columns."
    assert lines[1].startswith("It covers 3 of")
    assert "1 column named in groups is not in the table." in lines


def test_overlaps_of_pairs():
    sets = {"a": GENES[:4], "b": GENES[2:5], "c": GENES[3:9], "d": GENES[20:]}
    report = per_group(sets).report(TABLE)
    frame = report.overlap_frame()
    found = {(r.group, r.other): (r.shared, r.share) for r in frame.itertuples()}
    expected = {
        (a, b): (len(both), len(both) / min(len(sets[a]), len(sets[b])))
        for i, a in enumerate(sets)
        for b in list(sets)[i + 1 :]
        if (both := set(sets[a]) & set(sets[b]))
    }
    assert found == expected and frame["share"].is_monotonic_decreasing
    assert len(report.overlap_frame(1)) == 1
    apart = per_group({"x": ["g1"], "y": ["g2"]}, min_size=1).report(TABLE)
    assert apart.largest_overlap is None and len(apart.overlap_frame()) == 0


def test_groups_left_out_are_named_once_for_a_fit():
    family = per_group({**FEW, "one": ["g7"]})
    with pytest.warns(UserWarning) as said:
        MKLClassifier(family).fit(TABLE, Y)
    (warning,) = said
    assert "'tiny'" in str(warning.message) and "'one'" in str(warning.message)
    model = MKLClassifier(family.within(TABLE)).fit(TABLE, Y)  # and no warning
    assert model.kernel_names_ == ("a", "b")


def test_names_that_are_nowhere_in_the_table():
    with pytest.raises(ValueError, match=r"'ENSG1'.*same kind of name"):
        KernelBank(TABLE, per_group({"a": ["ENSG1", "ENSG2"]}))
    with pytest.raises(ValueError, match=r"No group has 5 to 6 columns"):
        KernelBank(TABLE, per_group(FEW, min_size=5, max_size=6))
    with pytest.raises(ValueError, match=r"several columns called 'g1'"):
        twice = TABLE.set_axis(["g1", "g1", *GENES[2:]], axis=1)
        KernelBank(MultiView({"rna": twice}), per_group(FEW))


def test_kernels_of_groups_are_kernels_on_columns():
    bank = KernelBank(TABLE, per_group(USED, kernel=RBF("scale")))
    assert bank.names == ("a", "b")
    expected = KernelBank(
        TABLE, [RBF("scale", columns=FEW["a"]), RBF("scale", columns=["g2", "g4"])]
    )
    for m in range(2):
        np.testing.assert_array_equal(bank.gram(m), expected.gram(m))
    both = KernelBank(TABLE, per_group(USED, kernel=["linear", "rbf"])).names
    assert both == ("a:linear", "b:linear", "a:rbf(1/median)", "b:rbf(1/median)")


def test_groups_of_one_view_of_several():
    X = MultiView({"rna": TABLE, "clinic": rng.normal(size=(N, 2))})
    family = [per_group(USED, view="rna"), Linear(view="clinic")]
    model = MKLClassifier(family).fit(X, Y)
    assert model.kernel_names_ == ("rna:a", "rna:b", "clinic:linear")
    assert clone(model).fit(X, Y).score(X, Y) == model.score(X, Y)
    with pytest.raises(ValueError, match="several views"):
        KernelBank(X, per_group(USED))


# --- many groups share their columns --------------------------------------------------


def pair(data, standardize=False):
    """Return a bank that shares columns, and one of the same kernels that does not."""
    family = per_group(many(), kernel=Linear(standardize=standardize))
    shared = KernelBank(data, family)
    return shared, [KernelBank(data, kernel) for kernel in shared.kernels]


def holes():
    table = TABLE.to_numpy().copy()
    table[[3, 7]] = np.nan
    return MultiView({"X": pd.DataFrame(table, columns=GENES)})


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("data", ["table", "sparse", "holes"])
def test_shared_columns_give_the_kernels_one_by_one(data, standardize):
    X = {
        "table": TABLE,
        "sparse": MultiView({"X": sparse.csr_array(np.maximum(TABLE.to_numpy(), 0))}),
        "holes": holes(),
    }[data]
    if data == "sparse":
        X = MultiView.from_table(X["X"], GENES)
    shared, apart = pair(X, standardize)
    assert [type(part.source) for part in shared._parts] == [SharedSource]
    A = rng.normal(size=(N, 2))
    theta = rng.uniform(size=50)
    grams = np.stack([bank.gram(0) for bank in apart])
    eps = np.finfo(float).eps
    # sums over columns, kernels and samples, each of a size of at most
    near = {"rtol": 0, "atol": 50 * N * D * eps * np.abs(grams).max()}
    for m in (0, 17, 49):
        np.testing.assert_allclose(shared.gram(m), grams[m], **near)
    expected = np.tensordot(theta, grams, 1)
    np.testing.assert_allclose(shared.combine(theta), expected, **near)
    products = np.einsum("mij,jt->itm", grams, A)
    np.testing.assert_allclose(shared.multiply(A), products, **near)
    quads = np.einsum("it,itm->m", A, products)
    size = N * D * eps * np.abs(grams).max() * np.abs(A).sum() ** 2
    np.testing.assert_allclose(shared.quad(A), quads, rtol=0, atol=size)
    part = shared[np.ix_([1, 2, 5], [0, 3])].select([4, 9])
    np.testing.assert_allclose(
        part.gram(1), grams[9][np.ix_([1, 2, 5], [0, 3])], **near
    )
    new = X[:5] if isinstance(X, MultiView) else X.iloc[:5]
    cross = shared.cross(new)
    np.testing.assert_allclose(cross.gram(3), grams[3][:5], **near)
    again = KernelBank.from_state(shared.reference(np.arange(N)).state())
    np.testing.assert_allclose(again.cross(new).gram(3), grams[3][:5], **near)


def test_thousands_of_groups_take_the_room_of_their_columns():
    bank = KernelBank(TABLE, per_group(many(3000))).stored()
    assert bank.shape == (N, N, 3000)
    source = bank._parts[0].source
    assert source.rows.nbytes == TABLE.to_numpy().nbytes
    assert bank.estimate_memory().stored == 0


@pytest.mark.parametrize("normalize", ["multiplicative", "center", "spherical", None])
def test_models_of_shared_columns(normalize, tmp_path):
    family = per_group(many())
    model = MKLClassifier(family, norm=1, normalize=normalize, tol=1e-6).fit(TABLE, Y)
    grams = [KernelBank(TABLE, kernel).gram(0) for kernel in model.kernels_]
    stack = np.stack(grams, axis=2)
    given = MKLClassifier("precomputed", norm=1, normalize=normalize, tol=1e-6)
    given.fit(stack, Y)
    upper = given.solution_.upper
    assert model.duality_gap_ <= 1e-6
    assert abs(model.solution_.upper - upper) <= 2e-6 * abs(upper)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))
    np.testing.assert_allclose(
        again.decision_function(TABLE), model.decision_function(TABLE), atol=1e-8
    )


def test_low_rank_of_groups():
    family = per_group(many(12))
    exact = MKLRegressor(family, norm=1, tol=1e-6).fit(TABLE, TABLE["g1"])
    low = MKLRegressor(family, norm=1, tol=1e-6, approximation="nystroem", rank=4)
    low.fit(TABLE, TABLE["g1"])
    assert np.isclose(low.solution_.upper, exact.solution_.upper, rtol=1e-5)


def test_one_norm_on_overlapping_groups_is_the_latent_group_lasso():
    # Obozinski, Jacob, Vert: columns of several groups are repeated, one for each
    pytest.importorskip("skglm", reason="skglm is not installed")
    from skglm.datafits import QuadraticGroup
    from skglm.penalties import WeightedGroupL2
    from skglm.solvers import GroupBCD
    from skglm.utils.data import grp_converter

    sets = many(40, 5)
    y = (TABLE["g1"] - TABLE["g2"] + 0.5 * rng.normal(size=N)).to_numpy()
    model = MKLRegressor(
        per_group(sets), C=0.3, norm=1, loss="squared", normalize=None, tol=1e-10
    ).fit(TABLE, y)
    # C/2 sum r^2 + ½ (sum |w_m|)^2 has the minimiser of 1/(2n) sum r^2 + lam sum |w_m|
    # for lam = sum |w_m| / (n C)
    A = np.zeros(N)
    A[model.support_] = model.dual_coef_[0]
    centred = TABLE.to_numpy()
    w = [
        theta * centred[:, list(kernel.columns)].T @ A
        for theta, kernel in zip(model.kernel_weights_, model.kernels_, strict=True)
    ]
    total = sum(np.linalg.norm(part) for part in w)
    columns = np.concatenate([list(kernel.columns) for kernel in model.kernels_])
    repeated = np.asfortranarray(centred[:, columns])
    indices, ends = grp_converter([5] * 40, repeated.shape[1])
    penalty = WeightedGroupL2(total / (N * 0.3), np.ones(40), ends, indices)
    solver = GroupBCD(tol=1e-12, fit_intercept=True, max_iter=1000)
    found = solver.solve(repeated, y, QuadraticGroup(ends, indices), penalty)[0]
    theirs, intercept = found[:-1], found[-1]
    np.testing.assert_allclose(
        repeated @ theirs + intercept, model.predict(TABLE), atol=1e-4
    )
    norms = np.linalg.norm(theirs.reshape(40, 5), axis=1)
    ours = np.array([np.linalg.norm(part) for part in w])
    np.testing.assert_allclose(ours, norms, atol=1e-3 * total)
    assert 0 < np.count_nonzero(norms) < 40
    assert set(np.flatnonzero(norms > 1e-2 * total)) <= set(np.flatnonzero(ours))
