"""Loops over a consumer: each record once, and what is known of them follows from the record that the loop is at."""

from __future__ import annotations

import pickle
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from streamlog.client import ConsumerRecord
from streamlog.client.consumer.sync_consumer import _Taken
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.records import encode_batch

from ..stage import Stage, lines, play

T0 = TopicPartition("t", PartitionId(0))


def record(offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", 0, Offset(offset), 0, None, b"v", ())


def test_position_and_the_record_in_flight_follow_the_loop() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(encode_batch(lines(3), timestamps=1))
        log.append(encode_batch(lines(60), timestamps=1))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            reader = consumer._reader
            reader.tracks_in_flight = True  # as with a group
            count, seen = 0, set()
            async for each in consumer:
                assert type(each) is ConsumerRecord
                assert (each.offset, await consumer.position(T0)) == (count, count + 1)
                assert reader.in_flight[T0].place()[0] == count
                seen.add(consumer._activity()[0])
                count += 1
                if count == 63:
                    break
            assert len(seen) == 63  # each record counts as a poll
            assert consumer._activity() == consumer._activity()
            await consumer.poll(timeout_s=0.01)
            assert not reader.in_flight

    play(story, seeds=2)


def test_the_epoch_in_flight_is_that_of_the_record_before() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.epoch = 3
        log.append(encode_batch(lines(2), timestamps=1))
        log.epoch, log.starts = 7, [(3, 0), (7, 2)]
        log.append(encode_batch(lines(2), timestamps=1))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            consumer._reader.tracks_in_flight = True
            places = []
            async for each in consumer:
                places.append(consumer._reader.in_flight[T0].place())
                if each.offset == 3:
                    break
            assert places == [(0, None), (1, 3), (2, 3), (3, 7)]

    play(story, seeds=1)


def test_a_seek_in_a_loop_ends_its_batch() -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        log.append(encode_batch(lines(100), timestamps=1))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            got = []
            async for each in consumer:
                got.append(each.offset)
                if each.offset == 5:
                    consumer.seek(T0, 98)
                if each.offset == 99:
                    break
            assert got == [0, 1, 2, 3, 4, 5, 98, 99]

    play(story, seeds=1)


@given(st.integers(0, 12), st.lists(st.sampled_from(["loop", "loop", "poll 0", "poll 2", "poll", "give back"])))
def test_what_a_synchronous_loop_has_taken(count: int, steps: list[str]) -> None:
    """Beside the plain way: a queue of those ahead, and the record that the loop is at."""
    taken = _Taken([record(offset) for offset in range(count)])
    ahead, at = deque(record(offset) for offset in range(count)), None
    for step in steps:
        if step == "loop":
            returned = next(taken.left, None)
            assert returned == (ahead[0] if ahead else None)
            if ahead:
                at = ahead.popleft()
        elif step == "give back":
            taken.give_back()
            ahead.clear()
        else:
            wanted = None if step == "poll" else int(step[5:])
            count = len(ahead) if wanted is None else min(wanted, len(ahead))
            assert taken.poll(wanted) == [ahead.popleft() for _ in range(count)]
            at = None
        assert (taken.ahead, taken.at) == (list(ahead), at)


def test_a_record_is_a_value() -> None:
    one = record(3)
    assert pickle.loads(pickle.dumps(one)) == one == ("t", 0, 3, 0, None, b"v", ())
    fields = "topic='t', partition=0, offset=3, timestamp_ms=0, key=None, value=b'v', headers=()"
    assert repr(one) == f"ConsumerRecord({fields})"
