"""A consumer's records, with keys and values deserialized; and those that cannot be.

    polled records --Decoding--> found: deserialized records
                        '------> DeserializationError of the next one
                                   fail: raised when those before it were returned, and again until it is sought beyond
                                   skip: reported, and left out

What was taken and not returned is put back by the consumer, so that the position is that of the record at fault:
`seek(partition, error.offset + 1)` steps over it. Batches (`poll_batch`, `batches`) are not deserialized.

An error whose `retriable` is set, as of a registry that does not answer or refuses the client, says nothing about the
record: it is raised also with skip, and the next poll tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.log_lines import warn
from streamlog.client.serialization.formats import Deserialize, GivenDeserializer, deserializer_of
from streamlog.client.serialization.pending import LOADS_MAX, Pending
from streamlog.errors import DeserializationError, InvalidConfigError, SchemaRegistryError, StreamlogError
from streamlog.model import Offset, PartitionId, TopicPartition

_log: Final = logging.getLogger(__name__)

OnError: TypeAlias = Literal["fail", "skip"] | Callable[[DeserializationError], object]
"""At a record that cannot be deserialized. A function is called with the error, then the record is skipped."""


class RecordDeserializers:
    def __init__(self, key: Deserialize | None, value: Deserialize | None, on_error: OnError) -> None:
        self._key: Final = key
        self._value: Final = value
        self._on_error: Final = on_error
        self.skipped_count = 0

    @classmethod
    def of(
        cls, key: GivenDeserializer | None, value: GivenDeserializer | None, on_error: OnError
    ) -> RecordDeserializers | None:
        """None: both are bytes. InvalidConfigError."""
        if on_error not in ("fail", "skip") and not callable(on_error):
            raise InvalidConfigError(
                f"on_deserialization_error={on_error!r}: must be 'fail', 'skip', or a function of the error",
                field="on_deserialization_error",
            )
        of_key, of_value = deserializer_of(key, "key_deserializer"), deserializer_of(value, "value_deserializer")
        return None if of_key is None and of_value is None else cls(of_key, of_value, on_error)

    def decode(self, record: ConsumerRecord) -> ConsumerRecord:
        """DeserializationError, Pending."""
        key, value = record.key, record.value
        if key is not None and self._key is not None:
            key = _decoded(self._key, record, "key", key)
        if value is not None and self._value is not None:
            value = _decoded(self._value, record, "value", value)
        return record._replace(key=key, value=value)

    def skips(self, error: DeserializationError) -> bool:
        """Whether the record is left out; if not, the caller raises the error. Raises what the user's function does."""
        if self._on_error == "fail" or error.retriable:
            return False
        if self._on_error == "skip":
            warn(_log, f"{error.message}; it is skipped (on_deserialization_error='skip')")
        else:
            self._on_error(error)
        self.skipped_count += 1
        return True


class Decoding:
    """Of some polled records."""

    def __init__(self, deserializers: RecordDeserializers, records: Sequence[ConsumerRecord]) -> None:
        self._deserializers = deserializers
        self._records = records
        self._at = 0
        self._loads = 0  # for the next record
        self._unloaded: DeserializationError | None = None  # what the next record needs could not be loaded
        self.found: list[ConsumerRecord] = []

    def run(self) -> None:
        """As far as it goes without loading anything. DeserializationError, Pending; may be called again."""
        while self._at < len(self._records):
            try:
                self._next()
            except DeserializationError as error:
                if not self._deserializers.skips(error):
                    raise
            self._at += 1
            self._loads = 0

    def _next(self) -> None:
        if self._unloaded is not None:
            error, self._unloaded = self._unloaded, None
            raise error
        record = self._records[self._at]
        try:
            self.found.append(self._deserializers.decode(record))
        except Pending as pending:
            self._loads += 1
            if self._loads > LOADS_MAX:
                raise failed(record, pending.field, f"it needed more than {LOADS_MAX} loads") from None
            raise

    def load(self, pending: Pending) -> None:
        """Waits, in any thread. Where it fails, so does the record that needs it, when it is its turn in `run`."""
        try:
            pending.load()
        except Exception as error:  # noqa: BLE001  raised by `run`
            self._unloaded = failed(self._records[self._at], pending.field, error)
            self._unloaded.__cause__ = error

    def finish(self) -> None:
        """All of them, in a thread that may wait. DeserializationError."""
        while True:
            try:
                return self.run()
            except Pending as pending:
                self.load(pending)

    async def finish_async(self) -> None:
        """As `finish`; another thread waits."""
        while True:
            try:
                return self.run()
            except Pending as pending:
                await asyncio.to_thread(self.load, pending)  # sim: only of clients; calls what the user gave

    def rest(self, *, whole: bool) -> Mapping[TopicPartition, Offset]:
        """The first record of each partition that is not returned. `whole`: none of them is."""
        firsts: dict[TopicPartition, Offset] = {}
        for record in self._records[0 if whole else self._at :]:
            firsts.setdefault(TopicPartition(record.topic, PartitionId(record.partition)), record.offset)
        return firsts


def _decoded(deserialize: Deserialize, record: ConsumerRecord, what: str, data: bytes) -> Any:
    try:
        return deserialize(record.topic, data)
    except Pending as pending:
        pending.field = what
        raise
    except Exception as error:
        raise failed(record, what, error) from error


def failed(record: ConsumerRecord, what: str, why: Exception | str) -> DeserializationError:
    if isinstance(why, StreamlogError):
        reason = why.message
    else:
        reason = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
    refused = isinstance(why, SchemaRegistryError)
    retriable = refused or (isinstance(why, StreamlogError) and why.retriable)
    remedies = ["the next poll tries again"] if retriable else []
    if refused or not retriable:
        remedies.append(f"to step over it, seek to offset {record.offset + 1}")
    error = DeserializationError(
        f"{record.topic}-{record.partition}: the {what} of the record at offset {record.offset} cannot be deserialized:"
        f" {reason}; {'; '.join(remedies)}",
        topic=record.topic,
        partition=record.partition,
        offset=int(record.offset),
        field=what,
        reason=reason,
    )
    error.retriable = retriable
    error.record = record
    return error
