"""Where records go (SEMANTICS 12): the hash, the built-in partitioners, the sticky choice, one's own."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from streamlog.client.producer.batches.partition_queue import PartitionQueue, QueueRules
from streamlog.client.producer.batches.topic_table import TopicTable
from streamlog.client.producer.partitioner import (
    HashPartitioner,
    IntegerModuloPartitioner,
    Partitioner,
    RoundRobinPartitioner,
    hash_partition,
    hash_partitions,
    murmur2,
    partitioner_of,
)
from streamlog.errors import InvalidConfigError, InvalidRequestError
from streamlog.model import PartitionId, TopicId, TopicPartition

from ..stage import Stage, play


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_answers(key: bytes, expected: int) -> None:
    """Kafka's own (its UtilsTest)."""
    assert murmur2(key) == expected


@given(st.binary(max_size=40))
def test_murmur2_is_kafkas(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == their_murmur2(key) & 0xFFFFFFFF


@given(st.lists(st.binary(max_size=20), max_size=50), st.integers(1, 1000))
def test_many_keys_go_where_each_goes(keys: list[bytes], count: int) -> None:
    partitioner = HashPartitioner()
    each = [hash_partition(key, count) for key in keys]
    assert hash_partitions(keys, count) == each
    assert [partitioner.partition("t", key, None, count) for key in keys] == each
    assert all(0 <= partition < count for partition in each)


@given(st.integers(-(10**20), 10**20), st.integers(1, 100))
def test_integer_keys_modulo(number: int, count: int) -> None:
    assert IntegerModuloPartitioner().partition("t", b"%d" % number, None, count) == number % count


def test_keys_that_are_no_integers_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="key 'x1' is not an integer"):
        IntegerModuloPartitioner().partition("t", b"x1", None, 3)
    assert IntegerModuloPartitioner().partition("t", None, None, 3) is None


def test_round_robin_by_topic() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("a", b"k", None, 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert partitioner.partition("b", None, None, 3) == 0


@given(st.integers(1, 20), st.integers(0, 1000))
def test_random_stays_in_range(count: int, seed: int) -> None:
    partitioner = partitioner_of("random", random.Random(seed))
    found = {partitioner.partition("t", b"k", None, count) for _ in range(100)}
    assert found <= set(range(count))
    assert len(found) > 1 or count == 1


class ByLength:
    """A user's own."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        return len(value or b"")


def test_ones_own_class() -> None:
    made = partitioner_of(f"{__name__}.ByLength", random.Random(0))
    assert made.partition("t", None, b"xx", 3) == 2
    for name in ("nowhere.Class", "json.Nothing", "json.loads", "json.JSONDecoder", "plain"):
        with pytest.raises(InvalidConfigError, match=r"partitioner\.class"):
            partitioner_of(name, random.Random(0))


def table(count: int, partitioner: Partitioner | None = None) -> TopicTable:
    rules = QueueRules(linger_s=0, in_flight_max=5, wire_bytes_max=1 << 18, idempotent=True)
    made = TopicTable("t", TopicId(b"t" * 16), partitioner or HashPartitioner(), random.Random(1))
    made.grow(PartitionQueue(TopicPartition("t", PartitionId(n)), made.topic_id, rules) for n in range(count))
    return made


def test_the_sticky_choice_prefers_short_queues() -> None:
    """KIP-794: weights fall with the length of the queue."""
    counts: Counter[int] = Counter()
    made = table(3)
    for queue, length in zip(made.queues, (0, 4, 8), strict=True):
        queue.batches.extend([made.sticky] * length)
    for _ in range(2000):
        counts[made.sticky_partition(0, adaptive=True)] += 1
    assert counts[0] > counts[1] > counts[2] > 0


def test_records_without_a_key_stick_until_batch_size() -> None:
    async def story(stage: Stage) -> None:
        logs = stage.cluster.create("t", 4)
        async with stage.producer(batch_size=1000, linger_ms=0) as producer:
            places = [await producer.send("t", b"x" * 85) for _ in range(400)]
        runs = [1]
        for one, other in itertools.pairwise(places):
            if one.partition == other.partition:
                runs[-1] += 1
            else:
                runs.append(1)
        # Of 100 bytes each, sent one at a time: the header of each batch counts as well.
        assert all(3 <= run <= 10 for run in runs[:-1]), runs
        assert all(len(log.records()) > 40 for log in logs)

    play(story)


@pytest.mark.parametrize("name", ["default", "round-robin", "random", "integer-modulo"])
def test_one_by_one_and_many_at_once_go_to_the_same_places(name: str) -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t", 5)
        keys = [b"%d" % (number % 23) for number in range(230)]
        async with stage.producer(partitioner_class=name) as producer:
            many = await (await producer.send_many("t", keys, keys=keys))
            assert sum(part.record_count for part in many) == 230
            each = {}
            for key in keys[:23]:
                each[key] = (await producer.send("t", key, key=key)).partition
        if name in ("default", "integer-modulo"):
            for partition, log in stage.cluster.logs.items():
                assert {each[record.key or b""] for record in log.records()} <= {partition.partition}
        assert sum(len(log.records()) for log in stage.cluster.logs.values()) == 253

    play(story, seeds=1)


def test_a_partition_out_of_range_is_refused() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t", 3)
        async with stage.producer(partitioner=ByLength()) as producer:
            assert (await producer.send("t", b"xx")).partition == 2
            with pytest.raises(InvalidRequestError, match="ByLength chose partition 9 of 3"):
                producer.send("t", b"x" * 9)

    play(story, seeds=1)
