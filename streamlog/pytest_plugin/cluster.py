"""A cluster of real nodes in this process: the daemon's nodes without the daemon.

Each node has its own directory, port on loopback, network and threads; all of them share one event loop in a thread of
their own. So tests of any kind use it, with an event loop of their own or without. What differs from real processes: a
node can be stopped in good order, not killed (`streamlogctl local kill` does that), and the nodes share the processor
and the interpreter's lock with the test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import CreatedTopic
from streamlog.config import Loaded, load_node
from streamlog.daemon.free_ports import HOST, free_ports
from streamlog.errors import InvalidRequestError, RequestTimedOutError
from streamlog.metadata.image.image import MetadataImage
from streamlog.node import Node
from streamlog.ports import Ports, no_probe
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.system import SystemClock, ThreadWorkers, system_random

T = TypeVar("T")

# Of nodes that share a machine with tests and live for seconds: a busy machine deposes no leader (a node that has gone
# is followed at once all the same: its streams break), and nothing is waited for at the end.
SETTINGS: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.heartbeat.interval.ms": "50",
    "controlled.shutdown.enable": "false",
}
START_TIMEOUT_S: Final = 30.0
WAIT_TIMEOUT_S: Final = 30.0  # for what a node learns from the others
_STOP_TIMEOUT_S: Final = 30.0


class InProcessCluster:
    """`start`, or `with`; from then on `bootstrap_servers` answer. Its methods are for any thread but its own."""

    def __init__(self, directory: Path, nodes: int = 3, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: of every node, by their names in server.properties. InvalidConfigError."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="streamlog-cluster", daemon=True)
        addresses = {node_id: f"{HOST}:{port}" for node_id, port in enumerate(free_ports(nodes), start=1)}
        voters = ",".join(f"{node_id}@{address}" for node_id, address in addresses.items())
        self._nodes = {
            node_id: _RunningNode(
                load_node(
                    overrides=[
                        f"{name}={value}"
                        for name, value in {
                            **SETTINGS,
                            **(settings or {}),
                            "node.id": node_id,
                            "listeners": f"PLAINTEXT://{address}",
                            "controller.quorum.voters": voters,
                            "log.dirs": (directory / f"node-{node_id}").absolute(),
                        }.items()
                    ]
                ),
                address,
            )
            for node_id, address in addresses.items()
        }

    @property
    def bootstrap_servers(self) -> str:
        """For clients: host:port of all nodes, separated by commas."""
        return ",".join(node.address for node in self._nodes.values())

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    def address(self, node_id: int) -> str:
        """host:port of one node."""
        return self._node(node_id).address

    def start(self) -> Self:
        """Until all nodes serve. RequestTimedOutError, or what ended a node."""
        self._thread.start()
        self._run(self._start_all())
        return self

    def stop(self) -> None:
        """Raises what ended a node before: a defect must not pass for a test that passed."""
        try:
            self._run(self._stop_all())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_TIMEOUT_S)
            self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop_node(self, node_id: int) -> None:
        """In good order; `start_node` brings it back with what it has on its disk."""
        self._run(self._node(node_id).stop())

    def start_node(self, node_id: int) -> None:
        """Until it serves again."""
        self._run(self._start([self._node(node_id)]))

    def fail_node(self, node_id: int, error: BaseException) -> None:
        """It ends as by a defect or a disk that failed, without a word to the others. `stop` raises the error."""
        self._run(self._node(node_id).fail(error))

    def create_topic(
        self,
        name: str,
        partitions: int | None = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> CreatedTopic:
        """Until every node that runs knows it. StreamlogError."""

        async def create(admin: AsyncAdmin) -> CreatedTopic:
            created = await admin.create_topic(name, partitions, replication_factor, configs=configs)
            await self._wait_until_all(lambda image: created.topic_id in image.topics)
            return created

        return self.with_admin(create)

    def with_admin(self, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
        """`work` with a client of its own, on the cluster's loop."""

        async def run() -> T:
            async with AsyncAdmin(bootstrap_servers=self.bootstrap_servers) as admin:
                return await work(admin)

        return self._run(run())

    def _node(self, node_id: int) -> _RunningNode:
        if node_id not in self._nodes:
            raise InvalidRequestError(f"there is no node {node_id}", field="node_id", limit=len(self._nodes))
        return self._nodes[node_id]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start_all(self) -> None:
        await self._start(list(self._nodes.values()))

    async def _start(self, nodes: list[_RunningNode]) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S), asyncio.TaskGroup() as starts:
                for node in nodes:
                    starts.create_task(node.start())
        except TimeoutError:
            raise RequestTimedOutError(f"the cluster does not serve after {START_TIMEOUT_S:g} s") from None
        # A topic may have a replica on each then.
        running = sum(node.running for node in self._nodes.values())
        await self._wait_until_all(lambda image: sum(broker.active for broker in image.brokers.values()) >= running)

    async def _wait_until_all(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Until it holds on every node that runs. RequestTimedOutError."""
        try:
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                for node in self._nodes.values():
                    if node.running:
                        await node.wait_until(condition)
        except TimeoutError:
            raise RequestTimedOutError(f"not every node knows it after {WAIT_TIMEOUT_S:g} s") from None

    async def _stop_all(self) -> None:
        ends = await asyncio.gather(*(node.end() for node in self._nodes.values()), return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error


class _RunningNode:
    """A node that comes and goes, under one address."""

    def __init__(self, config: Loaded, address: str) -> None:
        self.address = address
        self._config = config
        self._life: asyncio.Task[None] | None = None
        self._node: Node | None = None

    @property
    def running(self) -> bool:
        return self._life is not None and not self._life.done()

    async def start(self) -> None:
        """Until it serves, or raises what ended it."""
        if self.running:
            return
        serving = asyncio.Event()
        self._life = asyncio.create_task(self._live(serving))
        waiting = asyncio.create_task(serving.wait())
        await asyncio.wait([self._life, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._life.done():
            self._life.result()

    async def wait_until(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Until it knows an image for which `condition` holds."""
        assert self._node is not None, "it runs"
        await self._node.view.wait_until(condition)

    async def fail(self, error: BaseException) -> None:
        """Until it has ended."""
        assert self._node is not None, "it runs"
        assert self._life is not None
        self._node.fail(error)
        await asyncio.wait([self._life])

    async def stop(self) -> None:
        """Raises what has ended it, where it was not this."""
        if self._life is None:
            return
        if self._node is not None:
            self._node.stop()
        life, self._life = self._life, None
        await life

    async def end(self) -> None:
        """At once, for good: nobody waits for what others would make of a good order."""
        if self._life is None:
            return
        life, self._life = self._life, None
        life.cancel()
        await asyncio.wait([life])
        if not life.cancelled():
            life.result()

    async def _live(self, serving: asyncio.Event) -> None:
        fs, workers = PosixFileSystem(), ThreadWorkers()
        network = GrpcNetwork(on_crash=lambda error: node.call_failed(error))
        ports = Ports(
            fs=fs, network=network, clock=SystemClock(), random=system_random(), workers=workers, probe=no_probe
        )
        node = self._node = Node(self._config, ports)
        ready = asyncio.create_task(node.wait_until_ready())
        ready.add_done_callback(lambda _ready: serving.set())
        try:
            await node.run()
        finally:
            ready.cancel()
            await network.close()
            workers.close()
            fs.close()
