"""`grpc.reflection.v1`: returns the server's own proto files, so that grpcurl and other tools work without them.

Returned are the files of the served services and their imports, and google.rpc's error details, which tools need to
show errors. Nothing else of the process's protobuf pool is exposed.

v1 and v1alpha are the same protocol under two names. Tools try v1 and fall back, older ones know only v1alpha; so both
are served, by one implementation. The Python package has only the messages of v1alpha: the file of v1 is made from it
by changing the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.rpc import error_details_pb2, status_pb2
from grpc_reflection.v1alpha import reflection_pb2 as pb

from streamlog.api.service import Call, Requests, Responses, Service, duplex
from streamlog.errors import Status
from streamlog.ports import Clock

V1ALPHA: Final = "grpc.reflection.v1alpha"
V1: Final = "grpc.reflection.v1"
_REQUEST_BYTES_MAX: Final = 4_096


class Reflection:
    """The served methods do not change, so all responses are made at the start."""

    def __init__(self, services: Iterable[Service]) -> None:
        """`services`: all served services but reflection, which is added."""
        served = list(services)
        files = [service.file for service in served]
        self._files: dict[str, bytes] = {}  # by name, serialized
        self._symbols: dict[str, str] = {}  # messages, enums, services, methods -> name of their file
        self._messages: set[str] = set()
        own = [f"{package}.ServerReflection" for package in (V1, V1ALPHA)]
        self._services = sorted([*(service.name for service in served), *own])
        for file in _with_imports([*files, error_details_pb2.DESCRIPTOR, status_pb2.DESCRIPTOR, pb.DESCRIPTOR]):
            self._add(FileDescriptorProto.FromString(file.serialized_pb))
        self._add(_renamed_to_v1(pb.DESCRIPTOR))

    def services(self, clock: Clock) -> list[Service]:
        method = duplex(
            "ServerReflectionInfo",
            pb.ServerReflectionRequest,
            pb.ServerReflectionResponse,
            self._answer_all,
            request_bytes_max=_REQUEST_BYTES_MAX,
        )
        descriptor = pb.DESCRIPTOR.services_by_name["ServerReflection"]
        return [Service(descriptor, clock, [method], name=f"{package}.ServerReflection") for package in (V1, V1ALPHA)]

    def _add(self, file: FileDescriptorProto) -> None:
        self._files[file.name] = file.SerializeToString(deterministic=True)
        messages = list(_messages(file.package, file.message_type))
        self._messages.update(name for name, _ in messages)
        names = [name for name, _ in messages]
        names += [f"{scope}.{enum.name}" for scope, message in messages for enum in message.enum_type]
        names += [f"{file.package}.{enum.name}" for enum in file.enum_type]
        for service in file.service:
            names.append(f"{file.package}.{service.name}")
            names += [f"{file.package}.{service.name}.{method.name}" for method in service.method]
        self._symbols.update(dict.fromkeys(names, file.name))

    async def _answer_all(
        self,
        requests: Requests[pb.ServerReflectionRequest],
        responses: Responses[pb.ServerReflectionResponse],
        call: Call,
    ) -> None:
        while (request := await requests.recv()) is not None:
            response = pb.ServerReflectionResponse(valid_host=request.host, original_request=request)
            self._answer(request, response)
            await responses.send(response)

    def _answer(self, request: pb.ServerReflectionRequest, response: pb.ServerReflectionResponse) -> None:
        match request.WhichOneof("message_request"):
            case "file_by_filename":
                self._give_file(request.file_by_filename, request.file_by_filename, response)
            case "file_containing_symbol":
                symbol = request.file_containing_symbol
                self._give_file(self._symbols.get(symbol, ""), symbol, response)
            case "file_containing_extension":
                _not_found(f"extension of {request.file_containing_extension.containing_type}", response)
            case "all_extension_numbers_of_type":
                self._give_extensions(request.all_extension_numbers_of_type, response)
            case "list_services":
                response.list_services_response.SetInParent()
                for name in self._services:
                    response.list_services_response.service.add(name=name)
            case _:
                response.error_response.error_code = Status.INVALID_ARGUMENT.value
                response.error_response.error_message = "unknown kind of request"

    def _give_file(self, name: str, asked: str, response: pb.ServerReflectionResponse) -> None:
        data = self._files.get(name)
        if data is None:
            _not_found(asked, response)
        else:
            response.file_descriptor_response.file_descriptor_proto.append(data)

    def _give_extensions(self, message: str, response: pb.ServerReflectionResponse) -> None:
        """There are none (proto3 has only extensions of options)."""
        if message in self._messages:
            response.all_extension_numbers_response.base_type_name = message
        else:
            _not_found(message, response)


def _not_found(what: str, response: pb.ServerReflectionResponse) -> None:
    response.error_response.error_code = Status.NOT_FOUND.value
    response.error_response.error_message = f"not served here: {what}"


def _with_imports(files: Iterable[FileDescriptor]) -> list[FileDescriptor]:
    found: dict[str, FileDescriptor] = {}
    pending = list(files)
    while pending:
        file = pending.pop()
        if file.name not in found:
            found[file.name] = file
            pending += file.dependencies
    return list(found.values())


def _messages(scope: str, messages: Iterable[DescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _messages(name, message.nested_type)


def _renamed_to_v1(file: FileDescriptor) -> FileDescriptorProto:
    renamed = FileDescriptorProto.FromString(file.serialized_pb)
    renamed.name = renamed.name.replace("v1alpha", "v1")
    renamed.package = V1
    old, new = f".{V1ALPHA}.", f".{V1}."
    for message in renamed.message_type:
        for field in message.field:
            if field.type_name:  # setting an empty name would make the field present
                field.type_name = field.type_name.replace(old, new)
    for service in renamed.service:
        for method in service.method:
            method.input_type = method.input_type.replace(old, new)
            method.output_type = method.output_type.replace(old, new)
    return renamed
