"""Items of a dump as JSON, one object on a line. Pure.

`file` and `type` (the item's name) come first, then the item's own fields; a record also has those of its batch.
Bytes are {"base64": ..., "text": ...}, the text only for valid UTF-8.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from typing import Final, TypeAlias

from msgspec.structs import asdict

from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.groups import offsets_topic
from streamlog.storage.dump import AbortedTransaction, Damage, Item, LogRecord, LogStart

Json: TypeAlias = offsets_topic.Json

# `json.dumps` with options would create an encoder for each call.
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def line(path: str, item: Item, *, with_data: bool, offsets: bool) -> str | None:
    """One object. None for damage, which is printed to standard error, and for a log start, which is the file's name.
    The flags are those of `classic.line`.
    """
    if isinstance(item, Damage | LogStart):
        return None
    fields: dict[str, Json] = {"file": path, "type": _type_name(type(item).__name__)}
    if isinstance(item, LogRecord):
        fields |= _record(item, with_data=with_data, offsets=offsets)
    elif isinstance(item, AbortedTransaction):
        fields |= item._asdict()
    else:
        fields |= asdict(item)
    return _encode(fields)


@cache
def _type_name(name: str) -> str:
    """offset_index_entry of OffsetIndexEntry."""
    return _WORD.sub("_", name).lower()


def _record(record: LogRecord, *, with_data: bool, offsets: bool) -> dict[str, Json]:
    batch = record.batch
    fields: dict[str, Json] = {
        "offset": record.offset,
        "position": batch.position,
        "timestamp_type": batch.timestamp_type,
        "timestamp_ms": record.timestamp_ms,
        "is_valid": batch.is_valid,
        "magic": batch.magic,
        "codec": batch.codec,
        "crc": batch.crc if record.crc is None else record.crc,
        "base_offset": batch.base_offset,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "sequence": record.sequence,
        "is_transactional": batch.is_transactional,
        "key_size_bytes": None if record.key is None else len(record.key),
        "value_size_bytes": None if record.value is None else len(record.value),
        "control": None if record.control is None else asdict(record.control),
    }
    if with_data:
        fields["key"] = _bytes(record.key)
        fields["value"] = _bytes(record.value)
        fields["headers"] = [[_bytes(_name(name)), _bytes(value)] for name, value in record.headers]
    if offsets and record.control is None:
        fields["decoded"] = _decoded(record)
    return fields


def _decoded(record: LogRecord) -> Json:
    try:
        decoded = offsets_topic.decode(record.key, record.value)
    except (UnsupportedVersionError, InvalidRecordError) as e:
        return {"error": str(e)}
    return {"key": decoded.key, "value": decoded.value}


def _bytes(data: bytes | None) -> Json:
    if data is None:
        return None
    exact: dict[str, Json] = {"base64": base64.b64encode(data).decode()}
    try:
        return exact | {"text": data.decode()}
    except UnicodeDecodeError:
        return exact


def _name(name: str) -> bytes:
    return name.encode("utf-8", errors="surrogateescape")
