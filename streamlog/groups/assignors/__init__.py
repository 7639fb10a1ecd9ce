"""Which member reads which partition (SEMANTICS 9, KIP-848): pure functions of subscriptions and current owners.

    uniform      balanced, with the fewest moves; also named `sticky`. The default. Its steps are in `emptiest`
                 and `leveling`
    range        for each topic, runs of adjacent partitions: equal indexes of several topics go together
    roundrobin   all partitions in order, dealt out in turn

Properties of all (tests/groups/test_assignors.py):

- Every partition of a subscribed topic has exactly one owner, which is subscribed to the topic.
- Where all members subscribe to the same topics, their numbers of partitions differ by one at most (range: within each
  topic).
- Equal arguments give equal assignments: nothing depends on the order in which members joined or a set is walked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from streamlog.groups.assignors.problem import Assignment, Problem
from streamlog.groups.assignors.range import assign_range
from streamlog.groups.assignors.roundrobin import assign_roundrobin
from streamlog.groups.assignors.uniform import assign_uniform

Assignor: TypeAlias = Callable[[Problem], Assignment]

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "uniform": assign_uniform,
    "sticky": assign_uniform,
    "range": assign_range,
    "roundrobin": assign_roundrobin,
}
"""By the name that a consumer may ask for (`group.consumer.assignors`)."""

__all__ = ["ASSIGNORS", "Assignor", "assign_range", "assign_roundrobin", "assign_uniform"]
