"""PublishStream with transactions over the simulated network, from raw messages, as a client without a library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streamlog.api.pb import common_pb2, groups_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.errors import InvalidRequestError, ProducerFencedError, StreamlogError
from tests.services.records.publish_calls import RECORDS, answers, records
from tests.services.transactions.transaction_calls import committed, offset, with_transactions
from tests.services.world import Calls, Cluster

COMMIT, ABORT = pb.TRANSACTION_END_COMMIT, pb.TRANSACTION_END_ABORT
COMMITTED, ABORTED = pb.TRANSACTION_OUTCOME_COMMITTED, pb.TRANSACTION_OUTCOME_ABORTED
Story = Callable[[Cluster], Coroutine[Any, Any, None]]


class Stream:
    """One stream; `ask` waits for the answer."""

    def __init__(self, calls: Calls[pb.PublishStreamResponse]) -> None:
        self.calls = calls
        self.token = b""

    async def send(self, *values: bytes, partition: int = 0, **fields: Any) -> None:
        message = pb.PublishStreamRequest(**{"records": records(*values, partition=partition), **fields})
        await self.calls.send(message)

    async def ask(self, *values: bytes, partition: int = 0, **fields: Any) -> pb.PublishStreamResponse:
        await self.send(*values, partition=partition, **fields)
        (answer,) = await answers(self.calls, 1)
        self.token = answer.producer_token
        return answer

    async def ended(self) -> StreamlogError | None:
        """How the node has ended it; None: with OK."""
        try:
            assert await asyncio.wait_for(self.calls.recv(), 60) is None
        except StreamlogError as error:
            return error
        return None


@asynccontextmanager
async def writing(
    cluster: Cluster, name: str = "x", *, node: int = 1, token: bytes = b"", timeout_ms: int = 0
) -> AsyncIterator[Stream]:
    """Begun by a separate request: its response says that earlier producers with the id are fenced."""
    async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse, node) as calls:
        stream = Stream(calls)
        writer = pb.TransactionalWriter(transactional_id=name, timeout_ms=timeout_ms)
        await calls.send(pb.PublishStreamRequest(topic="t", transactional=writer, producer_token=token))
        yield stream


def offsets(next_offset: int, **member: Any) -> list[pb.TransactionOffsets]:
    place = groups_pb2.OffsetToCommit(topic="t", partition=0, offset=next_offset)
    who = {"member": groups_pb2.GroupMember(**member)} if member else {}
    return [pb.TransactionOffsets(group="g", offsets=[place], **who)]


async def until_committed(cluster: Cluster, *values: bytes, partition: int = 0) -> None:
    async with asyncio.timeout(60):
        while await committed(cluster, partition) != list(values):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # virtual time


def test_records_of_two_partitions_and_an_offset_become_visible_together() -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as stream:
            begun = (await answers(stream.calls, 1))[0]
            assert (list(begun.results), begun.outcome, begun.former_outcome) == ([], 0, 0)
            first = await stream.ask(b"a", b"b")
            second = await stream.ask(b"c", partition=1, offsets=offsets(7))
            assert [result.offset for result in first.results] == [0, 1]
            assert [(one.partition, one.offset) for one in second.results] == [(1, 0)]
            assert not second.HasField("error")
            assert (await committed(cluster), await committed(cluster, 1)) == ([], [])
            assert await offset(cluster, stable=True) == "UNSTABLE_OFFSET_COMMIT"
            ended = await stream.ask(end=COMMIT)
            assert (ended.outcome, ended.HasField("error")) == (COMMITTED, False)
            await until_committed(cluster, b"a", b"b")
            await until_committed(cluster, b"c", partition=1)
            assert await offset(cluster, stable=True) == 7

    with_transactions(story)


def test_a_transaction_in_one_request_and_many_pipelined() -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as stream:
            for number in range(20):
                end = ABORT if number % 5 == 4 else COMMIT
                await stream.send(b"%d" % number, partition=number % 2, offsets=offsets(number), end=end)
            response = (await answers(stream.calls, 21))[1:]
            assert [one.outcome for one in response] == [ABORTED if n % 5 == 4 else COMMITTED for n in range(20)]
            assert len({one.producer_token for one in response}) == 20
            await stream.calls.done_sending()
            assert await stream.ended() is None
        expected = [n for n in range(20) if n % 5 != 4]
        for partition in range(2):
            await until_committed(cluster, *(b"%d" % n for n in expected if n % 2 == partition), partition=partition)
        assert await offset(cluster, stable=True) == 18

    with_transactions(story)


def test_an_aborted_transaction_leaves_nothing_and_an_empty_one_is_committed() -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as stream:
            await answers(stream.calls, 1)
            assert (await stream.ask(b"no", offsets=offsets(3), end=ABORT)).outcome == ABORTED
            assert (await stream.ask(end=COMMIT)).outcome == COMMITTED
            assert (await stream.ask(end=ABORT)).outcome == ABORTED
            assert (await stream.ask(b"yes", end=COMMIT)).outcome == COMMITTED
        await until_committed(cluster, b"yes")
        assert await offset(cluster, stable=True) == -1

    with_transactions(story)


@pytest.mark.parametrize("breaks", ["cut", "half-close", "bad request"])
def test_a_stream_that_ends_with_a_transaction_open_aborts_it(breaks: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster, timeout_ms=600_000) as stream:
            await answers(stream.calls, 1)
            await stream.ask(b"open", offsets=offsets(3))
            if breaks == "half-close":
                await stream.calls.done_sending()
                assert await stream.ended() is None
            elif breaks == "bad request":
                await stream.send(b"x", options=pb.PublishOptions(acks=common_pb2.ACKS_LEADER))
                assert isinstance(await stream.ended(), InvalidRequestError)
        await cluster.produce(b"plain")
        await until_committed(cluster, b"plain")  # long before the time-out: nothing holds it
        assert await offset(cluster, stable=True) == -1

    with_transactions(story)


def test_what_is_refused_leaves_nothing_but_an_abort_and_the_stream_goes_on() -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as stream:
            await answers(stream.calls, 1)
            assert (await stream.ask(b"a")).results[0].offset == 0
            large = await stream.ask(bytes(2 << 20))
            assert large.results[0].error.code == "MESSAGE_TOO_LARGE"
            assert (await stream.ask(b"b")).results[0].error.code == "TRANSACTION_ABORTABLE"
            ended = await stream.ask(end=COMMIT)
            assert (ended.outcome, ended.error.code) == (ABORTED, "TRANSACTION_ABORTABLE")
            assert "MESSAGE_TOO_LARGE" in ended.error.message
            refused = await stream.ask(b"c", offsets=offsets(3, member_id="gone", member_epoch=3), end=COMMIT)
            assert (refused.outcome, refused.error.code) == (ABORTED, "TRANSACTION_ABORTABLE")
            assert "UNKNOWN_MEMBER_ID" in refused.error.message
            assert (await stream.ask(b"d", end=COMMIT)).outcome == COMMITTED
        await until_committed(cluster, b"d")
        assert await offset(cluster, stable=True) == -1

    with_transactions(story)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (pb.PublishRecord(value=bytes(2 << 20)), "MESSAGE_TOO_LARGE"),
        (pb.PublishRecord(partition=-1), "INVALID_REQUEST"),
    ],
)
def test_beside_a_bad_record_the_others_of_its_request_say_why_they_are_not_written(
    bad: pb.PublishRecord, code: str
) -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as stream:
            await answers(stream.calls, 1)
            answer = await stream.ask(records=[*records(b"a", partition=0), bad, *records(b"b", partition=0)])
            errors = [one.error for one in answer.results]
            assert [one.code for one in errors] == ["TRANSACTION_ABORTABLE", code, "TRANSACTION_ABORTABLE"]
            assert f"record 1 of the request was refused, and the transaction can only be aborted: {code}" in (
                errors[0].message
            )
            ended = await stream.ask(end=COMMIT)
            assert (ended.outcome, ended.error.code) == (ABORTED, "TRANSACTION_ABORTABLE")
            assert ended.error.details["cause_code"] == code
            assert (await stream.ask(b"c", end=COMMIT)).outcome == COMMITTED
        await until_committed(cluster, b"c")
        assert cluster.node.leader().log_end_offset == 2  # and the marker

    with_transactions(story)


def test_the_second_stream_of_one_name_fences_the_first() -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as first, writing(cluster, "other") as other:
            await answers(first.calls, 1)
            await answers(other.calls, 1)
            await first.ask(b"zombie")
            async with writing(cluster) as second:
                await answers(second.calls, 1)
                await first.send(b"more")
                assert isinstance(await first.ended(), ProducerFencedError)
                assert (await second.ask(b"mine", end=COMMIT)).outcome == COMMITTED
            assert (await other.ask(b"its own", end=COMMIT)).outcome == COMMITTED
            async with writing(
                cluster, token=first.token
            ) as again:  # its producer id, and that the transaction has ended
                assert isinstance(await again.ended(), ProducerFencedError)
        await until_committed(cluster, b"mine", b"its own")

    with_transactions(story)


@pytest.mark.parametrize(
    "fields",
    [
        {"offsets": offsets(3)},
        {"records": records(b"x"), "offsets": offsets(3)},
        {"end": COMMIT},
        {"records": records(b"x"), "end": COMMIT},
        {"records": records(b"x"), "end": ABORT},
    ],
    ids=["offsets", "both", "commit", "record and commit", "record and abort"],
)
def test_whatever_is_sent_on_a_fenced_stream_ends_it(fields: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as first:
            await answers(first.calls, 1)
            await first.ask(b"zombie")
            async with writing(cluster) as second:
                await answers(second.calls, 1)
                await first.calls.send(pb.PublishStreamRequest(**fields))
                error = await first.ended()
                assert isinstance(error, ProducerFencedError)
                assert "'x'" in error.message
                assert (await second.ask(b"mine", end=COMMIT)).outcome == COMMITTED
        await until_committed(cluster, b"mine")
        assert await offset(cluster, stable=True) == -1

    with_transactions(story)


def test_outcomes_before_the_fence_are_sent_before_the_stream_ends() -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as first:
            await answers(first.calls, 1)
            for number in range(4):
                await first.send(b"%d" % number, end=COMMIT)
            await until_committed(cluster, b"0", b"1", b"2", b"3")
            async with writing(cluster) as second:
                await answers(second.calls, 1)
                for _ in range(8):  # more than the node reads ahead
                    await first.send(b"zombie", end=COMMIT)
                outcomes = [one.outcome for one in await answers(first.calls, 4)]
                assert outcomes == [COMMITTED] * 4
                assert isinstance(await first.ended(), ProducerFencedError)
        await until_committed(cluster, b"0", b"1", b"2", b"3")

    with_transactions(story)


@pytest.mark.parametrize("asked", [None, COMMIT, ABORT])
def test_a_stream_that_continues_with_the_token_gets_the_outcome(asked: pb.TransactionEnd.ValueType | None) -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as stream:
            await answers(stream.calls, 1)
            await stream.ask(b"a", offsets=offsets(3))
            token = stream.token  # the last one that the client has seen
            if asked is not None:
                await stream.ask(end=asked)
        async with writing(cluster, token=token) as again:
            (response,) = await answers(again.calls, 1)
            assert response.former_outcome == (COMMITTED if asked == COMMIT else ABORTED)
            assert (await again.ask(b"b", end=COMMIT)).outcome == COMMITTED
        await until_committed(cluster, *([b"a"] if asked == COMMIT else []), b"b")
        assert await offset(cluster, stable=True) == (3 if asked == COMMIT else -1)

    with_transactions(story)


def late_fields(what: str) -> dict[str, Any]:
    return {"offsets": offsets(3)} if what == "offsets" else {"records": records(b"late", partition=0)}


@pytest.mark.parametrize("end", [COMMIT, ABORT])
@pytest.mark.parametrize("late_is", ["record", "offsets"])
def test_a_transaction_that_is_open_too_long_is_aborted_and_the_stream_goes_on(
    late_is: str, end: pb.TransactionEnd.ValueType
) -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster, timeout_ms=5_000) as stream:
            await answers(stream.calls, 1)
            await stream.ask(b"slow")
            await cluster.produce(b"plain")
            await until_committed(cluster, b"plain")
            late = await stream.ask(**late_fields(late_is))
            error = late.error if late_is == "offsets" else late.results[0].error
            assert (error.code, error.retriable) == ("TRANSACTION_ABORTABLE", False)
            for answer in [await stream.ask(b"behind"), await stream.ask(offsets=offsets(4))]:
                (found,) = [one.error for one in answer.results] or [answer.error]
                assert (found.code, "timeout_ms" in found.message) == ("TRANSACTION_ABORTABLE", True)
            ended = await stream.ask(end=end)
            assert (ended.outcome, ended.error.code) == (ABORTED, "TRANSACTION_ABORTABLE" if end == COMMIT else "")
            assert (await stream.ask(b"again", end=COMMIT)).outcome == COMMITTED
        await until_committed(cluster, b"plain", b"again")
        assert await offset(cluster, stable=True) == -1

    with_transactions(story)


BAD = [
    ("no name", {"transactional": pb.TransactionalWriter()}, "transactional.transactional_id"),
    (
        "time-out",
        {"transactional": pb.TransactionalWriter(transactional_id="x", timeout_ms=-1)},
        "transactional.timeout_ms",
    ),
    (
        "time-out too long",
        {"transactional": pb.TransactionalWriter(transactional_id="x", timeout_ms=2**31 - 1)},
        "transaction_timeout_ms",
    ),
    ("acks", {"options": pb.PublishOptions(acks=common_pb2.ACKS_NONE)}, "options.acks"),
    ("token", {"producer_token": b"\1\2\3"}, "producer_token"),
    ("end", {"end": 9}, "end"),
    ("no offsets", {"offsets": [pb.TransactionOffsets(group="g")]}, "offsets[0].offsets"),
    ("a group twice", {"offsets": offsets(1) + offsets(2)}, "offsets[1]"),
    ("no topic", {"records": records(b"a")}, "topic"),
]


@pytest.mark.parametrize(("fields", "path"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_requests_end_the_stream_and_write_nothing(fields: dict[str, Any], path: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse) as calls:
            first = {"transactional": pb.TransactionalWriter(transactional_id="x"), **fields}
            await calls.send(pb.PublishStreamRequest(**first))
            error = await Stream(calls).ended()
        assert isinstance(error, InvalidRequestError)
        assert error.details["field"] == path
        assert cluster.node.leader().log_end_offset == 0

    with_transactions(story)


LATER = [
    ({"transactional": pb.TransactionalWriter(transactional_id="y")}, "transactional"),
    ({"producer_token": b"x"}, "producer_token"),
]


@pytest.mark.parametrize(("fields", "path"), LATER)
def test_only_the_first_request_says_who_writes(fields: dict[str, Any], path: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with writing(cluster) as stream:
            await answers(stream.calls, 1)
            await stream.send(b"a", **fields)
            error = await stream.ended()
            assert isinstance(error, InvalidRequestError)
            assert error.details["field"] == path

    with_transactions(story)


@pytest.mark.parametrize("fields", [{"offsets": offsets(1)}, {"end": COMMIT}])
def test_a_stream_without_transactions_ends_none(fields: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.stream(RECORDS + "PublishStream", pb.PublishStreamResponse) as calls:
            await calls.send(pb.PublishStreamRequest(topic="t", records=records(b"a"), **fields))
            error = await Stream(calls).ended()
            assert isinstance(error, InvalidRequestError)
            assert error.details["field"] == next(iter(fields))
        assert cluster.node.leader().log_end_offset == 0

    with_transactions(story)
