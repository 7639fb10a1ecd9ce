"""Planted defects of damage, lost disks, voters, hostile peers, clocks, deletions and upgrades. Each is found by a plan
with faults at given moments (scripted/fault_plans.py): random plans reach them, but seldom.

Not planted here, since a test of the part finds it and no schedule of the whole cluster does:

    the largest log of all leads where known ones answer    tests/metadata/partitions/test_election.py
    the last leader leads, though its log was cut           tests/metadata/test_data_model.py
    an empty log leads in the place of a displaced one      tests/broker/table/test_replicas.py, tests/damage
    an append that contradicts a committed entry            tests/raft/protocol/test_hostile_messages.py
    stops the node
    statuses of other programs reach those who call the     tests/controller/test_link.py
    controller: almost all of them are ready for it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from streamlog.api.convert import transactions
from streamlog.broker.table import deleted_records, replicas
from streamlog.broker.table.replica_state import state_of
from streamlog.controller import link
from streamlog.metadata.cluster import UpdateMetadataVersion
from streamlog.metadata.controller import DECIDERS
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.model import Offset
from streamlog.node.quorum_clock import QuorumClock
from streamlog.raft.core.syncobj import HardenedSyncObj
from streamlog.raft.observers import ObserverHub
from streamlog.raft.protocol import wire
from streamlog.replication.leader import PartitionLeader
from streamlog.services.admin.record_deletion import RecordDeletions
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log
from streamlog.storage.log.state import LogState
from streamlog.storage.recovery.open_log import _Opening
from streamlog.storage.segments.segment import Segment
from streamlog.storage.segments.verified import Verified
from tests.raft.simulation import mutants as raft_mutants

from ..mutants import Mutant, no_comparison
from ..scripted import fault_plans


@contextmanager
def _patched(*patches: tuple[Any, str, object]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


# Hostile peers.


def terms_of_strangers_count() -> AbstractContextManager[object]:
    """Terms, votes and entries are taken from a program that is no voter."""
    context: AbstractContextManager[object] = raft_mutants.strangers_may_lead()
    return context


def numbers_of_the_quorum_are_not_bounded() -> AbstractContextManager[object]:
    """A term of 2**64 - 1 is written to the journal."""
    return _patched(
        (wire, "bounded", lambda value, largest, what: value),
        (HardenedSyncObj, "_check_jumps", lambda self, message: None),
    )


def epochs_of_markers_are_not_bounded() -> AbstractContextManager[object]:
    """A producer epoch that is no int16 reaches the encoder."""
    return _patched((transactions, "producer_epoch", lambda number, field="": number))


def answers_of_the_controller_are_parsed_unchecked() -> AbstractContextManager[object]:
    return _patched((link, "_parsed", lambda message_type, data: message_type.FromString(data)))


# Voters.


def a_wiped_voter_votes() -> AbstractContextManager[object]:
    """A vote counts whatever directory it comes from."""
    context: AbstractContextManager[object] = raft_mutants.strangers_count()
    return context


def a_silent_voter_is_followed() -> AbstractContextManager[object]:
    """A voter serves its observers, whenever it had a message of the quorum itself."""
    make = ObserverHub.__init__

    def mutant(self: ObserverHub, machine: Any, workers: Any, voters: Any, silence_s: object, **options: Any) -> None:
        make(self, machine, workers, voters, lambda: 0.0, **options)

    return _patched((ObserverHub, "__init__", mutant))


# Damage.


def what_is_served_is_not_verified() -> AbstractContextManager[object]:
    """What a disk has changed goes out as it is."""
    return _patched((Verified, "covers", lambda self, begin, end: True))


@contextmanager
def offsets_need_not_join() -> Iterator[None]:
    """A hole enters the ISR: any gap is taken for one of compaction, and joining followers are not compared."""
    always = property(lambda self: True)
    with no_comparison(), _patched((_Opening, "may_have_gaps", always), (LogState, "has_gaps", always)):
        yield


def a_leader_believes_its_own_log() -> AbstractContextManager[object]:
    """Where a follower's batches differ from the leader's, it is the follower who truncates."""

    async def mutant(self: Log, offset: Offset) -> bool:
        return False

    return _patched((Log, "is_damaged_since", mutant))


def a_log_that_was_cut_proves_something() -> AbstractContextManager[object]:
    """It is elected as if it had everything, and the others truncate what it lost."""

    def mutant(log: Log, *args: Any, **kwargs: Any) -> ReplicaState:
        return replace(state_of(log, *args, **kwargs), durable=log.config.syncs_each_append)

    return _patched((replicas, "state_of", mutant))


# Clocks.


def retention_by_the_wall_clock_alone() -> AbstractContextManager[object]:
    """Nodes do not compare their clocks, and segments do not know when they were appended to."""
    return _patched(
        (QuorumClock, "wall_ms", lambda self: self._own.wall_ms()),
        (QuorumClock, "may_delete_by_time", True),
        (Segment, "appended_s", property(lambda self: None, lambda self, at: None)),
    )


# Deletions.


def a_deletion_is_confirmed_by_its_leader_alone() -> AbstractContextManager[object]:
    """It is acknowledged before the followers have the new log start, which they write late."""

    async def mutant(self: RecordDeletions, at: object, deletion: object, timeout_s: float) -> None:
        return

    return _patched((RecordDeletions, "_confirmed", mutant), (LogDirectory, "log_start_moved", lambda self, log: None))


def a_deletion_is_not_in_the_checkpoint() -> AbstractContextManager[object]:
    """A node that comes back has the records again."""

    async def mutant(log: Log, directories: object) -> None:
        return

    return _patched((deleted_records, "_save", mutant), (LogDirectory, "log_start_moved", lambda self, log: None))


def a_replica_joins_with_an_old_log_start() -> AbstractContextManager[object]:
    """It has taken the leader's over in memory only when it joins the ISR."""
    return _patched(
        (PartitionLeader, "on_saved_log_start", lambda self, broker, log_start: None),
        (LogDirectory, "log_start_moved", lambda self, log: None),
    )


def a_deletion_takes_one_record_more() -> AbstractContextManager[object]:
    delete_before = deleted_records.delete_before

    async def mutant(
        leader: Any, before: Offset | None, directories: Any, **named: Any
    ) -> deleted_records.LocalDeletion:
        more = None if before is None else min(Offset(before + 1), leader.high_watermark)
        return await delete_before(leader, more, directories, **named)

    return _patched((deleted_records, "delete_before", mutant))


# Upgrades.


def the_level_is_raised_for_active_nodes() -> AbstractContextManager[object]:
    """A node of the earlier release that is down meanwhile has metadata that it does not know when it is back."""
    update = DECIDERS[UpdateMetadataVersion]

    def mutant(command: UpdateMetadataVersion, image: Any, context: Any) -> Any:
        active = {broker_id: broker for broker_id, broker in image.brokers.items() if broker.active}
        return update(command, replace(image, brokers=active), context)

    return mock.patch.dict(DECIDERS, {UpdateMetadataVersion: mutant})


MUTANTS: Final[Mapping[str, Mutant]] = {
    "terms_of_strangers_count": Mutant(plant=terms_of_strangers_count, plan=fault_plans.hostile_plan, seeds=3, first=2),
    "numbers_of_the_quorum_are_not_bounded": Mutant(
        plant=numbers_of_the_quorum_are_not_bounded, plan=fault_plans.hostile_plan, seeds=3, first=2
    ),
    "epochs_of_markers_are_not_bounded": Mutant(
        plant=epochs_of_markers_are_not_bounded, plan=fault_plans.hostile_plan, seeds=3, first=2
    ),
    "answers_of_the_controller_are_parsed_unchecked": Mutant(
        plant=answers_of_the_controller_are_parsed_unchecked, plan=fault_plans.false_answers_plan, seeds=3, first=0
    ),
    "a_wiped_voter_votes": Mutant(plant=a_wiped_voter_votes, plan=fault_plans.stale_voter_plan, seeds=3, first=1),
    "a_silent_voter_is_followed": Mutant(
        plant=a_silent_voter_is_followed, plan=fault_plans.silent_source_plan, seeds=5, first=1
    ),
    "what_is_served_is_not_verified": Mutant(
        plant=what_is_served_is_not_verified, plan=fault_plans.served_damage_plan, seeds=5, first=1
    ),
    "offsets_need_not_join": Mutant(plant=offsets_need_not_join, plan=fault_plans.tail_damage_plan, seeds=10, first=1),
    "a_leader_believes_its_own_log": Mutant(
        plant=a_leader_believes_its_own_log, plan=fault_plans.damaged_leader_plan, seeds=30, first=13
    ),
    "a_log_that_was_cut_proves_something": Mutant(
        plant=a_log_that_was_cut_proves_something, plan=fault_plans.torn_plan, seeds=20, first=135
    ),
    "retention_by_the_wall_clock_alone": Mutant(
        plant=retention_by_the_wall_clock_alone, plan=fault_plans.skewed_plan, seeds=3, first=5
    ),
    "a_deletion_is_confirmed_by_its_leader_alone": Mutant(
        plant=a_deletion_is_confirmed_by_its_leader_alone, plan=fault_plans.deleting_plan, seeds=80, first=22
    ),
    "a_deletion_is_not_in_the_checkpoint": Mutant(
        plant=a_deletion_is_not_in_the_checkpoint, plan=fault_plans.deleting_plan, seeds=20, first=1
    ),
    "a_replica_joins_with_an_old_log_start": Mutant(
        plant=a_replica_joins_with_an_old_log_start, plan=fault_plans.rejoining_plan, seeds=40, first=6
    ),
    "a_deletion_takes_one_record_more": Mutant(
        plant=a_deletion_takes_one_record_more, plan=fault_plans.deleting_plan, seeds=15, first=12
    ),
    "the_level_is_raised_for_active_nodes": Mutant(
        plant=the_level_is_raised_for_active_nodes, plan=fault_plans.upgrade_plan, seeds=3, first=1
    ),
}
