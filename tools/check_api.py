"""Compares the public API with the released one, and reports breaking changes; `--accept` makes it the released one.

    python tools/check_api.py [--accept]

The files under proto/streamlog/v1 are compared with proto/released.json, by the rules that buf calls WIRE and FILE: old
programs understand new ones on the wire, and old sources compile with newly generated code. Existing elements keep
number, name, type, cardinality and file. Fields, messages, values, methods and files may be added.

Before the first release, `--accept` is run for every change of the API. Afterwards it is run once for each release, and
a breaking change needs a new package (`streamlog.v2`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
RELEASED = ROOT / "proto" / "released.json"
PUBLIC = "streamlog/v1"
OPTIONS = ("go_package", "java_package", "java_multiple_files", "java_outer_classname")

Api: TypeAlias = dict[str, Any]
"""File name -> package, options, messages, enums, services; each by name, fields and values by number. JSON."""


def compile_protos(proto_root: Path, *, folder: str = PUBLIC, with_comments: bool = False) -> FileDescriptorSet:
    """The files below a folder, the public ones, compiled by stock protoc. RuntimeError when it refuses them."""
    sources = sorted(str(path.relative_to(proto_root)) for path in (proto_root / folder).rglob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "set.binpb"
        comments = ["--include_source_info"] if with_comments else []
        if protoc.main(["protoc", f"-I{proto_root}", f"--descriptor_set_out={out}", *comments, *sources]) != 0:
            raise RuntimeError("protoc refuses the proto files")
        return FileDescriptorSet.FromString(out.read_bytes())


def api_of(files: FileDescriptorSet) -> Api:
    return {file.name: _file(file) for file in files.file}


def _file(file: FileDescriptorProto) -> Api:
    messages = dict(_messages("", file.message_type))
    enums = {enum.name: _enum(enum) for enum in file.enum_type}
    for name, message in messages.items():
        enums |= {f"{name}.{enum.name}": _enum(enum) for enum in message.enum_type}
    return {
        "package": file.package,
        "options": {name: getattr(file.options, name) for name in OPTIONS},
        "messages": {name: _message(message) for name, message in messages.items()},
        "enums": enums,
        "services": {service.name: _service(service) for service in file.service},
    }


def _messages(scope: str, messages: Iterable[DescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        yield scope + message.name, message
        yield from _messages(f"{scope}{message.name}.", message.nested_type)


def _message(message: DescriptorProto) -> Api:
    return {
        "fields": {str(field.number): _field(field, message) for field in message.field},
        "reserved": [f"{span.start} to {span.end - 1}" for span in message.reserved_range] + [*message.reserved_name],
    }


def _field(field: FieldDescriptorProto, message: DescriptorProto) -> Api:
    cardinality = "repeated" if field.label == FieldDescriptorProto.LABEL_REPEATED else "single"
    oneof = ""
    if field.proto3_optional:
        cardinality = "optional"
    elif field.HasField("oneof_index"):
        oneof = message.oneof_decl[field.oneof_index].name
    kind = field.type_name.lstrip(".") or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return {"name": field.name, "type": kind, "cardinality": cardinality, "oneof": oneof, "json": field.json_name}


def _enum(enum: EnumDescriptorProto) -> Api:
    return {str(value.number): value.name for value in enum.value}


def _service(service: ServiceDescriptorProto) -> Api:
    return {
        method.name: {
            "request": method.input_type.lstrip("."),
            "response": method.output_type.lstrip("."),
            "client streaming": method.client_streaming,
            "server streaming": method.server_streaming,
        }
        for method in service.method
    }


def breaking_changes(old: Api, new: Api) -> list[str]:
    """One sentence for each breaking change."""
    return list(_compared("file", old, new, _compared_files))


def _compared(
    kind: str, old: Mapping[str, Any], new: Mapping[str, Any], compare: Callable[[str, Any, Any], Iterator[str]]
) -> Iterator[str]:
    for name, before in old.items():
        if name in new:
            yield from compare(name, before, new[name])
        else:
            yield f"{kind} {name} was removed or moved"


def _compared_files(name: str, old: Api, new: Api) -> Iterator[str]:
    yield from _differences(f"file {name}", {"package": old["package"]}, new)
    yield from _differences(f"file {name}, option", old["options"], new["options"])
    yield from _compared(f"{name}: message", old["messages"], new["messages"], _compared_messages)
    yield from _compared(f"{name}: enum", old["enums"], new["enums"], _compared_enums)
    yield from _compared(f"{name}: service", old["services"], new["services"], _compared_services)


def _compared_messages(name: str, old: Api, new: Api) -> Iterator[str]:
    def compare(number: str, before: Api, after: Api) -> Iterator[str]:
        yield from _differences(f"field {name}.{before['name']} ({number}):", before, after)

    yield from _compared(f"{name}: field", old["fields"], new["fields"], compare)
    yield from (f"message {name} no longer reserves {what}" for what in old["reserved"] if what not in new["reserved"])


def _compared_enums(name: str, old: Api, new: Api) -> Iterator[str]:
    def compare(number: str, before: str, after: str) -> Iterator[str]:
        if before != after:
            yield f"enum {name}: {number} was {before}, is {after}"

    yield from _compared(f"enum {name}: value", old, new, compare)


def _compared_services(name: str, old: Api, new: Api) -> Iterator[str]:
    def compare(method: str, before: Api, after: Api) -> Iterator[str]:
        yield from _differences(f"method {name}.{method}:", before, after)

    yield from _compared(f"service {name}: method", old, new, compare)


def _differences(where: str, old: Api, new: Api) -> Iterator[str]:
    for aspect, before in old.items():
        if new[aspect] != before:
            yield f"{where} {aspect} was {before!r}, is {new[aspect]!r}"


def main() -> int:
    api = api_of(compile_protos(ROOT / "proto"))
    if "--accept" in sys.argv[1:]:
        RELEASED.write_text(json.dumps(api, indent=1, sort_keys=True) + "\n")
        return 0
    changes = breaking_changes(json.loads(RELEASED.read_text()), api)
    for change in changes:
        print(change)
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
