"""The timers of one leadership: a session timeout per node, and the balance check.

Setting a timer again replaces it. A timer fires once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from streamlog.metadata.decision import BrokerSessionTimer, SetControllerTimer, Timer
from streamlog.model import BrokerId


class ControllerTimers:
    def __init__(self, on_due: Callable[[Timer], None]) -> None:
        self._on_due = on_due
        self._sessions: dict[BrokerId, asyncio.TimerHandle] = {}
        self._balance: asyncio.TimerHandle | None = None

    @property
    def sessions(self) -> Collection[BrokerId]:
        """The nodes whose session runs: a live view."""
        return self._sessions.keys()

    def is_running(self, timer: Timer) -> bool:
        return timer.broker_id in self._sessions if isinstance(timer, BrokerSessionTimer) else self._balance is not None

    def set(self, wanted: SetControllerTimer) -> None:
        replaced = self._pop(wanted.timer)
        if replaced is not None:
            replaced.cancel()
        if wanted.after_ms is None:
            return
        due = partial(self._due, wanted.timer)
        handle = asyncio.get_running_loop().call_later(wanted.after_ms / 1000, due)
        if isinstance(wanted.timer, BrokerSessionTimer):
            self._sessions[wanted.timer.broker_id] = handle
        else:
            self._balance = handle

    def stop(self) -> None:
        """None of them fires after this."""
        for handle in self._sessions.values():
            handle.cancel()
        self._sessions.clear()
        if self._balance is not None:
            self._balance.cancel()
            self._balance = None

    def _pop(self, timer: Timer) -> asyncio.TimerHandle | None:
        if isinstance(timer, BrokerSessionTimer):
            return self._sessions.pop(timer.broker_id, None)
        handle, self._balance = self._balance, None
        return handle

    def _due(self, timer: Timer) -> None:
        self._pop(timer)
        self._on_due(timer)
