"""The gate around methods that write and read records, in virtual time: rates, turns, changes, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamlog.access.quotas import CONSUMER_BYTE_RATE, DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity
from streamlog.api.convert.quota_use import report, reported
from streamlog.api.errors import from_rpc
from streamlog.api.fetched import decode
from streamlog.api.pb import batches_pb2
from streamlog.errors import ThrottledError
from streamlog.model import BrokerId
from streamlog.node.metrics.quotas import quota_families
from streamlog.ports import CLIENT_ID_HEADER, NODE_HEADER, CallInfo, RpcError
from streamlog.services.common.outgoing import OutgoingBytes
from streamlog.services.quotas import gate as gate_module
from streamlog.services.quotas import limits as limits_module
from streamlog.services.quotas.gate import CALL_BYTES, HELD_BYTES_MAX
from streamlog.services.quotas.rate_bucket import RateBucket
from streamlog.tls.identity import node_uri
from tests.services.quotas.gated import FETCH, FETCH_STREAM, PRODUCE_STREAM, RATE, Messages, Setup, called, story


def test_one_stream_gets_its_rate() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        times = await setup.stream([1_000] * 350)
        assert setup.bytes_until(30.0) == pytest.approx(30 * RATE, rel=0.05)
        assert times[0] == 0, "a second's worth is free"
        assert max(times) <= 101
        assert sum(times) == pytest.approx(1000 * setup.clock.monotonic(), rel=0.05)

    story(work)


def test_many_streams_and_calls_get_no_more_than_one() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        streams = [setup.stream([1_000] * 20) for _ in range(10)]
        calls = [setup.publish(1_000) for _ in range(100)]
        await asyncio.gather(*streams, *calls)
        for until in (1.0, 5.0, 15.0, 25.0):
            assert setup.bytes_until(until) <= (until + 1) * RATE
        assert setup.bytes_until(25.0) >= 0.95 * 25 * RATE

    story(work)


def test_a_limit_that_is_set_or_removed_applies_within_a_second() -> None:
    async def work(setup: Setup) -> None:
        running = asyncio.ensure_future(setup.stream([5_000] * 1_000))
        setup.limit(100)
        await asyncio.sleep(10)
        slow = setup.bytes_until(10.0)
        setup.limit(RATE)
        await asyncio.sleep(10)
        assert setup.bytes_until(20.0) - slow == pytest.approx(10 * RATE, rel=0.2)
        setup.limit(None)
        await asyncio.wait_for(running, 1.0)

    story(work)


def test_uses_that_wait_do_not_look_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may wait."""
    looks: list[float] = []
    left_s = RateBucket.left_s

    def counted(bucket: RateBucket, place: float, now: float) -> float:
        looks.append(now)
        return left_s(bucket, place, now)

    monkeypatch.setattr(RateBucket, "left_s", counted)

    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(RATE)
        others = [called(metadata={CLIENT_ID_HEADER: f"client-{number}"}) for number in range(15)]
        for other in others:
            await setup.publish(RATE, other)
        began = setup.clock.monotonic()
        await asyncio.gather(
            *(setup.publish(RATE) for _ in range(15)), *(setup.publish(10 * RATE, other) for other in others)
        )
        assert setup.clock.monotonic() - began > 14
        assert len(looks) < 30 * 8  # 1,800 with four looks a second
        assert not setup.gate._queues

    story(work)


def test_each_use_goes_on_when_it_is_its_turn_whoever_leaves() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(RATE)
        ended: list[float] = []

        async def one() -> None:
            await setup.publish(RATE // 10)
            ended.append(setup.clock.monotonic())

        waiting = [asyncio.ensure_future(one()) for _ in range(190)]
        await asyncio.sleep(0.05)
        for one_of_three in waiting[1::3]:
            one_of_three.cancel()
            await asyncio.sleep(0)
        await asyncio.wait(waiting)
        assert ended == [pytest.approx(at / 10, abs=0.02) for at in range(1, 128)]
        assert not setup.gate._queues

    story(work)


def test_uses_that_wait_no_longer_are_not_kept() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(RATE)
        first = asyncio.ensure_future(setup.publish(5 * RATE))
        await asyncio.sleep(0.01)
        (queue,) = setup.gate._queues.values()
        for _ in range(1_000):
            another = asyncio.ensure_future(setup.publish(1_000))
            await asyncio.sleep(0)
            another.cancel()
            await asyncio.wait([another])
            assert len(queue._waiting) < 100
        first.cancel()
        await asyncio.wait([first])
        assert not queue._waiting
        assert queue._timer is None

    story(work)


def test_a_higher_rate_applies_to_those_that_wait_at_once() -> None:
    """As when another node no longer uses its share."""

    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(RATE)
        running = [asyncio.ensure_future(setup.publish(10 * RATE)) for _ in range(2)]
        await asyncio.sleep(1)
        for bucket in setup.limits.buckets.values():
            bucket.change_rate(19 * RATE, setup.clock.monotonic())
        await asyncio.sleep(0.5)
        assert sum(one.done() for one in running) == 1
        await asyncio.sleep(0.6)
        assert all(one.done() for one in running)

    story(work)


def test_those_below_the_limit_and_those_with_others_do_not_wait() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE, entity=QuotaEntity(client_id="etl"))
        busy = asyncio.ensure_future(setup.stream([5_000] * 20))
        for _ in range(20):
            assert await setup.publish(10_000, called(metadata={CLIENT_ID_HEADER: "other"})) == 0
        assert await setup.publish(10_000, called(metadata={})) == 0
        await busy
        began = setup.clock.monotonic()
        for _ in range(50):
            await asyncio.sleep(0.12)
            assert await setup.publish(1_000) == 0
        assert setup.clock.monotonic() - began == pytest.approx(6.0)

    story(work)


def test_a_large_request_counts_for_eleven_windows_at_most() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(100)
        await setup.publish(1_000_000)
        assert setup.clock.monotonic() == pytest.approx(10.0, abs=0.3)

    story(work)


def test_a_turn_that_is_too_far_is_refused_and_costs_nothing() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        waiting = [asyncio.ensure_future(setup.publish(50_000)) for _ in range(4)]
        await asyncio.sleep(0.01)
        with pytest.raises(RpcError) as refused:
            await setup.publish(50_000)
        error = from_rpc(refused.value)
        assert isinstance(error, ThrottledError)
        assert error.details["field"] == PRODUCER_BYTE_RATE
        with pytest.raises(RpcError, match="retry in"):
            await setup.publish(1_000, called(deadline=setup.clock.monotonic() + 5))
        await asyncio.gather(*waiting)
        assert setup.clock.monotonic() == pytest.approx(19.0, abs=0.3)
        assert setup.limits.totals[PRODUCER_BYTE_RATE].refused == 2

    story(work)


def test_bytes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "HELD_BYTES_MAX", 60_000)

    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        waiting = [asyncio.ensure_future(setup.publish(10_000)) for _ in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(RpcError, match="is exceeded, and requests of 0 MiB wait on this node already: retry in"):
            await setup.publish(10_000)
        await asyncio.gather(*waiting)
        await setup.publish(10_000)

    story(work)


def test_the_number_of_requests_that_wait_is_bounded_however_small_they_are() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(RATE)
        waiting = [asyncio.ensure_future(setup.publish(1)) for _ in range(5_000)]
        await asyncio.wait(waiting)
        refused = sum(one.exception() is not None for one in waiting)
        assert 5_000 - refused == HELD_BYTES_MAX // (CALL_BYTES + 1)
        await setup.publish(1)  # those that have left do not count

    story(work)


def test_a_cancelled_request_gives_its_place_back() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(10_000)
        cancelled = asyncio.ensure_future(setup.publish(100_000))
        await asyncio.sleep(0.1)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await setup.publish(10_000)
        assert setup.clock.monotonic() == pytest.approx(1.0, abs=0.3)

    story(work)


def test_nodes_are_never_held_up() -> None:
    node = called(metadata={NODE_HEADER: "1"})
    certified = called(identity="CN=node", names=(node_uri(1),))
    passed = called(principal="Node:1")

    async def plaintext(setup: Setup) -> None:
        setup.limit(RATE)
        for _ in range(10):
            assert await setup.publish(10_000, node) == 0
            assert await setup.publish(10_000, certified) == 0
            assert await setup.publish(10_000, passed) == 0

    async def over_tls(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(10_000, node)
        assert await setup.publish(10_000, node) > 0, "the header is not believed"
        forged = called(identity="CN=alice", metadata={NODE_HEADER: "1"})
        assert await setup.publish(10_000, forged) > 0

    story(plaintext)
    story(over_tls, for_nodes=False)


def test_a_user_is_the_principal_that_the_gate_before_has_found_or_that_of_the_certificate() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE, entity=QuotaEntity(user="alice"))
        setup.limit(RATE, entity=QuotaEntity(user="CN=bob"))
        for info in (called(principal="User:alice"), called(identity="CN=bob")):
            assert await setup.publish(10_000, info) == 0
            assert await setup.publish(10_000, info) > 0
        assert await setup.publish(10_000, called(principal="User:carol")) == 0
        assert await setup.publish(10_000, called(principal="User:carol")) == 0

    story(work)


def test_a_caller_without_a_certificate_is_anonymous_over_tls_too() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE, entity=QuotaEntity(user="ANONYMOUS"))
        await setup.publish(RATE, called())
        assert await setup.publish(RATE, called(identity="")) > 0

    story(work)


@pytest.mark.parametrize(
    "info",
    [
        called(metadata={CLIENT_ID_HEADER: "%00%1b[2J%E2%80%AE"}),
        called(metadata={CLIENT_ID_HEADER: "%01" * 200}),
        called(principal="User:" + "\x01" * 900),
    ],
)
def test_other_nodes_accept_reports_of_any_user_and_client_id(info: CallInfo) -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE, entity=QuotaEntity(user=DEFAULT, client_id=DEFAULT))
        await setup.publish(100, info)
        (use,) = setup.limits.take_use()
        assert reported(report(BrokerId(1), [use])) == (1, (use,))

    story(work)


def test_a_reading_stream_gets_its_rate_and_holds_no_bytes_while_it_waits() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE, CONSUMER_BYTE_RATE)
        budget = OutgoingBytes(1 << 20)
        sent: list[tuple[float, int]] = []
        throttled: list[int] = []

        async def handler(stream: Any, info: CallInfo) -> None:
            reader = budget.reader(copies=1)
            reader.pace = info.pace
            while setup.clock.monotonic() < 35:
                await reader.reserve_next(1_000)
                await stream.send(bytes_of(1_000))
                reader.release()

        async def take(data: bytes) -> None:
            decode(data, throttled.append)
            sent.append((setup.clock.monotonic(), len(data)))

        async def watch() -> None:
            while True:
                await asyncio.sleep(0.05)
                assert budget.used_bytes == 0

        watching = asyncio.ensure_future(watch())
        streams = [
            setup.gate.stream(FETCH_STREAM, handler, for_nodes=True)(Messages([], take), called()) for _ in range(3)
        ]
        await asyncio.gather(*streams)
        watching.cancel()
        await asyncio.wait([watching])
        assert sum(size for at, size in sent if at <= 30) == pytest.approx(30 * RATE, rel=0.05)
        assert max(throttled) == pytest.approx(300, abs=20)

    story(work)


def bytes_of(size: int) -> bytes:
    """A fetch response of about so many bytes."""
    part = batches_pb2.FetchedPartition(topic="t", batches=bytes(size))
    return batches_pb2.FetchStreamResponse(partitions=[part]).SerializeToString()


def test_a_wait_is_reported_once_though_responses_are_sent_during_the_next() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        times: list[int] = []

        async def handler(stream: Any, info: CallInfo) -> None:
            async def receive() -> None:
                while await stream.recv() is not None:
                    pass

            receiving = asyncio.ensure_future(receive())
            while not receiving.done():
                await asyncio.sleep(0.1)
                await stream.send(batches_pb2.ProduceStreamResponse().SerializeToString())

        async def take(data: bytes) -> None:
            times.append(batches_pb2.ProduceStreamResponse.FromString(data).throttle_time_ms)

        await setup.gate.stream(PRODUCE_STREAM, handler, for_nodes=True)(Messages([5_000] * 10, take), called())
        assert sum(times) == pytest.approx(1000 * setup.clock.monotonic(), abs=200)

    story(work)


def test_reading_calls_wait_before_they_read() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE, CONSUMER_BYTE_RATE)
        read_at: list[float] = []

        async def handler(request: bytes, info: CallInfo) -> bytes:
            assert info.pace is not None
            assert info.pace.bytes_max == gate_module.RESPONSE_BYTES_MIN
            await info.pace.wait()
            read_at.append(setup.clock.monotonic())
            return bytes_of(30_000)

        fetch = setup.gate.unary(FETCH, handler, for_nodes=True)
        times = []
        for _ in range(3):
            response = batches_pb2.FetchResponse.FromString(await fetch(b"", called()))
            times.append(response.throttle_time_ms)
        assert read_at == pytest.approx([0.0, 2.0, 5.0], abs=0.1)
        assert times == pytest.approx([0, 2_000, 3_000], abs=100)
        with pytest.raises(RpcError):
            await fetch(b"", called(deadline=setup.clock.monotonic() + 1))

    story(work)


def test_what_is_kept_by_client_id_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "BUCKETS_MAX", 10)
    monkeypatch.setattr(limits_module, "CALLERS_MAX", 20)

    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(10_000)
        for number in range(100):
            await setup.publish(1, called(metadata={CLIENT_ID_HEADER: f"other-{number}"}))
        assert len(setup.limits.buckets) == 10
        assert len(setup.limits._by_caller) <= 20

    story(work)


def test_metrics_say_who_was_held_up_and_for_how_long() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(10_000)
        await setup.publish(20_000)
        found = {family.name: dict(family.samples) for family in quota_families(setup.limits)}
        assert found["streamlog_quota_throttled_total"][PRODUCER_BYTE_RATE, "delayed"] == 1
        waited = found["streamlog_quota_holder_throttle_seconds_total"][PRODUCER_BYTE_RATE, "client-id=etl"]
        assert waited == pytest.approx(2.0, abs=0.1)
        assert found["streamlog_quota_throttle_seconds_total"][PRODUCER_BYTE_RATE,] == waited

    story(work)


def test_without_quotas_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(setup: Setup) -> None:
        def fail(*_: object) -> None:
            raise AssertionError

        monkeypatch.setattr(setup.limits, "bucket", fail)
        assert await setup.publish(1_000_000) == 0
        assert await setup.stream([1_000_000] * 3) == [0, 0, 0]

    story(work)


def test_those_behind_a_cancelled_request_move_forward_and_those_before_it_do_not() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(RATE)
        await setup.publish(10_000)
        ended: dict[str, float] = {}

        async def one(name: str, size: int) -> None:
            await setup.publish(size)
            ended[name] = setup.clock.monotonic()

        first = asyncio.ensure_future(one("first", 40_000))
        await asyncio.sleep(0.01)
        middle = asyncio.ensure_future(one("middle", 50_000))
        await asyncio.sleep(0.01)
        last = asyncio.ensure_future(one("last", 20_000))
        await asyncio.sleep(1)
        middle.cancel()
        await asyncio.wait([first, middle, last])
        assert ended == {"first": pytest.approx(4.0, abs=0.1), "last": pytest.approx(6.0, abs=0.1)}

    story(work)
