"""Operation histories of clients (as in Jepsen), which the invariants are checked against.

A row is opened when the operation is invoked and closed once: OK (it was carried out), FAIL (it certainly was not),
INFO (unknown: a time-out, a broken connection). A row that is never closed counts as INFO. Values are unique, so that
each record read can be traced to the row that sent it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator

from msgspec import Struct, field
from msgspec.structs import asdict

from streamlog.model import LeaderEpoch, Offset, ProducerId, TopicPartition


class Outcome(enum.Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Row(Struct, kw_only=True):
    """One operation of one process. Times in virtual seconds; what does not apply is None."""

    process: str
    operation: str  # "produce", "poll", "commit", ...
    invoked: float
    completed: float | None = None
    outcome: Outcome = Outcome.INFO
    partition: TopicPartition | None = None
    epoch: LeaderEpoch | None = None
    producer_id: ProducerId | None = None
    sequence: int | None = None
    offset: Offset | None = None
    value: bytes | None = None
    error: str = ""


class OperationHistory(Struct):
    """Rows in the order of their invocation; appended to by every client of a run."""

    now: Callable[[], float]
    rows: list[Row] = field(default_factory=list)

    def invoke(
        self,
        process: str,
        operation: str,
        *,
        partition: TopicPartition | None = None,
        producer_id: ProducerId | None = None,
        sequence: int | None = None,
        value: bytes | None = None,
    ) -> Row:
        row = Row(
            process=process,
            operation=operation,
            invoked=self.now(),
            partition=partition,
            producer_id=producer_id,
            sequence=sequence,
            value=value,
        )
        self.rows.append(row)
        return row

    def ok(self, row: Row, *, offset: Offset | None = None, epoch: LeaderEpoch | None = None) -> None:
        self._close(row, Outcome.OK)
        row.offset, row.epoch = offset, epoch

    def fail(self, row: Row, error: str) -> None:
        """Only for errors that guarantee that nothing was done."""
        self._close(row, Outcome.FAIL)
        row.error = error

    def info(self, row: Row, error: str) -> None:
        self._close(row, Outcome.INFO)
        row.error = error

    def _close(self, row: Row, outcome: Outcome) -> None:
        if row.completed is not None:
            raise ValueError(f"closed twice: {row}")
        row.completed, row.outcome = self.now(), outcome

    def select(self, operation: str, outcome: Outcome | None = None) -> Iterator[Row]:
        for row in self.rows:
            if row.operation == operation and (outcome is None or row.outcome is outcome):
                yield row

    def lines(self) -> Iterator[str]:
        """One JSON object a row, for a human and for `diff`; values as text where they are text."""
        for row in self.rows:
            fields = {key: value for key, value in asdict(row).items() if value not in (None, "")}
            fields["outcome"] = row.outcome.value
            if row.partition is not None:
                fields["partition"] = str(row.partition)
            if row.value is not None:
                fields["value"] = row.value.decode("utf-8", "backslashreplace")
            yield json.dumps(fields)
