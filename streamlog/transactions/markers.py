"""The end of a transaction, as one partition is to learn of it."""

from __future__ import annotations

from dataclasses import dataclass

from streamlog.model import ProducerEpoch, ProducerId, TopicPartition
from streamlog.records import EndTransactionMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMarker:
    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch  # above that of the transaction
    marker: EndTransactionMarker
