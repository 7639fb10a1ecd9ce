"""What text from outside must not bring to a terminal or into a log."""

from __future__ import annotations

import json

import pytest

from streamlog.printable import escaped, escaped_bytes, escaped_json, first_control


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Æ 价 \\ text", "plain Æ 价 \\ text"),
        ("1.0\n2026-11-23 ERROR node 1: FORGED", "1.0\\n2026-11-23 ERROR node 1: FORGED"),
        ("\x1b[2J\x1b[31mred\x1b]0;title\x07", "\\x1b[2J\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\tb\rc\x00\x7f", "a\\tb\\rc\\x00\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("gpj.\u202eexe\u2028x\u2066", "gpj.\\u202eexe\\u2028x\\u2066"),
        ("\udcff", "\\udcff"),
    ],
)
def test_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert first_control(shown) is None


def test_bytes() -> None:
    assert escaped_bytes(b"key1") == b"key1"
    assert escaped_bytes("Æ\n".encode()) == "Æ\\n".encode()
    assert escaped_bytes(b"\xff\x1b[2J") == b"\\xff\\x1b[2J"


def test_json_means_the_same() -> None:
    document = {"key\u202e": "a\x9b\x1b\n", "plain": ["Æ"]}
    text = escaped_json(json.dumps(document, ensure_ascii=False, indent=2))
    assert json.loads(text) == document
    assert "\x9b" not in text
    assert "\n" in text
    assert "Æ" in text
