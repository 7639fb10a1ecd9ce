"""The sink: each micro-batch is written exactly once or not at all, whatever fails. Protocol, and the driver's part.

    task    rows -> its own transaction, prepared (two-phase commit: it has no timeout) -> message to the driver
    driver  all tasks are done:  decide (`decision_log`) -> commit each transaction -> Spark writes its commit log

Spark restarts a micro-batch that is not in its commit log, with the same number and a new run id. It cannot store what
our tasks have prepared, so that is kept in the sink's log: SinkState, one record for each decision.

    commit(batch b, writers W) of run r:
      1  open the log: all other drivers of the sink are fenced, the last decision is read (at a process's first commit)
      2  r has been retired: refuse
      3  another run owns the sink: commit the writers that it decided on, and take the sink over
      4  b was decided: abort W; done
      5  check that W is open, as prepared
      6  write that b is W                  <- the decision: before it b is not written, after it b is exactly W
      7  commit each of W, until it is committed
      8  abort open transactions that no run can decide any more

Why this is exactly once.
- Of two drivers that decide on b, one is refused: both write with the sink's transactional id, and the second one's
  opening of the log fences the first or finds its decision (1, 4, 6).
- A driver that fails after 6 leaves W prepared. Spark runs b again; the next run finds the decision, commits W (3),
  and aborts its own transactions (4). So b is complete before Spark continues with b + 1.
- W is unchanged until it is committed. Prepared, it has no timeout. A task's transactional id consists of sink, run and
  task attempt; another attempt never starts with it while it is open: a run's ids are reused after 65,536 task attempts
  of its application, thus by a later micro-batch, thus after 7. (If two attempts of one micro-batch are so far apart
  and share an id, 5 finds it, unless the older one starts between 5 and 7.)
- Aborted transactions (8) are never decided on: they are of this run, which decides one micro-batch at a time, or of a
  run that was durably retired, by the decision of 6 or of 3, and since then refuses to decide (2). An unknown run with
  open transactions is retired in the same way before they are aborted.

So a task that is killed, retried or run twice (speculation) has no visible effect; its open transaction is aborted at
the next commit, or at the driver's next start at the latest. Until then read_committed consumers wait there.

Spark runs each commit in any of its idle Python processes, which several queries share, so the drivers of one run fence
each other. One that cannot decide, although it could before, opens the log again, and goes on if its run still owns the
sink: then no other run has decided since, and of this run one commit is executed at a time. If another run owns it, it
fails: even if the own run is no longer among the retired ones, of which there are RETIRED_MAX.

Spark calls `abort` when a task or a commit has failed, also in another process than the commit; it opens the log again,
since the decision may be durable although its acknowledgement was lost. If it is not, the run is retired before its
transactions are aborted: a commit that is still executed elsewhere opens the log again, too, and must not decide then.

A batch query without sinkId cannot be restarted under the same name, so there is nothing to decide: its transactions
have a timeout, and are committed one by one (`writers`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from msgspec.structs import replace

from streamlog.client import Admin
from streamlog.client.admin.transaction_values import TransactionDescription, TransactionState
from streamlog.config import load_admin
from streamlog.config.settings.client_settings import ADMIN
from streamlog.config.settings.consumer_settings import DEFAULT_API_TIMEOUT_MS
from streamlog.config_providers import with_chosen_values
from streamlog.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    StreamlogError,
    UnknownProducerIdError,
)
from streamlog.spark.failures import StreamlogSparkError
from streamlog.spark.options import settings_for
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.sink.decision_log import SinkLog, UndecidedError
from streamlog.spark.sink.state import (
    SinkState,
    TaskTransaction,
    check_not_retired,
    decided,
    may_abort,
    retiring,
    run_of,
    taken_over,
)

_log = logging.getLogger(__name__)

_NAMED_MAX: Final = 3
_ENDED_AT_ONCE: Final = 16
_RETRY_S: Final = 0.2  # doubled each time, up to
_RETRY_MAX_S: Final = 1.0
# Process id, sink, run, client settings.
_Key = tuple[int, str, str, frozenset[tuple[str, str]]]
_drivers: dict[_Key, SinkDriver] = {}


def driver_of(sink: str, run: str, client: Mapping[str, str]) -> SinkDriver:
    """This process's driver, which is reused for the next commit; created on the first one."""
    key = (os.getpid(), sink, run, frozenset(client.items()))
    found = _drivers.get(key)
    if found is None:
        for other in [one for one in _drivers if one[1] == sink]:
            _drivers.pop(other).close()
        found = _drivers[key] = SinkDriver(sink, run, client)
    return found


def forget(driver: SinkDriver) -> None:
    """After an error: the next driver starts by opening the log."""
    for key in [key for key, one in _drivers.items() if one is driver]:
        del _drivers[key]
    driver.close()


def open_names(admin: Admin, sink: str) -> list[str]:
    """The ids of the sink's open transactions on nodes that answer; others are found next time. StreamlogError."""
    found = admin.list_transactions(states=[TransactionState.ONGOING])
    return [one.transactional_id for one in found.transactions if run_of(sink, one.transactional_id)]


def abort_open(admin: Admin, names: Sequence[str]) -> None:
    """Aborts those that are still open. StreamlogError."""
    for found in admin.describe_transactions(names) if names else ():
        if found.error is None and found.state is TransactionState.ONGOING:
            left = TaskTransaction(found.transactional_id, found.producer_id, found.producer_epoch)
            try:
                admin.end_prepared_transaction(left.transactional_id, left.prepared, commit=False)
            except (ProducerFencedError, UnknownProducerIdError, InvalidTransactionStateError):
                pass  # it has just ended


class LostTransactionError(StreamlogSparkError):
    """A transaction was aborted after the decision to commit it."""


class SinkDriver:
    """The driver's part for one sink and one run. One thread."""

    def __init__(self, sink: str, run: str, client: Mapping[str, str]) -> None:
        self._sink = sink
        self._run = run
        self._client = dict(client)
        self._log: SinkLog | None = None
        self._admin = Admin(settings_for(ADMIN, self._client), thread=loop_thread())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._admin.close()
        if self._log is not None:
            self._log.close()

    def commit(self, batch: int, writers: Sequence[TaskTransaction]) -> bool:
        """Steps 1 to 8; True where this call decided, False where the batch had been decided before. StreamlogError,
        StreamlogSparkError: `forget` it then.
        """
        kept = self._log is not None
        try:
            return self._commit(self._opened(), batch, writers)
        except UndecidedError:
            if not kept or self._opened(again=True).state.owner != self._run:
                raise
        return self._commit(self._opened(), batch, writers)

    def _commit(self, log: SinkLog, batch: int, writers: Sequence[TaskTransaction]) -> bool:
        state = log.state
        names = open_names(self._admin, self._sink)
        open_runs = [run for name in names if (run := run_of(self._sink, name)) is not None]
        if batch <= state.batch or state.owner not in ("", self._run):
            self._end_decided(log)
        if batch <= state.batch:
            if state.owner != self._run:
                log.decide(taken_over(state, self._run, open_runs))
            _log.warning("sink %s: batch %d was committed before; the repeated one is aborted", self._sink, batch)
            self._abort_leftovers(log.state, names)
            return False
        if not writers and state.owner == self._run:  # nothing to decide, and no transactions of another run to end
            self._abort_leftovers(state, names)
            return False
        self._check_prepared(writers)
        log.decide(decided(state, self._run, batch, writers, open_runs))
        self._end_decided(log)
        self._abort_leftovers(log.state, names)
        return True

    def abort(self, batch: int, writers: Sequence[TaskTransaction]) -> None:
        """Aborts a batch that Spark gives up, unless it was decided, and retires the run. Open transactions of its
        other tasks are aborted too.
        """
        log = self._opened(again=True)
        if batch <= log.state.batch:
            self._end(log.state.writers, commit=True)  # a loss stays in the state: what abort raises is only logged
        else:
            log.decide(retiring(log.state, self._run))
        kept = set(log.state.writers)
        self._end([one for one in writers if one not in kept], commit=False)
        self._abort_leftovers(log.state, open_names(self._admin, self._sink))

    def _opened(self, *, again: bool = False) -> SinkLog:
        if again and self._log is not None:
            self._log.close()
            self._log = None
        if self._log is None:
            self._log = SinkLog(self._sink, self._client)
        check_not_retired(self._log.state, self._run)
        return self._log

    def _describe(self, names: Sequence[str]) -> tuple[TransactionDescription, ...]:
        """Those whose coordinator cannot answer are asked for again, for default.api.timeout.ms. An unknown id has an
        error in its row; any other error is raised. StreamlogError.
        """
        known: dict[str, TransactionDescription] = {}
        asked, deadline, pause_s = list(names), 0.0, _RETRY_S
        while True:
            found = {one.transactional_id: one for one in self._admin.describe_transactions(asked)}
            known |= found
            errors = {
                name: one.error
                for name, one in found.items()
                if one.error and not isinstance(one.error, UnknownProducerIdError)
            }
            if not errors:
                return tuple(known[name] for name in names)
            now = time.monotonic()
            deadline = deadline or now + self._timeout_s()
            for error in errors.values():
                if not error.retriable or now >= deadline:
                    raise error
            time.sleep(pause_s)
            asked, pause_s = list(errors), min(2 * pause_s, _RETRY_MAX_S)

    def _timeout_s(self) -> float:
        loaded = load_admin(with_chosen_values(settings_for(ADMIN, self._client)))
        return loaded.config[DEFAULT_API_TIMEOUT_MS] / 1_000

    def _check_prepared(self, writers: Sequence[TaskTransaction]) -> None:
        described = self._describe([one.transactional_id for one in writers])
        missing = [one for one, found in zip(writers, described, strict=True) if not _is_open(one, found)]
        if missing:
            names = ", ".join(one.transactional_id for one in missing[:_NAMED_MAX])
            more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
            raise StreamlogSparkError(
                f"transactions of tasks were aborted before the commit: {names}{more}; nothing of the micro-batch is"
                " committed: start the query again, which repeats it"
            )

    def _end_decided(self, log: SinkLog) -> None:
        """Commits the transactions of the last decision. If one is lost, that is the error of one commit only."""
        try:
            self._end(log.state.writers, commit=True)
        except LostTransactionError:
            with contextlib.suppress(UndecidedError):  # then it is reported again
                log.decide(replace(log.state, writers=()))  # all have ended
            raise

    def _end(self, writers: Iterable[TaskTransaction], *, commit: bool) -> None:
        """Ends them concurrently. Raises the first error after all were tried; LostTransactionError: all have ended."""
        with ThreadPoolExecutor(_ENDED_AT_ONCE) as pool:
            errors = [one for one in pool.map(lambda each: self._end_one(each, commit=commit), writers) if one]
        if errors:
            raise min(errors, key=lambda one: isinstance(one, LostTransactionError))

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
        """Its producer epoch has increased, so it has ended: committed by us, or aborted by an operator."""
        try:
            [found] = self._describe([writer.transactional_id])
        except StreamlogError as error:
            return error
        aborted = found.state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        next_epoch = (writer.producer_id, writer.producer_epoch + 1)
        if found.error is None and aborted and (found.producer_id, found.producer_epoch) == next_epoch:
            return LostTransactionError(
                f"transaction {writer.transactional_id} was aborted by an operator although its commit was decided:"
                " its rows of the micro-batch are lost. Start the query again: it continues with the next micro-batch"
            )
        return None

    def _abort_leftovers(self, state: SinkState, names: Sequence[str]) -> None:
        """Step 8. Failures are retried at the next commit."""
        try:
            abort_open(self._admin, [name for name in names if may_abort(state, self._run, name, self._sink)])
        except StreamlogError as error:
            _log.warning("sink %s: open transactions of failed tasks are not aborted yet: %s", self._sink, error)


def _is_open(writer: TaskTransaction, found: TransactionDescription) -> bool:
    there = (found.transactional_id, found.producer_id, found.producer_epoch)
    wanted = (writer.transactional_id, writer.producer_id, writer.producer_epoch)
    return found.error is None and found.state is TransactionState.ONGOING and there == wanted
