"""The sections of a report, as HTML.

A section is a function of a :class:`~mklearn.report.Report` that returns the content
below its heading, or an empty string if there is none. ``SECTIONS`` at the end lists
them in the order of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from mklearn.data.spelling import plural
from mklearn.fitted import kernels_by_view, proofs, widest
from mklearn.plotting import (
    OKABE_ITO,
    ConvergenceDisplay,
    ForestDisplay,
    KernelAlignmentDisplay,
    ViewScoresDisplay,
)
from mklearn.report import words
from mklearn.report.checks import run_checks
from mklearn.report.facts import (
    Predictions,
    Report,
    ViewShare,
    certificate,
    comparison_facts,
    errors_of_classes,
    errors_of_times,
    errors_of_values,
    evidence,
    headline,
    inference_facts,
    model_facts,
    view_facts,
    view_shares,
)
from mklearn.report.methods import methods_text
from mklearn.report.page import (
    Bar,
    Number,
    Share,
    clean,
    dots,
    figure,
    listing,
    new_figure,
    paragraph,
    table,
    text,
)


def data_section(report: Report) -> str:
    """Return the training data, missing values, and what was left out."""
    data = report.data
    missing = words.missing(data.missing, data.absent)
    start = f"{plural(data.n_samples, 'sample')}; {missing}."
    parts = [paragraph(f"{start} Source: {data.source}." if data.source else start)]
    heads = ["view", "columns"]
    views: list[Sequence[Any]] = list(data.views.items())
    if data.absent:
        heads = [*heads, "samples without it"]
        views = [(name, n, data.absent.get(name, 0)) for name, n in views]
    parts.append(table("Views of the samples", heads, views))
    if data.absent:
        parts.append(paragraph(words.ABSENT))
    if data.classes:
        rows = [
            (k, n, Number(f"{100.0 * n / data.n_samples:.1f} %"))
            for k, n in data.classes.items()
        ]
        parts.append(table("Classes", ["class", "samples", "share"], rows))
    parts.append(listing([(note, False) for note in report.notes]))
    return "".join(parts)


def comparison_section(report: Report) -> str:
    """Return scores on the same folds."""
    comparison, scoring = report.comparison, report.scoring
    if comparison is None:
        return ""
    rows = [
        (
            row["model"],
            Number(words.score(row, scoring)),
            Number(words.difference(row, scoring) if i else ""),
            Number(words.seconds(row)),
            words.kernels_used(row),
        )
        for i, row in enumerate(comparison_facts(comparison))
    ]
    name = words.scoring_name(scoring)
    heads = ["model", name, "difference", "seconds", "kernels used"]
    folds = plural(comparison.scores.shape[1], "fold")
    caption = f"Mean {name} on the same {folds}, and the time of a fit"
    scale, unit = words.scale(scoring)
    shown = [
        (model, (scale * scores).tolist())
        for model, scores in zip(comparison.names, comparison.scores, strict=True)
    ]
    alt = f"Each dot is the {name} of a model on one of {folds}, each line the mean"
    return (
        table(caption, heads, rows)
        + paragraph(words.differences(scoring))
        + dots(shown, f"{name}{f' ({unit.strip()})' if unit else ''}", alt, unit)
    )


def shares_section(report: Report) -> str:
    """Return the share of each view, summed over its kernels."""
    views = report.shares or view_shares(report.model)
    heads = ["view", "share", "relative", "kernels used"]
    rows: list[list[Any]] = [
        [v.view, Number(words.percent(v.share)), Bar(v.share), f"{v.used} of "
         f"{v.n_kernels}"]
        for v in views
    ]  # fmt: skip
    said = words.SHARES
    if all(v.low is not None for v in views):
        heads.insert(2, "95 % interval")
        for row, v in zip(rows, views, strict=True):
            row.insert(2, Number(f"{100 * v.low:.1f} to {100 * v.high:.1f} %"))
        said += f" {words.INTERVALS}"
    parts = table("Views, with all their kernels", heads, rows) + paragraph(said)
    return parts + _added(report, views)


def _added(report: Report, views: Sequence[ViewShare]) -> str:
    """Return what each view adds to the score, as far as it is known."""
    heads, said, scoring = ["view"], [], report.scoring
    rows: list[list[Any]] = [[v.view] for v in views]
    if all(v.p_value is not None for v in views):
        heads += ["permuted", "p"]
        for row, v in zip(rows, views, strict=True):
            row += [Number(words.gain(v.importance, scoring)),
                    Number(words.p_value(v.p_value))]  # fmt: skip
        said.append(words.PERMUTED)
    for kind, head in words.REFITS.items():
        if all(getattr(v, kind) is not None for v in views):
            heads.append(head)
            for row, v in zip(rows, views, strict=True):
                row.append(Number(words.refit_score(asdict(v), kind, scoring)))
    said += [report.refits] if report.refits else []
    shown = ""
    if len(heads) > 1:
        unit = " in points" if words.scale(scoring)[1] else ""
        caption = f"What each view adds to the {words.scoring_name(scoring)}{unit}"
        shown = table(caption, heads, rows)
    return shown + (paragraph(" ".join(said)) if said else "")


def views_section(report: Report) -> str:
    """Return the part of the score attributed to each view."""
    found = report.views
    if found is None:
        return ""
    facts = view_facts(found)
    rows = [
        (row["name"], Number(words.view_score(row, facts["scoring"])))
        for row in facts["views"]
    ]
    caption = words.by_view(facts)
    caption = caption[0].upper() + caption[1:]
    parts = table(caption, [found.by, "score"], rows)
    parts += paragraph(words.BY_VIEW[found.kind])
    drawn = new_figure((7, 1.5 + 0.35 * len(rows)))
    if drawn is not None:
        # a dollar would start a formula
        plain = [_short(name) for name in found.names]
        shown = replace(found, names=tuple(plain))
        ViewScoresDisplay.from_scores(shown, ax=drawn.subplots())
        count = len(rows) - found.names.count("intercept")
        alt = (
            f"Bars: the part of the score that each of {count} {found.by}s accounts for"
        )
        parts += figure(drawn, alt, "views")
    return parts


def kernels_section(report: Report) -> str:
    """Return the weight and the contribution of each kernel."""
    kernels = model_facts(report.model)["kernels"]
    top = max([row["weight"] for row in kernels] + [1e-300])
    rows = [
        (
            row["name"],
            row["view"] or "-",
            Number(words.weight(row)),
            Bar(row["weight"] / top),
            Number(words.contribution(row)),
        )
        for row in kernels
    ]
    heads = ["kernel", "view", "weight", "relative", "contribution"]
    used = sum(row["used"] for row in kernels)
    caption = f"Kernel weights; {used} of {plural(len(kernels), 'kernel')} used"
    if np.ndim(report.model.kernel_weights_) == 2:
        caption += "; each class has its own weights, their means are shown"
    parts = table(caption, heads, rows) + paragraph(words.CONTRIBUTIONS)
    if len(headline(kernels)["kernels"]) < len(kernels):
        parts += paragraph(words.ALIKE_WIDTHS)
    if getattr(report.model, "rejected_", ()):
        parts += paragraph(words.rejected(report.model.rejected_))
    return parts


def inference_section(report: Report) -> str:
    """Return tests and intervals for the kernels."""
    model = report.model
    found = inference_facts(model, report.tests, report.profile, report.stability)
    if not found:
        return ""
    names, heads = list(model.kernel_names_), ["kernel"]
    columns: list[Any] = [names]
    variance = hasattr(model, "weight_errors_")
    share = "share of variance, 95 % interval" if variance else "share, 95 % interval"
    for low, high, what in (
        ("weight_low", "weight_high", "weight, 95 % interval"),
        ("share_low", "share_high", share),
    ):
        # the weights themselves depend on the norm, and a page has little room
        if low in found and (variance or low == "share_low"):
            ends = zip(found[low], found[high], strict=True)
            columns.append([Number(words.interval(a, b)) for a, b in ends])
            heads.append(what)
    if report.tests is not None:
        for key, what in (("p", "p"), ("p_holm", "adjusted p")):
            columns.append([Number(f"{p:.2g}") for p in found[key]])
            heads.append(what)
    if "selected" in found:
        columns.append([Number(f"{100 * share:.0f} %") for share in found["selected"]])
        heads.append("used in")
    rows = list(zip(*columns, strict=True))
    parts = table("Tests and intervals for the kernels", heads, rows)
    parts += paragraph(words.MATTER) if report.tests is not None else ""
    if "share_low" in found:
        errors = words.PROFILE if report.profile is not None else words.SHORT
        parts += paragraph(errors if variance else words.RESAMPLED)
    parts += paragraph(words.USED) if "selected" in found else ""
    drawn = None
    if "share_low" in found:
        drawn = new_figure((7, 1.6 + 0.3 * len(names)))
    if drawn is not None:
        display = ForestDisplay.from_estimator(
            model,
            tests=report.tests,
            stability=report.stability if "selected" in found else None,
            profile=report.profile,
            ax=drawn.subplots(),
        )
        # a dollar would start a formula
        plain = [clean(name).replace("$", r"\$") for name in names]
        display.ax_.set_yticks(range(len(names)), plain)
        of = "share of the variance" if variance else "share"
        alt = f"Forest plot: {of} of each of {plural(len(names), 'kernel')}"
        parts += figure(drawn, alt, "forest", wide=len(names) > 12)
    return parts


def alignment_section(report: Report) -> str:
    """Return the similarity of the kernels."""
    if report.alignment is None:
        return ""
    names, values = report.model.kernel_names_, np.asarray(report.alignment)
    parts = paragraph(words.ALIKE)
    short = [_short(name) for name in names]
    if len(names) > MANY:  # show only the first kernel of each view
        groups = kernels_by_view(names, report.model.kernels_)
        first = {members[0]: _short(view) for view, members in groups.items()}
        short = [first.get(m, "") for m in range(len(names))]
    cell = min(0.4, max(0.1, 8.0 / len(names)))  # inches
    size = min(9.0, 60.0 * cell)
    room = 0.011 * size * max(map(len, short))  # width of the longest name, in inches
    side = cell * len(names)
    drawn = new_figure((side + room + 1.8, side + 0.75 * room + 1.0))
    if drawn is not None:
        shown = KernelAlignmentDisplay(alignment=values, names=short)
        shown.plot(drawn.subplots())
        shown.ax_.tick_params(labelsize=size)
        for drawn_text in shown.text_:
            drawn_text.set_fontsize(min(8.0, 26.0 * cell))
        count = plural(len(names), "kernel")
        alt = f"Heat map: centred alignment of the {count}, pair by pair"
        parts += figure(drawn, alt, "alignment", wide=len(names) > 4)
    above = np.triu(np.ones(values.shape, dtype=bool), 1)
    pairs = sorted(np.argwhere(above).tolist(), key=lambda ij: -values[tuple(ij)])[:10]
    rows = [(f"{names[i]} and {names[j]}", float(values[i, j])) for i, j in pairs]
    if rows:
        caption = "The most similar pairs of kernels"
        parts += table(caption, ["kernels", "centred alignment"], rows)
    return parts


def certificate_section(report: Report) -> str:
    """Return what is proven about the weights."""
    solutions = proofs(report.model)
    if not solutions:
        return ""
    solution = widest(solutions)
    found = certificate(solution, report.model)
    parts = paragraph(found["plain_words"], "words") + paragraph(found["message"])
    drawn = new_figure((7, 4))
    if drawn is not None:
        ConvergenceDisplay.from_solution(solution, ax=drawn.subplots())
        alt = (
            "Upper and lower bound on the optimum over "
            f"{plural(found['n_iter'], 'iteration')}; they end at "
            f"{found['objective']:.6g} and {found['lower_bound']:.6g}"
        )
        parts += figure(drawn, alt, "bounds")
    return parts


def evidence_section(report: Report) -> str:
    """Return the evidence of the weights, for evidence models."""
    if not hasattr(report.model, "evidence_"):
        return ""
    found = evidence(report.model.solution_, report.model.noise_)
    parts = paragraph(found["plain_words"], "words") + paragraph(found["message"])
    rows = [
        (f"noise of output {i + 1}, standard deviation", _size(np.sqrt(variance)))
        for i, variance in enumerate(found["noise"])
    ]
    return parts + table("What the kernels do not explain", ["", "value"], rows)


def values_section(report: Report) -> str:
    """Return the errors of predicted numbers."""
    found = report.predictions
    if found is None or not is_regressor(report.model):
        return ""
    truth, predicted = found.truth, found.predicted
    errors = errors_of_values(found)
    share = f"{errors['r2']:.3f}"
    rows = [
        ("R²", Number(share)),
        ("mean absolute error", _size(errors["mean_absolute_error"])),
        ("root mean squared error", _size(errors["root_mean_squared_error"])),
        ("standard deviation of the target", _size(errors["standard_deviation"])),
    ]
    caption = f"Cross-validated predictions of {plural(len(truth), 'sample')}"
    parts = table(caption, ["error", "value"], rows)
    drawn = new_figure((5, 5))
    if drawn is None:
        return parts
    ax = drawn.subplots()
    ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
    ax.plot(ends, ends, color="0.5", ls="--", lw=1)
    ax.scatter(truth, predicted, color=OKABE_ITO[0], s=12, alpha=0.6, linewidths=0)
    ax.set(xlabel="target", ylabel="prediction", aspect="equal")
    alt = (
        f"Cross-validated predictions against the target, with R² {share}; on the "
        "dashed line both are equal"
    )
    return parts + figure(drawn, alt, "errors")


def classes_section(report: Report) -> str:
    """Return which classes are confused with which."""
    found = report.predictions
    if found is None or is_regressor(report.model) or found.of_times:
        return ""
    errors = errors_of_classes(found)
    classes = errors["classes"]
    rows = [
        (label, *(Share(count, sum(counts)) for count in counts))
        for label, counts in zip(classes, errors["confusion"], strict=True)
    ]
    heads = ["true class", *(f"predicted {label}" for label in classes)]
    caption = (
        "Confusion matrix of cross-validated predictions, "
        f"{100 * errors['accuracy']:.1f} % of which are right"
    )
    parts = table(caption, heads, rows)
    by_class = [
        (label, int(sum(counts)), *(Number(f"{100 * part:.1f} %") for part in found_of))
        for label, counts, *found_of in zip(
            classes,
            errors["confusion"],
            errors["recall"],
            errors["precision"],
            errors["f1"],
            strict=True,
        )
    ]
    parts += table(
        "Errors by class; balanced accuracy, the mean of the recalls, is "
        f"{100 * errors['balanced_accuracy']:.1f} %",
        ["class", "samples", "recall", "precision", "F1"],
        by_class,
    )
    return parts + _curves(found, errors)


def _curves(found: Predictions, errors: dict[str, Any]) -> str:
    """Return ROC, precision-recall and calibration curves, as far as available."""
    classes = errors["classes"]
    ranked = _rankings(found, classes)
    if not ranked:
        return ""
    areas = {
        label: (roc_auc_score(y, s), average_precision_score(y, s))
        for label, (y, s) in ranked.items()
    }
    if len(ranked) == 1:
        ((label, (area, precise)),) = areas.items()
        alt = (
            f"ROC curve for class {label}; the area under it is {area:.3f}. Precision "
            f"against recall; the average precision is {precise:.3f}."
        )
        parts = ""
    else:
        rows = [(k, *(Number(f"{v:.3f}") for v in pair)) for k, pair in areas.items()]
        heads = ["class", "area under the ROC", "average precision"]
        parts = table("Each class against all others", heads, rows)
        alt = "ROC curves of each class against all others, and precision and recall."
    chances = _chances(found, classes)
    if chances:
        alt += (
            " Calibration: the observed frequency of a class against its predicted "
            "probability."
        )
    drawn = new_figure((4.2 * (3 if chances else 2), 4.2))
    if drawn is None:
        return parts + paragraph(alt)
    axes = drawn.subplots(1, 3 if chances else 2)
    for j, (label, (y, s)) in enumerate(ranked.items()):
        style = {"color": OKABE_ITO[j % len(OKABE_ITO)], "lw": 1.6}
        style["ls"] = ("-", "--", ":")[j // len(OKABE_ITO) % 3]
        axes[0].plot(*roc_curve(y, s)[:2], **style, label=_short(label))
        precision, recall, _ = precision_recall_curve(y, s)
        axes[1].step(recall, precision, where="post", **style)
    for j, (y, p) in enumerate(chances.values()):
        share, mean = calibration_curve(y, p, n_bins=min(10, max(2, len(y) // 20)))
        axes[2].plot(mean, share, "o-", ms=4, color=OKABE_ITO[j % len(OKABE_ITO)])
    axes[0].set(xlabel="false positive rate", ylabel="true positive rate")
    axes[1].set(xlabel="recall", ylabel="precision", ylim=(-0.03, 1.03))
    axes[0].plot([0, 1], [0, 1], color="0.5", ls="--", lw=1)
    if chances:
        axes[2].set(xlabel="predicted probability", ylabel="observed frequency")
        axes[2].plot([0, 1], [0, 1], color="0.5", ls="--", lw=1)
    if 1 < len(ranked) <= 12:
        axes[0].legend(frameon=False, fontsize="small", loc="lower right")
    return parts + figure(drawn, alt, "errors", wide=True)


def _rankings(found: Predictions, classes: list[str]) -> dict[str, Any]:
    """Return membership indicators and scores, by class."""
    truth = np.array([str(label) for label in found.truth])
    if found.scores is not None and len(classes) == 2:
        return {classes[1]: (truth == classes[1], np.asarray(found.scores))}
    known = found.classes
    if found.decisions is None or known is None or len(known) > MANY:
        return {}
    if found.decisions.shape[1] != len(known):
        return {}
    return {
        str(label): (truth == str(label), column)
        for label, column in zip(known, found.decisions.T, strict=True)
        if 0 < np.count_nonzero(truth == str(label)) < len(truth)
    }


def _chances(found: Predictions, classes: list[str]) -> dict[str, Any]:
    """Return membership indicators and probabilities, by class."""
    if found.probabilities is None or found.classes is None:
        return {}
    truth = np.array([str(label) for label in found.truth])
    listed = {
        str(label): (truth == str(label), column)
        for label, column in zip(found.classes, found.probabilities.T, strict=True)
    }
    if len(listed) == 2:
        listed.pop(str(found.classes[0]))
    return listed if len(listed) <= len(OKABE_ITO) else {}


def curve_section(report: Report) -> str:
    """Return the score as a function of the number of training samples."""
    curve, scoring = report.curve, report.scoring
    if curve is None:
        return ""
    facts, name = curve.rows(), words.scoring_name(scoring)
    rows = [(str(row["size"]), Number(words.score(row, scoring))) for row in facts]
    caption = (
        f"Mean {name} on the folds, for models trained on subsets of their samples"
    )
    parts = table(caption, ["training samples", name], rows)
    parts += paragraph(words.rise(curve.rise, scoring))
    drawn = new_figure((6, 3.6))
    if drawn is None:
        return parts
    scale, unit = words.scale(scoring)
    ax = drawn.subplots()
    ax.errorbar(
        curve.sizes,
        [scale * row["score"] for row in facts],
        [scale * row["standard_error"] for row in facts],
        color=OKABE_ITO[0], marker="o", ms=4, lw=1.6, capsize=3,
    )  # fmt: skip
    ax.set(
        xlabel="training samples", ylabel=f"{name}{f' ({unit.strip()})' * bool(unit)}"
    )
    alt = (
        f"Learning curve: mean {name} on the folds against the number of training "
        "samples, with standard errors"
    )
    return parts + figure(drawn, alt, "learning")


# --- single samples -------------------------------------------------------------------


def samples_section(report: Report) -> str:
    """Return the contributions of views to the predictions of a few samples."""
    found = report.predictions
    if found is None or found.parts is None or len(found.views) < 2:
        return ""
    values = is_regressor(report.model)
    known = np.isfinite(found.parts).all(axis=(1, 2))
    if not known.any() or (not values and found.decisions is None):
        return ""
    ids = np.arange(len(found.truth)) if found.ids is None else found.ids
    if values:
        sizes = np.where(known, np.abs(found.truth - found.predicted), -np.inf)
        chosen = [(i, "far off") for i in np.argsort(-sizes)[:4]]
        spoken = found.parts[:, 0]
        near = np.where(known, np.abs(found.truth - found.predicted), np.inf)
        chosen += [(i, "near") for i in np.argsort(near)[:2]]
        said = words.PARTS_OF_VALUES
    else:
        spoken, margin = _for_the_prediction(found)
        wrong = np.flatnonzero(known & (found.truth != found.predicted))
        right = np.flatnonzero(known & (found.truth == found.predicted))
        surest = wrong[np.argsort(-margin[wrong], kind="stable")][:4]
        chosen = [(i, "wrong, with confidence") for i in surest]
        order = right[np.argsort(margin[right], kind="stable")]
        chosen += [(i, "right, but close") for i in order[:2]]
        chosen += [(i, "right, with confidence") for i in order[-1:]]
        said = words.PARTS_OF_CLASSES
    rows = [
        (
            ids[i],
            why,
            _plain(found.truth[i]),
            _plain(found.predicted[i]),
            *(Number(f"{part:+.2f}") for part in spoken[i]),
        )
        for i, why in chosen
    ]
    heads = ["sample", "why it is shown", "true", "predicted", *found.views]
    caption = "Contributions of the views for a few test samples"
    return table(caption, heads, rows) + paragraph(said)


def _for_the_prediction(found: Predictions) -> tuple[Any, Any]:
    """Return the margin of the predicted class, and the contributions of views to it.

    The contributions come first. The margin is over the next class; for a wrong
    prediction, over the true class.
    """
    parts, scores, classes = found.parts, found.decisions, found.classes
    assert parts is not None and scores is not None and classes is not None
    n = len(scores)
    if scores.shape[1] == 1:
        sign = np.where(found.predicted == classes[1], 1.0, -1.0)
        return sign[:, None] * parts[:, 0], sign * scores[:, 0]
    place = {label: c for c, label in enumerate(classes.tolist())}
    said = np.array([place[label] for label in found.predicted.tolist()])
    rest = scores.copy()
    rest[np.arange(n), said] = -np.inf
    other = rest.argmax(axis=1)
    wrong = found.truth != found.predicted
    other[wrong] = [place[label] for label in found.truth[wrong].tolist()]
    rows = np.arange(n)
    return parts[rows, said] - parts[rows, other], scores[rows, said] - scores[
        rows, other
    ]


def _plain(value: Any) -> Any:
    return _size(float(value)) if isinstance(value, float) else str(value)


# --- summary, checks and origin -------------------------------------------------------


def verdict_section(report: Report) -> str:
    """Return the conclusion of the comparison."""
    return paragraph(report.verdict, "words") if report.verdict else ""


def checks_section(report: Report) -> str:
    """Return the warnings, with advice."""
    found = run_checks(report)
    if not found:
        return paragraph(words.ALL_WELL)
    return listing([(said, False) for said in found])


def methods_section(report: Report) -> str:
    """Return sentences for a paper, and their sources."""
    said, sources = methods_text(report)
    return paragraph(words.PASTE) + (
        f"<blockquote>{paragraph(said)}</blockquote>"
        + listing([(source, False) for source in sources])
    )


def origin_section(report: Report) -> str:
    """Return the origin of the report."""
    if not report.origin:
        return ""
    rows = [item for item in report.origin.items() if item[0] != "command"]
    command = report.origin.get("command")
    shown = f"<pre><code>{text(command)}</code></pre>" if command else ""
    return shown + table("Versions and settings", ["what", "value"], rows)


def _short(name: Any) -> str:
    """Return a name for use in a figure; a dollar would start a formula."""
    shown = clean(name)
    shown = shown if len(shown) <= 36 else f"{shown[:35]}…"
    return shown.replace("$", r"\$")


def times_section(report: Report) -> str:
    """Return how well risks order events in time, and curves of groups by risk."""
    found = report.predictions
    if found is None or not found.of_times:
        return ""
    errors = errors_of_times(found)
    rows = [
        (f"{at:.4g}", count, Number("-" if area is None else f"{area:.3f}"))
        for at, count, area in zip(
            errors["at"], errors["events_by_then"], errors["areas"], strict=True
        )
    ]
    heads = ["time", "events by then", "area under the curve"]
    caption = "Discrimination between samples with and without an event up to a time"
    parts = paragraph(words.concordance(errors)) + table(caption, heads, rows)
    groups = errors["groups"]
    rows = [(name, g["n_samples"], g["events"]) for name, g in groups.items()]
    heads = ["predicted risk", "samples", "events"]
    parts += table("Groups by predicted risk", heads, rows)
    drawn = new_figure((7, 4))
    if drawn is None:
        return parts
    ax = drawn.subplots()
    for (name, g), colour in zip(groups.items(), OKABE_ITO, strict=False):
        ax.step(
            g["times"], g["share_without_event"], where="post", color=colour, lw=2,
            label=f"{name} risk",
        )  # fmt: skip
    ax.set(xlabel="time", ylabel="share without an event", ylim=(0.0, 1.02))
    ax.legend(frameon=False)
    alt = (
        "Kaplan-Meier curves of groups with low to high predicted risk, on samples "
        "not used for training; the further apart the curves, the more informative "
        "the risk"
    )
    return parts + figure(drawn, alt, "times")


def _size(value: float) -> Number:
    return Number(f"{value:.3g}")


def loading_section(report: Report) -> str:
    """Return how to load the model."""
    if not report.loading:
        return paragraph("The model was not saved.")
    return f"<pre><code>{text(report.loading)}</code></pre>"


Section = Callable[[Report], str]
MANY = 60  # number of kernels or classes above which figures do not name all of them
SECTIONS: tuple[tuple[str, Section], ...] = (
    ("In short", verdict_section),
    ("Checks", checks_section),
    ("Views", shares_section),
    ("Score by view", views_section),
    ("Comparison", comparison_section),
    ("Errors", values_section),
    ("Errors", classes_section),
    ("Times to the event", times_section),
    ("Learning curve", curve_section),
    ("Samples", samples_section),
    ("Kernels", kernels_section),
    ("Which kernels matter?", inference_section),
    ("Alignment", alignment_section),
    ("Certificate", certificate_section),
    ("Evidence", evidence_section),
    ("Data", data_section),
    ("Methods", methods_section),
    ("Origin", origin_section),
    ("Loading the model", loading_section),
)
