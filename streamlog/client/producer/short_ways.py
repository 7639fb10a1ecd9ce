"""The short ways of the synchronous `send`: a value alone, and a value with a key whose partition is known.

A record takes the short way where nothing is to be decided: its batch is open and has space for it, and the timestamp
of the record before it is still the present time. Otherwise a short way returns None, and has done nothing; the record
goes the general way (`accumulator`), which opens batches, reads the clock, looks partitions up, waits and raises. Both
ways result in the same record. (A clock that is set back is noticed at the next batch.)

A way is a closure, made for a topic when its first record was sent. It never has to be revoked: what ends a topic, a
transaction or the producer closes the batches, and a closed one has no space.

The guard is acquired and released by plain calls: `with` costs twice as much. An interrupt (Ctrl-C) may come after each
call: then the guard is released, and the record is there as a whole, or not at all (`producer_batch`). None comes
between two bytecodes without a call, so none comes before a `release()` that is next.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TypeAlias

from streamlog.client.producer.batches.producer_batch import RECORD_OVERHEAD
from streamlog.client.producer.batches.topic_table import TopicTable
from streamlog.client.producer.sent_records import SentRecord

ValueWay: TypeAlias = Callable[[bytes | None], SentRecord | None]
KeyedWay: TypeAlias = Callable[[bytes | None, bytes], SentRecord | None]


def value_way(table: TopicTable, guard: RLock, wall_s: Callable[[], float]) -> ValueWay:
    """For records without a key, where the partitioner leaves them to the sticky choice. `wall_s`: as time.time."""
    acquire, release = guard.acquire, guard.release
    new = SentRecord

    def send(value: bytes | None) -> SentRecord | None:
        if value.__class__ is not bytes:
            return None
        sent: SentRecord | None = None
        try:
            acquire()
            batch = table.sticky
            size = batch.size + RECORD_OVERHEAD + len(value)
            if size <= batch.limit and wall_s() < batch.fresh_until_s:
                values = batch.values
                sent = new()
                sent.promise = batch
                sent.index = len(values)
                batch.size = size
                values.append(value)
        except BaseException:
            try:
                release()
            except RuntimeError:  # it was not acquired: the wait for it was interrupted
                pass
            raise
        release()
        return sent

    return send


def keyed_way(table: TopicTable, guard: RLock, wall_s: Callable[[], float]) -> KeyedWay:
    acquire, release = guard.acquire, guard.release
    new = SentRecord
    known = table.known

    def send(value: bytes | None, key: bytes) -> SentRecord | None:
        if value.__class__ is not bytes or key.__class__ is not bytes:
            return None
        sent: SentRecord | None = None
        try:
            acquire()
            if key in known:
                batch = table.open[known[key]]
                size = batch.size + RECORD_OVERHEAD + len(value) + len(key)
                keys, values = batch.keys, batch.values
                index = len(values)
                if size <= batch.limit and keys is not None and len(keys) == index and wall_s() < batch.fresh_until_s:
                    sent = new()
                    sent.promise = batch
                    sent.index = index
                    batch.size = size
                    keys.append(key)
                    values.append(value)
        except BaseException:
            try:
                release()
            except RuntimeError:  # it was not acquired: the wait for it was interrupted
                pass
            raise
        release()
        return sent

    return send
