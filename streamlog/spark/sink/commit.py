"""The sink: each micro-batch is written once, or not at all, whatever dies. The protocol, and its driver's half.

    task    rows -> a transaction of its own, prepared (two-phase commit: it has no time-out) -> message to the driver
    driver  all tasks are done:  decide (`decision_log`) -> commit each transaction -> Spark writes its commit log

Spark begins a micro-batch anew that is not in its commit log, under the same number, with a run id of its own. It has
no place for what our tasks have prepared, so that stands in the sink's log: SinkState, one record a decision.

    commit(batch b, writers W) of run r:
      1  open the log: every other driver of the sink is fenced, its last decision is read        (a run's first time)
      2  r has been retired: refuse
      3  another run owns the sink: commit the writers that it decided on, and own it
      4  b was decided: abort W; done
      5  W must be open, as prepared
      6  write that b is W                  <- the decision: before it b is written by nobody, after it by W alone
      7  commit each of W, until it is committed
      8  abort what is open and can be decided by nobody any more

Why it is exactly once.
- Of two drivers that decide on b, one is refused: both write under the sink's transactional id, and the second one's
  opening of the log fences the first or finds its decision (1, 4, 6).
- A driver that dies after 6 leaves W prepared. Spark asks for b again; the next run finds the decision, commits W (3),
  and aborts what it has written itself (4). So before Spark goes on to b + 1, b is complete.
- W stays as it is until it is committed. Prepared, it has no time-out. A task's transactional id has sink, run and
  task attempt in it; another attempt never begins under it while it is open: a run's ids are used again after 65,536
  task attempts of its application, thus by a later micro-batch, thus after 7. (That two attempts of one micro-batch
  are so far apart and share an id is found by 5, unless the older one begins between 5 and 7.)
- What is aborted (8) is decided by nobody: it is of this run, which decides one micro-batch at a time, or of a run
  that has been retired durably, in the decision of 6 or in that of 3, and refuses to decide since (2). A run that was
  not known before is retired, if it has something open, in the same way, before anything of it is aborted.

So a task that is killed, tried again or run twice (speculation) writes nothing that is seen; what it left open is
aborted at the next commit, and by the driver's next start at the latest. Until then readers of committed records wait
behind it.

`abort` comes from Spark when a task or a commit has failed, and looks at the log first: the decision may be durable
although its answer was lost.

A batch query that has no sinkId will not be begun anew under its name, so there is nothing to decide: its transactions
have a time-out, and are committed one by one (`sink`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from streamlog.client import Admin
from streamlog.client.admin.transaction_values import TransactionDescription, TransactionState
from streamlog.config.client_settings import ADMIN
from streamlog.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    StreamlogError,
    UnknownProducerIdError,
)
from streamlog.spark.failures import StreamlogSparkError
from streamlog.spark.options import settings_for
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.sink.decision_log import SinkLog
from streamlog.spark.sink.state import (
    SinkState,
    TaskTransaction,
    check_not_retired,
    decided,
    may_abort,
    run_of,
    taken_over,
)

_log = logging.getLogger(__name__)

_NAMED_MAX: Final = 3
_ENDED_AT_ONCE: Final = 16
# Of one process: its id, the sink, the run, and how it speaks to the cluster.
_Key = tuple[int, str, str, frozenset[tuple[str, str]]]
_drivers: dict[_Key, SinkDriver] = {}


def driver_of(sink: str, run: str, client: Mapping[str, str]) -> SinkDriver:
    """The one of this process, which Spark uses again for the next commit; made where there is none."""
    key = (os.getpid(), sink, run, frozenset(client.items()))
    found = _drivers.get(key)
    if found is None:
        for other in [one for one in _drivers if one[1] == sink]:
            _drivers.pop(other).close()
        found = _drivers[key] = SinkDriver(sink, run, client)
    return found


def forget(driver: SinkDriver) -> None:
    """After an error: the next one begins by opening the log."""
    for key in [key for key, one in _drivers.items() if one is driver]:
        del _drivers[key]
    driver.close()


def open_names(admin: Admin, sink: str) -> list[str]:
    """Of the sink's open transactions, as far as nodes answer; the rest is for the next time. StreamlogError."""
    found = admin.list_transactions(states=[TransactionState.ONGOING])
    return [one.transactional_id for one in found.transactions if run_of(sink, one.transactional_id)]


def abort_open(admin: Admin, names: Sequence[str]) -> None:
    """Those of them that are open still. StreamlogError."""
    for found in admin.describe_transactions(names) if names else ():
        if found.error is None and found.state is TransactionState.ONGOING:
            left = TaskTransaction(found.transactional_id, found.producer_id, found.producer_epoch)
            try:
                admin.end_prepared_transaction(left.transactional_id, left.prepared, commit=False)
            except (ProducerFencedError, UnknownProducerIdError, InvalidTransactionStateError):
                pass  # it has ended meanwhile


class SinkDriver:
    """Of one sink and one run, at the driver. One thread."""

    def __init__(self, sink: str, run: str, client: Mapping[str, str]) -> None:
        self._sink = sink
        self._run = run
        self._client = dict(client)
        self._log: SinkLog | None = None
        self._admin = Admin(settings_for(ADMIN, self._client), thread=loop_thread())

    def close(self) -> None:
        """Idempotent."""
        self._admin.close()
        if self._log is not None:
            self._log.close()

    def commit(self, batch: int, writers: Sequence[TaskTransaction]) -> bool:
        """Steps 1 to 8; True where this call decided, False where the batch had been decided before. StreamlogError,
        StreamlogSparkError: `forget` it then.
        """
        log = self._opened()
        state = log.state
        names = open_names(self._admin, self._sink)
        open_runs = [run for name in names if (run := run_of(self._sink, name)) is not None]
        if batch <= state.batch or state.owner not in ("", self._run):
            self._end(state.writers, commit=True)
        if batch <= state.batch:
            if state.owner != self._run:
                log.decide(taken_over(state, self._run, open_runs))
            _log.warning("sink %s: batch %d was written before; what was written again is aborted", self._sink, batch)
            self._abort_leftovers(log.state, names)
            return False
        if not writers and state.owner == self._run:
            return False  # nothing to decide, and nothing of another run to be ended
        self._check_prepared(writers)
        log.decide(decided(state, self._run, batch, writers, open_runs))
        self._end(writers, commit=True)
        self._abort_leftovers(log.state, names)
        return True

    def abort(self, batch: int, writers: Sequence[TaskTransaction]) -> None:
        """Of what Spark gives up; the batch may have been decided all the same. What its other tasks have open goes
        too: this run decides nothing of it any more.
        """
        log = self._opened()
        if batch <= log.state.batch:
            self._end(log.state.writers, commit=True)
        kept = set(log.state.writers)
        self._end([one for one in writers if one not in kept], commit=False)
        self._abort_leftovers(log.state, open_names(self._admin, self._sink))

    def _opened(self) -> SinkLog:
        if self._log is None:
            self._log = SinkLog(self._sink, self._client)
        check_not_retired(self._log.state, self._run)
        return self._log

    def _check_prepared(self, writers: Sequence[TaskTransaction]) -> None:
        described = self._admin.describe_transactions([one.transactional_id for one in writers])
        missing = [one for one, found in zip(writers, described, strict=True) if not _is_open(one, found)]
        if missing:
            names = ", ".join(one.transactional_id for one in missing[:_NAMED_MAX])
            raise StreamlogSparkError(f"what tasks had written was aborted before it was committed: {names}")

    def _end(self, writers: Iterable[TaskTransaction], *, commit: bool) -> None:
        """Some at a time. Raises the first error, after all were tried."""
        with ThreadPoolExecutor(_ENDED_AT_ONCE) as pool:
            errors = [one for one in pool.map(lambda each: self._end_one(each, commit=commit), writers) if one]
        if errors:
            raise errors[0]

    def _end_one(self, writer: TaskTransaction, *, commit: bool) -> Exception | None:
        try:
            self._admin.end_prepared_transaction(writer.transactional_id, writer.prepared, commit=commit)
        except (ProducerFencedError, UnknownProducerIdError) as error:
            if commit and isinstance(error, ProducerFencedError):
                return self._check_committed(writer)
        except InvalidTransactionStateError as error:
            return error if commit else None
        except StreamlogError as error:
            return error
        return None

    def _check_committed(self, writer: TaskTransaction) -> Exception | None:
        """Its id has gone on, so it has ended: by us, if its id went on afterwards, or by an operator's abort."""
        [found] = self._admin.describe_transactions([writer.transactional_id])
        aborted = found.state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        next_epoch = (writer.producer_id, writer.producer_epoch + 1)
        if found.error is None and aborted and (found.producer_id, found.producer_epoch) == next_epoch:
            return StreamlogSparkError(
                f"transaction {writer.transactional_id} was decided to be committed, and somebody has aborted it:"
                " a part of its micro-batch is missing"
            )
        return None

    def _abort_leftovers(self, state: SinkState, names: Sequence[str]) -> None:
        """Step 8. What goes wrong is tried again at the next commit."""
        try:
            abort_open(self._admin, [name for name in names if may_abort(state, self._run, name, self._sink)])
        except StreamlogError as error:
            _log.warning("sink %s: what tasks left open is not aborted yet: %s", self._sink, error)


def _is_open(writer: TaskTransaction, found: TransactionDescription) -> bool:
    there = (found.transactional_id, found.producer_id, found.producer_epoch)
    wanted = (writer.transactional_id, writer.producer_id, writer.producer_epoch)
    return found.error is None and found.state is TransactionState.ONGOING and there == wanted
