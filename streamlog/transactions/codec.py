"""Records of `__transaction_state` as bytes: Kafka's schemas (TransactionLogKey 0, TransactionLogValue 1).

A time-out of -1 (two-phase commit) is written as INT32_MAX, as in Kafka. What Kafka does not have is in tagged fields
of our own, which Kafka's tools skip: the next transaction, open while markers are written, and two epochs.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.model import (
    INT32_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from streamlog.records.message_reader import MessageReader
from streamlog.records.message_writer import MessageWriter
from streamlog.transactions.records import NO_TIME, TWO_PHASE, TransactionRecord, TransactionStatus, TransactionValue

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1  # flexible; 0 is not, and is read
_PREVIOUS_ID_TAG: Final = 0
_CLIENT_VERSION_TAG: Final = 2
_NEXT_TAG: Final = 10_000  # started_ms, topics
_FORMER_TAG: Final = 10_001  # int8: 1 committed, 0 aborted
_KEPT_TAG: Final = 10_002  # int16
_CLAIMED_TAG: Final = 10_003  # int16
_CLIENT_VERSION: Final = (2).to_bytes(2, "big")  # every transaction raises the epoch (KIP-890)


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    key = MessageWriter()
    key.int16(_KEY_VERSION)
    key.string(record.transactional_id)
    return key.content(), None if record.value is None else _encode_value(record.value)


def _encode_value(value: TransactionValue) -> bytes:
    writer = MessageWriter(flexible=True)
    writer.int16(_VALUE_VERSION)
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(INT32_MAX if value.timeout_ms == TWO_PHASE else value.timeout_ms)
    writer.int8(value.state)
    _write_topics(writer, value.partitions)
    writer.int64(value.updated_ms)
    writer.int64(value.started_ms)
    tagged = [(_CLIENT_VERSION_TAG, _CLIENT_VERSION)]
    if value.previous_producer_id != NO_PRODUCER_ID:
        tagged.insert(0, (_PREVIOUS_ID_TAG, value.previous_producer_id.to_bytes(8, "big", signed=True)))
    if value.has_next:
        tagged.append((_NEXT_TAG, _encode_next(value)))
    if value.former_committed is not None:
        tagged.append((_FORMER_TAG, bytes([value.former_committed])))
    for tag, epoch in ((_KEPT_TAG, value.kept_epoch), (_CLAIMED_TAG, value.claimed_epoch)):
        if epoch != NO_PRODUCER_EPOCH:
            tagged.append((tag, epoch.to_bytes(2, "big")))
    writer.tagged_fields(tagged)
    return writer.content()


def _encode_next(value: TransactionValue) -> bytes:
    writer = MessageWriter(flexible=True)
    writer.int64(value.next_started_ms)
    _write_topics(writer, value.next_partitions)
    return writer.content()


def _write_topics(writer: MessageWriter, partitions: frozenset[TopicPartition]) -> None:
    topics = [(topic, list(some)) for topic, some in groupby(sorted(partitions), lambda p: p.topic)]

    def topic_of(entry: tuple[str, list[TopicPartition]]) -> None:
        topic, some = entry
        writer.string(topic)
        writer.array(some, lambda p: writer.int32(p.partition))
        writer.tagged_fields()

    writer.array(topics, topic_of)


def decode(key: bytes | None, value: bytes | None) -> TransactionRecord:
    """Raises UnsupportedVersionError, InvalidRecordError."""
    if key is None:
        raise InvalidRecordError("a record of __transaction_state must have a key")
    reader = MessageReader(key)
    version = reader.int16()
    if version != _KEY_VERSION:
        raise UnsupportedVersionError(
            f"unknown record type {version} in __transaction_state; a newer release wrote it",
            field="type",
            version=version,
        )
    transactional_id = reader.string()
    return TransactionRecord(transactional_id, None if value is None else _decode_value(MessageReader(value)))


def _decode_value(reader: MessageReader) -> TransactionValue:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise UnsupportedVersionError(
            f"unknown version {version} of a record of __transaction_state; a newer release wrote it",
            field="version",
            version=version,
        )
    reader.flexible = version == _VALUE_VERSION
    producer_id, producer_epoch = ProducerId(reader.int64()), ProducerEpoch(reader.int16())
    timeout_ms, state = reader.int32(), reader.int8()
    if state not in TransactionStatus.__members__.values():
        raise InvalidRecordError(f"invalid transaction state {state}")
    partitions = _read_topics(reader)
    updated_ms, started_ms = reader.int64(), reader.int64()
    previous, former_committed = NO_PRODUCER_ID, None
    kept_epoch = claimed_epoch = NO_PRODUCER_EPOCH
    next_started_ms, next_partitions = NO_TIME, frozenset[TopicPartition]()
    for tag, content in reader.tagged_fields():
        if tag == _PREVIOUS_ID_TAG:
            previous = ProducerId(content.int64())
        elif tag == _NEXT_TAG:
            content.flexible = True
            next_started_ms, next_partitions = content.int64(), _read_topics(content)
        elif tag == _FORMER_TAG:
            former_committed = content.int8() != 0
        elif tag == _KEPT_TAG:
            kept_epoch = ProducerEpoch(content.int16())
        elif tag == _CLAIMED_TAG:
            claimed_epoch = ProducerEpoch(content.int16())
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=previous,
        timeout_ms=TWO_PHASE if timeout_ms == INT32_MAX else timeout_ms,
        state=TransactionStatus(state),
        partitions=partitions,
        started_ms=started_ms,
        updated_ms=updated_ms,
        next_partitions=next_partitions,
        next_started_ms=next_started_ms,
        former_committed=former_committed,
        kept_epoch=kept_epoch,
        claimed_epoch=claimed_epoch,
    )


def _read_topics(reader: MessageReader) -> frozenset[TopicPartition]:
    def topic() -> list[TopicPartition]:
        name = reader.string()
        indexes = reader.array(reader.int32)
        reader.skip_tagged_fields()
        return [TopicPartition(name, PartitionId(index)) for index in indexes]

    return frozenset(partition for some in reader.array(topic) for partition in some)
