"""The consumer for programs without an event loop.

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.offset, record.value)

A thin layer: AsyncConsumer does the work on a thread of its own, so heartbeats continue however long a handler takes. A
loop over the consumer takes max.poll.records at a time; those that it has taken and not returned yet are kept here,
count as not read, and are the next that `poll` returns. Listeners are called in the thread that polls.

The loop runs inside the interpreter, over the iterator of the list that was taken (`_Taken`): which record it is at
follows from how many the iterator has left.

Ctrl-C loses no records: what an interrupted call has taken is put back, and read again.

One thread at a time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import length_hint
from time import monotonic
from types import TracebackType
from typing import Any, Self

from streamlog.client.connection.sync_loop import Begun, LoopThread, blocking, on_loop
from streamlog.client.consumer.async_consumer import CLOSE_S, AsyncConsumer
from streamlog.client.consumer.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.consumer.offset_finder import checked_count
from streamlog.client.consumer.start_positions import Partition, Start, as_partition
from streamlog.client.groups.consumer_group import ToCommit
from streamlog.client.groups.rebalancing import Listener
from streamlog.client.producer.given_records import check_function, check_timeout
from streamlog.client.serialization.formats import GivenDeserializer
from streamlog.client.serialization.record_deserializers import Decoding, OnError, RecordDeserializers
from streamlog.client.settings import merged
from streamlog.errors import DeserializationError
from streamlog.model import Offset, TopicPartition


class _Taken:
    """Records that were taken for a loop, and which of them it has returned."""

    def __init__(self, records: list[ConsumerRecord]) -> None:
        self._records = records
        self.left = iter(records)
        self._polled = len(records)  # how many were left when a poll returned the last one

    @property
    def ahead(self) -> list[ConsumerRecord]:
        """Those not returned yet."""
        left = length_hint(self.left)
        return self._records[-left:] if left else []

    @property
    def at(self) -> ConsumerRecord | None:
        """What the loop is at; None: it has not begun, or a poll came after it."""
        left = length_hint(self.left)
        return None if left == self._polled else self._records[-left - 1]

    def poll(self, count: int | None) -> list[ConsumerRecord]:
        some = list(islice(self.left, None if count is None else max(0, count)))
        self._polled = length_hint(self.left)
        return some

    def give_back(self) -> None:
        """Leave out those ahead, also for the loop."""
        at = self.at
        self._records[:] = () if at is None else (at,)
        self._polled = 0 if at is None else 1


class Consumer:
    """Settings as for AsyncConsumer. Open as soon as it is made; `close` it, or use `with`."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: GivenDeserializer | None = None,
        value_deserializer: GivenDeserializer | None = None,
        on_deserialization_error: OnError = "fail",
        thread: LoopThread | None = None,
        **settings: object,
    ) -> None:
        """`thread`: a shared one; None: its own. The deserializers are called in the thread that polls."""
        self._deserializers = RecordDeserializers.of(key_deserializer, value_deserializer, on_deserialization_error)
        self._client = AsyncConsumer(merged(config, settings))
        self._thread = thread or LoopThread("streamlog-consumer")
        try:
            self._thread.call(self._client.start())
        except BaseException:
            self._thread.close()
            raise
        self._taken = _Taken([])
        self._ending: int | None = None  # the thread that closes it
        self._here = threading.local()  # `listens`: this thread is in a listener
        self._closed = self._client._close_with(self, self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._client.__aexit__(kind, error, trace), CLOSE_S)

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """As of AsyncConsumer. On its own thread, as in a finalizer that runs there: without a wait, and no listener
        is called.
        """
        check_timeout(timeout_s)
        self._end(self._client.close(timeout_s=timeout_s), timeout_s)

    def _end(self, work: Coroutine[Any, Any, None], timeout_s: float) -> None:
        self._closed()
        if self._thread.is_current:
            work.close()
            self._client._begin_close(self._thread)
            return
        self._thread.soon(self._client._limit_close, timeout_s)  # also that under way
        if self._ending == threading.get_ident() and getattr(self._here, "listens", False):
            work.close()  # that close waits for this listener
            return
        with self._thread.closing() as is_open:
            if is_open:
                self._ending = threading.get_ident()
                self._give_back()
                self._thread.call_in_front(work)
            else:
                work.close()

    # Assignment and positions.
    def assign(
        self,
        partitions: Iterable[Partition] | Mapping[Partition, Start | None],
        *,
        start: Start | None = None,
        ends: Mapping[Partition, int] | None = None,
    ) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.call(self._client.assign(partitions, start=start, ends=ends))

    def assign_topics(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.call(self._client.assign_topics(topics, start=start))

    def seek(self, partition: Partition, to: Start, *, leader_epoch: int | None = None) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.run(self._client.seek, partition, to, leader_epoch=leader_epoch)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.run(self._client.pause, partitions)

    def position(self, partition: Partition, *, timeout_s: float | None = None) -> Offset:
        """As of AsyncConsumer."""
        wanted = as_partition(partition)
        for record in self._taken.ahead:
            if (record.topic, record.partition) == (wanted.topic, wanted.partition):
                return record.offset
        return self._thread.call(self._client.position(partition, timeout_s=timeout_s))

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """In the order of their assignment."""
        return self._thread.run(lambda: self._client.assignment)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """As of AsyncConsumer; the listeners are plain functions."""
        self._thread.run(
            self._client.subscribe,
            topics,
            pattern=pattern,
            on_assigned=self._in_front("on_assigned", on_assigned),
            on_revoked=self._in_front("on_revoked", on_revoked),
            on_lost=self._in_front("on_lost", on_lost),
        )

    def _in_front(self, name: str, listener: Listener | None) -> Listener | None:
        check_function(name, listener)
        if listener is None:
            return None

        def here(partitions: Sequence[TopicPartition]) -> None:
            outer = getattr(self._here, "listens", False)
            self._here.listens = True
            try:
                listener(partitions)
            finally:
                self._here.listens = outer

        async def call(partitions: Sequence[TopicPartition]) -> None:
            await self._thread.in_front(here, partitions)

        return call

    def unsubscribe(self) -> None:
        """As of AsyncConsumer."""
        self._give_back()
        self._thread.call_in_front(self._client.unsubscribe())

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics by name."""
        return self._thread.run(lambda: self._client.subscription)

    @property
    def member_id(self) -> str | None:
        """None: not a member now."""
        return self._thread.run(lambda: self._client.member_id)

    @property
    def member_epoch(self) -> int | None:
        """As the coordinator said last; None: no member now."""
        return self._thread.run(lambda: self._client.member_epoch)

    @property
    def corrupt_batches_skipped(self) -> int:
        """As of AsyncConsumer."""
        return self._client.corrupt_batches_skipped

    @property
    def undecodable_records_skipped(self) -> int:
        """As of AsyncConsumer."""
        return 0 if self._deserializers is None else self._deserializers.skipped_count

    def metrics(self) -> dict[str, float]:
        """By Kafka's names, since the start: how long quotas held responses up, in ms."""
        return self._client.metrics()

    def commit(self, offsets: ToCommit | ConsumerRecord | None = None, *, timeout_s: float | None = None) -> None:
        """As of AsyncConsumer."""
        self._thread.call(self._commit(offsets, timeout_s))

    def commit_async(self, offsets: ToCommit | ConsumerRecord | None = None) -> Begun[None]:
        """As of AsyncConsumer."""
        return self._thread.begin(self._commit(offsets, None))

    def _commit(self, offsets: ToCommit | ConsumerRecord | None, timeout_s: float | None) -> Coroutine[Any, Any, None]:
        if offsets is None and (firsts := _firsts(self._taken.ahead)):
            return self._client._commit_before(firsts, timeout_s)
        return self._client.commit(offsets, timeout_s=timeout_s)

    committed = blocking(AsyncConsumer.committed)
    resume = on_loop(AsyncConsumer.resume)
    lag = on_loop(AsyncConsumer.lag)
    partition_count = blocking(AsyncConsumer.partition_count)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)

    def _undo(self, taken: Sequence[ConsumerRecord | ConsumerBatch]) -> None:
        """On the loop: a call that was interrupted has taken these."""
        self._client._put_back(_firsts(taken))

    def _give_back(self) -> None:
        """Records that were taken for a loop are to be read again."""
        firsts, at = _firsts(self._taken.ahead), self._taken.at
        if firsts or at is not None:
            self._thread.run(self._hand_back, firsts, at)

    def _hand_back(self, firsts: dict[TopicPartition, Offset], at: ConsumerRecord | None) -> None:
        """On the loop, where Ctrl-C does not come in between: records would be returned twice."""
        self._client._hand_back(firsts, at)
        self._taken.give_back()

    # Reading.

    def poll(self, max_records: int | None = None, *, timeout_s: float | None = 0.0) -> list[ConsumerRecord]:
        """As of AsyncConsumer."""
        if self._taken.ahead:
            return self._taken.poll(None if max_records is None else checked_count(max_records))
        self._taken = _Taken([])
        return self._poll(max_records, timeout_s)

    def _poll(self, max_records: int | None, timeout_s: float | None) -> list[ConsumerRecord]:
        taken = self._thread.call_in_front(self._client.poll(max_records, timeout_s=timeout_s), self._undo)
        if self._deserializers is None:
            return taken
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while taken:
            found = self._decoded(taken, self._deserializers)
            if found:
                return found
            # All of them were skipped.
            left_s = None if deadline_s is None else max(0.0, deadline_s - monotonic())
            taken = self._thread.call_in_front(self._client.poll(max_records, timeout_s=left_s), self._undo)
        return taken

    def _decoded(self, taken: list[ConsumerRecord], deserializers: RecordDeserializers) -> list[ConsumerRecord]:
        """As DecodedPolls'."""
        decoding = Decoding(deserializers, taken)
        try:
            decoding.finish()
        except DeserializationError:
            self._thread.run(self._client._put_back, decoding.rest(whole=False))
            if not decoding.found:
                raise
        except BaseException:
            self._thread.run(self._client._put_back, decoding.rest(whole=True))
            raise
        return decoding.found

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """All records, without end."""
        return chain.from_iterable(self._lists())

    def _lists(self) -> Iterator[Iterator[ConsumerRecord]]:
        self._taken.poll(0)
        while True:
            if not self._taken.ahead:
                self._taken = _Taken([])
                found = self._poll(None, None)
                try:
                    self._taken = _Taken(found)
                except BaseException:
                    self._thread.run(self._undo, found)
                    raise
            yield self._taken.left

    def poll_batch(self, *, timeout_s: float | None = 0.0) -> ConsumerBatch | None:
        """As of AsyncConsumer."""
        self._give_back()
        self._taken = _Taken([])
        return self._thread.call_in_front(
            self._client.poll_batch(timeout_s=timeout_s), lambda batch: self._undo([] if batch is None else [batch])
        )

    def poll_batches(self, ends: Mapping[Partition, int], *, bytes_max: int, timeout_s: float) -> list[ConsumerBatch]:
        """As of AsyncConsumer."""
        self._give_back()
        self._taken = _Taken([])
        return self._thread.call_in_front(
            self._client.poll_batches(ends, bytes_max=bytes_max, timeout_s=timeout_s), self._undo
        )

    def batches(self) -> Iterator[ConsumerBatch]:
        """All batches, without end."""
        while True:
            batch = self.poll_batch(timeout_s=None)
            if batch is not None:
                yield batch


def _firsts(taken: Iterable[ConsumerRecord | ConsumerBatch]) -> dict[TopicPartition, Offset]:
    """The first one of each partition."""
    firsts: dict[TopicPartition, Offset] = {}
    for one in taken:
        offset = one.offset if isinstance(one, ConsumerRecord) else one.first_offset
        firsts.setdefault(as_partition((one.topic, one.partition)), offset)
    return firsts
