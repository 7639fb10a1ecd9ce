"""Records of the coordinator as Kafka's bytes: golden values, round trips, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.settings.group_settings import OFFSET_METADATA_MAX_BYTES
from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.codec import decode, encode
from streamlog.groups.records import (
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupRecord,
    GroupValue,
    MemberKey,
    MemberState,
    MemberValue,
    OffsetKey,
    OffsetValue,
    TargetKey,
    TargetMemberKey,
    TargetMemberValue,
    TargetValue,
)
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicId

TOPIC = TopicId(bytes(range(16)))

# Laid out by hand after the schemas in Kafka's group-coordinator.
GOLDEN = [
    (
        GroupRecord(
            OffsetKey("g", "t", PartitionId(2)),
            OffsetValue(offset=Offset(5), leader_epoch=LeaderEpoch(1), metadata="m", commit_timestamp_ms=9),
        ),
        "0001 0001 67 0001 74 00000002",
        "0003 0000000000000005 00000001 0001 6d 0000000000000009",
    ),
    (GroupRecord(GroupKey("g"), GroupValue(epoch=7, empty_since_ms=-1)), "0003 0001 67", "0000 00000007 00"),
    (GroupRecord(TargetKey("g"), TargetValue(epoch=7)), "0006 0001 67", "0000 00000007 00"),
    (
        GroupRecord(
            TargetMemberKey("g", "a"), TargetMemberValue(partitions=frozenset({GroupPartition(TOPIC, PartitionId(3))}))
        ),
        "0007 0001 67 0001 61",
        "0000 02 000102030405060708090a0b0c0d0e0f 02 00000003 00 00",
    ),
    (
        GroupRecord(
            CurrentKey("g", "a"),
            CurrentValue(
                epoch=4,
                previous_epoch=3,
                state=MemberState.UNREVOKED,
                assigned=frozenset(),
                revoking=frozenset({GroupPartition(TOPIC, PartitionId(n)) for n in (1, 0)}),
            ),
        ),
        "0008 0001 67 0001 61",
        "0000 00000004 00000003 02 01 02 000102030405060708090a0b0c0d0e0f 03 00000000 00000001 00 00",
    ),
    (GroupRecord(MemberKey("g", "a"), None), "0005 0001 67 0001 61", None),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_golden_bytes(record: GroupRecord, key: str, value: str | None) -> None:
    expected = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode(record) == expected
    assert decode(*expected) == record


def test_the_longest_metadata_that_may_be_set_can_be_written() -> None:
    setting = OFFSET_METADATA_MAX_BYTES
    longest = setting.parse(setting.kind.limit.rpartition("..")[2])
    value = OffsetValue(offset=Offset(5), metadata="m" * longest, commit_timestamp_ms=9)
    record = GroupRecord(OffsetKey("g", "t", PartitionId(2)), value)
    assert decode(*encode(record)) == record


names = st.text(max_size=20).filter(lambda text: "\0" not in text)
int32 = st.integers(-(2**31), 2**31 - 1)
partitions = st.frozensets(st.builds(GroupPartition, st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1)))
members = st.builds(
    MemberValue,
    topics=st.lists(names).map(tuple),
    pattern=names,
    assignor=names,
    rack=names,
    rebalance_timeout_ms=int32,
    session_timeout_ms=int32,
    instance_id=names,
    client_id=names,
    client_host=names,
)
records = st.one_of(
    st.builds(GroupRecord, st.builds(MemberKey, names, names), members),
    st.builds(
        GroupRecord,
        st.builds(CurrentKey, names, names),
        st.builds(
            CurrentValue,
            epoch=int32,
            previous_epoch=int32,
            state=st.sampled_from(MemberState),
            assigned=partitions,
            revoking=partitions,
        ),
    ),
    st.builds(
        GroupRecord, st.builds(TargetMemberKey, names, names), st.builds(TargetMemberValue, partitions=partitions)
    ),
    st.builds(
        GroupRecord,
        st.builds(GroupKey, names),
        st.builds(GroupValue, epoch=int32, empty_since_ms=st.integers(-1, 2**62)),
    ),
    st.builds(
        GroupRecord,
        st.builds(OffsetKey, names, names, int32),
        st.builds(OffsetValue, offset=int32, leader_epoch=int32, metadata=names, commit_timestamp_ms=int32),
    ),
)


@given(record=records)
def test_round_trip(record: GroupRecord) -> None:
    assert decode(*encode(record)) == record


@given(record=records, data=st.data())
def test_a_truncated_value_is_refused(record: GroupRecord, data: st.DataObject) -> None:
    key, value = encode(record)
    assert value is not None
    with pytest.raises(InvalidRecordError):
        decode(key, value[: data.draw(st.integers(0, len(value) - 1))])


def test_another_releases_records_are_distinguished_from_damage() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode(bytes.fromhex("0010 0001 67 0001 61"), None)
    with pytest.raises(UnsupportedVersionError):
        decode(bytes.fromhex("0003 0001 67"), bytes.fromhex("0001 00000007 00"))
    with pytest.raises(InvalidRecordError):
        decode(None, b"")
    with pytest.raises(InvalidRecordError):
        decode(bytes.fromhex("0008 0001 67 0001 61"), bytes.fromhex("0000 00000004 00000003 09 01 01 00"))


def test_offsets_of_older_and_newer_releases_are_read() -> None:
    key = bytes.fromhex("0000 0001 67 0001 74 00000002")
    plain = decode(key, bytes.fromhex("0000 0000000000000005 0000 0000000000000009"))
    flexible = decode(key, bytes.fromhex("0004 0000000000000005 ffffffff 01 0000000000000009 00"))
    expected = GroupRecord(
        OffsetKey("g", "t", PartitionId(2)), OffsetValue(offset=Offset(5), metadata="", commit_timestamp_ms=9)
    )
    assert plain == flexible == expected
