"""Warns of a group whose coordinator does not answer: a consumer joins it, and comes back to it, without end."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from streamlog.client.durations import seconds
from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipState
from streamlog.client.log_lines import WaitsLog, write

_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 2.0


class CoordinatorWatch:
    """Of one member."""

    def __init__(self, group: str, member: ConsumerMembership) -> None:
        self._group = group
        self._member = member
        self._since: float | None = None  # on the loop's clock; None: it answers, or is not asked
        self._waits_log = WaitsLog(f"group {group}: its coordinator answers again")

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(loop.time())

    def _look(self, now: float) -> None:
        state, error = self._member.state, self._member.retried_error
        is_silent = error is not None or self._member.is_unanswered
        if state is MembershipState.JOINING or (state is MembershipState.JOINED and is_silent):
            self._since = now if self._since is None else self._since
        else:
            self._since = None
            if state is not MembershipState.JOINED:
                self._waits_log.forget()
        waited_s = None if self._since is None else now - self._since
        write(_log, self._waits_log.look(waited_s, lambda: self._warning(waited_s or 0.0), now))

    def _warning(self, waited_s: float) -> str:
        error = self._member.retried_error
        why = "" if error is None else f": {error.code}: {error.message}"
        return f"group {self._group}: no answer from its coordinator for {seconds(waited_s)}{why}"
