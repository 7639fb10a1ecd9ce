"""Defects that are planted into the real classes, one at a time: the simulation must find them.

Each is a plausible mistake, and that end-to-end tests seldom show. A defect that no seed finds is either
redundant, because another defence catches it, or there is no such schedule: `masked` says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest import mock

from msgspec import Struct
from msgspec.structs import replace

from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.table.replica import Assignment, Replica
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.controller import DECIDERS
from streamlog.metadata.partitions import election
from streamlog.metadata.partitions.replica_states import LeaderChoice, ReplicaState
from streamlog.metadata.records import Partition, Replicas
from streamlog.model import BrokerId, LeaderEpoch, Offset
from streamlog.replication.follower import PartitionFollower
from streamlog.replication.isr import Isr
from streamlog.replication.leader import PartitionLeader
from streamlog.storage.log.durability import Durability, SyncTicket
from streamlog.storage.log.group_commit import GroupCommit
from streamlog.storage.segments.segment import Segment

from .plan import Plan, make_plan
from .run import Report, simulate

Plant = Callable[[], AbstractContextManager[object]]


class Mutant(Struct, frozen=True, kw_only=True):
    plant: Plant
    plan: Callable[[int], Plan] = make_plan  # of a seed, where faults at given moments are needed
    seeds: int = 0  # within so many it must be found; most are within half of them
    first: int = 0  # the seed at which the search begins: one that has found it, as long as nothing shifts it
    long: bool = False  # that takes too long for `make test`
    masked: str = ""  # why no seed finds it: another defence stands behind the one that is missing

    def is_found_by(self, simulate: Callable[[int], Report]) -> bool:
        for seed in range(self.first, self.first + self.seeds):
            with self.plant():
                report = simulate(seed)
            if not report.ok:
                return True
        return False

    def simulate(self, seed: int) -> Report:
        """Without the defect."""
        return simulate(seed, self.plan(seed))


def _patched(owner: type, name: str, method: object) -> AbstractContextManager[object]:
    return mock.patch.object(owner, name, method)


# Durability.


def ack_before_sync_on_leader() -> AbstractContextManager[object]:
    """The leader counts itself for what it has written (SEMANTICS 5)."""

    def mutant(self: PartitionLeader) -> None:
        ends = [self._log.log_end_offset, *(follower.ackable_end or Offset(0) for follower in self._counted)]
        if self._enough_replicas and min(ends) > self.high_watermark:
            self.high_watermark = min(ends)
            self._settle()

    return _patched(PartitionLeader, "_advance", mutant)


def ack_before_sync_on_follower() -> AbstractContextManager[object]:
    """A follower reports what it has written."""
    return _patched(PartitionFollower, "ackable_end", property(lambda self: self._log.log_end_offset))


def synced_while_written() -> AbstractContextManager[object]:
    """A sync counts for what was written while it ran."""
    end = Durability.end

    def mutant(self: Durability, ticket: SyncTicket) -> None:
        end(self, replace(ticket, end_offset=self.written_end))

    return _patched(Durability, "end", mutant)


def a_failure_counts_as_a_sync() -> AbstractContextManager[object]:
    """A log directory that fails drops what is dirty, and the sync that was asked for covers nothing."""
    end = Durability.end

    def mutant(self: Durability, ticket: SyncTicket) -> None:
        failure, self._failure = self._failure, None
        end(self, ticket)
        self._failure = failure

    return _patched(Durability, "end", mutant)


def failed_sync_is_retried() -> AbstractContextManager[object]:
    """EIO, and the next time OK: the pages are gone."""
    sync = GroupCommit._sync

    async def mutant(self: GroupCommit, tickets: Any) -> None:
        try:
            await sync(self, tickets)
        except OSError:
            await sync(self, tickets)

    return _patched(GroupCommit, "_sync", mutant)


def recovery_counts_the_page_cache() -> AbstractContextManager[object]:
    """What kill -9 left in the page cache counts as synced, and is not."""

    async def mutant(self: Segment) -> None:
        pass

    return _patched(Segment, "sync", mutant)


def reads_pass_over_what_does_not_fit() -> AbstractContextManager[object]:
    """A batch without room in the answer is left out, if it is the first one of what is left of a segment."""
    locate = Segment.locate

    def mutant(self: Segment, *args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        place = yield from locate(self, *args, **kwargs)
        return None if place is None or place[0] == place[1] else place

    return _patched(Segment, "locate", mutant)


# Replication.


def ack_before_replication() -> AbstractContextManager[object]:
    """The high watermark follows the leader alone."""

    def mutant(self: PartitionLeader) -> None:
        if self._enough_replicas:
            self.high_watermark = max(self.high_watermark, self._log.ackable_end)
        self._settle()

    return _patched(PartitionLeader, "_advance", mutant)


def no_divergence_check() -> AbstractContextManager[object]:
    """A follower goes on at its end, whatever stands before it (SEMANTICS 2)."""
    stack = ExitStack()
    stack.enter_context(no_comparison())  # which would find it too
    stack.enter_context(_patched(PartitionLeader, "divergence", lambda self, last_epoch, fetch_offset: None))
    return stack


def no_comparison() -> AbstractContextManager[object]:
    """A follower whose log was damaged has the leader's epochs and its end, and that is all that is asked."""

    async def mutant(self: LeaderReplica, held: object, fetch_offset: Offset) -> None:
        return None

    return _patched(LeaderReplica, "difference", mutant)


def high_watermark_by_the_proposed_isr() -> AbstractContextManager[object]:
    """A smaller ISR governs before the quorum has said yes (SEMANTICS 3)."""

    def maximal(self: Isr) -> tuple[BrokerId, ...]:
        return self._committed if self._pending is None else self._pending.isr

    return _patched(Isr, "maximal", property(maximal))


def min_insync_ignored() -> AbstractContextManager[object]:
    """acks=all with a single replica in sync."""
    return _patched(PartitionLeader, "min_isr", property(lambda self: 1))


def epoch_ignored() -> AbstractContextManager[object]:
    """A deposed leader serves clients."""
    return _patched(PartitionLeader, "check_epoch", lambda self, leader_epoch: None)


def anybody_joins_the_isr() -> AbstractContextManager[object]:
    """A follower is taken in before it has caught up."""

    def mutant(self: PartitionLeader, broker: BrokerId) -> bool:
        return self._followers[broker].ackable_end is not None and self._may_join(broker)

    return _patched(PartitionLeader, "_has_caught_up", mutant)


def truncation_by_high_watermark() -> AbstractContextManager[object]:
    """As Kafka before KIP-101: what is above it may be committed elsewhere already."""

    async def mutant(self: PartitionFollower, leader_epoch: LeaderEpoch, leader_end: Offset) -> None:
        await self._truncate(self.high_watermark)

    return _patched(PartitionFollower, "on_diverging", mutant)


def leads_on_in_another_epoch() -> AbstractContextManager[object]:
    """A re-elected leader continues under its stale epoch."""

    def mutant(self: Replica, role: LeaderReplica | FollowerReplica, wanted: Assignment, leader: BrokerId) -> bool:
        return (role.topic_id, leader) == (wanted.topic_id, wanted.partition.leader)

    return _patched(Replica, "_is_role_of", mutant)


# Membership.


def unclean_restart_unnoticed() -> AbstractContextManager[object]:
    """A node that was killed comes back into its ISRs as if it had stopped in order (SEMANTICS 4)."""
    register = DECIDERS[RegisterBroker]

    def mutant(command: RegisterBroker, image: Any, context: Any) -> Any:
        existing = image.brokers.get(command.broker_id)
        epoch = command.previous_broker_epoch if existing is None else existing.epoch
        return register(replace(command, previous_broker_epoch=epoch), image, context)

    return mock.patch.dict(DECIDERS, {RegisterBroker: mutant})


def first_live_replica_leads() -> AbstractContextManager[object]:
    """Where no replica is in sync any more, the first replica that answers leads, whatever it has."""

    def chosen(
        partition: Partition, fit: Replicas, eligible: Replicas, states: Iterable[ReplicaState], *_: Any, **__: Any
    ) -> LeaderChoice | None:
        able = [b for b in partition.replicas if b in fit and any(state.broker_id == b for state in states)]
        return LeaderChoice(leader=able[0], proven=True) if able else None

    return mock.patch.object(election, "chosen", chosen)


MUTANTS: Final[Mapping[str, Mutant]] = {
    "ack_before_sync_on_leader": Mutant(plant=ack_before_sync_on_leader, seeds=10),
    "ack_before_sync_on_follower": Mutant(plant=ack_before_sync_on_follower, seeds=10),
    "synced_while_written": Mutant(plant=synced_while_written, seeds=20, first=146),
    "a_failure_counts_as_a_sync": Mutant(plant=a_failure_counts_as_a_sync, seeds=2_000, long=True),
    "failed_sync_is_retried": Mutant(plant=failed_sync_is_retried, seeds=60, first=42),
    "recovery_counts_the_page_cache": Mutant(plant=recovery_counts_the_page_cache, seeds=200, long=True),
    "reads_pass_over_what_does_not_fit": Mutant(
        plant=reads_pass_over_what_does_not_fit,
        masked="a read refuses a segment whose batches end before the next segment: tests/storage/log/test_read.py",
    ),
    "ack_before_replication": Mutant(plant=ack_before_replication, seeds=10),
    "no_divergence_check": Mutant(plant=no_divergence_check, seeds=60, first=78),
    "no_comparison": Mutant(
        plant=no_comparison,
        masked="a damaged header is found by recovery before, where offsets must join: "
        "tests/broker/leading/test_joining.py plants it in a log whose gaps are explained, and logs of compacted "
        "topics are not damaged here",
    ),
    "high_watermark_by_the_proposed_isr": Mutant(plant=high_watermark_by_the_proposed_isr, seeds=20, first=81),
    "min_insync_ignored": Mutant(plant=min_insync_ignored, seeds=20),
    "leads_on_in_another_epoch": Mutant(plant=leads_on_in_another_epoch, seeds=20),
    "anybody_joins_the_isr": Mutant(plant=anybody_joins_the_isr, seeds=200, long=True),
    "epoch_ignored": Mutant(
        plant=epoch_ignored,
        masked="a deposed leader's streams end with its leadership, and who goes on at another is checked for "
        "divergence: what the epoch would refuse is repaired, or never checked",
    ),
    "truncation_by_high_watermark": Mutant(
        plant=truncation_by_high_watermark,
        masked="only a replica that has diverged cuts, and it is back at the leader's end a round trip later: the "
        "leader would have to die in between, with this one in the ISR",
    ),
    "first_live_replica_leads": Mutant(
        plant=first_live_replica_leads,
        masked="needs a lost disk while another replica lags: tests/cluster/scripted/test_recovery.py plants it there",
    ),
    "unclean_restart_unnoticed": Mutant(
        plant=unclean_restart_unnoticed,
        masked="nothing counts that is not synced (flush.messages=1), so an unclean stop loses nothing that was "
        "reported; and who comes back within its session is fenced first, which takes it out of the ISR as well",
    ),
}
