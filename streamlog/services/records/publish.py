"""Publish: records of clients that know neither batches nor leaders, served by any node.

    request --validated--> assigned to partitions --> batches --> written (`routed_writes`) --> results

Calls without a token share the partition of records without a key (`placement.sticky_partition`), and what arrives
together for one partition is written together (`gathering`).

A producer token gives each record its sequence. Partitions and sequences depend only on the token and the request
(`placement.partition_choice`), so a retry has the same ones, and leaders recognize what is in the log. What the topic's
settings and the clock refuse now may have been accepted before: with a token the leader decides, which knows. Hence a
call with a token succeeds as a whole, or fails and can be retried; without one each record has its own result: one that
is invalid is refused alone, the others are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from streamlog.aio.call_time import counted
from streamlog.aio.timeouts import timeout
from streamlog.api.convert.records import publish as convert
from streamlog.api.convert.records.publish import NewRecord, PublishOptions, RecordPartitioner
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Call
from streamlog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OutcomeUnknownError,
    StreamlogError,
)
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.image.image import Topic
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_OFFSET, NO_TIMESTAMP, Acks, Offset, PartitionId
from streamlog.ports import CallInfo, Clock, Random, Workers
from streamlog.ports.trace_context import contexts_in
from streamlog.records import BatchBuilder, BatchFields, Codec
from streamlog.services.batches.partition_leader import within
from streamlog.services.common.auto_create import AutoCreate
from streamlog.services.common.topics import unknown_topic
from streamlog.services.records.gathering.batch_write import BatchWrite, WriteResult
from streamlog.services.records.placement.partition_choice import check_choice, choose
from streamlog.services.records.placement.publish_rules import PublishRulesTable
from streamlog.services.records.placement.sticky_partition import StickyPartitions
from streamlog.services.records.producer_token import SEQUENCES, ProducerToken, decode_token
from streamlog.services.records.routed_writes import RoutedWriter

# Records without a key stay on one partition up to a batch of this size. Kafka's producers use 16 KiB, as they wait for
# records; here all records are present, and the cost of writing a batch hardly depends on its size.
STICKY_BYTES: Final = 262_144
# Refused records of a request with the whole error; a response of 10,000 of them would exceed a message.
_WHOLE_ERRORS_MAX: Final = 1_000
_NEW_TOPIC_S: Final = 0.5
# What a leader refuses a record for by a topic's settings.
_SETTINGS_REFUSALS: Final = (InvalidRecordError, InvalidTimestampError, MessageTooLargeError)
_DEFAULT_OPTIONS: Final = convert.publish_options(pb.PublishOptions())


class PlacedBatch(Struct, frozen=True):
    """A batch to write, and the records of the request that it holds."""

    write: BatchWrite
    rows: Sequence[int]


class PreparedPublish(Struct, frozen=True, kw_only=True):
    """A request, as batches of its valid records."""

    records: Mapping[int, NewRecord]  # those that are valid, by their index in the request
    refused: Mapping[int, StreamlogError]  # the others
    # Of `records`: why the topic's settings refuse them as of now, unless a leader has them already.
    refused_by_settings: Mapping[int, StreamlogError]
    batches: Sequence[PlacedBatch]
    acks: Acks
    token: ProducerToken | None  # for the next request

    def doubted_partitions(self) -> list[PartitionId]:
        """Those with records that the topic's settings refuse as of now."""
        if not self.refused_by_settings:  # of most requests; their rows need not be looked at
            return []
        rows = self.refused_by_settings.keys()
        found = (one.write.partition for one in self.batches if not rows.isdisjoint(one.rows))
        return list(dict.fromkeys(found))

    def reason(self, batch: PlacedBatch, error: StreamlogError) -> StreamlogError:
        """Of the leader's `error`: the record that the batch was refused for, if that is known."""
        if not isinstance(error, _SETTINGS_REFUSALS):
            return error
        return next((self.refused_by_settings[row] for row in batch.rows if row in self.refused_by_settings), error)


class Preparation:
    """Validates requests and makes batches of them."""

    def __init__(
        self,
        view: MetadataView,
        configs: NodeConfigs,
        auto_create: AutoCreate,
        clock: Clock,
        random: Random,
        workers: Workers,
        *,
        traced: bool = False,
    ) -> None:
        self._view = view
        self._rules = PublishRulesTable(configs)
        self._sticky = StickyPartitions(clock, random)
        self._auto_create = auto_create
        self._clock = clock
        self._random = random
        self._workers = workers
        self._traced = traced
        self._round_robin = random.getrandbits(16)  # the next request's first partition

    async def prepare(
        self,
        topic_name: str,
        messages: Sequence[pb.PublishRecord],
        options: PublishOptions,
        token: ProducerToken | None,
        call: Call,
        transactional_id: str = "",
        *,
        alone: bool = False,
        repeatable: bool = False,
    ) -> PreparedPublish:
        """InvalidRequestError and others for an invalid request; nothing has been written then. `alone`: an invalid
        record does not raise, it is in `refused`; all of them may be. `repeatable`: the client has the token, and may
        have sent the request before.
        """
        topic = await self._topic(convert.user_topic(topic_name), call)
        convert.check_record_count(messages)
        rules = self._rules.of(topic.name)
        count = len(topic.partitions) if token is None else token.counts.get(topic.topic_id, len(topic.partitions))
        now_ms = self._clock.wall_ms()
        records: dict[int, NewRecord] = {}
        refused: dict[int, StreamlogError] = {}
        by_settings: dict[int, StreamlogError] = {}
        for index, message in enumerate(messages):
            try:
                record = convert.new_record(message, index, now_ms)
                check_choice(record, index, options.partitioner, count)
                refusal = rules.refusal(record, index, now_ms)
                if refusal is not None and not repeatable:
                    raise refusal
            except StreamlogError as error:
                if not alone:
                    raise
                refused[index] = error
                continue
            records[index] = record
            if refusal is not None:
                by_settings[index] = refusal
        seed = self._seed(topic, options.partitioner, records, token, repeatable=repeatable)
        chosen = choose(list(records.values()), options.partitioner, count, seed, STICKY_BYTES)
        partitions = dict(zip(records, chosen, strict=True))
        codec = rules.codec(options.compression)
        info = call.info if self._traced else None
        batches = await self._batches(topic, records, partitions, codec, rules.size_max, token, transactional_id, info)
        if token is not None:
            written: dict[PartitionId, int] = {}
            for batch in batches:
                written[batch.write.partition] = written.get(batch.write.partition, 0) + batch.write.count
            token = token.after(topic.topic_id, count, written)
            if repeatable:
                token.check_size()
        return PreparedPublish(
            records=records,
            refused=refused,
            refused_by_settings=by_settings,
            batches=batches,
            acks=options.acks,
            token=token,
        )

    async def _topic(self, name: str, call: Call) -> Topic:
        topic = self._view.image.topic_named(name)
        if topic is None:
            await self._auto_create.ensure(name, call)
            topic = self._view.image.topic_named(name)
        if topic is None:
            topic = await self._created_elsewhere(name)
        return topic

    async def _created_elsewhere(self, name: str) -> Topic:
        """This node may learn of a new topic a moment after its creator. After that the name is wrong, which no retry
        changes.
        """
        try:
            async with timeout(_NEW_TOPIC_S):
                image = await self._view.wait_until(lambda image: image.topic_named(name) is not None)
        except TimeoutError:
            raise unknown_topic(name).permanent() from None
        return image.require_topic(name)

    def _seed(
        self,
        topic: Topic,
        partitioner: RecordPartitioner,
        records: Mapping[int, NewRecord],
        token: ProducerToken | None,
        *,
        repeatable: bool,
    ) -> int:
        if token is not None:
            so_far = sum(token.sequences.values())
            if partitioner is RecordPartitioner.ROUND_ROBIN:
                return so_far
            if repeatable:
                return crc32c(token.encode())
            # Encoding one of 10,000 partitions, which only a stream without a token has, holds up the node.
            return crc32c(b"%d %d %d" % (token.producer_id, token.producer_epoch, so_far))
        if partitioner is RecordPartitioner.ROUND_ROBIN:
            self._round_robin += len(records)
            return self._round_robin - len(records)
        if partitioner is RecordPartitioner.RANDOM:
            return self._random.getrandbits(32)
        free = [one.size_bytes for one in records.values() if one.key is None and one.partition is None]
        return self._sticky.take(topic, free) if free else 0

    async def _batches(
        self,
        topic: Topic,
        records: Mapping[int, NewRecord],
        partitions: Mapping[int, int],
        codec: Codec,
        size_max: int,
        token: ProducerToken | None,
        transactional_id: str,
        call: CallInfo | None,
    ) -> list[PlacedBatch]:
        """By partition, in the order of their first records; within a partition in the order of the records."""
        rows_of: dict[int, list[int]] = {}
        for row, partition in partitions.items():
            rows_of.setdefault(partition, []).append(row)
        batches = []
        for partition, rows in rows_of.items():
            index = PartitionId(partition)
            sequence = None if token is None else token.sequence_of((topic.topic_id, index))
            for builder, taken in _split(records, rows, size_max):
                fields = BatchFields(codec=codec)
                if token is not None:
                    fields = _fields(codec, token, sequence or 0, is_transactional=bool(transactional_id))
                build = builder.build
                write = BatchWrite(
                    topic=topic.name,
                    topic_id=topic.topic_id,
                    partition=index,
                    batch=build(fields) if codec is Codec.NONE else await self._workers.run(build, fields),
                    count=len(taken),
                    base_sequence=sequence,
                    transactional_id=transactional_id,
                    call=call,
                    traceparents=() if call is None else contexts_in(records[row].headers for row in taken),
                )
                batches.append(PlacedBatch(write, taken))
                sequence = None if sequence is None else (sequence + len(taken)) % SEQUENCES
        return batches


def _split(
    records: Mapping[int, NewRecord], rows: Sequence[int], size_max: int
) -> Iterator[tuple[BatchBuilder, Sequence[int]]]:
    """Batches of as many records as fit, at least one each."""
    builder, first = BatchBuilder(size_max), 0
    for place, row in enumerate(rows):
        record = records[row]
        if not builder.try_append(record.value, record.key, record.headers, timestamp=record.timestamp_ms):
            yield builder, rows[first:place]
            builder, first = BatchBuilder(size_max), place
            builder.try_append(record.value, record.key, record.headers, timestamp=record.timestamp_ms)
    yield builder, rows[first:]


def _fields(codec: Codec, token: ProducerToken, sequence: int, *, is_transactional: bool) -> BatchFields:
    return BatchFields(
        codec=codec,
        producer_id=token.producer_id,
        producer_epoch=token.producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


class PublishHandler:
    def __init__(self, preparation: Preparation, writer: RoutedWriter, clock: Clock) -> None:
        self._preparation = preparation
        self._writer = writer
        self._clock = clock

    async def publish(self, request: pb.PublishRequest, call: Call) -> pb.PublishResponse:
        options = convert.publish_options(request.options) if request.HasField("options") else _DEFAULT_OPTIONS
        token = decode_token(request.producer_token) if request.producer_token else None
        prepared = await self._preparation.prepare(
            request.topic, request.records, options, token, call, alone=token is None, repeatable=token is not None
        )
        if not prepared.records:
            raise prepared.refused[0]
        deadline = self._clock.monotonic() + within(options.timeout_ms, call)
        outcomes = await write_all(self._writer, prepared, deadline)
        check_outcomes(prepared, outcomes, whole=token is not None)
        return pb.PublishResponse(
            results=results_of(prepared, outcomes),
            producer_token=b"" if prepared.token is None else prepared.token.encode(),
        )


async def write_all(
    writer: RoutedWriter, prepared: PreparedPublish, deadline: float
) -> list[WriteResult | StreamlogError]:
    """The outcome of each batch. Partitions are written concurrently, the batches of one partition in order. Those with
    records that the topic's settings refuse come first: where one of these fails, the others are not written.
    """
    if len(prepared.batches) == 1:  # of most calls; without a task of its own
        (batch,) = prepared.batches
        try:
            return [await writer.write(batch.write, prepared.acks, deadline)]
        except StreamlogError as error:
            return [prepared.reason(batch, error)]
    outcomes: dict[int, WriteResult | StreamlogError] = {}

    async def one_partition(numbers: Sequence[int], failed: StreamlogError | None) -> None:
        for number in numbers:
            batch = prepared.batches[number]
            if failed is None:
                try:
                    outcomes[number] = await writer.write(batch.write, prepared.acks, deadline)
                    continue
                except StreamlogError as error:
                    failed = prepared.reason(batch, error)
            outcomes[number] = failed

    by_partition: dict[int, list[int]] = {}
    for number, batch in enumerate(prepared.batches):
        by_partition.setdefault(batch.write.partition, []).append(number)
    doubted = prepared.doubted_partitions()
    failed = None
    if doubted:
        async with asyncio.TaskGroup() as tasks:
            for partition in doubted:
                tasks.create_task(counted(one_partition(by_partition.pop(partition), None)))
        failed = next((one for one in outcomes.values() if isinstance(one, StreamlogError)), None)
    async with asyncio.TaskGroup() as tasks:
        for numbers in by_partition.values():
            tasks.create_task(counted(one_partition(numbers, failed)))
    return [outcomes[number] for number in range(len(prepared.batches))]


def check_outcomes(prepared: PreparedPublish, outcomes: Sequence[WriteResult | StreamlogError], *, whole: bool) -> None:
    """Raise the error of the first record if none was written; with `whole`, that of the first that was not. One whose
    outcome is unknown comes first: the call must not say that nothing was written.
    """
    errors = [outcome for outcome in outcomes if isinstance(outcome, StreamlogError)]
    if not errors or (not whole and len(errors) < len(outcomes)):
        return
    unknown = next((error for error in errors if isinstance(error, OutcomeUnknownError)), None)
    error = unknown or prepared.refused.get(0) or errors[0]
    if isinstance(error, _SETTINGS_REFUSALS) and len(errors) < len(outcomes):
        # A client that leaves out the refused record must not go on with its token.
        message = (
            f"{error}; other records of the request are written: with this producer_token only send it again "
            "unchanged, once the topic's settings accept it; with another one leave out the records that are written"
        )
        raise OutcomeUnknownError.restored(message, error.details).permanent() from error
    raise error


def results_of(prepared: PreparedPublish, outcomes: Sequence[WriteResult | StreamlogError]) -> list[pb.PublishResult]:
    """In the order of the records."""
    results: dict[int, pb.PublishResult] = {}
    for index, error in prepared.refused.items():
        briefly = len(results) >= _WHOLE_ERRORS_MAX
        results[index] = convert.not_published(0, NO_TIMESTAMP, error, briefly=briefly)
    for batch, outcome in zip(prepared.batches, outcomes, strict=True):
        partition = batch.write.partition
        for place, row in enumerate(batch.rows):
            timestamp_ms = prepared.records[row].timestamp_ms
            if isinstance(outcome, StreamlogError):
                results[row] = convert.not_published(partition, timestamp_ms, outcome, briefly=place > 0)
                continue
            offset = NO_OFFSET if outcome.base_offset == NO_OFFSET else Offset(outcome.base_offset + place)
            if outcome.log_append_time_ms != NO_TIMESTAMP:
                timestamp_ms = outcome.log_append_time_ms
            results[row] = convert.published(partition, offset, timestamp_ms)
    return [results[index] for index in range(len(results))]
