"""Three streamlogd processes for a test, and what is asked of them from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self

from streamlog.client import AsyncAdmin
from streamlog.client.admin.values import NodeState
from streamlog.daemon.local_cluster import LocalCluster, LocalNode
from streamlog.errors import StreamlogError, TopicAlreadyExistsError

WITHIN_S = 60.0
"""For what must come to pass: a bound against hanging, not a measure."""


class Processes:
    """`async with`; all of them are dead afterwards, and only they."""

    def __init__(self, directory: Path, nodes: int = 3, **settings: str) -> None:
        self._local = LocalCluster(directory)
        self._count = nodes
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._local.create(self._count, 0, self._settings)
        self._cleanup.callback(self._end)
        for node in self._local.nodes:
            self._local.start(node)
        self.bootstrap_servers = ",".join(node.address for node in self._local.nodes)
        self.admin = await self._cleanup.enter_async_context(AsyncAdmin(bootstrap_servers=self.bootstrap_servers))
        await self.until(self._all_are_alive)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cleanup.aclose()

    def _end(self) -> None:
        for node in self._local.nodes:
            self.resume(node.node_id)
            self._local.kill(node)

    async def _all_are_alive(self) -> bool:
        nodes = (await self.admin.describe_cluster()).nodes
        return [node.state for node in nodes] == [NodeState.ACTIVE] * self._count

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Asked again and again; errors count as no."""
        begin = time.monotonic()
        while True:
            try:
                if await condition():
                    return
            except StreamlogError as error:
                last = str(error)
            else:
                last = "it does not hold"
            assert time.monotonic() - begin < WITHIN_S, f"{condition.__name__}: {last}\n{self.last_log_line()}"
            await asyncio.sleep(0.02)  # between two questions

    def last_log_line(self) -> str:
        return "\n".join(f"node {node.node_id}: {node.last_log_line()}" for node in self._local.nodes)

    # -- what is done to them

    @property
    def node_ids(self) -> list[int]:
        return [node.node_id for node in self._local.nodes]

    def _node(self, node_id: int) -> LocalNode:
        return self._local.node(node_id)

    def kill(self, *node_ids: int) -> None:
        """SIGKILL, all of them before the first one is waited for."""
        for node_id in node_ids:
            self._signal(node_id, signal.SIGKILL)
        for node_id in node_ids:
            self._local.kill(self._node(node_id))

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._local.start(self._node(node_id))

    def stop(self, node_id: int) -> None:
        """SIGTERM, in good order."""
        assert not self._local.stop([self._node(node_id)], WITHIN_S), f"node {node_id} does not stop"

    def is_running(self, node_id: int) -> bool:
        return self._node(node_id).process is not None

    def pause(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT)

    def _signal(self, node_id: int, number: int) -> None:
        process = self._node(node_id).process
        if process is not None:
            os.kill(process.pid, number)

    async def create_topic(self, name: str, partitions: int) -> None:
        """With a replica on each node, all of them in sync. A quorum whose leader changes meanwhile may leave open
        whether it was made: then it is asked again.
        """

        async def made() -> bool:
            with suppress(TopicAlreadyExistsError):
                await self.admin.create_topic(name, partitions=partitions, replication_factor=self._count)
            return True

        await self.until(made)
        await self.until_in_sync(name)

    # -- what is asked

    async def controller(self) -> int:
        found: list[int] = []

        async def known() -> bool:
            controller = (await self.admin.describe_cluster()).controller
            found.extend([] if controller is None else [controller])
            return bool(found)

        await self.until(known)
        return found[-1]

    async def leader(self, topic: str, partition: int) -> int:
        leader = (await self.admin.describe_topic(topic)).partitions[partition].leader
        assert leader is not None
        return leader

    async def until_in_sync(self, topic: str) -> None:
        async def in_sync() -> bool:
            found = await self.admin.describe_topic(topic)
            return all(p.leader is not None and len(p.isr) == len(p.replicas) for p in found.partitions)

        await self.until(in_sync)
