"""A test story on a started cluster: for tests of whole nodes in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from streamlog.raft.settings import QuorumSettings
from streamlog.sim import SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.world import World

from .kit import Cluster

Story = Callable[[Cluster], Awaitable[None]]


def run_story(story: Story, *, size: int = 3, seed: int = 1, **settings: Any) -> None:
    """Run a story on a cluster that has been started."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(World(loop, seed), size, QuorumSettings(**settings))
        cluster.start()
        await story(cluster)
        cluster.world.stop()

    run_simulation(main, seed=seed)


def now(cluster: Cluster) -> float:
    return cluster.world.loop.now
