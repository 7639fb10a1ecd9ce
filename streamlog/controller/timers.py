"""The timers of one leadership: a session timeout per node, and the balance check."""

from __future__ import annotations

from collections.abc import Callable, Collection

from streamlog.aio.keyed_timers import KeyedTimers
from streamlog.metadata.decision import BrokerSessionTimer, SetControllerTimer, Timer
from streamlog.model import BrokerId


class ControllerTimers:
    def __init__(self, on_due: Callable[[Timer], None]) -> None:
        self._timers = KeyedTimers[Timer](on_due)

    @property
    def sessions(self) -> Collection[BrokerId]:
        """The nodes whose session runs."""
        return [timer.broker_id for timer in self._timers if isinstance(timer, BrokerSessionTimer)]

    def is_running(self, timer: Timer) -> bool:
        return timer in self._timers

    def set(self, wanted: SetControllerTimer) -> None:
        self._timers.set(wanted.timer, wanted.after_ms)

    def stop(self) -> None:
        """None of them fires after this."""
        self._timers.stop()
