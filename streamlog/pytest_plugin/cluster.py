"""A cluster of real nodes in this process: the daemon's nodes without the daemon.

Each node has its own directory, port on loopback, network and threads; all nodes share one event loop in a thread of
the cluster, so it can be used by synchronous and asynchronous tests. Unlike real processes, nodes are stopped cleanly,
not killed (`streamlogctl local kill` does that), and share the processor and the GIL with the test.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from streamlog.aio.timeouts import timeout
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import CreatedTopic
from streamlog.config import Loaded, load_node
from streamlog.config.listeners import inter_broker_listener, listeners_of
from streamlog.config.settings import node_settings
from streamlog.daemon.free_ports import HOST, free_ports
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.daemon.tracing_choice import check_tracing, open_tracing
from streamlog.errors import InvalidRequestError, RequestTimedOutError
from streamlog.metadata.image.image import MetadataImage
from streamlog.node import Node
from streamlog.ports import NODE_HEADER, Ports, no_probe
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.system import SystemClock, ThreadWorkers, system_random

if TYPE_CHECKING:
    from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
    from streamlog.pytest_plugin.secure import ClusterCertificates

T = TypeVar("T")
_log: Final = logging.getLogger("streamlog.node")

# For nodes that share a machine with tests and run for seconds; a busy machine deposes no leader (a node that stopped
# is replaced at once all the same, as its streams break), and the shutdown does not wait.
SETTINGS: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.heartbeat.interval.ms": "50",
    "controlled.shutdown.enable": "false",
}
START_TIMEOUT_S: Final = 90.0
WAIT_TIMEOUT_S: Final = 30.0  # for metadata to reach all nodes
STOP_TIMEOUT_S: Final = 180.0  # no test waits for ever for a node that does not stop
_JOIN_TIMEOUT_S: Final = 30.0


class InProcessCluster:
    """`start`, or `with`; then `bootstrap_servers` answer. Its methods may be called from any thread but its own."""

    def __init__(
        self, directory: Path, nodes: int = 3, settings: Mapping[str, str] | None = None, *, secure: bool = False
    ) -> None:
        """`settings`: of every node, by their names in server.properties. `secure`: with mutual TLS and access control
        lists. InvalidConfigError.
        """
        certificates = self._certificates = _certificates(directory / "certs") if secure else None
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
                            **({} if certificates is None else certificates.node_settings(node_id, address)),
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

    def client_settings(self, name: str = "admin") -> dict[str, str]:
        """For a client. In a secure cluster with a certificate of this name, which is made where there is none; `admin`
        may do everything, others what access control lists allow to their `principal`.
        """
        own = {} if self._certificates is None else self._certificates.client_settings(name)
        return {"bootstrap.servers": self.bootstrap_servers, **own}

    def principal(self, name: str) -> str:
        """Of the client of this name in a secure cluster, for access control lists."""
        if self._certificates is None:
            raise InvalidRequestError("the cluster has no principals: it is not secure", field="secure")
        return self._certificates.principal(name)

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    def address(self, node_id: int) -> str:
        """host:port of one node."""
        return self._node(node_id).address

    def start(self) -> Self:
        """Until all nodes serve. RequestTimedOutError, or the error that stopped a node."""
        self._thread.start()
        try:
            self._run(self._start_all())
        except BaseException:
            with suppress(Exception):  # the error of the start is the cause
                self.stop()
            raise
        return self

    def stop(self) -> None:
        """Raises the error that stopped a node before: a test must not pass despite an internal error.
        RequestTimedOutError where a node does not stop. Without effect after a start that failed, and without a start.
        """
        if not self._thread.is_alive():
            self._loop.close()
            return
        try:
            self._run(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_TIMEOUT_S)
            self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop_node(self, node_id: int) -> None:
        """A clean stop; `start_node` starts it again with the data on its disk."""
        self._run(self._node(node_id).stop())

    def start_node(self, node_id: int) -> None:
        """Until it serves again."""
        self._run(self._start([self._node(node_id)]))

    def fail_node(self, node_id: int, error: BaseException) -> None:
        """Stop it as by an internal error or a failed disk, without notice to the others. `stop` raises the error."""
        self._run(self._node(node_id).fail(error))

    def create_topic(
        self,
        name: str,
        partitions: int | None = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> CreatedTopic:
        """Until every running node knows the topic. StreamlogError."""

        async def create(admin: AsyncAdmin) -> CreatedTopic:
            created = await admin.create_topic(name, partitions, replication_factor, configs=configs)
            await self._wait_until_all(lambda image: created.topic_id in image.topics)
            return created

        return self.with_admin(create)

    def with_admin(self, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
        """`work` with a client of its own, the administrator's, on the cluster's loop."""

        async def run() -> T:
            async with AsyncAdmin(self.client_settings()) as admin:
                return await work(admin)

        return self._run(run())

    def _node(self, node_id: int) -> _RunningNode:
        if node_id not in self._nodes:
            raise InvalidRequestError(
                f"the cluster has no node {node_id}: it has nodes 1 to {len(self._nodes)}",
                field="node_id",
                limit=len(self._nodes),
            )
        return self._nodes[node_id]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            if self._loop.is_closed():
                raise InvalidRequestError("the cluster is stopped: make another InProcessCluster")
            raise InvalidRequestError("the cluster is not running: call start() before, or use it within `with`")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start_all(self) -> None:
        await self._start(list(self._nodes.values()))

    async def _start(self, nodes: list[_RunningNode]) -> None:
        try:
            async with timeout(START_TIMEOUT_S), asyncio.TaskGroup() as starts:
                for node in nodes:
                    starts.create_task(node.start())
        except TimeoutError:
            raise RequestTimedOutError(f"the cluster did not start within {START_TIMEOUT_S:g} s") from None
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        # Then a topic may have a replica on each.
        running = sum(node.running for node in self._nodes.values())
        await self._wait_until_all(lambda image: sum(broker.active for broker in image.brokers.values()) >= running)

    async def _wait_until_all(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Until it holds on every running node. RequestTimedOutError."""
        try:
            async with timeout(WAIT_TIMEOUT_S):
                for node in self._nodes.values():
                    if node.running:
                        await node.wait_until(condition)
        except TimeoutError:
            raise RequestTimedOutError(
                f"the change did not reach the metadata of all nodes within {WAIT_TIMEOUT_S:g} s"
            ) from None

    async def _end(self) -> None:
        try:
            await self._stop_all()
        finally:
            await self._loop.shutdown_default_executor()  # its threads, by which nodes close theirs, end too

    async def _stop_all(self) -> None:
        ends = await asyncio.gather(*(node.end() for node in self._nodes.values()), return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error


class _RunningNode:
    """A node that can be stopped and started again, at one address."""

    def __init__(self, config: Loaded, address: str) -> None:
        """InvalidConfigError."""
        check_tracing(config.config)
        self.address = address
        self._config = config
        self._run_task: asyncio.Task[None] | None = None
        self._node: Node | None = None

    @property
    def running(self) -> bool:
        return self._run_task is not None and not self._run_task.done()

    async def start(self) -> None:
        """Until it serves. Raises the error that stopped it."""
        if self.running:
            return
        serving = asyncio.Event()
        self._run_task = asyncio.create_task(self._run_node(serving))
        waiting = asyncio.create_task(serving.wait())
        await asyncio.wait([self._run_task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._run_task.done():
            self._run_task.result()

    async def wait_until(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Until `condition` holds for its image."""
        assert self._node is not None, "it runs"
        await self._node.view.wait_until(condition)

    async def fail(self, error: BaseException) -> None:
        """Until it has stopped."""
        assert self._node is not None, "it runs"
        assert self._run_task is not None
        self._node.fail(error)
        await self._wait_until_stopped(self._run_task)

    async def stop(self) -> None:
        """A clean stop. Raises the error that stopped it before; RequestTimedOutError."""
        run_task = self._run_task
        if run_task is None:
            return
        if self._node is not None:
            self._node.stop()
        await self._wait_until_stopped(run_task)
        self._run_task = None
        await run_task

    async def end(self) -> None:
        """Stop it at once, without a controlled shutdown. Raises the error that stopped it before;
        RequestTimedOutError.
        """
        run_task, self._run_task = self._run_task, None
        if run_task is None:
            return
        run_task.cancel()
        await self._wait_until_stopped(run_task)
        if not run_task.cancelled():
            run_task.result()

    async def _wait_until_stopped(self, run_task: asyncio.Task[None]) -> None:
        stopped, _ = await asyncio.wait([run_task], timeout=STOP_TIMEOUT_S)
        if not stopped:
            raise RequestTimedOutError(f"the node at {self.address} did not stop within {STOP_TIMEOUT_S:g} s")

    def _tls(self) -> dict[str, TlsCredentials | None]:
        """By listener; None: plain text."""
        config = self._config.config
        if not any(one.secure for one in listeners_of(config)):
            return dict.fromkeys((one.name for one in listeners_of(config)), None)
        from streamlog.pytest_plugin.secure import credentials

        return {one.name: credentials(config, one) if one.secure else None for one in listeners_of(config)}

    async def _run_node(self, serving: asyncio.Event) -> None:
        fs, workers = PosixFileSystem(), ThreadWorkers()
        tls = self._tls()
        network = GrpcNetwork(
            on_crash=lambda error: node.call_failed(error),
            tls=tls[inter_broker_listener(self._config.config).name],
            listeners=tls,
            metadata=((NODE_HEADER, str(self._config.config[node_settings.NODE_ID])),),
        )
        spans = open_tracing(self._config.config, LogLines(self._config.config[node_settings.NODE_ID], _Logged()))
        ports = Ports(
            fs=fs,
            network=network,
            clock=SystemClock(),
            random=system_random(),
            workers=workers,
            probe=no_probe,
            tracing=spans,
        )
        node = self._node = Node(self._config, ports)
        ready = asyncio.create_task(node.wait_until_ready())
        ready.add_done_callback(lambda _ready: serving.set())
        try:
            await node.run()
        finally:
            ready.cancel()
            if spans is not None:
                await spans.close()
            await network.close()
            await workers.close()
            fs.close()


def _certificates(directory: Path) -> ClusterCertificates:
    from streamlog.pytest_plugin.secure import ClusterCertificates  # imports `cryptography`, of no use to other tests

    return ClusterCertificates(directory)


class _Logged:
    """What a node would write to its own log about its spans, as a logger's lines: a test has no such file."""

    def write(self, text: str, /) -> None:
        _log.info(text.rstrip("\n"))

    def flush(self) -> None:
        """Nothing is kept back."""
