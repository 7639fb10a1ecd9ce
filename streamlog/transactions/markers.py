"""The end of a transaction, as one partition is to learn of it."""

from __future__ import annotations

from msgspec import Struct

from streamlog.model import ProducerEpoch, ProducerId, TopicPartition
from streamlog.records import EndTransactionMarker


class PartitionMarker(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch  # above that of the transaction
    marker: EndTransactionMarker
