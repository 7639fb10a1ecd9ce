"""REQUIREMENTS, "Producing": transactions. Read, write and commit offsets as one, with a client library and without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import grpc
import pytest
from google.protobuf.message import Message

from streamlog.api.pb import common_pb2, groups_pb2, records_pb2
from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer, Consumer, Producer
from streamlog.errors import ProducerFencedError
from streamlog.model import PartitionId, TopicPartition
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.services.raw import TIMEOUT_S, refusal, stream_call

Topic = Callable[..., str]
R = TypeVar("R", bound=Message)
COMMIT, ABORT = records_pb2.TRANSACTION_END_COMMIT, records_pb2.TRANSACTION_END_ABORT
COMMITTED, ABORTED = records_pb2.TRANSACTION_OUTCOME_COMMITTED, records_pb2.TRANSACTION_OUTCOME_ABORTED
READ_COMMITTED, READ_UNCOMMITTED = (
    common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
    common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
)
RECORDS = 30


class Stream(Generic[R]):
    """A stream both ways, as stubs of any language have it."""

    def __init__(self, channel: grpc.Channel, method: str, response_type: type[R]) -> None:
        self._up: SimpleQueue[bytes | None] = SimpleQueue()
        made: Any = channel.stream_stream(f"/streamlog.v1.{method}")
        self._down: Any = made(iter(self._up.get, None), timeout=3 * TIMEOUT_S)
        self._type = response_type

    def send(self, request: Message) -> None:
        self._up.put(request.SerializeToString())

    def recv(self) -> R:
        """grpc.RpcError."""
        return self._type.FromString(next(self._down))

    def ask(self, request: Message) -> R:
        self.send(request)
        return self.recv()

    def close(self) -> None:
        self._up.put(None)
        self._down.cancel()


@contextmanager
def streaming(address: str, method: str, response_type: type[R]) -> Iterator[Stream[R]]:
    with grpc.insecure_channel(address) as channel:
        stream = Stream(channel, method, response_type)
        try:
            yield stream
        finally:
            stream.close()


def read(
    address: str, topic: str, isolation: common_pb2.IsolationLevel.ValueType, count: int | None = None
) -> list[bytes]:
    """Of a topic, through any node: what can be read now; with `count` as soon as there are so many."""
    part = records_pb2.SubscribePartitions(
        topic=topic, start=records_pb2.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST)
    )
    if count is None:
        part.end.bound = common_pb2.OFFSET_BOUND_LATEST
    request = records_pb2.SubscribeRequest(subscriptions=[part], isolation_level=isolation)
    found: list[bytes] = []
    with grpc.insecure_channel(address) as channel:
        for data in stream_call(channel, "Records/Subscribe", request):
            for news in records_pb2.SubscribeResponse.FromString(data).partitions:
                found += [record.value for record in news.records]
            if count is not None and len(found) >= count:
                break
    return found


def test_without_a_client_library(streamlog_cluster: InProcessCluster, servers: str, topic: Topic) -> None:
    """Consume, transform and produce by stock stubs: a member of a group at one node, a transactional stream at
    another, a reader at the third. Each batch of input is one transaction; every third one is aborted and done again.
    """
    source, target = topic(), topic(partitions=3)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(RECORDS):
            producer.send(source, b"%d" % number)
    consume = streaming(streamlog_cluster.address(1), "Records/Consume", records_pb2.ConsumeResponse)
    publish = streaming(streamlog_cluster.address(2), "Records/PublishStream", records_pb2.PublishStreamResponse)
    with consume as up, publish as down:
        join = records_pb2.ConsumeJoin(
            group=source, topics=[source], offset_reset=records_pb2.OFFSET_RESET_EARLIEST, client_id="transform"
        )
        up.send(records_pb2.ConsumeRequest(join=join, credits=7))
        writer = records_pb2.TransactionalWriter(transactional_id=source)
        down.ask(records_pb2.PublishStreamRequest(topic=target, transactional=writer))
        done, turn = 0, 0
        while done < RECORDS:
            news = up.recv()
            if not news.records.records:
                continue
            outputs = [records_pb2.PublishRecord(key=one.value, value=one.value + b"!") for one in news.records.records]
            place = groups_pb2.OffsetToCommit(topic=source, partition=0, offset=news.records.position)
            offsets = records_pb2.TransactionOffsets(group=source, member=news.member, offsets=[place])
            turn += 1
            if turn % 3 == 0:
                down.ask(records_pb2.PublishStreamRequest(records=outputs, offsets=[offsets]))
                assert down.ask(records_pb2.PublishStreamRequest(end=ABORT)).outcome == ABORTED
            answer = down.ask(records_pb2.PublishStreamRequest(records=outputs, offsets=[offsets], end=COMMIT))
            assert answer.outcome == COMMITTED, answer
            done += len(outputs)
            up.send(records_pb2.ConsumeRequest(credits=len(outputs)))
        with Consumer(bootstrap_servers=servers, group_id=source) as consumer:
            (committed,) = consumer.committed([(source, 0)]).values()
        assert committed is not None
        assert committed.offset == RECORDS
    address, expected = streamlog_cluster.address(3), sorted(b"%d!" % number for number in range(RECORDS))
    read(address, target, READ_COMMITTED, RECORDS)  # the last markers are on their way
    assert sorted(read(address, target, READ_COMMITTED)) == expected
    assert len(read(address, target, READ_UNCOMMITTED)) > RECORDS


def test_the_older_of_two_streams_is_fenced(streamlog_cluster: InProcessCluster, topic: Topic) -> None:
    """Two of one transactional id, at two nodes."""
    name = topic()
    first_at = streaming(streamlog_cluster.address(1), "Records/PublishStream", records_pb2.PublishStreamResponse)
    second_at = streaming(streamlog_cluster.address(2), "Records/PublishStream", records_pb2.PublishStreamResponse)
    begin = records_pb2.PublishStreamRequest(
        topic=name, transactional=records_pb2.TransactionalWriter(transactional_id=name)
    )
    with first_at as first, second_at as second:
        first.ask(begin)
        first.ask(records_pb2.PublishStreamRequest(records=[records_pb2.PublishRecord(value=b"older")]))
        second.ask(begin)
        mine = records_pb2.PublishStreamRequest(records=[records_pb2.PublishRecord(value=b"newer")], end=COMMIT)
        assert second.ask(mine).outcome == COMMITTED
        with pytest.raises(grpc.RpcError) as caught:
            first.ask(records_pb2.PublishStreamRequest(end=COMMIT))
        assert refusal(caught.value)[1] == "PRODUCER_FENCED"
    servers = streamlog_cluster.bootstrap_servers
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([(name, 0)], start=EARLIEST)
        assert [record.value for record in consumer.poll(timeout_s=30)] == [b"newer"]


async def _place(servers: str, group: str, partition: TopicPartition) -> int:
    async with AsyncConsumer(bootstrap_servers=servers, group_id=group) as consumer:
        (place,) = (await consumer.committed([partition])).values()
        return 0 if place is None else place.offset


def test_with_the_client_library(servers: str, topic: Topic) -> None:
    """Exactly once from one topic to another; the older of two producers of one name is fenced."""
    source, target = topic(), topic()

    async def transform() -> list[bytes | None]:
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            for number in range(RECORDS):
                producer.send(source, b"%d" % number)
        partition = TopicPartition(source, PartitionId(0))
        consumer = AsyncConsumer(bootstrap_servers=servers, isolation_level="read_committed")
        older = AsyncProducer(bootstrap_servers=servers, transactional_id=source)
        newer = AsyncProducer(bootstrap_servers=servers, transactional_id=source)
        async with consumer, older, newer:
            await consumer.assign([partition], start=EARLIEST)
            await older.begin_transaction()
            older.send(target, b"zombie")
            await older.send_offsets({partition: RECORDS}, source)
            await newer.init_transactions()  # or who reads the group's place waits for the time-out of the older one
            done = await _place(servers, source, partition)
            while done < RECORDS:
                records = await consumer.poll(7, timeout_s=30)
                async with newer.transaction():
                    for record in records:
                        newer.send(target, (record.value or b"") + b"!")
                    done = records[-1].offset + 1
                    await newer.send_offsets({partition: done}, source)
            with pytest.raises(ProducerFencedError):
                await older.abort_transaction()
            await consumer.assign([(target, 0)], start=EARLIEST)
            read: list[bytes | None] = []
            while len(read) < RECORDS:
                read += [record.value for record in await consumer.poll(timeout_s=30)]
            return read

    assert asyncio.run(transform()) == [b"%d!" % number for number in range(RECORDS)]
