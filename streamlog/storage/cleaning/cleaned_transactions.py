"""Transactions under compaction (KIP-98, KIP-534): which batches belong to aborted ones, which markers can be removed.

A cleaning reads the batches of a log in order, from the first one on, and passes each to this object:

    batch of an aborted transaction     its records are removed, whatever their keys
    marker                              stays while the log has batches of its transaction. Once none is left, it gets a
                                        delete horizon, `delete.retention.ms` from then, and is removed after it
    entry of `.txnindex`                stays while the log has batches of its transaction

So a reader in the middle of a transaction finds its end. All transactions here are decided: a cleaning ends below the
last stable offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from streamlog.model import ProducerId
from streamlog.records import BatchHeader, EndTransactionMarker
from streamlog.storage.segments.transaction_index import AbortedTransaction


class CleanedTransactions:
    """One pass over a log. Used by one worker at a time."""

    __slots__ = ("_aborted", "_coming", "_committed", "_kept", "_met")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: all with offsets in the range to be read, by rising first offset."""
        self._coming = deque(aborted)
        self._aborted: dict[ProducerId, AbortedTransaction] = {}  # started, not ended yet
        self._met: set[ProducerId] = set()  # those of `_aborted` that have batches
        self._committed: set[ProducerId] = set()  # with batches of a transaction that is not aborted
        self._kept: list[AbortedTransaction] = []

    def drops(self, header: BatchHeader) -> bool:
        """Whether the records of this batch are of an aborted transaction."""
        if not header.is_transactional:
            return False
        self._follow(header)
        producer_id = header.producer_id
        aborted = self._aborted.get(producer_id)
        if aborted is not None and header.last_offset < aborted.last_offset:
            self._met.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def releases(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Whether no reader needs this control batch any more. `marker` as of `markers.marker_in`."""
        if marker is None:
            return header.has_producer and not header.record_count  # its record was removed earlier
        self._follow(header)
        producer_id = header.producer_id
        if marker.commit:
            needed = producer_id in self._committed
            self._committed.discard(producer_id)
            return not needed
        aborted = self._aborted.pop(producer_id, None)
        if producer_id not in self._met or aborted is None:
            return True
        self._met.discard(producer_id)
        self._kept.append(aborted)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """What stays in the index since the last call, by rising last offset."""
        kept, self._kept = self._kept, []
        return kept

    def _follow(self, header: BatchHeader) -> None:
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            begun = self._coming.popleft()
            self._aborted[begun.producer_id] = begun
