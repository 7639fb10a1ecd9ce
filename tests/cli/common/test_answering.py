"""Which nodes accept connections, and what is said of a quorum without enough of them."""

from __future__ import annotations

import socket

from streamlog.cli.common.answering import no_quorum, not_answering


def test_a_node_that_was_killed_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as running, socket.socket() as killed:
        killed.bind(("127.0.0.1", 0))  # reserved, so that no other process listens there; it refuses connections
        up, down = (f"127.0.0.1:{one.getsockname()[1]}" for one in (running, killed))
        assert not_answering([up, down]) == {down}


def test_a_name_that_cannot_be_resolved_says_nothing() -> None:
    assert not_answering(["node.invalid:9092"]) == frozenset()


def test_what_is_said_of_a_quorum() -> None:
    voters = ["a:1", "b:1", "c:1"]
    said = no_quorum(voters, frozenset({"a:1", "b:1"}))
    assert said == "No metadata quorum: 1 of 3 voters answers (see: streamlogctl cluster quorum)"
    assert no_quorum(voters, frozenset({"a:1"})) == ""
    assert no_quorum(voters, frozenset(voters)).startswith("No metadata quorum: 0 of 3 voters answer (")
