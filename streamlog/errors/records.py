"""Records, batches and files whose bytes cannot be accepted, or cannot be trusted."""

from __future__ import annotations

from typing import Any

from streamlog.errors.base import StreamlogError


class CorruptMessageError(StreamlogError):
    """A record batch or message that does not match its checksum or its own lengths.

    `path` and `position` (bytes from the start of the file) are set where the bytes come from a file.
    """

    code = "CORRUPT_MESSAGE"
    retriable = True

    def __init__(self, reason: str, *, path: str | None = None, position: int | None = None, **details: object) -> None:
        where = "" if path is None else f"{path}: "
        at = "" if position is None else f"position {position}: "
        super().__init__(f"{where}{at}{reason}", reason=reason, path=path, position=position, **details)

    @property
    def reason(self) -> str:
        return self._text("reason") or self.message

    @property
    def path(self) -> str | None:
        return self._text("path")

    @property
    def position(self) -> int | None:
        return self._number("position")


class InvalidRecordError(StreamlogError):
    code = "INVALID_RECORD"


class CorruptBatchError(StreamlogError):
    """A stored batch that no reader can decode. Reading it again does not help: continue at `next_offset`.

    Details: `topic`, `partition`, `offset` (of the batch), `next_offset` (after it; missing where unknown), `reason`.
    """

    code = "CORRUPT_BATCH"

    @property
    def topic(self) -> str:
        return self._text("topic") or ""

    @property
    def partition(self) -> int:
        return self._number("partition") or 0

    @property
    def offset(self) -> int:
        return self._number("offset") or 0

    @property
    def next_offset(self) -> int | None:
        return self._number("next_offset")

    @property
    def reason(self) -> str:
        return self._text("reason") or self.message


class SerializationError(StreamlogError):
    """A key or value that the client cannot turn into bytes: the record is refused. Details: `topic`, `field` (key,
    value).
    """

    code = "SERIALIZATION_FAILED"


class DeserializationError(StreamlogError):
    """A record whose key or value the client cannot deserialize. Continue at `offset` + 1; where `retriable` is set (a
    schema registry does not answer, or refuses the client) poll again.

    Details: `topic`, `partition`, `offset`, `field` (key, value), `reason`.
    """

    code = "DESERIALIZATION_FAILED"
    record: Any = None  # the ConsumerRecord with key and value as bytes

    @property
    def topic(self) -> str:
        return self._text("topic") or ""

    @property
    def partition(self) -> int:
        return self._number("partition") or 0

    @property
    def offset(self) -> int:
        return self._number("offset") or 0


class InvalidTimestampError(StreamlogError):
    """Details: `field` (the setting), `limit` (ms)."""

    code = "INVALID_TIMESTAMP"


class MessageTooLargeError(StreamlogError):
    code = "MESSAGE_TOO_LARGE"


class UnsupportedCompressionError(StreamlogError):
    code = "UNSUPPORTED_COMPRESSION_TYPE"
