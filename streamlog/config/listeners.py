"""A node's listeners, from its settings, with Kafka's names and meanings.

    listeners=CLIENT://:9092,INTERNAL://10.0.0.1:9093          where it listens, by name
    listener.security.protocol.map=CLIENT:SSL,INTERNAL:SSL     TLS or not; SSL and PLAINTEXT stand for themselves
    advertised.listeners=CLIENT://node1.example:9092           where others connect, if elsewhere
    inter.broker.listener.name=INTERNAL                        the one for nodes; a single listener is for all
    listener.name.client.ssl.keystore.location=...             TLS settings of one listener, before the common ones

The addresses of http.listeners over TLS are together one more listener, HTTPS. It has settings of its own in the same
way, but for ssl.client.auth, of which it takes its own alone: most scrapers and browsers have no certificate.

Of a group of settings (keystore, truststore) a listener has its own or the common ones, never a mixture.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec import Struct

from streamlog.config.addresses import Address, ListenerAddress, Protocol
from streamlog.config.effective import Config
from streamlog.config.setting import Setting
from streamlog.config.settings import node_settings as node
from streamlog.config.settings import security_settings as security
from streamlog.config.settings import tls_settings as tls
from streamlog.config.settings.listener_settings import listener_setting
from streamlog.errors import InvariantError

T = TypeVar("T")

KEYSTORE: Final = (tls.SSL_KEYSTORE_LOCATION, tls.SSL_KEYSTORE_KEY, tls.SSL_KEYSTORE_CERTIFICATE_CHAIN)
HTTPS: Final = "HTTPS"
"""The name of the addresses of http.listeners that are over TLS, in `listener.name.https.SETTING`."""
TRUSTSTORE: Final = (tls.SSL_TRUSTSTORE_LOCATION, tls.SSL_TRUSTSTORE_CERTIFICATES)


class Listener(Struct, frozen=True, kw_only=True):
    name: str
    secure: bool
    bind: Address  # port 0: the kernel chooses
    advertised: Address  # port 0: as bound
    for_nodes: bool  # the inter-broker listener
    for_clients: bool  # any other, or the only one
    client_auth: str  # ssl.client.auth


class ListenerTls(Struct, frozen=True, kw_only=True):
    """The TLS settings of one listener."""

    keystore: str | None
    key: str | None
    chain: str | None
    truststore: str | None
    roots: str | None

    def __repr__(self) -> str:
        """Without the key."""
        return f"ListenerTls(keystore={self.keystore!r}, truststore={self.truststore!r})"

    @property
    def has_key(self) -> bool:
        return self.keystore is not None or (self.key is not None and self.chain is not None)

    @property
    def has_trust(self) -> bool:
        return self.truststore is not None or self.roots is not None


def listeners_of(config: Config) -> tuple[Listener, ...]:
    """In the order of `listeners`. The rules hold (`listener_rules`)."""
    inter_broker = inter_broker_name(config)
    single = len(config[node.LISTENERS]) == 1
    return tuple(
        Listener(
            name=one.name,
            secure=protocol_of(config, one.name) is Protocol.SSL,
            bind=one.address,
            advertised=advertised_of(config, one).address,
            for_nodes=one.name == inter_broker,
            for_clients=single or one.name != inter_broker,
            client_auth=of_listener(config, one.name, security.SSL_CLIENT_AUTH),
        )
        for one in config[node.LISTENERS]
    )


def inter_broker_listener(config: Config) -> Listener:
    found = next((one for one in listeners_of(config) if one.for_nodes), None)
    if found is None:
        raise InvariantError("no listener is the inter-broker listener")
    return found


def client_listener(config: Config) -> Listener:
    """The first one for clients."""
    return next(one for one in listeners_of(config) if one.for_clients)


def inter_broker_name(config: Config) -> str | None:
    """None: there are several listeners, and none is named."""
    given, listeners = config[node.INTER_BROKER_LISTENER_NAME], config[node.LISTENERS]
    return listeners[0].name if given is None and len(listeners) == 1 else given


def protocol_of(config: Config, name: str) -> Protocol | None:
    """None: the listener has no entry in listener.security.protocol.map."""
    return next((one.protocol for one in config[node.LISTENER_SECURITY_PROTOCOL_MAP] if one.name == name), None)


def advertised_of(config: Config, listener: ListenerAddress) -> ListenerAddress:
    return next((one for one in config[node.ADVERTISED_LISTENERS] if one.name == listener.name), listener)


def of_listener(config: Config, name: str, setting: Setting[T]) -> T:
    """The listener's own value, or the common one."""
    own = listener_setting(name, setting)
    return config[own] if config.has(own) else config[setting]


def serves_https(config: Config) -> bool:
    return any(one.secure for one in config[node.HTTP_LISTENERS])


def https_client_auth(config: Config) -> str:
    own = listener_setting(HTTPS, security.SSL_CLIENT_AUTH)
    return config[own] if config.has(own) else "none"


def tls_of(config: Config, name: str) -> ListenerTls:
    keystore = _own_or_common(config, name, KEYSTORE)
    truststore = _own_or_common(config, name, TRUSTSTORE)
    return ListenerTls(
        keystore=keystore[0], key=keystore[1], chain=keystore[2], truststore=truststore[0], roots=truststore[1]
    )


def _own_or_common(config: Config, name: str, group: tuple[Setting[str | None], ...]) -> tuple[str | None, ...]:
    own = [listener_setting(name, one) for one in group]
    if any(config.has(one) for one in own):
        return tuple(config[one] if config.has(one) else None for one in own)
    return tuple(config[one] for one in group)
