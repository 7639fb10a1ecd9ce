"""A large cluster that answers the console's calls at once: the console's own cost is measured on it.

    python -m tests.console.fake_cluster --data DIR --topics 1000 --partitions 6 --groups 200

serves the console on a free port, prints its address, and stops at Ctrl-C.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from streamlog.client.admin import group_values, transaction_values, values
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.model import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    RaftIndex,
    RaftTerm,
    TopicId,
    TopicPartition,
)

NODES = 3
RECORDS_PER_S = 100


class FakeAdmin:
    """As AsyncAdmin, for what the console reads. Each partition grows, each group reads two topics and lags."""

    def __init__(self, topics: int, partitions: int, groups: int) -> None:
        self._began_s = time.monotonic()
        self._names = [f"topic-{number:04}" for number in range(topics)]
        self._partitions, self._groups = partitions, groups

    async def start(self) -> FakeAdmin:
        return self

    async def close(self) -> None: ...

    def _end(self) -> int:
        return 1_000_000 + int((time.monotonic() - self._began_s) * RECORDS_PER_S)

    async def describe_cluster(self) -> values.ClusterDescription:
        count = len(self._names) * self._partitions
        nodes = tuple(
            values.NodeDescription(
                node_id=BrokerId(node),
                host="127.0.0.1",
                port=node,
                rack="",
                state=values.NodeState.FENCED,  # so that its release is not looked up
                broker_epoch=BrokerEpoch(1),
                draining=False,
                replica_count=count,
                leader_count=count // NODES,
                metadata_version_min=1,
                metadata_version_max=1,
            )
            for node in range(1, NODES + 1)
        )
        return values.ClusterDescription(
            cluster_id="large",
            controller=BrokerId(1),
            nodes=nodes,
            voters=(),
            quorum_term=RaftTerm(1),
            commit_index=RaftIndex(1),
            metadata_version=1,
            topic_count=len(self._names),
            partition_count=count,
            offline_partition_count=0,
            under_replicated_partition_count=0,
        )

    async def list_topics(self, *, include_internal: bool = False) -> tuple[values.TopicListing, ...]:
        return tuple(
            values.TopicListing(
                name=name,
                topic_id=TopicId(b"0" * 16),
                partition_count=self._partitions,
                replication_factor=NODES,
                internal=False,
            )
            for name in self._names
        )

    async def describe_topics(self, names: Iterable[str] = ()) -> tuple[values.TopicDescription, ...]:
        return tuple(map(self._topic, names))

    def _topic(self, name: str) -> values.TopicDescription:
        replicas = tuple(BrokerId(node) for node in range(1, NODES + 1))
        partitions = tuple(
            values.PartitionDescription(
                partition=PartitionId(number),
                leader=BrokerId(1 + number % NODES),
                leader_epoch=LeaderEpoch(1),
                partition_epoch=PartitionEpoch(1),
                replicas=replicas,
                isr=replicas,
                elr=(),
                adding=(),
                removing=(),
                offline=(),
            )
            for number in range(self._partitions)
        )
        return values.TopicDescription(
            name=name,
            topic_id=TopicId(b"0" * 16),
            partition_count=self._partitions,
            replication_factor=NODES,
            configs={},
            partitions=partitions,
            internal=False,
            error=None,
        )

    async def describe_configs(
        self, resources: Iterable[values.ConfigResource], *, names: Iterable[str] = ()
    ) -> tuple[values.ConfigDescription, ...]:
        return tuple(values.ConfigDescription(resource=one, entries=(), error=None) for one in resources)

    async def describe_log_dirs(self) -> tuple[values.NodeLogDirs, ...]:
        end = self._end()
        return tuple(
            values.NodeLogDirs(
                node_id=BrokerId(node),
                error=None,
                log_dirs=(
                    values.LogDir(
                        path="/data",
                        directory_id=b"",
                        total_bytes=1 << 40,
                        usable_bytes=1 << 39,
                        error=None,
                        replicas=tuple(
                            values.LogDirReplica(
                                at=TopicPartition(name, PartitionId(number)),
                                size_bytes=end * 100,
                                log_start=Offset(0),
                                log_end=Offset(end),
                            )
                            for name in self._names
                            for number in range(self._partitions)
                        ),
                    ),
                ),
            )
            for node in range(1, NODES + 1)
        )

    async def find_hanging_transactions(self, **_: object) -> transaction_values.OpenTransactions:
        return transaction_values.OpenTransactions(transactions=(), errors={})

    async def list_transactions(self) -> transaction_values.TransactionList:
        return transaction_values.TransactionList(transactions=(), errors={})

    async def preview_unclean_election(self, _: object = None) -> tuple[values.Election, ...]:
        return ()

    async def list_groups(self) -> group_values.GroupList:
        listed = tuple(
            group_values.GroupListing(
                group=f"group-{number:03}",
                state=group_values.GroupState.STABLE,
                member_count=1,
                coordinator=BrokerId(1),
            )
            for number in range(self._groups)
        )
        return group_values.GroupList(groups=listed, errors={})

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        first = 2 * int(group.split("-")[1])
        committed = OffsetAndMetadata(Offset(self._end() - first))
        read = [self._names[(first + number) % len(self._names)] for number in range(2)]
        return {
            TopicPartition(topic, PartitionId(number)): committed
            for topic in read
            for number in range(self._partitions)
        }

    async def describe_group(self, group: str) -> group_values.GroupDescription:
        return group_values.GroupDescription(
            group=group,
            state=group_values.GroupState.STABLE,
            group_epoch=1,
            target_epoch=1,
            assignor="uniform",
            coordinator=BrokerId(1),
            coordinator_address="127.0.0.1:1",
            members=(),
            error=None,
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    for name, count in (("topics", 1000), ("partitions", 6), ("groups", 200)):
        parser.add_argument(f"--{name}", type=int, default=count)
    given = parser.parse_args(argv)
    from streamlog.console import server

    def fake(_: Mapping[str, object], **__: Any) -> FakeAdmin:
        return FakeAdmin(given.topics, given.partitions, given.groups)

    with mock.patch.object(server, "AsyncAdmin", fake):
        try:
            server.serve({}, server.ServerOptions(data=given.data), lambda line: print(line, flush=True))
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
