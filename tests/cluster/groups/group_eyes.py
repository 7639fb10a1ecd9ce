"""How the watch sees what members of groups do: for the length of a run these methods of the client notify it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.groups.consumer_membership import ConsumerMembership
from streamlog.client.groups.group_offsets import GroupOffsets, OffsetAndMetadata
from streamlog.client.groups.rebalancing import Rebalancing
from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition
from streamlog.sim.process import PROCESS, Process

from .group_watch import GroupWatch


@contextmanager
def looking(watch: GroupWatch) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, notify in (
            (ConsumerMembership, "_heartbeat", watch.beats),
            (ConsumerMembership, "_on_response", watch.answered),
            (ConsumerMembership, "own", watch.owns),
            (ConsumerMembership, "rejoin", watch.owns),
            (ConsumerMembership, "_forget", watch.membership_over),
        ):
            stack.enter_context(mock.patch.object(owner, name, _notifying(getattr(owner, name), notify)))
        stack.enter_context(mock.patch.object(Rebalancing, "_forget_all", _forgetting(watch)))
        stack.enter_context(mock.patch.object(GroupOffsets, "_commit", _committing(watch)))
        stack.enter_context(mock.patch.object(GroupOffsets, "_fetch", _fetching(watch)))
        yield


def _notifying(method: Callable[..., Any], notify: Callable[[Process, ConsumerMembership], None]) -> Callable[..., Any]:
    @wraps(method)
    def notified(self: ConsumerMembership, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        process = PROCESS.get()
        if process is not None and process.alive:
            notify(process, self)
        return result

    return notified


def _forgetting(watch: GroupWatch) -> Callable[..., Any]:
    real = Rebalancing._forget_all

    async def forget_all(self: Rebalancing) -> None:
        await real(self)
        process = PROCESS.get()
        if process is not None:
            watch.owns(process, self._member)

    return forget_all


def _committing(watch: GroupWatch) -> Callable[..., Any]:
    real = GroupOffsets._commit

    async def commit(
        self: GroupOffsets,
        offsets: list[tuple[TopicPartition, OffsetAndMetadata]],
        who: Callable[[], pb.GroupMember | None],
        timeout_s: float,
        metadata: Mapping[str, str] | None,
    ) -> dict[TopicPartition, StreamlogError]:
        sent: list[pb.GroupMember | None] = []

        def asked() -> pb.GroupMember | None:
            sent.append(who())
            return sent[-1]

        begun = watch.begins(self._coordinator.group, PROCESS.get())
        refused = await real(self, offsets, asked, timeout_s, metadata)
        member = sent[-1]
        accepted = {partition: at for partition, at in offsets if partition not in refused}
        watch.committed(begun, None if member is None else member.member_epoch, accepted)
        return refused

    return commit


def _fetching(watch: GroupWatch) -> Callable[..., Any]:
    real = GroupOffsets._fetch

    async def fetch(self: GroupOffsets, *args: Any, **kwargs: Any) -> dict[TopicPartition, OffsetAndMetadata | None]:
        begun = watch.begins(self._coordinator.group, PROCESS.get())
        found = await real(self, *args, **kwargs)
        watch.fetched(begun, found)
        return found

    return fetch
