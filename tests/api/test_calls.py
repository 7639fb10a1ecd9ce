"""The error that a caller gets where gRPC itself, and not a node's handler, ended the call."""

from __future__ import annotations

import pytest

from streamlog.api.calls import call_error
from streamlog.errors import RequestTooLargeError, Status, UnknownServerError
from streamlog.ports import RpcError

SAYINGS = [
    (
        "SERVER: Received message larger than max (5000000 vs. 4194304)",
        "the request has 5,000,000 bytes, and the node accepts 4,194,304 (socket.request.max.bytes)",
    ),
    (
        "Received message larger than max (5000000 vs. 4194304)",
        "the request has 5,000,000 bytes, and the node accepts 4,194,304 (socket.request.max.bytes)",
    ),
    (
        "Stream removed (CLIENT: Received message larger than max (5000000 vs. 4194304))",
        "the response has 5,000,000 bytes, and this client accepts 4,194,304",
    ),
]


@pytest.mark.parametrize(("said", "message"), SAYINGS)
def test_a_message_above_grpcs_limit_is_too_large_and_the_error_says_what_to_change(said: str, message: str) -> None:
    error = call_error(RpcError(Status.RESOURCE_EXHAUSTED, said), "streamlog.v1.Batches/ProduceStream")
    assert isinstance(error, RequestTooLargeError)
    assert message in error.message
    assert error.details["limit"] == 4_194_304


def test_other_refusals_without_details_keep_their_text() -> None:
    error = call_error(RpcError(Status.RESOURCE_EXHAUSTED, "received metadata size exceeds hard limit"), "a/B")
    assert isinstance(error, UnknownServerError)
    assert "received metadata size exceeds hard limit" in error.message
