"""The links on which this node follows others: one a leader node, created and dropped as partitions move.

    absent --first partition to follow--> waiting for the leader's address --> connected <--> pausing
    any    --no partitions for LINGER_S--> absent

A link connects to the leader's address in the metadata, under this node's current registration. A fenced leader has no
address: it will come back, or lose its partitions. After a break the link reconnects with growing, random pauses,
because all followers of a failed node reconnect at the same time. A stream that had worked and broke is reported as a
suspicion at once: it is often the first sign that a node has failed.

The leader closes a stream when its metadata have a newer registration of this node; the link then opens another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.broker.following.follower_link import FollowerLink
from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.replica_wire import METHOD, FollowerHello
from streamlog.broker.throttle import Throttle
from streamlog.errors import Status, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId
from streamlog.ports import Clock, Network, Probe, Random, RpcError, Tracing

RECONNECT_S: Final = (0.05, 1.0)
"""First and longest pause. A failed node is fenced after 3 s, so no link retries much longer in vain."""
LINGER_S: Final = 1.0
"""A link without partitions is kept for so long: at a new leader epoch they are unfollowed and followed again."""
SETTLED_S: Final = 1.0
"""After a stream that lasted so long the next pause is short again."""


class FollowerLinks:
    """Owned by the node; `run` is a task of it. `follow` and `unfollow` may be called before."""

    def __init__(
        self,
        me: BrokerId,
        cluster_id: str,
        view: MetadataView,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        throttle: Throttle,
        on_broken: Callable[[BrokerId], None],
        network: Network,
        clock: Clock,
        random: Random,
        probe: Probe,
        tracing: Tracing | None = None,
    ) -> None:
        """`broker_epoch`: of this node's registration, None before it. `throttle`: follower.replication.throttled.rate,
        for all links. `on_broken`: a stream to this leader had worked and broke.
        """
        self._me = me
        self._cluster_id = cluster_id
        self._view = view
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._on_broken = on_broken
        self._network = network
        self._clock = clock
        self._random = random
        self._probe = probe
        self._tracing = tracing
        self.refused_messages = 0  # that were no valid messages of a leader, since the start
        self._tasks: asyncio.TaskGroup | None = None  # since `run`
        self._loop: asyncio.AbstractEventLoop | None = None  # since `run`
        self._waiting: dict[FollowerReplica, None] = {}  # followed before `run`
        self._links: dict[BrokerId, tuple[FollowerLink, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks, self._loop = tasks, asyncio.get_running_loop()
            waiting, self._waiting = self._waiting, {}
            for replica in waiting:
                self.follow(replica)
            await asyncio.get_running_loop().create_future()

    def follow(self, replica: FollowerReplica) -> None:
        """Copy from `replica.leader` from now on, until `unfollow` or its disk fails."""
        if self._tasks is None:
            self._waiting[replica] = None
            return
        found = self._links.get(replica.leader)
        link = self._begin(self._tasks, replica.leader) if found is None else found[0]
        link.follow(replica)

    def unfollow(self, replica: FollowerReplica) -> None:
        """Idempotent. No method of the replica is called any more; one in progress may end."""
        self._waiting.pop(replica, None)
        found = self._links.get(replica.leader)
        if found is not None:
            link, _ = found
            link.unfollow(replica)
            if not len(link) and self._loop is not None:
                self._loop.call_later(LINGER_S, self._drop_if_idle, replica.leader)

    def on_rate_changed(self) -> None:
        """Of the throttle."""
        if self._throttle.limited:
            for link, _ in self._links.values():
                link.limit()

    def _begin(self, tasks: asyncio.TaskGroup, leader: BrokerId) -> FollowerLink:
        link = FollowerLink(
            tasks,
            throttle=self._throttle,
            in_sync=self._in_sync,
            random=self._random,
            probe=self._probe,
            tracing=self._tracing,
        )
        self._links[leader] = (link, tasks.create_task(self._keep_connected(leader, link)))
        return link

    def _drop_if_idle(self, leader: BrokerId) -> None:
        found = self._links.get(leader)
        if found is not None and not len(found[0]):
            del self._links[leader]
            found[1].cancel()

    def _in_sync(self, replica: FollowerReplica) -> bool:
        topic = self._view.image.topics.get(replica.topic_id)
        partition = None if topic is None else topic.partitions.get(replica.partition.partition)
        return partition is not None and self._me in partition.isr

    # -- one link

    async def _keep_connected(self, leader: BrokerId, link: FollowerLink) -> None:
        pause_s = RECONNECT_S[0]
        while True:
            hello, address = await self._wait_until_reachable(leader)
            began_s = self._clock.monotonic()
            await self._exchange(leader, address, hello, link)
            if self._clock.monotonic() - began_s >= SETTLED_S:
                pause_s = RECONNECT_S[0]
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, RECONNECT_S[1])

    async def _wait_until_reachable(self, leader: BrokerId) -> tuple[FollowerHello, str]:
        """Until this node is registered and the leader has an address; returns the hello and the address."""
        await self._view.wait_until(
            lambda image: self._broker_epoch() is not None and self._view.address_of(leader) is not None
        )
        epoch, address = self._broker_epoch(), self._view.address_of(leader)
        assert epoch is not None  # no other task has run since
        assert address is not None
        return FollowerHello(self._cluster_id, self._me, epoch, leader), address

    async def _exchange(self, leader: BrokerId, address: str, hello: FollowerHello, link: FollowerLink) -> None:
        """One stream, until it is closed."""
        channel = self._network.connect(address)
        try:
            async with channel.stream(METHOD) as stream:
                await link.exchange(stream, hello)
        except RpcError as error:
            if error.status is not Status.UNAVAILABLE:
                self._probe("replication_refused", leader=leader, address=address, reason=error.message)
            elif link.has_worked:
                self._on_broken(leader)
        except StreamlogError as error:  # not a valid message of a leader: reconnect later
            self.refused_messages += 1
            self._probe("replication_corrupt", leader=leader, address=address, reason=error.message)
        finally:
            await channel.close()
