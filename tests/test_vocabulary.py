"""Words that docs/style.md replaces by the field's terms: no file of the repository says them.

python tests/test_vocabulary.py [PATH ...]     lists them, by file and line
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_WORDS: Final = re.compile(
    r"(?<!\w\.)\b(tell|tells|told|telling|anew|puts? out|putting out|putout|doom\w*|dear|dearer|is over|has begun"
    r"|of before|nobody|somebody|whoever|hears?|heard|hearing|mend\w*|unsound|soundness|for good)\b"
    r"|(?<=_)(tell|told|doom|doomed|anew|mend)(?=_|\b)|\b(tell|told|doom|doomed|anew|mend)(?=_)|PutOut",
    re.IGNORECASE,
)
_BEGINNINGS: Final = ("put", "puts", "putting", "is", "has", "of", "for")
"""Of the phrases in the list."""
_MARKS: Final = re.compile(r"^[\s#/*>-]*")
_NOT_READ: Final = re.compile(
    r"_pb2\.pyi?$|released\.json$|^docs/(style\.md|images/)|^tests/test_vocabulary\.py$|^LICENSE$"
)
_MEANT: Final = frozenset({'USERS: Final = ("postgres", "nobody")'})
"""Lines that say such a word and mean it, as they stand."""


def found(*paths: str) -> Iterator[tuple[str, int, str]]:
    """(file, line, text) of each line, below the paths if any are given, that says a word of the list."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if _NOT_READ.search(name) or not (ROOT / name).is_file():
            continue
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        lines = text.splitlines()
        for number in _numbers(lines):
            line = lines[number - 1].strip()
            if line not in _MEANT:
                yield name, number, line


def _numbers(lines: list[str]) -> Iterator[int]:
    """Of the lines, from 1, in which such a word or phrase begins: a phrase may go on in the next line, behind its
    indent and what marks it as a comment or a list.
    """
    before = ""
    for number, line in enumerate(lines, 1):
        if _WORDS.search(line):
            yield number
        if before.endswith(_BEGINNINGS):
            both = f"{before} {_MARKS.sub('', line)}"
            if any(found.start() < len(before) < found.end() for found in _WORDS.finditer(both)):
                yield number - 1
        before = line.rstrip()


def test_the_words_are_the_fields() -> None:
    said = [f"{name}:{number}: {line}" for name, number, line in found()]
    assert not said, "docs/style.md has the terms for these:\n" + "\n".join(said)


def test_the_words_are_found() -> None:
    assert not _WORDS.search("at = file.tell()")  # Python's
    for line in ("the caller is told", "computed anew", "def put_out(): ...  # put out", "_doomed_files", "PutOut"):
        assert _WORDS.search(line), line
    for line in ("a telling-free line of notifications", "recommend", "amendment", "method"):
        assert not re.search(_WORDS, line.replace("telling", "")), line
    broken = ["a # refusal for", "    # good ends it", "", "told", "- is", "  over"]
    assert list(_numbers(broken)) == [1, 4, 5]
    assert not list(_numbers(["the session is", "", "over there"]))


if __name__ == "__main__":
    for name, number, line in found(*sys.argv[1:]):
        print(f"{name}:{number}: {line[:160]}")
