"""An operator's unclean election, where no replica can prove that it has everything: the log of one is damaged, and
the end of another one was cut after a power cut, as unsynced bytes are. Such a partition waits for an operator.

The choice is that of `streamlogctl partition elect --election-type unclean`, once all replicas have answered. A plan
damages the disk of one node alone, and what a power cut takes was not acknowledged: the longest log that can lead loses
nothing, which the readers of the end see.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from streamlog.client.admin.values import Election
from streamlog.model import BrokerId, TopicPartition

from ..checking.watch import Watch
from ..clients.crew import Crew

LOOK_S: Final = 2.0
"""More than the controller needs to ask all replicas, and to elect one that is complete."""
ANSWERED: Final = frozenset({"alive", "damaged"})


class ElectionByHand:
    """`leaderless`: the partitions that have no leader now; `cut`: whether this log may lack what it had synced."""

    def __init__(
        self,
        crew: Crew,
        watch: Watch,
        stats: Counter[str],
        *,
        leaderless: Callable[[], frozenset[TopicPartition]],
        cut: Callable[[BrokerId, TopicPartition], bool],
    ) -> None:
        self._crew = crew
        self._watch = watch
        self._stats = stats
        self._leaderless = leaderless
        self._cut = cut

    async def run(self) -> None:
        """Until it is cancelled."""
        before: frozenset[TopicPartition] = frozenset()
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._leaderless()
            waiting = sorted(before & now)
            before = now
            for election in await self._crew.preview(waiting):
                if self._is_needed(election):
                    self._stats["elections by hand"] += 1
                    await self._crew.elect(election.at)

    def _is_needed(self, election: Election) -> bool:
        if not all(one.state in ANSWERED for one in election.candidates):
            return False
        known = [one for one in election.candidates if one.known]
        whole = [one.node_id for one in known if one.state == "alive" and not self._cut(one.node_id, election.at)]
        if whole:
            self._watch.wrong("I19", f"{election.at} waits, though the replicas {whole} have everything")
        return any(one.state == "damaged" for one in known)
