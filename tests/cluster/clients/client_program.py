"""A client program on a host of its own, and the faults that befall it: common to members of groups and writers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from streamlog.sim.task import SimTask
from streamlog.sim.world import Host, World


class ClientProgram:
    """Subclasses start it, by `_task`, and decide which fault happens when."""

    def __init__(self, host: Host, world: World) -> None:
        self.errors: Counter[str] = Counter()
        self._host = host
        self._world = world
        self._task: SimTask[None] | None = None
        self._settled = False  # what was to happen later does not happen any more

    @property
    def is_running(self) -> bool:
        return self._host.alive and self._task is not None and not self._task.done()

    def start(self) -> None:
        raise NotImplementedError

    def _restart_after(self, lasts: float) -> None:
        self._later(lasts, self.start)

    def _pause(self, lasts: float) -> None:
        self._host.pause()
        self._later(lasts, self._host.resume)

    def _cut_off(self, nodes: Sequence[str], lasts: float) -> None:
        """From all nodes, both ways."""
        links = [link for node in nodes for link in ((node, self._host.name), (self._host.name, node))]
        for link in links:
            self._world.fabric.block(*link)
        self._later(lasts, lambda: self._world.fabric.heal(links))

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._world.fabric.after(delay_s, lambda: None if self._settled else action())
