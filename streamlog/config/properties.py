"""Java's .properties files, Kafka's format.

    # comment, ! comment                    from the first character that is not white space
    key=value   key: value   key value      the key ends at the first `=`, `:` or white space that is not escaped
    key=first, \\                            an odd number of backslashes at its end continues a line;
        second                              leading white space of the next line is dropped
    \\t \\n \\r \\f \\uXXXX \\=                   escapes, in keys and values; any other `\\` is dropped

Unlike Java's, this reader accepts any Unicode text (with a byte order mark), refuses an empty key and a lone surrogate,
and is bounded. Pure; linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from streamlog.errors import InvalidConfigError

TEXT_LENGTH_MAX: Final = 1 << 20  # characters of a file
ENTRIES_MAX: Final = 2_000

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_WHITE: Final = " \t\f"
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_SINGLE: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class Property(Struct, frozen=True):
    """`line`: the first line of the entry, from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str, file: str) -> tuple[Property, ...]:
    """In the order of the file, including duplicate keys. InvalidConfigError names the file and the line."""
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidConfigError(
            f"{file} has {len(text)} characters, the limit is {TEXT_LENGTH_MAX}", field=file, limit=TEXT_LENGTH_MAX
        )
    found: list[Property] = []
    for line, logical in _logical_lines(text):
        if len(found) == ENTRIES_MAX:
            raise InvalidConfigError(f"{file}:{line}: more than {ENTRIES_MAX} entries", field=file, limit=ENTRIES_MAX)
        try:
            found.append(_entry(logical, line))
        except ValueError as e:
            raise InvalidConfigError(f"{file}:{line}: {e}", field=file, limit=".properties format") from None
    return tuple(found)


def split_entry(text: str) -> tuple[str, str]:
    """Key and value of a logical line, unescaped. ValueError."""
    end = _KEY.match(text).end()  # type: ignore[union-attr]  # matches the empty string too
    separator = _SEPARATOR.match(text, end)
    value = text[separator.end() if separator else end :]
    return _unescape(text[:end]), _unescape(value)


def escape_value(value: str) -> str:
    """`value` escaped on one line, so that parsing returns it unchanged."""
    escaped = value.replace("\\", "\\\\")
    for letter, character in _SINGLE.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first natural line, content) without comments and blank lines."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        content = natural.lstrip(_WHITE)
        if not parts:
            if not content or content[0] in "#!":
                continue
            first = number
        backslashes = len(content) - len(content.rstrip("\\"))
        if backslashes % 2 == 0:
            yield first, "".join((*parts, content))
            parts = []
        elif len(content) > 1:
            parts.append(content[:-1])
    if parts:
        yield first, "".join(parts)


def _entry(logical: str, line: int) -> Property:
    key, value = split_entry(logical)
    if not key:
        raise ValueError("the line has no key before its = or :")
    return Property(key, value, line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return _whole(text)
    return _whole(_ESCAPE.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    code = found.group(1)
    if code.startswith("u"):
        if len(code) != 5:
            raise ValueError("\\u needs four hexadecimal digits")
        return chr(int(code[1:], 16))
    return _SINGLE.get(code, code)


def _whole(text: str) -> str:
    """Joins surrogate pairs of two \\u escapes into one character."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError("contains a lone surrogate") from None
