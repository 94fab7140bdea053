"""Tails, variance components and tests, compared with other programs.

- Tail probabilities are compared with an inversion with 25 digits by mpmath, the
  approximations of momentchi2, and simulations.
- Weights, noise and fixed effects by restricted likelihood are compared with
  statsmodels, lme4 (R) and glimix-core (the basis of limix).
- The likelihood ratio test is compared with RLRsim (R), which simulates its exact
  distribution.
- Shares of variance of the five chromosomes of fastlmm's toy data, and their tests.

Programs that are not installed are left out, and the page says so. R is run as
``Rscript``; ``--limix`` is a Python interpreter with glimix-core, ``--fastlmm`` a wheel
of fastlmm.

    python benchmarks/validation.py [--quick] [--limix PYTHON] [--fastlmm WHEEL]
        [--page FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import mpmath
import numpy as np
import pandas as pd
from pages import page, table
from scipy.optimize import brentq

from mklearn import EvidenceMKLRegressor, MultiView, kernels
from mklearn.inference import kernel_tests, tail_probability

LEVELS = (0.3, 1e-3, 1e-6, 1e-12)


# --- tails ----------------------------------------------------------------------------


def weights_of() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return weights, and their multiplicities."""
    rng = np.random.default_rng(0)
    one = np.ones(8)
    return {
        "geometric": (0.6 ** np.arange(8), one),
        "one large, 99 small": (np.array([10.0, 0.1]), np.array([1.0, 99.0])),
        "of both signs": (
            rng.exponential(size=8) * np.r_[np.ones(5), -np.ones(3)],
            one,
        ),
    }


def inverted(q: float, w: np.ndarray, k: np.ndarray) -> float:
    """Return ``P(sum w X^2 > q)`` by quadrature with 25 digits along a parabola."""
    with mpmath.workdps(25):
        pairs = [(mpmath.mpf(float(x)), int(n)) for x, n in zip(w, k, strict=True)]
        q = mpmath.mpf(float(q))
        top = 1 / (2 * max(x for x, _ in pairs))

        def slope(s):
            return sum(n * x / (1 - 2 * x * s) for x, n in pairs) - q - 1 / s

        low, high = top * mpmath.mpf(10) ** -9, top * (1 - mpmath.mpf(10) ** -9)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        c = low
        bend = sum(2 * n * (x / (1 - 2 * x * c)) ** 2 for x, n in pairs) + 1 / c**2
        unit = 1 / mpmath.sqrt(bend)

        def along(u):
            s = c + unit * (1j * u + u**2 / 4)
            logs = sum(n * mpmath.log(1 - 2 * x * s) for x, n in pairs)
            step = unit * (1j + u / 2)
            return mpmath.im(mpmath.exp(-logs / 2 - s * q) / s * step)

        total = mpmath.quad(along, [0, 1, 2, 4, 8, 16, 32, 64, 128], maxdegree=7)
        return float(total / mpmath.pi)


def tails(draws: int) -> list[dict]:
    try:
        import momentchi2
    except ImportError:
        momentchi2 = None
    rows = []
    for name, (w, k) in weights_of().items():
        found = simulated(w, k, draws)
        for level in LEVELS:
            q = brentq(
                lambda q, w=w, k=k, level=level: np.log(
                    tail_probability(q, w, k) / level
                ),
                0.0 if (w < 0).any() else 1e-9, 200.0 * np.abs(w).max() + w @ k,
            )  # fmt: skip
            exact = inverted(q, w, k)
            row = {
                "weights": name, "tail": exact,
                "relative error": abs(tail_probability(q, w, k) / exact - 1.0),
            }  # fmt: skip
            every = np.repeat(w, k.astype(int))
            if momentchi2 is not None and (w > 0).all():
                for method in ("hbe", "wf", "sw"):
                    p = 1.0 - float(getattr(momentchi2, method)(coeff=every, x=q))
                    row[method] = abs(p / exact - 1.0)
            if level * draws > 100:
                share = float(np.mean(found > q))
                error = (exact * (1 - exact) / draws) ** 0.5
                row["draws, standard errors off"] = (share - exact) / error
            rows.append(row)
    return rows


def simulated(w: np.ndarray, k: np.ndarray, draws: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    return sum(x * rng.chisquare(n, draws) for x, n in zip(w, k, strict=True))


# --- variance components --------------------------------------------------------------


def crossed(levels: tuple[int, ...], n: int, seed: int) -> tuple[pd.DataFrame, list]:
    """Return values with crossed random effects and two covariates."""
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c"][: len(levels)]
    frame = pd.DataFrame(
        {"age": rng.uniform(20, 70, n), "sex": rng.integers(2, size=n)}
    )
    y = 0.05 * frame["age"] - 0.7 * frame["sex"] + rng.standard_normal(n)
    for name, count in zip(names, levels, strict=True):
        frame[name] = rng.integers(count, size=n)
        y = y + rng.standard_normal(count)[frame[name]]
    return frame.assign(y=y), names


def ours(frame: pd.DataFrame, names: list) -> dict[str, float]:
    views = {
        name: (frame[name].to_numpy()[:, None] == np.unique(frame[name])).astype(float)
        for name in names
    }
    X = MultiView({**views, "who": frame[["age", "sex"]]})
    family = [kernels.Linear(view=name) for name in names]
    model = EvidenceMKLRegressor(family, fixed="who", normalize=None, tol=1e-10)
    model.fit(X, frame["y"].to_numpy())
    found = {f"var {n}": model.kernel_weights_[m] * model.noise_[0]
             for m, n in enumerate(names)}  # fmt: skip
    found |= {"noise": model.noise_[0], "age": model.fixed_effects_[0]}
    found |= {"sex": model.fixed_effects_[1], "se age": model.fixed_effects_std_[0]}
    found |= {"se sex": model.fixed_effects_std_[1]}
    found |= {f"se weight {n}": model.kernel_weights_std_[m]
              for m, n in enumerate(names)}  # fmt: skip
    return found


def by_statsmodels(frame: pd.DataFrame, names: list) -> dict[str, float] | None:
    if importlib.util.find_spec("statsmodels") is None:
        return None
    from statsmodels.regression.mixed_linear_model import MixedLM

    model = MixedLM.from_formula(
        "y ~ age + sex", groups=np.ones(len(frame)), re_formula="0",
        vc_formula={name: f"0 + C({name})" for name in names}, data=frame,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = model.fit(reml=True, method=["lbfgs", "bfgs"], gtol=1e-9)
    if not (fit.converged and np.isfinite(fit.bse).all()):
        return None
    found = {f"var {n}": fit.vcomp[m] for m, n in enumerate(names)}
    found |= {"noise": fit.scale, "age": fit.fe_params["age"]}
    found |= {"sex": fit.fe_params["sex"], "se age": fit.bse_fe["age"]}
    found |= {"se sex": fit.bse_fe["sex"]}
    errors = np.asarray(fit.bse)[-len(names) :]
    return found | {f"se weight {n}": errors[m] for m, n in enumerate(names)}


LME4 = """
suppressMessages(library(lme4))
d <- read.csv("data.csv")
terms <- paste0("(1|", c(%s), ")", collapse = " + ")
f <- as.formula(paste("y ~ age + sex +", terms))
tight <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-10),
                     check.conv.singular = "ignore")
m <- lmer(f, d, REML = TRUE, control = tight)
v <- as.data.frame(VarCorr(m))
out <- list()
for (i in seq_len(nrow(v)))
  out[[if (v$grp[i] == "Residual") "noise" else paste("var", v$grp[i])]] <- v$vcov[i]
se <- sqrt(diag(as.matrix(vcov(m))))
out[["age"]] <- fixef(m)[["age"]]; out[["sex"]] <- fixef(m)[["sex"]]
out[["se age"]] <- se[[2]]; out[["se sex"]] <- se[[3]]
for (n in names(out)) cat(n, format(out[[n]], digits = 15), sep = "\\t", fill = TRUE)
"""

RLRSIM = """
suppressMessages({library(lme4); library(RLRsim)})
d <- read.csv("data.csv")
m <- lmer(y ~ age + sex + (1|a), d, REML = TRUE)
set.seed(1)
r <- exactRLRT(m, nsim = %d)
cat("statistic", format(r$statistic[[1]], digits = 15), sep = "\\t", fill = TRUE)
cat("p", format(r$p.value, digits = 15), sep = "\\t", fill = TRUE)
"""


def by_r(script: str, frame: pd.DataFrame) -> dict[str, float] | None:
    """Return the output of an R script for a table; None if R cannot run it."""
    if shutil.which("Rscript") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "data.csv", index=False)
        (Path(folder) / "run.R").write_text(script)
        done = subprocess.run(
            ["Rscript", "run.R"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return None
    lines = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    return {name.strip(): float(value) for name, value in lines}


GLIMIX = """
import json, sys
import numpy as np, pandas as pd
from numpy_sugar.linalg import economic_qs
from glimix_core.lmm import LMM
d = pd.read_csv("data.csv")
Z = (d["a"].to_numpy()[:, None] == np.unique(d["a"])).astype(float)
X = np.column_stack([np.ones(len(d)), d["age"], d["sex"]])
m = LMM(d["y"].to_numpy(), X, economic_qs(Z @ Z.T), restricted=True)
m.fit(verbose=False)
se = np.sqrt(np.diag(np.asarray(m.beta_covariance)))
print(json.dumps({"var a": float(m.v0), "noise": float(m.v1), "age": float(m.beta[1]),
                  "sex": float(m.beta[2]), "se age": se[1], "se sex": se[2]}))
"""


def by_glimix(python: str | None, frame: pd.DataFrame) -> dict[str, float] | None:
    if python is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "data.csv", index=False)
        done = subprocess.run(
            [python, "-W", "ignore", "-c", GLIMIX], cwd=folder, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def components(limix: str | None) -> list[dict]:
    rows = []
    for levels, n, seed in (((12, 15), 180, 3), ((8, 10, 12), 300, 4), ((15,), 150, 5)):
        frame, names = crossed(levels, n, seed)
        mine = ours(frame, names)
        quoted = ", ".join(f'"{name}"' for name in names)
        others = {
            "statsmodels": by_statsmodels(frame, names),
            "lme4": by_r(LME4 % quoted, frame),
            "glimix-core": by_glimix(limix, frame) if len(names) == 1 else None,
        }
        for quantity, value in mine.items():
            row = {"n": n, "levels": " x ".join(map(str, levels)),
                   "quantity": quantity, "mklearn": float(value)}  # fmt: skip
            for program, found in others.items():
                if found is not None and quantity in found:
                    row[program] = float(found[quantity])
            rows.append(row)
    return rows


def ratios(simulations: int) -> list[dict]:
    """Return likelihood ratio tests of one random effect, compared with RLRsim."""
    rows = []
    for seed, size in ((0, 0.0), (1, 0.35), (2, 0.45), (5, 0.6)):
        rng = np.random.default_rng(seed)
        frame, _ = crossed((12,), 120, seed)
        frame["y"] = 0.05 * frame["age"] + rng.standard_normal(120)
        frame["y"] += size * rng.standard_normal(12)[frame["a"]]
        Z = (frame["a"].to_numpy()[:, None] == np.arange(12)).astype(float)
        found = kernel_tests(
            (Z @ Z.T)[:, :, None], frame["y"].to_numpy(), "precomputed",
            fixed=frame[["age", "sex"]], method="lr",
        )  # fmt: skip
        row = {
            "effect": size,
            "ratio": float(found.statistic[0]),
            "p": float(found.p_values[0]),
            "its error": float(found.error[0]),
        }
        theirs = by_r(RLRSIM % simulations, frame)
        if theirs is not None:
            row |= {"RLRsim ratio": theirs["statistic"], "RLRsim p": theirs["p"]}
        rows.append(row)
    return rows


# --- genotypes ------------------------------------------------------------------------


def chromosomes(wheel: str | None) -> list[dict]:
    """Return shares of variance of the chromosomes of fastlmm's toy data."""
    if wheel is None:
        return []
    base = "fastlmm/feature_selection/examples/toydata"
    with zipfile.ZipFile(wheel) as archive:
        bed = archive.read(f"{base}.5chrom.bed")
        bim = archive.read(f"{base}.5chrom.bim").decode().splitlines()
        fam = archive.read(f"{base}.5chrom.fam").decode().splitlines()
        phe = archive.read(f"{base}.phe").decode().splitlines()
        cov = archive.read(f"{base}.cov").decode().splitlines()
    people = [tuple(line.split()[:2]) for line in fam]
    value = {tuple(line.split()[:2]): float(line.split()[2]) for line in phe}
    beside = {tuple(line.split()[:2]): float(line.split()[2]) for line in cov}
    n, chromosome = len(people), np.array([line.split()[0] for line in bim])
    packed = np.frombuffer(bed, np.uint8)[3:].reshape(len(bim), -1)
    codes = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(bim), -1, 2)
    first, second = codes[:, :n, 0], codes[:, :n, 1]
    dose = np.where(first > second, np.nan, first + second.astype(float)).T
    dose = np.where(np.isnan(dose), np.nanmean(dose, axis=0), dose)
    dose = dose[:, dose.std(axis=0) > 0], chromosome[dose.std(axis=0) > 0]
    genes, place = (dose[0] - dose[0].mean(axis=0)) / dose[0].std(axis=0), dose[1]
    y = np.array([value[one] for one in people])
    X = MultiView(
        {
            **{f"chr{c}": genes[:, place == c] for c in np.unique(place)},
            "covariate": np.array([[beside[one]] for one in people]),
        }
    )
    family = [kernels.Linear(view=f"chr{c}") for c in np.unique(place)]
    model = EvidenceMKLRegressor(family, fixed="covariate", tol=1e-6).fit(X, y)
    tests = kernel_tests(X, y, family, fixed=X["covariate"])
    given = kernel_tests(X, y, family, fixed=X["covariate"], given="others")
    return [
        {
            "kernel": name, "SNPs": int(np.sum(place == c)),
            "share": float(model.variance_explained_[m]),
            "standard error": float(model.variance_explained_std_[m]),
            "p": float(tests.p_values[m]), "p given others": float(given.p_values[m]),
        }
        for m, (name, c) in enumerate(
            zip(model.kernel_names_, np.unique(place), strict=True)
        )
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--limix", help="a Python with glimix-core")
    parser.add_argument("--fastlmm", help="a wheel of fastlmm")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    draws, simulations = (10**5, 10**4) if args.quick else (10**7, 10**5)
    found = tails(draws)
    more = (
        " Tail probabilities are compared with a numerical inversion to 25 digits. "
        "`relative error` is that of mklearn; `hbe`, `wf` and `sw` are relative errors "
        "of momentchi2's approximations (for positive weights). The last column is the "
        f"difference between {draws:.0e} draws and the exact tail, in standard errors."
    )
    parts = [page("Comparison with other programs", "validation.py", found, more)]
    parts.append(
        "\n## Variance components and fixed effects\n\nRestricted likelihood with "
        "crossed random effects, `K_m = Z_m Z_m'`, and two covariates. Standard errors "
        "of weights (in units of the noise) are based on the average information in "
        "mklearn, and on the observed information in statsmodels. Cells are blank if "
        "the program was not installed, did not converge, or does not report the "
        "number.\n\n" + table(components(args.limix))
    )
    parts.append(
        "\n## The likelihood ratio at the boundary\n\n"
        f"RLRsim with {simulations:.0e} simulations.\n\n" + table(ratios(simulations))
    )
    genes = chromosomes(args.fastlmm)
    if genes:
        parts.append(
            "\n## Five chromosomes\n\nThe toy data of fastlmm, one linear kernel for "
            "each chromosome, with the covariate of the data.\n\n" + table(genes)
        )
    text = "".join(parts)
    print(text)
    if args.page:
        args.page.write_text(text)
    worst = max(row["relative error"] for row in found)
    return int(worst > 1e-6)


if __name__ == "__main__":
    sys.exit(main())
