"""Warns of a group whose coordinator does not answer: a consumer joins it, and comes back to it, without end.

answers --not for LATE_S--> WARNING, again each REPEAT_S --answers--> INFO
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from streamlog.client.durations import seconds
from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipState
from streamlog.printable import escaped

_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 2.0
LATE_S: Final = 10.0
"""Longer than a coordinator's fail-over takes."""
REPEAT_S: Final = 30.0


class CoordinatorWatch:
    """Of one member."""

    def __init__(self, group: str, member: ConsumerMembership) -> None:
        self._group = group
        self._member = member
        self._since: float | None = None  # on the loop's clock; None: it answers, or is not asked
        self._next_at: float | None = None  # of a warning; None: it does not wait for long

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(loop.time())

    def _look(self, now: float) -> None:
        state, error = self._member.state, self._member.retried_error
        waits = state is MembershipState.JOINING or (state is MembershipState.JOINED and error is not None)
        if not waits:
            if self._next_at is not None and state is MembershipState.JOINED:
                _log.info("group %s: its coordinator answers again", self._group)
            self._since = self._next_at = None
            return
        if self._since is None:
            self._since = now
        if now - self._since < LATE_S or (self._next_at is not None and now < self._next_at):
            return
        self._next_at = now + REPEAT_S
        why = "" if error is None else escaped(f": {error.code}: {error.message}")
        _log.warning("group %s: no answer of its coordinator for %s%s", self._group, seconds(now - self._since), why)
