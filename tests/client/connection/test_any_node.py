"""Which node a call of the admin client goes to, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.client.connection.any_node import AnyNode, AskTimes
from streamlog.errors import (
    BrokerNotAvailableError,
    NetworkError,
    NotControllerError,
    QuorumUnavailableError,
    RequestTimedOutError,
    StreamlogError,
    ThrottledError,
)
from tests.client.admin.admin_bench import NODES, TOTAL_S, UNREACHABLE_S, Bench, play


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_is_down_is_passed_over(seed: int) -> None:
    async def scenario(bench: Bench) -> None:
        began = bench.clock.monotonic()
        await bench.admin.create_topic("t")
        assert bench.clock.monotonic() - began < 1

    play(scenario, nodes=(NODES[1],), seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_node_that_dies_is_left(seed: int) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.admin.create_topic("t")
        bench.kill(NODES[seed % 2])
        assert [topic.name for topic in await bench.admin.list_topics()] == ["t"]

    play(scenario, seed=seed)


@pytest.mark.parametrize("reason", [NotControllerError("node 2 is"), QuorumUnavailableError("electing")])
def test_an_election_of_the_controller_is_waited_for(reason: NotControllerError | QuorumUnavailableError) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.fails_with = [reason] * 5
        await bench.admin.create_topic("t")
        assert bench.cluster.asked == ["CreateTopics"] * 6

    play(scenario)


def test_any_other_error_is_the_answer_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.fails_with = [ThrottledError("full", limit=5)]
        with pytest.raises(ThrottledError) as raised:
            await bench.admin.list_topics()
        assert raised.value.details == {"limit": 5}
        assert bench.cluster.asked == ["ListTopics"]

    play(scenario)


def test_an_election_without_end_is_reported_at_the_timeout() -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.fails_with = [QuorumUnavailableError("no majority")] * 10_000
        began = bench.clock.monotonic()
        with pytest.raises(QuorumUnavailableError, match="no majority"):
            await bench.admin.list_topics()
        assert TOTAL_S <= bench.clock.monotonic() - began < TOTAL_S + 1

    play(scenario)


class _Asked:
    """Connections, clock and backoff of an asker whose every attempt takes a second and fails."""

    bootstrap = ("node1:9092",)

    def __init__(self, *errors: StreamlogError) -> None:
        self._errors = list(errors)
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def next_address(self) -> str:
        return "node1:9092"

    async def ask(self, *_: object, **__: object) -> None:
        self._now_s += 1
        raise self._errors.pop(0)

    async def wait(self, *_: object, **__: object) -> None:
        pass


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (QuorumUnavailableError("no majority"), "not answered in time; before that: no majority"),
        (RequestTimedOutError("not answered either"), "not answered in time"),
        (NetworkError("refused"), "not answered in time"),
    ],
)
async def test_where_the_last_attempt_gets_no_answer_the_error_before_is_reported(
    first: StreamlogError, message: str
) -> None:
    asked: Any = _Asked(first, NetworkError("reset"), RequestTimedOutError("not answered in time"))
    node = AnyNode(asked, asked, asked, AskTimes(total_s=3))
    call: Any = None
    with pytest.raises(RequestTimedOutError) as raised:
        await node.ask(call, call)
    assert str(raised.value) == message


async def test_where_the_last_node_is_not_reached_the_error_of_another_one_is_reported() -> None:
    """A node answers, so it is not said that none does; and it is not given up before the timeout."""
    asked: Any = _Asked(QuorumUnavailableError("no majority"), NetworkError("refused"), NetworkError("refused"))
    node = AnyNode(asked, asked, asked, AskTimes(total_s=3, unreachable_s=1))
    call: Any = None
    with pytest.raises(QuorumUnavailableError, match="no majority"):
        await node.ask(call, call)
    assert asked.monotonic() == 3


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        ("a/Method: no connection to node1:9092: connection refused", " (connection refused)"),
        ("a/Method: errors resolving node1:9092: [Domain name not found]", " (its host name cannot be resolved)"),
        ("a/Method: DNS resolution failed for node1:9092: timeout", " (its host name cannot be resolved)"),
        ("a/Method: no connection to node2:9092: connection refused", ""),
        ("a/Method: reset", ""),
    ],
)
async def test_why_the_only_node_does_not_answer(cause: str, why: str) -> None:
    asked: Any = _Asked(NetworkError(cause))
    node = AnyNode(asked, asked, asked, AskTimes(total_s=3, unreachable_s=1))
    call: Any = None
    with pytest.raises(BrokerNotAvailableError) as raised:
        await node.ask(call, call)
    assert str(raised.value) == f"no node answers at node1:9092{why}"


def test_that_no_node_answers_is_reported_sooner() -> None:
    async def scenario(bench: Bench) -> None:
        began = bench.clock.monotonic()
        with pytest.raises(BrokerNotAvailableError, match="no node answers at node1:9092, node2:9092"):
            await bench.admin.list_topics()
        assert UNREACHABLE_S <= bench.clock.monotonic() - began < UNREACHABLE_S + 2

    play(scenario, nodes=())


def test_nodes_are_learned_from_the_cluster() -> None:
    """node3 is in no list of the client's."""

    async def scenario(bench: Bench) -> None:
        await bench.start("node3:9092")
        await bench.admin.describe_cluster()
        for address in NODES:
            bench.kill(address)
        assert await bench.admin.list_topics() == ()

    play(scenario)
