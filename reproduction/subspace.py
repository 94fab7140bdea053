"""Chen, Ji, Ceran, Li, Wu, Ye: Learning Subspace Kernels for Classification."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from mklearn.estimators import SubspaceClassifier, SubspaceKernel
from mklearn.kernels import RBF
from mklearn.problems.subspace import Criterion, label_factor
from reproduction import subspace_claims, subspace_figures, subspace_printed
from reproduction.cells import (
    Cell,
    Explanation,
    Protocol,
    Results,
    Table,
    Values,
    first_classes,
    load_set,
    on_splits,
    rng,
    stratified,
)
from reproduction.page import Printed, published_folder, read_rows, rows

FloatArray = NDArray[np.float64]
# features of training samples and of others
Features = tuple[FloatArray, FloatArray]

# data: file, samples of each class
SETS: dict[str, tuple[str, int | None]] = {
    "satimage": ("satimage", 300),
    "waveform": ("waveform40", 300),
    "segment": ("segment", 300),
    "wine": ("wine", None),
    "USPS": ("usps", 300),
    "B_Tumor1": ("brain_tumor1", None),
    "B_Tumor2": ("brain_tumor2", None),
}
SIGMAS = (1e-3, 5e-3, 1e-2, 5e-2, *(i / 10 for i in range(1, 11)))
GENE_SIGMAS = tuple(10.0 * i for i in range(1, 21))
FOUR_SIGMAS = (1e-3, 1e-2, 0.5, 0.1)
GENE_FACTOR = 1e3
REGS = tuple(10.0**i for i in range(5, -6, -1))
COSTS = tuple(map(float, (*range(3, 20, 2), *range(25, 101, 5), *range(150, 1001, 50))))
COST = 50.0  # while sigma and lambda are chosen
ROUGH = 1e-2  # precision of SKFE while sigma and C are chosen
REPETITIONS = 20

# What is tried beside the scaling of the tables: the gene sets divided by one number.
FROBENIUS = ", Frobenius"
TRIED = tuple(f"{data}{FROBENIUS}" for data in ("B_Tumor1", "B_Tumor2"))

SINGLE: dict[str, dict[str, Any]] = {
    "SKFE": {"criterion": "alignment"},
    "HSIC": {"criterion": "hsic", "uncorrelated": False},
    "uHSIC": {"criterion": "hsic"},
    "SVM_joint": {"criterion": "svm", "uncorrelated": False},
    "uSVM_joint": {"criterion": "svm"},
}
# The joint methods take the parameters of those whose features they start from.
SEARCH = {"SVM_joint": "HSIC", "uSVM_joint": "uHSIC"}
# Both are compared with the printed error, as it is not said which one it is.
KEYS = ("error", "one against rest")
PARTS = ("ker1", "ker2", "ker3", "ker4", "mkl")

CHOICES = {
    "normalisation": "columns divided by their Euclidean length over all samples used. "
    "Of the scalings tried (from 0 to 1, mean 0 and variance 1, samples of unit "
    "length, others) it is the one under which the printed sigmas make sense: squared "
    "distances have medians of 0.001 to 0.1 on the UCI sets and 60 to 180 on the gene "
    "sets",
    "split": "half of every class, rounded",
    "grids": "as printed: sigma 0.001, 0.005, 0.01, 0.05, 0.1, 0.2 ... 1 (10, 20 ... "
    "200 for the gene sets), lambda and xi 1e-5 ... 1e5 in decades, C 3, 5 ... 19, 25, "
    "30 ... 100, 150, 200 ... 1000; 5 folds. First sigma and lambda are chosen, with "
    "C = 50, then C; of equally good ones the first, the largest lambda and smallest C",
    "classifier": "LIBSVM on the features, for more classes each against each",
    "SKFE": "iterated to a relative change of 1e-2 while sigma and C are chosen, to "
    "1e-4 then",
    "waveform": "40 columns, the printed dimension",
    "features": "as many as there are: one less than classes for HSIC, as many as "
    "classes for the joint methods",
    "joint methods": "solved exactly, not by alternation, with the sigma, lambda or xi "
    "and C that cross-validation chose for HSIC and uHSIC, whose features they would "
    "start from",
    "Table 3": "sigma 0.001, 0.01, 0.5, 0.1 in the printed order; 1000 times these for "
    "the gene sets, as the printed ones leave the identity there. Kernels of unit "
    "trace for the combination, as (24) has them, with the same grids",
    "seconds": "of learning the features once, after the choice, with the kernel "
    "computed in it",
}


def work(cell: Cell, seed: int) -> Values:
    """Choose parameters by cross-validation, fit, and return error and time."""
    X, labels, train, test = halves(cell.data, cell.repetition, seed)
    method, _, part = cell.method.partition(" ")
    options = SINGLE.get(method)
    search = SEARCH.get(method, method)
    kernels, reg, C = chosen(cell.data, part, search, cell.repetition, seed)
    if cell.table.startswith("figure"):
        assert options is not None
        given = {"reg": reg} if reg else {}
        classifier = SubspaceClassifier(kernels[0], C=C, **given, **options)
        known, new = (X[train], labels[train]), (X[test], labels[test])
        return subspace_figures.work(cell.table, classifier, known, new)
    began = time.perf_counter()
    if options is None:
        gamma = kernels[0].gamma
        known = np.exp(-gamma * euclidean_distances(X[train], squared=True))
        new = np.exp(-gamma * euclidean_distances(X[test], X[train], squared=True))
        kind = "precomputed"
    else:
        # reg and C are None for methods that have none
        given = {"reg": reg} if reg else {}
        given |= {"C": C} if options["criterion"] == "svm" else {}
        model = SubspaceKernel(list(kernels), **given, **options)
        model.fit(X[train], labels[train])
        kind = "linear"
    seconds = time.perf_counter() - began
    if options is not None:
        known, new = model.transform(X[train]), model.transform(X[test])
    found = SVC(C=C, kernel=kind).fit(known, labels[train]).predict(new)
    each = apart(known, new, labels[train], C, kind)
    truth = labels[test]
    return {
        "seconds": seconds,
        "error": 100 * float(np.mean(found != truth)),
        "one against rest": 100
        * float(np.mean([np.mean(f != (truth == j)) for j, f in enumerate(each)])),
        "training": len(train),
        "sigma": [1.0 / kernel.gamma for kernel in kernels],
        "reg": reg,
        "C": C,
    }


@lru_cache(maxsize=4)
def halves(
    data: str, repetition: int, seed: int
) -> tuple[FloatArray, NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return data, labels, and the rows to learn from and to test on."""
    random = rng(seed, repetition)
    file, size = SETS[data.removesuffix(FROBENIUS)]
    X, y = first_classes(*load_set(file), None, size, random)
    labels = np.unique(y, return_inverse=True)[1]
    X = X / np.linalg.norm(X) if data.endswith(FROBENIUS) else unit_columns(X)
    return X, labels, *stratified(labels, 0.5, random)


@lru_cache(maxsize=32)
def chosen(
    data: str, part: str, search: str, repetition: int, seed: int
) -> tuple[tuple[Any, ...], float | None, float]:
    """Return kernels, lambda and C by cross-validation, which methods share.

    Parameters
    ----------
    data : str
    part : str
        Of Table 3: which of the four kernels; all of Table 2 otherwise.
    search : str
        The method that they are chosen for.
    repetition, seed : int
    """
    X, labels, train, _ = halves(data, repetition, seed)
    gene = data.startswith("B_")
    sigmas: tuple[float, ...] = GENE_SIGMAS if gene else SIGMAS
    if part:
        four = [sigma * (GENE_FACTOR if gene else 1.0) for sigma in FOUR_SIGMAS]
        sigmas = tuple(four) if part == "mkl" else (four[PARTS.index(part)],)
    choose = combined if part == "mkl" else single
    kernels, reg, C = choose(X[train], labels[train], sigmas, SINGLE.get(search))
    return tuple(kernels), reg, C


def unit_columns(X: FloatArray) -> FloatArray:
    """Return the data with columns of length one."""
    lengths = np.linalg.norm(X, axis=0)
    return np.asarray(X / np.where(lengths > 0, lengths, 1.0))


def apart(
    known: FloatArray, new: FloatArray, labels: Any, C: float, kind: str
) -> Iterator[Any]:
    """Yield for each class which samples an SVM of it against the rest says it has."""
    for j in range(labels.max() + 1):
        yield SVC(C=C, kernel=kind).fit(known, labels == j).predict(new)


# --- cross-validation -----------------------------------------------------------------


def gaussians(sigmas: Iterable[float]) -> list[RBF]:
    """Return the kernels ``exp(-|x - z|^2 / sigma)``, with ``gamma = 1 / sigma``."""
    return [RBF(1.0 / sigma) for sigma in sigmas]


def single(
    X: FloatArray, labels: Any, sigmas: Iterable[float], options: Any
) -> tuple[list[Any], float | None, float]:
    """Return kernel, lambda and C; the joint methods take those of HSIC."""
    D = euclidean_distances(X, squared=True)
    kernels = gaussians(sigmas)
    folds = list(StratifiedKFold(n_folds(labels)).split(X, labels))
    regs = REGS if options and options["criterion"] != "alignment" else (None,)
    kind = "linear" if options else "precomputed"
    found = {}
    for kernel in kernels:
        K = np.exp(-kernel.gamma * D)
        for reg in regs:
            found[kernel, reg] = []
        for a, b in folds:
            path = one_path(K[np.ix_(a, a)], K[np.ix_(b, a)], labels[a], regs, options)
            for reg, features in zip(regs, path, strict=True):
                found[kernel, reg].append(features)

    def score(cell: Any, C: float) -> float:
        return accuracy(found[cell], labels, folds, C, kind)

    best = max(found, key=lambda cell: score(cell, COST))
    return [best[0]], best[1], max(COSTS, key=lambda C: score(best, C))


def one_path(
    K: FloatArray, cross: FloatArray, labels: Any, regs: Iterable[Any], options: Any
) -> Iterator[Features]:
    """Yield the features of one kernel for each lambda; for the SVM the kernel."""
    if options is None:
        yield K, cross
        return
    if options["criterion"] == "alignment":
        model = SubspaceKernel("precomputed", tol=ROUGH, **options)
        model.fit(K[:, :, None], labels)
        yield model.transform(K[:, :, None]), model.transform(cross[:, :, None])
        return
    mean = K.mean(axis=0)
    G = K - mean - mean[:, None] + mean.mean()
    cross = cross - cross.mean(axis=1)[:, None] - mean + mean.mean()
    L = label_factor(labels, int(labels.max()) + 1)
    for reg in regs:
        made = Criterion(G, reg, options.get("uncorrelated", True)).best(L)
        yield made.features, cross @ made.coef


def combined(
    X: FloatArray, labels: Any, sigmas: Iterable[float], options: Any
) -> tuple[list[Any], float, float]:
    """Return all kernels, and xi and C for their combination by uHSIC."""
    kernels = gaussians(sigmas)
    folds = list(StratifiedKFold(n_folds(labels)).split(X, labels))
    found = {}
    for reg in REGS:
        found[reg] = []
        for a, b in folds:
            model = SubspaceKernel(kernels, reg=reg).fit(X[a], labels[a])
            found[reg].append((model.transform(X[a]), model.transform(X[b])))

    def score(reg: float, C: float) -> float:
        return accuracy(found[reg], labels, folds, C, "linear")

    best = max(found, key=lambda reg: score(reg, COST))
    return kernels, best, max(COSTS, key=lambda C: score(best, C))


def accuracy(features: Any, labels: Any, folds: Any, C: float, kind: str) -> float:
    """Return the mean accuracy of SVMs on the features of each fold."""
    right = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for (known, new), (a, b) in zip(features, folds, strict=True):
            model = SVC(C=C, kernel=kind).fit(known, labels[a])
            right.append(np.mean(model.predict(new) == labels[b]))
    return round(float(np.mean(right)), 12)


def n_folds(labels: Any) -> int:
    """Return five, or as many as the smallest class allows."""
    return max(2, min(5, int(np.bincount(labels).min())))


def printed(folder: Path) -> Printed:
    """Return the printed numbers of Tables 2, 3 and 4."""
    found: Printed = {}
    for row in read_rows(folder, "subspace_error.csv"):
        error = float(row["error_std"]) / float(np.sqrt(REPETITIONS))
        for key in KEYS:
            at = ("2", row["dataset"], row["method"], key)
            found[at] = (float(row["error_mean"]), error)
    for row in read_rows(folder, "subspace_mkl_error.csv"):
        for key in KEYS:
            at = ("3", row["dataset"], f"{row['method']} {row['kernel']}", key)
            found[at] = (float(row["error_mean"]), np.nan)
    for row in read_rows(folder, "subspace_time.csv"):
        at = ("4", row["dataset"], row["method"], "seconds")
        found[at] = (float(row["seconds"]), np.nan)
    return found


def remarks(results: Results) -> list[str]:
    """Show how far both errors are from the printed ones, and the paper's claims."""
    return [
        *which_error(results),
        *subspace_claims.claims(results),
        *subspace_figures.claims(results),
    ]


def which_error(results: Results) -> list[str]:
    """Show how far both errors are from the printed ones."""
    folder = published_folder()
    tables = [
        table
        for table in results.tables
        if table.name.isdigit() and set(KEYS) <= set(table.keys)
    ]
    if folder is None or not tables:
        return []
    text = ["", "## Which error does the paper print?", ""]
    text += [
        "Mean distance from the printed errors in points, over the methods that learn "
        "a subspace. The paper does not say whether the error is that of all classes "
        "or the mean over classes of one against the rest.",
        "",
        "| table | data | all classes | one against rest |",
        "|---|---|---:|---:|",
    ]
    numbers = printed(folder)
    for table in tables:
        found = [row for row in rows(results, table, numbers) if row.repetitions]
        for data in table.data:
            away = [
                [
                    abs(row.difference)
                    for row in found
                    if (row.data, row.key) == (data, key) and row.method != "SVM_org"
                ]
                for key in KEYS
            ]
            if all(away):
                both = " | ".join(f"{np.mean(each):.2f}" for each in away)
                text.append(f"| {table.name} | {data} | {both} |")
    return text


EXPLANATIONS = (
    Explanation(
        "As errors of one class against the rest, the printed ones of the SVM on the "
        "kernel itself are those of a bad sigma and C: with C = 3 or 50 split 1 "
        "has them at sigma 0.001 on wine (8.7), 0.01 on USPS (5.8), between 0.01 and "
        "0.05 on waveform (27 and 13) and at 10 on the gene sets (13 and 25), which is "
        "where all samples go to the rest; and at sigma 0.3 and more on segment (10) "
        "and satimage (8 to 14). How they were chosen we do not know.",
        methods=("SVM_org",),
        keys=("one against rest",),
    ),
    Explanation(
        "The SVM on the kernel itself is printed with errors that no choice of sigma "
        "and C gives here, but small sigmas do: at sigma 0.001 we get 8.3 on wine, "
        "where 7.9 is printed. So sigma and C of this baseline may have been chosen in "
        "another way. Satimage is the other way round: 150 samples of each "
        "class do not suffice for 8.6 under any scaling tried (columns from 0 to 1, "
        "standardised, of unit length; also the first 300 samples of each class "
        "instead of random ones: 10.6 at best).",
        tables=("2",),
        methods=("SVM_org",),
    ),
    Explanation(
        "The printed sigmas leave the identity on the gene sets under any scaling "
        "under which the grid of Table 2 makes sense, so that others were used here, "
        "see above. The first two are still small beside squared distances of 60 to "
        "180: all samples go to the largest class, and a combination with such kernels "
        "is worse than the others alone. With kernels 3 and 4 the error of one class "
        "against the rest is near the printed one, as in Table 2.",
        tables=("3",),
        data=("B_Tumor1", "B_Tumor2"),
    ),
    Explanation(
        "Printed errors fit our mean error of one class against the rest here, not "
        "that of all classes: at 150 samples of each class of satimage, and at 45 and "
        "25 samples of tumours, every method that learns a subspace errs one and a "
        "half to three and a half times as often as Table 2 has it. It is not said "
        "which error is meant; that of one class against the rest is what the joint "
        "objective (9) is about. With the gene sets divided by their Frobenius norm, "
        "Table 2b, errors of one class against the rest by uHSIC and uSVM_joint are "
        "within two errors of the printed ones on the second set and one to two points "
        "below them on the first; those of HSIC and SVM_joint, which leave nearly all "
        "samples to the rest, are far above on both.",
        data=("satimage", "B_Tumor1", "B_Tumor2"),
        keys=("error",),
    ),
    Explanation(
        "On wine the printed errors and their spread (see above) are about as far from "
        "the error of all classes as from that of one class against the rest. On "
        "waveform neither fits: "
        "Table 2 is two to three points away from both, and the spread of its printed "
        "errors is that of one class against the rest (see above).",
        data=("waveform", "wine"),
        keys=("one against rest",),
    ),
    Explanation(
        "The joint methods, solved exactly, do not beat uHSIC here as they do in the "
        "paper. The reason is not C, which they take from uHSIC: on the first "
        "split, with C "
        "from 0.03 to 650, uSVM_joint has 6.1 on segment and 14.3 on satimage at best, "
        "uHSIC 5.0 and 13.9.",
        tables=("2",),
        data=("satimage", "segment"),
        methods=("SVM_joint", "uSVM_joint"),
        keys=("error",),
    ),
    Explanation(
        "We do not know. Most of the printed 3.2 to 4.4 lie between our error of one "
        "class against the rest, by uHSIC 1.7, and that of all classes, by uHSIC 4.9. "
        "The scaling "
        "may be part of the reason: on the first "
        "split and over all lambda, uHSIC has 3.5 at "
        "best with columns from 0 to 1 (sigma 0.3 and 1), and 4.2 with columns of unit "
        "length (sigma 0.01); but the former does not go with the sigmas of Table 3 on "
        "the other sets.",
        tables=("2",),
        data=("segment",),
    ),
    Explanation(
        "We do not know. The printed 2.0 to 2.3 lie between our error of one class "
        "against the rest, about 1, and that of all classes, about 4. Tried: other "
        "scalings (columns from 0 to 1, pixels as they are, images of length one, "
        "which have 3.2 of all classes at best) and the first 300 samples of each "
        "class instead of random ones, which err less often by a point.",
        data=("USPS",),
    ),
    Explanation(
        "At sigma 0.001 the kernel leaves little but the identity on these 40 columns, "
        "of which 19 are noise, and the printed 16 to 19 % cannot be obtained with it. "
        "That ker1 is this sigma is an assumption; the combination's printed 11.2 % is "
        "below the 14 % of the best possible classifier.",
        tables=("3",),
        data=("waveform",),
    ),
    Explanation(
        "The joint methods take the parameters of HSIC and uHSIC, C is chosen after "
        "the others, and the scaling of the data is a guess; we do not know which of "
        "these is the "
        "reason. Errors printed with standard deviations of 0.01 to 0.3 over "
        "20 random halves are below what these test parts allow.",
    ),
)


PROTOCOL = Protocol(
    name="subspace",
    title="Subspace kernels (Chen, Ji, Ceran, Li, Wu and Ye, KDD 2008)",
    tables=(
        Table(
            "2",
            "error in percent",
            tuple(SETS),
            ("SVM_org", *SINGLE),
            REPETITIONS,
            keys=KEYS,
        ),
        Table(
            "3",
            "single kernels and their combination, error in percent",
            tuple(SETS),
            tuple(f"{m} {part}" for m in ("uHSIC", "uSVM_joint") for part in PARTS),
            REPETITIONS,
            keys=KEYS,
        ),
        Table(
            "4",
            "mean seconds of a fit, and their ratio",
            tuple(SETS),
            tuple(SINGLE),
            REPETITIONS,
            keys=("seconds",),
            of=("2",),
        ),
        Table(
            "2b",
            "gene sets divided by their Frobenius norm, in place of columns of length "
            "one; sigma, lambda and C by cross-validation over the printed grids, on "
            "the same halves; error in percent",
            TRIED,
            ("SVM_org", "HSIC", "uHSIC", "SVM_joint", "uSVM_joint"),
            REPETITIONS,
            keys=KEYS,
        ),
        *subspace_figures.TABLES,
    ),
    work=work,
    long=frozenset(
        ("SVM_org", *SINGLE, *(f"{m} {part}" for m in SINGLE for part in PARTS))
    ),
    choices=CHOICES | subspace_figures.CHOICES,
    explanations=EXPLANATIONS,
    conclusions=subspace_claims.conclusions,
    evidence=subspace_printed.evidence,
    remarks=remarks,
    files={data: file for data, (file, _) in SETS.items()}
    | {data: SETS[data.removesuffix(FROBENIUS)][0] for data in TRIED},
    printed=printed,
    quick=(
        Table(
            "2",
            "wine, error in percent",
            ("wine",),
            ("SVM_org", "uHSIC", "uSVM_joint"),
            1,
            keys=("error",),
        ),
        *subspace_figures.QUICK,
    ),
    # parameters that are equally good on the folds are not equally good here
    bands=on_splits("wine", ("SVM_org", "uHSIC"), "error", 4.55, 88, change=2)
    + on_splits("wine", ("uSVM_joint",), "error", 3.41, 88, change=2)
    + subspace_figures.BANDS,
    figures=subspace_figures.draw,
)
