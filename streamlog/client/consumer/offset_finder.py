"""Offsets by bound or by time, looked up at the leaders of the partitions; leaders that move are followed.

OffsetSpec: EARLIEST | LATEST | AtTime(ms) | Last(n) --ListOffsets to each leader--> OffsetAndTimestamp(offset, ...)
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Final, TypeAlias

from msgspec import Struct

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import Leader, MetadataCache
from streamlog.errors import InvalidRequestError, NotLeaderError, RequestTimedOutError, StreamlogError
from streamlog.model import (
    INT64_MAX,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    IsolationLevel,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from streamlog.ports import Clock

LIST_OFFSETS: Final = calls.unary("streamlog.v1.Batches/ListOffsets", pb.ListOffsetsResponse)
ISOLATION: Final = {
    IsolationLevel.READ_UNCOMMITTED: common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
    IsolationLevel.READ_COMMITTED: common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
}
# So many partitions are named in an error.
_NAMED_MAX: Final = 5


class Bound(enum.Enum):
    """An end of a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"  # one past the last record that can be read


def checked_integer(field: str, given: object, high: int = INT64_MAX) -> int:
    """From 0 to `high`. InvalidRequestError."""
    try:
        number = -1 if isinstance(given, bool) else index(given)  # type: ignore[arg-type]  # TypeError below
    except TypeError:
        number = -1
    if not 0 <= number <= high:
        hint = "; use int(...)" if isinstance(given, float) else ""
        raise InvalidRequestError(f"{field} must be an integer from 0 to {high}, not {given!r}{hint}", field=field)
    return number


def checked_count(given: object) -> int:
    """Of records to return: at least 1. InvalidRequestError; what other clients' poll takes is a time."""
    try:
        number = 0 if isinstance(given, bool) else index(given)  # type: ignore[arg-type]  # TypeError below
    except TypeError:
        number = 0
    if number < 1:
        raise InvalidRequestError(
            f"max_records must be an integer from 1, not {given!r}; for how long to wait: timeout_s=",
            field="max_records",
        )
    return number


class AtTime(Struct, frozen=True):
    """The first record of this time, in ms since 1970, or later."""

    timestamp_ms: int

    def __post_init__(self) -> None:
        checked_integer("timestamp_ms", self.timestamp_ms)


class Last(Struct, frozen=True):
    """So many offsets before the end, or the beginning where there are fewer. Of a compacted topic, or one with
    transactions, these are fewer records.
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 0:
            raise InvalidRequestError(f"Last({self.count!r}): must be an integer from 0", field="count", limit=0)


OffsetSpec: TypeAlias = Bound | AtTime | Last


class OffsetAndTimestamp(Struct, frozen=True, kw_only=True):
    offset: Offset  # -1: there is no record of that time or later
    timestamp_ms: int  # of the record found by time; -1: none
    leader_epoch: LeaderEpoch  # of the record at the offset, or of the leader for the end; -1: none


class OffsetFinder:
    def __init__(
        self,
        connections: Connections,
        metadata: MetadataCache,
        clock: Clock,
        backoff: Backoff,
        *,
        isolation: IsolationLevel,
        request_timeout_s: float,
    ) -> None:
        self._connections = connections
        self._metadata = metadata
        self._clock = clock
        self._backoff = backoff
        self._isolation = isolation
        self._request_timeout_s = request_timeout_s

    async def find(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        timeout_s: float,
        on_found: Callable[[TopicPartition, OffsetAndTimestamp], None] | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """`on_found` is called for each as soon as it is found. RequestTimedOutError; UnknownTopicOrPartitionError and
        other errors that are not retriable.
        """
        deadline = self._clock.monotonic() + timeout_s
        lasts = [partition for partition, spec in specs.items() if isinstance(spec, Last)]
        # The beginnings are looked up first: the end that is found later is not before them.
        beginnings = await self.find(dict.fromkeys(lasts, Bound.EARLIEST), timeout_s=timeout_s) if lasts else {}
        await self._metadata.look_up([partition.topic for partition in specs], timeout_s=timeout_s)
        for partition in specs:
            self._metadata.check(partition)
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        attempt = 0
        while True:
            known = len(found)
            problem = await self._query_leaders({p: at for p, at in specs.items() if p not in found}, found, deadline)
            for partition in list(found)[known:]:
                spec = specs[partition]
                if isinstance(spec, Last):
                    found[partition] = _before(found[partition], spec.count, beginnings[partition])
                if on_found is not None:
                    on_found(partition, found[partition])
            left_s = deadline - self._clock.monotonic()
            if problem is None:
                return found
            if left_s <= 0:
                missing = [str(partition) for partition in specs if partition not in found]
                named = ", ".join(missing[:_NAMED_MAX]) + (", ..." if len(missing) > _NAMED_MAX else "")
                raise RequestTimedOutError(f"the offsets of {named} were not found within {timeout_s:g} s: {problem}")
            attempt += 1
            await self._backoff.wait(attempt, left_s=left_s)

    async def _query_leaders(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        found: dict[TopicPartition, OffsetAndTimestamp],
        deadline: float,
    ) -> StreamlogError | str | None:
        """Add what is found to `found`; returns why others were not found, None where all were."""
        by_address: dict[str, list[tuple[TopicPartition, OffsetSpec, Leader]]] = {}
        problem: StreamlogError | str | None = None
        for partition, spec in specs.items():
            leader = self._metadata.leader(partition)
            if leader is None:
                problem = f"{partition} has no known leader"
                self._metadata.refresh()
            else:
                by_address.setdefault(leader.address, []).append((partition, spec, leader))
        timeout_s = min(self._request_timeout_s, max(1e-3, deadline - self._clock.monotonic()))
        lookups = [self._query(address, queries, found, timeout_s) for address, queries in by_address.items()]
        for one in await asyncio.gather(*lookups):
            problem = one or problem
        return problem

    async def _query(
        self,
        address: str,
        queries: Iterable[tuple[TopicPartition, OffsetSpec, Leader]],
        found: dict[TopicPartition, OffsetAndTimestamp],
        timeout_s: float,
    ) -> StreamlogError | None:
        queries = list(queries)
        request = pb.ListOffsetsRequest(
            queries=[_message(*query) for query in queries], isolation_level=ISOLATION[self._isolation]
        )
        try:
            response = await self._connections.ask(LIST_OFFSETS, request, address=address, timeout_s=timeout_s)
        except StreamlogError as error:
            if not error.retriable:
                raise
            self._metadata.refresh()
            return error
        problem: StreamlogError | None = None
        for (partition, _, _), result in zip(queries, response.offsets, strict=False):
            if result.HasField("error"):
                problem = from_message(result.error)
                self._on_error(partition, problem)
            else:
                found[partition] = OffsetAndTimestamp(
                    offset=Offset(result.offset),
                    timestamp_ms=result.timestamp_ms,
                    leader_epoch=LeaderEpoch(result.leader_epoch),
                )
        return problem

    def _on_error(self, partition: TopicPartition, error: StreamlogError) -> None:
        if not error.retriable:
            raise error
        if isinstance(error, NotLeaderError):
            self._metadata.learn_leader(partition, error)
        self._metadata.refresh()


def _before(end: OffsetAndTimestamp, count: int, beginning: OffsetAndTimestamp) -> OffsetAndTimestamp:
    offset = Offset(end.offset - count)
    if count == 0:
        return end
    if offset <= beginning.offset:
        return beginning
    return OffsetAndTimestamp(offset=offset, timestamp_ms=NO_TIMESTAMP, leader_epoch=NO_LEADER_EPOCH)


def _message(partition: TopicPartition, spec: OffsetSpec, leader: Leader) -> pb.OffsetQuery:
    query = pb.OffsetQuery(topic=partition.topic, partition=partition.partition, leader_epoch=leader.epoch)
    match spec:
        case Bound.EARLIEST:
            query.bound = common_pb2.OFFSET_BOUND_EARLIEST
        case Bound.LATEST | Last():
            query.bound = common_pb2.OFFSET_BOUND_LATEST
        case AtTime(timestamp_ms):
            query.timestamp_ms = timestamp_ms
    return query
