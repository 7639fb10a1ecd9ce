"""gRPC's interoperability tests: the messages of grpc.testing.TestService, and the service over the network port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from streamlog.errors import Status
from streamlog.ports import CallInfo, RpcError, Stream, StreamHandler, UnaryHandler

SERVICE: Final = "/grpc.testing.TestService/"
# Fields by name: number and type; what the tests here do not use is left out.
_MESSAGES: Final = {
    "Payload": {"body": (2, "bytes")},
    "EchoStatus": {"code": (1, "int32"), "message": (2, "string")},
    "SimpleRequest": {
        "response_size": (2, "int32"),
        "payload": (3, "Payload"),
        "response_status": (7, "EchoStatus"),
    },
    "SimpleResponse": {"payload": (1, "Payload")},
    "StreamingInputCallRequest": {"payload": (1, "Payload")},
    "StreamingInputCallResponse": {"aggregated_payload_size": (1, "int32")},
    "ResponseParameters": {"size": (1, "int32")},
    "StreamingOutputCallRequest": {
        "response_parameters": (2, "ResponseParameters*"),
        "payload": (3, "Payload"),
        "response_status": (7, "EchoStatus"),
    },
    "StreamingOutputCallResponse": {"payload": (1, "Payload")},
}


def _classes() -> Mapping[str, Any]:
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="interop.proto", package="grpc.testing", syntax="proto3")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            field = described.field.add(name=field_name, number=number, label=field_type.LABEL_OPTIONAL)
            if kind.endswith("*"):
                field.label = field_type.LABEL_REPEATED
            if (kind := kind.rstrip("*")) in _MESSAGES:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".grpc.testing.{kind}"
            else:
                field.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"grpc.testing.{name}")) for name in _MESSAGES
    }


CLASSES: Final = _classes()


def made(kind: str, **fields: Any) -> bytes:
    data: bytes = CLASSES[kind](**fields).SerializeToString()
    return data


def parsed(kind: str, data: bytes) -> Any:
    return CLASSES[kind].FromString(data)


def _check_status(request: Any) -> None:
    if request.response_status.code:
        raise RpcError(Status(request.response_status.code), request.response_status.message)


async def empty(request: bytes, info: CallInfo) -> bytes:
    return b""


async def unary(data: bytes, info: CallInfo) -> bytes:
    request = parsed("SimpleRequest", data)
    _check_status(request)
    return made("SimpleResponse", payload={"body": bytes(request.response_size)})


async def streaming_output(stream: Stream, info: CallInfo) -> None:
    while (data := await stream.recv()) is not None:
        request = parsed("StreamingOutputCallRequest", data)
        _check_status(request)
        for one in request.response_parameters:
            await stream.send(made("StreamingOutputCallResponse", payload={"body": bytes(one.size)}))


async def streaming_input(stream: Stream, info: CallInfo) -> None:
    total = 0
    while (data := await stream.recv()) is not None:
        total += len(parsed("StreamingInputCallRequest", data).payload.body)
    await stream.send(made("StreamingInputCallResponse", aggregated_payload_size=total))


UNARY: Final[Mapping[str, UnaryHandler]] = {SERVICE + "EmptyCall": empty, SERVICE + "UnaryCall": unary}
STREAMING: Final[Mapping[str, StreamHandler]] = {
    SERVICE + "StreamingOutputCall": streaming_output,
    SERVICE + "StreamingInputCall": streaming_input,
    SERVICE + "FullDuplexCall": streaming_output,
}
