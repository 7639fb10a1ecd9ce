"""Items of a dump as the lines that Kafka's DumpLogSegments is known for. Pure.

Records come as one line each, in the form of Kafka 2; batches, producers and aborted transactions as Kafka 4 prints
them; checkpoints, which Kafka's tool does not know, in the same manner. Bytes are shown as UTF-8, with U+FFFD for
what is none: `--output json` keeps them exactly.
"""

from __future__ import annotations

import json
from typing import assert_never

from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.groups import offsets_topic
from streamlog.storage.dump import (
    AbortedTransaction,
    Batch,
    ControlMarker,
    Damage,
    EmptyIndex,
    EpochStartOffset,
    Item,
    LogRecord,
    LogStart,
    OffsetIndexEntry,
    PartitionOffset,
    ProducerEntry,
    SanityPassed,
    TimeIndexEntry,
)


def heading(path: str) -> str:
    return f"Dumping {path}"


def damage_line(path: str, damage: Damage) -> str:
    """For standard error, in every output format."""
    return f"{path}: position {damage.position}: {damage.reason}"


def line(path: str, item: Item, *, with_data: bool, offsets: bool) -> str | None:
    """One line without its end, or None where the item has none. `with_data`: keys and values of records too;
    `offsets`: decode them as records of `__consumer_offsets`.
    """
    match item:
        case LogRecord():
            return _record(item, with_data=with_data, offsets=offsets)
        case Batch():
            return _batch(item)
        case OffsetIndexEntry():
            return f"offset: {item.offset} position: {item.position}"
        case TimeIndexEntry():
            return f"timestamp: {item.timestamp_ms} offset: {item.offset}"
        case LogStart():
            return None if item.start_offset is None else f"Starting offset: {item.start_offset}"
        case EmptyIndex():
            return f"{path} is empty."
        case SanityPassed():
            return f"{path} passed sanity check."
        case AbortedTransaction():
            return (
                f"version: {item.version} producerId: {item.producer_id} firstOffset: {item.first_offset} "
                f"lastOffset: {item.last_offset} lastStableOffset: {item.last_stable_offset}"
            )
        case ProducerEntry():
            return _producer(item)
        case PartitionOffset():
            return f"topic: {item.topic} partition: {item.partition} offset: {item.offset}"
        case EpochStartOffset():
            return f"epoch: {item.epoch} startOffset: {item.start_offset}"
        case Damage():
            return None
        case _:
            assert_never(item)


def _record(record: LogRecord, *, with_data: bool, offsets: bool) -> str:
    batch = record.batch
    text = (
        f"offset: {record.offset} position: {batch.position} {batch.timestamp_type}: {record.timestamp_ms} "
        f"isvalid: {_boolean(batch.is_valid)} keysize: {_size(record.key)} valuesize: {_size(record.value)} "
        f"magic: {batch.magic} compresscodec: {batch.codec.upper()}"
    )
    if batch.magic < 2:
        text += f" crc: {record.crc}"
    else:
        keys = ",".join(_printable(name) for name, _ in record.headers)
        text += (
            f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} sequence: {record.sequence} "
            f"isTransactional: {_boolean(batch.is_transactional)} headerKeys: [{keys}]"
        )
    if record.control is not None:
        return text + _control(record.control)
    return text + _data(record, offsets=offsets) if with_data else text


def _control(marker: ControlMarker) -> str:
    if marker.coordinator_epoch is not None:
        return f" endTxnMarker: {marker.name} coordinatorEpoch: {marker.coordinator_epoch}"
    return f" controlType: {marker.name}({marker.type_id})"


def _data(record: LogRecord, *, offsets: bool) -> str:
    if offsets:
        return _offsets_data(record)
    key = "" if record.key is None else f" key: {_text(record.key)}"
    return key if record.value is None else f"{key} payload: {_text(record.value)}"


def _offsets_data(record: LogRecord) -> str:
    try:
        decoded = offsets_topic.decode(record.key, record.value)
    except UnsupportedVersionError as e:
        return f" key: {e} at offset {record.offset}, skipping."
    except InvalidRecordError as e:
        return f" key: Error at offset {record.offset}, skipping. {e}"
    value = "<DELETE>" if decoded.value is None else _compact(decoded.value)
    return f" key: {_compact(decoded.key)} payload: {value}"


def _compact(value: offsets_topic.Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _batch(batch: Batch) -> str:
    if batch.magic < 2:
        text = f"offset: {batch.last_offset}"
    else:
        text = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {_boolean(batch.is_transactional)} "
            f"isControl: {_boolean(batch.is_control)} deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        )
    return (
        f"{text} position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp_ms} "
        f"size: {batch.size_bytes} magic: {batch.magic} compresscodec: {batch.codec} crc: {batch.crc} "
        f"isvalid: {_boolean(batch.is_valid)}"
    )


def _producer(entry: ProducerEntry) -> str:
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {_optional(entry.transaction_start)} "
        f"lastTimestamp: {entry.last_timestamp_ms}"
    )
    if entry.last_sequence is None:
        return text
    return (
        f"{text} firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.last_timestamp_ms}"
    )


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _optional(value: int | None) -> str:
    """As Java prints an OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _printable(name: str) -> str:
    """A header's key may hold lone surrogates for bytes that are no UTF-8 (`records.record`)."""
    return _text(name.encode("utf-8", errors="surrogateescape"))
