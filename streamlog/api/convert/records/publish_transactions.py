"""The fields of a transactional PublishStream beside its records."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from streamlog.api.convert.fields import amount, distinct, each, enum_value, inside, together
from streamlog.api.convert.groups import PARTITIONS_MAX, committer, group_id, to_commit
from streamlog.api.convert.records.publish import PublishOptions
from streamlog.api.convert.transactions import transactional_id
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.requests import TRANSACTION_TIMEOUT_MS
from streamlog.errors import InvalidRequestError
from streamlog.groups.committing import CommitOffsets
from streamlog.model import Acks
from streamlog.transactions.records import TIMEOUT_MS_MAX

GROUPS_MAX: Final = 100


class EndRequest(enum.Enum):
    COMMIT = 1
    ABORT = 2
    NONE = 3  # it stays open


_ENDS: Final[Mapping[int, EndRequest]] = {
    pb.TRANSACTION_END_COMMIT: EndRequest.COMMIT,
    pb.TRANSACTION_END_ABORT: EndRequest.ABORT,
}


class TransactionalWriter(Struct, frozen=True, kw_only=True):
    transactional_id: str
    timeout_ms: int  # >= 1


def writer(message: pb.TransactionalWriter) -> TransactionalWriter:
    """InvalidRequestError."""
    with inside("transactional"):
        return TransactionalWriter(
            transactional_id=transactional_id(message.transactional_id),
            timeout_ms=amount(message.timeout_ms, "timeout_ms", default=TRANSACTION_TIMEOUT_MS, high=TIMEOUT_MS_MAX),
        )


def offsets(message: pb.PublishStreamRequest) -> tuple[CommitOffsets, ...]:
    """One for each group. InvalidRequestError, InvalidGroupIdError, InvalidTopicError."""
    together((one.offsets for one in message.offsets), "offsets", count_max=PARTITIONS_MAX)
    found = each(message.offsets, "offsets", _offsets, count_max=GROUPS_MAX)
    distinct([one.group for one in found], "offsets")
    return found


def _offsets(message: pb.TransactionOffsets) -> CommitOffsets:
    places = each(message.offsets, "offsets", to_commit, count_min=1, count_max=PARTITIONS_MAX)
    distinct([place.partition for place in places], "offsets")
    return CommitOffsets(group=group_id(message.group), member=committer(message), offsets=places)


def end(message: pb.PublishStreamRequest) -> EndRequest:
    """InvalidRequestError."""
    return enum_value(message.end, _ENDS, pb.TransactionEnd, "end", EndRequest.NONE)


def check_acks(options: PublishOptions) -> None:
    """InvalidRequestError."""
    if options.acks is not Acks.ALL:
        raise InvalidRequestError("a transactional stream requires ACKS_ALL", field="options.acks")
