"""A leader whose log has diverged from what was read (KIP-320).

Each fetch names the leader epoch of the record before its offset. Where the leader's log does not have that record any
more, it answers with the end of the last epoch that both have: what was read beyond it has been truncated.
"""

from __future__ import annotations

from streamlog.api.pb import batches_pb2 as pb
from streamlog.errors import LogTruncatedError
from streamlog.model import Offset, TopicPartition


def position_after_truncation(
    partition: TopicPartition, position: Offset, end: pb.EpochEnd, *, may_go_back: bool, remedy: str
) -> Offset:
    """Where reading continues. `may_go_back`: offsets may be read again, with other records than before. `remedy`: what
    the user can do about the error; empty: nothing is to be done.

    LogTruncatedError where no common epoch is known (the position is to be reset), and where reading may not go back.
    """
    if end.end_offset >= 0 and (may_go_back or end.end_offset >= position):
        return min(position, Offset(end.end_offset))
    if end.end_offset < 0:
        what = f"the log was truncated to an unknown offset; the position was {position}"
    else:
        what = f"the log was truncated to offset {end.end_offset}, below the position {position}"
    raise LogTruncatedError(
        f"{partition}: {what}{f': {remedy}' if remedy else ''}",
        topic=partition.topic,
        partition=partition.partition,
        offset=position,
        log_end=end.end_offset,
    )
