"""The ports of a client: those of a node without the disk. Programs use the real ones, simulations their own."""

from __future__ import annotations

import base64
import string
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

from msgspec import Struct

from streamlog.client.connection.connection_log import ConnectionLog
from streamlog.config import Config
from streamlog.config.addresses import Protocol as SecurityProtocol
from streamlog.config.settings import client_settings
from streamlog.ports import CLIENT_ID_HEADER, Clock, Network, Random, Workers
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.ports.system import DaemonThreads, SystemClock, ThreadWorkers, system_random

if TYPE_CHECKING:
    from streamlog.client.connection.token_login import TokenLogin

# The largest message that a client receives: a batch is sent whole, and a topic may allow large ones.
RECEIVE_BYTES_MAX: Final = 64 << 20
# A call that costs a node little and needs no right: it carries a renewed token.
_RENEWAL: Final = "/streamlog.v1.Cluster/Describe"
_RENEWAL_TIMEOUT_S: Final = 10.0
_UNQUOTED: Final = string.punctuation.replace("%", "")


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
    login: TokenLogin | None = None  # None: there is no bearer token

    async def close(self) -> None:
        if self.login is not None:
            await self.login.close()
        await self.network.close()
        self.workers.stop()  # what they still compute is not used any more


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
    clock, random, tls = SystemClock(), system_random(), _tls(config)
    workers = ThreadWorkers()
    login = _token_login(config, clock, random)
    network = GrpcNetwork(
        on_crash=_no_server,
        settings=settings,
        tls=tls,
        metadata=_metadata(config),
        login=login,
        events=ConnectionLog(clock),
    )
    if login is not None:
        login.renew_streams = lambda: network.call_each(_RENEWAL, _RENEWAL_TIMEOUT_S)
    return RealPorts(network=network, clock=clock, random=random, workers=workers, login=login)


def _tls(config: Config) -> TlsCredentials | None:
    """InvalidConfigError."""
    if config[client_settings.SECURITY_PROTOCOL] == SecurityProtocol.PLAINTEXT.value:
        return None
    from streamlog.tls.material import MaterialFiles  # an expensive import, of no use to other clients

    return TlsCredentials(MaterialFiles.of(config))


def _metadata(config: Config) -> tuple[tuple[str, str], ...]:
    """Of every call: the client id, which quotas may be for, and the user's name and password."""
    client_id = quote(config[client_settings.CLIENT_ID], safe=_UNQUOTED)
    return (*(((CLIENT_ID_HEADER, client_id),) if client_id else ()), *_login(config))


def _login(config: Config) -> tuple[tuple[str, str], ...]:
    if config[client_settings.SECURITY_PROTOCOL] != client_settings.SASL_SSL:
        return ()
    if config[client_settings.SASL_MECHANISM] == client_settings.OAUTHBEARER:
        return ()
    given = f"{config[client_settings.SASL_USERNAME]}:{config[client_settings.SASL_PASSWORD]}"
    return (("authorization", "Basic " + base64.b64encode(given.encode()).decode()),)


def _token_login(config: Config, clock: SystemClock, random: Random) -> TokenLogin | None:
    """InvalidConfigError."""
    if config[client_settings.SECURITY_PROTOCOL] != client_settings.SASL_SSL:
        return None
    if config[client_settings.SASL_MECHANISM] != client_settings.OAUTHBEARER:
        return None
    from streamlog.client.connection.token_login import RefreshTimes, TokenLogin, retriever_of  # an expensive import

    return TokenLogin(retriever_of(config, clock), RefreshTimes.of(config), clock, random, DaemonThreads())


def _no_server(error: Exception) -> None:
    """A client serves no methods, so no handler can fail."""
    raise error
