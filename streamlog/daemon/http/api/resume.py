"""How far a reader of server-sent events has come: the ids of events, from which a browser resumes.

    id: orders:0=17,1=5;clicks:0=3      the next offset of each partition, `position` of PartitionRecords
    id: end                             the stream has ended as it was to; a browser that reconnects is stopped by 204

An id has all partitions that the stream has reported, so the last one is enough: a browser sends it as `Last-Event-ID`
when it reconnects, here or at another node, and reading continues at these offsets. Partitions that the id does not
have are read as the request says.
"""

from __future__ import annotations

import re
from typing import Final

from streamlog.api.convert.records.subscribe import check_count
from streamlog.api.pb import records_pb2 as pb
from streamlog.errors import InvalidRequestError, RequestTooLargeError
from streamlog.model import INT32_MAX, INT64_MAX, TOPIC_CHARACTER

END: Final = "end"
ID_LENGTH_MAX: Final = 8_000
"""It is sent back in a header, all of which together are bounded (listener.REQUEST_BYTES_MAX)."""

_TOPIC: Final = re.compile(f"({TOPIC_CHARACTER}{{1,249}})" r":([0-9]{1,10}=[0-9]{1,19}(?:,[0-9]{1,10}=[0-9]{1,19})*)")

Positions = dict[str, dict[int, int]]
"""Topic -> partition -> next offset."""


class ReadProgress:
    """Of one stream."""

    def __init__(self, last_event_id: str) -> None:
        """`last_event_id`: empty: from the request's start. InvalidRequestError."""
        self._positions = parse_id(last_event_id)

    def resume(self, request: pb.SubscribeRequest) -> None:
        """Changes the starts of the partitions that the id has. Each position is used once, so that the work grows with
        the sum of both, not with their product. InvalidRequestError.
        """
        if not self._positions:
            return
        check_count(len(request.subscriptions))
        check_count(sum(len(one.partitions) for one in request.subscriptions))
        request.DiscardUnknownFields()  # they may be large, and `end` is copied
        unused = {topic: dict(found) for topic, found in self._positions.items()}
        given = pb.SubscribeRequest(subscriptions=request.subscriptions).subscriptions
        del request.subscriptions[:]
        for one in sorted(given, key=lambda one: not one.partitions):  # those that name partitions have them first
            known = unused.get(one.topic, {})
            others = []
            for index in one.partitions or tuple(known):
                if index not in known:
                    others.append(index)
                    continue
                entry = request.subscriptions.add(topic=one.topic, partitions=[index])
                entry.start.offset = known.pop(index)
                if one.HasField("end"):
                    entry.end.CopyFrom(one.end)
            if others or not one.partitions:  # without partitions: those that are added
                one.partitions[:] = others
                request.subscriptions.append(one)

    def note(self, response: pb.SubscribeResponse) -> str:
        """The id after this response. RequestTooLargeError where it would be too long."""
        for one in response.partitions:
            if one.HasField("error"):
                continue  # it may have no position
            self._positions.setdefault(one.topic, {})[one.partition] = one.position
        text = ";".join(
            f"{topic}:{','.join(f'{index}={offset}' for index, offset in found.items())}"
            for topic, found in self._positions.items()
        )
        if len(text) > ID_LENGTH_MAX:
            raise RequestTooLargeError(
                f"the positions of this stream's partitions take more than {ID_LENGTH_MAX:,} bytes, so it could not be "
                "resumed by Last-Event-ID: subscribe to fewer partitions at once",
                field="subscriptions",
                limit=ID_LENGTH_MAX,
            )
        return text


def parse_id(text: str) -> Positions:
    """InvalidRequestError."""
    found: Positions = {}
    for part in text.split(";") if text else ():
        match = _TOPIC.fullmatch(part)
        if match is None or match[1] in found:
            raise _invalid()
        positions = {int(index): int(offset) for index, offset in (one.split("=") for one in match[2].split(","))}
        if max(positions) > INT32_MAX or max(positions.values()) > INT64_MAX:
            raise _invalid()
        found[match[1]] = positions
    return found


def is_heartbeat(response: pb.SubscribeResponse) -> bool:
    """Nothing but positions."""
    return not any(
        one.records or one.end_reached or one.HasField("error") or one.skipped_batches for one in response.partitions
    )


def _invalid() -> InvalidRequestError:
    return InvalidRequestError(
        "Last-Event-ID is not the id of an event of this API: connect without it", field="last-event-id"
    )
