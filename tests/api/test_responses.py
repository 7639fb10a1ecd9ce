"""Responses of other nodes: what is not valid is as if the node were not there."""

from __future__ import annotations

import pytest

from streamlog.api.pb import controller_pb2 as pb
from streamlog.api.responses import parse_response
from streamlog.errors import BrokerNotAvailableError


def test_a_valid_response_is_parsed() -> None:
    data = pb.ReadIndexResponse(applied_index=7).SerializeToString()
    assert parse_response(pb.ReadIndexResponse, data, "node 2", bytes_max=len(data)).applied_index == 7


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x07", "it cannot be parsed"),
        (b"\x0a\xff\xff\xff\xff\x0f", "it cannot be parsed"),
        (pb.ReadIndexResponse(applied_index=2**64 - 1).SerializeToString(), "applied_index is 18446744073709551615"),
        (bytes(21), "it has 21 bytes, and at most 20 are accepted"),
    ],
)
def test_any_other_is_refused_with_its_sender_and_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BrokerNotAvailableError) as caught:
        parse_response(pb.ReadIndexResponse, data, "node 2", bytes_max=20)
    assert str(caught.value).startswith(
        "node 2 did not answer with a valid streamlog.internal.v1.ReadIndexResponse, it may not be a streamlog node: "
        + reason
    )
