"""Which fetched batches a read_committed reader skips: those of aborted transactions.

The leader sends, with the batches, the aborted transactions in their range, by producer and first offset. From that
offset on the producer's transactional batches are skipped, up to its abort marker, as Kafka's consumer does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from streamlog.ports import Buffer
from streamlog.records import BatchHeader, EndTransactionMarker, decode_batch, decode_control


class AbortedTransactions:
    """Of one partition that is read forwards; `clear` it before a seek."""

    __slots__ = ("_aborting", "_starts")

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []  # (first offset, producer id), a heap
        self._aborting: set[int] = set()  # producers whose transaction is being skipped

    def clear(self) -> None:
        self._starts.clear()
        self._aborting.clear()

    def add(self, aborted: Iterable[tuple[int, int]]) -> None:
        """(first offset, producer id) of each in the range of the next batches. One may be added again."""
        for start in aborted:
            heapq.heappush(self._starts, start)

    def skips(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch here, the next one, is to be skipped: a control batch, or one of an aborted transaction.

        Raises what `decode_batch` raises of a control batch.
        """
        while self._starts and self._starts[0][0] <= header.last_offset:
            self._aborting.add(heapq.heappop(self._starts)[1])
        if header.is_control:
            self._on_control(data, position, header)
            return True
        return header.is_transactional and header.producer_id in self._aborting

    def on_unreadable(self, header: BatchHeader) -> None:
        """A control batch that cannot be decoded was skipped: commit or abort, it ended its producer's transaction."""
        self._aborting.discard(header.producer_id)

    def _on_control(self, data: Buffer, position: int, header: BatchHeader) -> None:
        for record in decode_batch(data, position):
            marker = decode_control(record)
            if isinstance(marker, EndTransactionMarker) and not marker.commit:
                self._aborting.discard(header.producer_id)
