"""An operator of the simulated cluster that deletes the oldest records of partitions, over and over (I23).

What a deletion that fails has done is unknown: all that was asked for may be gone, and nothing has to be. Most leave
some records, so that the other invariants have something to look at.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.consumer.offset_finder import Bound
from streamlog.errors import StreamlogError
from streamlog.model import Offset, TopicPartition

from ..checking.checks import Deletion
from ..checking.watch import Watch

GAP_S: Final = (0.2, 2.0)
ALL: Final = 0.1
"""Share of the deletions that ask for everything that is committed."""


class Deleter:
    def __init__(
        self,
        admin: AsyncAdmin,
        partitions: Sequence[TopicPartition],
        watch: Watch,
        rng: random.Random,
        now: Callable[[], float],
    ) -> None:
        self._admin = admin
        self._partitions = partitions
        self._watch = watch
        self._rng = rng
        self._now = now
        self.deletions: list[Deletion] = []
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            at = self._rng.choice(self._partitions)
            if self._rng.random() < ALL:
                await self.delete(at, None)
            else:
                await self.delete(at, Offset(int(self._watch.committed_end(at) * self._rng.random())))

    async def delete(self, at: TopicPartition, before: Offset | None) -> None:
        """None: all that is committed."""
        deletion = Deletion(at, before)
        self.deletions.append(deletion)
        try:
            (result,) = await self._admin.delete_records({at: Bound.LATEST if before is None else before})
        except StreamlogError:
            return
        if result.error is None:
            deletion.completed, deletion.log_start = self._now(), result.log_start
            self._watch.acknowledged_deletion(at, result.log_start)
