"""How long the console waits for its database: calls in a thread, limits of PostgreSQL's connections and statements.

    call --answered-----------------> its result
         --not within ANSWER_S------> an error; those that come meanwhile are refused at once
              --answered late-------> calls are made again

A driver's call cannot be interrupted from outside. The thread stays with it until the database answers or the system
gives the connection up. It is a daemon thread: the stop of the console waits for a call that is not overdue, CLOSE_S at
most, and the end of the process for none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_S: Final = 15.0
CLOSE_S: Final = 6.0
"""How long `close` waits for a call that is not overdue: it may be the last line of the audit log. SQLite waits for 5 s
where another program writes.
"""
CONNECT_S: Final = 5
STATEMENT_S: Final = 300
"""Deleting what is old in a large database takes minutes."""
LIBPQ_DRIVERS: Final = frozenset({"psycopg", "psycopg2"})
LIBPQ_LIMITS: Final = {
    "connect_timeout": CONNECT_S,
    "tcp_user_timeout": 20_000,  # milliseconds; without it a machine that is gone is waited for a quarter of an hour
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}


def bounded_engine(url: str) -> Engine:
    """What the URL itself says about a limit holds. Errors of SQLAlchemy."""
    parsed = make_url(url)
    limits: dict[str, Any] = {}
    if parsed.get_backend_name() == "postgresql" and parsed.get_driver_name() in LIBPQ_DRIVERS:
        limits = {name: value for name, value in LIBPQ_LIMITS.items() if name not in parsed.query}
    engine = create_engine(url, connect_args=limits)
    if engine.dialect.name == "postgresql" and "statement_timeout" not in str(parsed.query.get("options", "")):
        event.listen(engine, "connect", _limit_statements)
    return engine


def _limit_statements(connection: Any, _record: object) -> None:
    """Not as an option of the connection, which poolers of connections refuse."""
    cursor = connection.cursor()
    cursor.execute("SHOW statement_timeout")
    if cursor.fetchone()[0] == "0":  # else the role or the database has a limit of its own
        cursor.execute(f"SET statement_timeout = {STATEMENT_S * 1000}")
    cursor.close()
    connection.commit()


class DatabaseThread:
    """Makes calls one after another. One event loop."""

    def __init__(self, name: str, subject: str, error: Callable[[str], Exception]) -> None:
        """`subject` cannot be used where the database does not answer, as `error` says."""
        self._subject = subject
        self._error = error
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._began_s: float | None = None  # the call under way
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` raises, or an error where the database does not answer."""
        if self._closed:
            raise self._error(f"{self._subject} cannot be used: the console ends.")
        if self._is_overdue:
            raise self._silent()
        if self._thread.ident is None:
            self._thread.start()
        job: Future[T] = Future()
        self._jobs.put((job, call))
        answer = asyncio.wrap_future(job)
        try:
            while not answer.done():
                if self._is_overdue:
                    raise self._silent()
                await asyncio.wait({answer}, timeout=self._left_s)  # of this call, or of one before it
            return answer.result()
        finally:
            answer.cancel()

    def close(self) -> None:
        self._closed = True
        self._jobs.put(None)
        if self._thread.ident is not None and not self._is_overdue:
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                _log.warning("%s: the last changes may be missing: the database does not answer", self._subject)

    @property
    def _left_s(self) -> float:
        """For the answer of the call under way."""
        began_s = self._began_s
        return ANSWER_S if began_s is None else ANSWER_S - (time.monotonic() - began_s)

    @property
    def _is_overdue(self) -> bool:
        return self._left_s <= 0

    def _silent(self) -> Exception:
        return self._error(f"{self._subject} cannot be used: the database has not answered for {ANSWER_S:g} s.")

    def _work(self) -> None:
        while (found := self._jobs.get()) is not None:
            job, call = found
            if job.set_running_or_notify_cancel():
                self._began_s = time.monotonic()
                try:
                    job.set_result(call())
                except BaseException as error:  # noqa: BLE001  it is the caller's
                    job.set_exception(error)
                self._began_s = None
                del job, call, found
