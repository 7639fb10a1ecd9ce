"""Operations of clients, and whether they could have been carried out one after the other (linearizability).

Keys are registers, each written value is another one. For such histories there is an exact test that needs no search
(Gibbons and Korach, "Testing shared memories", 1997, for a known reads-from relation): the operations on one value are
a cluster; its zone reaches from its earliest completion to its latest invocation. A zone that runs forwards (the
completion comes first) is a time in which the register held that value and no other. The history is linearizable if
and only if no read ends before its write begins, no two forward zones overlap, and no backward zone lies inside a
forward one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from msgspec import Struct

NEVER = math.inf


class Operation(Struct):
    client: str
    kind: str  # "write" or "read"
    key: str
    value: str  # written, or read; "" is the value of a key that was never written
    invoked: float
    completed: float = NEVER  # NEVER: the outcome is unknown
    index: int | None = None  # where a write stands in the log, once it is acknowledged
    floor: int = 0  # the highest index that was applied anywhere when it was invoked


class _Zone(Struct):
    value: str
    low: float
    high: float
    forward: bool


def violations(operations: Iterable[Operation]) -> list[str]:
    """Why the history is not linearizable; empty when it is."""
    by_key: dict[str, list[Operation]] = {}
    for operation in operations:
        by_key.setdefault(operation.key, []).append(operation)
    return [f"{key}: {problem}" for key, some in by_key.items() for problem in _of_register(some)]


def _of_register(operations: list[Operation]) -> list[str]:
    writes = {"": Operation("", "write", "", "", -1.0, -0.5)}
    reads: dict[str, list[Operation]] = {"": []}
    for operation in operations:
        if operation.kind == "write":
            writes[operation.value] = operation
    for operation in operations:
        if operation.kind == "read" and operation.completed < NEVER:
            write = writes.get(operation.value)
            if write is None:
                return [f"{operation.value!r} was read and never written"]
            if operation.completed < write.invoked:
                return [f"{operation.value!r} was read before it was written"]
            reads.setdefault(operation.value, []).append(operation)
    zones = [_zone(write, reads.get(value, [])) for value, write in writes.items()]
    return _overlaps([zone for zone in zones if zone is not None])


def _zone(write: Operation, reads: list[Operation]) -> _Zone | None:
    """None for a write that is not known to have happened."""
    if write.completed == NEVER and not reads:
        return None
    operations = [write, *reads]
    first_end = min(operation.completed for operation in operations)
    last_begin = max(operation.invoked for operation in operations)
    forward = first_end < last_begin
    return _Zone(write.value, min(first_end, last_begin), max(first_end, last_begin), forward)


def _overlaps(zones: list[_Zone]) -> list[str]:
    forward = sorted((zone for zone in zones if zone.forward), key=lambda zone: zone.low)
    problems = []
    for one, other in itertools.pairwise(forward):
        if other.low < one.high:
            problems.append(f"{one.value!r} and {other.value!r} would have to be there at the same time")
    for zone in zones:
        if not zone.forward:
            around = next((f for f in forward if f.low < zone.low and zone.high < f.high), None)
            if around is not None:
                problems.append(f"{zone.value!r} would have to come while {around.value!r} was there")
    return problems
