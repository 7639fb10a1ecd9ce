"""Reference pages of the public proto files, from protoc's descriptors and the comments in them.

One page a file: its services with their methods, its messages with a table of fields, its enums; types are links.
`make site` uses it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "proto" / "streamlog" / "v1"

# Field numbers of the descriptors, of which the paths of source locations are made.
_FILE_MESSAGES, _FILE_ENUMS, _FILE_SERVICES = 4, 5, 6
_MESSAGE_FIELDS, _MESSAGE_NESTED, _MESSAGE_ENUMS, _MESSAGE_ONEOFS = 2, 3, 4, 8
_ENUM_VALUES = _SERVICE_METHODS = 2
_FILE_PACKAGE: Final = (2,)
_FILE_SYNTAX: Final = (12,)

_SCALARS: Final = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}


def descriptors() -> list[FileDescriptorProto]:
    """Of the public files, by name."""
    well_known = Path(protoc.__file__).parent / "_proto"
    files = sorted(str(path.relative_to(ROOT / "proto")) for path in FOLDER.glob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "descriptors"
        arguments = ["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", "--include_source_info"]
        if protoc.main([*arguments, f"--descriptor_set_out={out}", *files]) != 0:
            raise RuntimeError("protoc refuses the proto files")
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def page_name(file: FileDescriptorProto) -> str:
    return f"{Path(file.name).stem}.md"


def first_sentence(file: FileDescriptorProto) -> str:
    """Of the comment at the head of the file."""
    return _Comments(file).of(_FILE_SYNTAX).split("\n\n")[0].partition(": ")[2].rstrip(".") or file.package


class _Comments:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._by_path = {
            tuple(location.path): location.leading_comments or location.trailing_comments
            for location in file.source_code_info.location
        }

    def of(self, path: tuple[int, ...]) -> str:
        """As Markdown; `<` and `*` of prose are text."""
        lines = [line.removeprefix(" ") for line in self._by_path.get(path, "").rstrip().splitlines()]
        text = "\n".join(lines)
        parts = re.split(r"(`[^`]*`)", text)
        parts[::2] = [re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts[::2]]
        return "".join(parts)


def types_of(files: list[FileDescriptorProto]) -> dict[str, str]:
    """Full name of each message and enum -> page and anchor."""
    found: dict[str, str] = {}

    def add(page: str, prefix: str, message: DescriptorProto) -> None:
        name = f"{prefix}.{message.name}"
        found[name] = f"{page}#{_anchor(name)}"
        for enum in message.enum_type:
            found[f"{name}.{enum.name}"] = f"{page}#{_anchor(f'{name}.{enum.name}')}"
        for nested in message.nested_type:
            add(page, name, nested)

    for file in files:
        for message in file.message_type:
            add(page_name(file), f".{file.package}", message)
        for enum in file.enum_type:
            name = f".{file.package}.{enum.name}"
            found[name] = f"{page_name(file)}#{_anchor(name)}"
    return found


def _anchor(full_name: str) -> str:
    return full_name.lstrip(".").replace(".", "-").lower()


class FilePage:
    """The page of one file."""

    def __init__(self, file: FileDescriptorProto, types: dict[str, str]) -> None:
        self._file = file
        self._types = types
        self._comments = _Comments(file)

    def text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        file = self._file
        yield f"# {Path(file.name).name}\n"
        yield f"{self._comments.of(_FILE_SYNTAX)}\n"
        yield f"Package `{file.package}`, file `proto/{file.name}`.\n"
        for index, service in enumerate(file.service):
            path = (_FILE_SERVICES, index)
            yield f"## Service {service.name} {{ #{_anchor(f'{file.package}.{service.name}')} }}\n"
            yield f"{self._comments.of(path)}\n"
            for number, method in enumerate(service.method):
                yield from self._method(service.name, method, (*path, _SERVICE_METHODS, number))
        for index, message in enumerate(file.message_type):
            yield from self._message(f".{file.package}", message, (_FILE_MESSAGES, index))
        for index, enum in enumerate(file.enum_type):
            yield from self._enum(f".{file.package}", enum, (_FILE_ENUMS, index))

    def _method(self, service: str, method: MethodDescriptorProto, path: tuple[int, ...]) -> Iterator[str]:
        request = f"{'stream ' if method.client_streaming else ''}{self._link(method.input_type)}"
        response = f"{'stream ' if method.server_streaming else ''}{self._link(method.output_type)}"
        yield f"### {method.name} {{ #{_anchor(f'{self._file.package}.{service}.{method.name}')} }}\n"
        yield f"`rpc` ({request}) `returns` ({response})\n"
        yield f"{self._comments.of(path)}\n"

    def _message(self, prefix: str, message: DescriptorProto, path: tuple[int, ...]) -> Iterator[str]:
        if message.options.map_entry:
            return
        name = f"{prefix}.{message.name}"
        yield f"## {self._short(name)} {{ #{_anchor(name)} }}\n"
        yield f"{self._comments.of(path)}\n"
        for index, oneof in enumerate(message.oneof_decl):
            comment = self._comments.of((*path, _MESSAGE_ONEOFS, index))
            if comment:
                yield f"One of `{oneof.name}`: {comment}\n"
        if message.field:
            yield "| field | number | type | |\n|---|---|---|---|"
            for index, field in enumerate(message.field):
                cell = _cell(self._comments.of((*path, _MESSAGE_FIELDS, index)))
                yield f"| `{field.name}` | {field.number} | {self._type(message, field)} | {cell} |"
            yield ""
        for index, nested in enumerate(message.nested_type):
            yield from self._message(name, nested, (*path, _MESSAGE_NESTED, index))
        for index, enum in enumerate(message.enum_type):
            yield from self._enum(name, enum, (*path, _MESSAGE_ENUMS, index))

    def _enum(self, prefix: str, enum: EnumDescriptorProto, path: tuple[int, ...]) -> Iterator[str]:
        name = f"{prefix}.{enum.name}"
        yield f"## {self._short(name)} {{ #{_anchor(name)} }}\n"
        yield f"{self._comments.of(path)}\n"
        yield "| value | number | |\n|---|---|---|"
        for index, value in enumerate(enum.value):
            yield f"| `{value.name}` | {value.number} | {_cell(self._comments.of((*path, _ENUM_VALUES, index)))} |"
        yield ""

    def _type(self, message: DescriptorProto, field: FieldDescriptorProto) -> str:
        entries = {
            f".{self._file.package}.{message.name}.{nested.name}": nested
            for nested in message.nested_type
            if nested.options.map_entry
        }
        entry = entries.get(field.type_name)
        if entry is not None:
            key, value = entry.field
            return f"map of {self._plain_type(key)} to {self._plain_type(value)}"
        text = self._plain_type(field)
        if field.proto3_optional:
            return f"optional {text}"
        if field.HasField("oneof_index"):
            return f"{text}, one of `{message.oneof_decl[field.oneof_index].name}`"
        return f"repeated {text}" if field.label == FieldDescriptorProto.LABEL_REPEATED else text

    def _plain_type(self, field: FieldDescriptorProto) -> str:
        return self._link(field.type_name) if field.type_name else f"`{_SCALARS[field.type]}`"

    def _link(self, full_name: str) -> str:
        target = self._types.get(full_name)
        short = self._short(full_name)
        return f"`{short}`" if target is None else f"[{short}]({target})"

    def _short(self, full_name: str) -> str:
        return full_name.removeprefix(f".{self._file.package}.").lstrip(".")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
