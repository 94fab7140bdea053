"""Pages say what papers conclude, how many rows agree, and can be written anew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction import Settings, dkl_reading, dkl_tried, protocol, subspace_printed
from reproduction import renew as renew_module
from reproduction.cells import Cell, Explanation, Protocol, Results, Table
from reproduction.claims import CONCLUSIONS, Claim, conclusions, not_run, of_sets
from reproduction.page import (
    AGREEMENT,
    BEYOND,
    Row,
    agreement,
    agreements,
    compared,
    last_digit,
    lines,
    published_folder,
    within,
)
from reproduction.renew import means, renew, renewed


def work(cell, seed):
    return {"accuracy": 90.0 + cell.repetition + 2.0 * (cell.method == "b")}


def concluded(mean):
    yield of_sets(
        "b beats a.",
        {
            data: mean(data, "b", "accuracy") - mean(data, "a", "accuracy")
            for data in ("wine", "absent")
        },
        lambda value: value > 0,
        unit=" points",
    )


PRINTED = {
    ("1", "wine", "a", "accuracy"): (91.0, 0.5),
    ("1", "wine", "b", "accuracy"): (80.25, 0.5),
}
TABLE = Table("1", "fake", ("wine",), ("a", "b"), 3)
FAKE = Protocol(
    name="fake",
    title="A fake paper",
    tables=(TABLE,),
    work=work,
    choices={"scale": "none"},
    files={},
    printed=lambda folder: PRINTED,
    quick=(),
    bands=(),
    explanations=(Explanation("Because.", methods=("b",)),),
    conclusions=concluded,
    evidence=lambda folder: ["", "## Printed alone", "", "Nothing was run."],
)


@pytest.fixture
def published(tmp_path, monkeypatch):
    folder = tmp_path / "published"
    folder.mkdir()
    monkeypatch.setenv("MKLEARN_PUBLISHED", str(folder))
    return folder


def results_of(plan, tables=None):
    tables = plan.tables if tables is None else tables
    found = {
        cell: work(cell, 0) | {"commit": "c", "spent": 1.0, "seconds": 1.0}
        for table in tables
        for cell in table.cells(plan.name)
    }
    return Results(plan, plan.tables, Settings(), found)


# --- the top of a page ----------------------------------------------------------------


def test_a_page_opens_with_conclusions_agreement_and_evidence(published):
    text = lines(results_of(FAKE), [], 0.0)
    titles = [line for line in text if line.startswith("## ")]
    assert titles[:3] == [f"## {CONCLUSIONS}", f"## {AGREEMENT}", "## Printed alone"]
    assert "| b beats a. | wine +2.00 points. | yes |" in text
    row = "| 1 | wine | accuracy | 2 | 1 | 1 | b (+12.8) |"
    assert row in text


def test_conclusions_leave_out_what_has_no_number():
    claim = of_sets("x", {"a": 1.0, "b": np.nan}, lambda value: value > 2)
    assert claim.found == "a +1.00." and claim.verdict == "no"
    assert conclusions([Claim("x", "", [])]) == []


def test_rows_are_counted_by_what_is_measured(published):
    found = compared(results_of(FAKE))
    assert [row.verdict for row in found] == ["yes", BEYOND] and within(found) == (1, 1)
    other = [replace(row, key="area 3") for row in found]
    said = agreement([*found, *other])
    assert [line.partition(":")[0] for line in said] == ["accuracy", "area"]
    assert "1 of 2 rows" in said[0] and "(50%)" in said[1]
    assert agreements([], FAKE) == [] == agreement([])
    counted = agreements([*found, *other], FAKE)
    assert counted[-1] == "- 2 on wine: Because."


def test_verdicts_on_a_page_are_those_of_the_code(published):
    text = "\n".join(lines(results_of(FAKE), [], 0.0)) + "\n"
    # of before one unit of the last digit was subtracted, 0.01 here
    row = "| +0.76 | 0.764 | yes |  |"
    old = text.replace(
        "| +0 | 0.764 | yes |  |", "| +0.77 | 0.764 | within two | (b) |"
    )
    new = text.replace("| +0 | 0.764 | yes |  |", "| +0.77 | 0.764 | yes |  |")
    assert row not in text and old != new
    note = "\n- (a) Because.\n"
    assert (
        renewed(results_of(FAKE, ()), old.replace(note, f"{note}- (b) Odd.\n")) == new
    )


def test_a_difference_below_the_last_digit_is_none():
    assert last_digit(PRINTED, "1", "accuracy") == 0.01
    assert last_digit(PRINTED, "2", "accuracy") == 0.0
    at = ("wine", "a", "accuracy", 30, 53.6585, 0.0, 53.65, np.nan)
    assert Row(*at).verdict == BEYOND and Row(*at, 0.01).verdict == "yes"
    assert Row(*at[:6], 53.6, np.nan, 0.01).verdict == BEYOND


# --- a page written anew --------------------------------------------------------------


def test_a_page_that_is_written_anew_from_itself_stays_the_same(published):
    text = "\n".join(lines(results_of(FAKE), [], 0.0)) + "\n"
    assert renewed(results_of(FAKE, ()), text) == text


def test_means_are_those_of_tables_and_figures():
    text = [
        "## Table 1: fake",
        "",
        "| data | method | value | repetitions | ours | printed |",
        "|---|---|---|---:|---:|---:|",
        "| wine | a | accuracy | 3 | 91.00 ± 0.58 | 91.00 |",
        "",
        "## Figure 1: fake",
        "",
        "| error | n = 50 | n = 100 |",
        "|---|---:|---:|",
        "| p = 1 | 0.5000 ± 0.1000 |  |",
        "",
        "## Other",
        "",
        "| error | n = 50 |",
        "|---|---:|",
        "| p = 1 | 7.0 |",
    ]
    assert means(text) == {
        ("wine", "a", "accuracy"): 91.0,
        ("n = 50", "p = 1", "error"): 0.5,
    }


def test_notes_conclusions_and_tables_are_renewed(published, tmp_path):
    old = "\n".join(lines(results_of(FAKE), [], 0.0)) + "\n"
    extra = Table("1b", "tried", ("wine",), ("a",), 2)
    plan = replace(
        FAKE,
        tables=(TABLE, extra),
        explanations=(Explanation("We know now.", methods=("b",)),),
        conclusions=lambda mean: [
            Claim("New.", f"{mean('wine', 'b', 'accuracy')}", [1])
        ],
    )
    text = renewed(results_of(plan, (extra,)), old)
    assert "- (a) We know now." in text and "Because." not in text
    assert "| New. | 93.0 | yes |" in text and "b beats a" not in text
    assert text.index("## Table 1b: tried") > text.index("## Table 1: fake")
    assert "Added later: 2 cells, commit c." in text
    assert renewed(results_of(plan, (extra,)), text) == text
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "README.md").write_text(old, encoding="utf-8")
    path = renew(plan, tmp_path, Settings())
    assert "| New. | 93.0 | yes |" in path.read_text(encoding="utf-8")


def test_rows_with_more_cells_replace_those_of_the_page(published):
    few = results_of(FAKE, (replace(TABLE, repetitions=1),))
    old = "\n".join(lines(few, [], 0.0)) + "\n"
    assert "| wine | a | accuracy | 1 | 90.00 |" in old
    assert "- b on wine: 1 of 3 repetitions." in old and "**4 of 6 cells" in old
    more = results_of(FAKE, (replace(TABLE, methods=("b",), repetitions=2),))
    text = renewed(more, old)
    assert "| wine | a | accuracy | 1 | 90.00 |" in text  # has no more cells
    assert "| wine | b | accuracy | 2 | 92.50 ± 0.50 | 80.25 ± 0.50 |" in text
    assert "| **no** | (a) |" in text and "- (a) Because." in text
    assert "- a on wine: 1 of 3 repetitions." in text
    assert "- b on wine: 2 of 3 repetitions." in text
    assert "Added later: rows of b, from cells of commit c, on another day" in text
    assert "**3 of 6 cells" in text and "All numbers are from the same run" not in text
    assert "wine +2.50 points" in text  # conclusions are those of the new rows
    for cells in (more, results_of(FAKE, ())):
        assert renewed(cells, text) == text


def test_conic_programs_are_compared_with_others_on_their_splits(published):
    from reproduction.dkl_claims import programs

    plan = protocol("dkl")
    other = {"objective": 2.0, "gap": 1e-7, "accuracy": 90.0, "same": 100.0}
    cells = {
        Cell("dkl", "2", "sonar", "QCQP_theta", r): {
            "objective": 2.0 + 2e-6 * r,
            "seconds": 1.0 + r,
            "commit": "c",
            "beside": {"Newton": other, "SILP": other | {"same": 97.6, "gap": 4e-4}},
        }
        for r in range(2)
    }
    text = programs(Results(plan, plan.tables, Settings(), cells))
    row = "| sonar | QCQP_theta | 2 | 1.5 | 1e-06 | 1e-07 | 100 | 1e-06 | 4e-04 | 98 |"
    assert row in text and "commit c." in "".join(text)
    assert programs(Results(plan, plan.tables, Settings(), {})) == []


def test_rows_get_letters_anew_where_they_are_explained_otherwise(published):
    printed = {at: (70.0, 0.5) for at in PRINTED}
    plan = replace(
        FAKE,
        printed=lambda folder: printed,
        explanations=(Explanation("Because."),),
    )
    old = "\n".join(lines(results_of(plan), [], 0.0)) + "\n"
    assert old.count("| (a) |") == 2
    two = (Explanation("B is odd.", methods=("b",)), *plan.explanations)
    text = renewed(results_of(replace(plan, explanations=two), ()), old)
    assert text.count("| (a) |") == 1 == text.count("| (b) |")
    assert "- (a) Because.\n- (b) B is odd.\n" in text


def test_claims_that_cannot_be_run_are_shown_with_the_reason():
    claims = [Claim("x", "1.", [True]), not_run("y", "no data.")]
    assert "| y | Not run: no data. |  |" in conclusions(claims)
    assert conclusions(claims[1:]) == []  # nothing was found at all


@pytest.mark.parametrize("paper", ["dkl", "kfda", "subspace", "bilinear", "lpmkl"])
def test_committed_pages_say_what_the_code_says_of_them(paper):
    plan = protocol(paper)
    if published_folder() is None:
        pytest.skip("the published tables, beside the folder of data, are absent")
    path = Path(__file__).parents[1] / "reproduction" / "pages" / paper / "README.md"
    text = path.read_text(encoding="utf-8")
    assert text.index(CONCLUSIONS) < text.index("## What the paper leaves open")
    found = Results(plan, plan.tables, Settings(), {})
    assert renewed(found, text) == text


# --- printed numbers alone ------------------------------------------------------------


def test_multiples_are_counted_to_the_last_digit():
    exact = [100 * k / 480 for k in (100, 90, 85)]
    shown = [round(value, 3) for value in exact]
    assert subspace_printed.multiples(shown, 480) == 3
    assert subspace_printed.multiples([v + 0.05 for v in shown], 480) == 0


def test_printed_tables_are_held_against_themselves(tmp_path):
    (tmp_path / "subspace_datasets.csv").write_text(
        "dataset,sample_size,dimension,n_classes,type,note\nB,50,9,4,Gene,\n"
    )
    (tmp_path / "subspace_error.csv").write_text(
        "dataset,method,error_mean,error_std,note\n"
        "B,uHSIC,20.000,8.000,\nB,uSVM_joint,20.000,8.000,\n"
    )
    errors = {"ker1": 10.0, "ker2": 20.0, "ker4": 5.0, "ker3": 30.0, "mkl": 5.0}
    text = "dataset,method,kernel,error_mean,note\n"
    for method, more in (("uHSIC", 0), ("uSVM_joint", 1)):
        text += "".join(f"B,{method},{k},{e + more},\n" for k, e in errors.items())
    (tmp_path / "subspace_mkl_error.csv").write_text(text)
    found = "\n".join(subspace_printed.evidence(tmp_path))
    # 8 points are the binomial deviation of 20 % of 25 samples, all classes at once
    assert "| B | 25 | 4 | 1.00 | 2.00 | all classes |" in found
    assert "B by uHSIC 10.000, 20.000, 5.000, 30.000" in found
    assert "B by uHSIC 5.000 against 20.000 (8 standard errors)" in found
    assert "the higher one on B 6.000 against 5.000" in found
    assert "B 2 of 2" in found.partition("at most these")[2]
    assert subspace_printed.evidence(tmp_path / "nowhere") == []


def test_split_sizes_are_held_against_the_printed_means(tmp_path):
    head = "dataset,n_classes,method,weights,reg,reg_symbol,accuracy_mean,"
    exact = 100 * 1100 / (30 * 41)
    (tmp_path / "dkl_accuracy.csv").write_text(
        f"{head}accuracy_std\nsonar,2,a,,,,{exact:.2f},5\nsonar,2,b,,,,89.47,5\n"
    )
    found = "\n".join(dkl_reading.evidence(tmp_path))
    assert "sonar 1 of 2" in found and "heart 0" not in found
    assert "sonar" not in dkl_reading.granularity(tmp_path / "nowhere")


def test_weights_and_small_lambdas_are_shown_beside_the_printed_ones(published):
    (published / "dkl_accuracy.csv").write_text(
        "dataset,n_classes,method,weights,reg,reg_symbol,accuracy_mean,accuracy_std\n"
        "sonar,2,SILP_theta,0;0.5;0.5;0;0;0;0;0;0;0,,,89,5\n"
        "sonar,2,RKDA_K_lambda,,,,80,5\n"
    )
    (published / "dkl_single_kernel_accuracy.csv").write_text(
        "dataset,method,sigma_index,accuracy\n"
        + "".join(f"sonar,RKDA_lambda,{m + 1},70\n" for m in range(10))
    )
    plan = protocol("dkl")
    (table,) = (t for t in plan.tables if t.name == "2")
    found = {}
    for cell in table.cells("dkl", 2):
        if cell.method == "SILP_theta":
            found[cell] = {"weights": [0.0, 1.0] + 8 * [0.0]}
        if cell.method == "RKDA_K_lambda":
            each = {f"accuracy {m + 1}": 70.0 + cell.repetition for m in range(10)}
            low = {"low": 80.0, "low alone": 10 * [75.0 + cell.repetition]}
            found[cell] = {"accuracy": 80.0 + cell.repetition, **each, **low}
    made = Results(plan, plan.tables, Settings(), found)
    weights = "\n".join(dkl_reading.weights(made))
    assert "| sonar | SILP_theta | 2 | 50% | 0.500 (2) |" in weights
    small = "\n".join(dkl_reading.small_lambdas(made))
    assert "| sonar | 2 | 0.50 | 11 | 5.00 | 1 |" in small


def test_means_that_equal_test_parts_cannot_have_are_counted():
    sets = [{"dataset": "W", "sample_size": "900", "n_classes": "3"}]
    names = ("SVM_org", "uHSIC")
    means = ("23.749", "16.089")
    table = [
        {"dataset": "W", "method": name, "error_mean": mean}
        for name, mean in zip(names, means, strict=True)
    ]
    (line,) = subspace_printed.no_means(sets, table)
    # 1448 of 9000 are 16.089 %
    assert "W 1 of 2. For example, SVM_org on W: 23.749 % of 20 x 450 x 3" in line
    assert "6412.23 errors" in line and subspace_printed.no_means(sets, []) == []
    assert subspace_printed.sizes(sets[0] | {"sample_size": "178"}) == (89, 88)


def test_figures_of_which_there_are_cells_are_drawn(published, tmp_path):
    figure = Table("figure1", "curves", ("wine",), ("a",), 1)
    drawn = []

    def draw(results, folder):
        drawn.append([table.name for table in results.tables])
        return ["curves.png"]

    plan = replace(FAKE, tables=(TABLE, figure), figures=draw)
    text = "\n".join(lines(results_of(FAKE), [], 0.0)) + "\n"
    assert renew_module.drawn(results_of(plan, ()), tmp_path) == [] == drawn
    names = renew_module.drawn(results_of(plan, (figure,)), tmp_path)
    assert names == ["curves.png"] and drawn == [["figure1"]]
    once = renew_module.with_figures(text, names)
    assert once.endswith("\n\n![curves.png](curves.png)\n")
    assert renew_module.with_figures(once, names) == once


# --- what was tried beside the tables of DKL ------------------------------------------


@pytest.mark.parametrize("name, last", [("fewest training errors", 3), ("midpoint", 2)])
def test_thresholds_are_where_they_say(name, last):
    known = np.array([-3.0, -2.0, -1.0, 0.5, 1.0, 6.0])
    second = np.array([False, False, False, False, True, True])
    new = np.array([-2.0, 0.6, 0.9, 1.2, 7.0])
    (rule,) = (rule for key, rule in dkl_tried.RULES.items() if key.startswith(name))
    expected = {2: [0, 0, 0, 1, 1], 3: [0, 0, 1, 1, 1]}[last]
    assert rule(known, second, new).astype(int).tolist() == expected


def test_thresholds_agree_where_classes_are_apart():
    known = np.array([-1.1, -0.9, 0.9, 1.1])
    second = known > 0
    new = np.array([-0.5, 0.5])
    for rule in dkl_tried.RULES.values():
        assert rule(known, second, new).tolist() == [False, True]
