"""Markdown for users: no unidiomatic phrases, and no long or chained sentences."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Maximum number of words, and of colons and semicolons, in a sentence.
MAXIMUM_WORDS, MAXIMUM_JOINTS = 32, 1
#: Comment with a reason that accepts all hits in its paragraph.
ACCEPTED = re.compile(r"prose: ok \(.{3,}\)")

#: Replacement of a phrase by the phrase's pattern.
PHRASES = {
    r"foret(ell|ells|old|elling)": "predict",
    r"dear(er|est)?": "expensive",
    r"grave(r|st|ly)?": "severe",
    r"mend(s|ed|ing)?": "fix",
    r"(for|of) want of": "because there is not enough",
    r"(bring|brings|brought|bringing) about": "cause",
    r"(hear|hears|hearing) of": "learn, receive",
    r"anew": "again",
    r"at the least": "at least; the minimum",
    r"(can|could|to) be had": "is available",
    r"lets? expect": "predict",
    r"for ever": "forever",
    r"in place of": "instead of",
    r"beside": "next to, in addition to",
    r"besides(?=[.;:)]|$)": "also",
    r"under way": "in progress",
    r"(goes|went) on(?! to)": "continues",
    r"(let|lets|letting)( \w+)? go": "release",
    r"(gives?|gave|given)( \w+)? up": "cancel, abandon, release",
    r"on (its|their) way": "in transit",
    r"(interpreter's|python's global) lock": "GIL",
    r"loops?\b[^.]{0,25} turn(s|ed|ing)?": "the event loop is blocked",
    r"(a|each|every|between|next) looks?": "sample, snapshot",
    r"(?<!long )(?<!same )as (it is|they are)(?=[.,;:)]|$)": "unchanged, the baseline",
    r"(is|are|was|were|be|been|not) told(?! to)": "is reported, is known",
    r"(tell|tells|told) of": "reports, lists",
    r"says? (of|so)": "reports",
    r"(it|that) is said|is said (of|to be)": "is documented, is reported as",
    r"nothing (tells|says|shows)|nobody (knows|recorded|tells|wanted)": "is unknown",
    r"(?<=[;.,] )(None|empty|NaN|NA|null): [a-z]+": "a sentence with 'if'",
    r"stands? (in|at|on|here|there|above|below|beneath|first|last|between|before)": "is, appears",
    r"(?<!there )(is|are|was|were) no (?!longer|more than|less than)[a-z]+": "is not a",
    r"of no (?!effect|use|importance|consequence|concern|help)[a-z]+": "not part of any",
    r"the (more|less|longer|larger), the": "grows with",
    r"of (its|their) own": "its own, a separate",
    r"(threads?|tasks?|rows?|files?|documents?|lines?|requests?|bytes|seconds) an? "
    r"(worker|second|task|row|line|file|host|function|process|step|group|thread)": "per",
    r"from (a|half|[\d.]+|so|which|as)\b[^.;:]{0,30}? on(?=[.,;:)]|$)": "at least",
}


def texts() -> dict[str, str]:
    """Return all hand-written Markdown texts by name."""
    names = ("README.md", "CONTRIBUTING.md", "AGENTS.md", ".github/SECURITY.md")
    linked = ("dasfprof/analysis/comparison/CI.md", "dasfprof/recording/shipping/CLUSTERS.md")
    linked += (".agents/skills/dasfprof/SKILL.md", "tests/validation/README.md")
    paths = [ROOT / name for name in (*names, *linked)]
    generated = {"_build", "reference", "gallery", "files"}
    docs = sorted((ROOT / "docs").rglob("*.md"))
    paths += [path for path in docs if generated.isdisjoint(path.relative_to(ROOT / "docs").parts)]
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found["CHANGELOG.md"] = changelog.split("\n## [")[1]
    return found


def paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs, list items, headings and table rows, without code and the URLs of links."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#] |\d+\. |\|))", text):
        plain = re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", part))
        if not ACCEPTED.search(plain):
            yield " ".join(plain.split())


def hits(text: str) -> list[str]:
    """Return the problems of a text, with replacements."""
    found = []
    for paragraph in paragraphs(text):
        for pattern, instead in PHRASES.items():
            matches = re.finditer(rf"\b(?:{pattern})(?!\w)", paragraph, re.IGNORECASE)
            found += [f"{match[0]!r}: write {instead}: {paragraph[:60]}" for match in matches]
        sentences = [] if paragraph.startswith("|") else re.split(r"(?<=[.!?])\**\s+", paragraph)
        for sentence in sentences:
            if len(sentence.split()) > MAXIMUM_WORDS:
                found.append(f"{len(sentence.split())} words: {sentence[:60]}")
            if len(re.findall(r"[:;] ", sentence)) > MAXIMUM_JOINTS:
                found.append(f"chained clauses: {sentence[:60]}")
    return found


@pytest.mark.parametrize("name", texts())
def test_markdown_is_plain_english(name: str) -> None:
    assert hits(texts()[name]) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Tasks are under way.", 1),
        ("It needs two threads a worker; mend that: now; then.", 3),
        ("- Run it.\n- " + "word " * 33, 1),
        ("```\nunder way\n```\nRun `under way`, or [run](under way).", 0),
        ("Nothing is under way. <!-- prose: ok (a quotation) -->", 0),
    ],
)
def test_the_check_finds_phrases_and_long_sentences(text: str, count: int) -> None:
    assert len(hits(text)) == count
