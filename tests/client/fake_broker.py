"""A cluster of brokers without disks, raft or replication: one log a partition, served by its leader.

It speaks the Batches service of streamlog.v1 over the simulated network, and does to clients what a real cluster does:
leaders move, streams break, appends are refused before or after they happen, answers are late. What it keeps of
producers is the real thing (`storage.producers`), so a duplicate that it lets in is the client's fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct, field

from streamlog.api.errors import to_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.pb import common_pb2
from streamlog.api.service import Call, Requests, Responses, Service, downstream, duplex, unary
from streamlog.errors import (
    NotLeaderError,
    OffsetOutOfRangeError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports import Ports
from streamlog.records import Record, iter_batches, read_header, scan_headers, stamp
from streamlog.records.header import LOG_OVERHEAD
from streamlog.sim import World
from streamlog.storage.producers.producer_states import ProducerStates

PORT = 9092
Refusal = Callable[[TopicPartition], StreamlogError | None]


class Stored(Struct):
    base: int
    next: int
    epoch: int
    data: bytes


class FakeLog(Struct, dict=True):
    leader: int
    epoch: int = 0
    partition_epoch: int = 0
    start: int = 0
    end: int = 0
    batches: list[Stored] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    aborted: list[tuple[int, Offset]] = field(default_factory=list)  # (producer id, first offset)
    starts: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # (epoch, start offset)

    def append(self, data: bytes) -> int:
        """The base offset."""
        first: int | None = None
        for position, header in scan_headers(data, 0, len(data)):
            if header.producer_id >= 0 and not header.is_control:
                seen = self.producers.check(header)
                if seen is not None:
                    first = seen.first_offset if first is None else first
                    continue
            batch = bytearray(data[position : position + header.size_bytes])
            batch[:16] = stamp(Offset(self.end), header.size_bytes - LOG_OVERHEAD, LeaderEpoch(self.epoch))
            first = self.end if first is None else first
            after = self.end + header.last_offset_delta + 1
            self.batches.append(Stored(self.end, after, self.epoch, bytes(batch)))
            self.end = after
            self.producers.update(read_header(bytes(batch), 0))
        assert first is not None
        return first

    def truncate(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next <= end]
        self.end = self.batches[-1].next if self.batches else min(self.end, end)
        self.producers = ProducerStates()
        for batch in self.batches:
            self.producers.update(read_header(batch.data, 0))

    def end_of(self, epoch: int) -> tuple[int, int]:
        known = [number for number, _ in self.starts if number <= epoch]
        if not known:
            return -1, -1
        return known[-1], min([start for number, start in self.starts if number > epoch], default=self.end)

    def records(self) -> list[Record]:
        return [r for batch in self.batches for r in iter_batches(batch.data, 0, len(batch.data))]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


class FakeCluster:
    """What all its nodes know at once."""

    def __init__(self, world: World, nodes: int = 3) -> None:
        self.world = world
        self.names = [f"b{number}" for number in range(nodes)]
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.ids: dict[str, bytes] = {}
        self.version = 1
        self.changed = asyncio.Event()
        self.appended = asyncio.Event()
        self.before_append: Refusal = lambda partition: None
        self.after_append: Refusal = lambda partition: None
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.batch_bytes_max = 1 << 20
        self.producer_ids = 1000
        self.requests = 0  # messages of produce streams
        self.nodes: dict[str, FakeBroker] = {}
        for number in range(nodes):
            self.restart(number)

    @property
    def bootstrap(self) -> list[str]:
        return [f"{name}:{PORT}" for name in self.names]

    def create(self, topic: str, partitions: int = 1) -> list[FakeLog]:
        self.ids[topic] = bytes([len(self.ids) + 1]) * 16
        made = [FakeLog(leader=number % len(self.names)) for number in range(partitions)]
        for number, log in enumerate(made):
            self.logs[TopicPartition(topic, PartitionId(number))] = log
        self.change()
        return made

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        for partition in [one for one in self.logs if one.topic == topic]:
            del self.logs[partition]
        self.change()

    def change(self) -> None:
        self.version += 1
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def wake(self) -> None:
        """Something was appended."""
        appended, self.appended = self.appended, asyncio.Event()
        appended.set()

    def move(self, log: FakeLog, leader: int, *, announce: bool = True) -> None:
        log.leader = leader
        log.epoch += 1
        log.partition_epoch += 1
        log.starts.append((log.epoch, log.end))
        if announce:
            self.change()

    def restart(self, number: int) -> None:
        name = self.names[number]
        self.nodes[name] = self.world.host(name).start(lambda ports: FakeBroker(self, name, ports))

    def topic_message(self, topic: str) -> pb.TopicMetadata:
        if topic not in self.ids:
            error = UnknownTopicOrPartitionError(f"there is no topic {topic}", topic=topic)
            return pb.TopicMetadata(topic=topic, error=to_message(error))
        logs = [(p, log) for p, log in self.logs.items() if p.topic == topic]
        partitions = []
        for partition, log in logs:
            message = common_pb2.Partition(
                partition=partition.partition,
                leader_epoch=log.epoch,
                partition_epoch=log.partition_epoch,
                replicas=range(len(self.names)),
            )
            if log.leader >= 0:
                message.leader = log.leader
            partitions.append(message)
        return pb.TopicMetadata(topic=topic, topic_id=self.ids[topic], partition_count=len(logs), partitions=partitions)

    def node_messages(self) -> list[common_pb2.Node]:
        return [
            common_pb2.Node(node_id=number, host=name, port=PORT)
            for number, name in enumerate(self.names)
            if self.world.host(name).alive
        ]


class FakeBroker:
    def __init__(self, cluster: FakeCluster, name: str, ports: Ports) -> None:
        self.cluster = cluster
        self.number = BrokerId(cluster.names.index(name))
        self.ports = ports
        self.address = f"{name}:{PORT}"

    async def run(self) -> None:
        service = Service(
            pb.DESCRIPTOR.services_by_name["Batches"],
            self.ports.clock,
            [
                unary("Metadata", pb.MetadataRequest, pb.MetadataResponse, self.metadata),
                downstream("WatchMetadata", pb.WatchMetadataRequest, pb.WatchMetadataResponse, self.watch),
                unary("Produce", pb.ProduceRequest, pb.ProduceResponse, self.produce),
                duplex(
                    "ProduceStream",
                    pb.ProduceStreamRequest,
                    pb.ProduceStreamResponse,
                    self.produce_stream,
                ),
                unary("Fetch", pb.FetchRequest, pb.FetchResponse, self.fetch),
                duplex("FetchStream", pb.FetchStreamRequest, pb.FetchStreamResponse, self.fetch_stream),
                unary("ListOffsets", pb.ListOffsetsRequest, pb.ListOffsetsResponse, self.list_offsets),
                unary(
                    "OffsetForLeaderEpoch",
                    pb.OffsetForLeaderEpochRequest,
                    pb.OffsetForLeaderEpochResponse,
                    self.epoch_ends,
                ),
                unary("InitProducerId", pb.InitProducerIdRequest, pb.InitProducerIdResponse, self.init_producer_id),
            ],
        )
        self.service = service
        await self.ports.network.listen(self.address, unary=service.unary(), streaming=service.streaming())
        await asyncio.Event().wait()

    def log_of(self, topic: str, partition: int) -> FakeLog:
        cluster = self.cluster
        log = cluster.logs.get(TopicPartition(topic, PartitionId(partition)))
        if log is None:
            raise UnknownTopicOrPartitionError(f"there is no {topic}-{partition}")
        if log.leader != self.number:
            details: dict[str, object] = {"leader_epoch": log.epoch}
            if log.leader >= 0:
                details |= {"leader": log.leader, "address": f"{cluster.names[log.leader]}:{PORT}"}
            raise NotLeaderError("another node leads it", **details)
        return log

    async def metadata(self, request: pb.MetadataRequest, call: Call) -> pb.MetadataResponse:
        cluster = self.cluster
        topics = sorted(cluster.ids) if request.all_topics else request.topics
        return pb.MetadataResponse(
            cluster_id="fake",
            nodes=cluster.node_messages(),
            topics=[cluster.topic_message(topic) for topic in topics],
            metadata_version=cluster.version,
        )

    async def watch(
        self, request: pb.WatchMetadataRequest, out: Responses[pb.WatchMetadataResponse], call: Call
    ) -> None:
        cluster = self.cluster
        known: dict[str, bytes] = {}
        sent: dict[tuple[bytes, int], common_pb2.Partition] = {}
        while True:
            changed = cluster.changed
            there = {topic: cluster.ids[topic] for topic in request.topics if topic in cluster.ids}
            gone = [topic_id for topic, topic_id in known.items() if there.get(topic) != topic_id]
            topics = [cluster.topic_message(topic) for topic in there]
            for topic in topics:
                news = [one for one in topic.partitions if sent.get((topic.topic_id, one.partition)) != one]
                sent |= {(topic.topic_id, one.partition): one for one in news}
                del topic.partitions[:]
                topic.partitions.extend(news)
            topics = [one for one in topics if one.partitions or one.topic not in known]
            known = there
            await out.send(
                pb.WatchMetadataResponse(
                    cluster_id="fake",
                    nodes=pb.NodeList(nodes=cluster.node_messages()),
                    topics=topics,
                    removed_topic_ids=gone,
                    metadata_version=cluster.version,
                    complete=True,
                )
            )
            await changed.wait()

    async def produce(self, request: pb.ProduceRequest, call: Call) -> pb.ProduceResponse:
        return pb.ProduceResponse(results=[self.append(part) for part in request.partitions])

    async def produce_stream(
        self,
        requests: Requests[pb.ProduceStreamRequest],
        out: Responses[pb.ProduceStreamResponse],
        call: Call,
    ) -> None:
        while (request := await requests.recv()) is not None:
            self.cluster.requests += 1
            results = [self.append(part) for part in request.partitions]
            delay_s = self.cluster.delay_s()
            if delay_s:
                await asyncio.sleep(delay_s)
            if request.acks == common_pb2.ACKS_NONE:
                results = [result for result in results if result.HasField("error")]
            if results:
                await out.send(pb.ProduceStreamResponse(results=results))

    def append(self, part: pb.PartitionBatches) -> pb.ProduceResult:
        partition = TopicPartition(part.topic, PartitionId(part.partition))
        result = pb.ProduceResult(
            topic=part.topic,
            topic_id=part.topic_id,
            partition=part.partition,
            correlation_id=part.correlation_id,
            base_offset=-1,
            log_append_time_ms=-1,
        )
        try:
            log = self.log_of(part.topic, part.partition)
            refused = self.cluster.before_append(partition)
            if refused is not None:
                raise refused
            result.base_offset = log.append(part.batches)
            result.leader_epoch = log.epoch
            refused = self.cluster.after_append(partition)
            if refused is not None:
                raise refused
        except StreamlogError as error:
            result.error.CopyFrom(to_message(error))
        self.cluster.wake()
        return result

    async def fetch(self, request: pb.FetchRequest, call: Call) -> pb.FetchResponse:
        return pb.FetchResponse(partitions=[self.read(part)[0] for part in request.partitions])

    def read(self, want: pb.FetchPartition) -> tuple[pb.FetchedPartition, bool]:
        """And whether there is something to send."""
        got = pb.FetchedPartition(
            topic=want.topic, topic_id=want.topic_id, partition=want.partition, correlation_id=want.correlation_id
        )
        try:
            log = self.log_of(want.topic, want.partition)
            got.high_watermark = got.last_stable_offset = log.end
            got.log_start = log.start
            if want.HasField("last_fetched_epoch"):
                epoch, end = log.end_of(want.last_fetched_epoch)
                if epoch < want.last_fetched_epoch or end < want.fetch_offset:
                    got.diverging_epoch.leader_epoch = epoch
                    got.diverging_epoch.end_offset = end
                    return got, True
            if not log.start <= want.fetch_offset <= log.end:
                raise OffsetOutOfRangeError(
                    f"offset {want.fetch_offset} is not in [{log.start}, {log.end}]",
                    log_start=log.start,
                    log_end=log.end,
                )
            data = b""
            end = want.end_offset if want.HasField("end_offset") else log.end
            for batch in log.batches:
                if want.fetch_offset >= end:
                    break
                if batch.next > want.fetch_offset and (not data or len(data) + len(batch.data) <= 1 << 16):
                    data += batch.data
                    want.fetch_offset = batch.next
                    want.last_fetched_epoch = batch.epoch
                elif data:
                    break
            got.batches = data
            for producer_id, first in log.aborted:
                got.aborted_transactions.add(producer_id=producer_id, first_offset=first)
            return got, bool(data)
        except StreamlogError as error:
            got.error.CopyFrom(to_message(error))
            return got, True

    async def fetch_stream(
        self, requests: Requests[pb.FetchStreamRequest], out: Responses[pb.FetchStreamResponse], call: Call
    ) -> None:
        wanted: dict[tuple[str, int], pb.FetchPartition] = {}
        news = asyncio.Event()

        async def listen() -> None:
            while (request := await requests.recv()) is not None:
                for gone in request.remove:
                    wanted.pop((gone.topic, gone.partition), None)
                for part in request.add:
                    wanted[part.topic, part.partition] = part
                news.set()

        listening = asyncio.ensure_future(listen())
        try:
            while not listening.done():
                appended, changed = self.cluster.appended, self.cluster.changed
                found = []
                for key, want in list(wanted.items()):
                    got, has_answer = self.read(want)
                    if has_answer:
                        found.append(got)
                    if got.HasField("error") or got.HasField("diverging_epoch"):
                        del wanted[key]
                if found:
                    await out.send(pb.FetchStreamResponse(partitions=found))
                    continue
                news.clear()
                waits = [asyncio.ensure_future(event.wait()) for event in (news, appended, changed)]
                try:
                    await asyncio.wait([*waits, listening], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
        finally:
            listening.cancel()

    async def list_offsets(self, request: pb.ListOffsetsRequest, call: Call) -> pb.ListOffsetsResponse:
        return pb.ListOffsetsResponse(offsets=[self.locate(query) for query in request.queries])

    def locate(self, query: pb.OffsetQuery) -> pb.FoundOffset:
        found = pb.FoundOffset(
            topic=query.topic, topic_id=query.topic_id, partition=query.partition, timestamp_ms=-1, leader_epoch=-1
        )
        try:
            log = self.log_of(query.topic, query.partition)
            match query.WhichOneof("place"):
                case "bound":
                    earliest = query.bound == common_pb2.OFFSET_BOUND_EARLIEST
                    found.offset = log.start if earliest else log.end
                case "timestamp_ms":
                    later = [record for record in log.records() if record.timestamp >= query.timestamp_ms]
                    found.offset = later[0].offset if later else -1
                    found.timestamp_ms = later[0].timestamp if later else -1
                case _:
                    newest = max(log.records(), key=lambda record: record.timestamp)
                    found.offset, found.timestamp_ms = newest.offset, newest.timestamp
            found.leader_epoch = log.epoch
        except StreamlogError as error:
            found.error.CopyFrom(to_message(error))
        return found

    async def epoch_ends(self, request: pb.OffsetForLeaderEpochRequest, call: Call) -> pb.OffsetForLeaderEpochResponse:
        ends = []
        for query in request.queries:
            epoch, end = self.log_of(query.topic, query.partition).end_of(query.leader_epoch)
            ends.append(
                pb.FoundEpoch(
                    topic=query.topic,
                    partition=query.partition,
                    end=pb.EpochEnd(leader_epoch=epoch, end_offset=end),
                )
            )
        return pb.OffsetForLeaderEpochResponse(ends=ends)

    async def init_producer_id(self, request: pb.InitProducerIdRequest, call: Call) -> pb.InitProducerIdResponse:
        self.cluster.producer_ids += 1
        return pb.InitProducerIdResponse(producer_id=self.cluster.producer_ids, producer_epoch=0)
