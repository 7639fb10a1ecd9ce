"""The consumer: partitions that its user names, or those that its group gives it.

    async with AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            ...

    assign       partitions, from where is said. With a group.id it begins where the group has committed, and can commit
                 while the group has no members
    subscribe    topics by name or by pattern: membership in the group (`consumer_membership`), to which the
                 coordinator assigns partitions (`rebalancing`). Starts at the committed offsets, else as
                 auto.offset.reset says

What is committed automatically is what was processed: handed out, and then more asked for. So whoever ends by an error
reads again what he was at (at least once); `close`, or the end of `async with` without an error, counts as asking for
more. What a commit without arguments commits is all that was handed out, as in Kafka.

Heartbeats go on behind, however long a handler takes, unless it blocks the event loop (the synchronous consumer has a
thread of its own for them). One that takes longer than max.poll.interval.ms is told so at four fifths of it; then the
member leaves, and joins again by its next poll.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final

from streamlog.client.connection.client_ports import ClientPorts
from streamlog.client.connection.coordinator import Coordinator
from streamlog.client.consumer.assigned_consumer import AssignedConsumer, Partition, Start, as_partition
from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipRules, MembershipState
from streamlog.client.groups.group_offsets import GroupOffsets, OffsetAndMetadata
from streamlog.client.groups.poll_watch import PollWatch
from streamlog.client.groups.rebalancing import Listener, Listeners, RebalanceRules, Rebalancing, no_offset
from streamlog.config import client_settings
from streamlog.config import consumer_settings as consuming
from streamlog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import LeaderEpoch, Offset, TopicPartition

_log: Final = logging.getLogger(__name__)

CLOSE_S: Final = 30.0
"""Kafka's bound on the commit and the leave at the end."""
_LEAVE_S: Final = 5.0
"""After it the end of the stream says the same, or the session does."""
_UNKNOWN_TOPIC_RETRY_S: Final = 1.0

# An offset, with what is to be kept with it; or the offset alone.
ToCommit = Mapping[Partition, OffsetAndMetadata | int]


class AsyncConsumer(AssignedConsumer):
    """Settings by Kafka's names: `max_poll_records=100`, or `{"max.poll.records": 100}`; InvalidConfigError tells all
    that is wrong.
    """

    def __init__(
        self, config: Mapping[str, object] | None = None, *, ports: ClientPorts | None = None, **settings: object
    ) -> None:
        """`ports`: of a simulation; None: the real world."""
        super().__init__(config, ports=ports, **settings)
        group = self._config[consuming.GROUP_ID]
        self._group: str | None = group
        self._auto_commits = group is not None and self._config[consuming.ENABLE_AUTO_COMMIT]
        self._tracks = self._auto_commits
        self._topics: tuple[str, ...] = ()
        self._pattern = ""
        self._committed: dict[TopicPartition, Offset] = {}  # by this consumer, since it reads the partition

    # Life.

    def _prepare(self) -> None:
        if self._group is None:
            return
        config = self._config
        self._coordinator = Coordinator(
            self._group,
            self._connections,
            self._ports.clock,
            self._backoff,
            request_timeout_s=config[client_settings.REQUEST_TIMEOUT_MS] / 1000,
        )
        self._member = ConsumerMembership(
            self._coordinator, self._connections, self._backoff, self._member_rules(), self._on_news
        )
        self._offsets = GroupOffsets(self._coordinator, self._backoff, self._member.committer)
        rules = RebalanceRules(
            group=self._group,
            reset=config[consuming.AUTO_OFFSET_RESET],
            api_timeout_s=self._api_timeout_s,
            commits=self._commits_before_giving_up,
        )
        self._rebalancing = Rebalancing(
            self._member, self._offsets, self._fetcher, self._backoff, rules, self._before_giving_up, self._on_news
        )
        self._watch = PollWatch(config[consuming.MAX_POLL_INTERVAL_MS] / 1000, self._group, self._member)

    _serving_epoch = 0
    """Of a node that is a member for somebody else."""

    def _member_rules(self) -> MembershipRules:
        config = self._config
        session = consuming.SESSION_TIMEOUT_MS
        return MembershipRules(
            member_id=f"{self._ports.random.getrandbits(128):032x}",
            instance_id=config[consuming.GROUP_INSTANCE_ID] or "",
            client_id=config[client_settings.CLIENT_ID][:200],
            assignor=config[consuming.GROUP_REMOTE_ASSIGNOR] or "",
            rack=config[consuming.CLIENT_RACK],
            rebalance_timeout_ms=config[consuming.MAX_POLL_INTERVAL_MS],
            session_timeout_ms=config[session] if config.is_given(session) else 0,
            heartbeat_interval_s=config[consuming.HEARTBEAT_INTERVAL_MS] / 1000,
            serving_epoch=self._serving_epoch,
        )

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        work = super()._work()
        if self._group is not None:
            work += [self._member.run(), self._watch.run(self._activity)]
        if self._auto_commits:
            work.append(self._commit_now_and_then())
        return work

    def _activity(self) -> tuple[int, bool]:
        """How often somebody has asked for records, and whether he still waits for some."""
        return self._polls, self._polling

    @property
    def _commits_before_giving_up(self) -> bool:
        return self._auto_commits

    async def _before_giving_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing more of these is handed out. Raises nothing."""
        await self._commit_quietly(partitions)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(CLOSE_S, processed=error is None)

    async def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Commit what was handed out (enable.auto.commit), leave the group at once. Idempotent."""
        await self._close(timeout_s, processed=True)

    async def _close(self, timeout_s: float, *, processed: bool) -> None:
        """`processed`: what was handed out last is."""
        if self._state != "open" or self._crash is not None or self._group is None:
            await super().close()
            return
        if processed:
            self._in_flight.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._leave()
        except TimeoutError:
            _log.warning("group %s: closed without the last commit: %g s are over", self._group, timeout_s)
        finally:
            await self._rebalancing.drop()
            await super().close()

    async def _leave(self) -> None:
        if self._member.owned:
            await self._rebalancing.give_up_all()
        elif self._auto_commits:
            await self._commit_quietly(self._fetcher.readers)
        await self._rebalancing.drop()
        await self._member.leave(timeout_s=_LEAVE_S)

    def _require_group(self) -> str:
        self._check_open()
        if self._group is None:
            raise InvalidConfigError("the consumer has no group.id", field=consuming.GROUP_ID.name)
        return self._group

    # What is read.

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Be a member of the group that reads these topics, those by name and those whose whole name matches `pattern`
        (RE2); in the place of what was subscribed to before. Returns at once; polls tell what is refused.

        The functions get a list of partitions, may be coroutine functions, and are called while this consumer polls or
        closes: `on_assigned` before anything of them is handed out, `on_revoked` while they are still this member's,
        `on_lost` when they may be another's already (None: as on_revoked).
        """
        self._require_group()
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        expression = pattern.pattern if isinstance(pattern, re.Pattern) else pattern or ""
        if not names and not expression:
            raise InvalidRequestError("name topics, or a pattern, or both", field="topics")
        if self._fetcher.readers and not self._subscribed:
            raise InvalidRequestError(
                "partitions are assigned by hand: subscribe with another consumer", field="topics"
            )
        self._topics, self._pattern = names, expression
        self._rebalancing.listeners = Listeners(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        self._member.subscribe(names, expression)

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing more. What was handed out counts as processed."""
        if self._subscribed:
            self._check_open()
            self._in_flight.clear()
            await self._leave()
            self._topics, self._pattern = (), ""
            self._committed.clear()

    @property
    def _subscribed(self) -> bool:
        return bool(self._topics or self._pattern)

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics by name."""
        return self._topics

    @property
    def member_id(self) -> str | None:
        """None: no member now."""
        member = None if self._group is None else self._member.who()
        return None if member is None else member.member_id

    @property
    def member_epoch(self) -> int | None:
        """As the coordinator said last; None: no member now."""
        member = None if self._group is None else self._member.who()
        return None if member is None else member.member_epoch

    async def assign(
        self,
        partitions: Iterable[Partition] | Mapping[Partition, Start | None],
        *,
        start: Start | None = None,
        ends: Mapping[Partition, int] | None = None,
    ) -> None:
        """Read these partitions and no others; a mapping gives each its start. Without a start (None), those that are
        read already go on where they are, and others begin where the group has committed, or as auto.offset.reset says.

        `ends`: one past the last offset wanted of a partition. The batch that reaches it is the last that is fetched.

        UnknownTopicOrPartitionError for what is not there, RequestTimedOutError (default.api.timeout.ms).
        """
        self._check_open()
        if self._subscribed:
            raise InvalidRequestError("the consumer is subscribed: unsubscribe first", field="partitions")
        given = dict(partitions) if isinstance(partitions, Mapping) else dict.fromkeys(partitions, start)
        starts = {as_partition(one): at for one, at in given.items()}
        new = [one for one, at in starts.items() if at is None and one not in self._fetcher.readers]
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if self._group is not None and new:
            committed = await self._offsets.fetch(new, stable=True, timeout_s=self._api_timeout_s)
        self._in_flight.clear()
        gone = [one for one in self._fetcher.readers if one not in starts]
        if gone and self._auto_commits:
            await self._commit_quietly(gone)
        begins = {one: at if at is not None else _offset(committed.get(one)) for one, at in starts.items()}
        await super().assign(begins, ends=ends)
        for one, at in committed.items():
            reader = self._fetcher.readers[one]
            if at is not None and at.leader_epoch is not None:
                self._fetcher.move(reader, at.offset, at.leader_epoch)
            elif at is None and self._config[consuming.AUTO_OFFSET_RESET].strategy == "none":
                self._fetcher.fail(reader, no_offset(self._require_group(), one))

    # What is committed.

    async def commit(self, offsets: ToCommit | ConsumerRecord | None = None, *, timeout_s: float | None = None) -> None:
        """Until it is replicated. None: all that was handed out; a record: that one, and all before it in its
        partition; a mapping: as it says, the next offset to read of each partition.

        UnknownMemberIdError and IllegalGenerationError where this member was put out: what it reads is another's now.
        RequestTimedOutError. Of several partitions the error of the first that was refused; the others are committed.
        """
        self._require_group()
        await self._commit(self._to_commit(offsets), self._api_timeout_s if timeout_s is None else timeout_s)

    async def _commit(self, wanted: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        if not wanted:
            return
        refused = await self._offsets.commit(wanted, timeout_s=timeout_s)
        self._keep({one: at for one, at in wanted.items() if one not in refused})
        for partition, error in refused.items():
            raise error.restored(f"{partition}: {error.message}", error.details)

    async def _commit_before(self, firsts: Mapping[TopicPartition, Offset], timeout_s: float | None) -> None:
        """As `commit`, for whoever has not handed out these and what follows them."""
        wanted = dict(self._to_commit(None))
        wanted.update({one: OffsetAndMetadata(at) for one, at in firsts.items() if one in wanted})
        await self._commit(wanted, self._api_timeout_s if timeout_s is None else timeout_s)

    def commit_async(self, offsets: ToCommit | ConsumerRecord | None = None) -> asyncio.Task[None]:
        """As `commit`, of what was handed out until now, without waiting. Commits go out in their order."""
        self._require_group()
        work = self._commit(self._to_commit(offsets), self._api_timeout_s)
        return asyncio.ensure_future(work)  # sim: its end is the caller's to hear of

    async def committed(
        self, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None: nothing. RequestTimedOutError."""
        self._require_group()
        wanted = [as_partition(one) for one in partitions]
        patience_s = self._api_timeout_s if timeout_s is None else timeout_s
        return await self._offsets.fetch(wanted, stable=True, timeout_s=patience_s) if wanted else {}

    def _to_commit(self, offsets: ToCommit | ConsumerRecord | None) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._positions(self._fetcher.readers)
        if isinstance(offsets, ConsumerRecord):
            offsets = {(offsets.topic, offsets.partition): offsets.offset + 1}
        found = {}
        for given, at in offsets.items():
            partition = as_partition(given)
            found[partition] = at if isinstance(at, OffsetAndMetadata) else self._with_epoch(partition, Offset(at))
        return found

    def _with_epoch(self, partition: TopicPartition, offset: Offset) -> OffsetAndMetadata:
        """The epoch of the record before is known at the position alone."""
        if offset < 0:
            raise InvalidRequestError(f"offset {offset}: offsets count from 0", field="offset", limit=0)
        reader = self._fetcher.readers.get(partition)
        at_position = reader is not None and reader.position == offset
        return OffsetAndMetadata(offset, reader.epoch if reader is not None and at_position else None)

    def _positions(
        self, partitions: Iterable[TopicPartition], *, processed: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """`processed`: without what is in flight."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in partitions:
            reader = self._fetcher.readers.get(partition)
            if reader is None or reader.position is None:
                continue
            at: tuple[Offset, LeaderEpoch | None] = reader.position, reader.epoch
            if processed:
                at = self._in_flight.get(partition, at)
            found[partition] = OffsetAndMetadata(*at)
        return found

    def _keep(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed.update({one: at.offset for one, at in committed.items()})

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config[consuming.AUTO_COMMIT_INTERVAL_MS] / 1000)
            if not self._subscribed or self._member.state is MembershipState.JOINED:
                await self._commit_quietly(self._fetcher.readers)

    async def _commit_quietly(self, partitions: Iterable[TopicPartition]) -> None:
        """What was processed of these since the last time. Nobody waits for an error: what is not committed is read
        again by whoever comes next.
        """
        positions = self._positions(partitions, processed=True)
        wanted = {one: at for one, at in positions.items() if self._committed.get(one) != at.offset}
        if not wanted:
            return
        try:
            refused = await self._offsets.commit(wanted, timeout_s=self._api_timeout_s)
        except StreamlogError as error:
            _log.warning("group %s: %d offsets were not committed: %s", self._group, len(wanted), error)
            return
        self._keep({one: at for one, at in wanted.items() if one not in refused})
        for one, why in refused.items():
            _log.warning("group %s: the offset of %s was not committed: %s", self._group, one, why)

    # At a poll.

    def _on_news(self) -> None:
        self._interrupted = True
        self._fetcher.wake()

    async def _settle(self) -> None:
        if self._group is None or not self._interrupted:
            return
        self._interrupted = False
        owned = self._member.owned
        try:
            await self._rebalancing.settle()
        except BaseException:
            self._interrupted = True  # what was not done is to be done by the next poll
            raise
        if self._member.owned != owned:
            self._committed = {one: at for one, at in self._committed.items() if one in self._member.owned}

    def _on_error(self, reader: PartitionReader, error: StreamlogError) -> None:
        """A topic that is being deleted is taken away in a moment, and is no error of who subscribed to it."""
        if self._subscribed and isinstance(error, UnknownTopicOrPartitionError):
            if not reader.retrying:
                reader.retrying = True
                self._loop.call_later(_UNKNOWN_TOPIC_RETRY_S, self._again, reader)
            return
        super()._on_error(reader, error)

    def _again(self, reader: PartitionReader) -> None:
        reader.retrying = False
        if reader.error is not None and self._fetcher.readers.get(reader.partition) is reader:
            self._fetcher.try_again(reader)


def _offset(committed: OffsetAndMetadata | None) -> Offset | None:
    return None if committed is None else committed.offset
