"""What a reader of committed records leaves out of the batches that it is given: those of aborted transactions.

The node tells with the batches which transactions in their range were aborted, by producer and first offset. From that
offset on the producer's transactional batches are passed over, up to its abort marker, as Kafka's consumer does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from streamlog.ports import Buffer
from streamlog.records import BatchHeader, EndTransactionMarker, decode_batch, decode_control


class Aborted:
    """Of one partition, read onwards; `clear` it to go elsewhere."""

    __slots__ = ("_aborting", "_starts")

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []  # (first offset, producer id), a heap
        self._aborting: set[int] = set()  # producers whose transaction is being passed over

    def clear(self) -> None:
        self._starts.clear()
        self._aborting.clear()

    def add(self, aborted: Iterable[tuple[int, int]]) -> None:
        """(first offset, producer id) of each that the next batches are of. One that goes on is told again."""
        for start in aborted:
            heapq.heappush(self._starts, start)

    def passes_over(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch here, the next one, is none of committed records. A control batch never is.

        What `decode_batch` raises, of a control batch.
        """
        while self._starts and self._starts[0][0] <= header.last_offset:
            self._aborting.add(heapq.heappop(self._starts)[1])
        if header.is_control:
            self._on_control(data, position, header)
            return True
        return header.is_transactional and header.producer_id in self._aborting

    def on_unreadable(self, header: BatchHeader) -> None:
        """A control batch that cannot be decoded is passed over: whatever it said, its producer's transaction ended."""
        self._aborting.discard(header.producer_id)

    def _on_control(self, data: Buffer, position: int, header: BatchHeader) -> None:
        for record in decode_batch(data, position):
            marker = decode_control(record)
            if isinstance(marker, EndTransactionMarker) and not marker.commit:
                self._aborting.discard(header.producer_id)
