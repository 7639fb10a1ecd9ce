"""The wire of release 0.1.0 (release-0.1.0/README.md) and of this one: what one sends, the other reads, for clients and
between nodes. By descriptors: no number has another meaning; by messages: of every type with all fields set, and as
clusters of both releases send them.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.operations.release import RELEASE
from tests.operations.traffic import SETTINGS, Recorded, Recorder, load, message_type
from tools.check_api import api_of, breaking_changes, compile_protos

ROOT: Final = Path(__file__).resolve().parents[2]
DEPTH_MAX: Final = 6
"""Of messages in messages that are filled."""


@functools.cache
def files() -> FileDescriptorSet:
    return FileDescriptorSet.FromString((RELEASE / "descriptors.binpb").read_bytes())


@functools.cache
def pool() -> DescriptorPool:
    """The types of 0.1.0."""
    found = DescriptorPool()
    for file in files().file:
        found.Add(file)
    return found


def own_files() -> list[FileDescriptorProto]:
    return [file for file in files().file if file.name.startswith("streamlog/")]


def methods() -> list[str]:
    """Paths of the methods of 0.1.0."""
    return [
        f"/{file.package}.{service.name}/{method.name}"
        for file in own_files()
        for service in file.service
        for method in service.method
    ]


def recorded() -> Recorded:
    """What a cluster of 0.1.0 sent and received."""
    found = json.loads((RELEASE / "messages.json").read_text())
    return {
        path: {direction: [base64.b64decode(one) for one in some] for direction, some in both.items()}
        for path, both in found.items()
    }


def filled(message: Message, depth: int = 0) -> Message:
    """Each field is set, of the fields of a oneof the last one; numbers and texts differ by field."""
    for field in message.DESCRIPTOR.fields:
        values = [_value(message, field, depth)] if depth < DEPTH_MAX or field.message_type is None else []
        for value in values:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                key, held = field.message_type.fields
                assert held.message_type is None, "a map of messages"
                getattr(message, field.name)[_scalar(key)] = _scalar(held)
            elif field.is_repeated:
                getattr(message, field.name).append(value)
            elif isinstance(value, Message):
                getattr(message, field.name).CopyFrom(value)
            else:
                setattr(message, field.name, value)
    return message


def _value(message: Message, field: Any, depth: int) -> Any:
    if field.message_type is not None:
        return filled(message_factory.GetMessageClass(field.message_type)(), depth + 1)
    return _scalar(field)


def _scalar(field: Any) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return b"\x00%d" % field.number
        case FieldDescriptor.CPPTYPE_STRING:
            return field.name
        case FieldDescriptor.CPPTYPE_BOOL:
            return True
        case FieldDescriptor.CPPTYPE_ENUM:
            return field.enum_type.values[-1].number
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return float(field.number)
        case _:
            return field.number


def as_dict(message: Message) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)


def unknown_fields(message: Message) -> Iterator[str]:
    """Of the message and those in it: numbers that its type does not have."""
    unknown: Any = UnknownFieldSet(message)
    for one in unknown:
        yield f"{message.DESCRIPTOR.full_name}, field {one.field_number}"
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else [value]:
                yield from unknown_fields(one)


def is_part_of(part: Any, whole: Any) -> bool:
    """`whole` may have keys that `part` does not have, at each depth."""
    match part:
        case dict():
            return all(key in whole and is_part_of(value, whole[key]) for key, value in part.items())
        case list():
            return len(part) == len(whole) and all(is_part_of(*pair) for pair in zip(part, whole, strict=True))
        case _:
            return bool(part == whole)


def test_no_number_has_another_meaning() -> None:
    """All files, those between nodes and of the metadata's records too. The options are for generated code only."""
    old = {file.name: {**api_of(files())[file.name], "options": {}} for file in own_files()}
    assert len(old) == 13
    assert breaking_changes(old, api_of(compile_protos(ROOT / "proto", folder="streamlog"))) == []


def test_a_number_that_is_used_again_is_found() -> None:
    old, new = FileDescriptorSet(), FileDescriptorSet()
    for copy in (old, new):
        copy.CopyFrom(files())
    (file,) = [file for file in new.file if file.name == "streamlog/internal/v1/controller.proto"]
    message = next(message for message in file.message_type if message.name == "HeartbeatRequest")
    message.field[0].name, message.field[0].type = "other", message.field[0].TYPE_STRING
    assert len(breaking_changes(api_of(old), api_of(new))) > 1


@pytest.mark.parametrize("file", [file.name for file in own_files()])
def test_all_fields_of_each_message_are_read_by_both(file: str) -> None:
    """Bodies of the quorum's entries and records of the metadata too."""
    for old_descriptor in pool().FindFileByName(file).message_types_by_name.values():
        old_type = message_factory.GetMessageClass(old_descriptor)
        today_type = message_factory.GetMessageClass(
            descriptor_pool.Default().FindMessageTypeByName(old_descriptor.full_name)
        )
        old = filled(old_type())
        today = today_type.FromString(old.SerializeToString())
        assert not list(unknown_fields(today))
        assert as_dict(today) == as_dict(old)
        assert old_type.FromString(today.SerializeToString()) == old
        whole = filled(today_type())
        # A later field of a oneof replaces an earlier one; to 0.1.0 none is set then.
        assert is_part_of(as_dict(old_type.FromString(whole.SerializeToString())), as_dict(whole))


def test_what_a_cluster_of_the_release_sent_is_read() -> None:
    found = recorded()
    assert len(found) > 50
    for path, both in found.items():
        for direction, messages in both.items():
            for data in messages:
                old = message_type(path, direction, pool()).FromString(data)
                today = message_type(path, direction).FromString(data)
                assert not list(unknown_fields(today)), path
                assert as_dict(today) == as_dict(old), path


def test_the_release_reads_what_a_cluster_of_today_sends(tmp_path: Path) -> None:
    """But for fields that were added since, which it ignores."""
    recorder = Recorder()
    with recorder.installed(), InProcessCluster(tmp_path, nodes=4, settings=SETTINGS) as cluster:
        asyncio.run(load(cluster.bootstrap_servers, recorder))
    found = recorder.messages
    assert len(found) > 45
    for path in found.keys() & set(methods()):
        for direction, messages in found[path].items():
            for data in messages:
                old = message_type(path, direction, pool()).FromString(data)
                assert is_part_of(as_dict(old), as_dict(message_type(path, direction).FromString(data))), path
