"""A consumer's part in its group: the membership, and what it commits.

    subscribe --> ConsumerMembership (heartbeats) --assignment--> Rebalancing --> AssignedReader
    settle (at each poll) --> Rebalancing: revoke, assign, call the listeners
    commit, commit_processed --> GroupOffsets

With assigned partitions (`assign`) the group only keeps the offsets: reading starts at them, and they can be committed
while the group has no members.

Automatic commits cover the records that were processed: those returned before the last poll. `processed` positions end
at the first record in flight, all others at the last record returned.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeAlias

from streamlog.client.connection.close_time import CloseTime
from streamlog.client.connection.coordinator import Coordinator
from streamlog.client.consumer.assigned_reader import AssignedReader, Work
from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.consumer.start_positions import Partition, Start, as_offset, as_partition
from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipRules, MembershipState
from streamlog.client.groups.coordinator_watch import CoordinatorWatch
from streamlog.client.groups.group_offsets import GroupOffsets, OffsetAndMetadata
from streamlog.client.groups.missing_topics_watch import MissingTopicsWatch
from streamlog.client.groups.poll_watch import PollWatch
from streamlog.client.groups.rebalancing import Listeners, RebalanceRules, Rebalancing, no_offset
from streamlog.client.log_lines import warn
from streamlog.client.producer.given_records import check_timeout, check_topic, mapping, several
from streamlog.config.settings import client_settings
from streamlog.config.settings import consumer_settings as consuming
from streamlog.errors import InvalidRequestError, StreamlogError, UnknownTopicOrPartitionError
from streamlog.model import LeaderEpoch, Offset, TopicPartition

_log: Final = logging.getLogger(__name__)

_LEAVE_S: Final = 5.0
"""After it the coordinator learns of the leave by the end of the stream, or by the session timeout."""
_UNKNOWN_TOPIC_RETRY_S: Final = 1.0

# An offset, with its metadata; or only the offset.
ToCommit: TypeAlias = Mapping[Partition, OffsetAndMetadata | int]
Commit: TypeAlias = Callable[..., Coroutine[Any, Any, dict[TopicPartition, StreamlogError]]]
BeforeRevoke: TypeAlias = Callable[[Iterable[TopicPartition]], Coroutine[Any, Any, None]]


class ConsumerGroup:
    """The group of one consumer. Made when its reader is open."""

    def __init__(
        self,
        name: str,
        reader: AssignedReader,
        *,
        activity: Callable[[], tuple[int, bool]],
        before_revoke: BeforeRevoke | None = None,
        serving_epoch: int = 0,
    ) -> None:
        """`activity`: how often the user has polled, and whether a poll is waiting now. `before_revoke`: awaited before
        partitions are revoked, raises nothing; None: the automatic commit. `serving_epoch`: broker epoch of the node
        that is the member on behalf of a client; 0: the consumer is.
        """
        config = reader.config
        self.name = name
        self._reader = reader
        self._fetcher = reader.fetcher
        self._activity = activity
        self._api_timeout_s = reader.api_timeout_s
        self._auto_commits = config[consuming.ENABLE_AUTO_COMMIT]
        self._reset = config[consuming.AUTO_OFFSET_RESET]
        self._topics: tuple[str, ...] = ()
        self._pattern = ""
        self.close_time = CloseTime()
        self._committed: dict[TopicPartition, Offset] = {}  # by this consumer, since it was assigned the partition
        reader.tracks_in_flight = self._auto_commits
        coordinator = Coordinator(
            name,
            reader.connections,
            reader.ports.clock,
            reader.backoff,
            request_timeout_s=config[client_settings.REQUEST_TIMEOUT_MS] / 1000,
        )
        session = consuming.SESSION_TIMEOUT_MS
        membership_rules = MembershipRules(
            member_id=f"{reader.ports.random.getrandbits(128):032x}",
            instance_id=config[consuming.GROUP_INSTANCE_ID] or "",
            client_id=config[client_settings.CLIENT_ID][:200],
            assignor=config[consuming.GROUP_REMOTE_ASSIGNOR] or "",
            rack=config[consuming.CLIENT_RACK],
            rebalance_timeout_ms=config[consuming.MAX_POLL_INTERVAL_MS],
            session_timeout_ms=config[session] if config.is_given(session) else 0,
            heartbeat_interval_s=config[consuming.HEARTBEAT_INTERVAL_MS] / 1000,
            serving_epoch=serving_epoch,
        )
        self.membership = ConsumerMembership(
            coordinator, reader.connections, reader.backoff, membership_rules, self._on_change
        )
        self._offsets = GroupOffsets(coordinator, reader.backoff, self.membership.committer)
        rules = RebalanceRules(
            group=name,
            reset=self._reset,
            api_timeout_s=self._api_timeout_s,
            commits=self._auto_commits or before_revoke is not None,
        )
        self._rebalancing = Rebalancing(
            self.membership,
            self._offsets,
            self._fetcher,
            reader.backoff,
            rules,
            before_revoke or self.commit_processed,
            self._on_change,
        )
        self._watch = PollWatch(config[consuming.MAX_POLL_INTERVAL_MS] / 1000, name, self.membership)

    def work(self) -> list[Work]:
        """What runs in the background while the consumer is open."""
        work: list[Work] = [self.membership.run, lambda: self._watch.run(self._activity)]
        if self._auto_commits:
            work.append(self._commit_periodically)
        return work

    def warnings(self) -> list[Work]:
        """As `AssignedReader.warnings`."""
        missing = MissingTopicsWatch(
            self.name,
            self.membership,
            lambda: self._topics,
            self._reader.connections,
            request_timeout_s=self._reader.config[client_settings.REQUEST_TIMEOUT_MS] / 1000,
        )
        return [CoordinatorWatch(self.name, self.membership).run, missing.run]

    async def close(self, timeout_s: float, *, processed: bool) -> None:
        """Commit what was processed (enable.auto.commit) and leave. `processed`: the records in flight are, too."""
        if processed:
            self._reader.in_flight.clear()
        begun = self._reader.loop.time()
        self.close_time.limit(timeout_s)
        try:
            async with self.close_time.limited():
                await self._leave()
        except TimeoutError:
            took_s = round(self._reader.loop.time() - begun, 2)
            warn(_log, f"group {self.name}: closed without the last commit, which took more than {took_s:g} s")
        finally:
            await self._rebalancing.cancel()

    async def abandon(self, timeout_s: float) -> None:
        """As `close`, where the program forgot to: nothing more is processed, and no listener is called."""
        self.close_time.limit(timeout_s)
        try:
            async with self.close_time.limited():
                if self._auto_commits:
                    await self.commit_processed(self._fetcher.readers)
                await self.membership.leave(timeout_s=_LEAVE_S)
        except TimeoutError:
            pass  # the end of the stream is the leave, and what is not committed is read again
        finally:
            await self._rebalancing.cancel()

    # Membership.

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None, listeners: Listeners) -> None:
        """As AsyncConsumer.subscribe."""
        given = (topics,) if isinstance(topics, str) else tuple(several("topics", topics))
        for name in given:
            check_topic(name)
        names = tuple(dict.fromkeys(given))
        expression = pattern.pattern if isinstance(pattern, re.Pattern) else pattern or ""
        if not names and not expression:
            raise InvalidRequestError("a subscription needs topics, a pattern, or both", field="topics")
        if self._fetcher.readers and not self.is_subscribed:
            raise InvalidRequestError(
                "this consumer reads partitions that were assigned with assign(): subscribe with another consumer",
                field="topics",
            )
        self._topics, self._pattern = names, expression
        self._rebalancing.listeners = listeners
        self.membership.subscribe(names, expression)

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing more. What was returned counts as processed."""
        if self.is_subscribed:
            self._reader.check_open()
            self._reader.in_flight.clear()
            await self._leave()
            self._topics, self._pattern = (), ""
            self._committed.clear()

    async def _leave(self) -> None:
        if self.membership.owned:
            await self._rebalancing.revoke_all()
        elif self._auto_commits:
            await self.commit_processed(self._fetcher.readers)
        await self._rebalancing.cancel()
        await self.membership.leave(timeout_s=_LEAVE_S)

    @property
    def is_subscribed(self) -> bool:
        return bool(self._topics or self._pattern)

    @property
    def topics(self) -> tuple[str, ...]:
        """Those subscribed to by name."""
        return self._topics

    @property
    def member_id(self) -> str | None:
        """None: not a member now."""
        member = self.membership.who()
        return None if member is None else member.member_id

    @property
    def member_epoch(self) -> int | None:
        """As the coordinator said last; None: not a member now."""
        member = self.membership.who()
        return None if member is None else member.member_epoch

    # Partitions assigned by the user.

    async def assign(self, starts: Mapping[TopicPartition, Start | None], ends: Mapping[Partition, int] | None) -> None:
        """As AsyncConsumer.assign."""
        if self.is_subscribed:
            raise InvalidRequestError(
                "this consumer is subscribed, and the group assigns its partitions: call unsubscribe() first",
                field="partitions",
            )
        readers = self._fetcher.readers
        new = [one for one, at in starts.items() if at is None and one not in readers]
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if new:
            committed = await self._offsets.fetch(new, stable=True, timeout_s=self._api_timeout_s)
        self._reader.in_flight.clear()
        removed = [one for one in readers if one not in starts]
        if removed and self._auto_commits:
            await self.commit_processed(removed)
        await self._reader.assign(
            {one: at if at is not None else _offset(committed.get(one)) for one, at in starts.items()}, ends
        )
        for one, stored in committed.items():
            reader = readers[one]
            if stored is not None and stored.leader_epoch is not None:
                self._fetcher.move(reader, stored.offset, stored.leader_epoch)
            elif stored is None and self._reset.strategy == "none":
                self._fetcher.fail(reader, no_offset(self.name, one))

    # Commits.

    def trace_commits(self, traced: Callable[[Commit], Commit]) -> None:
        """All of them, automatic ones too, from now on."""
        self._offsets.commit = traced(self._offsets.commit)  # type: ignore[method-assign]

    async def commit(self, offsets: ToCommit | ConsumerRecord | None, timeout_s: float | None = None) -> None:
        """As AsyncConsumer.commit."""
        await self._commit(self._to_commit(offsets), timeout_s)

    async def commit_before(self, firsts: Mapping[TopicPartition, Offset], timeout_s: float | None) -> None:
        """As `commit`, but for these partitions only up to these offsets: the records from there on were taken, and not
        returned to the user.
        """
        wanted = dict(self._to_commit(None))
        wanted.update({one: OffsetAndMetadata(at) for one, at in firsts.items() if one in wanted})
        await self._commit(wanted, timeout_s)

    def commit_async(self, offsets: ToCommit | ConsumerRecord | None) -> asyncio.Task[None]:
        """As AsyncConsumer.commit_async."""
        work = self._commit(self._to_commit(offsets), None)
        return asyncio.ensure_future(work)  # sim: the caller awaits it

    async def commit_processed(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit what was processed of these since the last commit. Errors are logged, not raised: what is not
        committed is read again by the next owner of the partition.
        """
        positions = self._positions(partitions, processed=True)
        wanted = {one: at for one, at in positions.items() if self._committed.get(one) != at.offset}
        if not wanted:
            return
        try:
            refused = await self._offsets.commit(wanted, timeout_s=self._api_timeout_s)
        except StreamlogError as error:
            warn(_log, f"group {self.name}: the offsets of {len(wanted)} partitions were not committed: {error}")
            return
        self._keep({one: at for one, at in wanted.items() if one not in refused})
        for one, refusal in refused.items():
            warn(_log, f"group {self.name}: the offset of {one} was not committed: {refusal}")

    async def committed(
        self, partitions: Iterable[Partition], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As AsyncConsumer.committed."""
        check_timeout(timeout_s)
        wanted = [as_partition(one) for one in several("partitions", partitions)]
        timeout_s = self._api_timeout_s if timeout_s is None else timeout_s
        return await self._offsets.fetch(wanted, stable=True, timeout_s=timeout_s) if wanted else {}

    async def _commit(self, wanted: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        check_timeout(timeout_s)
        if not wanted:
            return
        timeout_s = self._api_timeout_s if timeout_s is None else timeout_s
        refused = await self._offsets.commit(wanted, timeout_s=timeout_s)
        self._keep({one: at for one, at in wanted.items() if one not in refused})
        for partition, error in refused.items():
            raise error.restored(f"{partition}: {error.message}", error.details)

    async def _commit_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._reader.config[consuming.AUTO_COMMIT_INTERVAL_MS] / 1000)
            if not self.is_subscribed or self.membership.state is MembershipState.JOINED:
                await self.commit_processed(self._fetcher.readers)

    def _to_commit(self, offsets: ToCommit | ConsumerRecord | None) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._positions(self._fetcher.readers)
        if isinstance(offsets, ConsumerRecord):
            offsets = {(offsets.topic, offsets.partition): offsets.offset + 1}
        found = {}
        for given, at in mapping("offsets", offsets).items():
            partition = as_partition(given)
            found[partition] = at if isinstance(at, OffsetAndMetadata) else self._with_epoch(partition, as_offset(at))
        return found

    def _with_epoch(self, partition: TopicPartition, offset: Offset) -> OffsetAndMetadata:
        """The epoch of the record before an offset is known only at the position."""
        reader = self._fetcher.readers.get(partition)
        at_position = reader is not None and reader.position == offset
        return OffsetAndMetadata(offset, reader.epoch if reader is not None and at_position else None)

    def _positions(
        self, partitions: Iterable[TopicPartition], *, processed: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """`processed`: without the records in flight."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in partitions:
            reader = self._fetcher.readers.get(partition)
            if reader is None or reader.position is None:
                continue
            at: tuple[Offset, LeaderEpoch | None] = reader.position, reader.epoch
            if processed:
                in_flight = self._reader.in_flight.get(partition)
                at = at if in_flight is None else in_flight.place()
            found[partition] = OffsetAndMetadata(*at)
        return found

    def _keep(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed.update({one: at.offset for one, at in committed.items()})

    # At a poll.

    def _on_change(self) -> None:
        self._reader.interrupted = True
        self._fetcher.wake()

    async def settle(self) -> None:
        """Apply what has changed of the assignment, as far as it goes without waiting for the network. Raises what the
        user's listeners raise, and a permanent error of the coordinator.
        """
        reader = self._reader
        if not reader.interrupted:
            return
        reader.interrupted = False
        owned = self.membership.owned
        try:
            await self._rebalancing.settle()
        except BaseException:
            reader.interrupted = True  # the next poll continues
            raise
        if self.membership.owned != owned:
            self._committed = {one: at for one, at in self._committed.items() if one in self.membership.owned}

    def raise_error(self) -> None:
        """The error of the first partition that has one. A topic that was subscribed to and is being deleted is revoked
        shortly, so that it is unknown is no error yet: it is looked up again.
        """
        for reader in self._fetcher.readers.values():
            error = reader.error
            if error is None:
                continue
            if not self.is_subscribed or not isinstance(error, UnknownTopicOrPartitionError):
                raise error.restored(error.message, error.details)
            if not reader.retrying:
                reader.retrying = True
                self._reader.loop.call_later(_UNKNOWN_TOPIC_RETRY_S, self._retry, reader)

    def _retry(self, reader: PartitionReader) -> None:
        reader.retrying = False
        if reader.error is not None and self._fetcher.readers.get(reader.partition) is reader:
            self._fetcher.try_again(reader)


def _offset(committed: OffsetAndMetadata | None) -> Offset | None:
    return None if committed is None else committed.offset
