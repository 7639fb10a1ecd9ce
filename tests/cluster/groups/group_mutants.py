"""Defects of groups that are planted into the real classes, one at a time: the simulation must find them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from streamlog.coordinator.group_shard import GroupShard
from streamlog.coordinator.shard_log import ShardLog
from streamlog.groups import committing, reconcile
from streamlog.groups.records import CurrentValue
from streamlog.groups.state import Group

from ..mutants import Mutant


def _allowed(group: Group, member: object) -> None:
    pass


def _untold(*_: object) -> None:
    pass


def commit_of_a_fenced_member() -> AbstractContextManager[object]:
    """Commits are not fenced, neither by the member's epoch nor by the partition's owner."""
    refusal = committing._refusal

    def mutant(wanted: Any, group: Any, member: Any, context: Any) -> Any:
        return refusal(wanted, group, None, context)

    stack = ExitStack()
    stack.enter_context(mock.patch.object(committing, "check_member", _allowed))
    stack.enter_context(mock.patch.object(committing, "_refusal", mutant))
    return stack


def granted_before_it_is_given_up() -> AbstractContextManager[object]:
    """A member gets its whole target at once, though other members still have some of it."""
    advance = reconcile._advance

    def mutant(group: Group, member_id: str, before: Any, kept: Any, target: Any) -> CurrentValue:
        return replace(advance(group, member_id, before, kept, target), assigned=target)

    stack = ExitStack()
    stack.enter_context(mock.patch.object(reconcile, "_advance", mutant))
    stack.enter_context(mock.patch.object(Group, "check_owner", _untold))
    return stack


def answered_before_it_is_replicated() -> AbstractContextManager[object]:
    """The coordinator answers as soon as its own log has it."""

    async def mutant(self: ShardLog) -> None:
        pass

    return mock.patch.object(ShardLog, "wait_until_safe", mutant)


def hint_lost() -> AbstractContextManager[object]:
    """Members learn of their partitions by their heartbeats alone."""
    return mock.patch.object(GroupShard, "_hint", _untold)


def state_not_loaded() -> AbstractContextManager[object]:
    """A new coordinator begins without what its partition says."""

    async def mutant(self: ShardLog) -> int:
        return 0

    return mock.patch.object(ShardLog, "_load", mutant)


MUTANTS: Final[Mapping[str, Mutant]] = {
    "commit_of_a_fenced_member": Mutant(plant=commit_of_a_fenced_member, seeds=60),
    "granted_before_it_is_given_up": Mutant(plant=granted_before_it_is_given_up, seeds=20),
    "answered_before_it_is_replicated": Mutant(plant=answered_before_it_is_replicated, seeds=60),
    "hint_lost": Mutant(plant=hint_lost, seeds=10),
    "state_not_loaded": Mutant(plant=state_not_loaded, seeds=10),
}
