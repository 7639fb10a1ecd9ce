"""Records deleted at a client's request (Kafka's delete-records): the log of a partition starts later from now on.

    leader     before <= high watermark --advance--> log start --checkpoint--> durable
               a new one waits until it knows what former leaders have had acknowledged
    followers  the log start arrives on the replication stream --checkpoint--> durable, confirmed
    others     join the ISR only once the log start in their checkpoint is not below the leader's

Readers get OFFSET_OUT_OF_RANGE below the start at once; retention deletes the segments that are wholly below it later.
A start is in the checkpoint before it is confirmed, so a crash does not bring the records back. A deletion is
acknowledged once all replicas that may be elected have confirmed it: then every leader has it, until an unclean
election of another replica (I23).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from streamlog.aio.timeouts import timeout
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import OffsetOutOfRangeError, PolicyViolationError, RequestTimedOutError, StorageError
from streamlog.model import Offset
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.log.log import Log

_LOOK_AGAIN_S: Final = 0.02


class LocalDeletion(NamedTuple):
    """Not yet confirmed by other replicas."""

    log_start: Offset  # durable here
    leader: LeaderReplica  # in whose leadership it was made


async def delete_before(
    leader: LeaderReplica, before: Offset | None, directories: LogDirectories, *, within_s: float
) -> LocalDeletion:
    """Delete the records below `before`; None: all that are committed.

    PolicyViolationError, OffsetOutOfRangeError, StorageError; the error that ended the leadership. RequestTimedOutError
    where a new leader does not know `within_s` seconds what is committed.
    """
    leader.check()
    if not leader.settings.log.cleanup_delete:
        raise PolicyViolationError(
            f"topic {leader.partition.topic!r} has a cleanup.policy without 'delete': its records cannot be deleted by "
            "offset; add delete to its cleanup.policy first",
            field="topic",
        )
    if before is None or before > leader.high_watermark:
        await _know_committed(leader, within_s)
    end = leader.high_watermark
    offset = end if before is None else before
    if offset > end:
        topic = leader.partition.topic
        raise OffsetOutOfRangeError(
            f"records before offset {offset} cannot be deleted: the high watermark is {end}; see it with "
            f"'streamlogctl offsets {topic}'",
            log_start=leader.log_start_offset,
            log_end=end,
        )
    leader.log.advance_log_start(offset)
    leader.on_log_start_moved()
    await _save(leader.log, directories)
    leader.check()
    return LocalDeletion(leader.log_start_offset, leader)


async def _know_committed(leader: LeaderReplica, within_s: float) -> None:
    """A new leader's high watermark may still be below what was acknowledged: less would be deleted than was asked."""
    try:
        async with timeout(within_s):
            await leader.wait_for_former_leaders()
    except TimeoutError:
        raise RequestTimedOutError(
            f"{leader.partition}: the new leader does not know yet which records are committed, since too few replicas "
            "are in sync; nothing was deleted. Repeat the deletion when they are"
        ) from None


async def confirm(log_of: Callable[[], Log], start: Offset, directories: LogDirectories) -> None:
    """Wait until the log of a follower starts at `start` or later, durably; for ever, so the caller bounds it.

    `log_of` raises where there is no such replica any more.
    """
    while (log := log_of()).log_start_offset < start:  # noqa: ASYNC110  a rare request, no event in the hot path
        await asyncio.sleep(_LOOK_AGAIN_S)
    await _save(log, directories)


async def _save(log: Log, directories: LogDirectories) -> None:
    for directory in directories.online:
        if directory.logs.get(log.partition) is log:
            return await directory.save_log_starts({log.partition: log.log_start_offset})
    raise StorageError(f"{log.partition}: the log is not in an active log directory")
