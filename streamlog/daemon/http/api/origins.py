"""Which web pages may use the API, and under which host names.

A browser sends requests of any page to any address that it can reach, so a page on the Internet could use a node of
this machine or network. Three checks, before anything else of a request is looked at:

- `Origin`, which a browser adds, is that of the node itself, or one of http.api.allowed.origins (CORS).
- `Sec-Fetch-Site`, likewise: a request of another site without an `Origin` (an image, a link) is refused.
- `Host` is an address or a name of this node. A page whose name was made to point to this node's address (DNS
  rebinding) has the node's origin for its browser, but its own name as `Host`.

Programs other than browsers send neither `Origin` nor `Sec-Fetch-Site`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from streamlog.daemon.http.api.api_errors import ApiError, Headers
from streamlog.errors import ClusterAuthorizationError

ANY_ORIGIN: Final = "*"
_ALLOWED_HEADERS: Final = (
    b"authorization, connect-protocol-version, connect-timeout-ms, content-type, last-event-id, traceparent, tracestate"
)
_VARY: Final = (b"vary", b"origin")
_PREFLIGHT_AGE_S: Final = b"7200"


class Origins:
    def __init__(self, allowed: Iterable[str], hosts: Iterable[str]) -> None:
        """`allowed`: of http.api.allowed.origins. `hosts`: names of this node."""
        self._allowed = frozenset(allowed)
        names = {urlsplit(origin).hostname or "" for origin in self._allowed}
        self._hosts = frozenset(name.lower() for name in (*hosts, *names, "localhost") if name)

    def check(self, headers: Mapping[bytes, bytes], scheme: str) -> Headers:
        """The headers that the response needs for a browser. ApiError."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_own(host):
            raise _refused(
                f"the request's Host {host[:253]!r} is not a name of this node: use its address, the name in "
                "advertised.listeners or http.listeners, or add the origin to http.api.allowed.origins"
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin:
            if headers.get(b"sec-fetch-site", b"none") in (b"cross-site", b"same-site"):
                raise _refused("requests that a page of another site embeds are refused")
            return ()
        if self._allows(origin):
            return ((b"access-control-allow-origin", origin.encode("latin-1")), _VARY)
        if origin.lower() == f"{scheme}://{host}".lower():
            return (_VARY,)
        raise _refused(
            f"web pages of {origin[:253]} may not use this API: an administrator can add it to http.api.allowed.origins"
        )

    def preflight(self, headers: Mapping[bytes, bytes], scheme: str, methods: bytes) -> Headers:
        """Of the response to OPTIONS. ApiError."""
        return (
            *self.check(headers, scheme),
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", _ALLOWED_HEADERS),
            (b"access-control-max-age", _PREFLIGHT_AGE_S),
        )

    def _allows(self, origin: str) -> bool:
        return ANY_ORIGIN in self._allowed or origin.lower() in self._allowed

    def _is_own(self, host: str) -> bool:
        if not host or ANY_ORIGIN in self._allowed:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name.rstrip(".") in self._hosts or _is_ip(name)


def _refused(why: str) -> ApiError:
    return ApiError.of(ClusterAuthorizationError(why))


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
