"""The specification in docs/ is what code, protos and tests cite: each citation leads to something that is there.

`SEMANTICS 5.3` is a rule of docs/semantics.md, `I3` a row of docs/invariants.md, `FAULTS "Bad input"` a heading of
docs/faults.md, `REQUIREMENTS "Topics"` one of docs/requirements.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
CITING = ("streamlog", "pyspark_streamlog", "proto", "tests", "bench", "demo", "tools", "docs")
SUFFIXES = {".py", ".proto", ".md"}
WORDS_OF_ANOTHER_PLACE = re.compile(
    r"\b(?:STYLE|API|SEMANTICS|FAULTS|REQUIREMENTS)\.md\b|(?:sim|raft|speed|spark)-study|\.\./shared"
)


def texts() -> Iterator[tuple[str, str]]:
    for folder in CITING:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and "_pb2" not in path.name and path != Path(__file__):
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def sections(page: str) -> dict[str, set[str]]:
    """Of a numbered page: the rules of each section."""
    found: dict[str, set[str]] = {}
    for line in (DOCS / page).read_text().splitlines():
        if heading := re.match(r"## (\d+)\. ", line):
            found[heading[1]] = rules = set()
        elif rule := re.match(r"(\d+)\. ", line):
            rules.add(rule[1])
    return found


def headings(page: str) -> set[str]:
    return set(re.findall(r"^## (.+)$", (DOCS / page).read_text(), re.MULTILINE))


def cited_rules(text: str) -> Iterator[str]:
    """`SEMANTICS 3 and 4.1`, `SEMANTICS 1, 2, 3`: each number."""
    for numbers in re.findall(r"\bSEMANTICS ((?:\d+(?:\.\d+)?(?:, | and )?)+)", text):
        yield from re.findall(r"\d+(?:\.\d+)?", numbers)


def problems(text: str) -> list[str]:
    rules, invariants = sections("semantics.md"), invariant_numbers()
    found = [f"SEMANTICS {cited}" for cited in cited_rules(text) if not is_rule(cited, rules)]
    found += [f"I{number}" for number in re.findall(r"\bI(\d{1,2})\b", text) if number not in invariants]
    for name, page in (("FAULTS", "faults.md"), ("REQUIREMENTS", "requirements.md")):
        known = headings(page)
        cited = re.findall(rf'\b{name},? [("]*"([^"]+)"', text)
        found += [f"{name} {one!r}" for one in cited if one not in known]
    return found + WORDS_OF_ANOTHER_PLACE.findall(text)


def is_rule(cited: str, rules: dict[str, set[str]]) -> bool:
    section, _, rule = cited.partition(".")
    return section in rules and (not rule or rule in rules[section])


def invariant_numbers() -> set[str]:
    return set(re.findall(r"^\| I(\d+) \|", (DOCS / "invariants.md").read_text(), re.MULTILINE))


def test_every_citation_leads_somewhere() -> None:
    assert {path: found for path, text in texts() if (found := problems(text))} == {}


@pytest.mark.parametrize(
    "text", ["SEMANTICS 99", "SEMANTICS 3 and 5.9", "(I99)", 'FAULTS "Weather"', "see API.md", 'REQUIREMENTS, "Tea"']
)
def test_one_that_leads_nowhere_is_found(text: str) -> None:
    assert len(problems(text)) == 1


def test_rules_are_numbered_without_gaps() -> None:
    rules = sections("semantics.md")
    assert list(rules) == [str(n + 1) for n in range(len(rules))]
    assert all(found == {str(n + 1) for n in range(len(found))} for found in rules.values())


def test_tests_that_the_pages_name_exist() -> None:
    missing = []
    for page in ("requirements.md", "invariants.md"):
        path = ""
        for named in re.findall(r"`((?:tests/[\w/.]+)?(?:::\w+)?)`", (DOCS / page).read_text()):
            file, _, function = named.partition("::")
            path = file or path
            source = ROOT / path
            if not source.exists() or (function and f"def {function}(" not in source.read_text()):
                missing.append(named)
    assert not missing
