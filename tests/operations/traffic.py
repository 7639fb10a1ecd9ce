"""The messages of a cluster under a short, varied load, as they are on the wire: of clients and between nodes.

It runs with the code of any release: `PYTHONPATH=CODE python tests/operations/traffic.py FILE` wrote messages.json of
release-0.1.0. Of each method and direction the messages differ in which fields are set; six at most are kept.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from streamlog.api.pb import batches_pb2, common_pb2, records_pb2
from streamlog.client import EARLIEST, AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.client.admin import values
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports.grpc_adapter.channel import GrpcChannel
from streamlog.pytest_plugin.cluster import InProcessCluster

REQUEST: Final = "request"
RESPONSE: Final = "response"
SHAPES_MAX: Final = 6
READ_S: Final = 60.0
SETTINGS: Final = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}

Recorded: TypeAlias = dict[str, dict[str, list[bytes]]]
"""Path of the method -> direction -> messages."""


class Recorder:
    def __init__(self) -> None:
        self._shapes: dict[tuple[str, str], dict[frozenset[str], bytes]] = {}

    @property
    def messages(self) -> Recorded:
        found: Recorded = {}
        for (path, direction), shapes in sorted(self._shapes.items()):
            found.setdefault(path, {})[direction] = list(shapes.values())
        return found

    def add(self, path: str, direction: str, data: bytes) -> None:
        shapes = self._shapes.setdefault((path, direction), {})
        shape = frozenset(_fields("", message_type(path, direction).FromString(data)))
        if len(shapes) < SHAPES_MAX:
            shapes.setdefault(shape, bytes(data))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While this holds, all that clients and nodes of this process send and receive is recorded."""
        unary, stream, add = GrpcChannel.unary, GrpcChannel.stream, self.add

        async def recorded_unary(self: GrpcChannel, method: str, request: bytes, **options: Any) -> bytes:
            add(method, REQUEST, request)
            response = await unary(self, method, request, **options)
            add(method, RESPONSE, response)
            return response

        @asynccontextmanager
        async def recorded_stream(
            self: GrpcChannel, method: str, *, metadata: Mapping[str, str] | None = None
        ) -> AsyncIterator[Any]:
            async with stream(self, method, metadata=metadata) as one:
                yield _RecordedStream(one, method, add)

        GrpcChannel.unary, GrpcChannel.stream = recorded_unary, recorded_stream  # type: ignore[method-assign]
        try:
            yield
        finally:
            GrpcChannel.unary, GrpcChannel.stream = unary, stream  # type: ignore[method-assign]


class _RecordedStream:
    def __init__(self, stream: Any, path: str, add: Any) -> None:
        self._stream, self._path, self._add = stream, path, add

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def send(self, message: bytes) -> None:
        self._add(self._path, REQUEST, message)
        await self._stream.send(message)

    async def recv(self) -> bytes | None:
        message: bytes | None = await self._stream.recv()
        if message is not None:
            self._add(self._path, RESPONSE, message)
        return message


def message_type(path: str, direction: str, pool: Any = None) -> type[Message]:
    method = (pool or descriptor_pool.Default()).FindMethodByName(path.strip("/").replace("/", "."))
    return message_factory.GetMessageClass(method.input_type if direction == REQUEST else method.output_type)


def _fields(scope: str, message: Message) -> Iterator[str]:
    """Of all fields that are set, those of submessages too: their paths."""
    for field, value in message.ListFields():
        path = f"{scope}.{field.name}"
        yield path
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else [value]:
                yield from _fields(path, one)


async def load(servers: str, recorder: Recorder) -> None:
    """Each kind of client, and most methods."""
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await _topics(admin)
        await _records(servers)
        await _transaction(servers)
        await _calls(servers, recorder)
        await _administration(admin)


async def _topics(admin: AsyncAdmin) -> None:
    await admin.create_topic("orders", partitions=3, replication_factor=3, configs={"retention.ms": "-1"})
    await admin.create_topic("output", partitions=1, replication_factor=3)
    await admin.create_topic("unused", partitions=1, replication_factor=1)
    await admin.grow_topic("unused", 2)
    await admin.delete_topic("unused")
    with suppress(StreamlogError):
        await admin.create_topic("orders", partitions=1)
    await admin.list_topics(include_internal=True)


async def _records(servers: str) -> None:
    for codec in ("none", "zstd"):
        async with AsyncProducer(bootstrap_servers=servers, compression_type=codec) as producer:
            sent = [
                producer.send(
                    "orders", b"%d" % number, key=b"k", headers=[("codec", codec.encode())], partition=number % 3
                )
                for number in range(30)
            ]
            await asyncio.gather(*sent)
    for group in ("billing", None):
        settings = {"bootstrap.servers": servers, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        if group is not None:
            settings["group.id"] = group
        async with AsyncConsumer(settings) as consumer:
            if group is not None:
                consumer.subscribe(["orders"])
            else:
                await consumer.assign_topics(["orders"], start=EARLIEST)
            read = 0
            while read < 60:
                some = await consumer.poll(timeout_s=READ_S)
                assert some
                read += len(some)
            if group is not None:
                await consumer.commit()
            await consumer.end_offsets([TopicPartition("orders", PartitionId(0))])


async def _transaction(servers: str) -> None:
    async with AsyncProducer(bootstrap_servers=servers, transactional_id="tx") as producer:
        await producer.init_transactions()
        for ends in (True, False):
            with suppress(_Aborted):
                async with producer.transaction():
                    await producer.send("output", b"value")
                    offsets = {TopicPartition("orders", PartitionId(0)): 5}
                    await producer.send_offsets(offsets, "copy")
                    if not ends:
                        raise _Aborted
    async with AsyncConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        await consumer.assign_topics(["output"], start=EARLIEST)
        assert await consumer.poll(timeout_s=READ_S)


class _Aborted(Exception):
    """Ends the body of a transaction."""


async def _calls(servers: str, recorder: Recorder) -> None:
    """The methods that other languages use, and those that the Python client does not."""
    records = [records_pb2.PublishRecord(key=b"k", value=b"v", headers=[records_pb2.Header(key="h", value=b"1")])]
    part = records_pb2.SubscribePartitions(
        topic="orders",
        partitions=[0],
        start=records_pb2.StartPosition(offset=0),
        end=records_pb2.EndPosition(offset=5),
    )
    fetched = batches_pb2.FetchPartition(topic="orders", partition=0, fetch_offset=0)
    settings = batches_pb2.FetchSettings(bytes_min=1, wait_ms_max=100, response_bytes_max=1 << 20)
    committed = common_pb2.ISOLATION_LEVEL_READ_COMMITTED
    writer = records_pb2.TransactionalWriter(transactional_id="stream")
    for address in servers.split(","):
        async with grpc.aio.insecure_channel(address) as channel:
            call = _Call(channel, recorder)
            await call("/streamlog.v1.Records/Publish", [records_pb2.PublishRequest(topic="orders", records=records)])
            await call(
                "/streamlog.v1.Records/PublishStream",
                [
                    records_pb2.PublishStreamRequest(topic="output", transactional=writer),
                    records_pb2.PublishStreamRequest(records=records),
                    records_pb2.PublishStreamRequest(end=records_pb2.TRANSACTION_END_COMMIT),
                ],
            )
            await call(
                "/streamlog.v1.Records/Subscribe",
                [records_pb2.SubscribeRequest(subscriptions=[part], isolation_level=committed)],
            )
            join = records_pb2.ConsumeJoin(
                group=address, topics=["orders"], offset_reset=records_pb2.OFFSET_RESET_EARLIEST
            )
            await call(
                "/streamlog.v1.Records/Consume", [records_pb2.ConsumeRequest(join=join, credits=10)], responses=2
            )
            await call(
                "/streamlog.v1.Batches/Fetch", [batches_pb2.FetchRequest(settings=settings, partitions=[fetched])]
            )


class _Call:
    """One call of each: all requests, then the responses to the end, or so many."""

    def __init__(self, channel: grpc.aio.Channel, recorder: Recorder) -> None:
        self._channel = channel
        self._recorder = recorder

    async def __call__(self, path: str, requests: list[Any], responses: int | None = None) -> None:
        call: Any = self._channel.stream_stream(path)(timeout=READ_S)
        for request in requests:
            data = request.SerializeToString()
            self._recorder.add(path, REQUEST, data)
            await call.write(data)
        if responses is None:
            await call.done_writing()
        with suppress(grpc.aio.AioRpcError):  # such as a node that does not lead the partition
            while responses is None or responses > 0:
                data = await call.read()
                if not isinstance(data, bytes):
                    break  # the end
                self._recorder.add(path, RESPONSE, data)
                responses = None if responses is None else responses - 1
        call.cancel()


async def _administration(admin: AsyncAdmin) -> None:
    orders = TopicPartition("orders", PartitionId(0))
    resource = values.ConfigResource.topic("orders")
    await admin.describe_topics(["orders", "output"])
    await admin.describe_configs([resource])
    await admin.alter_config(resource, [values.ConfigChange(name="segment.bytes", value="1048576")])
    await admin.elect_leaders()
    await admin.digest_replicas("orders", 0)
    await admin.repair_replicas("orders", 0)
    await admin.describe_cluster()
    await admin.describe_node()
    await admin.describe_log_dirs()
    move = values.Reassignment(at=orders, replicas=[1, 2])
    await admin.alter_partition_reassignments([move])
    await admin.drain_node(3)
    await admin.drain_progress(3)
    await admin.cancel_drain(3)
    await admin.list_partition_reassignments()
    await admin.list_groups()
    await admin.describe_groups(["billing"])
    await admin.list_group_offsets("billing")
    await admin.list_transactions()
    await admin.describe_transactions(["tx"])
    await admin.find_hanging_transactions()
    for refused in (admin.unregister_node(1), admin.remove_voter(9), admin.delete_groups(["none"])):
        with suppress(StreamlogError):
            await refused


def main(file: str) -> None:
    recorder = Recorder()
    with (
        tempfile.TemporaryDirectory() as directory,
        recorder.installed(),
        InProcessCluster(Path(directory), nodes=4, settings=SETTINGS) as cluster,
    ):
        asyncio.run(load(cluster.bootstrap_servers, recorder))
        cluster.stop_node(3)
        cluster.start_node(3)
    encoded = {
        path: {direction: [base64.b64encode(one).decode() for one in some] for direction, some in both.items()}
        for path, both in recorder.messages.items()
    }
    Path(file).write_text(json.dumps(encoded, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
