"""What gRPC puts into HTTP/2's header fields: metadata, deadlines, and the status of a call.

Fields of HTTP/2 are pairs of bytes as they arrive, and of text as they are sent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import Status
from streamlog.ports.network import RpcError

Pairs: TypeAlias = tuple[tuple[str, str], ...]
"""Metadata of calls."""
FieldPairs: TypeAlias = Sequence[tuple[bytes, bytes]]

TIMEOUT: Final = "grpc-timeout"
MESSAGE: Final = "grpc-message"
DETAILS: Final = "grpc-status-details-bin"
"""Trailer that carries a serialized google.rpc.Status."""
CONTENT_TYPE: Final = "application/grpc"
METADATA_BYTES_MAX: Final = 16 << 10
"""Of a call's fields, as HTTP/2 counts them; a larger one is refused by its status."""
FIELD_BYTES: Final = 32
"""Counted for each field besides its name and value (RFC 9113, 6.5.2)."""
REMEMBERED_MAX: Final = 4
"""Header blocks of a connection, in each direction: a program calls few methods at a time, and connections may be many.
"""
REMEMBERED_BYTES_MAX: Final = 2 << 10
"""Of a block's fields."""
_TIMEOUT: Final = TIMEOUT.encode()
_OK: Final = (("grpc-status", "0"),)
_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT_DIGITS_MAX: Final = 8
_MESSAGE_SAFE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_STATUS_DIGITS_MAX: Final = 3
_LENGTH_DIGITS_MAX: Final = 19
_BY_NUMBER: Final = {status.value: status for status in Status}
_NOT_METADATA: Final = frozenset({b"te", b"content-type", b"user-agent"})
# Statuses of HTTP that proxies answer with (gRPC's http-grpc-status-mapping); else UNKNOWN.
_OF_HTTP: Final = {
    400: Status.INTERNAL,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.UNIMPLEMENTED,
    429: Status.UNAVAILABLE,
    502: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
    504: Status.UNAVAILABLE,
}
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_OF_CONNECTIONS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_NAME: Final = re.compile(rb"[!-9;-@\[-~]+")  # visible ASCII without capitals and colons
_NOT_IN_VALUES: Final = re.compile(rb"[\0\r\n]")


class RequestHeaders(Struct, frozen=True, kw_only=True):
    """What the headers of a call say."""

    http_method: bytes
    path: bytes
    is_grpc: bool
    size: int  # of all fields, as HTTP/2 counts them
    timeout: bytes | None
    encoding: bytes  # of compressed messages
    lengths: tuple[bytes, ...]  # of the body, as the caller says
    metadata: Mapping[str, str]


class HeaderFields(tuple[tuple[bytes, bytes], ...]):
    """As they have arrived in one header block."""

    @cached_property
    def request(self) -> RequestHeaders | None:
        """None: they are not well-formed as those of a request. Computed once for blocks that repeat."""
        return _request(self) if is_request(self) else None


class RequestMemory:
    """What the headers of a connection's last requests said: most differ from an earlier one in their deadline only."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, FieldPairs], RequestHeaders] = {}  # by the deadline's place and the other fields

    def request(self, fields: HeaderFields) -> RequestHeaders | None:
        """As `HeaderFields.request`."""
        place = len(fields) - 1
        while place >= 0 and fields[place][0] != _TIMEOUT:
            place -= 1
        if place < 0:
            return fields.request
        text = fields[place][1]
        key = (place, fields[:place] + fields[place + 1 :])
        known = self._known.get(key)
        if known is None or known.timeout is None or not text.isalnum():
            return self._remembered(key, fields.request)
        return replace(known, timeout=text, size=known.size + len(text) - len(known.timeout))

    def _remembered(self, key: tuple[int, FieldPairs], request: RequestHeaders | None) -> RequestHeaders | None:
        is_alone = all(name != _TIMEOUT for name, _ in key[1])
        if request is not None and is_alone and request.size <= REMEMBERED_BYTES_MAX:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[key] = request
        return request


def _request(fields: HeaderFields) -> RequestHeaders:
    found, size = dict(fields), fields_size(fields)
    return RequestHeaders(
        http_method=found[b":method"],
        path=found[b":path"],
        is_grpc=found.get(b"content-type", b"").startswith(CONTENT_TYPE.encode()),
        size=size,
        timeout=found.get(_TIMEOUT),
        encoding=found.get(b"grpc-encoding", b""),
        lengths=tuple(value for name, value in fields if name == b"content-length"),
        metadata=MappingProxyType(texts(fields) if size <= METADATA_BYTES_MAX else {}),  # beyond, the call is refused
    )


def field_size(field: tuple[bytes, bytes]) -> int:
    """As HTTP/2 counts it."""
    return len(field[0]) + len(field[1]) + FIELD_BYTES


def fields_size(fields: FieldPairs | Pairs) -> int:
    """As HTTP/2 counts it."""
    return sum([len(name) + len(value) for name, value in fields]) + FIELD_BYTES * len(fields)


def is_request(fields: FieldPairs) -> bool:
    """Whether they are well-formed as those of a request (RFC 9113, 8.2 and 8.3)."""
    seen: set[bytes] = set()
    in_order = True
    for name, value in fields:
        if name.startswith(b":"):
            if not in_order or name in seen or name not in _PSEUDO:
                return False
            seen.add(name)
        else:
            in_order = False
            if not _is_ordinary(name, value):
                return False
    return seen >= {b":method", b":scheme", b":path"} and (b":path", b"") not in fields


def has_length(lengths: Iterable[bytes], received: int) -> bool:
    """Whether a body of so many bytes is what its content-lengths say, if there are any."""
    return all(value.isdigit() and int(value[:_LENGTH_DIGITS_MAX]) == received for value in lengths)


def is_trailers(fields: FieldPairs) -> bool:
    return all(not name.startswith(b":") and _is_ordinary(name, value) for name, value in fields)


def _is_ordinary(name: bytes, value: bytes) -> bool:
    if name in _OF_CONNECTIONS or not _NAME.fullmatch(name) or (name == b"te" and value != b"trailers"):
        return False
    return _NOT_IN_VALUES.search(value) is None


def timeout_of(text: bytes) -> float | None:
    """Seconds; None: not a timeout."""
    digits, unit = text[:-1], _UNITS_S.get(text[-1:])
    return int(digits) * unit if unit is not None and digits.isdigit() and len(digits) <= _TIMEOUT_DIGITS_MAX else None


def timeout_text(timeout_s: float) -> str:
    ms = max(0, round(timeout_s * 1000))
    longest = 10**_TIMEOUT_DIGITS_MAX - 1
    return f"{ms}m" if ms <= longest else f"{min(round(timeout_s), longest)}S"


def texts(fields: FieldPairs) -> dict[str, str]:
    """Metadata of a call that is text. Of a name that occurs again, its values are joined by commas."""
    found: dict[str, str] = {}
    for name, value in fields:
        if name.startswith((b":", b"grpc-")) or name.endswith(b"-bin") or name in _NOT_METADATA:
            continue
        key, text = name.decode("ascii", "replace"), value.decode("ascii", "replace")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


def status_fields(error: RpcError | None) -> Pairs:
    """None: OK."""
    if error is None:
        return _OK
    message = quote(error.message, safe=_MESSAGE_SAFE, errors="replace")
    fields: Pairs = (("grpc-status", str(error.status.value)), (MESSAGE, message))
    if error.details_bin:
        fields = (*fields, (DETAILS, base64.b64encode(error.details_bin).decode().rstrip("=")))
    return fields


def status_of(fields: FieldPairs) -> RpcError | None:
    """How a call has ended by its trailers; None: OK."""
    found = dict(fields)
    text = found.get(b"grpc-status")
    if text is None:
        return _without_status(found.get(b":status", b"200"))
    number = int(text) if text.isdigit() and len(text) <= _STATUS_DIGITS_MAX else -1
    if number == 0:
        return None
    message = unquote_to_bytes(found.get(MESSAGE.encode(), b"")).decode("utf-8", "replace")
    details = found.get(DETAILS.encode(), b"")
    try:
        decoded = base64.b64decode(details + b"=" * (-len(details) % 4))
    except binascii.Error:
        decoded = b""
    return RpcError(_BY_NUMBER.get(number, Status.UNKNOWN), message, details_bin=decoded)


def _without_status(http: bytes) -> RpcError:
    number = int(http) if http.isdigit() and len(http) <= _STATUS_DIGITS_MAX else 0
    status = _OF_HTTP.get(number, Status.UNKNOWN)
    text = f"the response has no gRPC status (HTTP status {number}): a proxy may have answered, not the node"
    return RpcError(status, text)


def request_fields(method: str, scheme: str, authority: str, metadata: Pairs) -> Pairs:
    return (
        (":method", "POST"),
        (":scheme", scheme),
        (":path", method),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", CONTENT_TYPE),
        *metadata,
    )
