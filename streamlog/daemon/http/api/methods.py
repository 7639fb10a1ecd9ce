"""The methods that are served over HTTP, from the descriptors: those of streamlog.v1 with one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from streamlog.node.served_methods import CLIENT_FILES


class ServedMethod(Struct, frozen=True):
    descriptor: MethodDescriptor
    path: str  # `/streamlog.v1.Records/Publish`, which is also its name in gRPC
    request_type: type[Message]
    response_type: type[Message]

    @property
    def is_stream(self) -> bool:
        """One request, many responses."""
        return bool(self.descriptor.server_streaming)


def _all_methods() -> list[MethodDescriptor]:
    return [method for file in CLIENT_FILES for service in file.services_by_name.values() for method in service.methods]


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


SERVED_METHODS: Final[Mapping[str, ServedMethod]] = {
    _path(method): ServedMethod(
        method, _path(method), GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    )
    for method in _all_methods()
    if not method.client_streaming
}
"""By path."""

ONLY_GRPC: Final = frozenset(_path(method) for method in _all_methods() if method.client_streaming)
"""Clients of these send many messages, which needs HTTP/2."""
