"""Tables whose rows have names: put into one order, joined, paired with labels."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split

from mklearn import (
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLCox,
    MKLCoxCV,
    MKLRegressor,
    MKLSurvivalSVM,
    MultiView,
)
from mklearn.blocks import AnnDataBlocks
from mklearn.interpretation import decision_parts
from mklearn.kernels import Linear, per_view

rng = np.random.default_rng(0)
N = 40
IDS = [f"p{i:02d}" for i in range(N)]
Y = pd.Series(np.where(np.arange(N) % 2, "ill", "well"), index=IDS)
RNA = pd.DataFrame(
    rng.normal(size=(N, 3)) + (Y == "ill").to_numpy()[:, None],
    index=IDS,
    columns=["g1", "g2", "g3"],
)
PROTEIN = pd.DataFrame(rng.normal(size=(N, 2)), index=IDS, columns=["a", "b"])
SHUFFLED = rng.permutation(N)
KERNELS = per_view(Linear())


def same(X, Z):
    assert X.names == Z.names
    for name in X.names:
        a, b = X[name], Z[name]
        if sparse.issparse(a):
            a, b = a.toarray(), b.toarray()
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(X.absent(name), Z.absent(name))


# --- one order ------------------------------------------------------------------------


def test_rows_of_one_label_are_one_sample():
    sorted_ = MultiView({"rna": RNA, "protein": PROTEIN})
    mixed = MultiView({"rna": RNA, "protein": PROTEIN.iloc[SHUFFLED]})
    same(sorted_, mixed)
    assert mixed.ids.tolist() == IDS
    other = MultiView({"protein": PROTEIN.iloc[SHUFFLED], "rna": RNA})
    assert other.ids.tolist() == [IDS[i] for i in SHUFFLED]
    same(other[["rna", "protein"]], sorted_[SHUFFLED])


def test_absent_rows_and_strings_follow_their_labels():
    holes = PROTEIN.copy()
    holes.iloc[3] = np.nan
    text = pd.Series([f"AC{i}" for i in range(N)], index=IDS)
    text.iloc[5] = None
    X = MultiView(
        {"rna": RNA, "p": holes.iloc[SHUFFLED], "s": text.iloc[SHUFFLED[::-1]]}
    )
    assert np.flatnonzero(X.absent("p")).tolist() == [3]
    assert np.flatnonzero(X.absent("s")).tolist() == [5]
    assert X["s"][7] == "AC7"


def test_an_index_that_counts_names_nothing_unless_another_is_its_permutation():
    counted = PROTEIN.reset_index(drop=True)
    X = MultiView({"rna": RNA, "protein": counted, "array": PROTEIN.to_numpy()})
    assert X.ids.tolist() == IDS
    np.testing.assert_array_equal(X["protein"], X["array"])
    assert MultiView({"a": counted, "b": counted.to_numpy()}).ids is None
    numbers = RNA.reset_index(drop=True)
    mixed = MultiView({"rna": numbers, "protein": counted.iloc[SHUFFLED]})
    same(mixed, MultiView({"rna": numbers, "protein": counted}))
    assert mixed.ids.tolist() == list(range(N))


def test_what_cannot_be_put_into_one_order_is_refused():
    with pytest.raises(ValueError, match=r"does not match.*'q0'.*from_frames"):
        renamed = PROTEIN.rename(index={"p00": "q0"})
        MultiView({"rna": RNA, "protein": renamed})
    with pytest.raises(ValueError, match=r"same number of samples.*from_frames"):
        MultiView({"rna": RNA, "protein": PROTEIN.iloc[1:]})
    twice = RNA.iloc[[0, 0, 1]]
    with pytest.raises(ValueError, match=r"more than once: 'p00'"):
        MultiView({"rna": twice, "protein": PROTEIN.iloc[[0, 1, 0]]})
    # drawn alike, samples may come twice
    assert MultiView({"a": twice, "b": twice}).ids.tolist() == ["p00", "p00", "p01"]
    with pytest.raises(ValueError, match=r"'array' have no labels"):
        part = PROTEIN.iloc[SHUFFLED]
        MultiView({"rna": RNA, "protein": part, "array": np.ones((N, 1))})


def test_ids_are_kept_by_slices_copies_and_columns():
    X = MultiView({"rna": RNA, "protein": PROTEIN})
    assert X[[3, 1]].ids.tolist() == ["p03", "p01"]
    assert X[2:4].ids.tolist() == ["p02", "p03"]
    assert X[["protein"]].ids.tolist() == IDS
    train, test = train_test_split(X, random_state=0)
    assert sorted([*train.ids, *test.ids]) == IDS
    table = MultiView.from_columns(RNA, {"one": ["g1"], "others": ["g2", "g3"]})
    assert table.ids.tolist() == IDS
    copied = X.copy()
    copied["rna"][:] = 0.0
    copied.ids[0] = "changed"
    assert X["rna"].any() and X.ids[0] == "p00"
    assert [name for name, _ in X.items()] == ["rna", "protein"]


def test_repr_html_tells_views_and_absent_samples():
    X = MultiView.from_frames({"a<b": RNA, "protein": PROTEIN.iloc[:30]})
    html = X._repr_html_()
    assert "a&lt;b" in html and "<td>10</td>" in html and "40 samples" in html


# --- joins ----------------------------------------------------------------------------


def test_an_outer_join_leaves_absent_views():
    X = MultiView.from_frames(
        {"rna": RNA.iloc[:30], "protein": PROTEIN.iloc[20:][::-1]}
    )
    assert X.ids.tolist() == [*IDS[:30], *IDS[30:][::-1]]
    assert X.absent("rna").sum() == 10 and X.absent("protein").sum() == 20
    for name, frame in (("rna", RNA), ("protein", PROTEIN)):
        there = ~X.absent(name)
        expected = frame.loc[X.ids[there]].to_numpy()
        np.testing.assert_array_equal(X[name][there], expected)


def test_an_inner_join_keeps_what_is_in_all_tables():
    frames = {"rna": RNA.iloc[:30], "protein": PROTEIN.iloc[20:][::-1]}
    X = MultiView.from_frames(frames, join="inner")
    assert X.ids.tolist() == IDS[20:30]
    assert not X.has_absent("rna") and not X.has_absent("protein")
    same(X, MultiView({"rna": RNA, "protein": PROTEIN})[20:30])


def test_a_join_of_equal_tables_is_the_tables():
    joined = MultiView.from_frames({"rna": RNA, "protein": PROTEIN.iloc[SHUFFLED]})
    same(joined, MultiView({"rna": RNA, "protein": PROTEIN}))
    assert joined.column_names("rna") == ("g1", "g2", "g3")


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        ({"rna": RNA.iloc[[0, 1, 0]]}, {}, r"several rows for 1 .*'p00'"),
        ({"rna": RNA.rename(index={"p01": None})}, {}, "no label in 1"),
        ({"rna": RNA.to_numpy()}, {}, "no index to join on"),
        ({"rna": RNA}, {"on": "id"}, "no column 'id'"),
        ({"rna": RNA}, {"join": "left"}, "'outer' or 'inner'"),
        (
            {"a": RNA.iloc[:3], "b": RNA.iloc[3:]},
            {"join": "inner"},
            "no sample in",
        ),
        ({"a": RNA.iloc[:0], "b": RNA}, {}, "'a' has no rows"),
        ({"a": pd.DataFrame({"g": []})}, {}, "'a' has no rows"),
        ([RNA], {}, "mapping"),
    ],
)
def test_joins_that_make_no_sense(frames, options, message):
    with pytest.raises(ValueError, match=message):
        MultiView.from_frames(frames, **options)


def test_a_default_index_names_nobody():
    # rows of two tables that have the same number are not the same patient
    rna, protein = (f.rename_axis("patient").reset_index() for f in (RNA, PROTEIN))
    frames = {"rna": rna, "protein": protein.iloc[::-1].reset_index(drop=True)}
    with pytest.raises(ValueError, match=r"'rna' has the default index.*set_index"):
        MultiView.from_frames(frames)
    with pytest.raises(ValueError, match="'protein' has the default index"):
        MultiView.from_frames({"rna": RNA, "protein": frames["protein"]["a"]})
    same(
        MultiView.from_frames(frames, on="patient"),
        MultiView.from_frames({"rna": RNA, "protein": PROTEIN}),
    )
    # numbers that are names: of an index with a name, or one that is not a count
    numbers = {"rna": RNA.reset_index(drop=True).rename_axis("patient")}
    numbers["protein"] = PROTEIN.set_axis(SHUFFLED).iloc[5:]
    X = MultiView.from_frames(numbers)
    assert X.ids.tolist() == list(range(N)) and X.absent("protein").sum() == 5
    expected = PROTEIN.to_numpy()[np.argsort(SHUFFLED)]
    there = ~X.absent("protein")
    np.testing.assert_array_equal(X["protein"][there], expected[there])


@pytest.mark.parametrize("join", ["outer", "inner"])
def test_a_table_that_shares_no_sample_is_refused(join):
    numbers = PROTEIN.set_axis([str(i) for i in range(N)])
    frames = {"rna": RNA, "other": RNA, "protein": numbers}
    with pytest.raises(ValueError, match=r"'protein' has no sample in common.*'p00'"):
        MultiView.from_frames(frames, join)
    whole = {"a": RNA.set_axis(range(100, 100 + N)), "b": PROTEIN}
    whole["b"] = PROTEIN.set_axis([str(i) for i in range(100, 100 + N)])
    with pytest.raises(ValueError, match=r"their type.*100 in 'a' and '100' in 'b'"):
        MultiView.from_frames(whole, join)
    pairs = {"a": RNA[:20], "b": RNA[15:30], "c": RNA[25:]}
    with pytest.raises(ValueError, match=r"No sample is in all tables.*join='outer'"):
        MultiView.from_frames(pairs, "inner")
    assert len(MultiView.from_frames(pairs)) == N


@pytest.mark.parametrize("other", ["p05 ", "P05"])
def test_labels_that_differ_only_in_spelling_are_told(other):
    frames = {"rna": RNA, "protein": PROTEIN.rename(index={"p05": other})}
    with pytest.warns(UserWarning, match=f"'p05' in 'rna' and '{other}' in 'protein'"):
        X = MultiView.from_frames(frames)
    assert len(X) == N + 1
    # a table that has both spellings has two samples
    both = pd.concat([RNA, RNA.iloc[[5]].set_axis([other])])
    assert len(MultiView.from_frames({"rna": both, "protein": PROTEIN})) == N + 1


def test_polars_frames_are_joined_on_a_column():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frames = {
        "rna": pl.DataFrame({"id": IDS, "g1": RNA["g1"].to_numpy()}),
        "protein": pl.DataFrame({"id": IDS[10:], "a": PROTEIN["a"].to_numpy()[10:]}),
    }
    X = MultiView.from_frames(frames, on="id")
    expected = MultiView.from_frames(
        {"rna": RNA[["g1"]], "protein": PROTEIN[["a"]][10:]}
    )
    same(X, expected)
    assert X.ids.tolist() == IDS and X.column_names("protein") == ("a",)
    with pytest.raises(ValueError, match=r"on=\.\.\."):
        MultiView.from_frames(frames)


def test_lazy_frames_of_polars_are_collected():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame({"id": IDS, "g1": RNA["g1"].to_numpy()})
    whole = MultiView.from_frames({"rna": frame}, on="id")
    same(MultiView.from_frames({"rna": frame.lazy()}, on="id"), whole)
    same(MultiView({"rna": frame.drop("id").lazy()}), whole)


def test_columns_that_are_not_numbers_are_named():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    words = pl.DataFrame({"g1": [1.0, 2.0], "sex": ["f", "m"], "site": ["a", "b"]})
    kinds = words.with_columns(pl.col("sex", "site").cast(pl.Categorical))
    for frame in (words, kinds, pd.DataFrame(words.to_dict(as_series=False))):
        with pytest.raises(ValueError, match=r"not numeric: 'sex', 'site'; encode"):
            MultiView({"clinic": frame})
    holes = pl.DataFrame({"a": [1, None], "b": [True, None]}, strict=False)
    assert MultiView({"x": holes}).absent("x").tolist() == [False, True]


DAYS = pd.to_timedelta(np.arange(N), unit="D")


@pytest.mark.parametrize("values", [DAYS, pd.Timestamp("2020-01-01") + DAYS])
def test_times_have_to_be_made_numbers(values):
    frame = RNA.assign(time=values)
    for view in (frame, frame[["time"]], frame["time"], values.to_numpy()):
        with pytest.raises(ValueError, match=r"'clinic' has times.*total_seconds"):
            MultiView({"clinic": view})
    for table in (frame, frame[["time"]]):
        with pytest.raises(ValueError, match=r"X has times.*'time'"):
            MKLClassifier().fit(table, Y)


# --- labels ---------------------------------------------------------------------------


def test_align_on_a_column():
    X = MultiView({"rna": RNA})
    _, expected = X.align(Y)
    table = Y.iloc[SHUFFLED].rename_axis("id").rename("state").reset_index()
    part, y = X.align(table, on="id")
    same(part, X)
    assert y.tolist() == expected.tolist() and y.index.tolist() == IDS
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame({"id": table["id"].tolist(), "state": table["state"].tolist()})
    for given in (frame, frame.lazy()):
        assert X.align(given, on="id")[1].to_list() == expected.tolist()
    with pytest.warns(UserWarning, match=r"1 sample has no label.*'p\d\d'"):
        part, y = X.align(frame[1:], on="id")
    assert len(part) == len(y) == N - 1
    both = frame.with_columns(pl.lit(1.0).alias("other"))
    assert X.align(both, on="id")[1].columns == ["state", "other"]
    with pytest.raises(ValueError, match="y has no column 'patient'"):
        X.align(frame, on="patient")
    with pytest.raises(ValueError, match=r"on=\.\.\."):
        X.align(frame[1:])


def test_align_drops_samples_without_a_label_by_name():
    X = MultiView({"rna": RNA, "protein": PROTEIN})
    y = Y.iloc[SHUFFLED].drop("p05")
    y["p07"] = None
    y["stranger"] = "ill"
    with pytest.warns(UserWarning, match=r"'p05', 'p07'; .*no sample: 'stranger'"):
        part, labels = X.align(y)
    kept = [name for name in IDS if name not in ("p05", "p07")]
    assert part.ids.tolist() == kept == labels.index.tolist()
    assert labels.tolist() == Y[kept].tolist()
    with pytest.warns(UserWarning, match="'p00'"):
        _, found = X.align({name: Y[name] for name in IDS[1:]})
    assert found.tolist() == Y.iloc[1:].tolist()


def test_align_without_names_goes_by_rows():
    X = MultiView({"rna": RNA.to_numpy()})
    same(X.align(Y.to_numpy())[0], X)
    values = np.arange(N, dtype=float)
    values[2] = np.nan
    with pytest.warns(UserWarning, match="dropped: 2"):
        part, y = X.align(values)
    assert len(part) == len(y) == N - 1
    with pytest.raises(ValueError, match="no ids"):
        X.align(Y)
    with pytest.raises(ValueError, match="39 labels for 40 samples"):
        X.align(values[1:])
    named = MultiView({"rna": RNA})
    with pytest.raises(ValueError, match="No sample has a label"), pytest.warns():
        named.align(Y.rename(lambda name: "x" + name))


@pytest.mark.parametrize("approximation", [None, "nystroem"])
def test_fit_and_score_pair_labels_with_samples(approximation):
    X = MultiView({"rna": RNA, "protein": PROTEIN})
    model = MKLClassifier(KERNELS, approximation=approximation, random_state=0)
    expected = model.fit(X, Y).decision_function(X)
    mixed = model.fit(X, Y.iloc[SHUFFLED])
    np.testing.assert_array_equal(mixed.decision_function(X), expected)
    assert mixed.score(X, Y.iloc[SHUFFLED]) == mixed.score(X, Y.to_numpy())
    with pytest.raises(ValueError, match=r"X\.align\(y\)"):
        model.fit(X, Y.iloc[1:])
    with pytest.raises(ValueError, match=r"X\.align\(y\)"):
        mixed.score(X, Y.rename(index={"p00": "q"}))
    # labels that are taken row by row
    np.testing.assert_array_equal(
        model.fit(X, Y.reset_index(drop=True)).decision_function(X), expected
    )


def test_weights_of_samples_are_paired_too():
    X = MultiView({"rna": RNA})
    values = pd.Series(rng.normal(size=N), index=IDS)
    weight = pd.Series(rng.uniform(0.5, 2, N), index=IDS)
    model = MKLRegressor("linear")
    expected = model.fit(X, values, weight).predict(X)
    mixed = model.fit(X, values.iloc[SHUFFLED], weight.iloc[SHUFFLED[::-1]])
    np.testing.assert_array_equal(mixed.predict(X), expected)
    assert mixed.score(X, values.iloc[SHUFFLED]) == mixed.score(X, values)


TIMES = pd.DataFrame(
    {
        "time": rng.exponential(np.exp(-RNA["g1"])) + 0.01,
        "event": np.arange(N) % 4 > 0,
    },
    index=IDS,
)


@pytest.mark.parametrize(
    "model",
    [MKLCox(KERNELS), MKLSurvivalSVM(KERNELS), MKLCoxCV(KERNELS, Cs=[1.0], cv=2)],
    ids=["cox", "svm", "search"],
)
def test_times_are_paired_by_fit_and_score(model):
    frames = {"rna": RNA, "protein": PROTEIN}
    X = MultiView(frames)
    weight = pd.Series(rng.uniform(0.5, 2, N), index=IDS)
    plain = model.fit(X, TIMES.to_numpy(dtype=float))
    expected, score = plain.predict(X), plain.score(X, TIMES.to_numpy(dtype=float))
    weighted = plain.score(X, TIMES.to_numpy(dtype=float), weight.to_numpy())
    mixed = TIMES.iloc[SHUFFLED]
    np.testing.assert_array_equal(model.fit(X, mixed).predict(X), expected)
    assert model.score(X, mixed) == model.score(frames, mixed) == score
    assert model.score(X, mixed, weight.iloc[SHUFFLED]) == weighted != score
    with pytest.raises(ValueError, match="does not match the samples"):
        model.score(X, TIMES.rename(index={"p00": "q"}))


def test_strata_and_groups_are_paired_with_samples():
    X = MultiView({"rna": RNA, "protein": PROTEIN})
    strata = pd.Series(np.where(rng.random(N) < 0.5, "x", "y"), index=IDS)
    other = SHUFFLED[::-1]
    cox = MKLCox(KERNELS).fit(X, TIMES.to_numpy(float), strata=strata.to_numpy())
    expected = cox.predict_survival_function(X, strata.to_numpy(), return_array=True)
    cox.fit(X, TIMES.iloc[SHUFFLED], strata=strata.iloc[other])
    for given in (strata, strata.iloc[other]):
        np.testing.assert_array_equal(
            cox.predict_survival_function(X, given, return_array=True), expected
        )
    with pytest.raises(ValueError, match="index of strata does not match the samples"):
        cox.fit(X, TIMES, strata=strata.rename(index={"p00": "q"}))
    groups = pd.Series(np.arange(N) // 4, index=IDS)
    search = MKLCoxCV(KERNELS, Cs=[0.1, 1.0], norms=[2], cv=2)
    plain = search.fit(X, TIMES, groups=groups, strata=strata)
    expected, scores = plain.predict(X), plain.scores_
    search.fit(
        X,
        TIMES.iloc[SHUFFLED],
        groups=groups.iloc[SHUFFLED],
        strata=strata.iloc[other],
    )
    np.testing.assert_array_equal(search.predict(X), expected)
    np.testing.assert_array_equal(search.scores_, scores)


def test_a_dict_of_frames_is_paired_with_labels_too():
    X = {"rna": RNA, "protein": PROTEIN}
    model = MKLClassifier(KERNELS).fit(X, Y)
    assert model.score(X, Y.iloc[SHUFFLED]) == model.score(X, Y) > 0.6


def test_model_selection_with_names():
    X = MultiView({"rna": RNA, "protein": PROTEIN.iloc[SHUFFLED]})
    plain = MultiView({"rna": RNA.to_numpy(), "protein": PROTEIN.to_numpy()})
    model = MKLClassifier(KERNELS)
    scores = cross_val_score(model, X, Y)
    np.testing.assert_array_equal(scores, cross_val_score(model, plain, Y.to_numpy()))
    search = GridSearchCV(model, {"C": [0.1, 1]}).fit(X, Y)
    assert search.predict(X).shape == (N,)
    # splitters take rows by number: labels in another order are found out
    with pytest.raises(ValueError, match="does not match the samples"):
        cross_val_score(model, X, Y.iloc[SHUFFLED], error_score="raise")
    chosen = MKLClassifierCV(KERNELS, Cs=[0.1, 1], norms=[1], cv=3)
    np.testing.assert_array_equal(
        chosen.fit(X, Y).scores_, chosen.fit(X, Y.iloc[SHUFFLED]).scores_
    )


def test_names_come_out_in_explanations():
    X = MultiView({"rna": RNA, "protein": PROTEIN})
    model = MKLClassifier(KERNELS).fit(X, Y)
    frame = decision_parts(model, X[[4, 2]]).to_frame()
    assert frame.index.tolist() == ["p04", "p02"] and frame.index.name == "sample"
    three = np.arange(N) % 3
    frame = decision_parts(MKLClassifier(KERNELS).fit(X, three), X[[4]]).to_frame()
    assert frame.index.tolist() == [("p04", 0), ("p04", 1), ("p04", 2)]
    assert model.weights_frame()["view"].tolist() == ["rna", "protein"]


def test_a_dict_of_frames_is_taken_for_views():
    frames = {"rna": RNA, "protein": PROTEIN.iloc[SHUFFLED]}
    X = MultiView(frames)
    for approximation in (None, "nystroem"):
        model = MKLClassifier(KERNELS, approximation=approximation, random_state=0)
        expected = model.fit(X, Y).decision_function(X)
        again = model.fit(frames, Y).decision_function(frames)
        np.testing.assert_array_equal(again, expected)
    assert KernelBank(frames, KERNELS).shape == (N, N, 2)


@pytest.mark.parametrize("options", [{}, {"approximation": "nystroem"}])
def test_columns_of_new_frames_are_found_by_name(options):
    X = MultiView({"rna": RNA, "protein": PROTEIN})
    turned = {"protein": PROTEIN[["b", "a"]], "rna": RNA[["g3", "g1", "g2"]]}
    model = MKLClassifier(KERNELS, random_state=0, **options).fit(X, Y)
    expected = model.decision_function(X)
    np.testing.assert_array_equal(model.decision_function(turned), expected)
    # covariates move with the others, in a view of their own or beside genes
    for fixed in (["protein"], ["a", "g1"]):
        model = MKLClassifier(KERNELS, fixed=fixed, random_state=0, **options)
        expected = model.fit(X, Y).decision_function(X)
        np.testing.assert_array_equal(model.decision_function(turned), expected)
    with pytest.raises(ValueError, match="differ from those"):
        model.predict({"protein": PROTEIN, "rna": RNA.rename(columns={"g1": "g0"})})
    # of a table, as in scikit-learn, the order counts
    model = MKLClassifier("linear", random_state=0, **options).fit(RNA, Y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(RNA[["g3", "g1", "g2"]])


def test_names_of_kernels_mean_each_view_that_suits():
    X = MultiView({"rna": RNA, "protein": PROTEIN, "s": ["AC", "CA"] * (N // 2)})
    names = KernelBank(X, ["linear", "spectrum"]).names
    assert names == ("rna:linear", "protein:linear", "s:spectrum(k=3)")
    assert KernelBank(RNA.to_numpy(), ["linear"]).names == ("linear",)


# --- containers -----------------------------------------------------------------------


# of the packages themselves, with the pandas of today
LOUD = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


def objects(names):
    """Return an index that anndata can write, which not all kinds of strings are."""
    return pd.Index(np.array(names, dtype=object), dtype=object)


def small_anndata():
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    counts = sparse.csr_matrix(rng.poisson(0.5, (N, 3)).astype(np.float32))
    adata = anndata.AnnData(
        counts,
        obs=pd.DataFrame(
            {"kind": np.arange(N) % 2, "w": np.ones(N)}, index=objects(IDS)
        ),
        var=pd.DataFrame(index=objects(["g1", "g2", "g3"])),
    )
    adata.layers["dense"] = RNA.to_numpy()
    adata.obsm["X_pca"] = PROTEIN.to_numpy()
    return adata


def test_the_index_may_have_the_name_of_the_column():
    pl = pytest.importorskip("polars")
    rna = pl.from_pandas(RNA.rename_axis("patient").reset_index())
    protein = PROTEIN.rename_axis("patient")
    mixed = MultiView.from_frames({"rna": rna, "protein": protein}, on="patient")
    same(mixed, MultiView.from_frames({"rna": RNA, "protein": PROTEIN}))
    y = pd.Series(np.arange(N), index=protein.index)[::-1]
    assert mixed.align(y, on="patient")[1].tolist() == list(range(N))
    with pytest.raises(ValueError, match="no column 'subject'"):
        MultiView.from_frames({"protein": protein}, on="subject")


@pytest.mark.parametrize("kind", [object, "category", "string", float, "Int64"])
def test_missing_labels_are_told_by_fit(kind):
    y = pd.Series(np.arange(N) % 2, index=IDS)
    if kind in (object, "category", "string"):
        y = y.map({0: "ill", 1: "well"})
    y = y.astype(kind)
    y.iloc[[2, 5]] = None if kind is object else pd.NA
    said = r"y contains NaN: the target of 2 samples is missing, first in row 2.*align"
    models = [MKLClassifier(["linear"]), MKLClassifierCV(["linear"], cv=2)]
    if kind in (float, "Int64"):
        models.append(MKLRegressor(["linear"]))
    for model in models:
        with pytest.raises(ValueError, match=said):
            model.fit(RNA, y)


def test_views_of_anndata():
    adata = small_anndata()
    X = MultiView.from_anndata(adata, layers=["dense"], obsm={"pca": "X_pca"})
    assert X.names == ("X", "dense", "pca") and X.ids.tolist() == IDS
    assert sparse.issparse(X["X"]) and X.column_names("dense") == ("g1", "g2", "g3")
    np.testing.assert_array_equal(X["X"].toarray(), adata.X.toarray())
    np.testing.assert_array_equal(X["pca"], PROTEIN)
    only = MultiView.from_anndata(adata, X=None, obsm=["X_pca"])
    assert only.names == ("X_pca",)
    for options, message in [
        ({"layers": ["nothing"]}, "no 'nothing' in layers"),
        ({"layers": "dense"}, r"write \['dense'\]"),
        ({"X": None}, "There are no views"),
        ({"obsm": {"X": "X_pca"}}, "Two views"),
    ]:
        with pytest.raises(ValueError, match=message):
            MultiView.from_anndata(adata, **options)
    with pytest.raises(ValueError, match="takes an AnnData object"):
        MultiView.from_anndata(RNA)
    same(MultiView.from_anndata(adata, layers=None, obsm=None),
         MultiView.from_anndata(adata))  # fmt: skip


def test_anndata_is_not_a_table():
    adata = small_anndata()
    for approximation in (None, "nystroem"):
        model = MKLClassifier(approximation=approximation)
        with pytest.raises(ValueError, match=r"MultiView\.from_anndata"):
            model.fit(adata, adata.obs["kind"])
    with pytest.raises(ValueError, match=r"MultiView\.from_anndata"):
        MultiView({"rna": adata})
    model = MKLClassifier().fit(adata.X.toarray(), adata.obs["kind"])
    with pytest.raises(ValueError, match=r"MultiView\.from_anndata"):
        model.predict(adata)
    adata.obs_names = [*IDS[:-1], IDS[0]]
    with pytest.raises(ValueError, match=r"'p00'.*obs_names_make_unique"):
        MultiView.from_anndata(adata)


@LOUD
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_backed_files_give_what_memory_gives(tmp_path, kind, monkeypatch):
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    adata = small_anndata()
    if kind == "csc":
        adata.X = sparse.csc_matrix(adata.X)
    elif kind == "dense":
        adata.X = adata.X.toarray()
    path = tmp_path / "cells.h5ad"
    adata.write_h5ad(path)
    monkeypatch.setattr("mklearn.data.containers._ENTRIES", 30)  # ten rows at a time
    backed = anndata.read_h5ad(path, backed="r")
    same(MultiView.from_anndata(backed), MultiView.from_anndata(adata))
    backed.file.close()

    blocks = AnnDataBlocks(path, target="kind", sample_weight="w", rows=15)
    assert [block.n_rows for block in blocks] == [15, 15, 10]
    assert blocks.names == ("g1", "g2", "g3")
    model = MKLClassifier(
        ["linear"], loss="squared", approximation="nystroem", random_state=0
    )
    X = adata.X if kind == "dense" else adata.X.tocsr()
    whole = model.fit(X, adata.obs["kind"].to_numpy())
    expected = whole.decision_function(adata.X)
    found = model.fit(blocks).decision_function(AnnDataBlocks(adata, rows=7))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    for options in ({"target": "x"}, {"layer": "x"}, {"sample_weight": "x"}):
        with pytest.raises(ValueError, match="'x'"):
            AnnDataBlocks(path, **options)


@LOUD
def test_modalities_of_mudata_with_different_cells():
    mudata = pytest.importorskip("mudata", reason="mudata is not installed")
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    rna = small_anndata()[5:].copy()
    protein = anndata.AnnData(PROTEIN.iloc[:30])
    mdata = mudata.MuData({"rna": rna, "protein": protein})
    X = MultiView.from_mudata(mdata)
    with pytest.raises(ValueError, match=r"got MuData.*from_mudata\(mdata\)"):
        MultiView.from_anndata(mdata)
    assert sparse.issparse(X["rna"]) and X["rna"].nnz == rna.X.nnz
    assert sorted(X.ids) == IDS
    assert set(X.ids[X.absent("rna")]) == set(IDS[:5])
    assert set(X.ids[X.absent("protein")]) == set(IDS[30:])
    inner = MultiView.from_mudata(mdata, "inner", layers={"rna": "dense"})
    assert sorted(inner.ids) == IDS[5:30]
    np.testing.assert_array_equal(inner["rna"], RNA.loc[inner.ids])
    with pytest.raises(ValueError, match="Unknown modality"):
        MultiView.from_mudata(mdata, layers={"atac": "x"})


@LOUD
@pytest.mark.parametrize("approximation", [None, "nystroem"])
def test_absent_rows_of_a_sparse_view_are_absent_rows(approximation):
    # an empty row that is absent means what a row of NaN means in a dense view
    mudata = pytest.importorskip("mudata", reason="mudata is not installed")
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    rna = small_anndata()[5:].copy()
    protein = anndata.AnnData(PROTEIN)
    X = MultiView.from_mudata(mudata.MuData({"rna": rna, "protein": protein}))
    dense = X["rna"].toarray()
    dense[X.absent("rna")] = np.nan
    Z = MultiView({"rna": dense, "protein": X["protein"]})
    y = Y.loc[X.ids].to_numpy()
    model = MKLClassifier(
        KERNELS, tol=1e-8, approximation=approximation, rank=20, random_state=0
    )
    a = model.fit(X, y).decision_function(X)
    b = model.fit(Z, y).decision_function(Z)
    np.testing.assert_allclose(a, b, atol=1e-3)


def test_few_new_patients_may_have_different_assays():
    frames = {
        "rna": pd.DataFrame({"g": [1.0, 2.0]}, index=["p1", "p2"]),
        "protein": pd.DataFrame({"q": [3.0]}, index=["p3"]),
    }
    joined = MultiView.from_frames(frames)
    assert joined.ids.tolist() == ["p1", "p2", "p3"]
    assert joined.absent("protein").tolist() == [True, True, False]
    frames["protein"].index = ["P1"]  # the same patient, spelt differently
    with pytest.raises(ValueError, match="no sample in common"):
        MultiView.from_frames(frames)
