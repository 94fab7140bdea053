"""Draw the figures of the landing page and of the tutorial by the code of these pages.

Run ``python docs/images/draw.py`` after a change of that code.
"""

import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

from mklearn.interpretation import weight_stability
from mklearn.plotting import OKABE_ITO

HERE = Path(__file__).parent


def draw(axes, model, X, y):
    """Draw the share of each view, with its range over bootstrap samples."""
    found = weight_stability(model, X, y, n_resamples=30, random_state=0)
    views = np.array([name.split(":")[0] for name in model.kernel_names_])
    names = list(dict.fromkeys(views))
    shares = np.array(
        [
            [row[views == name].sum() / row.sum() for name in names]
            for row in found.weights
        ]
    )
    low, middle, high = np.quantile(shares, [0.025, 0.5, 0.975], axis=0)
    place = np.arange(len(names))
    axes.barh(place, middle, color=[OKABE_ITO[i] for i in (1, 2, 3)], height=0.6)
    axes.errorbar(
        middle, place, xerr=[middle - low, high - middle], fmt="none", color="0.2",
        capsize=4,
    )  # fmt: skip
    axes.set_yticks(place, names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel(
        "share of the kernel weights (median and 95 % of 30 bootstrap samples)"
    )
    axes.set_title("Which description of the cells matters?", loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def run(page):
    """Run the code of a page and return its names."""
    text = (HERE.parent / page).read_text(encoding="utf-8")
    space = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, page, "exec"), space)
    return space


def main():
    """Write landing.png and tutorial.png."""
    found = run("index.md")
    figure, axes = plt.subplots(figsize=(7.2, 2.4), layout="constrained")
    draw(axes, found["model"], found["X"], found["y"])
    figure.savefig(HERE / "landing.png", dpi=160)
    here = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            run("tutorial.md")
            shutil.copy("figure.png", HERE / "tutorial.png")
        finally:
            os.chdir(here)


if __name__ == "__main__":
    main()
