"""Reads records for a page: bounded in number, bytes and time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from streamlog.client import AsyncConsumer, AtTime, ConsumerRecord
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.consumer.offset_finder import Bound
from streamlog.console.access.caller import protection_of
from streamlog.console.access.values import Protection
from streamlog.errors import InvalidRequestError
from streamlog.model import PartitionId, TopicPartition

RECORDS_MAX: Final = 1_000
SCANNED_MAX: Final = 200_000
"""Maximum number of records that a search reads."""
SECONDS_MAX: Final = 10.0
VALUE_SHOWN_BYTES: Final = 16 << 10
"""Of one key or value; the rest is cut off, and the page says so."""


class BrowseRequest(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int | None = None  # None: all
    start: str = "newest"  # newest, beginning, offset, time
    offset: int = 0  # for `offset`
    timestamp_ms: int = 0  # for `time`
    containing: str = ""  # in key, value or a header, as text
    limit: int = 50


class BrowseResult(Struct, frozen=True):
    records: Sequence[ConsumerRecord]
    scanned: int
    complete: bool  # False: a limit ended the search


async def browse(admin: AsyncAdmin, settings: Mapping[str, object], question: BrowseRequest) -> BrowseResult:
    """StreamlogError. Records by partition and offset; with `newest` the last ones of each partition. What the
    current user may not see is hidden or masked before the search looks for it.
    """
    protection = protection_of(question.topic)
    if not 1 <= question.limit <= RECORDS_MAX:
        raise InvalidRequestError(
            f"The number of records must be in 1..{RECORDS_MAX}.", field="limit", limit=RECORDS_MAX
        )
    described = await admin.describe_topic(question.topic)
    wanted = [
        TopicPartition(question.topic, one.partition)
        for one in described.partitions
        if question.partition is None or one.partition == question.partition
    ]
    if not wanted:
        raise InvalidRequestError(f"Topic {question.topic} has no partition {question.partition}.", field="partition")
    ends = {at: found.offset for at, found in (await admin.list_offsets(dict.fromkeys(wanted, Bound.LATEST))).items()}
    starts = await _starts(admin, question, wanted, ends)
    reading = {at: start for at, start in starts.items() if start < ends[at]}
    if not reading:
        return BrowseResult((), 0, complete=True)
    async with AsyncConsumer({**settings, "check.crcs": "true"}) as consumer:
        await consumer.assign(reading)
        return await _read(consumer, question, {at: ends[at] for at in reading}, protection)


async def _starts(
    admin: AsyncAdmin, question: BrowseRequest, wanted: Sequence[TopicPartition], ends: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    earliest = {at: one.offset for at, one in (await admin.list_offsets(dict.fromkeys(wanted, Bound.EARLIEST))).items()}
    match question.start:
        case "beginning":
            return earliest
        case "offset":
            return {at: min(max(question.offset, earliest[at]), ends[at]) for at in wanted}
        case "time":
            places = dict.fromkeys(wanted, AtTime(question.timestamp_ms))
            return {
                at: ends[at] if one.offset < 0 else one.offset for at, one in (await admin.list_offsets(places)).items()
            }
        case _:
            each = question.limit if not question.containing else SCANNED_MAX // len(wanted)
            return {at: max(earliest[at], ends[at] - each) for at in wanted}


async def _read(
    consumer: AsyncConsumer, question: BrowseRequest, ends: Mapping[TopicPartition, int], protection: Protection
) -> BrowseResult:
    needle = question.containing.encode()
    kept: list[ConsumerRecord] = []
    scanned, deadline = 0, time.monotonic() + SECONDS_MAX
    open_ends = dict(ends)
    newest = question.start == "newest"
    while open_ends and scanned < SCANNED_MAX and (left_s := deadline - time.monotonic()) > 0:
        if len(kept) >= question.limit and not newest:
            return _found(kept, question, scanned, complete=False)
        for record in await consumer.poll(timeout_s=min(left_s, 0.5)):
            at = TopicPartition(record.topic, PartitionId(record.partition))
            if at not in open_ends or record.offset >= ends[at]:
                open_ends.pop(at, None)
                continue
            scanned += 1
            shown_record = protection.record(record)
            if not needle or _contains(shown_record, needle):
                kept.append(shown_record)
        for at in list(open_ends):
            if await consumer.position(at) >= ends[at]:
                del open_ends[at]
    return _found(kept, question, scanned, complete=not open_ends)


def _found(kept: Sequence[ConsumerRecord], question: BrowseRequest, scanned: int, *, complete: bool) -> BrowseResult:
    if question.start == "newest":
        newest_first = sorted(kept, key=lambda one: (-one.timestamp_ms, -one.offset))[: question.limit]
        return BrowseResult(newest_first, scanned, complete)
    rows = sorted(kept, key=lambda one: (one.partition, one.offset))[: question.limit]
    return BrowseResult(rows, scanned, complete and len(kept) <= question.limit)


def _contains(record: ConsumerRecord, needle: bytes) -> bool:
    if needle in (record.key or b"") or needle in (record.value or b""):
        return True
    return any(
        needle in name.encode(errors="surrogateescape") or needle in (value or b"") for name, value in record.headers
    )


def shown(data: bytes | None, how: str) -> str:
    """As text for a page. `how`: text, json, hex; invalid JSON is shown as text. None: null."""
    if data is None:
        return "null"
    cut = len(data) > VALUE_SHOWN_BYTES
    head = data[:VALUE_SHOWN_BYTES]
    if how == "hex":
        text = head.hex(" ")
    elif how == "json" and not cut:
        try:
            text = json.dumps(json.loads(head), ensure_ascii=False, indent=2)
        except ValueError:
            text = head.decode(errors="backslashreplace")
    else:
        text = head.decode(errors="backslashreplace")
    return f"{text} ... ({len(data):,} bytes in total)" if cut else text


def as_json_line(record: ConsumerRecord) -> str:
    """For a download: a key or value that is not UTF-8 is in hexadecimal, as `key_hex` or `value_hex`."""
    document: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": [
            [name, None if value is None else value.decode(errors="backslashreplace")] for name, value in record.headers
        ],
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            document[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            assert data is not None
            document[f"{name}_hex"] = data.hex()
    return json.dumps(document, ensure_ascii=False)
