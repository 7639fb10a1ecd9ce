"""The comments of the public proto files by full name, as JSON: descriptions of the OpenAPI document (`make proto`).

streamlog.v1.Records.Publish, streamlog.v1.PublishRequest, streamlog.v1.PublishRequest.topic, streamlog.v1.Acks.ACKS_ALL
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from proto_reference import ROOT, descriptors

TARGET: Final = ROOT / "streamlog" / "daemon" / "http" / "api" / "comments.json"

# Field numbers of the descriptors: the path of a location alternates between these and indexes.
_PARTS: Final = {
    FileDescriptorProto: {4: "message_type", 5: "enum_type", 6: "service"},
    "DescriptorProto": {2: "field", 3: "nested_type", 4: "enum_type"},
    "EnumDescriptorProto": {2: "value"},
    "ServiceDescriptorProto": {2: "method"},
}


def text() -> str:
    """Of the file."""
    found = dict(sorted(pair for file in descriptors() for pair in _comments(file)))
    return json.dumps(found, indent=0, ensure_ascii=False) + "\n"


def _comments(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    for location in file.source_code_info.location:
        name = _name(file, list(location.path))
        lines = (location.leading_comments or location.trailing_comments).strip().splitlines()
        if name is not None and lines:
            yield name, " ".join(line.strip() for line in lines)


def _name(file: FileDescriptorProto, path: list[int]) -> str | None:
    """None for what is not in _PARTS."""
    parts = [file.package]
    scope: object = file
    if not path or len(path) % 2:
        return None
    for number, index in zip(path[::2], path[1::2], strict=True):
        key = FileDescriptorProto if isinstance(scope, FileDescriptorProto) else type(scope).__name__
        kind = _PARTS.get(key, {}).get(number)
        if kind is None:
            return None
        scope = getattr(scope, kind)[index]
        parts.append(scope.name)
    return ".".join(parts)
