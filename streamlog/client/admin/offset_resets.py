"""New committed offsets for a group without members: planned first, then set with `alter_group_offsets`.

An offset outside a log becomes the nearer end of it, as in Kafka. Used by `streamlogctl group reset-offsets` and the
console.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from msgspec import Struct

from streamlog.client.admin.answers import only
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.consumer.offset_finder import AtTime, Bound
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.errors import GroupIdNotFoundError, GroupNotEmptyError, InvalidRequestError
from streamlog.model import NO_OFFSET, Offset, TopicPartition

Committed = Mapping[TopicPartition, OffsetAndMetadata]


class ResetKind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"  # the committed offset; without one, the end
    OFFSET = "offset"
    SHIFT = "shift"  # by a number of offsets from the committed one
    TIME = "time"  # the first record of this time (ms since 1970) or later; none: the end


class ResetTo(Struct, frozen=True):
    kind: ResetKind
    value: int = 0  # an offset, a number of offsets, or a time


async def check_empty(admin: AsyncAdmin, group: str) -> None:
    """GroupNotEmptyError. A group that has no coordinator's entry is empty."""
    described = only(await admin.describe_groups([group]))
    if described.error is not None and not isinstance(described.error, GroupIdNotFoundError):
        raise described.error
    if described.members:
        raise GroupNotEmptyError.with_members(group, len(described.members))


async def plan_reset(
    admin: AsyncAdmin, committed: Committed, partitions: Sequence[TopicPartition], to: ResetTo
) -> dict[TopicPartition, Offset]:
    """InvalidRequestError: SHIFT of a partition without a committed offset. Changes nothing."""
    if to.kind is ResetKind.SHIFT:
        missing = [str(one) for one in partitions if one not in committed]
        if missing:
            raise InvalidRequestError(f"there is no committed offset to shift for {', '.join(missing)}", field="shift")
    if not partitions:
        return {}
    starts = await _bounds(admin, partitions, Bound.EARLIEST)
    ends = await _bounds(admin, partitions, Bound.LATEST)
    match to.kind:
        case ResetKind.EARLIEST:
            wanted = starts
        case ResetKind.LATEST:
            wanted = ends
        case ResetKind.CURRENT:
            wanted = {one: committed[one].offset if one in committed else ends[one] for one in partitions}
        case ResetKind.OFFSET:
            wanted = dict.fromkeys(partitions, Offset(to.value))
        case ResetKind.SHIFT:
            wanted = {one: Offset(committed[one].offset + to.value) for one in partitions}
        case ResetKind.TIME:
            found = await admin.list_offsets(dict.fromkeys(partitions, AtTime(to.value)))
            wanted = {one: ends[one] if found[one].offset == NO_OFFSET else found[one].offset for one in partitions}
    return inside(wanted, starts, ends)


async def plan_offsets(admin: AsyncAdmin, wanted: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
    """Given offsets, moved into the logs."""
    if not wanted:
        return {}
    starts = await _bounds(admin, list(wanted), Bound.EARLIEST)
    return inside(wanted, starts, await _bounds(admin, list(wanted), Bound.LATEST))


def inside(
    wanted: Mapping[TopicPartition, Offset],
    starts: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    return {one: Offset(min(max(at, starts[one]), ends[one])) for one, at in wanted.items()}


async def _bounds(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], bound: Bound
) -> dict[TopicPartition, Offset]:
    found = await admin.list_offsets(dict.fromkeys(partitions, bound))
    return {one: found[one].offset for one in partitions}
