"""Benchmark part "groups": the cost of group coordinators, on three real nodes.

Members are plain streams of Groups.GroupMembership, a thousand of them from one process: they join, send the requested
heartbeats, and accept assignments. They read no records, so the coordinator's work is measured.

- A stable assignment: all partitions have an owner, and members' numbers of partitions differ by at most one.
- A failure: a member's stream is closed; until another member is assigned its partition.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from bench.cluster import Cluster
from bench.figures import Figure
from bench.scratch import scratch
from streamlog.api.calls import CallStream, stream, unary
from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.connection.client_ports import real_ports
from streamlog.config import load_admin
from streamlog.errors import IllegalGenerationError, StreamlogError, UnknownMemberIdError
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.ports import Channel
from streamlog.ports.system import run as run_loop

LARGE: Final = 1_000
"""Members of one group, and groups of SMALL members."""
SMALL: Final = 3
PARTITIONS: Final = 1_000
COMMITS: Final = 5_000
COMMITS_IN_FLIGHT: Final = 64
HEARTBEATS: Final = 5_000
DEATHS: Final = 20
CHANNELS: Final = 12
IDLE_S: Final = 10.0
WITHIN_S: Final = 120.0
RETRY_S: Final = 0.05

_MEMBERSHIP: Final = "streamlog.v1.Groups/GroupMembership"
_FIND: Final = unary("streamlog.v1.Groups/FindCoordinator", pb.FindCoordinatorResponse)
_COMMIT: Final = unary("streamlog.v1.Groups/CommitOffsets", pb.CommitOffsetsResponse)


def run() -> list[Figure]:
    with scratch("groups") as base:
        return run_loop(_measure(base))


class Group:
    """Members of one group, and their assignments."""

    def __init__(self, name: str, topic: str, channels: Sequence[Channel], size: int) -> None:
        self.members = [Member(self, f"{name}-{n}", channels[n % len(channels)]) for n in range(size)]
        self.name = name
        self.topic = topic
        self.changed = asyncio.Event()
        self.owned_count = 0  # of all members
        self.assigned_at = 0.0  # the last assignment of partitions to a member

    def is_stable(self, partitions: int) -> bool:
        if self.owned_count != partitions:
            return False
        counts = [len(member.owned) for member in self.members if member.task is not None]
        return max(counts) - min(counts) <= 1

    async def until_stable(self, partitions: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not self.is_stable(partitions):
                self.changed.clear()
                await self.changed.wait()


class Member:
    """On a stream of its own; it owns assigned partitions immediately, and revokes them immediately."""

    def __init__(self, group: Group, member_id: str, channel: Channel) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: set[tuple[bytes, int]] = set()
        self.task: asyncio.Task[None] | None = None
        self._group = group
        self._channel = channel

    async def live(self) -> None:
        while True:
            try:
                await self._take_part()
            except StreamlogError as error:
                if not error.retriable and not isinstance(error, UnknownMemberIdError | IllegalGenerationError):
                    raise
                self._forget()
                await asyncio.sleep(RETRY_S)  # the coordinator is loading, or has removed the member with its stream

    def _forget(self) -> None:
        """Its stream is broken, which ends its membership: it joins again."""
        self._group.owned_count -= len(self.owned)
        self.epoch, self.owned = 0, set()

    async def _take_part(self) -> None:
        async with stream(self._channel, _MEMBERSHIP, pb.GroupMembershipResponse) as calls:
            await self._beat(calls)
            while (response := await calls.recv()) is not None:
                if not response.HasField("heartbeat") or self._accept(response.heartbeat):
                    await self._beat(calls)

    async def _beat(self, calls: CallStream[pb.GroupMembershipResponse]) -> None:
        owned = pb.MemberPartitions()
        for topic_id in sorted({topic_id for topic_id, _ in self.owned}):
            owned.topics.add(topic_id=topic_id, partitions=sorted(p for t, p in self.owned if t == topic_id))
        request = pb.GroupHeartbeatRequest(
            group=self._group.name, member_id=self.member_id, member_epoch=self.epoch, owned=owned
        )
        if not self.epoch:
            request.subscription.topics.append(self._group.topic)
        await calls.send(pb.GroupMembershipRequest(heartbeat=request))

    def _accept(self, answer: pb.GroupHeartbeatResponse) -> bool:
        """Whether it has revoked partitions, which it must acknowledge."""
        before = self.owned
        self.epoch = answer.member_epoch
        if answer.HasField("assignment"):
            self.owned = {(topic.topic_id, index) for topic in answer.assignment.topics for index in topic.partitions}
        self._group.owned_count += len(self.owned) - len(before)
        if self.owned - before:
            self._group.assigned_at = time.monotonic()
        self._group.changed.set()
        return bool(before - self.owned)


class Coordinators:
    """Ways to the coordinators of groups: some connections to each node, for a hundred streams each."""

    def __init__(self, connect: Callable[[str], Channel], any_node: str) -> None:
        self._connect = connect
        self._any_node = connect(any_node)
        self._channels: dict[str, list[Channel]] = {}

    async def of(self, groups: Sequence[str]) -> dict[str, list[Channel]]:
        """By group."""
        response = await _FIND(self._any_node, pb.FindCoordinatorRequest(groups=groups), timeout_s=WITHIN_S)
        found = {}
        for row in response.coordinators:
            if row.HasField("error"):
                raise RuntimeError(row.error.message)
            address = f"{row.node.host}:{row.node.port}"
            if address not in self._channels:
                self._channels[address] = [self._connect(address) for _ in range(CHANNELS)]
            found[row.group] = self._channels[address]
        return found

    async def close(self) -> None:
        for channel in [self._any_node, *(one for channels in self._channels.values() for one in channels)]:
            await channel.close()


async def _measure(base: Path) -> list[Figure]:
    async with Cluster(base) as cluster, AsyncExitStack() as cleanup:
        ports = real_ports(load_admin({"bootstrap.servers": cluster.addresses}).config)
        cleanup.push_async_callback(ports.close)
        coordinators = Coordinators(ports.network.connect, cluster.addresses.split(",")[0])
        cleanup.push_async_callback(coordinators.close)
        await cluster.create("large", PARTITIONS)
        await cluster.create("small", SMALL)

        async def known() -> bool:
            return bool(await coordinators.of(["large"]))

        await cluster.until(known)
        await cluster.until_in_sync(OFFSETS_TOPIC)
        return [
            *await _one_large_group(cluster, coordinators),
            *await _many_small_groups(cluster, coordinators),
            *await _commits(cluster, coordinators),
            *await _heartbeats(cluster, coordinators),
            *await _deaths(coordinators),
        ]


async def _joined(groups: Sequence[Group], tasks: asyncio.TaskGroup, partitions: int) -> float:
    """Seconds from the first join to a stable assignment of all."""
    begin = time.monotonic()
    for group in groups:
        for member in group.members:
            member.task = tasks.create_task(member.live())
    for group in groups:
        await group.until_stable(partitions)
    return time.monotonic() - begin


def _leave(groups: Sequence[Group]) -> None:
    for group in groups:
        for member in group.members:
            if member.task is not None:
                member.task.cancel()


async def _one_large_group(cluster: Cluster, coordinators: Coordinators) -> list[Figure]:
    channels = (await coordinators.of(["large"]))["large"]
    group = Group("large", "large", channels, LARGE)
    async with asyncio.TaskGroup() as tasks:
        nodes = cluster.cpu_s()
        took = await _joined([group], tasks, PARTITIONS)
        nodes = cluster.cpu_s() - nodes
        _leave([group])
    return [
        Figure(name=f"{LARGE} members join one group: stable", value=took, unit="s", less_is_better=True),
        Figure(name="... CPU of all nodes", value=nodes, unit="s", less_is_better=True),
    ]


async def _many_small_groups(cluster: Cluster, coordinators: Coordinators) -> list[Figure]:
    names = [f"small-{n}" for n in range(LARGE)]
    ways = await coordinators.of(names)
    groups = [Group(name, "small", ways[name], SMALL) for name in names]
    async with asyncio.TaskGroup() as tasks:
        nodes = cluster.cpu_s()
        took = await _joined(groups, tasks, SMALL)
        nodes = cluster.cpu_s() - nodes
        idle, begin = cluster.cpu_s(), time.monotonic()
        await asyncio.sleep(IDLE_S)
        idle = (cluster.cpu_s() - idle) / (time.monotonic() - begin) * 100
        _leave(groups)
    return [
        Figure(name=f"{LARGE} groups of {SMALL} join: all stable", value=took, unit="s", less_is_better=True),
        Figure(name="... CPU of all nodes", value=nodes, unit="s", less_is_better=True),
        Figure(name="... and while nothing happens", value=idle, unit="% of a core", less_is_better=True),
    ]


async def _commits(cluster: Cluster, coordinators: Coordinators) -> list[Figure]:
    """By administrators, of one offset each; as many groups as are in flight."""
    names = [f"committing-{n}" for n in range(COMMITS_IN_FLIGHT)]
    ways = await coordinators.of(names)

    async def commit(name: str) -> None:
        for offset in range(COMMITS // COMMITS_IN_FLIGHT):
            wanted = pb.OffsetToCommit(topic="small", partition=0, offset=offset)
            response = await _COMMIT(
                ways[name][0], pb.CommitOffsetsRequest(group=name, offsets=[wanted]), timeout_s=WITHIN_S
            )
            if response.results[0].HasField("error"):
                raise RuntimeError(response.results[0].error.message)

    nodes, begin = cluster.cpu_s(), time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(commit(name))
    rate = COMMITS / (time.monotonic() - begin)
    nodes = (cluster.cpu_s() - nodes) / COMMITS * 1e6
    return [
        Figure(name=f"commits, {COMMITS_IN_FLIGHT} in flight", value=rate, unit="/s"),
        Figure(name="... CPU of all nodes", value=nodes, unit="us each", less_is_better=True),
    ]


async def _heartbeats(cluster: Cluster, coordinators: Coordinators) -> list[Figure]:
    """Of one member, on its stream, one after another."""
    channel = (await coordinators.of(["beating"]))["beating"][0]
    async with stream(channel, _MEMBERSHIP, pb.GroupMembershipResponse) as calls:
        request = pb.GroupHeartbeatRequest(group="beating", member_id="a")
        request.subscription.topics.append("small")
        await calls.send(pb.GroupMembershipRequest(heartbeat=request))
        response = await calls.recv()
        assert response is not None
        again = pb.GroupHeartbeatRequest(group="beating", member_id="a", member_epoch=response.heartbeat.member_epoch)
        nodes, begin = cluster.cpu_s(), time.monotonic()
        for _ in range(HEARTBEATS):
            await calls.send(pb.GroupMembershipRequest(heartbeat=again))
            await calls.recv()
        rate = HEARTBEATS / (time.monotonic() - begin)
        nodes = (cluster.cpu_s() - nodes) / HEARTBEATS * 1e6
    return [
        Figure(name="heartbeats of one member, one in flight", value=rate, unit="/s"),
        Figure(name="... CPU of all nodes", value=nodes, unit="us each", less_is_better=True),
    ]


async def _deaths(coordinators: Coordinators) -> list[Figure]:
    """Of one of three members; it joins again before the next one dies."""
    channels = (await coordinators.of(["dying"]))["dying"]
    group, times = Group("dying", "small", channels, SMALL), []
    async with asyncio.TaskGroup() as tasks:
        await _joined([group], tasks, SMALL)
        for number in range(DEATHS):
            victim = group.members[number % SMALL]
            assert victim.task is not None
            begin = time.monotonic()
            victim.task.cancel()
            await asyncio.wait([victim.task])
            group.owned_count -= len(victim.owned)
            victim.task, victim.owned, victim.epoch = None, set(), 0
            await group.until_stable(SMALL)
            times.append(group.assigned_at - begin)
            victim.member_id += "+"  # another process
            victim.task = tasks.create_task(victim.live())
            await group.until_stable(SMALL)
        _leave([group])
    name = "a member's stream breaks: its partition is another's, median"
    return [
        Figure(name=name, value=statistics.median(times), unit="s", target=0.3, less_is_better=True),
        Figure(name=f"... worst of {DEATHS}", value=max(times), unit="s", less_is_better=True),
    ]
