"""The API only grows: the proto files beside the released ones, and the comparison itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .protos import PROTO_ROOT, check_api


def test_nothing_that_was_released_has_changed() -> None:
    released = json.loads((PROTO_ROOT / "released.json").read_text())
    now = check_api().api_of(check_api().compile_protos(PROTO_ROOT))
    assert check_api().breaking_changes(released, now) == []


def changes_after(tmp_path: Path, file: str, old: str, new: str) -> list[str]:
    """What the comparison says of the API with `old` replaced by `new` in one file."""
    root = tmp_path / "proto"
    shutil.copytree(PROTO_ROOT, root)
    path = root / "streamlog" / "v1" / file
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} must stand in {file} once"
    path.write_text(text.replace(old, new))
    before = check_api().api_of(check_api().compile_protos(PROTO_ROOT))
    after = check_api().api_of(check_api().compile_protos(root))
    changes: list[str] = check_api().breaking_changes(before, after)
    return changes


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("batches.proto", "int32 partition_bytes_max = 8;", "", "FetchPartition: field 8 was removed or moved"),
        (
            "batches.proto",
            "int32 partition_bytes_max = 8;",
            "int32 partition_bytes_max = 19;",
            "field 8 was removed or moved",
        ),
        ("batches.proto", "int32 partition_bytes_max = 8;", "int32 bytes_max = 8;", "name was 'partition_bytes_max'"),
        ("batches.proto", "int64 fetch_offset = 6;", "int32 fetch_offset = 6;", "type was 'int64', is 'int32'"),
        ("batches.proto", "int64 fetch_offset = 6;", "sint64 fetch_offset = 6;", "type was 'int64', is 'sint64'"),
        ("batches.proto", "int64 fetch_offset = 6;", "repeated int64 fetch_offset = 6;", "is 'repeated'"),
        ("batches.proto", "int64 fetch_offset = 6;", "optional int64 fetch_offset = 6;", "is 'optional'"),
        ("batches.proto", "int64 fetch_offset = 6;", "oneof at { int64 fetch_offset = 6; }", "oneof was ''"),
        ("batches.proto", "EpochEnd diverging_epoch", "EpochQuery diverging_epoch", "is 'streamlog.v1.EpochQuery'"),
        ("common.proto", "  ACKS_LEADER = 2;", "  ACKS_ONE = 2;", "2 was ACKS_LEADER, is ACKS_ONE"),
        ("common.proto", "  ACKS_LEADER = 2;", "", "enum Acks: value 2 was removed or moved"),
        ("admin.proto", "service Admin {", "service Administration {", "service Admin was removed or moved"),
        (
            "admin.proto",
            "  rpc DigestReplicas(",
            "  rpc CompareReplicas(",
            "method DigestReplicas was removed or moved",
        ),
        ("admin.proto", "Node(UnregisterNodeRequest)", "Node(DrainNodeRequest)", "request was 'streamlog.v1.Unreg"),
        ("admin.proto", "returns (UnregisterNodeResponse)", "returns (NewTopic)", "response was 'streamlog.v1.Unreg"),
        ("records.proto", "(stream SubscribeResponse)", "(SubscribeResponse)", "server streaming was True"),
        ("records.proto", "rpc PublishStream(stream ", "rpc PublishStream(", "client streaming was True"),
        ("cluster.proto", "api/streamlog/v1;", "api/streamlog/v2;", "option go_package was"),
        ("cluster.proto", '"org.streamlog.v1"', '"org.streamlog"', "option java_package was"),
    ],
)
def test_a_planted_break_is_found(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    changes = changes_after(tmp_path, file, old, new)
    assert any(said in change for change in changes), changes


@pytest.mark.parametrize(
    ("file", "kind", "name"),
    [
        ("common.proto", "message", "TopicPartition"),
        ("records.proto", "enum", "Partitioner"),
        ("cluster.proto", "service", "Cluster"),
    ],
)
def test_a_type_that_has_moved_to_another_file_is_found(file: str, kind: str, name: str) -> None:
    api = check_api().api_of(check_api().compile_protos(PROTO_ROOT))
    moved = json.loads(json.dumps(api))
    moved["streamlog/v1/admin.proto"][f"{kind}s"][name] = moved[f"streamlog/v1/{file}"][f"{kind}s"].pop(name)
    assert check_api().breaking_changes(api, moved) == [f"streamlog/v1/{file}: {kind} {name} was removed or moved"]


def test_a_file_that_is_gone_and_a_reservation_that_is_lifted_are_found() -> None:
    api = check_api().api_of(check_api().compile_protos(PROTO_ROOT))
    smaller = {name: file for name, file in api.items() if "cluster" not in name}
    assert check_api().breaking_changes(api, smaller) == ["file streamlog/v1/cluster.proto was removed or moved"]
    reserving = json.loads(json.dumps(api))
    reserving["streamlog/v1/cluster.proto"]["messages"]["Limits"]["reserved"] = ["7 to 8", "old"]
    found = check_api().breaking_changes(reserving, api)
    assert found == [f"message Limits no longer reserves {what}" for what in ("7 to 8", "old")]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("batches.proto", "int32 partition_bytes_max = 8;", "int32 partition_bytes_max = 8; int32 more = 19;"),
        ("common.proto", "  ACKS_LEADER = 2;", "  ACKS_LEADER = 2; ACKS_MAJORITY = 4;"),
        ("admin.proto", "message DescribeClusterRequest {}", "message DescribeClusterRequest { bool all = 1; }"),
        ("cluster.proto", "message ClusterDescribeRequest {", "message Extra {} message ClusterDescribeRequest {"),
    ],
)
def test_growing_breaks_nobody(tmp_path: Path, file: str, old: str, new: str) -> None:
    assert changes_after(tmp_path, file, old, new) == []
