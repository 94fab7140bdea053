"""What Ye, Ji and Chen (2008) say about their tables, sections 5.1, 5.2 and 5.4."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.cells import Results
from reproduction.claims import (
    Claim,
    Mean,
    Means,
    by_data,
    joined,
    listed,
    not_run,
    numbered,
    of_sets,
)
from reproduction.dkl_figures import APART, LAMBDAS

KERNELS = 10
TWO = ("sonar", "heart", "ionosphere", "cancer")
MORE = (
    "USPS(3)", "USPS(6)", "USPS(8)", "wine(3)", "satimage(3)", "satimage(5)",
    "satimage(6)", "segment(3)", "segment(4)", "waveform(3)",
)  # fmt: skip
PROPOSED = tuple(
    f"{program}_theta{learned}"
    for program in ("SILP", "QCQP", "SDP")
    for learned in ("", "_lambda")
)
SVM_BASED = ("SM1", "SM2", "SM2_C")
LEARNED = (*PROPOSED, "SDP_kim", *SVM_BASED)
RKDA, SVM = CHOSEN = ("RKDA_K_lambda", "SVM_K_C")

RULE = (
    "*Similar* is within two points, *close* within one; a kernel has *weight zero* "
    "below 0.01 of all weights and a *large* one above 0.1; *favoured* kernels have "
    "more than half of the weights or choices; methods are included from one "
    "repetition on. "
    "Where a sentence is about several data sets or methods, it says on how many it "
    "holds. Which kernels have weight depends on the scale of the data, which is not "
    "printed, and sigmas are a factor of 2.15 apart."
)


def conclusions(mean: Mean) -> Iterator[Claim]:
    """Yield what the paper concludes, from the means of the tables."""
    every = (*TWO, *MORE)
    silp, learned = "SILP_theta", "SILP_theta_lambda"

    def accuracy(data: str, method: str) -> float:
        return mean(data, method, "accuracy")

    def seconds(data: str, method: str) -> float:
        return mean(data, method, "seconds")

    yield of_sets(
        "Learning lambda with the weights gives the accuracy of a lambda set by hand.",
        {d: accuracy(d, learned) - accuracy(d, silp) for d in every},
        lambda value: abs(value) <= 1,
        what="SILP, learned minus fixed: ",
        unit=" points; up to one counts as equal",
    )
    yield of_sets(
        "A learned combination is as good as the kernel that double cross-validation "
        "chooses, or better.",
        {d: accuracy(d, silp) - max(accuracy(d, m) for m in CHOSEN) for d in every},
        lambda value: value >= -1,
        what="SILP_theta minus the better of RKDA and SVM: ",
        unit=" points; up to one less counts as equal",
    )
    fast = (silp, learned, *SVM_BASED, *CHOSEN)
    spreads = {}
    for data in TWO:
        found = [accuracy(data, method) for method in fast]
        spreads[data] = max(found) - min(found)
    yield of_sets(
        "Discriminant and SVM-based methods have similar accuracies on two classes.",
        spreads,
        lambda value: value <= 2,
        form="{:.2f}",
        what="From the worst to the best of SILP, SM1, SM2, SM2_C, RKDA and SVM: ",
        unit=" points; up to two count as similar",
    )
    yield of_sets(
        "SILP is faster than double cross-validation on all sets.",
        {
            d: max(seconds(d, m) for m in (silp, learned))
            / min(seconds(d, m) for m in CHOSEN)
            for d in every
        },
        lambda value: value < 1,
        form="{:.2f}",
        what="Time of the slower SILP relative to that of the faster "
        "cross-validation: ",
    )
    for program in ("QCQP", "SDP"):
        yield of_sets(
            f"SILP is faster than {program}.",
            {d: seconds(d, f"{program}_theta") / seconds(d, silp) for d in every},
            lambda value: value > 1,
            form="{:.0f}",
            what=f"Time of {program}_theta relative to that of SILP_theta: ",
        )
    yield not_run(
        "On images of gene expression (Drosophila) SILP has 88.3 %, the best of 48 "
        "single kernels 72.0 % and all with equal weights 72.7 % (5.3).",
        "the images are not at hand.",
    )
    exact = "Newton_theta"
    turns = {
        d: (len(LAMBDAS) - 1)
        * mean(d, exact, "mean step")
        / (mean(d, exact, "highest accuracy") - mean(d, exact, "lowest accuracy"))
        for d in every
    }
    yield of_sets(
        "Accuracy oscillates as lambda changes (5.5).",
        turns,
        lambda value: value > 2,
        form="{:.1f}",
        what="All steps from one lambda to the next, in units of the distance between "
        "the lowest and the highest accuracy, by Newton steps: ",
        unit="; 1 is a curve that only falls, more than 2 counts as oscillating",
    )
    yield of_sets(
        "SDP depends more on lambda than QCQP, as its solver fails at some (5.5).",
        {d: mean(d, "SDP_theta", APART) for d in every},
        lambda value: value > 1,
        form="{:.2f}",
        what="Largest distance of SDP from the exact problem at the same lambdas and "
        "splits, mean over splits: ",
        unit=" points, by another solver than the paper's; more than one counts",
    )
    share = {d: mean(d, "SM1", "support percent") for d in TWO}
    known = {d: value for d, value in share.items() if not np.isnan(value)}
    yield Claim(
        "Most samples are support vectors on three of four sets, which is why SVM and "
        "discriminant agree.",
        f"By SM1 {by_data(known.items(), '{:.0f}')} %; more than 70 % counts.",
        [sum(value > 70 for value in known.values()) >= 3] if known else [],
    )


def claims(results: Results) -> list[str]:
    """Return the section of the page, if the run was not a quick one."""
    if results.settings.quick:
        return []
    means = Means(results)
    return listed(
        [
            *accuracies(means),
            *sonar(means),
            *heart(means),
            *ionosphere_and_cancer(means),
            *more_classes(means),
            *times(means),
            *support(means),
        ],
        title="The paper's claims, one by one",
        rule=RULE,
    )


def programs(results: Results) -> list[str]:
    """Compare the conic programs with Newton steps and SILP on the same splits."""
    own = [t for t in results.tables if t.name.isdigit() and not t.of]
    text, commits = [], set()
    for table in own:
        (data,) = table.data
        for method in (m for m in PROPOSED if m in table.methods):
            cells = [v for v in results.of(table, data, method) if "beside" in v]
            if not cells:
                continue
            commits |= {v["commit"] for v in cells}
            parts = [data, method, str(len(cells))]
            parts.append(f"{np.mean([v['seconds'] for v in cells]):.1f}")
            for program in ("Newton", "SILP"):
                others = [v["beside"][program] for v in cells]
                apart = max(
                    abs(v["objective"] / other["objective"] - 1)
                    for v, other in zip(cells, others, strict=True)
                )
                gap = max(other["gap"] for other in others)
                same = min(other["same"] for other in others)
                parts += [f"{apart:.0e}", f"{gap:.0e}", f"{same:.0f}"]
            text.append(f"| {' | '.join(parts)} |")
    if not text:
        return []
    return [
        "",
        "## One problem, several programs",
        "",
        "The paper says that SDP, QCQP and SILP solve one problem on two classes, and "
        "that for more classes QCQP and SILP do, while the SDP is approximate. On the "
        "same splits: *apart* is the largest difference of the objectives in parts of "
        "the objective, *gap* the largest certified one of Newton steps or SILP, and "
        "*same* the least share of test samples, in percent, that both put into the "
        "same class. *Seconds* are those of the conic program, of processor time. "
        f"Cells of commit {', '.join(sorted(commits))}.",
        "",
        "| data | program | splits | seconds | Newton: apart | gap | same "
        "| SILP: apart | gap | same |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *text,
    ]


def accuracies(means: Means) -> Iterator[Claim]:
    """Compare accuracies of methods."""
    apart = {
        data: abs(
            means.mean(data, "SILP_theta", "accuracy")
            - means.mean(data, "SILP_theta_lambda", "accuracy")
        )
        for data in (*TWO, *MORE)
        if means.has(data, "SILP_theta", "SILP_theta_lambda")
    }
    yield Claim(
        "Accuracies with lambda fixed and learned are similar (5.1).",
        f"By SILP at most {max(apart.values(), default=np.nan):.2f} points apart.",
        [value <= 2 for value in apart.values()],
    )
    spread = {}
    for data in TWO:
        # not all methods have all splits
        apart_from_silp = [
            means.paired(data, method, "SILP_theta", "accuracy")
            for method in (*LEARNED, *CHOSEN)
        ]
        found = [float(each.mean()) for each in apart_from_silp if len(each) > 2]
        if len(found) > 1:
            spread[data] = max(found) - min(found)
    yield Claim(
        "All methods have similar accuracies on two classes, but for trouble of "
        "solvers (5.1).",
        "From the best to the worst, by differences to SILP_theta on the same splits: "
        f"{by_data(spread.items())} points, of those with three repetitions.",
        [value <= 2 for value in spread.values()],
    )
    near = {
        data: np.abs(difference).max()
        for data in MORE
        if len(difference := means.paired(data, "SDP_theta", "SILP_theta", "accuracy"))
    }
    yield Claim(
        "With more classes the approximate SDP is close to the exact programs (5.2).",
        "SDP_theta against SILP_theta on the same splits, at most: "
        f"{by_data(near.items())} points.",
        [value <= 1 for value in near.values()],
    )


def sonar(means: Means) -> Iterator[Claim]:
    """Compare kernels on sonar."""
    for method, kernels in ((RKDA, {6, 7}), (SVM, {6, 7, 8})):
        yield best_alone(means, "sonar", method, kernels)
    yield heaviest(means, "sonar", "MKL has its weight on kernels 5 and 6", {5, 6})


def heart(means: Means) -> Iterator[Claim]:
    """Compare kernels on heart."""
    for method, kernels in ((SVM, {9, 10}), (RKDA, {7, 8, 9})):
        yield chosen_most(means, ("heart",), method, kernels)
    yield heaviest(
        means,
        "heart",
        "The discriminant methods weight kernels 1 and 10",
        {1, 10},
        PROPOSED,
    )
    yield weight_of(
        means, "heart", 10, "MKL by SVMs gives kernel 10 weight zero", zero, SVM_BASED
    )
    yield weight_of(
        means, "heart", 1, "all MKL methods give kernel 1 a large weight", large
    )


def ionosphere_and_cancer(means: Means) -> Iterator[Claim]:
    """Compare kernels on ionosphere and cancer."""
    for method in CHOSEN:
        yield best_alone(means, "ionosphere", method, {5, 6, 7})
    says = "nine of ten MKL methods give kernel 5 weight zero"
    yield weight_of(means, "ionosphere", 5, says, zero)
    for method in CHOSEN:
        alone = single(means, "cancer", method)
        if alone is not None:
            yield Claim(
                f"cancer: single kernels are alike ({method}, 5.1).",
                f"Accuracies from {alone.min():.1f} to {alone.max():.1f}.",
                [bool(np.ptp(alone) <= 2)],
            )
    yield heaviest(means, "cancer", "MKL favours kernel 2", {2})


def more_classes(means: Means) -> Iterator[Claim]:
    """Compare kernels on more than two classes."""
    digits = ("USPS(3)", "USPS(6)", "USPS(8)")
    yield favoured(means, digits, "MKL favours kernels 9 and 10", {9, 10})
    for method in CHOSEN:
        yield chosen_most(means, digits, method, {9, 10})
    for method in CHOSEN:
        yield chosen_most(means, ("waveform(3)",), method, {9, 10})
    fields = ("satimage(3)", "satimage(5)", "satimage(6)")
    yield favoured(means, fields, "MKL favours the first five kernels", range(1, 6))
    for method in CHOSEN:
        yield chosen_most(means, fields, method, range(6, 11))
    for data in ("segment(3)", "segment(4)"):
        yield heaviest(means, data, "kernel 1 has the largest weight", {1})
        picks = [
            int(np.sum(means.all(data, method, "chosen") == 0))
            for method in CHOSEN
            if means.has(data, method)
        ]
        yield Claim(
            f"{data}: cross-validation never chooses kernel 1 (5.2).",
            f"RKDA and SVM chose it {joined(picks)} times.",
            [count == 0 for count in picks],
        )


def times(means: Means) -> Iterator[Claim]:
    """Compare times."""
    ratios = {
        data: max(
            means.mean(data, f"SILP_theta{x}", "seconds") for x in ("", "_lambda")
        )
        / min(means.mean(data, method, "seconds") for method in CHOSEN)
        for data in (*TWO, *MORE)
        if means.has(data, "SILP_theta", "SILP_theta_lambda", *CHOSEN)
    }
    yield Claim(
        "SILP is faster than cross-validation on all sets (5.1, 5.2).",
        "Time of the slower SILP relative to that of the faster cross-validation: "
        f"{by_data(ratios.items())}.",
        [value < 1 for value in ratios.values()],
    )
    slowest = {}
    for data in (*TWO, *MORE):
        if means.has(data, "SDP_theta", "QCQP_theta", "SILP_theta"):
            slowest[data] = (
                means.mean(data, "SDP_theta", "seconds"),
                means.mean(data, "QCQP_theta", "seconds"),
                means.mean(data, "SILP_theta", "seconds"),
            )
    found = ", ".join(
        f"{data} {sdp:.1f}, {qcqp:.1f} and {silp:.2f}"
        for data, (sdp, qcqp, silp) in slowest.items()
    )
    yield Claim(
        "SDP is the slowest, and SILP faster than QCQP (5.1, 5.2).",
        f"Seconds of SDP, QCQP and SILP with lambda fixed: {found}.",
        [sdp > qcqp > silp for sdp, qcqp, silp in slowest.values()],
    )
    grows = []
    for sets in (MORE[:3], MORE[4:7], MORE[7:9]):
        done = [data for data in sets if means.has(data, "QCQP_theta")]
        if len(done) > 1:
            grows.append([(d, means.mean(d, "QCQP_theta", "seconds")) for d in done])
    yield Claim(
        "The time of QCQP grows quickly with the number of classes (5.2).",
        "; ".join(by_data(one, "{:.0f}") for one in grows) + " seconds.",
        [bool((np.diff([s for _, s in one]) > 0).all()) for one in grows],
    )


def support(means: Means) -> Iterator[Claim]:
    """Compare support vectors and the cost that is learned."""
    parts = {
        data: means.mean(data, "SM1", "support percent")
        for data in TWO
        if means.has(data, "SM1")
    }
    if parts:
        yield Claim(
            "For three of four sets the share of support vectors is very high (5.4).",
            f"By SM1 {by_data(parts.items(), '{:.0f}')} %; more than 70 % counts.",
            [sum(value > 70 for value in parts.values()) >= 3],
        )
    costs = {
        data: float(np.median([np.inf if v["reg"] is None else v["reg"] for v in rows]))
        for data in TWO
        if (rows := means.rows(data, "SM2_C"))
    }
    yield Claim(
        "A cost that is learned is very large (5.4).",
        f"Median of SM2_C: {by_data(costs.items(), '{:.2g}')}; more than 1000 counts.",
        [value > 1000 for value in costs.values()],
    )


# --- kernels --------------------------------------------------------------------------


def share(means: Means, data: str, method: str) -> NDArray[Any]:
    """Return the mean weights of kernels, which sum to one."""
    weights = np.mean([v["weights"] for v in means.rows(data, method)], axis=0)
    return np.asarray(weights / weights.sum())


def zero(part: float) -> bool:
    """Return whether a kernel has no weight to speak of."""
    return part < 0.01


def large(part: float) -> bool:
    """Return whether a kernel has much weight."""
    return part > 0.1


def weight_of(
    means: Means,
    data: str,
    kernel: int,
    says: str,
    holds: Callable[[float], bool],
    methods: tuple[str, ...] = LEARNED,
) -> Claim:
    """Compare the weight of one kernel."""
    parts = {
        method: float(share(means, data, method)[kernel - 1])
        for method in methods
        if means.has(data, method)
    }
    return Claim(
        f"{data}: {says} (5.1).",
        f"Its share: {by_data(parts.items())}.",
        [holds(part) for part in parts.values()],
    )


def single(means: Means, data: str, method: str) -> NDArray[Any] | None:
    """Return the accuracy of each kernel alone, if it is there."""
    names = [f"accuracy {m + 1}" for m in range(KERNELS)]
    found = np.array([means.mean(data, method, name) for name in names])
    return None if np.isnan(found).any() else found


def best_alone(means: Means, data: str, method: str, kernels: set[int]) -> Claim:
    """Compare which kernels are the best ones alone."""
    says = (
        f"{data}: kernels {joined(sorted(kernels))} are the best alone ({method}, 5.1)."
    )
    alone = single(means, data, method)
    if alone is None:
        return Claim(says, "", [])
    best = list(numbered(np.argsort(-alone, kind="stable")[: len(kernels)]))
    found = f"The best are {joined(best)}, from {np.sort(alone)[-len(kernels)]:.1f} up."
    return Claim(says, found, [set(best) == kernels])


def heaviest(
    means: Means,
    data: str,
    says: str,
    kernels: set[int],
    methods: tuple[str, ...] = LEARNED,
) -> Claim:
    """Compare which kernels have the largest weights."""
    tops = {}
    for method in methods:
        if means.has(data, method):
            order = np.argsort(-share(means, data, method), kind="stable")
            tops[method] = set(numbered(order[: len(kernels)]))
    found = ", ".join(f"{m} {joined(sorted(top))}" for m, top in tops.items())
    return Claim(
        f"{data}: {says} (5.{1 if data in TWO else 2}).",
        f"Largest weights: {found}.",
        [top == kernels for top in tops.values()],
    )


def favoured(means: Means, sets: tuple[str, ...], says: str, kernels: Any) -> Claim:
    """Compare how much weight some kernels have."""
    at = [kernel - 1 for kernel in kernels]
    parts = {
        data: share(means, data, "SILP_theta")[at].sum()
        for data in sets
        if means.has(data, "SILP_theta")
    }
    return Claim(
        f"{says} (5.2).",
        f"Their share by SILP_theta: {by_data(parts.items())}.",
        [value > 0.5 for value in parts.values()],
    )


def chosen_most(
    means: Means, sets: tuple[str, ...], method: str, kernels: Any
) -> Claim:
    """Compare how often some kernels are chosen."""
    at = [kernel - 1 for kernel in kernels]
    parts = {
        data: float(np.isin(chosen, at).mean())
        for data in sets
        if len(chosen := means.all(data, method, "chosen"))
    }
    names = list(kernels)
    what = f"{names[0]} to {names[-1]}" if len(names) > 3 else joined(sorted(names))
    section = 1 if sets[0] in TWO else 2
    return Claim(
        f"{joined(parts)}: {method} mostly chooses kernels {what} (5.{section}).",
        f"In {by_data(parts.items())} of the splits.",
        [value > 0.5 for value in parts.values()],
    )
