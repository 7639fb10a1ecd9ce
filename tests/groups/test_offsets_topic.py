"""Records of `__consumer_offsets` by hand, one test a schema version. A real broker's are in tests/cli."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.groups.offsets_topic import decode


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def compact(text: str | None) -> bytes:
    return b"\0" if text is None else bytes([len(text) + 1]) + text.encode()


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


COMMIT_KEY = struct.pack(">h", 1) + string("readers") + string("orders") + struct.pack(">i", 3)
GROUP_KEY = struct.pack(">h", 2) + string("readers")
COMMIT_DATA = {"group": "readers", "topic": "orders", "partition": 3}


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (
            struct.pack(">hq", 0, 42) + string("m") + struct.pack(">q", 1000),
            {"offset": 42, "metadata": "m", "commitTimestamp": 1000},
        ),
        (
            struct.pack(">hq", 1, 42) + string("m") + struct.pack(">qq", 1000, 2000),
            {"offset": 42, "metadata": "m", "commitTimestamp": 1000, "expireTimestamp": 2000},
        ),
        (
            struct.pack(">hq", 2, 42) + string("") + struct.pack(">q", 1000),
            {"offset": 42, "metadata": "", "commitTimestamp": 1000},
        ),
        (
            struct.pack(">hqi", 3, 42, 7) + string("é") + struct.pack(">q", 1000),
            {"offset": 42, "leaderEpoch": 7, "metadata": "é", "commitTimestamp": 1000},
        ),
        (
            struct.pack(">hqi", 4, 42, -1) + compact("m") + struct.pack(">q", 1000) + b"\x01\x00\x10" + bytes(16),
            {
                "offset": 42,
                "leaderEpoch": -1,
                "metadata": "m",
                "commitTimestamp": 1000,
                "topicId": "AAAAAAAAAAAAAAAAAAAAAA",
            },
        ),
    ],
    ids=["v0", "v1", "v2", "v3", "v4"],
)
def test_offset_commits(value: bytes, data: dict[str, object]) -> None:
    record = decode(COMMIT_KEY, value)
    assert record.key == {"type": "1", "data": COMMIT_DATA}
    assert record.value == {"version": str(value[1]), "data": data}


def test_a_key_of_type_0_is_an_offset_commit_too() -> None:
    assert decode(b"\0\0" + COMMIT_KEY[2:], None).key == {"type": "0", "data": COMMIT_DATA}


def test_a_null_value_deletes() -> None:
    assert decode(COMMIT_KEY, None).value is None
    assert decode(GROUP_KEY, None).key == {"type": "2", "data": {"group": "readers"}}


SUBSCRIPTION = (
    struct.pack(">hi", 3, 1)
    + string("orders")
    + struct.pack(">i", -1)
    + struct.pack(">i", 1)
    + string("orders")
    + struct.pack(">iii", 2, 0, 1)
    + struct.pack(">i", 5)
    + string("rack-1")
)
ASSIGNMENT = struct.pack(">hi", 0, 1) + string("orders") + struct.pack(">ii", 1, 1) + blob(b"\xff")
SUBSCRIBED = {
    "topics": ["orders"],
    "userData": None,
    "ownedPartitions": [{"topic": "orders", "partitions": [0, 1]}],
    "generationId": 5,
    "rackId": "rack-1",
}
ASSIGNED = {"assignedPartitions": [{"topic": "orders", "partitions": [1]}], "userData": "/w=="}


def member(version: int) -> tuple[bytes, dict[str, object]]:
    content = string("member-1")
    data: dict[str, object] = {"memberId": "member-1"}
    if version >= 3:
        content += string(None)
        data["groupInstanceId"] = None
    content += string("client") + string("/127.0.0.1")
    data |= {"clientId": "client", "clientHost": "/127.0.0.1"}
    if version >= 1:
        content += struct.pack(">i", 300_000)
        data["rebalanceTimeout"] = 300_000
    content += struct.pack(">i", 45_000) + blob(SUBSCRIPTION) + blob(ASSIGNMENT)
    return content, data | {"sessionTimeout": 45_000, "subscription": SUBSCRIBED, "assignment": ASSIGNED}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_group_metadata(version: int) -> None:
    content, data = member(version)
    value = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 9) + string("range") + string(None)
    if version >= 2:
        value += struct.pack(">q", 1000)
    expected = {"protocolType": "consumer", "generation": 9, "protocol": "range", "leader": None}
    if version >= 2:
        expected["currentStateTimestamp"] = 1000
    record = decode(GROUP_KEY, value + struct.pack(">i", 1) + content)
    assert record.value == {"version": str(version), "data": expected | {"members": [data]}}


def test_flexible_group_metadata() -> None:
    def compact_blob(data: bytes) -> bytes:
        return bytes([len(data) + 1]) + data

    members = compact("m") + compact(None) + compact("c") + compact("h") + struct.pack(">ii", 1, 2)
    members += compact_blob(SUBSCRIPTION) + compact_blob(ASSIGNMENT) + b"\0"
    value = struct.pack(">h", 4) + compact("consumer") + struct.pack(">i", 9) + compact(None) + compact("m")
    record = decode(GROUP_KEY, value + struct.pack(">q", 1000) + b"\x02" + members + b"\x01\x05\x02ab")
    assert isinstance(record.value, dict)
    data = record.value["data"]
    assert isinstance(data, dict)
    assert isinstance(data["members"], list)
    assert data["members"][0] == {
        "memberId": "m",
        "groupInstanceId": None,
        "clientId": "c",
        "clientHost": "h",
        "rebalanceTimeout": 1,
        "sessionTimeout": 2,
        "subscription": SUBSCRIBED,
        "assignment": ASSIGNED,
    }


def test_members_of_other_protocols_keep_their_bytes() -> None:
    content, _ = member(0)
    value = struct.pack(">h", 0) + string("connect") + struct.pack(">i", 9) + string(None) + string(None)
    record = decode(GROUP_KEY, value + struct.pack(">i", 1) + content)
    assert base64.b64encode(SUBSCRIPTION).decode() in str(record.value)


def test_a_type_of_a_later_release() -> None:
    with pytest.raises(UnsupportedVersionError, match="Unknown record type 17"):
        decode(struct.pack(">h", 17) + string("g"), b"")
    with pytest.raises(UnsupportedVersionError, match="Unknown value version 5"):
        decode(COMMIT_KEY, struct.pack(">h", 5))


@pytest.mark.parametrize("key", [None, b"", b"\0", COMMIT_KEY[:-1], struct.pack(">hh", 2, -1), b"\0\2\x7f\xffx"])
def test_keys_that_are_none(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        decode(key, None)


@given(
    key=st.sampled_from([COMMIT_KEY, GROUP_KEY]),
    version=st.integers(0, 4),
    rest=st.binary(max_size=80) | st.lists(st.sampled_from([b"\xff\xff\xff\xff", b"\0\1a", b"\1"])).map(b"".join),
)
def test_any_bytes_are_read_or_refused(key: bytes, version: int, rest: bytes) -> None:
    try:
        decode(key, struct.pack(">h", version) + rest)
    except InvalidRecordError:
        pass
