r"""`consume --format`: kcat's format strings. Pure.

    %t topic    %p partition    %o offset    %T timestamp, ms    %h headers, NAME=VALUE,...
    %k key      %s value        %K, %S       their lengths in bytes, -1 for null
    %%          a per cent sign              \n \t \r \\ \xNN as in C

A null key or value is empty, as with kcat; %K and %S distinguish it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from streamlog.errors import InvalidRequestError
from streamlog.printable import escaped_bytes
from streamlog.records import Headers
from streamlog.records.decode import Fields

_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}
_Part = Callable[[bytes, int, Fields], bytes]  # topic, partition and record


class FormatTemplate:
    def __init__(self, text: str, *, escape: bool = False) -> None:
        """`escape`: keys, values and headers, for a terminal. InvalidRequestError."""
        self._shown: Callable[[bytes], bytes] = escaped_bytes if escape else bytes
        fields: dict[str, _Part] = {
            "t": lambda topic, _, record: topic,
            "p": lambda _, partition, record: b"%d" % partition,
            "o": lambda _, partition, record: b"%d" % record[0],
            "T": lambda _, partition, record: b"%d" % record[1],
            "k": lambda _, partition, record: self._shown(record[2] or b""),
            "s": lambda _, partition, record: self._shown(record[3] or b""),
            "K": lambda _, partition, record: b"%d" % (-1 if record[2] is None else len(record[2])),
            "S": lambda _, partition, record: b"%d" % (-1 if record[3] is None else len(record[3])),
            "h": lambda _, partition, record: self._headers(record[4]),
            "%": _fixed(b"%"),
        }
        self._parts: list[_Part] = []
        end = 0
        for match in _TOKEN.finditer(text):
            self._parts.append(_fixed(text[end : match.start()].encode()))
            self._parts.append(_part(match, fields))
            end = match.end()
        self._parts.append(_fixed(text[end:].encode()))

    def lines(self, topic: str, partition: int, records: Iterable[Fields]) -> bytes:
        name = topic.encode()
        return b"".join([part(name, partition, record) for record in records for part in self._parts])

    def _headers(self, headers: Headers) -> bytes:
        return b",".join(
            self._shown(name.encode("utf-8", "surrogateescape")) + b"=" + self._shown(value or b"")
            for name, value in headers
        )


def _part(match: re.Match[str], fields: dict[str, _Part]) -> _Part:
    name, escape = match[1], match[2]
    if name is not None:
        if name not in fields:
            raise InvalidRequestError(
                f"'%{name}' is not a field of --format: the fields are {' '.join('%' + one for one in fields)}",
                field="--format",
            )
        return fields[name]
    if escape.startswith("x") and len(escape) > 1:
        return _fixed(bytes([int(escape[1:], 16)]))
    if escape not in _ESCAPES:
        raise InvalidRequestError(
            rf"'\{escape}' is not an escape of --format: the escapes are \n \t \r \\ \xNN", field="--format"
        )
    return _fixed(_ESCAPES[escape])


def _fixed(text: bytes) -> _Part:
    return lambda _topic, _partition, _record: text
