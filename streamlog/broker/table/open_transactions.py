"""The open transactions of a partition, which hold its last stable offset: for operators."""

from __future__ import annotations

from msgspec import Struct

from streamlog.model import Offset, ProducerEpoch, ProducerId
from streamlog.storage.log.log import Log


class PartitionTransaction(Struct, frozen=True, kw_only=True):
    """As the log knows it; its coordinator may know it or not (then it hangs)."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int  # of the producer's last marker; -1: none
    first_offset: Offset
    # By the producers' clocks, or the node's with LogAppendTime. After a restart perhaps of a later batch.
    since_ms: int


def open_transactions(log: Log, *, begun_before_ms: int | None = None) -> list[PartitionTransaction]:
    """Those that are open in a leader's or follower's log, the oldest first: the first one holds the last stable
    offset. `begun_before_ms`: only those that were opened before that time.
    """
    return [
        PartitionTransaction(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=producer.coordinator_epoch,
            first_offset=producer.transaction_start,
            since_ms=producer.transaction_timestamp_ms,
        )
        for producer in log.producers.in_transaction()
        if begun_before_ms is None or producer.transaction_timestamp_ms < begun_before_ms
    ]
