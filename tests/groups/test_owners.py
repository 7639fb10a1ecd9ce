"""Owners of partitions after the records of a log: the last one counts, and contradictions are found at its end."""

from __future__ import annotations

import pytest

from streamlog.errors import InvariantError
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.records import CurrentKey, CurrentValue, MemberState
from streamlog.groups.state import NOTHING, Group
from streamlog.model import PartitionId, TopicId

ONE = GroupPartition(TopicId(bytes(16)), PartitionId(0))


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ("+a -a +b", ""),
        ("+a +b -a", ""),  # its first release was compacted away
        ("+a +b", "two owners, 'a' and 'b'"),
        ("+a +b -b", "'a' owns partition 0 .* which another member has owned and released since"),
    ],
)
def test_owners_are_checked_once_all_is_read(history: str, says: str) -> None:
    group = Group("g")
    for epoch, step in enumerate(history.split(), 1):
        sign, member = step[0], step[1]
        assigned = frozenset([ONE]) if sign == "+" else NOTHING
        value = CurrentValue(
            epoch=epoch, previous_epoch=0, state=MemberState.STABLE, assigned=assigned, revoking=NOTHING
        )
        group.apply(CurrentKey("g", member), value)
    if says:
        with pytest.raises(InvariantError, match=says):
            group.check()
    else:
        group.check()
