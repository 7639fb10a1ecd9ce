"""Who reads which partition of a group (SEMANTICS 9, KIP-848): pure functions of subscriptions and what is owned.

    uniform      as even as can be, and as little moved as can be; `sticky` is its other name. The default.
    range        for each topic by itself, runs of neighbouring partitions: equal indexes of several topics meet
    roundrobin   all partitions in order, dealt out in a circle

What each of them keeps to (tests/groups/test_assignors.py):

- Every partition of a topic that somebody subscribes to has exactly one owner, and that one subscribes to it.
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
