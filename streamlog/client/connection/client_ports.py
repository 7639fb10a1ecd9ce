"""The ports of a client: those of a node without the disk. Programs use the real ones, simulations their own."""

from __future__ import annotations

import base64
from typing import Final, Protocol

from msgspec import Struct

from streamlog.config import Config
from streamlog.config.addresses import Protocol as SecurityProtocol
from streamlog.config.settings import client_settings
from streamlog.ports import Clock, Network, Random, Workers
from streamlog.ports.grpc_adapter.credentials import TlsCredentials
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.system import SystemClock, ThreadWorkers, system_random

# The largest message that a client receives: a batch is sent whole, and a topic may allow large ones.
RECEIVE_BYTES_MAX: Final = 64 << 20


class ClientPorts(Protocol):
    """`streamlog.ports.Ports` fits."""

    @property
    def network(self) -> Network: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def random(self) -> Random: ...

    @property
    def workers(self) -> Workers: ...


class RealPorts(Struct, frozen=True, kw_only=True):
    """To be closed on the loop on which they were made."""

    network: GrpcNetwork
    clock: SystemClock
    random: Random
    workers: ThreadWorkers

    async def close(self) -> None:
        await self.network.close()
        self.workers.close()


def real_ports(config: Config) -> RealPorts:
    """InvalidConfigError."""
    settings = GrpcSettings(
        message_bytes_max=RECEIVE_BYTES_MAX,
        backoff_s=(
            config[client_settings.RECONNECT_BACKOFF_MS] / 1000,
            config[client_settings.RECONNECT_BACKOFF_MAX_MS] / 1000,
        ),
        idle_s=config[client_settings.CONNECTIONS_MAX_IDLE_MS] / 1000,
    )
    return RealPorts(
        network=GrpcNetwork(on_crash=_no_server, settings=settings, tls=_tls(config), metadata=_login(config)),
        clock=SystemClock(),
        random=system_random(),
        workers=ThreadWorkers(),
    )


def _tls(config: Config) -> TlsCredentials | None:
    """InvalidConfigError."""
    if config[client_settings.SECURITY_PROTOCOL] == SecurityProtocol.PLAINTEXT.value:
        return None
    from streamlog.tls.material import MaterialFiles  # an expensive import, of no use to other clients

    return TlsCredentials(MaterialFiles.of(config))


def _login(config: Config) -> tuple[tuple[str, str], ...]:
    """The metadata of every call."""
    if config[client_settings.SECURITY_PROTOCOL] != client_settings.SASL_SSL:
        return ()
    assert config[client_settings.SASL_MECHANISM] == "PLAIN"
    given = f"{config[client_settings.SASL_USERNAME]}:{config[client_settings.SASL_PASSWORD]}"
    return (("authorization", "Basic " + base64.b64encode(given.encode()).decode()),)


def _no_server(error: Exception) -> None:
    """A client serves no methods, so no handler can fail."""
    raise error
