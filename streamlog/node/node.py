"""Node: one node of a cluster, from its first lock to its last sync.

    1  lock and check the log directories; refused where they belong to another process, node or cluster
    2  listen; before step 7 only Identification and health are served, other calls end with UNAVAILABLE
    3  learn the cluster's id, make it durable (cluster_join)
    4  follow the metadata (quorum_member); meanwhile the logs are opened and recovered
    5  register, and apply the registration
    6  run the replicas, connect the services
    7  report that it can serve: unfenced, healthy, ready

    stopping: health set to NOT_SERVING; controlled shutdown; the quorum's leadership transferred; replicas stopped; the
    listener closed; logs synced, and the mark of a clean stop written last.

`stop` before the node is ready cancels the start: a start may be interrupted anywhere, by `stop` as by a crash.

The node is fail-stop. An error of any of its tasks stops it: `run` raises the error, no log directory is marked as
clean, and the caller ends the process. A handler that finds a broken invariant stops the node too (`call_failed`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from streamlog.api.health import Health
from streamlog.api.reflection import Reflection
from streamlog.api.service import Service
from streamlog.config import Loaded
from streamlog.config.addresses import Address
from streamlog.config.listeners import Listener, client_listener, inter_broker_listener, listeners_of
from streamlog.config.settings import log_settings
from streamlog.config.settings import node_settings as settings
from streamlog.controller import ActiveController, ControllerLink, ControllerService
from streamlog.errors import first_error
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.features import METADATA_VERSION_MAX, METADATA_VERSION_MIN
from streamlog.metadata.records import EPOCH_FROM_INDEX, MetadataVersion
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, RaftIndex
from streamlog.node import served_methods
from streamlog.node.addresses import advertised_address, listen_address, registered_listeners
from streamlog.node.auditing import made_audit_topic, made_trail
from streamlog.node.authorization import made_authorizer, made_connection_rates, made_gate, made_quotas
from streamlog.node.cluster_formation import IdentificationService
from streamlog.node.cluster_join import ClusterJoin
from streamlog.node.data_plane import DataPlane, directory_ids
from streamlog.node.failed_calls import FailedCalls, is_invariant
from streamlog.node.in_process_calls import InProcessCalls
from streamlog.node.method_router import MethodRouter
from streamlog.node.metrics import NodeMetrics
from streamlog.node.quorum_clock import QuorumClock
from streamlog.node.quorum_member import ObserverMember, QuorumMember, VoterMember
from streamlog.node.registration import BrokerRegistration
from streamlog.node.request_spans import RequestSpans
from streamlog.ports import Ports, Server
from streamlog.raft.open_storage import Owner
from streamlog.raft.voters import VoterSet
from streamlog.services.access.access_lease import AccessLease
from streamlog.storage.directories.directories import LogDirectories

CLOSE_GRACE_S: Final = 0.25
"""For unary calls in progress when the listener closes. Streams would not end by themselves, and are cancelled."""


class Node:
    """`run` once. `config` names its directories by absolute paths."""

    def __init__(
        self, config: Loaded, ports: Ports, metadata_version_max: MetadataVersion = METADATA_VERSION_MAX
    ) -> None:
        """InvalidConfigError. `metadata_version_max`: lower than by default for an earlier release, in tests."""
        self._ports = ports
        self._metadata_version_max = metadata_version_max
        self._config = config.config  # of the start
        self._node_id = BrokerId(config.config[settings.NODE_ID])
        self._incarnation_id = ports.random.getrandbits(128).to_bytes(16, "big")
        self._view = MetadataView()
        self._configs = NodeConfigs(config.given, self._node_id, self._view)
        self._clock = QuorumClock(
            ports.clock,
            skew_max_ms=lambda: self._configs.node[settings.CLOCK_SKEW_MAX_MS],
            probe=ports.probe,
        )
        self._identity = IdentificationService(self._node_id, self._incarnation_id)
        self._health = Health(served_methods.client_services())
        self._authorizer = made_authorizer(self._config, self._view)
        self._lease = AccessLease(
            ports.clock.monotonic, self._view, lambda: self._configs.node[settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        )
        gate = made_gate(self._config, self._view, self._authorizer, self._lease, ports)
        self.metrics = NodeMetrics(self._node_id, self._view, ports, self._authorizer, lambda: self.is_ready)
        self.metrics.logins = None if gate is None else gate.logins
        self._audit_topic = made_audit_topic(self._config, self._view, ports)
        audit = made_trail(self._config, self._node_id, self._view, ports, self._audit_topic)
        self.metrics.audit, self.metrics.audit_topic = audit, self._audit_topic
        self.metrics.tokens = None if gate is None else gate.tokens
        quotas = made_quotas(self._config, self._view, self._configs, ports)
        self.metrics.quotas = self._quota_limits = quotas.limits
        self.connection_rates = made_connection_rates(self._view, self._configs)
        self._router = MethodRouter(
            served_methods.unary_methods(),
            served_methods.streaming_methods(),
            self.metrics.calls,
            gate,
            None if ports.tracing is None else RequestSpans(ports.tracing),
            audit,
            quotas,
        )
        self._in_process_calls: InProcessCalls | None = None
        self._address: Address | None = None  # of the inter-broker listener
        self._advertised: dict[str, Address] = {}  # by listener
        self._cluster_id = ""
        self._voters = VoterSet()  # of the settings, or of the node that was asked
        self._member: QuorumMember | None = None
        self._plane: DataPlane | None = None
        self._main_task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._failure: BaseException | None = None
        self._failed_calls = FailedCalls()
        # Written into the log directories when they are closed; None: not a clean stop.
        self._clean_epoch: BrokerEpoch | None = None

    @property
    def node_id(self) -> BrokerId:
        return self._node_id

    @property
    def address(self) -> str:
        """The `host:port` that is advertised to nodes. Empty until the node listens."""
        return "" if self._address is None else str(self._address)

    @property
    def client_address(self) -> str:
        """The same for clients: of the first listener for them."""
        return str(self._advertised[client_listener(self._config).name]) if self._advertised else ""

    @property
    def cluster_id(self) -> str:
        """Empty until it is known."""
        return self._cluster_id

    @property
    def view(self) -> MetadataView:
        return self._view

    @property
    def controller(self) -> ActiveController | None:
        """The node's own; None before the node has joined the quorum, and on observers."""
        return None if self._member is None else self._member.active

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set() and not self._stopping.is_set()

    @property
    def has_lost_vote(self) -> bool:
        """The node is configured as a voter, but its metadata directory is not the one that has the vote."""
        return self._member is not None and self._node_id in self._member.without_vote()

    @property
    def in_process_calls(self) -> InProcessCalls:
        """Of its methods for clients, for another front than gRPC; made when it is first used."""
        if self._in_process_calls is None:
            listener = client_listener(self._config).name if len(self._config[settings.LISTENERS]) > 1 else ""
            self._in_process_calls = InProcessCalls(self._router, self.call_failed, listener)
        return self._in_process_calls

    async def wait_until_ready(self) -> None:
        """Until the node serves. A failed start does not end this wait: watch `run` beside it."""
        await self._ready.wait()

    def unserved(self) -> list[str]:
        """Methods that have no handler now."""
        return self._router.unserved()

    # Running.

    async def run(self) -> None:
        """Until `stop`; raises the error that stopped the node."""
        if self._failure is None and not self._stopping.is_set():
            self._main_task = asyncio.create_task(self._run_node())  # sim: awaited below
            try:
                await asyncio.wait([self._main_task])
            finally:
                await self._end(self._main_task)
        if self._failure is not None:
            raise first_error(self._failure)

    def stop(self) -> None:
        """Shut down: `run` returns when that is done."""
        self._stopping.set()
        if self._main_task is not None and not self._ready.is_set():
            self._main_task.cancel()

    def fail(self, error: BaseException) -> None:
        """A part of the node has failed: stop at once."""
        if self._failure is None:
            self._failure = error
        if self._main_task is not None:
            self._main_task.cancel()

    def call_failed(self, error: BaseException) -> None:
        """A handler raised an unexpected error: for `on_crash` of the network, which has ended the call.

        No request can break an invariant of this node's own state: where one is broken, the node stops, since a wrong
        log is worse than a stopped one. Any other error is a bug in how a request is read or answered: it fails that
        call, and is logged, at most once a minute for each place in the code.
        """
        if is_invariant(error):
            self.fail(error)
        elif (line := self._failed_calls.line(error, self._ports.clock.monotonic())) is not None:
            self._ports.probe("call_failed", error=type(error).__name__, place=line, reason=str(error))

    async def _end(self, life: asyncio.Task[None]) -> None:
        if not life.done():  # `run` itself is cancelled
            life.cancel()
            await asyncio.wait([life])
        if self._failure is None and not life.cancelled():
            self._failure = life.exception()
        self._ports.probe(
            "node_stopped",
            node=self._node_id,
            clean=self._clean_epoch is not None,
            reason="" if self._failure is None else str(first_error(self._failure)),
        )

    async def _run_node(self) -> None:
        self._ports.probe("node_starting", node=self._node_id)
        async with AsyncExitStack() as cleanup:
            directories = await self._open_directories()
            cleanup.push_async_callback(self._close_logs, directories)
            join = ClusterJoin(
                self._node_id, self._config, self._metadata_log_dir(), directories, self._identity, self._ports
            )
            join.serve_stored_id()
            advertised = await self._listen(cleanup)
            cleanup.push_async_callback(self._end_in_process_calls)
            joined = await join.run(advertised)
            self._cluster_id, self._voters = joined.owner.cluster_id, joined.voters
            self._member = member = self._make_member(joined.owner, join)
            link = self._make_link(member)
            cleanup.push_async_callback(link.close)
            await self._run_member(member, link, directories)

    # Starting.

    async def _open_directories(self) -> LogDirectories:
        ports = self._ports
        return await LogDirectories.open(
            ports.fs,
            self._log_dirs(),
            clock=self._clock,
            random=ports.random,
            probe=ports.probe,
            node_id=self._node_id,
            checkpoint_interval_ms=self._config[log_settings.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS],
        )

    def _log_dirs(self) -> tuple[str, ...]:
        return self._config[log_settings.LOG_DIRS] or self._config[log_settings.LOG_DIR]

    def _metadata_log_dir(self) -> str:
        return self._config[settings.METADATA_LOG_DIR] or self._log_dirs()[0]

    async def _listen(self, cleanup: AsyncExitStack) -> Address:
        """Returns what is advertised to nodes. OSError where an address cannot be bound."""
        clock = self._ports.clock
        self._router.connect([self._identity.service(clock), self._health.service(clock)])
        listeners = listeners_of(self._config)
        servers: list[tuple[Listener, Server]] = []
        for one in listeners:
            server = await self._listen_at(one, named=len(listeners) > 1)
            cleanup.push_async_callback(server.close, grace_s=CLOSE_GRACE_S)
            servers.append((one, server))
        self._advertised = {one.name: advertised_address(one, server.address) for one, server in servers}
        self._address = address = self._advertised[inter_broker_listener(self._config).name]
        for one, server in servers:
            advertised = str(self._advertised[one.name])
            self._ports.probe(
                "listening", node=self._node_id, address=server.address, advertised=advertised, listener=one.name
            )
        return address

    async def _listen_at(self, listener: Listener, *, named: bool) -> Server:
        """`named`: calls have the listener's name, since there are several."""
        address, for_nodes = listen_address(listener), listener.for_nodes
        try:
            return await self._ports.network.listen(
                address,
                unary=self._router.unary(for_nodes=for_nodes),
                streaming=self._router.streaming(for_nodes=for_nodes),
                listener=listener.name if named else "",
            )
        except OSError as error:
            reason = f"cannot listen on {address} ({error.strerror}): stop what listens there, or set listeners"
            raise OSError(error.errno, reason) from error

    async def _end_in_process_calls(self) -> None:
        if self._in_process_calls is not None:
            await self._in_process_calls.close(CLOSE_GRACE_S)

    def _make_member(self, owner: Owner, join: ClusterJoin) -> QuorumMember:
        if self._voters.get(self._node_id) is None:
            return ObserverMember(owner, view=self._view, ports=self._ports)
        member = VoterMember(
            owner,
            join.quorum_directory(),
            self.address,
            view=self._view,
            configs=self._configs,
            ports=self._ports,
            metadata_version_max=self._metadata_version_max,
        )
        self._router.connect_handlers({}, member.streaming_handlers())
        return member

    def _make_link(self, member: QuorumMember) -> ControllerLink:
        return ControllerLink(
            self._node_id,
            view=self._view,
            active=member.active,
            voters=member.voters,
            network=self._ports.network,
            clock=self._ports.clock,
            random=self._ports.random,
        )

    async def _run_member(self, member: QuorumMember, link: ControllerLink, directories: LogDirectories) -> None:
        """From joining the quorum to the end of the node."""
        self._plane = plane = DataPlane(
            self._node_id,
            self._cluster_id,
            directories,
            view=self._view,
            configs=self._configs,
            link=link,
            ports=self._ports,
            clock=self._clock,
            authorizer=self._authorizer,
            limits=self._quota_limits,
        )
        services = plane.services(member)
        self.metrics.sources = plane.metric_sources(member)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(member.run())
            tasks.create_task(self._serve_cluster_id(member))
            self._serve_controller(member, services)
            await plane.open()
            registration = self._registration(link, plane, directories)
            epoch = await registration.register()
            beating = tasks.create_task(registration.run())
            await self._view.wait_until_applied(RaftIndex(epoch))
            serving = tasks.create_task(plane.run())
            self._serve_clients(services)
            await registration.serve()
            auditing = None
            if self._audit_topic is not None:
                auditing = tasks.create_task(self._audit_topic.run(self.address))
            self._set_ready()
            await self._stopping.wait()
            if self._audit_topic is not None and auditing is not None:
                await self._audit_topic.close()
                auditing.cancel()
            await self._controlled_shutdown(registration)
            self._router.disconnect(served_methods.CLIENT_PREFIX)
            beating.cancel()
            serving.cancel()
            await member.stop()
            following.cancel()
        self._clean_epoch = registration.broker_epoch

    async def _serve_cluster_id(self, member: QuorumMember) -> None:
        """Identify responds with the voters in effect, too, once the log is open that has them."""
        await member.wait_until_open()
        self._identity.set_cluster(self._cluster_id, self._voters, member.logged_voters)

    async def _close_logs(self, directories: LogDirectories) -> None:
        """After all tasks that serve or write have ended."""
        if self._plane is not None and self._failure is None:
            await self._plane.close(self._clean_epoch)
        else:
            await directories.close()

    def _serve_controller(self, member: QuorumMember, services: Sequence[Service]) -> None:
        """Before this node has registered: all nodes need the controller's service."""
        if member.active is not None:
            admin = next(service for service in services if service.name == served_methods.ADMIN)
            controller = ControllerService(member.active, self._view, admin.unary())
            self._router.connect([controller.service(self._ports.clock)])

    def _serve_clients(self, services: Sequence[Service]) -> None:
        clock = self._ports.clock
        public = [service for service in services if service.name.startswith(served_methods.CLIENT_PACKAGE)]
        reflection = Reflection([*public, self._health.service(clock)])
        self._router.connect([*services, *reflection.services(clock)])

    def _registration(self, link: ControllerLink, plane: DataPlane, directories: LogDirectories) -> BrokerRegistration:
        assert self._address is not None
        asked = RegisterBroker(
            cluster_id=self._cluster_id,
            broker_id=self._node_id,
            incarnation_id=self._incarnation_id,
            host=self._address.host,
            port=self._address.port,
            listeners=registered_listeners(self._config, self._advertised),
            rack=self._config[settings.BROKER_RACK],
            metadata_version_min=METADATA_VERSION_MIN,
            metadata_version_max=self._metadata_version_max,
            directory_ids=directory_ids(directories),
            previous_broker_epoch=plane.clean_epoch or EPOCH_FROM_INDEX,
        )
        return BrokerRegistration(
            asked,
            link=link,
            view=self._view,
            config=lambda: self._configs.node,
            clock=self._clock,
            random=self._ports.random,
            probe=self._ports.probe,
            lease=self._lease,
        )

    def _set_ready(self) -> None:
        for service in served_methods.client_services():
            self._health.set_serving(service, True)
        self._ready.set()
        self._ports.probe("node_ready", node=self._node_id, address=self.client_address, cluster=self._cluster_id)

    # Stopping.

    async def _controlled_shutdown(self, registration: BrokerRegistration) -> None:
        self._ports.probe("node_stopping", node=self._node_id)
        self._health.stop()
        if self._config[settings.CONTROLLED_SHUTDOWN_ENABLE]:
            left = await registration.shut_down(self._config[settings.CONTROLLED_SHUTDOWN_TIMEOUT_MS] / 1000)
            if not left:
                self._ports.probe("controlled_shutdown_given_up", node=self._node_id)
