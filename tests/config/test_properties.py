"""Java's .properties format (the JDK's documentation of `Properties.load`), and whatever else may stand in a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.properties import ENTRIES_MAX, TEXT_LENGTH_MAX, Property, escape_value, parse_properties
from streamlog.errors import InvalidConfigError


def pairs(text: str) -> list[tuple[str, str]]:
    return [(one.key, one.value) for one in parse_properties(text, "f")]


def read(text: str) -> tuple[tuple[Property, ...], str]:
    """The entries, or the message of our error; no other error gets by."""
    try:
        return parse_properties(text, "f"), ""
    except InvalidConfigError as e:
        return (), str(e)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a = b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a b c", [("a", "b c")]),
        ("a\t\f : b", [("a", "b")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("a= =b", [("a", "=b")]),
        ("a==b", [("a", "=b")]),
        ("a b=c", [("a", "b=c")]),
        ("  a=b  ", [("a", "b  ")]),
        ("# a=b\n ! c=d\n\n \t\ne=f # no comment", [("e", "f # no comment")]),
        ("a=1\rb=2\r\nc=3\n", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=b, \\\n    c", [("a", "b, c")]),
        ("a=b\\\r\n  c\\\r\td", [("a", "bcd")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("a=b\\\n# still the value", [("a", "b# still the value")]),
        ("\\\n# a comment, for the line is empty so far\na=b", [("a", "b")]),
        ("# a comment is not continued \\\na=b", [("a", "b")]),
        ("a=b\\", [("a", "b")]),
        ("\\", []),
        ("a\\ b\\=c\\:d=e", [("a b=c:d", "e")]),
        ("a=\\t\\n\\r\\f\\q\\\\", [("a", "\t\n\r\fq\\")]),
        ("a=\\u0041\\u00e9\\ud83d\\ude00", [("a", "Aé😀")]),
        ("\\u0061\\u003d=b", [("a=", "b")]),
        ("a=é😀", [("a", "é😀")]),
        ("\ufeffa=b", [("a", "b")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("a=b\u2028c\x0bd", [("a", "b\u2028c\x0bd")]),
    ],
)
def test_java_s_rules(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_the_line_is_that_of_an_entry_s_beginning() -> None:
    assert parse_properties("#\na=1\\\n2\\\n3\n\nb=4", "f") == (Property("a", "123", 2), Property("b", "4", 6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\n=b", "f:2: the line has no key before its = or :"),
        ("a=\\u12", "f:1: \\u needs four hexadecimal digits"),
        ("a=\\uD83D", "f:1: contains a lone surrogate"),
        ("a=1\\\n2\n\\u000g=b", "f:3: \\u needs four hexadecimal digits"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_properties(text, "f")
    assert str(caught.value) == message


def test_a_file_is_bounded() -> None:
    with pytest.raises(InvalidConfigError, match="limit is 1048576"):
        parse_properties("a" * (TEXT_LENGTH_MAX + 1), "f")
    assert len(parse_properties("a=1\n" * ENTRIES_MAX, "f")) == ENTRIES_MAX
    with pytest.raises(InvalidConfigError, match=f"f:{ENTRIES_MAX + 1}: more than {ENTRIES_MAX} entries"):
        parse_properties("a=1\n" * (ENTRIES_MAX + 1), "f")


@pytest.mark.parametrize("piece", ["\\\n", "a\\ ", "\\u0041", "= "])
def test_no_text_takes_long(piece: str) -> None:
    """Linear: a megabyte of the worst takes well under a second, and the suite's time-out would end a quadratic one."""
    entries, error = read("k=" + piece * ((TEXT_LENGTH_MAX - 2) // len(piece)))
    assert bool(entries) != bool(error)


TRICKY = st.text(alphabet="ab=: \t\f\\\n\r#!u0041dD8\ud83d\ufeff", max_size=30)


@given(st.text(alphabet=st.characters(), max_size=60) | TRICKY)
def test_any_text_gives_entries_or_our_error(text: str) -> None:
    entries, error = read(text)
    assert error == "" or error.startswith("f:")
    assert all(one.key and 1 <= one.line <= 1 + text.count("\n") + text.count("\r") for one in entries)


@given(st.text(max_size=40), st.text(max_size=40))
def test_an_escaped_value_is_read_back_as_it_is(one: str, other: str) -> None:
    text = f"a={escape_value(one)}\nb={escape_value(other)}\n"
    assert pairs(text) == [("a", one), ("b", other)]
