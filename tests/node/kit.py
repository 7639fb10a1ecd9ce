"""Whole nodes on the hosts of a simulated world, for tests of starting, stopping and failing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from streamlog.config import Loaded, PropertiesFile, load_node
from streamlog.errors import OutcomeUnknownError
from streamlog.model import BrokerId
from streamlog.node import Node
from streamlog.ports import Ports
from streamlog.sim import SimLoop, run
from streamlog.sim.world import Host, World

PORT = 9092
T = TypeVar("T")


def properties(node_id: int, voters: int, **more: str) -> Loaded:
    """Settings of node `node_id` in a cluster with voters 1 to `voters`. Underscores in names stand for dots."""
    values = {
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://n{node_id}:{PORT}",
        "allow.plaintext.public.listeners": "true",
        "log.dirs": "/data",
        "controller.quorum.voters": ",".join(f"{n}@n{n}:{PORT}" for n in range(1, voters + 1)),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return load_node(PropertiesFile("test", "".join(f"{name}={value}\n" for name, value in values.items() if value)))


class Nodes:
    """The nodes of one story, n1, n2, ..."""

    def __init__(self, world: World, voters: int) -> None:
        self.world = world
        self.voters = voters
        self.recorded: list[tuple[float, str, str, dict[str, object]]] = []  # time, host, event, fields
        world.listeners.append(self._listen)
        world.on_crash = self._crashed

    def _listen(self, host: Host, event: str, fields: dict[str, object]) -> None:
        self.recorded.append((self.world.loop.now, host.name, event, fields))

    def _crashed(self, host: Host, error: Exception) -> None:
        self.node(int(host.name[1:])).fail(error)

    def has_recorded(self, host: str, event: str) -> bool:
        return any((where, what) == (host, event) for _, where, what, _ in self.recorded)

    def host(self, node_id: int) -> Host:
        return self.world.host(f"n{node_id}")

    def start(self, *node_ids: int, **more: str) -> None:
        for node_id in node_ids or range(1, self.voters + 1):
            config = properties(node_id, self.voters, **more)

            def make(ports: Ports, config: Loaded = config) -> Node:
                return Node(config, ports)

            self.host(node_id).start(make)

    def node(self, node_id: int) -> Node:
        node = self.host(node_id).node
        assert isinstance(node, Node)
        return node

    def alive(self) -> list[Node]:
        return [host.node for host in self.world.hosts.values() if host.alive and isinstance(host.node, Node)]

    async def ready(self, *node_ids: int, within_s: float = 30.0) -> None:
        """Until these nodes serve, all of them when none is named."""
        wanted = [self.node(node_id) for node_id in node_ids] or self.alive()
        async with asyncio.timeout(within_s):
            for node in wanted:
                await node.wait_until_ready()

    async def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110  the condition has no event; the time is virtual
                await asyncio.sleep(0.005)

    def controller(self) -> BrokerId | None:
        """The active controller."""
        active = [node for node in self.alive() if node.controller is not None and node.controller.is_active]
        return active[0].node_id if active else None

    async def stopped(self, node_id: int, within_s: float = 60.0) -> None:
        """Stop it, and wait until it has stopped."""
        host = self.host(node_id)
        self.node(node_id).stop()
        assert host.task is not None
        async with asyncio.timeout(within_s):
            await asyncio.wait([host.task])
        host.task.result()
        host.crash()

    async def as_node(self, node_id: int, work: Coroutine[Any, Any, T]) -> T:
        """Run it in that node's process; OutcomeUnknownError if the process ends meanwhile."""
        host = self.host(node_id)
        assert host.process is not None
        death = asyncio.get_running_loop().create_future()
        host.process.on_death(lambda: None if death.done() else death.set_result(None))
        task = host.spawn(work)
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise OutcomeUnknownError("the process died")
        death.cancel()
        return task.result()

    def events(self, event: str) -> list[tuple[float, str, dict[str, object]]]:
        return [(when, host, fields) for when, host, name, fields in self.recorded if name == event]


Story = Callable[[Nodes], Awaitable[None]]


def run_story(story: Story, *, voters: int = 3, seed: int = 1) -> Nodes:
    """Run a story in a world of its own, in which no node is started yet."""
    kept: list[Nodes] = []

    async def main(loop: SimLoop) -> None:
        nodes = Nodes(World(loop, seed), voters)
        kept.append(nodes)
        await story(nodes)
        nodes.world.stop()

    run(main, seed=seed)
    return kept[0]
