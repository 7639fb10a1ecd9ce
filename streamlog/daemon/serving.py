"""A node on the real ports, until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from streamlog.config import Loaded
from streamlog.config.addresses import Address, HttpAddress
from streamlog.config.listeners import Listener, inter_broker_listener, listeners_of
from streamlog.config.settings import node_settings as settings
from streamlog.config.settings.http_settings import HTTP_API_ENABLE
from streamlog.daemon.background import DaemonFiles, StartReport, remove_pid, write_pid
from streamlog.daemon.file_limit import connections_max, file_limit_warning
from streamlog.daemon.http.loop_delay import LoopDelay
from streamlog.daemon.http.process_metrics import process_families
from streamlog.daemon.logs.audit_file import open_audit
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.daemon.tls import (
    HttpsCertificates,
    NodeCertificates,
    certificate_families,
    https_certificates,
    node_certificates,
)
from streamlog.daemon.tracing_choice import open_tracing
from streamlog.metrics import Family
from streamlog.node import Node
from streamlog.ports import NODE_HEADER, Ports, Probe
from streamlog.ports.grpc_adapter.accepting.connections import ConnectionLimits
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.ports.log_levels import LogLevels
from streamlog.ports.malloc import HeapTrimmer
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.system import SystemClock, ThreadWorkers, system_random
from streamlog.url_documents import UrlDocuments

if TYPE_CHECKING:  # imported where it is enabled
    from streamlog.daemon.http.api.front import ApiSettings

INTERRUPTED: Final = 130
IDLE_S: Final = 10.0
"""The node's own connections are closed after so long without a call: they cost pings, and are remade when needed."""


async def serve(
    config: Loaded,
    files: DaemonFiles,
    start_report: StartReport,
    lines: LogLines,
    levels: LogLevels,
    file_limit: int,
) -> None:
    """Run the node until it stops. Raises what `Node.run` raises."""
    warning = file_limit_warning(file_limit)
    if warning is not None:
        lines.write("WARN", warning)
    nodes: list[Node] = []
    fs, workers = PosixFileSystem(), ThreadWorkers()
    certificates = node_certificates(config.config, lines)
    listeners = listeners_of(config.config)
    https = https_certificates(config.config, lines)
    followed = [*certificates.values(), *([] if https is None else [https])]
    by_listener = {one.name: _credentials(certificates, one) for one in listeners}
    network = GrpcNetwork(
        on_crash=lambda error: nodes[0].call_failed(error),
        on_connections=lambda what: lines.write("WARN", what),
        settings=_grpc_settings(config, file_limit, len(listeners)),
        tls=by_listener[inter_broker_listener(config.config).name],
        listeners=by_listener,
        metadata=((NODE_HEADER, str(config.config[settings.NODE_ID])),),
        without_rate=frozenset(one.name for one in listeners if one.for_nodes and len(listeners) > 1),
    )
    spans = open_tracing(config.config, lines)
    audit = open_audit(config.config, lines)
    ports = Ports(
        fs=fs,
        network=network,
        clock=SystemClock(),
        random=system_random(),
        workers=workers,
        probe=_make_probe(start_report, files, lines),
        log_levels=levels,
        tracing=spans,
        audit=audit,
        documents=UrlDocuments(),
    )
    node = Node(config, ports)
    nodes.append(node)
    network.limit_connection_rates(node.connection_rates, ports.clock.monotonic)
    _stop_on_signals(node)
    background = [asyncio.create_task(HeapTrimmer().run())]
    background += [asyncio.create_task(one.watch_expiry()) for one in followed]
    if https is not None:
        background.append(asyncio.create_task(https.credentials.watch()))

    def of_process() -> list[Family]:
        return [*process_families(network, fs), *certificate_families(followed)]

    async with _http(node, config, lines, of_process, https):
        await node.run()
    for task in background:
        task.cancel()
    if spans is not None:
        await spans.close()
    if audit is not None:
        await asyncio.to_thread(audit.close)
    await network.close()
    await workers.close()
    fs.close()
    remove_pid(files.pid)
    lines.write("INFO", "stopped")


@asynccontextmanager
async def _http(
    node: Node,
    config: Loaded,
    lines: LogLines,
    of_process: Callable[[], list[Family]],
    https: HttpsCertificates | None,
) -> AsyncIterator[None]:
    """Serve metrics and health. A node that cannot do so runs without: records come first."""
    if not config.config[settings.HTTP_LISTENERS]:
        yield
        return
    # Imported here: the HTTP server takes 5 MB, which a node without it does not need.
    from streamlog.daemon.http.connection import Handshakes
    from streamlog.daemon.http.listener import HttpListener

    sockets, secure = _http_sockets(config, lines)
    if not sockets and not secure:
        yield
        return
    delay = LoopDelay()
    per_partition = config.config[settings.METRICS_PER_PARTITION]

    async def collect() -> list[Family]:
        return [*await node.metrics.collect(per_partition=per_partition), *delay.families(), *of_process()]

    handshakes = None
    if https is not None:
        per_address = config.config[settings.MAX_CONNECTIONS_PER_IP]
        handshakes = Handshakes(lambda: https.context, lambda what: lines.write("WARN", what), per_address)
    listener = HttpListener(node, collect, sockets, _http_api(config, lines), secure, handshakes)
    measuring = asyncio.create_task(delay.run())
    listener.start()
    try:
        yield
    finally:
        measuring.cancel()
        await listener.stop()


def _http_api(config: Loaded, lines: LogLines) -> ApiSettings | None:
    if not config.config[HTTP_API_ENABLE]:
        return None
    from streamlog.daemon.http.api.front import ApiSettings

    lines.write("INFO", "serves the API of clients over HTTP too (http.api.enable)")
    return ApiSettings.of(config.config)


def _http_sockets(config: Loaded, lines: LogLines) -> tuple[list[socket.socket], list[socket.socket]]:
    """Those in plain text, and those over TLS."""
    from streamlog.daemon.http.listener import open_socket

    plain: list[socket.socket] = []
    secure: list[socket.socket] = []
    for listener in config.config[settings.HTTP_LISTENERS]:
        try:
            one = open_socket(listener.address)
        except OSError as error:
            lines.write(
                "WARN",
                f"cannot serve metrics at {listener.url} ({error.strerror}): free the port, or set http.listeners",
            )
            continue
        bound = Address(listener.address.host or "0.0.0.0", one.getsockname()[1])
        lines.write("INFO", f"serves metrics and health at {HttpAddress(bound, secure=listener.secure).url}")
        (secure if listener.secure else plain).append(one)
    return plain, secure


def _credentials(certificates: Mapping[str, NodeCertificates], listener: Listener) -> TlsCredentials | None:
    """None: plain text."""
    return certificates[listener.name].credentials if listener.secure else None


def _grpc_settings(config: Loaded, file_limit: int, listeners: int) -> GrpcSettings:
    """The message limit covers requests of clients and messages between nodes (4 MiB). Each listener has an equal share
    of the connections, so that clients cannot take those of the nodes.
    """
    wanted = config.config[settings.SOCKET_REQUEST_MAX_BYTES]
    connections = max(1, connections_max(config.config[settings.MAX_CONNECTIONS], file_limit) // listeners)
    per_address = config.config[settings.MAX_CONNECTIONS_PER_IP] or connections // 2
    message_bytes_max = max(wanted, GrpcSettings().message_bytes_max)
    return GrpcSettings(
        message_bytes_max=message_bytes_max,
        unread_bytes_max=max(config.config[settings.QUEUED_MAX_REQUEST_BYTES], 2 * message_bytes_max),
        server_idle_s=config.config[settings.CONNECTIONS_MAX_IDLE_MS] / 1000,
        idle_s=IDLE_S,
        handshake_s=config.config[settings.CONNECTIONS_HANDSHAKE_TIMEOUT_MS] / 1000,
        connections=ConnectionLimits(total=connections, per_address=min(per_address, connections)),
    )


def _make_probe(start_report: StartReport, files: DaemonFiles, lines: LogLines) -> Probe:
    """Writes events to the log; reports to the starting process once the node listens."""

    def probe(event: str, /, **fields: object) -> None:
        lines.event(event, fields, module=sys._getframe(1).f_globals.get("__name__", ""))
        if event == "listening":
            try:
                write_pid(files.pid)
            except OSError as error:
                lines.write("WARN", f"no pid file: {error}")
            start_report.send()

    return probe


def _stop_on_signals(node: Node) -> None:
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def stop(number: int) -> None:
        if signals:
            os._exit(INTERRUPTED)
        signals.append(number)
        node.stop()

    handlers: dict[int, Callable[[int], None]] = {signal.SIGTERM: stop, signal.SIGINT: stop}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler, number)
