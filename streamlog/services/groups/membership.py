"""Groups.GroupMembership: one member of a group, on a stream of its own.

    first request --> the member is registered for notifications at the coordinator
    requests      --> decided one after another, one response each
    notification  --> a response without a heartbeat: "send a heartbeat now"
    end by the client, after it left -> nothing;  any other end -> the member is removed; a static one left temporarily
    end after the member has resumed on another stream -> nothing: a broken path may end the old stream seconds later

The notification has no content, so heartbeats are the only way in which a member gets its assignment, and a lost or
late notification costs only time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.aio.call_time import counted
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
                notifying = tasks.create_task(counted(member.send_notifications(responses)))
                await member.serve(requests, responses)
                notifying.cancel()
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
        self._key: tuple[str, str] | None = None  # group and member; None: no request received yet
        self._epoch = JOIN  # of the last response; below 0: it has left
        self._joining = False  # a heartbeat that joins may have been decided, and has no response yet
        self._stop_watching: Callable[[], bool] | None = None
        self._notified = asyncio.Event()
        self._sending = asyncio.Lock()  # one message at a time: responses and notifications

    async def serve(
        self, requests: Requests[pb.GroupMembershipRequest], responses: Responses[pb.GroupMembershipResponse]
    ) -> None:
        while (request := await requests.recv()) is not None:
            with inside("heartbeat"):
                command = convert.heartbeat(request.heartbeat, self._peer)
            key = (command.group, command.member_id)
            if self._key is not None and self._key != key:
                raise InvalidRequestError(
                    f"this stream is of member {self._key[1]!r} of group {self._key[0]!r}: open another stream for "
                    "each further member",
                    field="member_id",
                )
            self._key = key
            self._notified.clear()
            async with self._sending:  # a notification before the response is sent after it
                self._watch(command.group, command.member_id)
                self._joining = command.epoch == JOIN
                try:
                    answer = await self._coordinator.heartbeat(command)
                except StreamlogError:
                    self._joining = False  # refused: another member has this id
                    raise
                self._epoch, self._joining = answer.epoch, False
                await responses.send(pb.GroupMembershipResponse(heartbeat=self._response(answer)))
            if self._epoch <= 0:
                self._unwatch()

    async def send_notifications(self, responses: Responses[pb.GroupMembershipResponse]) -> None:
        while True:
            await self._notified.wait()
            self._notified.clear()
            async with self._sending:
                await responses.send(pb.GroupMembershipResponse())

    def _watch(self, group: str, member_id: str) -> None:
        """Before a heartbeat is decided: changes between the decision and the response need a notification too."""
        is_new = self._stop_watching is None
        self._stop_watching = self._coordinator.watch_member(group, member_id, self._notified.set, is_new=is_new)

    def _unwatch(self) -> bool:
        """Whether this stream was the member's last one, at a coordinator that still is one."""
        stop, self._stop_watching = self._stop_watching, None
        return stop is not None and stop()

    async def end(self) -> None:
        """The stream has ended. A member that has neither left nor resumed on another stream is removed; if that
        fails, or the coordinator has changed, its session times out.
        """
        is_last = self._unwatch()
        if self._key is None or not is_last or not (self._joining or self._epoch > 0):
            return
        group, member_id = self._key
        try:
            # A member that got no response to its join has an epoch that this node does not know.
            epoch = None if self._joining else self._epoch
            await self._coordinator.remove_member(
                RemoveMember(group=group, member_id=member_id, epoch=epoch, may_return=True)
            )
        except StreamlogError:
            return
