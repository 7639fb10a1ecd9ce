"""Groups.GroupMembership: one member of a group, on a stream of its own.

    first request --> joins the coordinator's table of members on streams
    requests      --> decided one after another, each answered
    hint          --> a response without an answer: "there is news, send a heartbeat"
    end by the client, after it left -> nothing;  any other end -> the member is put out, or away if it is static

The hint carries no news itself, so there is one way only in which a member learns of its partitions, and a hint that is
lost or late costs time and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.api.convert import groups as convert
from streamlog.api.convert.fields import inside
from streamlog.api.pb import groups_pb2 as pb
from streamlog.api.service import Call, Requests, Responses
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.groups.membership import JOIN, HeartbeatAnswer, RemoveMember
from streamlog.metadata.view import MetadataView


class Memberships:
    def __init__(self, coordinator: GroupCoordinator, view: MetadataView) -> None:
        self._coordinator = coordinator
        self._view = view

    async def heartbeat(self, request: pb.GroupHeartbeatRequest, call: Call) -> pb.GroupHeartbeatResponse:
        answer = await self._coordinator.heartbeat(convert.heartbeat(request, call.info.peer))
        return self._response(answer)

    async def stream(
        self,
        requests: Requests[pb.GroupMembershipRequest],
        responses: Responses[pb.GroupMembershipResponse],
        call: Call,
    ) -> None:
        member = _Member(self._coordinator, self._response, call.info.peer)
        try:
            async with asyncio.TaskGroup() as tasks:
                hinting = tasks.create_task(member.send_hints(responses))
                await member.serve(requests, responses)
                hinting.cancel()
        finally:
            await member.end()

    def _response(self, answer: HeartbeatAnswer) -> pb.GroupHeartbeatResponse:
        topics = self._view.image.topics
        wanted = sorted(convert.topic_ids(answer.assignment))
        names = {topic_id: topics[topic_id].name for topic_id in wanted if topic_id in topics}
        return convert.heartbeat_response(answer, names)


class _Member:
    def __init__(
        self,
        coordinator: GroupCoordinator,
        response: Callable[[HeartbeatAnswer], pb.GroupHeartbeatResponse],
        peer: str,
    ) -> None:
        self._coordinator = coordinator
        self._response = response
        self._peer = peer
        self._key: tuple[str, str] | None = None  # group and member; None: no request has come
        self._epoch = JOIN  # as it was told last; below 0: it has left
        self._joining = False  # a heartbeat that joins may have been decided, and is not answered
        self._stop_watching: Callable[[], None] | None = None
        self._hinted = asyncio.Event()
        self._sending = asyncio.Lock()  # one message at a time: answers and hints

    async def serve(
        self, requests: Requests[pb.GroupMembershipRequest], responses: Responses[pb.GroupMembershipResponse]
    ) -> None:
        while (request := await requests.recv()) is not None:
            with inside("heartbeat"):
                command = convert.heartbeat(request.heartbeat, self._peer)
            key = (command.group, command.member_id)
            if self._key not in (None, key):
                raise InvalidRequestError("a stream is of one member: open another one", field="member_id")
            self._key = key
            self._hinted.clear()
            async with self._sending:  # a hint that comes before the answer goes out after it
                self._watch(command.group, command.member_id)
                self._joining = command.epoch == JOIN
                try:
                    answer = await self._coordinator.heartbeat(command)
                except StreamlogError:
                    self._joining = False  # refused: whoever has this id is not this one
                    raise
                self._epoch, self._joining = answer.epoch, False
                await responses.send(pb.GroupMembershipResponse(heartbeat=self._response(answer)))
            if self._epoch <= 0:
                self._unwatch()

    async def send_hints(self, responses: Responses[pb.GroupMembershipResponse]) -> None:
        while True:
            await self._hinted.wait()
            self._hinted.clear()
            async with self._sending:
                await responses.send(pb.GroupMembershipResponse())

    def _watch(self, group: str, member_id: str) -> None:
        """Before a heartbeat is decided: what others decide until its answer is replicated is news too."""
        self._unwatch()
        self._stop_watching = self._coordinator.watch_member(group, member_id, self._hinted.set)

    def _unwatch(self) -> None:
        stop, self._stop_watching = self._stop_watching, None
        if stop is not None:
            stop()

    async def end(self) -> None:
        """The stream is over. Who has not left is put out; if that cannot be done, the session does it."""
        self._unwatch()
        if self._key is None or not (self._joining or self._epoch > 0):
            return
        group, member_id = self._key
        try:
            if self._joining and self._coordinator.is_watched(group, member_id):
                return  # it has joined on another stream since
            # Whoever has not been told of its joining has an epoch that nobody here knows.
            epoch = None if self._joining else self._epoch
            await self._coordinator.remove_member(
                RemoveMember(group=group, member_id=member_id, epoch=epoch, may_return=True)
            )
        except StreamlogError:
            return
