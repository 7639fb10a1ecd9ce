"""Replicas on this node by partition, and the traffic of clients by topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from streamlog.broker.following.follower_links import FollowerLinks
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.table.replica import Replica
from streamlog.broker.table.replicas import Replicas
from streamlog.metrics.families import Family, Labels, Sample, counter, gauge, single

PARTITIONS_AT_ONCE: Final = 128
"""Collected before the scrape yields to the event loop: about a quarter of a millisecond."""


async def partition_families(replicas: Replicas, links: FollowerLinks, *, per_partition: bool) -> list[Family]:
    """`per_partition`: False leaves out the series of single partitions, and keeps the totals."""
    table = _Table(lacks_descriptors=replicas.lacks_descriptors)
    async for replica in _in_turns(replicas):
        table.add(replica)
    refused = counter(
        "streamlog_replication_messages_refused_total",
        "Messages of leaders that this node refused as a follower: corrupt, or not valid.",
        single(links.refused_messages),
    )
    return [*table.totals(), *(table.families() if per_partition else []), *_traffic(replicas), refused]


async def _in_turns(replicas: Replicas) -> AsyncIterator[Replica]:
    for number, replica in enumerate(replicas.all_replicas(), 1):
        yield replica
        if number % PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)


class _Table:
    """The samples of one scrape."""

    def __init__(self, *, lacks_descriptors: bool) -> None:
        self._lacks_descriptors = lacks_descriptors
        self.replicas = self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.offline = self.not_created = 0
        self._log_start: list[Sample] = []
        self._log_end: list[Sample] = []
        self._high_watermark: list[Sample] = []
        self._size: list[Sample] = []
        self._segments: list[Sample] = []
        self._is_leader: list[Sample] = []
        self._isr_size: list[Sample] = []
        self._uncommitted: list[Sample] = []
        self._follower_lag: list[Sample] = []

    def add(self, replica: Replica) -> None:
        self.replicas += 1
        self.offline += replica.refusal is not None
        self.not_created += replica.log is None and replica.refusal is None
        labels = (replica.partition.topic, str(replica.partition.partition))
        if replica.log is not None:
            self._log_start.append((labels, replica.log.log_start_offset))
            self._log_end.append((labels, replica.log.log_end_offset))
            self._high_watermark.append((labels, replica.high_watermark))
            self._size.append((labels, replica.log.size_bytes))
            self._segments.append((labels, len(replica.log.segments)))
        self._is_leader.append((labels, int(replica.leader is not None)))
        if replica.leader is not None:
            self._add_leader(labels, replica.leader)

    def _add_leader(self, labels: Labels, leader: LeaderReplica) -> None:
        state = leader.state
        in_sync = len(state.isr.committed)
        self.leaders += 1
        self.under_replicated += in_sync < len(state.replicas)
        self.under_min_isr += in_sync < state.min_isr
        self.at_min_isr += in_sync == state.min_isr < len(state.replicas)
        self._isr_size.append((labels, in_sync))
        self._uncommitted.append((labels, leader.log_end_offset - leader.high_watermark))
        for broker, lag in state.lags():
            self._follower_lag.append(((*labels, str(broker)), lag))

    def totals(self) -> list[Family]:
        return [
            gauge("streamlog_replicas", "Replicas on this node.", single(self.replicas)),
            gauge("streamlog_leaders", "Partitions that this node leads.", single(self.leaders)),
            gauge(
                "streamlog_under_replicated_partitions",
                "Partitions led by this node with fewer in-sync replicas than replicas.",
                single(self.under_replicated),
            ),
            gauge(
                "streamlog_under_min_isr_partitions",
                "Partitions led by this node with too few in-sync replicas: acks=all is refused.",
                single(self.under_min_isr),
            ),
            gauge(
                "streamlog_at_min_isr_partitions",
                "Partitions led by this node that may not lose another in-sync replica.",
                single(self.at_min_isr),
            ),
            gauge(
                "streamlog_offline_replicas",
                "Replicas of this node that cannot serve: their disk failed or their log is damaged.",
                single(self.offline),
            ),
            gauge(
                "streamlog_replicas_waiting_for_descriptors",
                "New replicas of this node that have no log, since the process may open no more files.",
                single(self.not_created if self._lacks_descriptors else 0),
            ),
        ]

    def families(self) -> list[Family]:
        own = ("topic", "partition")
        return [
            gauge("streamlog_log_start_offset", "First offset of the log on this node.", self._log_start, own),
            gauge("streamlog_log_end_offset", "Offset that the next record will get.", self._log_end, own),
            gauge("streamlog_high_watermark", "Offset up to which records are committed.", self._high_watermark, own),
            gauge("streamlog_log_size_bytes", "Size of the log's segments on this node.", self._size, own),
            gauge("streamlog_log_segments", "Segments of the log on this node.", self._segments, own),
            gauge("streamlog_is_leader", "1 where this node leads the partition.", self._is_leader, own),
            gauge("streamlog_isr_size", "In-sync replicas, as the leader knows them.", self._isr_size, own),
            gauge(
                "streamlog_uncommitted_records",
                "Records of the leader's log above the high watermark.",
                self._uncommitted,
                own,
            ),
            gauge(
                "streamlog_follower_lag_records",
                "Records that a follower has not confirmed yet, as its leader knows it.",
                self._follower_lag,
                (*own, "follower"),
            ),
        ]


def _traffic(replicas: Replicas) -> list[Family]:
    traffic = [((topic,), one) for topic, one in replicas.traffic]
    topic = ("topic",)
    return [
        counter(
            "streamlog_topic_records_in_total",
            "Records appended by this node as leader.",
            [(labels, one.records_in) for labels, one in traffic],
            topic,
        ),
        counter(
            "streamlog_topic_bytes_in_total",
            "Bytes appended by this node as leader, as they are stored.",
            [(labels, one.bytes_in) for labels, one in traffic],
            topic,
        ),
        counter(
            "streamlog_topic_bytes_out_total",
            "Bytes read from this node by consumers.",
            [(labels, one.bytes_out) for labels, one in traffic],
            topic,
        ),
        counter(
            "streamlog_topic_replication_bytes_in_total",
            "Bytes appended by this node as follower.",
            [(labels, one.replicated_in) for labels, one in traffic],
            topic,
        ),
        counter(
            "streamlog_topic_replication_bytes_out_total",
            "Bytes sent by this node, as leader, to followers.",
            [(labels, one.replicated_out) for labels, one in traffic],
            topic,
        ),
        counter(
            "streamlog_topic_corrupt_batches_refused_total",
            "Requests of producers that this node refused as leader: wrong checksums, records that cannot be decoded.",
            [(labels, one.refused_batches) for labels, one in traffic],
            topic,
        ),
        counter(
            "streamlog_topic_corrupt_batches_skipped_total",
            "Stored batches that cannot be decoded, skipped for clients of Subscribe and Consume by their choice.",
            [(labels, one.skipped_batches) for labels, one in traffic],
            topic,
        ),
    ]
