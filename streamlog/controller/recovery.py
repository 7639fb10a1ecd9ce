"""Unclean recovery: the state of the replicas' logs is queried, and decides which of them may lead (KIP-966).

    leaderless partitions --query all live replicas--> answers --RecoverPartitions--> elected, or still waiting
         ^                                                                                  |
         +---------------- the image has changed, or RETRY_S has passed --------------------+

The decision is pure (metadata.partitions.recovery) and goes through the quorum like any other; nothing is submitted
if the answers would change nothing. The nodes that partitions wait for are logged when they change. An operator's
unclean election sends the same query, once (`answers_for`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from streamlog.aio.timeouts import timeout
from streamlog.api.convert import replica_states as convert
from streamlog.api.pb import replication_pb2 as pb
from streamlog.api.responses import parse_response
from streamlog.errors import StreamlogError, ThrottledError
from streamlog.metadata.controller import Command
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.leaders import ElectLeaders, RequestedElection
from streamlog.metadata.partitions.recovery import (
    PartitionAnswers,
    RecoverPartitions,
    proven,
    recover,
    to_query,
    waited_for,
)
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.records import Replicas
from streamlog.metadata.view import MetadataView, address
from streamlog.model import NO_BROKER, BrokerId, LeaderEpoch, PartitionId, RaftIndex
from streamlog.ports import Network, Probe, RpcError

DESCRIBE: Final = "/streamlog.internal.v1.Replication/DescribeReplicas"
ANSWER_S: Final = 1.5
"""A running node answers within milliseconds: it reads nothing from its disk."""
RETRY_S: Final = 1.0
"""Between two rounds while partitions wait and nothing changes."""
SETTLE_S: Final = 0.05
"""After a change of the image, so that changes in quick succession share a round."""
_RESPONSE_BYTES_MAX: Final = 4 << 20


class UncleanRecovery:
    """`waiting`: the number of leaderless partitions for which the live replicas prove no safe leader."""

    def __init__(
        self,
        *,
        view: MetadataView,
        network: Network,
        context_of: Callable[[Collection[BrokerId]], ControllerContext],
        submit: Callable[[Command], Awaitable[Any]],
        probe: Probe,
    ) -> None:
        self._view = view
        self._network = network
        self._context_of = context_of
        self._submit = submit
        self._probe = probe
        self._after: PartitionKey | None = None  # the last one queried: the next round starts behind it
        self._logged: tuple[int, Replicas] = (0, ())
        self.waiting = 0
        self._proven: frozenset[tuple[PartitionKey, LeaderEpoch]] = frozenset()  # by the latest answers

    def was_proven(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> bool:
        """Whether the latest answers proved that electing the longest log of this leaderless partition, in this leader
        epoch, loses nothing that was acknowledged.
        """
        return (key, leader_epoch) in self._proven

    async def run(self) -> None:
        """Run for one controller term; raises what `submit` raises when the term ends."""
        while True:
            await self._view.wait_until(lambda image: image.roles.any(Role.LEADERLESS))
            await asyncio.sleep(SETTLE_S)
            image = self._view.image
            await self._round(image)
            await self._wait_for_change(self._view.image.index)

    async def _wait_for_change(self, index: RaftIndex) -> None:
        try:
            async with timeout(RETRY_S):
                await self._view.wait_until(lambda image: image.index != index)
        except TimeoutError:
            pass

    async def _round(self, image: MetadataImage) -> None:
        partitions = dict(islice(to_query(image, self._after), BATCH_RECORDS))
        self._after = max(partitions, default=None)
        answers = await self._query(image, partitions)
        command = RecoverPartitions(answers=answers)
        if recover(command, self._view.image, self._context_of(())).records:
            with suppress(ThrottledError):  # the next round tries again
                await self._submit(command)
        self._log_waiting(answers)

    async def answers_for(self, command: ElectLeaders) -> ElectLeaders:
        """An operator's command, with the current state of the replicas."""
        if command.type is not RequestedElection.UNCLEAN:
            return command
        image = self._view.image
        wanted = None if command.partitions is None else _keys(command.partitions, image)
        partitions = ((key, nodes) for key, nodes in to_query(image) if wanted is None or key in wanted)
        answers = await self._query(image, dict(islice(partitions, BATCH_RECORDS)))
        return ElectLeaders(type=command.type, partitions=command.partitions, dry_run=command.dry_run, answers=answers)

    async def _query(
        self, image: MetadataImage, partitions: Mapping[PartitionKey, Replicas]
    ) -> tuple[PartitionAnswers, ...]:
        """Query all nodes concurrently; one that does not answer in time is missing from the result."""
        by_node: dict[BrokerId, list[PartitionKey]] = {}
        for key, replicas in partitions.items():
            for replica in replicas:
                by_node.setdefault(replica, []).append(key)
        answers = await asyncio.gather(*(self._describe(image, node, keys) for node, keys in by_node.items()))
        found: dict[PartitionKey, list[ReplicaState]] = {key: [] for key in partitions}
        for states in answers:
            for key, state in states.items():
                found[key].append(state)
        result = tuple(
            PartitionAnswers(key=key, leader_epoch=image.partition(key).leader_epoch, states=tuple(states))
            for key, states in found.items()
        )
        current = self._view.image
        self._proven = frozenset((one.key, one.leader_epoch) for one in result if proven(one, current))
        return result

    async def _describe(
        self, image: MetadataImage, node: BrokerId, keys: list[PartitionKey]
    ) -> dict[PartitionKey, ReplicaState]:
        broker = image.brokers[node]
        channel = self._network.connect(address(broker.host, broker.port))
        try:
            request = convert.to_request(image.cluster_id, keys).SerializeToString()
            data = await channel.unary(DESCRIBE, request, timeout_s=ANSWER_S)
            message = parse_response(pb.DescribeReplicasResponse, data, f"node {node}", bytes_max=_RESPONSE_BYTES_MAX)
            return convert.response(node, message, keys)
        except (RpcError, StreamlogError) as error:
            self._probe("replica_state_unanswered", broker=node, partitions=len(keys), reason=str(error))
            return {}
        finally:
            await channel.close()

    def _log_waiting(self, answers: Iterable[PartitionAnswers]) -> None:
        """Log how many partitions wait, and for which nodes, if that has changed."""
        image = self._view.image
        waiting = [one for one in answers if image.topics.get(one.key[0]) is not None]
        waiting = [one for one in waiting if image.partition(one.key).leader == NO_BROKER]
        nodes = {node for one in waiting for node in waited_for(image.partition(one.key), one.states)}
        self.waiting = len(waiting)
        logged = (len(waiting), tuple(sorted(nodes)))
        if logged == self._logged:
            return
        self._logged = logged
        if waiting:
            topic_id, partition_id = waiting[0].key
            self._probe(
                "partitions_wait_for_replicas",
                count=len(waiting),
                first=f"{image.topics[topic_id].name}-{partition_id}",
                nodes=list(logged[1]),
            )


def _keys(partitions: Iterable[tuple[str, PartitionId]], image: MetadataImage) -> frozenset[PartitionKey]:
    found = []
    for name, partition_id in partitions:
        topic = image.topic_named(name)
        if topic is not None:
            found.append((topic.topic_id, partition_id))
    return frozenset(found)
