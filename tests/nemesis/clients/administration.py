"""Operators: topics are made, grown and deleted, leaders elected, replicas moved, configs changed, voters added and
removed (`membership`), all the time.

What they are refused is no matter, unless it is an error that no client should see. A topic's `retention.ms` is a
register, written repeatedly (`tests.cluster.clients.operators.Tuner`): in the end every node must read what was
written last, or may have been (I12).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from streamlog.client import AsyncAdmin
from streamlog.client.admin.values import ConfigChange, ConfigResource
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId
from tests.cluster.clients.operators import SETTING, Mover, Tuner
from tests.nemesis.nodes import Nodes

from .membership import Membership
from .workload import KEYED, PAIR, PLAIN, TOPICS

FLEETING: Final = "fleeting-"
FLEETING_MAX: Final = 4
GROWN_MAX: Final = 6
GAP_S: Final = (0.5, 3.0)
_SETTINGS: Final = {"request.timeout.ms": "5000", "default.api.timeout.ms": "15000"}


class Administration:
    def __init__(
        self,
        nodes: Nodes,
        *,
        seed: int,
        now: Callable[[], float],
        note: Callable[[str, StreamlogError], None],
        wrong: Callable[[str, str], None],
    ) -> None:
        self.done: Counter[str] = Counter()
        self.membership = Membership(nodes, seed=seed, now=now, note=note, wrong=wrong)
        self._nodes = nodes
        self._rng = random.Random(f"nemesis/{seed}/administration")
        self._now = now
        self._note = note
        self._wrong = wrong
        self._stopping = False
        self._made = 0
        self._tuner: Tuner | None = None
        self._mover: Mover | None = None
        self._admins: list[AsyncAdmin] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        ids = [BrokerId(node.node_id) for node in self._nodes.all]
        self._tuner = Tuner(await self._admin(), PLAIN.name, self._rng, self._now)
        self._mover = Mover(await self._admin(), (PLAIN, PAIR, KEYED), ids, self._rng)
        works: list[Coroutine[Any, Any, None]] = [self._tuner.run(), self._mover.run(), self._run(await self._admin())]
        works.append(self.membership.run(await self._admin()))
        self._tasks = [asyncio.create_task(work) for work in works]

    async def _admin(self) -> AsyncAdmin:
        admin = await AsyncAdmin({"bootstrap.servers": self._nodes.bootstrap_servers, **_SETTINGS}).start()
        self._admins.append(admin)
        return admin

    async def _run(self, admin: AsyncAdmin) -> None:
        works = (self._make, self._make, self._delete, self._grow, self._elect, self._configure, self._describe)
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            work = self._rng.choice(works)
            try:
                await work(admin)
            except StreamlogError as error:
                self._note(f"admin {work.__name__.strip('_')}", error)
            else:
                self.done[work.__name__.strip("_")] += 1

    async def _make(self, admin: AsyncAdmin) -> None:
        count = len([t for t in await admin.list_topics() if t.name.startswith(FLEETING)])
        if count < FLEETING_MAX:
            self._made += 1
            await admin.create_topic(
                f"{FLEETING}{self._made}", partitions=self._rng.randint(1, 3), replication_factor=3
            )

    async def _delete(self, admin: AsyncAdmin) -> None:
        names = [topic.name for topic in await admin.list_topics() if topic.name.startswith(FLEETING)]
        if names:
            await admin.delete_topic(self._rng.choice(names))

    async def _grow(self, admin: AsyncAdmin) -> None:
        topics = [t for t in await admin.list_topics() if t.name.startswith(FLEETING) and t.partition_count < GROWN_MAX]
        if topics:
            topic = self._rng.choice(topics)
            await admin.grow_topic(topic.name, topic.partition_count + 1)

    async def _elect(self, admin: AsyncAdmin) -> None:
        await admin.elect_leaders()

    async def _configure(self, admin: AsyncAdmin) -> None:
        change = ConfigChange(name="segment.bytes", value=str(self._rng.choice((1 << 20, 2 << 20))))
        await admin.alter_config(ConfigResource.topic(PLAIN.name), [change])

    async def _describe(self, admin: AsyncAdmin) -> None:
        """As an operator looks, in the middle of it: each of it must be answered or refused in a sentence."""
        await admin.describe_cluster()
        await admin.describe_topics([topic.name for topic in TOPICS])
        await admin.list_groups()
        await admin.describe_log_dirs()

    async def stop(self, within_s: float) -> None:
        self._stopping = True
        for operator in (self._tuner, self._mover):
            if operator is not None:
                operator.stopping = True
        self.membership.stopping = True
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=within_s)
            for task in pending:
                self._wrong("hang", f"an operator is not done {within_s:g} s after the last request: {task.get_coro()}")
                task.cancel()
            for task in self._tasks:
                if task.done() and not task.cancelled() and task.exception() is not None:
                    self._wrong("client", f"an operator ended with {task.exception()!r}")
        if self._mover is not None:
            self.done["move"] = self._mover.moves

    async def check(self, within_s: float) -> None:
        """I12, and the voters."""
        await self.membership.check(within_s)
        self.done.update(self.membership.done)
        if self._tuner is None:
            return
        read = {}
        for node in self._nodes.all:
            async with AsyncAdmin({"bootstrap.servers": node.address, **_SETTINGS}) as admin:
                (found,) = await admin.describe_configs([ConfigResource.topic(PLAIN.name)], names=[SETTING])
                read[f"node {node.node_id}"] = next((entry.value or "" for entry in found.entries), "")
        for problem in self._tuner.problems(read):
            self._wrong("I12", problem)
        self.done["tune"] = len(self._tuner.operations)

    async def end(self) -> None:
        for admin in self._admins:
            await admin.close()
