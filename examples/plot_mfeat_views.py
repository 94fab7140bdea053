"""
Six views of handwritten digits
===============================

The UCI data set *multiple features* describes 2000 digits by six sets of features:
Fourier coefficients, profile correlations, Karhunen-Loève coefficients, pixel averages,
Zernike moments and morphological features. Each view has three RBF kernels.
Discriminant kernel learning finds weights for the 18 kernels and is compared with the
same classifier on their unweighted sum and on the best single kernel.

If the data file is not available, scikit-learn's digits in three descriptions are used
instead.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

from mklearn import MKLDiscriminant, MultiView, SingleKernelCV, datasets, kernels
from mklearn.plotting import OKABE_ITO

FACTORS = (0.1, 1.0, 10.0)


def load_views():
    """Return a name, the views and the digits."""
    try:
        return "mfeat", *datasets.load("mfeat", return_X_y=True)
    except FileNotFoundError as missing:
        print(missing)
    digits = load_digits()
    images = digits.images
    views = {
        "pix": digits.data,
        "fou": np.abs(np.fft.rfft2(images)).reshape(len(images), -1),
        "pro": np.hstack([images.sum(axis=1), images.sum(axis=2)]),
    }
    return "digits", MultiView(views), digits.target


def compare(views, y, n_train, seed=0):
    """Return test accuracies by method, and the learned model."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    bank = [
        kernels.RBF("scale", factor, view=view, standardize=True)
        for view in list(views)
        for factor in FACTORS
    ]
    learned = MKLDiscriminant(bank, reg="learn")
    methods = {
        "learned weights": learned,
        "unweighted sum": MKLDiscriminant(bank, norm=np.inf, reg="loo"),
        "best single kernel": SingleKernelCV(
            MKLDiscriminant(), bank, values=np.logspace(-5, -1, 5), cv=3
        ),
    }
    accuracy = {
        name: model.fit(views[train], y[train]).score(views[test], y[test])
        for name, model in methods.items()
    }
    return accuracy, learned


def main(n_train=300, figure=None):
    """Print accuracies and weights, and draw the weights."""
    name, views, y = load_views()
    accuracy, model = compare(views, y, n_train)
    rest = len(y) - n_train
    print(f"{name}, {n_train} training samples, accuracy on the other {rest}:")
    for name, value in accuracy.items():
        print(f"  {name:20s} {100 * value:5.1f} %")
    weights = model.kernel_weights_.reshape(len(list(views)), len(FACTORS))
    print(f"learned reg {model.reg_:.2g}, certified gap {model.duality_gap_:.1e}")
    for name, row in zip(list(views), weights, strict=True):
        print(f"  {name:4s} " + "  ".join(f"{w:.3f}" for w in row))
    draw(list(views), weights, figure)
    return accuracy


def draw(names, weights, figure):
    """Plot the weights of each view, stacked by width."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("Install matplotlib for the figure.")
        return
    fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
    bottom = np.zeros(len(names))
    for factor, column, color in zip(FACTORS, weights.T, OKABE_ITO, strict=False):
        style = {"color": color, "edgecolor": "black", "lw": 0.5}
        ax.bar(names, column, bottom=bottom, label=f"γ × {factor:g}", **style)
        bottom += column
    ax.set_ylabel("kernel weight")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    if figure is not None:
        fig.savefig(figure, dpi=120)
        plt.close(fig)
    else:
        plt.show()


if __name__ == "__main__":
    main(figure=sys.argv[1] if len(sys.argv) > 1 else None)
