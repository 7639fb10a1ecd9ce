"""Escapes control characters in text from outside, for terminals and logs. Pure.

    C0, DEL, C1                    ESC starts terminal commands, CR and LF forge lines, C1 does both
    U+2028, U+2029                 line ends by Unicode's rules
    U+061C, U+200E, U+200F,        marks that change the direction of text, so that the display differs from the
    U+202A-202E, U+2066-2069       content (CVE-2021-42574)

Ids contain none of them (streamlog.api.convert.fields refuses them when decoding). Text that can contain them (keys and
values, paths, messages of a peer) is escaped where it is shown: as \\n, \\t, \\x1b, \\u202e. Backslashes are not
escaped: the result is for people, and cannot be decoded.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def first_control(text: str) -> int | None:
    """The position of the first control character; None: there is none."""
    found = _CONTROL.search(text)
    return None if found is None else found.start()


def escaped(text: str) -> str:
    """One line that is safe to show on a terminal. Lone surrogates (undecodable bytes) are escaped too."""
    return _CONTROL.sub(_escape, text)


def escaped_bytes(data: bytes) -> bytes:
    """`data`, safe to show on a terminal: UTF-8 as text, other bytes as \\xff."""
    if data.isascii() and data.isalnum():  # most keys
        return data
    return escaped(data.decode("utf-8", "backslashreplace")).encode()


def escaped_json(document: str) -> str:
    """A JSON document with the control characters in its strings as \\uXXXX, so its meaning is unchanged; line ends
    between its parts stay.
    """
    return _CONTROL.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
