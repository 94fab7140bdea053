"""The grid of noise views by samples: differences are paired, marks are earned."""

import numpy as np
import pytest

from reproduction.cells import Results, Settings


@pytest.fixture
def when(benchmarks):
    import when

    return when


def made(when, gains):
    """Return results in which p = 1 is ahead of the sum by given points."""
    plan = when.PROTOCOL
    found = {}
    for cell in plan.tables[0].cells("when"):
        noise = when.SETTINGS[cell.data][1]
        level = 70.0 + cell.repetition
        more = gains(noise) + 0.1 * cell.repetition if cell.method == "p = 1" else 0.0
        found[cell] = {"accuracy": level + more, "spent": 6.0, "commit": "abc"}
    return Results(plan, plan.tables, Settings(), found)


def test_marks_need_two_standard_errors(when):
    assert when.verdict(np.array([1.0, 1.1, 0.9])) == 1
    assert when.verdict(np.array([-1.0, -1.1, -0.9])) == -1
    assert when.verdict(np.array([1.0, -1.0, 0.5])) == 0 == when.verdict(np.ones(1))


def test_differences_are_those_on_the_same_data(when):
    found = made(when, lambda noise: noise - 3.0)
    for data, each in when.differences(found, "p = 1").items():
        noise = when.SETTINGS[data][1]
        assert np.allclose(each, noise - 3.0 + 0.1 * np.arange(len(each)))
    rows = when.grid(found, "p = 1")
    assert [row["n = 25"] for row in rows][::4] == ["-2.8 **-**", "+24.2 **+**"]
    assert (
        "better than the sum in 15 of 25 settings, worse in 10" in when.said(found)[0]
    )


def test_page_has_both_norms_and_the_figure(when, tmp_path):
    path = tmp_path / "when-it-pays.md"
    when.write(made(when, float), path)
    text = path.read_text(encoding="utf-8")
    assert text.count("| 27 of 30 |") == 2 and "with p = 2, for which" in text
    assert text.count("| 6 of 12 | p = ") == 2 and "at commit abc" in text
    assert (tmp_path / "when-it-pays.png").stat().st_size > 1000


def test_classes_depend_on_the_views_with_signals_alone(when):
    random = np.random.default_rng(0)
    X, y = when.make(4000, (1.0, 0.5, 0.25, 0.0, 0.0), random)
    each = [abs(np.corrcoef(np.asarray(X[name])[:, 0], y)[0, 1]) for name in X.names]
    # correlations of noise have a standard deviation of 1 / sqrt(n)
    assert each[0] > each[1] > each[2] > 5 / np.sqrt(4000) > max(each[3:])
