"""What goes wrong with a task of Spark's, on the executor and from within: once, in the middle of its rows.

A function of values does it, in tasks of the first partition alone. The first of its attempts gets it;
the file `done` says that it has happened.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext

from streamlog.client import Admin
from streamlog.client.admin.transaction_values import TransactionState
from tests.spark.drivers import children, parent

Fault = Callable[[Path], None]
WITHIN_S = 120.0
"""For what must come to pass: a bound against hanging, not a measure."""


def until(condition: Callable[[], object], what: str) -> None:
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > WITHIN_S:
            raise TimeoutError(f"not within {WITHIN_S:g} s: {what}")
        time.sleep(0.02)  # between two questions


def in_the_middle(
    name: str, folder: str, middle: int, last: int, servers: str = ""
) -> Callable[[bytes | None], bytes | None]:
    """Of the rows of its task, counted from 1, of which there are `last`; with `servers`, after the sink has written
    some of them, uncommitted.
    """
    seen: Counter[int] = Counter()  # by task attempt, for a worker has more than one

    def mapped(value: bytes | None) -> bytes | None:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() != 0:
            return value
        task = context.taskAttemptId()
        seen[task] += 1
        if seen[task] == middle and not (Path(folder) / "done").exists():
            if servers:
                until(lambda: has_open_transaction(servers, task), "its transaction is open")
            if claimed(Path(folder)):
                FAULTS[name](Path(folder))
        if seen[task] == last:
            (Path(folder) / f"end-{task}").touch()
        return value

    return mapped


def claimed(folder: Path) -> bool:
    try:
        (folder / "done").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def has_open_transaction(servers: str, task: int) -> bool:
    with Admin(bootstrap_servers=servers) as admin:
        found = admin.list_transactions(states=[TransactionState.ONGOING]).transactions
    return any(
        one.transactional_id.startswith("spark-sink/") and one.transactional_id.endswith(f"/{task}") for one in found
    )


def fail(_: Path) -> None:
    raise RuntimeError("a task that fails once")


def kill_workers(_: Path) -> None:
    """All Python workers of the executor: that of the source, that of the sink, and this one."""
    daemon = os.getppid()
    for pid in [one for one in children(daemon) if one != os.getpid()]:
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor(_: Path) -> None:
    """The JVM: the parent of the daemon that has forked this worker."""
    os.kill(parent(os.getppid()), signal.SIGKILL)
    until(lambda: False, "the end of this worker, which Spark's daemon sees to")


def overtaken(folder: Path) -> None:
    """Slow, until another attempt has gone through all rows."""
    until(lambda: any(folder.glob("end-*")), "a speculative attempt")
    (folder / "overtaken").touch()


FAULTS: dict[str, Fault] = {
    "fail": fail,
    "kill-workers": kill_workers,
    "kill-executor": kill_executor,
    "overtaken": overtaken,
}
