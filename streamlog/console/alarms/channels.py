"""Where notifications go, as the file of rules says. Values."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct, field


class HttpChannel(Struct, frozen=True, kw_only=True):
    """`url` and `headers` may have references to secrets."""

    name: str
    type: str  # webhook, slack, dingtalk, wecom
    url: str
    secret: str = ""  # signs the request (webhook, dingtalk); a reference
    headers: Mapping[str, str] = field(default_factory=dict)  # webhook
    send_resolved: bool = True

    @property
    def shown(self) -> str:
        """Without what may be secret: of a URL its host alone."""
        return _host(self.url)


class EmailChannel(Struct, frozen=True, kw_only=True):
    name: str
    server: str  # host:port
    sender: str
    to: tuple[str, ...]
    tls: str = "starttls"  # starttls, tls, none
    username: str = ""  # empty: no login
    password: str = ""  # a reference
    send_resolved: bool = True
    type: str = "email"

    @property
    def shown(self) -> str:
        return f"{', '.join(self.to)} by {self.server}"


Channel = HttpChannel | EmailChannel
HTTP_TYPES = ("webhook", "slack", "dingtalk", "wecom")


def _host(url: str) -> str:
    if url.startswith("${"):
        return url.partition("}")[0] + "}"
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "(not a URL)"
