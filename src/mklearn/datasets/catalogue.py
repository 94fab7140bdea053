"""Facts about every data set: sizes, class counts, checksums, origin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mklearn.data.spelling import plural

# The one environment variable of the package: data are where their owner put them.
VARIABLE = "MKLEARN_DATA"


@dataclass(frozen=True)
class OpenML:
    """A copy on OpenML, and how to recognise it.

    Parameters
    ----------
    data_id : int
    labels : mapping of str to label
        Labels on OpenML, and the corresponding labels here.
    mean : float
        Mean of all feature values; together with shape and class counts it identifies
        the right copy.
    dtype : str
        Data type of the values here.
    """

    data_id: int
    labels: Mapping[str, Any]
    mean: float
    dtype: str = "float64"


@dataclass(frozen=True)
class DataSet:
    """The facts about a data set, which :func:`mklearn.datasets.load` verifies.

    Parameters
    ----------
    title : str
    n_samples : int
    features : int, or mapping of view to int
        A view of strings counts as one feature.
    counts : mapping of label to int
        Samples of each class; empty where there are no classes.
    file, sha256 : str
        Name and SHA-256 sum of the npz file; empty where there is none.
    test : mapping of label to int
        Samples of each class in the official test part, if there is one.
    classes : tuple of str
        Meaning of the labels, in sorted order; empty if it is not known.
    sample_names : str
        Array of the file with the names of the samples.
    extras : mapping of str to str
        Further attributes of the result, and the arrays of the file they come from.
    base : str
        The data set that this one is a part of.
    loader : str
        Function of ``sklearn.datasets`` with the same data.
    openml : OpenML or None
    origin : str
        Who published the data.
    remark : str
        Remarks for users of the data.
    """

    title: str
    n_samples: int
    features: int | Mapping[str, int]
    counts: Mapping[Any, int]
    file: str = ""
    sha256: str = ""
    test: Mapping[Any, int] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    sample_names: str = ""
    extras: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    loader: str = ""
    openml: OpenML | None = None
    origin: str = "UCI"
    remark: str = ""

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views; empty for a single table."""
        return () if isinstance(self.features, int) else tuple(self.features)

    @property
    def n_features(self) -> int:
        """Number of columns in all views together."""
        if isinstance(self.features, int):
            return self.features
        return sum(self.features.values())

    def describe(self) -> str:
        """Return title, sizes, origin and remark in a few sentences."""
        sizes = (
            f"{plural(self.n_samples, 'sample')}; {_features(self)}; {_classes(self)}"
        )
        parts = [f"{self.title}: {sizes}", f"Origin: {self.origin}", self.remark]
        return ". ".join(part.rstrip(".") for part in parts if part) + "."


def _same(labels: Any, count: int) -> dict[Any, int]:
    """Return the counts of classes that all have the same number of samples."""
    return dict.fromkeys(labels, count)


def _numbered(counts: str, first: int = 0) -> dict[int, int]:
    """Return the counts of classes that are numbered from ``first``."""
    return dict(enumerate(map(int, counts.split()), first))


_WAVEFORM = {0: 1692, 1: 1653, 2: 1655}
_SEGMENT = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
_VIEWS = "ChuanbinZhang/Multi-view-datasets"

CATALOGUE: dict[str, DataSet] = {
    "sonar": DataSet(
        "Sonar echoes of mines and rocks",
        208,
        60,
        {"M": 111, "R": 97},
        "sonar.npz",
        "97ba9f0d28b5a52777d38dba6545aa93783cf08e9ebbc92a189016ba62d25966",
        classes=("mine", "rock"),
        openml=OpenML(40, {"Mine": "M", "Rock": "R"}, 0.281321),
    ),
    "ionosphere": DataSet(
        "Radar returns from the ionosphere",
        351,
        34,
        {"b": 126, "g": 225},
        "ionosphere.npz",
        "85edccf5b788fa5088251407d1269ea284f0f9b10f075d42fe3ebc520ae23871",
        classes=("bad", "good"),
        openml=OpenML(59, {"b": "b", "g": "g"}, 0.247697),
        remark="Column 1 is constant 0; some papers drop it and have 33 features",
    ),
    "heart_statlog": DataSet(
        "Heart disease, Statlog version",
        270,
        13,
        {1: 150, 2: 120},
        "heart_statlog.npz",
        "7d0f8c270a6270c8b7807fb2238cc37d25429771b34fb0fea0a1ff2b716e9fe3",
        classes=("absent", "present"),
        openml=OpenML(53, {"absent": 1, "present": 2}, 46.0360),
        origin="UCI Statlog",
    ),
    "heart_cleveland": DataSet(
        "Heart disease, Cleveland",
        297,
        13,
        {0: 160, 1: 137},
        "heart_cleveland.npz",
        "e4f5c1119077ea5fe3f125f3821cf40e51af3d6654fa93a6499c9198c6bf821d",
        classes=("absent", "present"),
        extras={"severity": "num"},
        remark="6 of 303 rows have missing values and are left out; `severity` is the "
        "grade from 0 to 4, the target says whether it is above 0",
    ),
    "pima": DataSet(
        "Diabetes among Pima women",
        768,
        8,
        {0: 500, 1: 268},
        "pima.npz",
        "019b063cf32672e4978a66fa993997399129eb48e4b7f3ba3bd2b19b05d63c41",
        classes=("negative", "positive"),
        openml=OpenML(37, {"tested_negative": 0, "tested_positive": 1}, 44.9858),
        remark="Zeros that stand for missing values are left as they are",
    ),
    "breast_cancer_original": DataSet(
        "Breast cancer Wisconsin, original",
        683,
        9,
        {2: 444, 4: 239},
        "breast_cancer_original.npz",
        "079e7b05099c72165a245c6b847e13a98e74d36337401e62f9ae2af36e450aa8",
        classes=("benign", "malignant"),
        sample_names="id",
        openml=OpenML(15, {"benign": 2, "malignant": 4}, 3.14837),
        remark="16 of 699 rows have missing values and are left out",
    ),
    "breast_cancer_diagnostic": DataSet(
        "Breast cancer Wisconsin, diagnostic",
        569,
        30,
        {0: 212, 1: 357},
        classes=("malignant", "benign"),
        loader="load_breast_cancer",
    ),
    "wine": DataSet(
        "Wines of three growers",
        178,
        13,
        {1: 59, 2: 71, 3: 48},
        "wine.npz",
        "f9fc408d4082c18ce75e2a1d89897938e10d1b4d200c089b95cb20ee4c71f07a",
        loader="load_wine",
    ),
    "iris": DataSet(
        "Iris flowers",
        150,
        4,
        _same(range(3), 50),
        classes=("setosa", "versicolor", "virginica"),
        loader="load_iris",
    ),
    "digits": DataSet(
        "Handwritten digits of 8 x 8 pixels",
        1797,
        64,
        _numbered("178 182 177 183 181 182 181 179 174 180"),
        loader="load_digits",
        remark="The test part of UCI's optical digits only",
    ),
    "waveform40": DataSet(
        "Breiman's waveforms with 19 columns of noise",
        5000,
        40,
        _WAVEFORM,
        "waveform40.npz",
        "89d85f444ceb3d55060c614d0da378f4fe22c4cf69fd9e946d42a62885e8cedf",
        openml=OpenML(60, {"0": 0, "1": 1, "2": 2}, 0.899488),
        remark="Columns 0 to 20 are the wave, 21 to 39 noise",
    ),
    "waveform21": DataSet(
        "Breiman's waveforms",
        5000,
        21,
        _WAVEFORM,
        base="waveform40",
        remark="The first 21 columns of waveform40: a draw of the same problem, but "
        "not UCI's own file of 21 columns",
    ),
    "satimage": DataSet(
        "Landsat pixels with their neighbours",
        6435,
        36,
        {1: 1533, 2: 703, 3: 1358, 4: 626, 5: 707, 7: 1508},
        "satimage.npz",
        "f04a36995805510fd5fb9e184ef19e1698dbc97cbdace1bfce2b5c250fdede6c",
        test={1: 461, 2: 224, 3: 397, 4: 211, 5: 237, 7: 470},
        classes=(
            "red soil",
            "cotton crop",
            "grey soil",
            "damp grey soil",
            "soil with vegetation stubble",
            "very damp grey soil",
        ),
        origin="UCI Statlog",
        remark="Label 6 does not occur. OpenML's copy lacks some rows and is not used",
    ),
    "segment": DataSet(
        "Image segmentation",
        2310,
        19,
        _same(_SEGMENT, 330),
        "segment.npz",
        "2389fada13db3a255aa5132c6a502c29ee46244aab918bde2c3802aacf438052",
        classes=_SEGMENT,
        openml=OpenML(
            36,
            {name: name for name in _SEGMENT},
            24.6331,
        ),
        origin="UCI Statlog",
        remark="Column 2 (region-pixel-count) is constant 9; some papers drop it and "
        "have 18 features",
    ),
    "usps": DataSet(
        "Handwritten digits of the US postal service, 16 x 16 pixels",
        9298,
        256,
        _numbered("1553 1269 929 824 852 716 834 792 708 821"),
        "usps.npz",
        "1ded4b40164b0fa7153331fe49f081f462f90bc9af28a90f0cab61c7ba4233ca",
        test=_numbered("359 264 198 166 200 160 170 147 166 177"),
        openml=OpenML(41082, {str(k + 1): k for k in range(10)}, -0.485371, "float32"),
        origin="AT&T; Elements of Statistical Learning",
    ),
    "mnist": DataSet(
        "Handwritten digits of 28 x 28 pixels",
        70000,
        784,
        _numbered("6903 7877 6990 7141 6824 6313 6876 7293 6825 6958"),
        "mnist.npz",
        "592d004fe89799971c7c13c9c91480c87ad6fb3d8d862c0876d0399a85a8f45e",
        test=_numbered("980 1135 1032 1010 982 892 958 1028 974 1009"),
        openml=OpenML(554, {str(k): k for k in range(10)}, 33.3860, "uint8"),
        origin="LeCun, Cortes and Burges",
        remark="Pixels are uint8: divide before you subtract",
    ),
    "brain_tumor1": DataSet(
        "Gene expression of brain tumours, five kinds",
        90,
        5920,
        {0: 60, 1: 10, 2: 10, 3: 4, 4: 6},
        "brain_tumor1.npz",
        "f806c956fc30804ddfcef099c56bbd334a24ac0db8610707d124c97c931bd93c",
        origin="GEMS; Pomeroy et al. 2002",
        remark="Rows are sorted by class; which of the classes 1 and 2 is malignant "
        "glioma and which AT/RT is not certain",
    ),
    "brain_tumor2": DataSet(
        "Gene expression of brain tumours, four kinds",
        50,
        10367,
        {0: 14, 1: 7, 2: 14, 3: 15},
        "brain_tumor2.npz",
        "474153fc373e2cbbd59d2fc51470a04a759c551b3932f553b360be4c54e9d4f9",
        origin="GEMS; Nutt et al. 2003",
        remark="Values have about 6 digits",
    ),
    "mfeat": DataSet(
        "Multiple features of handwritten digits",
        2000,
        {"fou": 76, "fac": 216, "kar": 64, "pix": 240, "zer": 47, "mor": 6},
        _same(range(10), 200),
        "mfeat.npz",
        "60188df83c7a98f39789e7beb5279475215414b28c39e29ada5326f64e5868ed",
        remark="Rows are sorted by class",
    ),
    "flowers17_features": DataSet(
        "Oxford flowers, six kinds of features computed from the images",
        1360,
        {"hsv": 192, "lab": 96, "hog": 1764, "lbp": 80, "gabor": 512, "siftbow": 300},
        _same(range(1, 18), 80),
        "flowers17_features.npz",
        "f3ff59d8587b512589e261e121d59d6ec78bde1b646d5f3c65120244e1e27c70",
        origin="images of the Visual Geometry Group, Oxford",
        remark="Not the seven published distance matrices, and no official splits: "
        "not to be compared with published figures. The words of siftbow come from "
        "all images, without labels. Rows are sorted by class",
    ),
    "tcga_breast": DataSet(
        "Breast cancer subtypes by gene expression and micro-RNA",
        220,
        {"mrna": 200, "mirna": 184},
        {"Basal": 66, "Her2": 44, "LumA": 110},
        "tcga_breast.npz",
        "4c9c838e569ecc585c3f75ec03ce05d6b2d84f16738559d4c72d52ea627ca693",
        test={"Basal": 21, "Her2": 14, "LumA": 35},
        classes=("Basal", "Her2", "LumA"),
        extras={"protein": "X_protein_train", "protein_names": "names_protein"},
        origin="TCGA; mixOmics",
        remark="Features were chosen by the package's authors. Proteins are known for "
        "the 150 training rows only: `protein` holds them, and tcga_breast_train has "
        "them as a third view",
    ),
    "tcga_breast_train": DataSet(
        "Breast cancer subtypes by gene expression, micro-RNA and proteins",
        150,
        {"mrna": 200, "mirna": 184, "protein": 142},
        {"Basal": 45, "Her2": 30, "LumA": 75},
        classes=("Basal", "Her2", "LumA"),
        base="tcga_breast",
        origin="TCGA; mixOmics",
        remark="The training rows of tcga_breast, for which all three views are known",
    ),
    "rosmap": DataSet(
        "Alzheimer's disease by gene expression, methylation and micro-RNA",
        351,
        {"mrna": 200, "methylation": 200, "mirna": 200},
        {0: 169, 1: 182},
        "omics/rosmap.npz",
        "cb8fa977c9731fe075c0a070879dad04c7eeb009db4aaf4b7c0af9ec94dd535a",
        test={0: 51, 1: 55},
        origin="ROSMAP; MOGONET",
        remark="Columns were chosen, and scaled to values from 0 to 1, by the authors "
        "of MOGONET, whose split this is. Label 1 denotes patients",
    ),
    "msrcv1": DataSet(
        "Microsoft Research Cambridge images, seven kinds",
        210,
        {"cm": 24, "hog": 576, "gist": 512, "lbp": 256, "cent": 254},
        _same(range(1, 8), 30),
        "msrcv1.npz",
        "6cf707bd0be2502ad657c82ed6fd40cc08515e25f39bd77493372e839ccea01a",
        origin=_VIEWS,
        remark="How the features were computed is not documented",
    ),
    "leaves100": DataSet(
        "Leaves of 100 plant species",
        1600,
        {"margin": 64, "shape": 64, "texture": 64},
        _same(range(1, 101), 16),
        "leaves100.npz",
        "1374af7236b39ba3d0ffb0ff7ccd9ce19538db81daf9c2afa88cd148a22fbf1c",
        origin=f"UCI; {_VIEWS}",
        remark="The texture of row 0 is the mean of the others of its class, because "
        "UCI's file lacks it. View names were inferred from their values",
    ),
    "bbcsport2": DataSet(
        "Sport news of the BBC in two segments",
        544,
        {"view1": 3183, "view2": 3203},
        {1: 62, 2: 104, 3: 193, 4: 124, 5: 61},
        "bbcsport2.npz",
        "c3bc2c93b45c8eef7c3eb08a308b3cc16b5afb52f95df1e37a4d430146cf5500",
        origin=f"University College Dublin; {_VIEWS}",
        remark="Weighted terms, not counts; what the classes are is not in the file",
    ),
    "protein_fold_reduced": DataSet(
        "Protein folds in twelve reduced views",
        694,
        _same([f"view{i}" for i in range(1, 13)], 27),
        _numbered(
            "19 16 32 15 18 15 74 21 29 13 16 32 12 13 16 77 23 24 40 22 17 22 18 15 "
            "15 40 40",
            1,
        ),
        "protein_fold_reduced.npz",
        "16cdeb3cf1021a5b842f35fc7fbf9abaa49a5dd46144403307ade3b2d1c8f1c5",
        origin=f"Ding and Dubchak 2001; {_VIEWS}",
        remark="Not the twelve kernels of the literature: each was reduced to 27 "
        "columns in a way that is not documented. View names and the split are unknown",
    ),
    "multiloc_sequences": DataSet(
        "Protein sequences by their place in the cell",
        5959,
        {"sequence": 1},
        {
            "ER": 198,
            "Golgi": 150,
            "chloroplast": 449,
            "cytoplasmic": 1411,
            "extracellular": 843,
            "lysosomal": 103,
            "mitochondrial": 510,
            "nuclear": 837,
            "peroxisomal": 157,
            "plasma_membrane": 1238,
            "vacuolar": 63,
        },
        "multiloc_sequences.npz",
        "b1b7c21b813a18cbe888f24a13bcb3f145ccca54f0e4af27800c086647038cb9",
        classes=tuple(
            "ER Golgi chloroplast cytoplasmic extracellular lysosomal mitochondrial "
            "nuclear peroxisomal plasma_membrane vacuolar".split()
        ),
        sample_names="ids",
        origin="Höglund et al. 2006",
        remark="Not the TargetP and PSORTb data of Zien and Ong 2007. A view of "
        "strings of 13 to 5430 letters, some of them B, X or Z",
    ),
    "yeast_network150": DataSet(
        "Interactions of 150 yeast proteins",
        150,
        150,
        {},
        "yeast_network150.npz",
        "068451e5a3db729464b8c9adbedf3d7e52fcda2fc885a97e2f6f3bbe327a8437",
        sample_names="genes",
        extras={"adjacency": "A"},
        origin="Yamanishi et al. 2004; xnet",
        remark="No classes: `data` is one Gram matrix and `adjacency` the network. A "
        "random 150 of 769 proteins, and it is not documented which kernel this is",
    ),
}


class Listing(NamedTuple):
    """One line of :func:`available`."""

    name: str
    n_samples: int
    n_features: int
    n_classes: int
    views: tuple[str, ...]
    source: str
    at_hand: bool


def available(folder: Any = None) -> list[Listing]:
    """Return every data set with its sizes and where :func:`load` would find it.

    Parameters
    ----------
    folder : path, optional
        Folder of the npz files, by default the one that MKLEARN_DATA names.

    Returns
    -------
    list of Listing
        With ``name``, ``n_samples``, ``n_features`` (over all views), ``n_classes``,
        ``views`` (empty for a single table), ``source`` and ``at_hand``. Data sets
        at hand need no network; whether a file is the right one is checked on loading.

    Examples
    --------
    >>> from mklearn.datasets import available
    >>> {s.name: s.n_features for s in available() if s.at_hand}["iris"]
    4
    """
    return [_listing(name, folder) for name in CATALOGUE]


def _listing(name: str, folder: Any) -> Listing:
    entry = CATALOGUE[name]
    source, at_hand = _where(CATALOGUE[entry.base or name], folder)
    return Listing(
        name,
        entry.n_samples,
        entry.n_features,
        len(entry.counts),
        entry.views,
        source,
        at_hand,
    )


def _where(entry: DataSet, folder: Any) -> tuple[str, bool]:
    """Return the first source that has a data set, and whether it is local."""
    path = find_file(entry, folder)
    if path is not None and path.is_file():
        return f"file {entry.file}", True
    if entry.loader:
        return f"scikit-learn, {entry.loader}", True
    if entry.openml:
        return f"OpenML {entry.openml.data_id}", False
    return f"file {entry.file}", False


def find_file(entry: DataSet, folder: Any = None) -> Path | None:
    """Return where the file of a data set should be, None without file or folder."""
    folder = folder if folder is not None else os.environ.get(VARIABLE)
    if not folder or not entry.file:
        return None
    return Path(folder).expanduser() / entry.file


def table() -> str:
    """Return the catalogue as a table in Markdown, as docs/datasets.md shows it."""
    lines = [
        "| name | what | samples | features | classes | without a file | remarks |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in CATALOGUE.items():
        root = CATALOGUE[entry.base or name]
        other = [f"scikit-learn `{root.loader}`"] if root.loader else []
        other += [f"OpenML {root.openml.data_id}"] if root.openml else []
        cells = [
            f"`{name}`",
            f"{entry.title} ({entry.origin})",
            f"{entry.n_samples}",
            _features(entry),
            _classes(entry),
            ", ".join(other) or "no",
            f"{entry.remark}." if entry.remark else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _features(entry: DataSet) -> str:
    """Return the sizes of a table or of all views as text."""
    if isinstance(entry.features, int):
        return plural(entry.features, "feature")
    if set(entry.features.values()) == {1}:
        return f"{', '.join(entry.features)}: strings"
    return ", ".join(f"{view} {size}" for view, size in entry.features.items())


def _classes(entry: DataSet) -> str:
    """Return number and sizes of the classes as text."""
    sizes = list(entry.counts.values())
    if not sizes:
        return "no classes"
    if len(set(sizes)) == 1:
        text = f"{len(sizes)} x {sizes[0]}"
    elif len(sizes) > 12:
        text = f"{len(sizes)} of {min(sizes)} to {max(sizes)}"
    else:
        text = ", ".join(f"{label}: {size}" for label, size in entry.counts.items())
    part = sum(entry.test.values())
    return f"{text} (test part {part})" if part else text
