"""Lists of groups and transactions for callers who may see some of them: no page token names another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from streamlog.api.pb import admin_pb2 as pb
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.errors import StreamlogError
from streamlog.groups.state import Group
from streamlog.model import ProducerEpoch, ProducerId
from streamlog.ports import CallInfo
from streamlog.services.admin.visible_pages import Round, following_token, visible_rows
from streamlog.services.common.forwarding import Peers
from streamlog.transactions.records import TransactionStatus, TransactionValue
from tests.services.world import ADMIN, Cluster, simulate

HIDDEN = "secret"


async def page_of(
    names: list[str], start: str, size: int, round_entries: int, *, guarded: bool
) -> tuple[list[str], str]:
    """One page of these names, of which a round lists so many."""

    async def list_behind(behind: str) -> Round[str]:
        rest = [name for name in names if name > behind]
        part = rest[:round_entries]
        visible = [name for name in part if not guarded or not name.startswith(HIDDEN)]
        return Round(rows=visible, known_end=part[-1] if len(part) < len(rest) else None)

    found = await visible_rows(list_behind, start, size, is_guarded=guarded)
    shown = found.rows[:size]
    return shown, following_token(found, len(shown), str, is_guarded=guarded)


@given(
    names=st.sets(st.sampled_from([f"{kind}{n:02}" for kind in ("a", HIDDEN, "x") for n in range(20)])),
    size=st.integers(1, 8),
    round_entries=st.integers(1, 8),
    guarded=st.booleans(),
)
def test_all_that_is_visible_is_listed_once_and_nothing_else_is_named(
    names: set[str], size: int, round_entries: int, guarded: bool
) -> None:
    async def walk() -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            page, token = await page_of(sorted(names), token, size, round_entries, guarded=guarded)
            assert not guarded or not token.startswith(HIDDEN)
            assert len(page) <= size
            assert not guarded or len(page) == size or not token
            found += page
            if not token:
                return found

    assert asyncio.run(walk()) == sorted(name for name in names if not guarded or not name.startswith(HIDDEN))


class Guard(Struct):
    """Of a caller who may see names without HIDDEN."""

    principal: str = "User:tester"

    def admit(self, request: object) -> None: ...

    def reveal(self, response: object) -> None: ...

    def topic_refusal(self, operation: str, topic: str, topic_id: bytes | None = None) -> StreamlogError | None:
        return None

    def named_refused(self, topic: str) -> None: ...

    def may_use(self, operation: str, topic: str) -> bool:
        return True

    def creation_refusal(self, topic: str) -> StreamlogError | None:
        return None

    def may_list(self, kind: str, name: str) -> bool:
        return not name.startswith(HIDDEN)


NAMES = [f"{kind}{n}" for kind in ("a", HIDDEN, "x") for n in range(4)]


def page_of_node_2(request: Any) -> tuple[list[str], str]:
    """A node that always has pages of two, whatever it is asked for."""
    rest = [name for name in NAMES if name > request.page_token]
    return rest[:2], rest[1] if len(rest) > 2 else ""


def own_groups(names: list[str], start: str, count: int) -> list[Group]:
    return [Group(name) for name in names if name > start][:count]


def own_transactions(names: list[str], start: str, count: int) -> list[tuple[str, TransactionValue]]:
    return [(name, EMPTY) for name in names if name > start][:count]


async def call_node_2(peers: Peers, node: int, method: str, request: Any, *rest: Any) -> Any:
    """Instead of Peers.call."""
    assert node == 2
    names, token = page_of_node_2(request)
    if method.endswith("ListGroups"):
        return pb.ListGroupsResponse(groups=[pb.GroupListing(group=one) for one in names], next_page_token=token)
    rows = [pb.TransactionListing(transactional_id=one) for one in names]
    return pb.ListTransactionsResponse(transactions=rows, next_page_token=token)


def ask(method: str, size: int, token: str) -> Any:
    kind = pb.ListGroupsRequest if method == "ListGroups" else pb.ListTransactionsRequest
    return kind(page_size=size, page_token=token)


def shown(method: str, data: bytes) -> tuple[list[str], str]:
    if method == "ListGroups":
        groups = pb.ListGroupsResponse.FromString(data)
        return [row.group for row in groups.groups], groups.next_page_token
    transactions = pb.ListTransactionsResponse.FromString(data)
    return [row.transactional_id for row in transactions.transactions], transactions.next_page_token


EMPTY = TransactionValue(
    producer_id=ProducerId(1),
    producer_epoch=ProducerEpoch(0),
    timeout_ms=1_000,
    state=TransactionStatus.EMPTY,
    updated_ms=0,
)
OWN_NAMES = ["a00", "a2+", HIDDEN, f"{HIDDEN}2+", "t", "x2+", "y", "z"]


@pytest.mark.parametrize("method", ["ListGroups", "ListTransactions"])
@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("own", [[], OWN_NAMES])
def test_pages_of_two_nodes(
    method: str, size: int, guarded: bool, own: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`own`: groups or ids of the node that is asked."""
    monkeypatch.setattr(Peers, "call", call_node_2)
    monkeypatch.setattr(GroupCoordinator, "own_groups", lambda _, start, count: own_groups(own, start, count))
    monkeypatch.setattr(
        TransactionCoordinator, "own_transactions", lambda _, start, count: own_transactions(own, start, count)
    )
    expected = sorted([*NAMES, *own])

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, registered=(1, 2))
        info = CallInfo(method=ADMIN + method, peer="client:1", guard=Guard() if guarded else None)

        async def calling(token: str) -> bytes:
            return await cluster.node.handlers[ADMIN + method](ask(method, size, token).SerializeToString(), info)

        names: list[str] = []
        tokens = [""]
        while True:
            page, token = shown(method, await cluster.world.host("node1").spawn(calling(tokens[-1])))
            names += page
            if not token:
                break
            tokens.append(token)
        assert names == [name for name in expected if not guarded or not name.startswith(HIDDEN)]
        assert all(token in names for token in tokens[1:])

    simulate(story)
