"""Records on the wire: golden bytes, and what an older release does with a newer log."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptMessageError, InvalidRequestError, UnsupportedVersionError
from streamlog.metadata import convert
from streamlog.metadata.convert import BATCH_BYTES_MAX, decode_batch, encode_batch
from streamlog.metadata.features import LEVEL_OF_RECORD
from streamlog.metadata.pb import metadata_pb2 as pb
from streamlog.metadata.records import ConfigRecord, ConfigTarget, ConfigTargetType, MetadataRecord
from streamlog.raft.settings import QuorumSettings
from tests.metadata.examples import EXAMPLES

GOLDEN = {
    "metadata_version": "0a0412020801",
    "cluster": "0a051a030a0163",
    "broker": (
        "0a41223f08ac0210071a10101112131415161718191a1b1c1d1e1f2204686f7374288447320172380140024a10202122"
        "232425262728292a2b2c2d2e2f500158016001"
    ),
    "broker_change": "0a0a2a081007180020012800",
    "broker_change, of nothing": "0a042a021007",
    "unregister_broker": "0a0432021007",
    "topic": "0a173a150a10000102030405060708090a0b0c0d0e0f120174",
    "remove_topic": "0a1442120a10000102030405060708090a0b0c0d0e0f",
    "partition": (
        "0a374a350a10000102030405060708090a0b0c0d0e0f10011a04010203042202010228043004380540c8014a0c0a0103"
        "1201011a0104220104"
    ),
    "partition, at rest": "0a194a170a10000102030405060708090a0b0c0d0e0f1a01002801",
    "partition_change": (
        "0a3952370a10000102030405060708090a0b0c0d0e0f10011a040a02010222030a01012a030a010232030a01023a030a"
        "010142030a010248025001"
    ),
    "partition_change, to nothing": "0a20521e0a10000102030405060708090a0b0c0d0e0f22002a0032003a0042004801",
    "partition_change, of nothing": "0a1452120a10000102030405060708090a0b0c0d0e0f",
    "config": "0a0c5a0a08021201741a016e2200",
    "config, removed": "0a075a0508041a016e",
    "acl": "0a1f6a1d080212017418042206557365723a61280330023a0831302e302e302e31",
    "remove_acl": "0a1f721d080212017418042206557365723a61280330023a0831302e302e302e31",
    "user": (
        "0a3b7a390a01751210000102030405060708090a0b0c0d0e0f1a20000102030405060708090a0b0c0d0e0f1011121314"
        "15161718191a1b1c1d1e1f200f"
    ),
    "remove_user": "0a068201030a0175",
    "client_quota": "0a148a01110a0175120022016b29000000000000f83f",
    "client_quota, address": "0a1b08018a01161a0831302e302e302e3722016b29000000000000f83f",
    "client_quota, removed": "0a098a010612016322016b",
    "producer_ids": "0a09620708808080808020",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden_bytes(name: str) -> None:
    assert encode_batch([EXAMPLES[name]]).hex() == GOLDEN[name]
    assert decode_batch(bytes.fromhex(GOLDEN[name])) == [EXAMPLES[name]]


def test_every_kind_of_record_has_an_example_a_codec_and_a_level() -> None:
    kinds = set(get_args(MetadataRecord))
    assert {type(record) for record in EXAMPLES.values()} == kinds
    assert set(LEVEL_OF_RECORD) == kinds
    fields = {field.name for field in pb.MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields}
    assert set(convert.VERSION_MAX) == fields
    assert {name.split(",")[0] for name in EXAMPLES} == fields


@given(st.lists(st.sampled_from(list(EXAMPLES.values())), max_size=8))
def test_a_command_is_the_concatenation_of_its_records(records: list[MetadataRecord]) -> None:
    data = encode_batch(records)
    assert decode_batch(data) == records
    assert data == b"".join(encode_batch([record]) for record in records)


def test_the_quorum_takes_what_is_let_through() -> None:
    assert QuorumSettings().command_bytes_max >= BATCH_BYTES_MAX


def test_a_record_of_a_newer_release_stops_an_old_node() -> None:
    unknown = bytes.fromhex("9a060101")  # field 99, which no release has yet
    batch = pb.MetadataBatch(records=[pb.MetadataRecord.FromString(unknown)])
    with pytest.raises(UnsupportedVersionError) as refused:
        decode_batch(batch.SerializeToString())
    assert "a record of kind 99, written by a newer release of streamlog" in str(refused.value)
    assert "install that release" in str(refused.value)


@pytest.mark.parametrize("kind", convert.VERSION_MAX)
def test_a_known_record_in_a_newer_format_stops_an_old_node(kind: str) -> None:
    [message] = pb.MetadataBatch.FromString(bytes.fromhex(GOLDEN[kind])).records
    message.version = convert.VERSION_MAX[kind] + 1
    with pytest.raises(UnsupportedVersionError) as refused:
        decode_batch(pb.MetadataBatch(records=[message]).SerializeToString())
    assert f"a {kind} record of version {message.version}" in str(refused.value)


def test_a_config_of_an_unknown_kind_of_resource_stops_an_old_node() -> None:
    record = pb.MetadataRecord()
    record.config.name = "n"
    record.config.resource_type = 99  # type: ignore[assignment]  # no such value yet
    with pytest.raises(UnsupportedVersionError, match="resource of type 99"):
        decode_batch(pb.MetadataBatch(records=[record]).SerializeToString())


def test_an_empty_record_is_no_record() -> None:
    with pytest.raises(UnsupportedVersionError, match="kind 0"):
        decode_batch(pb.MetadataBatch(records=[pb.MetadataRecord()]).SerializeToString())


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 60), st.sampled_from(sorted(GOLDEN.values())))
def test_damaged_bytes_are_named_and_nothing_else(noise: bytes, at: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    for damaged in (noise, data[: at % len(data)], data[:at] + noise + data[at:]):
        try:
            decode_batch(damaged)
        except (CorruptMessageError, UnsupportedVersionError):
            pass


def test_a_command_that_the_quorum_would_not_take_is_refused() -> None:
    long = ConfigRecord(resource=ConfigTarget(ConfigTargetType.TOPIC, "t"), name="n", value="x" * 30_000)
    assert len(encode_batch([long] * 34)) < BATCH_BYTES_MAX
    with pytest.raises(InvalidRequestError) as refused:
        encode_batch([long] * 35)
    assert refused.value.details["limit"] == BATCH_BYTES_MAX
