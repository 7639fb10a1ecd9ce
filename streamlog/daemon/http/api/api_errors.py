"""Errors as Connect's JSON `{"code", "message", "details"}`, with the HTTP status of its table.

`details` are the messages of google.rpc that gRPC clients get in a trailer (`streamlog.api.errors`): each as its type,
its bytes in base64, and as JSON in `debug`, where `reason` is the error's code. Some refusals of a request itself have
the status that HTTP has for them (404, 405, 408, 413, 415) instead of the table's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToDict
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus

from streamlog.api.errors import to_rpc
from streamlog.errors import Status, StreamlogError
from streamlog.ports import RpcError

Headers = Sequence[tuple[bytes, bytes]]

_HTTP_STATUS: Final[Mapping[Status, int]] = {
    Status.OK: 200,
    Status.CANCELLED: 499,
    Status.UNKNOWN: 500,
    Status.INVALID_ARGUMENT: 400,
    Status.DEADLINE_EXCEEDED: 504,
    Status.NOT_FOUND: 404,
    Status.ALREADY_EXISTS: 409,
    Status.PERMISSION_DENIED: 403,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.FAILED_PRECONDITION: 400,
    Status.ABORTED: 409,
    Status.OUT_OF_RANGE: 400,
    Status.UNIMPLEMENTED: 501,
    Status.INTERNAL: 500,
    Status.UNAVAILABLE: 503,
    Status.DATA_LOSS: 500,
    Status.UNAUTHENTICATED: 401,
}
_CODES: Final = {status: status.name.lower() for status in Status} | {Status.CANCELLED: "canceled"}
_KNOWN_DETAILS: Final = {one.DESCRIPTOR.full_name: one for one in (ErrorInfo, BadRequest, RetryInfo)}
_AUTHENTICATE: Final = (b"www-authenticate", b'Basic realm="streamlog", charset="UTF-8"')


class ApiError(Exception):
    """The response to a request that failed."""

    def __init__(self, error: RpcError, http_status: int | None = None, headers: Headers = ()) -> None:
        """`http_status`: instead of the table's."""
        super().__init__(error.message)
        self.error = error
        self.http_status = http_status or _HTTP_STATUS[error.status]
        login = (_AUTHENTICATE,) if error.status is Status.UNAUTHENTICATED else ()
        self.headers: Headers = (*headers, *login)

    @classmethod
    def of(
        cls, error: StreamlogError, http_status: int | None = None, headers: Headers = (), status: Status | None = None
    ) -> ApiError:
        """`status`: gRPC's, instead of the error's own."""
        return cls(to_rpc(error, status), http_status, headers)

    @property
    def is_retriable(self) -> bool:
        """Whether a call that ended so may succeed later."""
        retry = any(detail["type"] == RetryInfo.DESCRIPTOR.full_name for detail in self.document()["details"])
        return retry or self.error.status is Status.UNAVAILABLE

    def document(self) -> dict[str, Any]:
        return {
            "code": _CODES[self.error.status],
            "message": self.error.message,
            "details": [_detail(one) for one in _details(self.error)],
        }

    def body(self) -> bytes:
        return json.dumps(self.document(), ensure_ascii=False).encode() + b"\n"


def _details(error: RpcError) -> list[AnyMessage]:
    """Made by this node's own `to_rpc`."""
    return list(RpcStatus.FromString(error.details_bin).details)


def _detail(detail: AnyMessage) -> dict[str, Any]:
    name = detail.type_url.rpartition("/")[2]
    found = {"type": name, "value": base64.b64encode(detail.value).decode().rstrip("=")}
    known = _KNOWN_DETAILS.get(name)
    return found if known is None else {**found, "debug": MessageToDict(known.FromString(detail.value))}
