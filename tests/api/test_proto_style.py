"""The proto files keep to the ecosystem's habits, and to our own: every field has its comment."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from streamlog.api import requests
from streamlog.api.errors import DETAILS_MAX, MESSAGE_BYTES_MAX
from streamlog.metadata import decision
from streamlog.metadata.configs import changes as configs
from streamlog.metadata.topics import assignment
from streamlog.metadata.topics import creation as topic_creation

from .protos import PROTO_ROOT, public_files

# Classes that every Java source imports unasked, and methods that Go's generated code has.
JAVA_LANG = {"Error", "Exception", "Record", "Object", "String", "Thread", "Process", "Module", "Enum", "Override"}
GO_METHODS = {"reset", "string", "proto_message", "proto_reflect", "descriptor"}


def messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    pending = [(message.name, message) for message in file.message_type]
    while pending:
        name, message = pending.pop()
        if not message.options.map_entry:
            yield name, message
            pending += [(f"{name}.{nested.name}", nested) for nested in message.nested_type]


def enums(file: FileDescriptorProto) -> Iterator[EnumDescriptorProto]:
    yield from file.enum_type
    for _, message in messages(file):
        yield from message.enum_type


def test_every_element_has_a_comment() -> None:
    for file in public_files().file:
        commented = {tuple(at.path) for at in file.source_code_info.location if at.leading_comments.strip()}
        wanted: dict[tuple[int, ...], str] = {(4, m): message.name for m, message in enumerate(file.message_type)}
        for m, message in enumerate(file.message_type):
            assert not message.nested_type or all(nested.options.map_entry for nested in message.nested_type)
            wanted |= {(4, m, 2, f): f"{message.name}.{field.name}" for f, field in enumerate(message.field)}
        for e, enum in enumerate(file.enum_type):
            wanted[(5, e)] = enum.name
            wanted |= {(5, e, 2, v): value.name for v, value in enumerate(enum.value)}
        for s, service in enumerate(file.service):
            wanted[(6, s)] = service.name
            wanted |= {(6, s, 2, m): method.name for m, method in enumerate(service.method)}
        missing = [name for path, name in wanted.items() if path not in commented]
        assert missing == [], f"{file.name}: without a comment"
        assert (12,) in commented, f"{file.name}: opens without a comment"


def test_options_for_go_and_java_are_set() -> None:
    outer_names = set()
    top_level = set()
    for file in public_files().file:
        # Go imports only paths whose first part has a dot; Java packages are reversed domains.
        assert file.options.go_package == "streamlog.org/api/streamlog/v1;streamlogv1"
        assert file.options.java_package == "org.streamlog.v1"
        assert file.options.java_multiple_files
        outer_names.add(file.options.java_outer_classname)
        top_level |= {message.name for message in file.message_type}
        top_level |= {enum.name for enum in file.enum_type} | {service.name for service in file.service}
    assert len(outer_names) == len(public_files().file)
    assert not outer_names & top_level
    assert not top_level & JAVA_LANG
    fields = {field.name for file in public_files().file for _, message in messages(file) for field in message.field}
    assert not fields & GO_METHODS


def test_buf_knows_the_rules() -> None:
    config = (PROTO_ROOT / "buf.yaml").read_text()
    assert "use: [STANDARD, COMMENTS]\n" in config
    assert re.findall(r"^    - ([A-Z_]+)", config, re.MULTILINE) == ["SERVICE_SUFFIX"]
    assert re.findall(r"^    - ([a-z/]+)", config, re.MULTILINE) == ["streamlog/internal"] * 2  # not the API


@pytest.mark.skipif(shutil.which("buf") is None, reason="buf is not installed")
def test_buf_lint_is_clean() -> None:
    run = subprocess.run(["buf", "lint"], cwd=PROTO_ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr


def test_files_and_packages_are_laid_out_as_buf_wants_them() -> None:
    """What of buf's STANDARD rules the other tests leave out."""
    for file in public_files().file:
        assert file.syntax == "proto3"
        assert file.package == "streamlog.v1"
        assert PurePosixPath(file.name).parent == PurePosixPath(file.package.replace(".", "/"))
        stem = PurePosixPath(file.name).stem
        assert re.fullmatch("[a-z]+(_[a-z]+)*", stem)
        text = (PROTO_ROOT / file.name).read_text()
        used = {field.type_name for _, message in messages(file) for field in message.field}
        for imported in file.dependency:
            assert any(name in used for name in types_of(imported)), f"{file.name} does not use {imported}"
        assert not file.public_dependency
        assert not file.weak_dependency
        for name in [*(name for name, _ in messages(file)), *(enum.name for enum in enums(file))]:
            assert re.fullmatch("([A-Z][a-z0-9]*)+", name.rpartition(".")[2]), name
        for service in file.service:
            assert re.fullmatch("([A-Z][a-z0-9]*)+", service.name)
            assert all(re.fullmatch("([A-Z][a-z0-9]*)+", method.name) for method in service.method)
        for enum in enums(file):
            assert not enum.options.allow_alias
        for _, message in messages(file):
            assert all(oneof.name == oneof.name.lower() for oneof in message.oneof_decl)
        assert text.startswith("// ")


def types_of(name: str) -> set[str]:
    (file,) = [one for one in public_files().file if one.name == name]
    found = [*(name for name, _ in messages(file)), *(enum.name for enum in enums(file))]
    return {f".{file.package}.{one}" for one in found}


def test_enums_start_unspecified_and_prefix_their_values() -> None:
    for file in public_files().file:
        for enum in enums(file):
            prefix = "".join(f"_{c}" if c.isupper() else c.upper() for c in enum.name).lstrip("_")
            assert enum.value[0].number == 0
            assert enum.value[0].name == f"{prefix}_UNSPECIFIED"
            assert all(value.name.startswith(f"{prefix}_") for value in enum.value)


def test_each_method_has_messages_of_its_own() -> None:
    used = []
    for file in public_files().file:
        for service in file.service:
            for method in service.method:
                request = method.input_type.rpartition(".")[2]
                response = method.output_type.rpartition(".")[2]
                assert request in (f"{method.name}Request", f"{service.name}{method.name}Request")
                assert response in (f"{method.name}Response", f"{service.name}{method.name}Response")
                used += [request, response]
    assert len(set(used)) == len(used)


def test_names_and_types_are_what_every_language_takes() -> None:
    """snake_case; int32 and int64 (Java and JavaScript have no unsigned ones), but where a number is opaque; sizes and
    times name their unit.
    """
    opaque = {"correlation_id"}
    unsigned = {FieldDescriptorProto.TYPE_UINT32, FieldDescriptorProto.TYPE_UINT64}
    for file in public_files().file:
        for name, message in messages(file):
            for field in message.field:
                assert field.name == field.name.lower()
                assert field.type not in unsigned or field.name in opaque, f"{name}.{field.name}"
                last = field.name.rpartition("_")[2]
                assert last not in {"timeout", "interval", "timestamp", "size"} or field.name in {
                    "max_timestamp",
                    "page_size",
                }


def test_what_is_large_stands_last() -> None:
    """A hand-written encoder writes the small fields in front of the bytes that it does not copy."""
    for file in public_files().file:
        for name, message in messages(file):
            large = [field for field in message.field if field.name == "batches"]
            if large:
                assert large[0].number == 15 == max(field.number for field in message.field), name


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("StreamlogError.message", MESSAGE_BYTES_MAX),
        ("StreamlogError.details", DETAILS_MAX),
        ("ProduceRequest.timeout_ms", requests.PRODUCE_TIMEOUT_MS),
        ("ProduceRequest.timeout_ms", requests.PRODUCE_TIMEOUT_MS_MAX),
        ("FetchSettings.wait_ms_max", requests.FETCH_WAIT_MS),
        ("FetchSettings.wait_ms_max", requests.FETCH_WAIT_MS_MAX),
        ("FetchSettings.response_bytes_max", requests.RESPONSE_BYTES),
        ("FetchSettings.receive_bytes_max", requests.RECEIVE_BYTES),
        ("FetchSettings.receive_bytes_max", requests.RECEIVE_BYTES_MAX),
        ("FetchPartition.partition_bytes_max", requests.PARTITION_BYTES),
        ("FetchRequest.partitions", requests.PARTITIONS_PER_REQUEST_MAX),
        ("ListOffsetsRequest.queries", requests.PARTITIONS_PER_REQUEST_MAX),
        ("InitProducerIdRequest.transactional_id", requests.TRANSACTIONAL_ID_LENGTH_MAX),
        ("InitProducerIdRequest.transaction_timeout_ms", requests.TRANSACTION_TIMEOUT_MS),
        ("NewTopic.partitions", topic_creation.PARTITIONS_PER_REQUEST_MAX),
        ("CreateTopicsRequest.topics", topic_creation.PARTITIONS_PER_REQUEST_MAX),
        ("DeleteTopicsRequest.topics", topic_creation.PARTITIONS_PER_REQUEST_MAX),
        ("TopicGrowth.partition_count", topic_creation.PARTITIONS_PER_REQUEST_MAX),
        ("CreatePartitionsRequest.topics", topic_creation.PARTITIONS_PER_REQUEST_MAX),
        ("ReplicaAssignment.replicas", assignment.REPLICATION_FACTOR_MAX),
        ("ConfigChange.value", configs.VALUE_LENGTH_MAX),
        ("ConfigAlteration.changes", configs.CHANGES_PER_REQUEST_MAX),
        ("ElectLeadersRequest.partitions", decision.BATCH_RECORDS),
        ("AlterPartitionReassignmentsRequest.reassignments", decision.BATCH_RECORDS),
    ],
)
def test_limits_in_comments_are_those_of_the_code(field: str, limit: int) -> None:
    comment = comments()[field]
    shown = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit:,}"
    assert shown in comment, comment


def comments() -> dict[str, str]:
    """`Message.field` -> its comment."""
    found: dict[str, str] = {}
    for file in public_files().file:
        at = {tuple(location.path): location.leading_comments for location in file.source_code_info.location}
        for m, message in enumerate(file.message_type):
            found |= {f"{message.name}.{field.name}": at[4, m, 2, f] for f, field in enumerate(message.field)}
    return found
