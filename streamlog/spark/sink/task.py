"""The sink on an executor: writes the rows of one task in one transaction, which the driver ends.

    Arrow batches --by topic--> Producer in a transaction --prepare--> TaskTransaction, sent to the driver
                                  |-- an error: aborted here

A task without rows opens none. The driver aborts the open transaction of a killed task (`commit`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streamlog.client import Producer
from streamlog.config.settings.client_settings import PRODUCER
from streamlog.errors import StreamlogError
from streamlog.spark.failures import OptionError, StreamlogSparkError
from streamlog.spark.options import settings_for
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.sink.state import TaskTransaction

if TYPE_CHECKING:
    from streamlog.records import Headers

_log = logging.getLogger(__name__)

# Allowed types of columns, by name; the first is the type written, others are converted to it.
SINK_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
# Default timeout of a transaction without two-phase commit: the longest that nodes allow by default.
_TIMEOUT_MS: Final = 900_000
# Rows that are converted to Python objects at a time.
_SLICE_ROWS: Final = 16_384


class SinkRules(Struct, frozen=True, kw_only=True):
    """The options of the sink; sent to every task."""

    client: Mapping[str, str]
    topic: str | None  # None: from column topic
    timestamps: bool


class TaskName(Struct, frozen=True, kw_only=True):
    transactional_id: str
    two_phase: bool


def check_schema(fields: Sequence[tuple[str, str]], topic: str | None) -> None:
    """Of (name, type) pairs. StreamlogSparkError, OptionError. Other columns are ignored."""
    kinds = dict(fields)
    if "value" not in kinds:
        raise StreamlogSparkError("schema: column value is missing; add one, such as to_json(struct(*)) AS value")
    for name, allowed in SINK_COLUMNS.items():
        if name in kinds and kinds[name] not in allowed:
            raise StreamlogSparkError(f"schema: column {name} is {kinds[name]}, must be {' or '.join(allowed)}")
    if topic is None and "topic" not in kinds:
        raise OptionError("topic", "is missing, and there is no column topic: give one of them")


def write_rows(
    rules: SinkRules, name: TaskName, batches: Iterator[pa.RecordBatch]
) -> tuple[TaskTransaction | None, int]:
    """The prepared transaction, and the number of rows; None: no rows. StreamlogError, StreamlogSparkError."""
    rows = 0
    producer: Producer | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if producer is None:
                producer = _begun(rules, name)
            for start in range(0, batch.num_rows, _SLICE_ROWS):
                _send(rules, producer, batch.slice(start, _SLICE_ROWS))
            rows += batch.num_rows
        if producer is None:
            return None, 0
        prepared = producer.prepare_transaction() if name.two_phase else producer.hand_over_transaction()
        writer = TaskTransaction(name.transactional_id, prepared.producer_id, prepared.producer_epoch)
    except BaseException:
        if producer is not None:
            _give_up(producer)
        raise
    producer.close(timeout_s=0)
    return writer, rows


def _begun(rules: SinkRules, name: TaskName) -> Producer:
    own = {"transactional.id": name.transactional_id, "enable.idempotence": "true", "acks": "all"}
    if name.two_phase:
        own["transaction.two.phase.commit.enable"] = "true"
    else:
        own["transaction.timeout.ms"] = rules.client.get("transaction.timeout.ms", str(_TIMEOUT_MS))
    producer = Producer(
        settings_for(PRODUCER, {"linger.ms": "20", "batch.size": "262144", **rules.client}) | own, thread=loop_thread()
    )
    try:
        producer.begin_transaction()
        if rules.topic is not None:
            producer.partition_count(rules.topic)  # fails at once for an unknown topic
    except BaseException:
        producer.close(timeout_s=0)
        raise
    return producer


def _give_up(producer: Producer) -> None:
    """An error of the abort is only logged, beside the original one; the driver aborts what stays open."""
    try:
        producer.abort_transaction()
    except StreamlogError as error:
        _log.warning("a transaction was not aborted: %s", error)
    producer.close(timeout_s=0)


def _send(rules: SinkRules, producer: Producer, batch: pa.RecordBatch) -> None:
    values, keys = _bytes(batch, "value"), _bytes(batch, "key")
    topics = [rules.topic] * batch.num_rows if rules.topic is not None else _topics(batch)
    partitions = _column(batch, "partition")
    times = _times(batch) if rules.timestamps else None
    headers = _headers(batch)
    if values is not None and rules.topic is not None and partitions is None and times is None and headers is None:
        producer.send_many(rules.topic, values, keys=keys)
        return
    for row in range(batch.num_rows):
        producer.send(
            topics[row],
            None if values is None else values[row],
            key=None if keys is None else keys[row],
            headers=() if headers is None else headers[row],
            partition=None if partitions is None else partitions[row],
            timestamp_ms=None if times is None else times[row],
        )


def _column(batch: pa.RecordBatch, name: str) -> list[Any] | None:
    """None: there is no such column, or all its values are null."""
    at = batch.schema.get_field_index(name)
    if at < 0 or batch.column(at).null_count == batch.num_rows:
        return None
    found: list[Any] = batch.column(at).to_pylist()
    return found


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None] | None:
    at = batch.schema.get_field_index(name)
    if at < 0:
        return None
    column = batch.column(at)
    if column.null_count == batch.num_rows:
        return None if name == "key" else [None] * batch.num_rows
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _topics(batch: pa.RecordBatch) -> list[str]:
    found = _column(batch, "topic")
    if found is None or None in found:
        raise StreamlogSparkError("a row has no topic: its column topic is null, and option topic is not given")
    return found


def _times(batch: pa.RecordBatch) -> list[int | None] | None:
    at = batch.schema.get_field_index("timestamp")
    if at < 0:
        return None
    found: list[int | None] = (
        pc.floor_temporal(batch.column(at), unit="millisecond")
        .cast(pa.timestamp("ms", "UTC"))
        .cast(pa.int64())
        .to_pylist()
    )
    return found


def _headers(batch: pa.RecordBatch) -> list[Headers] | None:
    found = _column(batch, "headers")
    if found is None:
        return None
    return [tuple((one["key"], one["value"]) for one in row or ()) for row in found]
