"""A check during the run, as the result at its end seldom shows the fault: these methods of the coordinator report.

I2   no marker leaves before its decision is below the high watermark: a decision that is lost with a leader must
     have reached no partition
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest import mock

from streamlog.coordinator.marker_writer import MarkerWriter
from streamlog.coordinator.transaction_shard import PreparedEnd, TransactionShard
from streamlog.model import Offset, TopicPartition

from .transaction_ledger import Wrong


@contextmanager
def looking(wrong: Wrong) -> Iterator[None]:
    decided: dict[int, tuple[PreparedEnd, Offset]] = {}  # by identity: held objects keep their identity
    begin, send = MarkerWriter.write, MarkerWriter._write

    @wraps(begin)
    def write(self: MarkerWriter, shard: TransactionShard, prepared: PreparedEnd) -> Collection[TopicPartition]:
        """Called in the step in which the decision is appended, or when it has been loaded."""
        decided[id(prepared)] = prepared, shard.log.replica.log_end_offset
        return begin(self, shard, prepared)

    @wraps(send)
    async def _write(self: MarkerWriter, node: Any, some: list[Any]) -> Any:
        for item in some:
            prepared, end = decided[id(item.job.prepared)]
            replica = item.job.shard.log.replica
            if replica.high_watermark < end:
                wrong("I2", f"a marker of {prepared} leaves at {replica.high_watermark}, its decision ends at {end}")
        return await send(self, node, some)

    with mock.patch.object(MarkerWriter, "write", write), mock.patch.object(MarkerWriter, "_write", _write):
        yield
