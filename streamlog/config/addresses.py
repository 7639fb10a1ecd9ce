"""Addresses of listeners, of nodes and of voters: `PLAINTEXT://host:port`, `HTTPS://host:port`, `id@host:port`."""

from __future__ import annotations

import enum
import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from streamlog.config.kinds import ValueKind
from streamlog.model import INT32_MAX, BrokerId

HOST_LENGTH_MAX: Final = 253
URL_LENGTH_MAX: Final = 2_000
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
LISTENER_NAME_MAX: Final = 64
LISTENER_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LISTENER_NAME_MAX - 1}}}")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")


class Protocol(enum.Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"


class Address(Struct, frozen=True):
    """`host` is a name or an IP address, without brackets; empty: the wildcard address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """Stands for all addresses of the machine, so clients cannot connect to it by this name."""
        return not self.host or (_is_ip(self.host) and ipaddress.ip_address(self.host).is_unspecified)

    @property
    def loopback(self) -> bool:
        """Reachable from this machine only."""
        if _is_ip(self.host):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host.lower().rstrip(".") == "localhost"


class HttpAddress(Struct, frozen=True):
    """Of http.listeners."""

    address: Address
    secure: bool = False  # over TLS

    def __str__(self) -> str:
        return f"HTTPS://{self.address}" if self.secure else str(self.address)

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.address}"


class ListenerAddress(Struct, frozen=True):
    """`name`: in capitals, as Kafka has it; the protocol's, or one of listener.security.protocol.map."""

    name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


class ListenerProtocol(Struct, frozen=True):
    """An entry of listener.security.protocol.map."""

    name: str
    protocol: Protocol

    def __str__(self) -> str:
        return f"{self.name}:{self.protocol.value}"


class VoterAddress(Struct, frozen=True):
    node_id: BrokerId
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


def is_host_name(text: str) -> bool:
    return len(text) <= HOST_LENGTH_MAX and _HOST.fullmatch(text) is not None


def parse_address(text: str, *, port_min: int = 1, may_be_wildcard: bool = False) -> Address:
    """`host:port`, `[ipv6]:port`. ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or _NUMBER.fullmatch(port) is None or not port_min <= int(port) <= 65_535:
        raise ValueError(f"must be host:port with a port in {port_min}..65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host) or ":" not in host:
            raise ValueError("brackets must enclose an IPv6 address")
    elif "://" in host:
        raise ValueError("must be host:port, without a scheme before it")
    elif ":" in host:
        raise ValueError("an IPv6 address must be in brackets: [::1]:9092")
    elif host and not is_host_name(host):
        raise ValueError("is not a valid host name")
    address = Address(host, int(port))
    if address.is_wildcard and not may_be_wildcard:
        raise ValueError("must name a host that others can connect to, not a wildcard address")
    return address


class AddressKind(ValueKind[Address], frozen=True):
    """`listening`: an address to listen on: the wildcard address is allowed, port 0 lets the system choose one."""

    listening: bool = False

    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "host:port"

    def parse(self, text: str) -> Address:
        return parse_address(text.strip(), port_min=0 if self.listening else 1, may_be_wildcard=self.listening)


class HttpAddressKind(ValueKind[HttpAddress], frozen=True):
    """To listen on, as AddressKind's."""

    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "host:port, HTTPS://host:port"

    def parse(self, text: str) -> HttpAddress:
        scheme, separator, rest = text.strip().rpartition("://")
        if separator and scheme.upper() not in ("HTTP", "HTTPS"):
            raise ValueError(f"must be one of {self.limit}")
        address = parse_address(rest, port_min=0, may_be_wildcard=True)
        return HttpAddress(address, secure=scheme.upper() == "HTTPS")


class EndpointKind(ValueKind[str], frozen=True):
    """Of a service that this process calls."""

    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "http://host:port, https://host:port"

    def parse(self, text: str) -> str:
        scheme, separator, rest = text.strip().partition("://")
        if not separator or scheme.lower() not in ("http", "https"):
            raise ValueError(f"must be one of {self.limit}")
        return f"{scheme.lower()}://{parse_address(rest.removesuffix('/'))}"


class DocumentUrlKind(ValueKind[str], frozen=True):
    """Of something that this process trusts, or sends a secret to."""

    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "https://..., file:///..."

    def parse(self, text: str) -> str:
        text = text.strip()
        if len(text) > URL_LENGTH_MAX or not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError(f"must have at most {URL_LENGTH_MAX} characters, all of ASCII, and no spaces")
        try:
            parts = urlsplit(text)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise ValueError("must be a URL") from None
        if parts.scheme == "file":
            if host or not parts.path.startswith("/"):
                raise ValueError("must be file:/// and an absolute path")
        elif parts.scheme not in ("https", "http") or not host:
            raise ValueError(f"must be one of {self.limit}")
        elif parts.username is not None or parts.fragment:
            raise ValueError("must have no user, password or fragment")
        elif parts.scheme == "http" and not Address(host, 0).loopback:
            raise ValueError(
                "must be https://: others can read and change what is sent over http://, which is for this machine only"
            )
        return text


class OriginKind(ValueKind[str], frozen=True):
    """Of web pages, as browsers write it in `Origin`; `*`: any."""

    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "https://host, https://host:port, *"

    def parse(self, text: str) -> str:
        text = text.strip().lower()
        if text == "*":
            return text
        scheme, separator, host = text.partition("://")
        if not separator or scheme not in ("http", "https"):
            raise ValueError(f"must be one of {self.limit}, or the same with http")
        parse_address(host if urlsplit(text).port is not None else f"{host}:0", port_min=0)
        return text


class ListenerKind(ValueKind[ListenerAddress], frozen=True):
    """`advertised`: clients connect to it, so it needs a host and a port."""

    advertised: bool = False

    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "PLAINTEXT://host:port, SSL://host:port, NAME://host:port"

    def parse(self, text: str) -> ListenerAddress:
        name, separator, rest = text.strip().partition("://")
        if not separator or LISTENER_NAME.fullmatch(name) is None:
            raise ValueError(f"must be one of {self.limit}")
        _check_protocol(name.upper())
        # Port 0 lets the system choose one.
        address = parse_address(rest, port_min=1 if self.advertised else 0, may_be_wildcard=not self.advertised)
        return ListenerAddress(name.upper(), address)


class ListenerNameKind(ValueKind[str], frozen=True):
    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "the name of a listener"

    def parse(self, text: str) -> str:
        if LISTENER_NAME.fullmatch(text.strip()) is None:
            raise ValueError(f"must be {self.limit}: letters, digits, '_' and '-', at most {LISTENER_NAME_MAX}")
        return text.strip().upper()


class ListenerProtocolKind(ValueKind[ListenerProtocol], frozen=True):
    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "NAME:PLAINTEXT, NAME:SSL"

    def parse(self, text: str) -> ListenerProtocol:
        name, separator, protocol = (part.strip() for part in text.partition(":"))
        if not separator or LISTENER_NAME.fullmatch(name) is None:
            raise ValueError(f"must be one of {self.limit}")
        _check_protocol(protocol.upper())
        if protocol.upper() not in Protocol.__members__:
            raise ValueError(f"must be one of {self.limit}")
        return ListenerProtocol(name.upper(), Protocol[protocol.upper()])


class VoterKind(ValueKind[VoterAddress], frozen=True):
    @property
    def type_name(self) -> str:
        return "string"

    @property
    def limit(self) -> str:
        return "id@host:port"

    def parse(self, text: str) -> VoterAddress:
        node_id, separator, rest = text.strip().partition("@")
        if not separator or _NUMBER.fullmatch(node_id) is None or int(node_id) > INT32_MAX:
            raise ValueError(f"must be {self.limit}")
        return VoterAddress(BrokerId(int(node_id)), parse_address(rest))


def _check_protocol(name: str) -> None:
    """ValueError for Kafka's protocols with logins: here a listener takes logins over TLS without its own protocol."""
    if name.startswith("SASL_"):
        instead = "SSL" if name == "SASL_SSL" else "SSL, since passwords and tokens are accepted over TLS only"
        raise ValueError(
            f"{name} is not a protocol of listeners: use {instead}; users log in with passwords and tokens over SSL "
            "where authorizer.class.name is set"
        )


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
