"""A sink's log: its last decision, in a compacted topic of the cluster. One driver at a time can write to it.

    open --InitProducerId fences every other driver of the sink--> read the last state --> decide --> decide ...

A decision is one record, written in a transaction with the sink's own transactional id. Opening the log ends an open
transaction of another driver, so the state read afterwards is the last one until another driver opens the log; then
`decide` is refused. This is the compare-and-set that the protocol needs.

Reading starts near the end and goes back until it finds a record of the sink, since the last one is rarely far away. It
reads up to the high watermark at the time of opening, not only to the last stable offset: a failed driver of another
sink can hold that back for _DECISION_TIMEOUT_MS.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from streamlog.client import Admin, Consumer, Producer
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.errors import CorruptBatchError, StreamlogError, TopicAlreadyExistsError
from streamlog.model import PartitionId, TopicPartition
from streamlog.spark.failures import StreamlogSparkError, sentence
from streamlog.spark.options import settings_for
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.sink.state import SinkState, driver_id

TOPIC: Final = "__spark_sinks"
PARTITIONS: Final = 16
_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.1"}
# A decision takes milliseconds; that of a driver that fails in the middle is aborted after this.
_DECISION_TIMEOUT_MS: Final = 10_000
# How far back to search first, in records; doubled each time.
_LOOK_BACK: Final = 64
_FETCH_BYTES: Final = 1 << 20
_READ_TIMEOUT_S: Final = 60.0


class UndecidedError(StreamlogSparkError):
    """A decision was refused, since another driver has opened the log; or its outcome is unknown."""


class SinkLog:
    """Of one sink, in one process. After an error it cannot be used: close it, and open another."""

    def __init__(self, sink: str, client: Mapping[str, str]) -> None:
        """StreamlogError."""
        self._sink = sink
        self._client = dict(client)
        create_topic(self._client)
        self.partition = TopicPartition(TOPIC, PartitionId(zlib.crc32(sink.encode()) % PARTITIONS))
        own = {
            "transactional.id": driver_id(sink),
            "transaction.timeout.ms": str(_DECISION_TIMEOUT_MS),
            "linger.ms": "0",
            "compression.type": "none",  # it is compressed already
        }
        self._producer = Producer(settings_for(PRODUCER, self._client) | own, thread=loop_thread())
        try:
            self._producer.begin_transaction()
            self.state = self._read()
        except CorruptBatchError as error:
            self.close()
            raise StreamlogSparkError(
                f"the log of sink {sink}, {self.partition}: the batch at offset {error.offset} cannot be decoded:"
                f" {error.reason}; repair it with 'streamlogctl partition repair {self.partition}': decisions are never"
                " skipped"
            ) from None
        except BaseException:
            self.close()
            raise

    def decide(self, state: SinkState) -> None:
        """Durable when it returns. UndecidedError: if it is durable, the next driver that opens the log finds it."""
        data = state.to_bytes()
        try:
            sent = self._producer.send(TOPIC, data, key=self._sink.encode(), partition=int(self.partition.partition))
            sent.result()
            self._producer.commit_transaction()
        except StreamlogError as error:
            raise UndecidedError(
                f"the decision of sink {self._sink} was refused, or whether it is written is unknown: {sentence(error)}"
            ) from None
        self.state = state
        self._producer.begin_transaction()

    def close(self) -> None:
        """Idempotent. The open transaction is empty."""
        self._producer.close(timeout_s=0)

    def _read(self) -> SinkState:
        with Consumer(self._settings("read_uncommitted"), thread=loop_thread()) as consumer:
            end = consumer.end_offsets([self.partition])[self.partition]
        with Consumer(self._settings("read_committed"), thread=loop_thread()) as consumer:
            first = consumer.beginning_offsets([self.partition])[self.partition]
            back = _LOOK_BACK
            upto: int = end
            while upto > first:
                start = max(first, end - back)
                found = self._last(consumer, start, upto)
                if found is not None:
                    return SinkState.from_bytes(found)
                upto, back = start, 2 * back
        return SinkState()

    def _last(self, consumer: Consumer, start: int, end: int) -> bytes | None:
        """The sink's last record in [start, end); committed ones alone."""
        key, value = self._sink.encode(), None
        at: int = start
        consumer.assign({self.partition: start}, ends={self.partition: end})
        while at < end:
            batches = consumer.poll_batches({self.partition: end}, bytes_max=_FETCH_BYTES, timeout_s=_READ_TIMEOUT_S)
            if not batches:
                break
            for batch in batches:
                for offset, _, record_key, record_value, _ in batch.fields():
                    if offset < end and record_key == key:
                        value = record_value
            at = batches[-1].next_offset
        consumer.assign({})
        return value

    def _settings(self, isolation: str) -> dict[str, str]:
        """Never those by which a reader of the query's topics may leave out a decision."""
        given = settings_for(CONSUMER, self._client) | {"on.corrupt.batch": "fail", "check.crcs": "true"}
        return given | {"isolation.level": isolation, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}


def create_topic(client: Mapping[str, str]) -> None:
    """Unless it exists. StreamlogError."""
    with Admin(settings_for(ADMIN, client), thread=loop_thread()) as admin:
        try:
            admin.create_topic(TOPIC, partitions=PARTITIONS, configs=_CONFIGS)
        except TopicAlreadyExistsError:
            count = len(admin.describe_topic(TOPIC).partitions)
            if count < PARTITIONS:
                raise StreamlogSparkError(
                    f"topic {TOPIC} has {count} partitions instead of {PARTITIONS}: no sink has created it; delete it"
                ) from None
