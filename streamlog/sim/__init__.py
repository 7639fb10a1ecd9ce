"""A whole cluster in one process, in virtual time, from one seed. Shipped, so that users simulate too.

    process     one incarnation of a node: kill -9, pause, death at a chosen write
    loop        asyncio in virtual time with a seeded order; `run`
    image, inode, disk, filesystem
                the page-cache model and the disk port on it
    clock, workers
                the other ports
    machine     one computer driven step by step, for tests of what stands on the disk alone

The node's real code runs here unchanged: it knows the world through `streamlog.ports` alone. The simulated ports keep
the contracts of the real ones; one conformance suite runs on both.
"""

from streamlog.sim.clock import SimClock
from streamlog.sim.disk import DiskFaults, SimDisk
from streamlog.sim.filesystem import SimFile, SimFileSystem, SimMapping
from streamlog.sim.loop import Deadlock, Livelock, Order, SimError, SimLoop, run
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed, Process
from streamlog.sim.workers import SimWorkers

__all__ = [
    "Deadlock",
    "DiskFaults",
    "Killed",
    "Livelock",
    "Machine",
    "Order",
    "Process",
    "SimClock",
    "SimDisk",
    "SimError",
    "SimFile",
    "SimFileSystem",
    "SimLoop",
    "SimMapping",
    "SimWorkers",
    "run",
]
