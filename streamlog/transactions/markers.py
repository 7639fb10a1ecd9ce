"""Markers: what a partition's leader receives at the end of a transaction."""

from __future__ import annotations

from msgspec import Struct

from streamlog.errors import StreamlogError
from streamlog.model import ProducerEpoch, ProducerId, TopicPartition
from streamlog.records import EndTransactionMarker


class PartitionMarker(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch  # above that of the transaction
    marker: EndTransactionMarker
    opens_next: bool = False  # the partition is part of the next transaction; no verification is needed


class MarkerOutcome(Struct, frozen=True):
    error: StreamlogError | None = None  # None: written and replicated
    ended: bool = False  # a transaction was open there


class Grant(Struct, frozen=True, kw_only=True):
    """What markers granted with `opens_next`."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
