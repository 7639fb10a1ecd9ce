"""DeleteRecords: which replicas must have confirmed before it is acknowledged (SEMANTICS 11.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.table.deleted_records import LocalDeletion
from streamlog.errors import BrokerNotAvailableError, NotLeaderError, RequestTimedOutError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, Offset, PartitionId, TopicPartition
from streamlog.services.admin.record_deletion import RecordDeletions
from streamlog.services.common.forwarding import Peers

AT = TopicPartition("t", PartitionId(0))
ME, SECOND, THIRD, FOURTH = (BrokerId(n) for n in (1, 2, 3, 4))


class Replicas:
    """A partition of this node's, its metadata, and the other nodes."""

    def __init__(self, *, isr: set[BrokerId], active: set[BrokerId], **partition: set[BrokerId]) -> None:
        kept: dict[str, set[BrokerId]] = {"elr": set(), "last_known_elr": set(), **partition}
        self.state = SimpleNamespace(
            partitions={0: SimpleNamespace(replicas=(ME, SECOND, THIRD, FOURTH), isr=isr, leader=ME, **kept)},
            topic_id=bytes(16),
        )
        self.image = SimpleNamespace(
            brokers={node: SimpleNamespace(active=node in active) for node in (ME, SECOND, THIRD, FOURTH)},
            require_topic=lambda name: self.state,
        )
        self.maximal = set(isr)
        self.ended: StreamlogError | None = None
        self.leader = SimpleNamespace(
            topic_id=bytes(16), partition=AT, state=SimpleNamespace(isr=self), check=self._check
        )
        self.away: set[BrokerId] = set()
        self.called: list[BrokerId] = []
        self.on_call: Callable[[BrokerId], object] = lambda node: None

    def _check(self) -> None:
        if self.ended is not None:
            raise self.ended

    async def call(self, node: BrokerId, *_: object) -> None:
        self.called.append(node)
        self.on_call(node)
        if node in self.away:
            raise BrokerNotAvailableError(f"node {node} is not running", node=node)

    def confirm(self) -> list[BrokerId]:
        """The nodes that were called, until it was acknowledged."""
        view, peers = SimpleNamespace(image=self.image), cast("Peers", self)
        deletions = RecordDeletions(ME, cast("MetadataView", view), cast("Any", None), peers)
        deletion = LocalDeletion(Offset(5), cast("LeaderReplica", self.leader))
        asyncio.run(deletions._confirmed(AT, deletion, 10.0))
        return self.called


def test_replicas_on_active_nodes_and_those_in_sync_confirm() -> None:
    replicas = Replicas(isr={ME, SECOND}, active={ME, THIRD})
    assert replicas.confirm() == [SECOND, THIRD]


@pytest.mark.parametrize("kind", ["elr", "last_known_elr"])
def test_one_that_may_be_elected_without_following_first_is_waited_for(kind: str) -> None:
    replicas = Replicas(isr={ME}, active={ME, SECOND}, **{kind: {THIRD}})
    replicas.away = {THIRD}
    with pytest.raises(RequestTimedOutError, match="not yet confirmed by node 3: node 3 is not running"):
        replicas.confirm()


def test_one_that_joins_meanwhile_confirms_too() -> None:
    """It was let in by the log start before the deletion."""
    replicas = Replicas(isr={ME}, active={ME, SECOND})
    replicas.on_call = lambda node: replicas.maximal.add(FOURTH)
    assert replicas.confirm() == [SECOND, FOURTH]


def test_another_leader_meanwhile_is_no_acknowledgement() -> None:
    replicas = Replicas(isr={ME, SECOND}, active={ME, SECOND})

    def elected(node: BrokerId) -> None:
        replicas.ended = NotLeaderError("another node leads t-0")

    replicas.on_call = elected
    with pytest.raises(NotLeaderError):
        replicas.confirm()
