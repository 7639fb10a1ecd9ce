"""Warns of topics that a group's member has subscribed to and that do not exist: it waits for them without end, and a
typo in a name looks like a topic without records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.client.connection.connections import Connections
from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipState
from streamlog.client.log_lines import LATE_S, WaitsLog, write
from streamlog.errors import StreamlogError, UnknownTopicOrPartitionError

_log: Final = logging.getLogger(__name__)

_DESCRIBE: Final = calls.unary("streamlog.v1.Admin/DescribeTopics", pb.DescribeTopicsResponse)
"""Metadata would create the topic where `auto.create.topics.enable` is set."""
LOOK_S: Final = 5.0
"""Only topics that this member reads nothing of are looked up, and until they exist."""
_ASKED_MAX: Final = 100
"""Topics of a request."""
_NAMED_MAX: Final = 5
"""Topics in a line of the log."""


class MissingTopicsWatch:
    """Of one member."""

    def __init__(
        self,
        group: str,
        member: ConsumerMembership,
        topics: Callable[[], Sequence[str]],
        connections: Connections,
        *,
        request_timeout_s: float,
    ) -> None:
        """`topics`: those that it is subscribed to by name."""
        self._group = group
        self._member = member
        self._topics = topics
        self._connections = connections
        self._request_timeout_s = request_timeout_s
        self._existing: set[str] = set()  # of those looked up
        self._since: dict[str, float] = {}  # of those that do not exist, on the loop's clock
        self._waits_log = WaitsLog(f"group {group}: all its topics exist now")

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            if self._member.state is MembershipState.JOINED:
                await self._look_up(self._doubtful())
                self._write(loop.time())

    def _doubtful(self) -> list[str]:
        read = {partition.topic for partition in self._member.owned}
        topics = [topic for topic in self._topics() if topic not in read]
        self._existing.intersection_update(topics)  # one that is read may be deleted later
        self._since = {topic: since for topic, since in self._since.items() if topic in topics}
        return [topic for topic in topics if topic not in self._existing][:_ASKED_MAX]

    async def _look_up(self, topics: Sequence[str]) -> None:
        if not topics:
            return
        asked_at = asyncio.get_running_loop().time()
        try:
            request = pb.DescribeTopicsRequest(topics=topics)
            response = await self._connections.ask_any(_DESCRIBE, request, timeout_s=self._request_timeout_s)
        except StreamlogError:  # the connection's own lines say why
            return
        for topic in response.topics:
            is_missing = topic.HasField("error") and isinstance(from_message(topic.error), UnknownTopicOrPartitionError)
            if is_missing and topic.name in topics:
                self._since.setdefault(topic.name, asked_at)
            else:
                self._existing.add(topic.name)
                self._since.pop(topic.name, None)

    def _write(self, now: float) -> None:
        first = min(self._since.values(), default=None)
        write(_log, self._waits_log.look(None if first is None else now - first, lambda: self._warning(now), now))

    def _warning(self, now: float) -> str:
        late = sorted(topic for topic, since in self._since.items() if now - since >= LATE_S)
        named = ", ".join(late[:_NAMED_MAX])
        others = f" and {len(late) - _NAMED_MAX} more" if len(late) > _NAMED_MAX else ""
        what = "topics that do not exist" if len(late) > 1 else "a topic that does not exist"
        when = "each is read once it is created" if len(late) > 1 else "it is read once it is created"
        return f"group {self._group}: this member is subscribed to {what}, {named}{others}: {when}"
