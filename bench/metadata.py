"""The metadata image with 100,000 partitions: memory, and CPU time to change, write and read it.

The cluster has 12 nodes, 3 replicas for each partition, and 1,000 topics; every tenth partition was changed, so that
they differ. Memory is measured in a separate process that reads a snapshot, as a restarting node does.
"""

from __future__ import annotations

import gc
import random
import resource
import subprocess
import sys
from collections.abc import Mapping
from itertools import count
from typing import Final

from msgspec.structs import replace

from bench.figures import Figure
from bench.timing import best_cpu_seconds
from streamlog.config import Operation, Scope
from streamlog.metadata.brokers.liveness import FenceBroker, fence
from streamlog.metadata.convert import decode_batch, decode_snapshot_chunk, encode_batch
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext
from streamlog.metadata.image.delta import replay
from streamlog.metadata.image.image import EMPTY_IMAGE, MetadataImage
from streamlog.metadata.image.snapshot import LENGTH_BYTES, decode_snapshot, encode_snapshot
from streamlog.metadata.records import (
    Broker,
    BrokerRecord,
    ClusterRecord,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import PARTITIONS_PER_REQUEST_MAX, CreatableTopic, CreateTopics, create_topics
from streamlog.metadata.topics.placement import Tally, TopicPlacer
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, RaftIndex, TopicId

PARTITIONS: Final = 100_000
TOPICS: Final = 1_000
NODES: Final = 12
_BUDGET_S: Final = 4.0


class AnyConfig:
    """Configs are not what is measured."""

    def changed_value(self, scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
        return given

    def check_together(self, scope: Scope, values: Mapping[str, str]) -> None: ...


def run() -> list[Figure]:
    image = cluster(TOPICS, PARTITIONS // TOPICS)
    return [*snapshot(image), *_changes(image), *_decisions(image)]


def cluster(topics: int, partitions: int) -> MetadataImage:
    """So many topics of so many partitions each, on live nodes."""
    rng = random.Random(11)
    nodes = [_node(BrokerId(broker_id)) for broker_id in range(NODES)]
    records: list[MetadataRecord] = [MetadataVersionRecord(level=MetadataVersion(1)), ClusterRecord(cluster_id="bench")]
    records += (BrokerRecord(broker=node) for node in nodes)
    tally = Tally()
    for at in range(topics):
        topic_id = TopicId(rng.getrandbits(128).to_bytes(16, "big"))
        records.append(TopicRecord(topic_id=topic_id, name=f"topic-{at}"))
        placer = TopicPlacer(nodes, tally)
        for partition_id in range(partitions):
            replicas = placer.place(3)
            state = Partition(replicas=replicas, isr=replicas, leader=replicas[0], last_leader=replicas[0])
            if partition_id % 10 == 0:
                changes = rng.randrange(1, 1_000)
                state = replace(state, leader_epoch=LeaderEpoch(changes // 2), partition_epoch=PartitionEpoch(changes))
            records.append(PartitionRecord(topic_id=topic_id, partition_id=PartitionId(partition_id), partition=state))
    return replay(EMPTY_IMAGE, records, RaftIndex(1))


def _node(broker_id: BrokerId) -> Broker:
    return Broker(
        broker_id=broker_id,
        epoch=BrokerEpoch(1),
        incarnation_id=bytes(16),
        host=f"node{broker_id}",
        port=9092,
        metadata_version_min=MetadataVersion(1),
        metadata_version_max=MetadataVersion(1),
        fenced=False,
    )


def snapshot(image: MetadataImage) -> list[Figure]:
    """Its size, writing and reading it, memory."""
    chunks = list(encode_snapshot(image))
    stream = b"".join(chunks)
    seconds = best_cpu_seconds(
        {
            "write": lambda: [len(chunk) for chunk in encode_snapshot(image)],
            "read": lambda: decode_snapshot([stream]),
            "decode": lambda: [decode_snapshot_chunk(chunk[LENGTH_BYTES:]) for chunk in chunks],
        },
        budget_s=_BUDGET_S,
    )
    against = "decoding its records alone"
    return [
        Figure(name="snapshot, size", value=len(stream) / 1e6, unit="MB", less_is_better=True),
        Figure(name="snapshot, written in", value=seconds["write"], unit="s", less_is_better=True),
        Figure(
            name="snapshot, read in (full reload)",
            value=seconds["read"],
            unit="s",
            less_is_better=True,
            ratio=seconds["decode"] / seconds["read"],
            yardstick=against,
        ),
        Figure(name="memory of the image", value=_resident_mb(stream), unit="MB", less_is_better=True),
    ]


def _changes(image: MetadataImage) -> list[Figure]:
    """One ISR change, against a copy of one dict of all partitions."""
    key = next(iter(image.topics))
    change = PartitionChangeRecord(topic_id=key, partition_id=PartitionId(7), isr=(BrokerId(1),))
    table = dict(image.partitions())
    index = count(2)
    seconds = best_cpu_seconds(
        {
            "one": lambda: [replay(image, [change], RaftIndex(next(index))) for _ in range(100)],
            "copy": lambda: [dict(table) for _ in range(10)],
        },
        budget_s=_BUDGET_S / 2,
    )
    return [
        Figure(
            name="one change: the next image",
            value=seconds["one"] / 100 * 1e6,
            unit="us",
            less_is_better=True,
            ratio=seconds["copy"] / 10 / (seconds["one"] / 100),
            yardstick="copying a dict of all partitions",
        )
    ]


def _decisions(image: MetadataImage) -> list[Figure]:
    """The longest steps of the controller's loop, which must stay well below the election time-out."""
    context = ControllerContext(
        settings=ControllerSettings(), configs=AnyConfig(), random=random.Random(1), sessions=()
    )
    fencing = FenceBroker(broker_id=BrokerId(0), broker_epoch=BrokerEpoch(1))
    creation = CreateTopics(topics=(CreatableTopic(name="new", partitions=PARTITIONS_PER_REQUEST_MAX),))
    fenced = encode_batch(fence(fencing, image, context).records)
    created = encode_batch(create_topics(creation, image, context).records)
    seconds = best_cpu_seconds(
        {
            "fence": lambda: encode_batch(fence(fencing, image, context).records),
            "apply fence": lambda: replay(image, decode_batch(fenced), RaftIndex(2)),
            "create": lambda: encode_batch(create_topics(creation, image, context).records),
            "apply create": lambda: replay(image, decode_batch(created), RaftIndex(2)),
        },
        budget_s=_BUDGET_S,
    )
    names = {
        "fence": f"fencing, one command of {BATCH_RECORDS} changes: decided",
        "apply fence": "... applied, on every node",
        "create": f"creating {PARTITIONS_PER_REQUEST_MAX} partitions: decided",
        "apply create": "... applied, on every node",
    }
    return [
        Figure(name=name, value=seconds[part] * 1e3, unit="ms", less_is_better=True) for part, name in names.items()
    ]


def _resident_mb(stream: bytes) -> float:
    """What reading the snapshot adds to a process that has the code loaded."""
    child = subprocess.run([sys.executable, "-m", "bench.metadata"], input=stream, capture_output=True, check=True)
    return float(child.stdout)


def _measure_resident() -> None:
    stream = sys.stdin.buffer.read()
    chunk = 1 << 16
    pieces = [stream[at : at + chunk] for at in range(0, len(stream), chunk)]
    del stream
    decode_snapshot(encode_snapshot(EMPTY_IMAGE))
    gc.collect()
    before = _resident_bytes()
    image = decode_snapshot(pieces)
    gc.collect()
    print((_resident_bytes() - before) / 1e6)
    assert image.partition_count


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    _measure_resident()
