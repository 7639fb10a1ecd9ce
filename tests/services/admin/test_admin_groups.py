"""What operators ask of groups, over the simulated network; two nodes share the groups between them."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.api.convert.admin import group_admin
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import common_pb2, groups_pb2
from streamlog.client.admin import group_values
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.errors import GroupIdNotFoundError, StreamlogError, UnknownProducerIdError
from streamlog.groups.state import Group
from streamlog.model import BrokerId
from streamlog.services.admin import groups as admin_groups
from tests.services.groups.group_calls import beat, commit, fetch, request, with_group
from tests.services.world import ADMIN, Cluster, simulate


async def listed(cluster: Cluster, node: int = 1, **fields: object) -> list[tuple[str, str, int]]:
    """All pages."""
    found, token = [], ""
    while True:
        wanted = pb.ListGroupsRequest(page_token=token, **fields)  # type: ignore[arg-type]  # fields of the message
        response = await cluster.call(ADMIN + "ListGroups", wanted, pb.ListGroupsResponse, node=node)
        assert not response.errors
        found += [(row.group, pb.GroupState.Name(row.state), row.member_count) for row in response.groups]
        token = response.next_page_token
        if not token:
            return found


async def describe(cluster: Cluster, *groups: str, node: int = 1) -> list[pb.GroupDescription]:
    wanted = pb.DescribeGroupsRequest(groups=groups)
    response = await cluster.call(ADMIN + "DescribeGroups", wanted, pb.DescribeGroupsResponse, node=node)
    return list(response.groups)


async def delete(cluster: Cluster, *groups: str) -> list[str]:
    wanted = pb.DeleteGroupsRequest(groups=groups)
    response = await cluster.call(ADMIN + "DeleteGroups", wanted, pb.DeleteGroupsResponse)
    return [row.error.code for row in response.results]


def test_one_node_lists_describes_and_deletes() -> None:
    async def story(cluster: Cluster) -> None:
        await commit(cluster, 5)
        assert await listed(cluster) == [("g", "GROUP_STATE_EMPTY", 0)]
        await beat(cluster, request("a", client_id="orders/1.4", instance_id="one"))
        assert await listed(cluster) == [("g", "GROUP_STATE_STABLE", 1)]
        await beat(cluster, request("b"))
        assert await listed(cluster, states=[pb.GROUP_STATE_STABLE]) == []
        found, unknown = await describe(cluster, "g", "h")
        assert (pb.GroupState.Name(found.state), found.assignor) == ("GROUP_STATE_RECONCILING", "uniform")
        assert found.coordinator.node_id == 1
        first = found.members[0]
        assert (first.member_id, first.instance_id, first.client_id) == ("a", "one", "orders/1.4")
        assert [(topic.topic, list(topic.partitions)) for topic in first.assignment.topics] == [("t", [0, 1])]
        assert len(first.target.topics[0].partitions) == 1
        assert list(first.subscription.topics) == ["t"]
        assert unknown.error.code == "GROUP_ID_NOT_FOUND"
        assert await delete(cluster, "g", "h") == ["NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"]
        await beat(cluster, request("a", -1))
        await beat(cluster, request("b", -1))
        assert await delete(cluster, "g") == [""]
        assert await listed(cluster) == []

    with_group(story)


def test_long_lists_of_topics_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 members with the same 1,000 topics made a response of 200 MB."""
    monkeypatch.setattr(group_admin, "NAMES_BYTES_MAX", 700)
    topics = [f"topic-{n}" for n in range(40)]

    async def story(cluster: Cluster) -> None:
        for name in "abc":
            await beat(cluster, request(name, subscription=groups_pb2.GroupSubscription(topics=topics)))
        await beat(cluster, request("d"))
        (found,) = await describe(cluster, "g")
        lists = [list(member.subscription.topics) for member in found.members]
        assert lists == [sorted(topics), [], [], ["t"]]
        assert [member.topics_as_member for member in found.members] == ["", "a", "a", ""]
        assert [member.topics for member in group_values.description(found).members] == [(*sorted(topics),)] * 3 + [
            ("t",)
        ]
        await beat(cluster, request("c", -1))
        (found,) = await describe(cluster, "g")
        assert [len(member.subscription.topics) for member in found.members] == [40, 40, 1]

    with_group(story)


def test_groups_are_described_until_the_response_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    describe_one = GroupCoordinator.describe

    async def counted(coordinator: GroupCoordinator, name: str) -> Group | None:
        described.append(name)
        return await describe_one(coordinator, name)

    monkeypatch.setattr(admin_groups, "PAGE_BYTES", 100)
    monkeypatch.setattr(admin_groups, "_AT_ONCE", 2)
    monkeypatch.setattr(GroupCoordinator, "describe", counted)

    async def story(cluster: Cluster) -> None:
        await beat(cluster, request("a"))
        with pytest.raises(StreamlogError, match="the descriptions of 10 groups exceed 100 bytes"):
            await describe(cluster, "g", *(f"other-{n}" for n in range(9)))
        assert len(described) <= 3
        (found,) = await describe(cluster, "g")
        assert found.ByteSize() > 100

    with_group(story)


def test_before_the_first_group_and_transactional_id_none_exists() -> None:
    """Not COORDINATOR_NOT_AVAILABLE, which is retried: only a client of a group creates the topic."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, registered=(1,))
        await cluster.create()
        (group,) = await describe(cluster, "new")
        assert group.error.code == "GROUP_ID_NOT_FOUND"
        assert await delete(cluster, "new") == ["GROUP_ID_NOT_FOUND"]
        partition = common_pb2.TopicPartition(topic="t", partition=0)
        offsets = pb.DeleteGroupOffsetsRequest(group="new", partitions=[partition])
        with pytest.raises(GroupIdNotFoundError):
            await cluster.call(ADMIN + "DeleteGroupOffsets", offsets, pb.DeleteGroupOffsetsResponse)
        ids = pb.DescribeTransactionsRequest(transactional_ids=["x"])
        found = await cluster.call(ADMIN + "DescribeTransactions", ids, pb.DescribeTransactionsResponse)
        assert found.transactions[0].error.code == "UNKNOWN_PRODUCER_ID"
        abort = pb.AbortTransactionRequest(transactional_id="x")
        with pytest.raises(UnknownProducerIdError):
            await cluster.call(ADMIN + "AbortTransaction", abort, pb.AbortTransactionResponse)

    simulate(story)


def test_offsets_are_deleted_where_nobody_reads() -> None:
    async def story(cluster: Cluster) -> None:
        await commit(cluster, 5)
        await commit(cluster, 6, partition=1)
        wanted = pb.DeleteGroupOffsetsRequest(group="g", partitions=[common_pb2.TopicPartition(topic="t", partition=1)])
        await beat(cluster, request("a"))
        response = await cluster.call(ADMIN + "DeleteGroupOffsets", wanted, pb.DeleteGroupOffsetsResponse)
        assert response.results[0].error.code == "GROUP_SUBSCRIBED_TO_TOPIC"
        await beat(cluster, request("a", -1))
        response = await cluster.call(ADMIN + "DeleteGroupOffsets", wanted, pb.DeleteGroupOffsetsResponse)
        assert not response.results[0].HasField("error")
        assert await fetch(cluster) == [(0, 5)]

    with_group(story)


def test_a_page_of_one_group_looks_at_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 40,000 groups a page of one took 0.2 s of the loop."""
    looked_at: list[str] = []
    listing = group_admin.listing

    def counted(group: Group, coordinator: BrokerId) -> pb.GroupListing:
        looked_at.append(group.group_id)
        return listing(group, coordinator)

    monkeypatch.setattr(group_admin, "listing", counted)
    monkeypatch.setattr(admin_groups, "GROUPS_PER_PAGE", 2)

    async def one(token: str, **fields: Any) -> str:
        looked_at.clear()
        wanted = pb.ListGroupsRequest(page_token=token, page_size=1, **fields)
        response = await cluster_of[0].call(ADMIN + "ListGroups", wanted, pb.ListGroupsResponse)
        (found,) = response.groups
        assert response.next_page_token in ("", found.group)
        return found.group

    cluster_of: list[Cluster] = []

    async def story(cluster: Cluster) -> None:
        cluster_of.append(cluster)
        for n in (5, 1, 4, 2, 3):
            await beat(cluster, request("a", group=f"g{n}"))
        assert await one("g2") == "g3"
        assert looked_at == ["g3", "g4"]
        await beat(cluster, request("a", -1, group="g4"))
        assert await delete(cluster, "g4") == [""]
        await beat(cluster, request("a", group="g0"))
        assert await one("") == "g0"
        assert await one("g3") == "g5"
        await beat(cluster, request("a", -1, group="g5"))
        assert await one("", states=[pb.GROUP_STATE_EMPTY]) == "g5"
        assert looked_at == ["g0", "g1", "g2", "g3", "g5"]

    with_group(story)


def test_pages_of_a_list() -> None:
    async def story(cluster: Cluster) -> None:
        for n in range(7):
            await beat(cluster, request("a", group=f"g{n}"))
        names = [f"g{n}" for n in range(7)]
        assert [name for name, _, _ in await listed(cluster, page_size=3)] == names
        with pytest.raises(StreamlogError):
            await listed(cluster, page_size=-1)
        with pytest.raises(StreamlogError) as refused:
            await listed(cluster, states=[9])
        assert refused.value.details["field"] == "states[0]"

    with_group(story)
