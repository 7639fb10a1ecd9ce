"""Reads records for a page: bounded in number, bytes and time. `RecordTail` follows the ends of a topic's partitions.

What the page's user may not see is hidden or masked before a filter looks at it.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
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
KEPT_BYTES_MAX: Final = 32 << 20
SECONDS_MAX: Final = 10.0
NEWEST: Final = "newest"


class RecordFilter(Struct, frozen=True, kw_only=True):
    """Each one that is given must be contained. `header`: NAME, or NAME=TEXT."""

    text: str = ""  # in key, value or a header
    key: str = ""
    header: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.key or self.header)

    def matches(self, record: ConsumerRecord) -> bool:
        if self.key and self.key.encode() not in (record.key or b""):
            return False
        if self.header and not self._in_header(record):
            return False
        return not self.text or _contains(record, self.text.encode())

    def _in_header(self, record: ConsumerRecord) -> bool:
        name, _, text = self.header.partition("=")
        wanted = text.encode()
        return any(name == one and wanted in (value or b"") for one, value in record.headers)


class BrowseRequest(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int | None = None  # None: all
    start: str = NEWEST  # newest, beginning, offset, time
    offset: int = 0  # for `offset`
    timestamp_ms: int = 0  # for `time`
    filter: RecordFilter = RecordFilter()
    limit: int = 50


class BrowseResult(Struct, frozen=True):
    records: Sequence[ConsumerRecord]
    scanned: int
    complete: bool  # False: a limit ended the search


async def browse(admin: AsyncAdmin, settings: Mapping[str, object], question: BrowseRequest) -> BrowseResult:
    """StreamlogError. Records by partition and offset; with `newest` the last ones of all, the newest first."""
    protection = protection_of(question.topic)
    if not 1 <= question.limit <= RECORDS_MAX:
        raise InvalidRequestError(
            f"The number of records must be in 1..{RECORDS_MAX}.", field="limit", limit=RECORDS_MAX
        )
    wanted = await partitions_of(admin, question.topic, question.partition)
    ends = {at: found.offset for at, found in (await admin.list_offsets(dict.fromkeys(wanted, Bound.LATEST))).items()}
    starts = await _starts(admin, question, wanted, ends)
    reading = {at: start for at, start in starts.items() if start < ends[at]}
    if not reading:
        return BrowseResult((), 0, complete=True)
    async with AsyncConsumer({**settings, "check.crcs": "true"}) as consumer:
        await consumer.assign(reading)
        kept = _Newest(question.limit) if question.start == NEWEST else _First(question.limit)
        return await _read(consumer, question.filter, kept, {at: ends[at] for at in reading}, protection)


async def partitions_of(admin: AsyncAdmin, topic: str, partition: int | None) -> list[TopicPartition]:
    """StreamlogError. At least one."""
    described = await admin.describe_topic(topic)
    wanted = [
        TopicPartition(topic, one.partition)
        for one in described.partitions
        if partition is None or one.partition == partition
    ]
    if not wanted:
        raise InvalidRequestError(f"Topic {topic} has no partition {partition}.", field="partition")
    return wanted


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
            each = SCANNED_MAX // len(wanted) if question.filter else question.limit
            return {at: max(earliest[at], ends[at] - each) for at in wanted}


class _First:
    """The first records that were read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: list[ConsumerRecord] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self._records) >= self._limit or self._bytes >= KEPT_BYTES_MAX

    def add(self, record: ConsumerRecord) -> None:
        if not self.full:
            self._records.append(record)
            self._bytes += size_of(record)

    def records(self) -> Sequence[ConsumerRecord]:
        return sorted(self._records, key=lambda one: (one.partition, one.offset))


class _Newest:
    """The newest ones of all that were read: a heap with the oldest of them on top."""

    full = False

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[int, int, int, ConsumerRecord]] = []
        self._bytes = 0

    def add(self, record: ConsumerRecord) -> None:
        heapq.heappush(self._heap, (record.timestamp_ms, record.offset, -record.partition, record))
        self._bytes += size_of(record)
        while len(self._heap) > self._limit or (self._bytes > KEPT_BYTES_MAX and len(self._heap) > 1):
            self._bytes -= size_of(heapq.heappop(self._heap)[-1])

    def records(self) -> Sequence[ConsumerRecord]:
        return [one[-1] for one in sorted(self._heap, key=lambda one: one[:3], reverse=True)]


async def _read(
    consumer: AsyncConsumer,
    wanted: RecordFilter,
    kept: _First | _Newest,
    ends: Mapping[TopicPartition, int],
    protection: Protection,
) -> BrowseResult:
    scanned, deadline = 0, time.monotonic() + SECONDS_MAX
    open_ends = dict(ends)
    while open_ends and not kept.full and scanned < SCANNED_MAX and (left_s := deadline - time.monotonic()) > 0:
        read = []
        for record in await consumer.poll(timeout_s=min(left_s, 0.5)):
            at = TopicPartition(record.topic, PartitionId(record.partition))
            if at in open_ends and record.offset < ends[at]:
                read.append(record)
            else:
                open_ends.pop(at, None)
        scanned += len(read)
        for record in await _matching(read, wanted, protection):
            kept.add(record)
        for at in list(open_ends):
            if await consumer.position(at) >= ends[at]:
                del open_ends[at]
    return BrowseResult(kept.records(), scanned, complete=not open_ends and not kept.full)


async def _matching(
    read: Iterable[ConsumerRecord], wanted: RecordFilter, protection: Protection
) -> list[ConsumerRecord]:
    """As the user may see them. In a thread: masks and filters look at each byte of what may be megabytes."""
    return await asyncio.to_thread(
        lambda: [record for record in map(protection.record, read) if wanted.matches(record)]
    )


class RecordTail:
    """Records as they are written, from now on. `read` checks at each call what its user may see."""

    def __init__(self, settings: Mapping[str, object], topic: str, wanted: RecordFilter) -> None:
        self._consumer = AsyncConsumer(dict(settings))
        self._topic, self._wanted = topic, wanted

    async def start(self, admin: AsyncAdmin, partition: int | None) -> None:
        """StreamlogError."""
        protection_of(self._topic)
        partitions = await partitions_of(admin, self._topic, partition)
        ends = await admin.list_offsets(dict.fromkeys(partitions, Bound.LATEST))
        await self._consumer.start()
        await self._consumer.assign({at: one.offset for at, one in ends.items()})

    async def read(self, records_max: int, timeout_s: float) -> list[ConsumerRecord]:
        """StreamlogError. Waits until there are some, or for `timeout_s`."""
        protection = protection_of(self._topic)
        return await _matching(await self._consumer.poll(records_max, timeout_s=timeout_s), self._wanted, protection)

    async def close(self) -> None:
        await self._consumer.close()


def drop_beyond(records: deque[ConsumerRecord], bytes_max: int) -> None:
    """Drops the last ones, but never all."""
    left = bytes_max
    for kept, record in enumerate(records):
        left -= size_of(record)
        if left < 0 and kept:
            while len(records) > kept:
                records.pop()
            return


def size_of(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _contains(record: ConsumerRecord, needle: bytes) -> bool:
    if needle in (record.key or b"") or needle in (record.value or b""):
        return True
    return any(
        needle in name.encode(errors="surrogateescape") or needle in (value or b"") for name, value in record.headers
    )
