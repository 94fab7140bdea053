"""
Texture of photographs: 48 kernels from a log-Gabor bank
========================================================

Ye, Ji and Chen (2008) combine texture features of gene expression images: a bank of
log-Gabor filters with 4 scales and 6 orientations turns every image into 24, and two
RBF kernels on each of them make 48 kernels. This example builds the same filter bank
with numpy's FFT and applies it to the two photographs that come with scikit-learn. The
classes are ten squares of these photographs, and the task is to assign noisy patches to
the square that they were taken from. Discriminant kernel learning is compared with the
unweighted sum and with the best single kernel.
"""

import sys

import numpy as np
from sklearn.datasets import load_sample_images

from mklearn import MKLDiscriminant, MultiView, SingleKernelCV, kernels

SCALES, ORIENTATIONS = 4, 6
FACTORS = (0.5, 2.0)


def log_gabor(size):
    """Return the filters in the frequency domain, shape (24, size, size)."""
    f = np.fft.fftfreq(size)
    fy, fx = np.meshgrid(f, f, indexing="ij")
    radius = np.hypot(fx, fy)
    radius[0, 0] = 1.0
    angle = np.arctan2(-fy, fx)
    bank = []
    for s in range(SCALES):
        centre = 1.0 / (3.0 * 1.8**s)
        radial = np.exp(-(np.log(radius / centre) ** 2) / (2 * np.log(0.65) ** 2))
        radial[0, 0] = 0.0  # no response to a constant
        for o in range(ORIENTATIONS):
            turn = angle - o * np.pi / ORIENTATIONS
            apart = np.abs(np.arctan2(np.sin(turn), np.cos(turn)))
            spread = np.pi / ORIENTATIONS / 1.5
            bank.append(radial * np.exp(-(apart**2) / (2 * spread**2)))
    return np.array(bank)


def textures(patches):
    """Return the response of each filter as a view: its energy on a coarse grid."""
    size = patches.shape[1]
    spectrum = np.fft.fft2(patches - patches.mean(axis=(1, 2), keepdims=True))
    views = {}
    for k, one in enumerate(log_gabor(size)):
        energy = np.log(1.0 + np.abs(np.fft.ifft2(spectrum * one)))
        cells = energy.reshape(len(patches), 2, size // 2, 2, size // 2)
        parts = [cells.mean(axis=(2, 4)), cells.std(axis=(2, 4))]
        scale, orientation = divmod(k, ORIENTATIONS)
        views[f"s{scale}o{orientation}"] = np.hstack(
            [part.reshape(len(patches), 4) for part in parts]
        )
    return MultiView(views)


def photographs(per_class, size=32, seed=0):
    """Return grey patches and the squares of the photographs they come from."""
    rng = np.random.default_rng(seed)
    patches, labels = [], []
    for p, image in enumerate(load_sample_images().images):
        grey = image.astype(float).mean(axis=2)
        side = 128
        for c, (top, left) in enumerate([(0, 0), (0, 256), (128, 128), (256, 0),
                                         (256, 384)]):  # fmt: skip
            square = grey[top : top + side, left : left + side]
            for _ in range(per_class):
                i, j = rng.integers(0, side - size + 1, 2)
                patches.append(square[i : i + size, j : j + size])
                labels.append(5 * p + c)
    noise = rng.normal(scale=5.0, size=(len(patches), size, size))
    return np.array(patches) + noise, np.array(labels)


def compare(per_class, n_train, folds=3):
    """Return test accuracies by method, and the learned model."""
    patches, y = photographs(per_class)
    views = textures(patches)
    order = np.random.default_rng(1).permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    bank = [
        kernels.RBF("scale", factor, view=view)
        for view in views
        for factor in FACTORS
    ]  # fmt: skip
    learned = MKLDiscriminant(bank, reg="loo")
    methods = {
        "learned weights": learned,
        "unweighted sum": MKLDiscriminant(bank, norm=np.inf, reg="loo"),
        "best single kernel": SingleKernelCV(
            MKLDiscriminant(), bank, values=[1e-4, 1e-3, 1e-2], cv=folds
        ),
    }
    accuracy = {
        name: model.fit(views[train], y[train]).score(views[test], y[test])
        for name, model in methods.items()
    }
    return accuracy, learned, len(test)


def main(per_class=120, n_train=200, figure=None):
    """Print accuracies and draw the weights by scale and orientation."""
    accuracy, model, n_test = compare(per_class, n_train)
    print(f"{n_train} training patches, accuracy on {n_test} others:")
    for name, value in accuracy.items():
        print(f"  {name:20s} {100 * value:5.1f} %")
    weights = model.kernel_weights_.reshape(SCALES, ORIENTATIONS, len(FACTORS))
    used = np.count_nonzero(model.kernel_weights_)
    print(f"{used} of 48 kernels have weight; reg {model.reg_:.2g} by leave-one-out,")
    print(f"certified gap {model.duality_gap_:.1e}. Weight by scale, fine to coarse:")
    print("  " + "  ".join(f"{w:.3f}" for w in weights.sum(axis=(1, 2))))
    draw(weights.sum(axis=2), figure)
    return accuracy


def draw(weights, figure):
    """Plot the weights of the filters."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("Install matplotlib for the figure.")
        return
    fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
    shown = ax.imshow(weights, cmap="viridis")
    ax.set_yticks(range(SCALES))
    ax.set_xlabel("orientation (steps of 30°)")
    ax.set_ylabel("scale (fine to coarse)")
    fig.colorbar(shown, label="kernel weight")
    if figure is not None:
        fig.savefig(figure, dpi=120)
        plt.close(fig)
    else:
        plt.show()


if __name__ == "__main__":
    main(figure=sys.argv[1] if len(sys.argv) > 1 else None)
