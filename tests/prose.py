"""Check the words: phrases that made readers stumble, and links that lead nowhere.

Part of ``make lint``. Each entry of ``PHRASES`` is a pattern, found in any case, and
what to write instead. Code blocks are left out; of the sources, docstrings, comments
and messages count. ``OF_PAGES`` are phrases that only pages and examples must not have.
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = {
    r"(has|have|had) to beat": "baselines; compare with",
    r"without further words": "by default",
    r"finds (all|everything|it all) by itself": "say what is found, and how",
    r"\bnothing tells\b": "this is a local optimum; it is not known",
    r"is worth the more\b|the more, the fewer": "helps most when",
    r"folds tell of\b|\btells? of the errors\b": "say about",
    r"(?<!there) is no [a-z]+ that\b": "is not a ... that",
    r"known by its name": "name what is supported",
    r"a true answer": "return True to stop",
    r"print(s|ed)? wrongly": "errata",
    r"\b(names|columns|methods|norms|numbers) with commas": "comma-separated",
    r", with commas\b": "comma-separated",
    r"and now holds others": "say what was found in training and what is there now",
    r"that all are alike\b": "test of equal ...",
    r"\b1 (iterations|samples|kernels|rows|folds|steps)\b": "singular",
    r"(# |\[bold\])how sure is that\?": "name the certificate or test",
    r"all by itself\b": "automatically",
    r"\bwhere all is\b|\ball is there\b": "everything",
    r"\bwho did how well\b": "scores",
    r"\bis to be had\b|\bare to be had\b": "is available",
    r"\bby far the most often\b": "most often",
    r"\bthe one of the other\b": "convert ... into ...",
    r"\bto the like\b|\band their like\b": "name them",
    r"\bwithout a word\b": "automatically",
    r"\bby another name\b": "cannot be distinguished from",
    r"\bwhoever (found|did|solves)\b": "whichever solver found it",
    r"\bthe (house|floor) that\b|\bwalk of a\b": "layers; steps",
    r"\bneed be neither\b": "is not necessary",
    r"\bwithout (the|its|their) file\b": "if the data file is not available",
    r"\bfrom beginning to end\b": "a complete example",
    r"\bpriced\b": "checked",
    r"\bwhat came out\b|\bcomes? out with\b": "results; is reproduced with",
    r"\bsees? to (that|both|it)\b": "say what does it",
    r"\bcounts? for more\b": "matters more",
    r"\bput to the test\b|\blaid side by side\b": "tested; compared",
    r"\bthan one would (like|wish)\b": "than expected",
    r"\bhas a word\b|\bsays? a word\b": "say what it describes",
    r"\bwhat remains to predict with\b": "the fitted prediction function",
    r"\bhow sure (it|that) is\b": "standard errors, intervals, p-values",
    r"\bnot learned from\b": "held-out samples",
    r"\b(views?|kernels) that say the same\b": "carry the same information",
    r"\btell(s|ing)? nothing\b": "uninformative",
    r"\bso that nothing is left for\b": "which leaves nothing for",
    r"\bthey must be as many\b": "they must have the same number",
    r"\bweight 2 equals\b|\bweight 0 its absence\b": "equivalent to giving twice",
    r"\bwhole or not at all\b": "atomically",
    r"\blearn(s|ed)? (any labels )?by heart\b": "memorise",
    r"\bnot taken at (its|their) word\b": "validated",
    r"\ban? (number|integer) from [01] on\b": "positive; nonnegative",
    r"\bsigns? of life\b": "intermediate point",
    r"\bin the clothes of\b|\bscikit-learn face\b": "with the interface of",
    r"\bwhoever (asks|looks|codes)\b|\bfor whoever\b": "callers; name who uses it",
    r"\b(are|is) (those )?of rounding\b": "contain only rounding errors",
    r"\bbounds? (that|which) [^.]{1,40} proves?\b": "the bound given by",
    r"\bmakes? no odds\b": "has no effect",
    r"\bafresh\b": "recomputed; from scratch",
    r"\bexactnesses\b|\bhow exactly (the|inner)\b": "precisions; accuracy of",
    r"\bof (its|their) own each\b": "each has its own",
    r"\bweights of (its|their) own\b": "its own weights; separate weights",
    r"\ba (process|folder|file) of its own\b": "its own process; a separate folder",
    r"\bgo(es)? on (from )?where\b": "continue where",
    r"\bseen through\b": "depends on ... only through",
    r"\b(once it is|made) short enough\b": "scaled down to be feasible",
    r"\bhand(s|ed|ing)? out\b": "distribute",
    r"\b(is|are|was) (not )?looked for\b": "find; search",
    r"\b(solver|caller|kernel) is at fault\b": "this is a bug; please report it",
    r"\breplace (\w+ )*by (your|pd|an?)\b": "replace with",
    r"\bsays nothing(?! about|:)": "uninformative",
    r"\bout of reach for anyone\b": "out of reach",
    r"\b(neither )?near to nor far\b": "at the average of",
    r"\bneeded (is|are)\b": "expected",
    r"\bwill take long\b|\band much memory\b": "is slow; needs a lot of memory",
    r"\bwhat costs what\b": "time and memory",
    r"\b(has|have) to prove (itself|themselves)\b": "is least likely to help",
    r"\bother samples than\b|\banother (size|header|order)\b[^.]* than\b": "differ",
    r"\bnot misled by\b": "ignores",
    r"\bits header is none\b|\bis called by the\b": "invalid; labelled by",
    r"\bnot known before\b": "not known in advance",
    r"\bwere told by\b|\bwhat was said of\b": "inferred from; predictions for",
    r"\bmak(e|es) no positive\b": "is not positive definite",
    r"(?<!there) is no (number|json)\b": "is not a ...",
    r"\bshares? out the\b": "distribute",
    r"\blose (little|nothing) one by one\b": "leaving out one of them costs little",
    r"\bsome (tenths|hundredths|hundred)\b": "a few tenths",
    r"\bmodels of bootstrap samples\b": "models fitted to bootstrap samples",
    r"\bcertified by its dual\b": "a duality gap certifies",
    r"\bthat is known\.(?!\w)": "a known ...",
    r"\bcan be had\b|\bwhat is to be had\b": "is available",
    r"\bthe more the\b": "and more strongly for",
    r"\bscript's docstring\b|\bthat the script describes\b": "state it on the page",
    r"\bran beside\b|\bbeside other work\b": "at the same time as",
    r"\bmachine was \S+ when it began\b": "at the start",
    r"\bother than on other\b": "unlike",
    r"\bentry is of\b|\bare of commit\b": "was recorded on; were measured at",
    r"\bintervals hold the\b": "contain",
    r"\bknown are\b": "choose from; the known ... are",
    r"\bof no kernel at all\b": "without kernels",
}
OF_PAGES = {
    r"(?<!there) (is|are) no (parts?|sums?|landmarks?|tables?)\b": "is not a ...",
    r"\bby heart\b": "memorise",
    r"\banew\b": "again",
    r"\b(by|for|takes?|some) some (hundred|seconds|minutes)\b": "a few",
    r"\b(Gram|function|kernel) that you have\b": "a precomputed Gram; your own",
    r"\bgiven kernels\b": "precomputed kernels",
    r"\bties after\b": "Efron's method for ties",
    r"\bturns? a table into an answer\b": "say which questions it answers",
    r"\bwith all its might\b|\bfor ever\b": "fully; without end",
    r"\btake[ns]? for known\b": "treated as known",
    r"\bstands? in\b(?! (the|a|its|their|for)\b)": "is used instead",
    r"\bspeaks? for\b|\bspoke for\b": "supports; favours",
    r"\bcomes? apart\b|\btold apart\b": "separate, distinguish",
    r"\bmade up\b": "simulated",
    r"\b(is|are) held to\b|\ba test holds\b|\bhold(s|ing)? \w+ to it\b": "tests check",
    r"\bhow alike\b": "how similar",
    r"\bat hand\b": "available, stored",
    r"\bagain and again\b": "repeatedly",
    r"\bin the mean\b": "on average",
    r"\bsome (ten )?thousand\b": "a few thousand, tens of thousands",
    r"\brests? (up)?on it\b": "depends on",
    r"\bthere, too, the\b": "say where",
    r"\bwhere (it|this|that|one|we) (costs|loses?|lies)\b": "limitations",
    r"\bwho (may|takes|does)\b": "responsibilities; supported estimators",
    r"\bwhat (none|all) of (these|them) says?\b": "what ... cannot tell",
}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "changes").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "benchmarks").glob("*.py")),
    *(ROOT / "examples").glob("*.py"),
]
LEFT_OUT = {"_build", "generated", "gallery"}
# what messages count; `plural` of mklearn.data.spelling writes these with their number
COUNTED = "classes|columns|entries|events|features|fields|fits|folds|groups|iterations"
COUNTED += "|kernels|labels|methods|rows|samples|steps|subjects|targets|views"


def prose_files():
    """Return the files whose words are checked."""
    return [p for p in PAGES if not LEFT_OUT & {*p.relative_to(ROOT).parts}]


def joined_strings(text):
    """Return Python code with the quotes between two parts of a string blanked."""
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])  # noqa: E731
    return re.sub(r"\"[ ]*\n[ ]*f?\"", blank, text)


def without_code(text):
    """Return Markdown with fenced blocks and code blanked, lines in their places."""
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])  # noqa: E731
    text = re.sub(r"^( *)```.*?^\1```", blank, text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]+`", blank, text)


@cache
def alternatives(pattern):
    """Return words, without which the alternatives of a pattern cannot be found.

    One for each: the longest run of letters and spaces outside of groups.
    """
    plain = re.sub(r"\\.", "#", pattern)  # \b, \w and the like
    while "(" in plain:
        plain = re.sub(r"\([^()]*\)[?*+]?", "#", plain)
    plain = re.sub(r"\[.*?\]|.[?*]", "#", plain)
    return [max(re.findall("[a-z, ]*", one), key=len) for one in plain.split("|")]


def found_phrases(text, phrases=PHRASES):
    """Return (line, phrase, what to write instead) of a text."""
    found = []
    words = f" {' '.join(text.lower().split())} "
    for pattern, instead in phrases.items():
        if not any(one in words for one in alternatives(pattern)):
            continue  # most patterns, and much faster than to search for them
        # sentences are broken into lines anywhere, between words of a phrase too
        spread = pattern.replace(" ", r"\s+")
        for match in re.finditer(spread, text, flags=re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            found.append((line, " ".join(match[0].split()), instead))
    return sorted(found)


def counts_in_the_plural(code):
    """Return (line, words) of f-strings in which a number comes before a plural.

    These read "1 samples" one day: ``plural(n, "sample")`` writes both forms.
    """
    found = []
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for value, after in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.Constant):
                before = value.value
                continue
            words = getattr(after, "value", "")
            match = isinstance(words, str) and re.match(rf" ({COUNTED})\b", words)
            if match and not before.endswith(" x "):  # a shape, such as 3 x 1 samples
                source = ast.unparse(value.value)
                found.append((node.lineno, f"{{{source}}} {match[1]}"))
            before = ""
    return found


def slug(heading):
    """Return the anchor of a heading, as Markdown renderers make it."""
    text = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading.strip()).lower()
    text = re.sub(r"[^\w\- ]", "", text)
    return text.replace(" ", "-")


@cache
def anchors(page):
    """Return the anchors that links may point to within a page."""
    text = page.read_text(encoding="utf-8")
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", plain, flags=re.MULTILINE)
    explicit = re.findall(r"^\((.+?)\)=$|\bid=\"(.+?)\"", text, flags=re.MULTILINE)
    return {slug(one.replace("`", "")) for one in headings} | {
        a or b for a, b in explicit
    }


def broken_links(page):
    """Return (line, target, why) for each internal link that leads nowhere."""
    text = without_code(page.read_text(encoding="utf-8"))
    found = []
    for match in re.finditer(r"\]\(\s*<?([^)\s>]+)>?\s*\)", text):
        target = match[1]
        line = text.count("\n", 0, match.start()) + 1
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        if file.is_dir() and not anchor:
            continue
        if (
            not file.suffix and not file.exists()
        ):  # Sphinx takes names of pages without their ending
            file = file.with_suffix(".md")
        if "gallery" in file.parts or "generated" in file.parts:
            continue  # made by the build, which fails if they are missing
        if not file.is_file():
            found.append((line, target, "there is no such file"))
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            found.append((line, target, "there is no such heading"))
    return found


def main():
    """Print what is found; the exit code is 1 if that is anything."""
    lines = []
    for page in prose_files():
        name = page.relative_to(ROOT)
        text = without_code(page.read_text(encoding="utf-8"))
        for line, phrase, instead in found_phrases(text, PHRASES | OF_PAGES):
            lines.append(f"{name}:{line}: {phrase!r}; better: {instead}")
    for source in SOURCES:
        text = joined_strings(source.read_text(encoding="utf-8"))
        example = source.parent.name == "examples"
        phrases = PHRASES | OF_PAGES if example else PHRASES
        name = source.relative_to(ROOT)
        for line, phrase, instead in found_phrases(text, phrases):
            lines.append(f"{name}:{line}: {phrase!r}; better: {instead}")
        if source.is_relative_to(ROOT / "src"):
            for line, words in counts_in_the_plural(source.read_text("utf-8")):
                lines.append(f"{name}:{line}: {words!r}; better: plural(n, noun)")
    for page in PAGES:
        if {"_build", "generated", "gallery"} & {*page.relative_to(ROOT).parts}:
            continue
        for line, target, why in broken_links(page):
            lines.append(f"{page.relative_to(ROOT)}:{line}: link {target}: {why}")
    print("\n".join(lines) or "prose and links: nothing to report")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
