"""A batch that accumulates records of one partition, and their outcome: an offset or an error.

    open: takes records while size < limit --> closed: limit = -1 --> sealed --> done: each has an offset or an error

A batch is sent as a whole, together with others, or in pieces (`wire_batch`), so outcomes arrive for ranges of it. All
its records share one promise; a RecordFuture is only the batch and an index.

Owned by the producer; `limit`, `size` and the columns are written by the sending thread, under the producer's guard.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple, NoReturn, Protocol, Self, TypeVar

from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.model import NO_OFFSET, NO_TIMESTAMP, Offset, TopicPartition
from streamlog.records import Headers
from streamlog.records.header import HEADER_SIZE

# What a record takes beside key, value and headers, nearly always (`records.builder`).
RECORD_OVERHEAD: Final = 15
CLOSED: Final = -1

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")
_run_start: Final = itemgetter(0)


def _padded(column: list[T] | None, count: int, nothing: T) -> list[T]:
    """With `count` entries: those that it lacks are `nothing`, those beyond are of no record."""
    if column is None:
        return [nothing] * count
    del column[count:]
    column += [nothing] * (count - len(column))
    return column


class RecordMetadata(NamedTuple):
    """The position of a record. With acks=0 it is unknown: the offset is -1."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int  # the record's own, or the leader's where the topic has LogAppendTime


class _Piece(NamedTuple):
    start: int  # index of its first record in the batch
    stop: int
    base_offset: Offset
    log_append_time_ms: int
    error: StreamlogError | None = None  # they were not appended


class _Completion:
    """What waits for the end of a batch, or of a pending record."""

    __slots__ = ("_callbacks", "_waiters")

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._callbacks: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        raise NotImplementedError

    def waiter(self) -> asyncio.Future[None]:
        """A future of the caller's own, set when this is done: cancelling it affects no other."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.done:
            future.set_result(None)
        else:
            self._waiters.append(future)
        return future

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Called on the producer's loop; at once where it is done."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class ProducerBatch(_Completion):
    __slots__ = (
        "_left",
        "_pieces",
        "_rest_error",
        "cuts",
        "error",
        "error_taken",
        "fresh_until_s",
        "headers",
        "keys",
        "limit",
        "loop",
        "opened_at",
        "partition",
        "reserved",
        "runs",
        "size",
        "timestamp",
        "values",
    )

    def __init__(self, partition: TopicPartition, limit: int, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__()
        self.partition = partition
        self.loop = loop
        self.opened_at = 0.0 if loop is None else loop.time()
        self.limit = limit  # of `size`, in bytes; CLOSED: it takes no more
        self.size = HEADER_SIZE  # the encoded batch is about as large, before compression
        self.reserved = 0  # bytes of buffer.memory
        self.cuts = 0  # wire batches that have some of its records, beside one
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None  # None: no record has one
        self.headers: list[Headers] | None = None
        self.timestamp = NO_TIMESTAMP  # of the last record
        self.runs: list[tuple[int, int]] = []  # (index of the first record with this timestamp, timestamp)
        self.fresh_until_s = 0.0  # until then `timestamp` is the present time; 0: it was given by the caller
        self.error: StreamlogError | None = None  # the first, where any record has one
        self.error_taken = False  # it was raised to the user
        self._rest_error: StreamlogError | None = None  # of records in no piece
        self._pieces: list[_Piece] = []
        self._left = -1  # records without an outcome; -1: not sealed yet

    def __len__(self) -> int:
        return len(self.values)

    # Filling. A record counts once its value is appended, which is the last step: keys and headers may be longer than
    # the values where the sending thread was interrupted in between, and shorter where the last records have none.

    def add_keys(self, index: int, keys: Iterable[bytes | None]) -> None:
        """Of the records from the `index`-th on, whose values follow."""
        self.keys = _padded(self.keys, index, None)
        self.keys += keys

    def add_headers(self, index: int, headers: Headers, count: int = 1) -> None:
        """As `add_keys`, the same for `count` records."""
        nothing: Headers = ()
        self.headers = _padded(self.headers, index, nothing)
        self.headers += [headers] * count

    def add_timestamp(self, index: int, timestamp_ms: int) -> None:
        """Of the records from the `index`-th on, whose values follow."""
        self.timestamp = NO_TIMESTAMP
        self.fresh_until_s = 0.0
        if self.runs and self.runs[-1][0] == index:
            self.runs.pop()
        self.runs.append((index, timestamp_ms))
        self.timestamp = timestamp_ms

    def close(self) -> None:
        """It takes no more records."""
        self.limit = CLOSED

    def seal(self) -> None:
        """Its records are counted: from now on they get their outcomes. On the producer's loop; under the guard."""
        if self._left < 0:
            self.limit = CLOSED
            self._left = len(self.values)
            if self._left == 0:  # the sending thread was interrupted
                self._notify()

    # Outcome.

    @property
    def done(self) -> bool:
        return self._left == 0

    def settle(self, start: int, stop: int, base_offset: Offset, log_append_time_ms: int) -> None:
        """The records from `start` up to `stop` were appended."""
        self._settle(_Piece(start, stop, base_offset, log_append_time_ms))

    def settle_failed(self, start: int, stop: int, error: StreamlogError) -> None:
        """They were not appended, permanently."""
        if self._left > 0:
            self.error = self.error or error
            self._settle(_Piece(start, stop, NO_OFFSET, NO_TIMESTAMP, error))

    def _settle(self, piece: _Piece) -> None:
        if self._left <= 0:
            return
        self._pieces.append(piece)
        self._left -= piece.stop - piece.start
        if self._left == 0:
            self._notify()

    def fail(self, error: StreamlogError) -> None:
        """The outcome of all its records that have none yet."""
        self.seal()
        if self._left == 0:
            return
        self._left = 0
        self._rest_error = error
        self.error = self.error or error
        self._notify()

    def outcome(self, index: int) -> RecordMetadata:
        """Of one record of a batch that is done. StreamlogError."""
        piece = next((piece for piece in self._pieces if piece.start <= index < piece.stop), None)
        error = self._rest_error if piece is None else piece.error
        if error is not None:
            self.error_taken = True
            raise error.restored(error.message, error.details) from error
        if piece is None:
            raise asyncio.InvalidStateError("the record is not acknowledged yet")
        offset = NO_OFFSET if piece.base_offset == NO_OFFSET else Offset(piece.base_offset + index - piece.start)
        timestamp_ms = piece.log_append_time_ms
        if timestamp_ms < 0:
            timestamp_ms = self.runs[bisect_right(self.runs, index, key=_run_start) - 1][1]
        return RecordMetadata(self.partition.topic, self.partition.partition, offset, timestamp_ms)

    def failure(self, index: int) -> Exception | None:
        """The error of one record of a batch that is done; it does not count as raised to the user."""
        piece = next((piece for piece in self._pieces if piece.start <= index < piece.stop), None)
        return self._rest_error if piece is None else piece.error

    def take_error(self) -> None:
        """Raise the first error, where there is one."""
        if self.error is not None:
            self.error_taken = True
            raise self.error.restored(self.error.message, self.error.details) from self.error

    def ranges(self, start: int, stop: int) -> list[tuple[Offset, int]]:
        """(base offset, count) of the ranges in which the records from `start` up to `stop` stand. StreamlogError."""
        found = []
        while start < stop:
            first = self.outcome(start)
            piece = next(piece for piece in self._pieces if piece.start <= start < piece.stop)
            end = min(stop, piece.stop)
            found.append((first.offset, end - start))
            start = end
        return found

    def release(self) -> None:
        """A wire batch that has some of its records, or all, is not sent again. After the last one drop the records, as
        futures may keep the batch alive.
        """
        self.cuts -= 1
        if self.cuts < 0:
            self.values = []
            self.keys = self.headers = None


class PendingRecord(_Completion):
    """A record that was sent before its topic was known; it is added to a batch once it is."""

    __slots__ = ("_error", "_index", "_taken", "batch", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.batch: ProducerBatch | None = None
        self._index = 0
        self._error: Exception | None = None
        self._taken = False

    @property
    def done(self) -> bool:
        return self._error is not None or (self.batch is not None and self.batch.done)

    @property
    def error(self) -> Exception | None:
        return self._error if self.batch is None else self.batch.error

    @property
    def error_taken(self) -> bool:
        return self._taken if self.batch is None else self.batch.error_taken

    def located(self, batch: ProducerBatch, index: int) -> None:
        self.batch, self._index = batch, index
        batch.add_done_callback(self._notify)

    def fail(self, error: Exception) -> None:
        """`error`: a StreamlogError, or what the user's partitioner has raised."""
        self._error = error
        self._notify()

    def take_error(self) -> None:
        if self.batch is not None:
            self.batch.take_error()
        elif self._error is not None:
            self._raise(self._error)

    def failure(self, index: int) -> Exception | None:
        return self._error if self.batch is None else self.batch.failure(self._index)

    def outcome(self, index: int) -> RecordMetadata:
        if self._error is not None:
            self._raise(self._error)
        if self.batch is None:
            raise asyncio.InvalidStateError("the record is not acknowledged yet")
        return self.batch.outcome(self._index)

    def _raise(self, error: Exception) -> NoReturn:
        self._taken = True
        if isinstance(error, StreamlogError):
            raise error.restored(error.message, error.details) from error
        raise error


def as_streamlog_error(error: Exception) -> StreamlogError:
    """What a partitioner raises may be anything."""
    if isinstance(error, StreamlogError):
        return error
    return InvalidRequestError(f"the partitioner raised {type(error).__name__}: {error}", field="partition")


class Promise(Protocol):
    """What a RecordFuture refers to: ProducerBatch or PendingRecord."""

    @property
    def done(self) -> bool: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The producer's."""
        ...

    def outcome(self, index: int) -> RecordMetadata: ...

    def failure(self, index: int) -> Exception | None: ...

    def waiter(self) -> asyncio.Future[None]: ...

    def add_done_callback(self, callback: Callable[[], None]) -> None: ...


def call_back(callback: Callable[[A], object], argument: A) -> None:
    """A callback of the user's: what it raises is logged, as concurrent.futures does. The outcome of other records, and
    the producer's work, follow on the same call stack.
    """
    try:
        callback(argument)
    except Exception:  # noqa: BLE001  of any kind; logged
        _log.exception("the done callback %r of a sent record failed", callback)


def _not_done() -> asyncio.InvalidStateError:
    return asyncio.InvalidStateError("the record is not acknowledged yet: await it")


class RecordFuture:
    """The outcome of one record: `await` it for its RecordMetadata. StreamlogError where it was not written.

    One is made for each record, so it is only a reference, and has no constructor: that call would cost more than the
    rest.
    """

    __slots__ = ("index", "promise")

    promise: Promise  # of its batch
    index: int  # in the batch

    def done(self) -> bool:
        return self.promise.done

    def result(self) -> RecordMetadata:
        """Of a future that is done; asyncio.InvalidStateError where it is not. StreamlogError."""
        if not self.promise.done:
            raise _not_done()
        return self.promise.outcome(self.index)

    def exception(self) -> Exception | None:
        """Why the record was not written, as `result` would raise it; None: it was. asyncio.InvalidStateError where it
        is not done.
        """
        if not self.promise.done:
            raise _not_done()
        return self._failure()

    def _failure(self) -> Exception | None:
        try:
            self.promise.outcome(self.index)
        except Exception as error:  # noqa: BLE001  a StreamlogError, or what the user's partitioner has raised
            return error.with_traceback(None)
        return None

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Called on the producer's loop; at once where it is done. What it raises is logged, and changes nothing."""
        self.promise.add_done_callback(partial(call_back, callback, self))

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if not self.promise.done:
            yield from self.promise.waiter()
        return self.promise.outcome(self.index)


class AppendedRange(NamedTuple):
    """Records with consecutive offsets."""

    partition: int
    base_offset: Offset  # -1 with acks=0
    record_count: int


class ManyFuture:
    """The outcome of `send_many`: `await` it. StreamlogError of the first part that was not written."""

    def __init__(self, parts: list[tuple[ProducerBatch, int, int]]) -> None:
        self._parts = parts  # (batch, from, up to), in the order in which they were sent

    def done(self) -> bool:
        return all(batch.done for batch, _, _ in self._parts)

    def add_done_callback(self, callback: Callable[[Exception | None], object]) -> None:
        """Called on the producer's loop once all are done, at once where they are, with the first error. As that of
        RecordFuture.
        """
        left = len(self._parts)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                call_back(callback, next((batch.error for batch, _, _ in self._parts if batch.error is not None), None))

        for batch, _, _ in self._parts:
            batch.add_done_callback(one_done)
        if not self._parts:
            one_done()

    def exception(self) -> Exception | None:
        """As that of RecordFuture, of the first part that was not written."""
        try:
            self.result()
        except StreamlogError as error:
            return error.with_traceback(None)
        return None

    def result(self) -> list[AppendedRange]:
        """Of a future that is done; asyncio.InvalidStateError where it is not. StreamlogError."""
        if not self.done():
            raise asyncio.InvalidStateError("not all records are acknowledged yet: await it")
        return self._ranges(self._parts)

    def written(self) -> list[AppendedRange]:
        """Of the parts that are acknowledged by now, whatever has become of the others."""
        return self._ranges([part for part in self._parts if part[0].done and part[0].error is None])

    def _ranges(self, parts: list[tuple[ProducerBatch, int, int]]) -> list[AppendedRange]:
        return [
            AppendedRange(batch.partition.partition, offset, count)
            for batch, start, stop in parts
            for offset, count in batch.ranges(start, stop)
        ]

    async def wait(self) -> None:
        """Until all are done, whatever their outcome."""
        for batch, _, _ in self._parts:
            if not batch.done:
                await batch.waiter()

    def __await__(self) -> Generator[object, None, list[AppendedRange]]:
        yield from self.wait().__await__()
        return self.result()
