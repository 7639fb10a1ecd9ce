"""The token that makes repetitions exact."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRequestError
from streamlog.model import PartitionId, ProducerEpoch, ProducerId, TopicId
from streamlog.services.records.producer_token import SEQUENCES, ProducerToken, decode_token

TOPIC = TopicId(bytes(range(16)))
topic_ids = st.binary(min_size=16, max_size=16).map(TopicId)
tokens = st.builds(
    ProducerToken,
    producer_id=st.integers(0, 2**63 - 1).map(ProducerId),
    producer_epoch=st.integers(0, 2**15 - 1).map(ProducerEpoch),
    sequences=st.dictionaries(
        st.tuples(topic_ids, st.integers(0, 2**31 - 1).map(PartitionId)), st.integers(0, SEQUENCES - 1), max_size=9
    ),
    counts=st.dictionaries(topic_ids, st.integers(1, 2**31 - 1), max_size=5),
)


@given(tokens)
def test_a_token_is_what_its_bytes_say(token: ProducerToken) -> None:
    data = token.encode()
    assert len(data) == token.size_bytes
    assert decode_token(data) == token


@given(tokens, st.data())
def test_a_damaged_token_is_refused(token: ProducerToken, data: st.DataObject) -> None:
    good = token.encode()
    position = data.draw(st.integers(0, len(good) - 1))
    changed = bytearray(good)
    changed[position] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(changed), good[:position], good + b"\0"):
        with pytest.raises(InvalidRequestError):
            decode_token(bad)


@pytest.mark.parametrize(
    "changed",
    [
        {"producer_id": -1},
        {"producer_id": -(2**63)},
        {"producer_epoch": -1},
        {"producer_epoch": -(2**15)},
        {"sequences": {(TOPIC, 0): -1}},
        {"sequences": {(TOPIC, 0): -(2**31)}},
        {"sequences": {(TOPIC, 2**31): 0}},
        {"sequences": {(TOPIC, 2**32 - 1): 0}},
        {"counts": {TOPIC: 0}},
        {"counts": {TOPIC: 2**31}},
        {"counts": {TOPIC: 2**32 - 1}},
    ],
)
def test_a_token_with_numbers_that_no_node_wrote_is_refused(changed: dict[str, Any]) -> None:
    """Its CRC is right: a client computes it as well as a node."""
    with pytest.raises(InvalidRequestError):
        decode_token(
            ProducerToken(**{"producer_id": ProducerId(7), "producer_epoch": ProducerEpoch(2)} | changed).encode()
        )


def test_known_bytes() -> None:
    token = ProducerToken(
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(2),
        sequences={(TOPIC, PartitionId(3)): 9},
        counts={TOPIC: 4},
    )
    body = "0000000000000007 0002 00000001 00000001" + TOPIC.hex() + "00000003 00000009" + TOPIC.hex() + "00000004"
    assert token.encode()[5:].hex() == body.replace(" ", "")
    assert token.encode()[0] == 1


def test_sequences_wrap_as_kafkas_do() -> None:
    token = ProducerToken(
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        sequences={(TOPIC, PartitionId(0)): SEQUENCES - 1},
    )
    after = token.after(TOPIC, 1, {PartitionId(0): 3})
    assert after.sequence_of((TOPIC, PartitionId(0))) == 2


def test_too_many_partitions_for_a_token() -> None:
    token = ProducerToken(producer_id=ProducerId(1), producer_epoch=ProducerEpoch(0))
    token.check_size()
    with pytest.raises(InvalidRequestError, match="use a producer for each topic"):
        token.after(TOPIC, 9_000, {PartitionId(index): 1 for index in range(9_000)}).check_size()
