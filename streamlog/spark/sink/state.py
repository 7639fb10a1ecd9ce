"""The decisions of a sink, and their rules. Pure; `commit` has the protocol, with the reasons.

    SinkState --take over--> another run owns it --decide--> batch and writers --decide--> ...

Durable in the sink's log: one record for each decision; the last one is the state.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.client import PreparedTransaction
from streamlog.spark.failures import StreamlogSparkError

NO_BATCH: Final = -1
PREFIX: Final = "spark-sink"
# How many ended runs are kept: a driver that pauses during that many restarts of its query would count as a new one.
RETIRED_MAX: Final = 256


class TaskTransaction(Struct, frozen=True, order=True):
    """A task's prepared transaction, to be ended by the driver."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def prepared(self) -> PreparedTransaction:
        return PreparedTransaction(self.producer_id, self.producer_epoch)


class SinkState(Struct, frozen=True, kw_only=True):
    """Of one sink. `batch` is the last one decided, `writers` are its transactions: all are committed, or will be
    committed by the run that finds them open. Empty also after one of them was lost, which was reported.
    """

    owner: str = ""  # the run that may decide; empty: no run has decided yet
    retired: tuple[str, ...] = ()  # runs that may not, the latest last; the owner, too, once it aborts
    batch: int = NO_BATCH
    writers: tuple[TaskTransaction, ...] = ()

    def to_bytes(self) -> bytes:
        rows = [[one.transactional_id, one.producer_id, one.producer_epoch] for one in self.writers]
        text = {"owner": self.owner, "retired": self.retired, "batch": self.batch, "writers": rows}
        return zlib.compress(json.dumps(text, separators=(",", ":")).encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> SinkState:
        """StreamlogSparkError."""
        try:
            found = json.loads(zlib.decompress(data))
            return cls(
                owner=found["owner"],
                retired=tuple(found["retired"]),
                batch=found["batch"],
                writers=tuple(TaskTransaction(*row) for row in found["writers"]),
            )
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise StreamlogSparkError(f"the sink's log has an invalid record: {error!r}") from None


def transactional_id(sink: str, run: str, task: str) -> str:
    """No part has a slash."""
    return f"{PREFIX}/{sink}/{run}/{task}"


def driver_id(sink: str) -> str:
    """Under which a driver decides."""
    return f"{PREFIX}/{sink}"


def run_of(sink: str, name: str) -> str | None:
    """Whose task has this transactional id; None: no task of the sink's."""
    parts = name.split("/")
    return parts[2] if len(parts) == 4 and parts[:2] == [PREFIX, sink] else None


def check_not_retired(state: SinkState, run: str) -> None:
    """StreamlogSparkError."""
    if run in state.retired:
        if state.owner in ("", run):  # no other run has decided since
            raise StreamlogSparkError(
                f"run {run} can no longer write: it has aborted a micro-batch; start the query again"
            )
        raise StreamlogSparkError(
            f"run {run} can no longer write: another run of this query has taken over its sink, whose owner is now run"
            f" {state.owner}; or run {run} has aborted a micro-batch: then start the query again"
        )


def decided(
    state: SinkState, run: str, batch: int, writers: Iterable[TaskTransaction], open_runs: Iterable[str]
) -> SinkState:
    """`run` owns the sink and this batch is committed. `open_runs`: the runs of all open transactions; any other run
    than this one is retired.
    """
    gone = [one for one in (state.owner, *sorted(set(open_runs))) if one and one != run]
    return replace(retiring(state, *gone), owner=run, batch=batch, writers=tuple(sorted(writers)))


def retiring(state: SinkState, *runs: str) -> SinkState:
    """These can no longer decide."""
    return replace(state, retired=tuple(dict.fromkeys((*state.retired, *runs)))[-RETIRED_MAX:])


def taken_over(state: SinkState, run: str, open_runs: Iterable[str]) -> SinkState:
    """As `decided`, with the batch of the previous decision."""
    return decided(state, run, state.batch, state.writers, open_runs)


def may_abort(state: SinkState, run: str, name: str, sink: str) -> bool:
    """Whether no run can decide this open transaction any more, now that `state` is durable."""
    whose = run_of(sink, name)
    return (
        whose is not None
        and (whose == run or whose in state.retired)
        and all(name != one.transactional_id for one in state.writers)
    )
