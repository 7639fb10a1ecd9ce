"""max.poll.interval.ms: a member that does not poll is warned about, then leaves, so that others read its partitions.

    polling, or polled just now --> fine --4/5 of the interval--> warned --the interval--> lost, until the next poll

Polls are counted, and the count is checked several times in the interval, so a poll costs nothing. A member never
leaves early, and at most one check late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from streamlog.client.durations import seconds
from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipState
from streamlog.client.log_lines import warn
from streamlog.errors import MaxPollIntervalError

_log: Final = logging.getLogger(__name__)

_CHECKS: Final = 20  # in the interval
_WARN_AT: Final = 0.8


class PollWatch:
    """Of one member."""

    def __init__(self, interval_s: float, group: str, member: ConsumerMembership) -> None:
        self._interval_s = interval_s
        self._group = group
        self._member = member

    async def run(self, polls: Callable[[], tuple[int, bool]]) -> None:
        """`polls`: how often the user has polled, and whether a poll is waiting now. Until it is cancelled."""
        loop = asyncio.get_running_loop()
        before, since, warned = -1, loop.time(), False
        while True:
            await asyncio.sleep(self._interval_s / _CHECKS)
            count, polling = polls()
            if count != before or polling or self._member.state is not MembershipState.JOINED:
                before, since, warned = count, loop.time(), False
                continue
            waited_s = loop.time() - since
            if waited_s >= self._interval_s:
                self._member.lose(self._error(waited_s))
            elif waited_s >= _WARN_AT * self._interval_s and not warned:
                warned = True
                left_s = self._interval_s - waited_s
                warn(
                    _log,
                    f"group {self._group}: no poll for {seconds(waited_s)}; this member leaves the group in"
                    f" {seconds(left_s)} (max.poll.interval.ms)",
                )

    def _error(self, waited_s: float) -> MaxPollIntervalError:
        return MaxPollIntervalError(
            f"the consumer has not polled for {seconds(waited_s)}: raise max.poll.interval.ms, or lower"
            " max.poll.records",
            field="max.poll.interval.ms",
            limit=round(self._interval_s * 1000),
        )
