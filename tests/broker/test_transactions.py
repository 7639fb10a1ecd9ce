"""Transactions at a partition's leader (SEMANTICS 7, KIP-98, KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from streamlog.api.requests import OffsetPlace
from streamlog.broker.append.verification import transactional_header
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.leading.offset_lookup import offset_for
from streamlog.broker.table.open_transactions import open_transactions
from streamlog.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    NotEnoughReplicasError,
    NotLeaderError,
    ProducerFencedError,
    StreamlogError,
    TransactionCoordinatorFencedError,
)
from streamlog.model import Acks, Appended, IsolationLevel, Offset, ProducerEpoch, ProducerId
from streamlog.records import decode_batch, scan_headers
from streamlog.records.header import TRANSACTIONAL_BIT
from tests.broker.producing import PID, begin, confirmed, transactional
from tests.broker.rig import ME, OTHER, QUEUED, THIRD, UNCOMMITTED, Opening, Recorder, Rig, append_to
from tests.storage.batches import batch

COMMITTED = IsolationLevel.READ_COMMITTED


def needs_verification(leader: LeaderReplica, data: bytes) -> bool:
    header = transactional_header(data)
    return header is not None and leader.appends.verifications.is_needed(header)


def mark(rig: Rig, epoch: int, *, commit: bool, coordinator_epoch: int = 0, pid: int = PID) -> Appended:
    def marking() -> Appended:
        return rig.leader().markers.append(ProducerId(pid), ProducerEpoch(epoch), coordinator_epoch, commit=commit)

    return rig.do(marking)


def committed(rig: Rig) -> list[bytes | None]:
    """As a client reads it."""
    leader = rig.leader()
    data = rig.machine.run(leader.read(Offset(0), 1 << 20, COMMITTED))
    aborted = rig.do(lambda: leader.aborted(Offset(0), leader.last_stable_offset))
    found: list[bytes | None] = []
    for position, header in scan_headers(data, 0, len(data)):
        hidden = any(
            one.producer_id == header.producer_id and one.first_offset <= header.base_offset < one.last_offset
            for one in aborted
        )
        if not header.is_control and not (header.is_transactional and hidden):
            found += [record.value for record in decode_batch(data, position)]
    return found


# -- reading


def test_committed_readers_wait_for_the_marker_and_the_others_do_not(leading: Rig) -> None:
    rig = leading
    rig.produce(b"before")
    begin(rig, b"in")
    rig.produce(b"behind")
    leader = rig.leader()
    assert (leader.high_watermark, leader.last_stable_offset) == (3, 1)
    assert committed(rig) == [b"before"]
    assert len(list(scan_headers(rig.read(), 0, len(rig.read())))) == 3
    mark(rig, 1, commit=True)
    rig.rest()
    assert leader.last_stable_offset == 4
    assert committed(rig) == [b"before", b"in", b"behind"]


def test_aborted_transactions_are_listed(leading: Rig) -> None:
    rig = leading
    begin(rig, b"no")
    begin(rig, b"yes", pid=8)
    mark(rig, 1, commit=False)
    mark(rig, 1, commit=True, pid=8)
    rig.rest()
    assert committed(rig) == [b"yes"]
    (one,) = rig.do(lambda: rig.leader().aborted(Offset(0), Offset(4)))
    assert (one.producer_id, one.first_offset, one.last_offset) == (PID, 0, 2)


def test_a_marker_counts_once_all_in_sync_have_it(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    begin(rig, b"in")
    mark(rig, 1, commit=True)
    rig.rest()
    leader = rig.leader()
    rig.do(lambda: leader.on_position(OTHER, Offset(1)))
    assert (leader.high_watermark, leader.last_stable_offset) == (1, 0)
    watcher = Recorder(leader)
    rig.do(lambda: leader.watch(watcher))
    rig.do(lambda: leader.on_position(OTHER, Offset(2)))
    assert leader.last_stable_offset == 2
    assert watcher.events == ["readable 0..2"]


def test_the_latest_offset_is_the_last_stable_one_for_committed_readers(leading: Rig) -> None:
    rig = leading
    rig.produce(b"a")
    begin(rig, b"b")
    rig.rest()
    for isolation, end in ((COMMITTED, 1), (UNCOMMITTED, 2)):
        found = rig.machine.run(offset_for(rig.leader(), OffsetPlace.LATEST, isolation))
        assert found.offset == end


def test_a_follower_knows_the_last_stable_offset_and_leads_on_with_it(rig: Rig) -> None:
    rig.create(leader=OTHER, replicas=(ME, OTHER))
    rig.rest()
    data = batch([b"a"], epoch=0) + batch(
        [b"b"], base_offset=1, epoch=0, producer=(7, 0, 0), attributes=TRANSACTIONAL_BIT
    )
    rig.do(lambda: rig.follower.on_batches(data, Offset(2), Offset(0)))
    assert (rig.follower.high_watermark, rig.follower.last_stable_offset) == (2, 1)
    rig.change(leader=ME)
    rig.rest()
    rig.do(lambda: rig.leader().on_position(OTHER, Offset(2)))
    assert rig.leader().last_stable_offset == 1
    assert not needs_verification(rig.leader(), transactional(b"c", sequence=1))


def test_who_holds_the_last_stable_offset_and_since_when(leading: Rig) -> None:
    rig = leading
    begin(rig, b"first", pid=9)  # the batches say 1000 ms
    begin(rig, b"second", epoch=3)
    first, second = open_transactions(rig.leader().log)
    assert (first.producer_id, first.first_offset, first.since_ms) == (9, 0, 1000)
    assert (second.producer_id, second.producer_epoch, second.first_offset) == (PID, 3, 1)
    assert open_transactions(rig.leader().log, begun_before_ms=1000) == []
    assert len(open_transactions(rig.leader().log, begun_before_ms=1001)) == 2
    rig.restart()
    rig.rest()
    assert open_transactions(rig.leader().log) == [first, second]


# -- markers


def test_markers_are_fenced_and_may_be_repeated(leading: Rig) -> None:
    rig = leading
    begin(rig, b"in", epoch=4)
    with pytest.raises(ProducerFencedError):
        mark(rig, 3, commit=True)
    first = mark(rig, 5, commit=True, coordinator_epoch=2)
    again = mark(rig, 5, commit=True, coordinator_epoch=2)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.next_offset == first.next_offset
    rig.machine.run(waiting(rig, again))
    with pytest.raises(TransactionCoordinatorFencedError):
        mark(rig, 6, commit=False, coordinator_epoch=1)
    with pytest.raises(ProducerFencedError):
        begin(rig, b"late", epoch=4, sequence=1)


async def waiting(rig: Rig, appended: Appended) -> None:
    await rig.leader().wait_for(appended)


def test_a_marker_is_not_written_where_too_few_are_in_sync(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER, THIRD), isr=(ME,))
    rig.rest()
    with pytest.raises(NotEnoughReplicasError):
        mark(rig, 1, commit=True)
    assert rig.leader().log_end_offset == 0


# -- verification


def append(rig: Rig, data: bytes) -> Appended:
    return rig.do(lambda: append_to(rig.leader(), data))


def test_a_batch_that_opens_a_transaction_without_verification_is_refused(leading: Rig) -> None:
    rig = leading
    first, second = transactional(b"a"), transactional(b"b", sequence=1)
    assert needs_verification(rig.leader(), first)
    with pytest.raises(InvalidTransactionStateError, match="coordinator"):
        append(rig, first)
    begin(rig, b"a")
    assert not needs_verification(rig.leader(), second)
    append(rig, second)
    mark(rig, 1, commit=True)
    assert needs_verification(rig.leader(), transactional(b"c", epoch=1))


def test_plain_batches_need_none(leading: Rig) -> None:
    leader = leading.leader()
    for data in (batch([b"a"]), batch([b"a"], producer=(7, 0, 0)), b"", b"short", bytes(61), b"\xff" * 100):
        assert not needs_verification(leader, data)


def verified(rig: Rig, meanwhile: Callable[[], Awaitable[None]], *, epoch: int = 0) -> Appended:
    async def sending() -> Appended:
        data = transactional(b"a", epoch=epoch)
        return await rig.leader().appends.append(data, Acks.LEADER, QUEUED, Opening(meanwhile))

    return rig.machine.run(sending())


def test_a_marker_in_between_takes_the_guard_back(leading: Rig) -> None:
    """The batch was verified, lay in between, and comes after its transaction has ended."""
    rig = leading

    async def ends() -> None:
        rig.leader().markers.append(PID, ProducerEpoch(1), 0, commit=False)

    with pytest.raises(InvalidTransactionStateError, match="coordinator"):
        verified(rig, ends)
    assert rig.leader().log_end_offset == 1  # the marker alone


def test_the_marker_of_the_transaction_before_leaves_the_guard_of_the_next_one(leading: Rig) -> None:
    """The coordinator answers the next one when this marker is written."""
    rig = leading

    async def ends_the_one_before() -> None:
        rig.leader().markers.append(PID, ProducerEpoch(1), 0, commit=False)

    verified(rig, ends_the_one_before, epoch=1)
    assert rig.leader().log_end_offset == 2


def test_a_newer_epoch_in_between_takes_the_guard_back(leading: Rig) -> None:
    rig = leading

    async def overtaken() -> None:
        leader = rig.leader()
        with leader.appends.verifications.begin(PID, ProducerEpoch(1)), pytest.raises(ProducerFencedError):
            leader.appends.verifications.begin(PID, ProducerEpoch(0)).__enter__()

    with pytest.raises(InvalidTransactionStateError):
        verified(rig, overtaken)
    verified(rig, confirmed)


def test_a_guard_is_for_its_producer_and_its_time_only(leading: Rig) -> None:
    rig = leading
    leader = rig.leader()
    data = transactional(b"a")
    with leader.appends.verifications.begin(ProducerId(8), ProducerEpoch(0)) as other:
        pass
    with leader.appends.verifications.begin(PID, ProducerEpoch(0)) as over:
        pass
    for guard in (other, over):
        with pytest.raises(InvalidTransactionStateError):
            rig.do(lambda guard=guard: leader.appends.append_encoded(data, Acks.LEADER, guard))  # type: ignore[misc]  # bound now
    with leader.appends.verifications.begin(PID, ProducerEpoch(0)) as guard:
        rig.do(lambda: leader.appends.append_encoded(data, Acks.LEADER, guard))


def test_what_the_coordinator_refuses_is_not_appended(leading: Rig) -> None:
    rig = leading

    async def refuses() -> None:
        raise ConcurrentTransactionsError("the one before is being ended")

    with pytest.raises(ConcurrentTransactionsError):
        verified(rig, refuses)
    assert rig.leader().log_end_offset == 0
    verified(rig, confirmed)


def test_batches_of_a_producer_keep_their_order_behind_a_verification(leading: Rig) -> None:
    """Others do not wait for it; the coordinator is asked once."""
    rig = leading
    asked: list[int] = []

    async def story() -> list[int]:
        leader = rig.leader()
        go_on = asyncio.Event()

        async def verify() -> None:
            asked.append(leader.log_end_offset)
            await go_on.wait()

        async def send(sequence: int) -> Appended:
            data = transactional(b"%d" % sequence, sequence=sequence)
            return await leader.appends.append(data, Acks.LEADER, QUEUED, Opening(verify))

        sending = [asyncio.ensure_future(send(sequence)) for sequence in range(4)]
        await asyncio.sleep(0.01)
        append_to(leader, batch([b"plain"]))
        go_on.set()
        sending.append(asyncio.ensure_future(send(4)))
        return [(await one).first_offset for one in sending]

    assert rig.machine.run(story()) == [1, 2, 3, 4, 5]
    assert asked == [0]


def test_the_end_of_the_leadership_ends_a_verification(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()

    async def story() -> None:
        leader = rig.leader()
        confirmed = asyncio.Event()

        async def verify() -> None:
            await confirmed.wait()

        data = transactional(b"a")
        one = asyncio.ensure_future(leader.appends.append(data, Acks.LEADER, QUEUED, Opening(verify)))
        await asyncio.sleep(0)
        leader.end(ConcurrentTransactionsError("another leads"))
        confirmed.set()
        with pytest.raises(StreamlogError, match="another leads"):
            await one

    rig.machine.run(story())


def test_what_opens_the_next_transaction_waits_for_the_marker_of_the_one_before(leading: Rig) -> None:
    """Their coordinator may have opened it already. The batches behind it keep their order."""
    rig = leading
    begin(rig, b"a", epoch=0)

    async def story() -> list[int]:
        leader = rig.leader()

        async def send(sequence: int) -> Appended:
            data = transactional(b"b", epoch=1, sequence=sequence)
            assert needs_verification(leader, data)
            return await leader.appends.append(data, Acks.LEADER, QUEUED, Opening(confirmed))

        sending = [asyncio.ensure_future(send(sequence)) for sequence in range(2)]
        await asyncio.sleep(0.01)
        assert leader.log_end_offset == 1
        leader.markers.append(PID, ProducerEpoch(1), 0, commit=True)
        return [(await one).first_offset for one in sending]

    assert rig.machine.run(story()) == [2, 3]
    assert mark(rig, 1, commit=True).duplicate, "of the transaction before, and not of the one that is open"
    assert rig.leader().log.producers.has_open(PID, ProducerEpoch(1))


def test_one_that_hangs_does_not_shut_its_producer_out(leading: Rig) -> None:
    """Its coordinator does not know that it is open here. It is asked all the same, and the next end ends both."""
    rig = leading
    begin(rig, b"a", epoch=0)
    asked: list[int] = []

    async def story() -> None:
        leader = rig.leader()

        async def verify() -> None:
            asked.append(1)

        data = transactional(b"b", epoch=1)
        with pytest.raises(ConcurrentTransactionsError):
            await leader.appends.append(data, Acks.LEADER, QUEUED, Opening(verify))
        leader.markers.append(PID, ProducerEpoch(2), 0, commit=False)

    rig.machine.run(story())
    assert asked == [1]
    assert begin(rig, b"c", epoch=2).first_offset == 2


def test_the_marker_is_not_waited_for_longer_than_asked(leading: Rig) -> None:
    rig = leading
    begin(rig, b"a", epoch=0)

    async def story() -> None:
        data = transactional(b"b", epoch=1)
        await rig.leader().appends.append(data, Acks.LEADER, QUEUED, Opening(confirmed, 0.01))

    with pytest.raises(ConcurrentTransactionsError):
        rig.machine.run(story())


def test_the_end_of_the_leadership_ends_the_wait_for_a_marker(leading: Rig) -> None:
    rig = leading
    begin(rig, b"a", epoch=0)

    async def story() -> None:
        leader = rig.leader()
        data = transactional(b"b", epoch=1)
        one = asyncio.ensure_future(leader.appends.append(data, Acks.LEADER, QUEUED, Opening(confirmed)))
        await asyncio.sleep(0.01)
        leader.end(NotLeaderError("another leads"))
        with pytest.raises(NotLeaderError, match="another leads"):
            await one

    rig.machine.run(story())


def test_a_marker_can_say_that_the_next_transaction_is_open_here(leading: Rig) -> None:
    """Then the coordinator is not called, until it revokes that, or writes the next marker."""
    rig = leading
    begin(rig, b"a", epoch=0)

    async def refuse() -> None:
        raise InvalidTransactionStateError("asked")

    def mark_and_open(epoch: int) -> Appended:
        return rig.do(lambda: rig.leader().markers.append(PID, ProducerEpoch(epoch), 0, commit=True, opens_next=True))

    def take_back(epoch: int) -> bool:
        return rig.do(lambda: rig.leader().markers.revoke_grant(PID, ProducerEpoch(epoch)))

    mark_and_open(1)
    assert verified(rig, refuse, epoch=1).first_offset == 2
    assert take_back(1), "it is used"
    mark_and_open(2)
    assert not take_back(2)
    with pytest.raises(InvalidTransactionStateError, match="asked"):
        verified(rig, refuse, epoch=2)
    assert mark_and_open(2).duplicate
    with pytest.raises(InvalidTransactionStateError, match="asked"):
        verified(rig, refuse, epoch=2)
    mark_and_open(3)
    mark(rig, 4, commit=False)
    for epoch in (3, 4):
        with pytest.raises(StreamlogError):
            verified(rig, refuse, epoch=epoch)


def test_what_is_about_to_be_appended_counts_as_used(leading: Rig) -> None:
    rig = leading
    with rig.leader().appends.verifications.begin(PID, ProducerEpoch(0)):
        assert rig.do(lambda: rig.leader().markers.revoke_grant(PID, ProducerEpoch(0)))
    assert not rig.do(lambda: rig.leader().markers.revoke_grant(PID, ProducerEpoch(0)))
