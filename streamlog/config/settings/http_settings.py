"""The API of clients over HTTP, on the addresses of http.listeners."""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import OriginKind
from streamlog.config.kinds import Boolean, ListOf, count
from streamlog.config.setting import Setting, section

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

HTTP_API_ENABLE: Final = Setting(
    "http.api.enable", Boolean(), False, ours=True,
    doc="Whether http.listeners also serve the API of clients as JSON. With an authorizer callers need a password or "
        "token, and addresses for other machines must be HTTPS://; without one a caller that reaches them may do "
        "everything.")
HTTP_API_ALLOWED_ORIGINS: Final[Setting[tuple[str, ...]]] = Setting(
    "http.api.allowed.origins", ListOf(OriginKind(), items_max=100), (), ours=True,
    doc="Origins of web pages that may use this API (CORS), as https://app.example; *: of all, whatever page a user "
        "opens. Empty: pages of the node itself only.")
HTTP_API_MAX_CALLS: Final = Setting(
    "http.api.max.calls", count(1, 1_000), 16, ours=True,
    doc="How many calls over HTTP a node serves at once; each may hold a request of socket.request.max.bytes.")
HTTP_API_MAX_STREAMS: Final = Setting(
    "http.api.max.streams", count(1, 1_000), 64, ours=True,
    doc="How many streams of server-sent events a node serves at once.")
# fmt: on

HTTP_API: Final = section("API over HTTP", globals())
