"""Every method that a node serves, from the descriptors."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from streamlog.node.served_methods import CLIENT_FILES, NODE_FILES
from streamlog.raft.pb import raft_pb2

FILES: tuple[FileDescriptor, ...] = (
    *CLIENT_FILES,
    *NODE_FILES,
    raft_pb2.DESCRIPTOR,
    health_pb2.DESCRIPTOR,
    reflection_pb2.DESCRIPTOR,
)


class Method(NamedTuple):
    path: str  # /package.Service/Method
    request: type[Message]
    client_streaming: bool
    server_streaming: bool

    @property
    def is_unary(self) -> bool:
        return not (self.client_streaming or self.server_streaming)

    @property
    def short(self) -> str:
        """Service/Method."""
        return self.path.rpartition(".")[2]


def methods() -> tuple[Method, ...]:
    found = [
        Method(
            f"/{service.full_name}/{method.name}",
            message_factory.GetMessageClass(method.input_type),
            method.client_streaming,
            method.server_streaming,
        )
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    ]
    return tuple(sorted(found, key=lambda method: method.path))
