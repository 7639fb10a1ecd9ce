"""Records as lines of standard output, with the properties of Kafka's console consumer. Pure.

    print.timestamp print.partition print.offset print.headers print.key print.value    true or false; value alone: true
    key.separator=<TAB>      between all fields
    line.separator=<LF>
    headers.separator=,
    null.literal=null        the text of a null

    CreateTime:1557393691677 Partition:0 Offset:5 h:1,i:2 KEY VALUE

Keys and values are written unchanged to a pipe or file; on a terminal they are escaped, since writers of a topic could
otherwise control the terminals of its readers. As JSON a record is one object on a line: bytes as
{"base64": ..., "text": ...}, the text only for valid UTF-8.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.cli.records.input_format import boolean, separator
from streamlog.errors import InvalidRequestError
from streamlog.printable import escaped_bytes
from streamlog.records import Headers, TimestampType
from streamlog.records.decode import Fields

_NAMES: Final = (
    "print.timestamp",
    "print.partition",
    "print.offset",
    "print.epoch",
    "print.headers",
    "print.key",
    "print.value",
    "key.separator",
    "line.separator",
    "headers.separator",
    "null.literal",
)
_TIMESTAMPS: Final = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


class OutputFormat(Struct, frozen=True, kw_only=True):
    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    epoch: bool = False
    headers: bool = False
    key: bool = False
    value: bool = True
    separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    escape: bool = False  # keys, values, headers: for a terminal

    @classmethod
    def of(cls, properties: Mapping[str, str], *, escape: bool = False) -> OutputFormat:
        """InvalidRequestError for an unknown name or an invalid value."""
        for name in properties:
            if name not in _NAMES:
                raise InvalidRequestError(
                    f"{name} is not an output property: the properties are {', '.join(_NAMES)}",
                    field=name,
                    limit=_NAMES,
                )
        return cls(
            timestamp=boolean(properties, "print.timestamp"),
            partition=boolean(properties, "print.partition"),
            offset=boolean(properties, "print.offset"),
            epoch=boolean(properties, "print.epoch"),
            headers=boolean(properties, "print.headers"),
            key=boolean(properties, "print.key"),
            value=boolean({"print.value": "true", **properties}, "print.value"),
            separator=separator(properties, "key.separator", "\t"),
            line_separator=separator(properties, "line.separator", "\n"),
            headers_separator=separator(properties, "headers.separator", ","),
            null_literal=properties.get("null.literal", "null").encode(),
            escape=escape,
        )

    @property
    def value_alone(self) -> bool:
        return self.value and not (
            self.timestamp or self.partition or self.offset or self.epoch or self.headers or self.key
        )

    def lines(
        self, partition: int, timestamp_type: TimestampType, records: Iterable[Fields], *, leader_epoch: int = -1
    ) -> bytes:
        """The lines of records of one batch."""
        end, null = self.line_separator, self.null_literal
        if self.value_alone and not self.escape:
            return b"".join([(null if value is None else value) + end for _, _, _, value, _ in records])
        return b"".join([self._line(partition, timestamp_type, leader_epoch, record) + end for record in records])

    def _line(self, partition: int, timestamp_type: TimestampType, leader_epoch: int, record: Fields) -> bytes:
        offset, timestamp_ms, key, value, headers = record
        parts = []
        if self.timestamp:
            kind = _TIMESTAMPS.get(timestamp_type)
            parts.append(b"NO_TIMESTAMP" if kind is None or timestamp_ms < 0 else f"{kind}:{timestamp_ms}".encode())
        if self.partition:
            parts.append(b"Partition:%d" % partition)
        if self.offset:
            parts.append(b"Offset:%d" % offset)
        if self.epoch:
            parts.append(b"Epoch:%d" % leader_epoch)
        if self.headers:
            parts.append(self._headers(headers))
        if self.key:
            parts.append(self._shown(key))
        if self.value:
            parts.append(self._shown(value))
        return self.separator.join(parts)

    def _headers(self, headers: Headers) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            self._shown(_name(name)) + b":" + self._shown(value) for name, value in headers
        )

    def _shown(self, data: bytes | None) -> bytes:
        if data is None:
            return self.null_literal
        return escaped_bytes(data) if self.escape else data


def json_lines(topic: str, partition: int, timestamp_type: TimestampType, records: Iterable[Fields]) -> bytes:
    return b"".join(
        [
            json.dumps(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "timestamp_type": _TIMESTAMPS.get(timestamp_type),
                    "timestamp_ms": timestamp_ms,
                    "key": _json_bytes(key),
                    "value": _json_bytes(value),
                    "headers": [[_json_bytes(_name(name)), _json_bytes(of)] for name, of in headers],
                },
                ensure_ascii=False,
            ).encode()
            + b"\n"
            for offset, timestamp_ms, key, value, headers in records
        ]
    )


def _json_bytes(data: bytes | None) -> dict[str, str] | None:
    if data is None:
        return None
    exact = {"base64": base64.b64encode(data).decode()}
    try:
        return exact | {"text": data.decode()}
    except UnicodeDecodeError:
        return exact


def _name(name: str) -> bytes:
    """A header's key may have lone surrogates for bytes that are not UTF-8 (`records.record`)."""
    return name.encode("utf-8", "surrogateescape")
