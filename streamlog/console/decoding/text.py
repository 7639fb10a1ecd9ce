"""Keys, values and headers as text for a page: text, JSON, hexadecimal. Pure.

What cannot be decoded is shown as text, with the reason. Nothing that is decoded is executed, and a page shows it as
text; control characters are escaped, line ends are kept.

A few bytes can be a document of gigabytes once it is indented, so a document is written piece by piece, up to
SHOWN_BYTES.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from streamlog.printable import escaped

if TYPE_CHECKING:  # the worker imports this module, and must start quickly
    from streamlog.client import ConsumerRecord

SHOWN_BYTES: Final = 16 << 10
"""Of one key, value or header; the rest is cut off, and the text says so."""
DECODED_BYTES_MAX: Final = 2 << 20
HEADERS_SHOWN: Final = 100


class Shown(Struct, frozen=True):
    text: str
    problem: str = ""  # why it is not shown as it was meant to be


def as_text(data: bytes | None, how: str) -> Shown:
    """`how`: text, json, hex. For values by a schema: `process`."""
    if data is None:
        return Shown("null")
    if how == "hex":
        return Shown(_cut(data[:SHOWN_BYTES].hex(" "), len(data)))
    plain = _cut(printable(data[:SHOWN_BYTES].decode(errors="backslashreplace")), len(data))
    if how != "json":
        return Shown(plain)
    if len(data) > DECODED_BYTES_MAX:
        return Shown(plain, too_large())
    try:
        return document_text(json.loads(data), len(data))
    except (ValueError, RecursionError) as problem:
        return Shown(plain, f"not JSON: {problem}"[:300])


def document_text(document: object, size_bytes: int) -> Shown:
    """As JSON, cut after SHOWN_BYTES. ValueError, RecursionError. `size_bytes`: of the value it was decoded from."""
    pieces: list[str] = []
    length = 0
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2, default=_other).iterencode(document):
        pieces.append(piece)
        length += len(piece)
        if length > SHOWN_BYTES:
            break
    text = printable("".join(pieces)[:SHOWN_BYTES])
    return Shown(f"{text} ... ({size_bytes:,} bytes in total)" if length > SHOWN_BYTES else text)


def too_large() -> str:
    return f"larger than {DECODED_BYTES_MAX:,} bytes"


def printable(text: str) -> str:
    """With line ends and tabs; other control characters and direction marks are escaped."""
    return "\n".join("\t".join(map(escaped, line.split("\t"))) for line in text.split("\n"))


def _cut(text: str, size_bytes: int) -> str:
    return f"{text} ... ({size_bytes:,} bytes in total)" if size_bytes > SHOWN_BYTES else text


def _other(value: object) -> str:
    """What JSON has no type for: bytes, dates, decimals."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def headers_as_text(record: ConsumerRecord, how: str) -> str:
    shown = [
        f"{escaped(name[:200])}: {as_text(value, 'hex' if how == 'hex' else 'text').text}"
        for name, value in record.headers[:HEADERS_SHOWN]
    ]
    more = len(record.headers) - HEADERS_SHOWN
    return "\n".join([*shown, f"... and {more} more"] if more > 0 else shown)


def as_json_line(record: ConsumerRecord) -> str:
    """For a download: a key or value that is not UTF-8 is in hexadecimal, as `key_hex` or `value_hex`."""
    document: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": [
            [
                name.encode(errors="surrogateescape").decode(errors="backslashreplace"),
                None if value is None else value.decode(errors="backslashreplace"),
            ]
            for name, value in record.headers
        ],
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            document[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            assert data is not None
            document[f"{name}_hex"] = data.hex()
    return json.dumps(document, ensure_ascii=False)
