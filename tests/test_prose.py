"""The checks of words and links find what they are for."""

import pytest

import prose

STUMBLED = [
    "kernels that say the same share a weight",
    "weights, and how sure that is",
    "Numbers of samples differ; they must be as many.",
    "a narrow kernel can learn any labels by heart",
    "What they have to beat",
    "Without further words",
    "EvidenceMKLRegressor finds all by itself",
    "Whether weights far from these are better nothing tells.",
    "is worth the more, the fewer are complete",
    "what the folds tell of the errors",
    "x.txt is no table that is known by its name",
    "after each iteration; a true answer stops.",
    "what the papers print wrongly",
    "Names with commas",
    "column 'a' held numbers in training and now holds others",
    "That all are alike has p = 0.2",
    "1 iterations",
    "## How sure is that?",
    "All others have Nyström features without a word.",
    "A problem can judge any iterate, whoever found it",
    "heart disease (without the file: tumours)",
    "Yields signs of life; returns A and the scores",
    "One-vs-rest SVC on the sum, in the clothes of the others",
    "Directions in which no entry can move are those of rounding.",
    "Return the lower bound that a feasible A proves.",
    "How exactly the inner problem is solved",
    "each target has weights of its own",
    "The same command goes on where it was stopped",
    "kernels, seen through functions of a block that return sums",
    "what the events hand out to those at risk",
    "theta is not in the weight set; a solver is at fault.",
    "150 samples; replace these lines by your own",
    "measured = rng.normal(size=(120, 2))  # says nothing",
    "a million are out of reach for anyone",
    "neither near to nor far from anyone",
    "its SHA-256 sum is 12, needed is 34",
    "will take long and much memory",
    "an array has another size than its header says",
    "The index of y refers to other samples than the samples",
    "which of them fits a property is not known before",
    "what was said of samples",
    "concordance falls with the cost, the more the larger the norm",
    "`ratio` is the time in the unit that the script's docstring names",
    "Other jobs ran beside this one",
    "The load of the machine was 2.6 when it began.",
    "other than on other pages there is no ratio here",
    "The last entry is of 2026-11-18",
    "Do 90 % intervals hold the truth?",
    "Unknown kernel 'x'; known are ['a']",
    "above that of no kernel at all",
]
ON_PAGES = [
    "## Who may do what",
    "a test holds them to it",
    "features in which the classes come apart",
    "A bar to the right speaks for the second class",
    "simulated patients stand in.",
    "losses that are no sums over samples",
    "Where we lose: with many kernels",
    "widths are found anew for each resample",
    "Are given kernels sound?",
    "partial likelihood, ties after Breslow or Efron",
]


@pytest.mark.parametrize("text", STUMBLED)
def test_phrases_are_found_also_across_lines(text):
    assert prose.found_phrases(text)
    assert prose.found_phrases(text.replace(" ", "\n"))


@pytest.mark.parametrize("text", ON_PAGES)
def test_pages_have_phrases_of_their_own(text):
    assert prose.found_phrases(text, prose.OF_PAGES)
    assert not prose.found_phrases(text)


@pytest.mark.parametrize("text", ["21 iterations", "Return True to stop.", "baselines"])
def test_plain_words_are_not(text):
    assert not prose.found_phrases(text)


def test_the_line_is_that_of_the_phrase():
    ((line, phrase, _),) = prose.found_phrases("a\nb\nwithout further\nwords\n")
    assert (line, phrase) == (3, "without further words")


def test_messages_are_found_across_the_parts_of_a_string():
    code = 'error(\n    f"{path} is no table that is known "\n    f"by its name"\n)'
    found = prose.found_phrases(prose.joined_strings(code))
    assert [(line, phrase) for line, phrase, _ in found] == [
        (2, "is no table that"),
        (2, "known by its name"),
    ]


def test_code_is_not_prose():
    text = "a `have to beat`\n```\nhave to beat\n```\nb"
    assert not prose.found_phrases(prose.without_code(text))
    assert prose.without_code(text).count("\n") == text.count("\n")


def test_broken_links_are_found(tmp_path):
    (tmp_path / "there.md").write_text("# A heading, of `code`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-heading-of-code) [c](#here) [d](https://x.y)\n"
        "[e](gone.md)\n[f](there.md#gone)\n\n## Here\n"
    )
    found = [(line, target) for line, target, _ in prose.broken_links(page)]
    assert found == [(2, "gone.md"), (3, "there.md#gone")]


def test_the_pages_are_in_order(capsys):
    assert prose.main() == 0, capsys.readouterr().out


def test_counts_before_a_plural_are_found():
    code = '(f"{n} samples and {len(names)} "\nf"kernels, {n} x {m} rows, {plural(k)}")'
    found = [words for _, words in prose.counts_in_the_plural(code)]
    assert found == ["{n} samples", "{len(names)} kernels"]
