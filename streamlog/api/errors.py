"""The error tree over gRPC: status and google.rpc.Status of a whole call, StreamlogError of one part of a response.

    StreamlogError --to_rpc--> status, message, details_bin --gRPC--> RpcError --from_rpc--> the same class
    StreamlogError --to_message--> streamlog.v1.StreamlogError --------------> --from_message--> the same class

The details of a call are ErrorInfo (reason: the error's code, domain `streamlog`, metadata), BadRequest if a field of
the request is invalid, and RetryInfo if the same request may succeed later. Clients of any language can use these
through google.rpc; others have status and message.

All of it is sent in HTTP/2 trailers, which peers limit to 8 KiB by default; beyond that they drop the call. So every
text is cut off at a length: an error must not be lost because it quotes the request.

A client may be older than the node: it maps an unknown code to UnknownServerError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus

from streamlog.api.pb import common_pb2 as pb
from streamlog.errors import Status, StreamlogError, UnknownServerError, all_errors, grpc_status
from streamlog.ports import RpcError

DOMAIN: Final = "streamlog"

# Bytes of UTF-8. The trailers have the message twice, once percent-encoded (up to three times as long), and BadRequest
# a third time: 6 x 800 + 16 x (32 + 96) < 8 KiB.
MESSAGE_BYTES_MAX: Final = 800
DETAILS_MAX: Final = 16
DETAIL_NAME_BYTES_MAX: Final = 32
DETAIL_BYTES_MAX: Final = 96

# After which time a client should retry, unless the error says otherwise. Kafka's retry.backoff.ms.
RETRY_MS: Final = 100
RETRY_DETAIL: Final = "retry_after_ms"

NOT_SERVING: Final = "not_serving"
"""Detail of a node's BROKER_NOT_AVAILABLE: it is starting or stopping, and has done nothing for this call."""

TOO_LATE: Final = "too_late"
"""Detail of REQUEST_TIMED_OUT: the call's deadline had passed before it began; the node has done nothing for it."""

_ELLIPSIS: Final = "…"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
# Details that are text, even if they look like an integer. All others that look like an integer are integers.
_NAMES: Final = frozenset({"address", "code", "field", "path", "reason", "topic"})


def to_rpc(error: StreamlogError, status: Status | None = None) -> RpcError:
    """The status of a call that failed with this error. `status`: instead of the table's, where gRPC prescribes one."""
    return _to_rpc(error, status or grpc_status(error))


def _to_rpc(error: StreamlogError, code: Status) -> RpcError:
    message = _cut(error.message, MESSAGE_BYTES_MAX)
    status = RpcStatus(code=code.value, message=message)
    _pack(status, ErrorInfo(reason=error.code, domain=DOMAIN, metadata=_to_text(error.details)))
    field = error.details.get("field")
    if code is Status.INVALID_ARGUMENT and field is not None:
        violation = BadRequest.FieldViolation(
            field=_cut(str(field), DETAIL_BYTES_MAX), description=message, reason=error.code
        )
        _pack(status, BadRequest(field_violations=[violation]))
    if error.retriable:
        retry = RetryInfo()
        retry.retry_delay.FromMilliseconds(_retry_ms(error))
        _pack(status, retry)
    return RpcError(code, message, details_bin=status.SerializeToString(deterministic=True))


def from_rpc(error: RpcError) -> StreamlogError | RpcError:
    """The error that the server raised; `error` itself if it is the port's, another server's, that of a node that is
    starting or stopping, or of a call that began after its deadline: to callers that is as if the node did not listen,
    or did not answer in time.
    """
    status = RpcStatus()
    try:
        status.ParseFromString(error.details_bin)
        info = next((unpacked for detail in status.details if (unpacked := _error_info(detail)) is not None), None)
    except DecodeError:
        return error
    if info is None or NOT_SERVING in info.metadata or TOO_LATE in info.metadata:
        return error
    retriable = any(detail.Is(RetryInfo.DESCRIPTOR) for detail in status.details)
    return _restored(info.reason, status.message or error.message, info.metadata, retriable=retriable)


def to_message(error: StreamlogError) -> pb.StreamlogError:
    """The error of one part of a response."""
    return pb.StreamlogError(
        code=error.code,
        message=_cut(error.message, MESSAGE_BYTES_MAX),
        retriable=error.retriable,
        details=_to_text(error.details),
    )


def from_message(message: pb.StreamlogError) -> StreamlogError:
    return _restored(message.code, message.message, message.details, retriable=message.retriable)


def _restored(code: str, message: str, details: Mapping[str, str], *, retriable: bool) -> StreamlogError:
    values: dict[str, object] = {name: _value(name, text) for name, text in details.items()}
    error = _CLASSES.get(code)
    if error is None:
        return UnknownServerError.restored(f"{code}: {message}", {**values, "code": code, "retriable": retriable})
    return error.restored(message, values)


def _to_text(details: Mapping[str, object]) -> dict[str, str]:
    given = [(name, value) for name, value in details.items() if value is not None][:DETAILS_MAX]
    return {_cut(name, DETAIL_NAME_BYTES_MAX): _cut(_text(value), DETAIL_BYTES_MAX) for name, value in given}


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _value(name: str, text: str) -> object:
    return int(text) if name not in _NAMES and _INTEGER.fullmatch(text) else text


def _retry_ms(error: StreamlogError) -> int:
    asked = error.details.get(RETRY_DETAIL)
    return asked if isinstance(asked, int) and asked >= 0 else RETRY_MS


def _cut(text: str, bytes_max: int) -> str:
    """At most `bytes_max` bytes of UTF-8, whole characters. Surrogates (in names of files) become `?`."""
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    return data[: bytes_max - len(_ELLIPSIS.encode())].decode("utf-8", "ignore") + _ELLIPSIS


def cut(message: str) -> str:
    """Cut off at the limit of a message."""
    return _cut(message, MESSAGE_BYTES_MAX)


def _pack(status: RpcStatus, detail: Message) -> None:
    status.details.add().Pack(detail, deterministic=True)


def _error_info(detail: AnyMessage) -> ErrorInfo | None:
    info = ErrorInfo()
    return info if detail.Unpack(info) and info.domain == DOMAIN else None


_CLASSES: Final[Mapping[str, type[StreamlogError]]] = all_errors()
