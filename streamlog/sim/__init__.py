"""A whole cluster in one process, in virtual time, from one seed. Shipped, so that users simulate too.

    process     one incarnation of a node: kill -9, pause, death at a chosen write
    loop, task  asyncio in virtual time with a seeded order; `run`
    files/      the page-cache model and the disk port on it
    clock, workers
                the other ports
    machine     one computer driven step by step, for tests of what stands on the disk alone
    wires/      the wires between hosts, a call on them, the network port
    world       hosts, their incarnations, one network, one seed
    faults, nemesis, history, shrink
                a plan of faults as data, what carries it out, what clients saw, a failing plan made short
    ban, lint   traps and a lint for what no seed decides
    handle      timers and callbacks of its event loop

The node's real code runs here unchanged: it knows the world through `streamlog.ports` alone. The simulated ports keep
the contracts of the real ones; one conformance suite runs on both.
"""

from streamlog.sim.clock import SimClock
from streamlog.sim.files.disk import DiskFaults, SimDisk
from streamlog.sim.files.filesystem import SimFile, SimFileSystem, SimMapping
from streamlog.sim.loop import Deadlock, Livelock, Order, SimError, SimLoop, run
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed, Process
from streamlog.sim.wires.fabric import Fabric
from streamlog.sim.wires.network import SimNetwork
from streamlog.sim.workers import SimWorkers
from streamlog.sim.world import Host, SimNode, World

__all__ = [
    "Deadlock",
    "DiskFaults",
    "Fabric",
    "Host",
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
    "SimNetwork",
    "SimNode",
    "SimWorkers",
    "World",
    "run",
]
