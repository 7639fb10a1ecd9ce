"""The methods that a node serves, from the proto files: their names are known before their handlers exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streamlog.api.pb import (
    admin_pb2,
    batches_pb2,
    cluster_pb2,
    controller_pb2,
    coordination_pb2,
    groups_pb2,
    identification_pb2,
    records_pb2,
    replication_pb2,
    transactions_pb2,
)
from streamlog.raft import observers, transport

CLIENT_FILES: Final = (
    admin_pb2.DESCRIPTOR,
    batches_pb2.DESCRIPTOR,
    cluster_pb2.DESCRIPTOR,
    groups_pb2.DESCRIPTOR,
    records_pb2.DESCRIPTOR,
    transactions_pb2.DESCRIPTOR,
)
NODE_FILES: Final = (
    controller_pb2.DESCRIPTOR,
    coordination_pb2.DESCRIPTOR,
    identification_pb2.DESCRIPTOR,
    replication_pb2.DESCRIPTOR,
)
CLIENT_PACKAGE: Final = "streamlog.v1."
CLIENT_PREFIX: Final = f"/{CLIENT_PACKAGE}"
ADMIN: Final = "streamlog.v1.Admin"
HEALTH_UNARY: Final = ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List")
HEALTH_STREAMS: Final = ("/grpc.health.v1.Health/Watch",)
REFLECTION: Final = (
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)


def client_services() -> list[str]:
    """Full names of the services for clients, whose health is served."""
    return [service.full_name for file in CLIENT_FILES for service in file.services_by_name.values()]


def unary_methods() -> list[str]:
    return [*(name for name, streams in _methods() if not streams), *HEALTH_UNARY]


def streaming_methods() -> list[str]:
    streams = [name for name, streams in _methods() if streams]
    return [*streams, *HEALTH_STREAMS, *REFLECTION, transport.METHOD, observers.METHOD]


def _methods() -> Iterator[tuple[str, bool]]:
    for file in (*CLIENT_FILES, *NODE_FILES):
        for service in file.services_by_name.values():
            for method in service.methods:
                yield f"/{service.full_name}/{method.name}", method.client_streaming or method.server_streaming
