"""World: hosts with disks and clocks, one network between them, one seed.

A host outlives its processes: its disk, its clock and their faults stay. Each part draws from its own random stream,
named by the part, so that leaving out a fault does not change the others' draws. A node is started by the factory that
production uses; it gets the ports and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from streamlog.ports.bundle import Ports
from streamlog.sim.clock import SimClock
from streamlog.sim.files.disk import SimDisk
from streamlog.sim.files.filesystem import SimFileSystem
from streamlog.sim.loop import SimLoop
from streamlog.sim.process import Process
from streamlog.sim.task import SimTask
from streamlog.sim.wires.fabric import Fabric
from streamlog.sim.wires.network import SimNetwork
from streamlog.sim.workers import SimWorkers

T = TypeVar("T")

TIMER_JITTER_S: Final = (-1e-3, 1e-3)
"""For `run`: uvloop counts whole milliseconds, so its timers fire up to 1 ms early."""


class SimNode(Protocol):
    async def run(self) -> None:
        """Until it is stopped. An exception ends the process."""
        ...


NodeT = TypeVar("NodeT", bound=SimNode)

ProbeListener: TypeAlias = Callable[["Host", str, dict[str, object]], None]
"""Called for every event of a node's probe: host, event, fields."""


class Host:
    """One machine by name. At most one process runs on it at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.disk = SimDisk(world.stream(f"disk/{name}"))
        self.clock = SimClock(world.loop)
        self.process: Process | None = None
        self._ports: Ports | None = None
        self.node: SimNode | None = None
        self.task: SimTask[None] | None = None  # of the node's run()
        self._world = world
        self._incarnations = 0

    @property
    def alive(self) -> bool:
        """A process runs; its node may have ended (`task.done()`)."""
        return self.process is not None and self.process.alive

    def boot(self) -> Ports:
        """Power on if it was off, and begin a new process: for clients, and for `start`. The old one must be dead."""
        if self.alive:
            raise ValueError(f"{self.name} is running")
        world, self.node, self.task = self._world, None, None
        self._incarnations += 1
        process = self.process = Process(self.name, self._incarnations)
        world.fabric.dark.pop(self.name, None)

        def probe(event: str, /, **fields: object) -> None:
            for listener in world.listeners:
                listener(self, event, fields)

        self._ports = Ports(
            fs=SimFileSystem(self.disk, process, self.clock),
            network=SimNetwork(world.fabric, process, self.name, on_crash=lambda error: world.on_crash(self, error)),
            clock=self.clock,
            random=world.stream(f"node/{process}"),
            workers=SimWorkers(process, world.stream(f"workers/{process}")),
            probe=probe,
        )
        return self._ports

    @property
    def ports(self) -> Ports:
        """Of the latest process."""
        if self._ports is None:
            raise ValueError(f"{self.name} has never been booted")
        return self._ports

    def start(self, factory: Callable[[Ports], NodeT]) -> NodeT:
        """Boot, make the node and run it, all as the new process."""
        ports = self.boot()
        assert self.process is not None
        node = self.process.context().run(factory, ports)
        self.node = node
        self.task = self.spawn(node.run())
        return node

    def spawn(self, coro: Coroutine[Any, Any, T]) -> SimTask[T]:
        """Run it as this host's process."""
        assert self.process is not None
        return self._world.loop.create_task(coro, context=self.process.context())

    def crash(self) -> None:
        """kill -9: the page cache stays, the kernel resets its connections."""
        if self.process is not None:
            self.process.kill()

    def power_cut(self) -> None:
        """Power cut: peers get no reset, and the host does not answer until the next boot."""
        self._world.fabric.dark[self.name] = True
        self.crash()
        self.disk.power_cut()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None and self.process.alive:
            self._world.loop.pause(self.process)
            self._world.fabric.silence(self.process)

    def resume(self) -> None:
        if self.process is not None:
            self._world.loop.resume(self.process)


class World:
    def __init__(self, loop: SimLoop, seed: int | str) -> None:
        self.loop = loop
        self.seed = seed
        self.fabric = Fabric(loop, self.stream("network"))
        self.hosts: dict[str, Host] = {}  # in the order of their making
        self.listeners: list[ProbeListener] = []
        self.on_crash: Callable[[Host, Exception], None] = self._report_to_loop

    def _report_to_loop(self, host: Host, error: Exception) -> None:
        """Default for unexpected errors of handlers: the run fails."""
        self.loop.call_exception_handler({"message": f"a handler of {host.process} failed", "exception": error})

    def stream(self, part: str) -> random.Random:
        """The randomness of one part. A string as seed does not depend on PYTHONHASHSEED."""
        return random.Random(f"{self.seed}/{part}")

    def host(self, name: str) -> Host:
        """Created at the first call, powered off."""
        if name not in self.hosts:
            self.hosts[name] = Host(self, name)
        return self.hosts[name]

    def stop(self) -> None:
        """End of the run: kill every process, so that none of its tasks counts as left behind."""
        for host in self.hosts.values():
            host.crash()
