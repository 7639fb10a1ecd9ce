"""request_percentage, in virtual time: a handler's steps take time by a clock that runs ahead of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from streamlog.access.principals import PrincipalMapping
from streamlog.access.quotas import DEFAULT, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, QuotaEntity
from streamlog.aio.call_time import CALL_TIME, counted
from streamlog.api.errors import from_rpc
from streamlog.api.pb import batches_pb2, records_pb2
from streamlog.errors import ThrottledError
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import (
    Broker,
    BrokerRecord,
    ClientQuotaRecord,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, RaftIndex
from streamlog.node.metrics.quotas import quota_families
from streamlog.ports import CLIENT_ID_HEADER, CallInfo, RpcError
from streamlog.services.quotas import gate as gate_module
from streamlog.services.quotas.gate import CALL_BYTES, QuotaGate
from streamlog.services.quotas.limits import QuotaLimits
from streamlog.sim import SimLoop, run
from streamlog.sim.clock import SimClock
from streamlog.tls.identity import node_uri

PUBLISH, METADATA, FETCH = (
    "/streamlog.v1.Records/Publish",
    "/streamlog.v1.Batches/Metadata",
    "/streamlog.v1.Batches/Fetch",
)
HEARTBEAT, MEMBERSHIP = "/streamlog.v1.Groups/GroupHeartbeat", "/streamlog.v1.Groups/GroupMembership"
PRODUCE_STREAM, FETCH_STREAM = "/streamlog.v1.Batches/ProduceStream", "/streamlog.v1.Batches/FetchStream"
ALL = QuotaEntity(client_id=DEFAULT)
CALLED = CallInfo(method="", peer="10.0.0.1:5000", metadata={CLIENT_ID_HEADER: "etl"})


class BusyClock(SimClock):
    """Of a computer whose loop is busy while a step takes time."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.busy_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.busy_s


class Setup:
    def __init__(self, loop: SimLoop) -> None:
        self.view = MetadataView()
        self.index = 0
        self.clock = BusyClock(loop)
        self.limits = QuotaLimits(self.view, self.clock, window_num=11, window_s=1)
        self.gate = QuotaGate(self.limits, self.clock, PrincipalMapping(), self.view, lambda: 1)
        self.apply(MetadataVersionRecord(level=METADATA_VERSION_MAX))

    def apply(self, *records: MetadataRecord) -> None:
        self.index += 1
        self.view.machine.apply(RaftIndex(self.index), encode_batch(records))

    def limit(self, percent: float | None, key: str = REQUEST_PERCENTAGE) -> None:
        self.apply(ClientQuotaRecord(entity=ALL, key=key, value=percent))

    async def call(self, seconds: float, method: str = METADATA, info: CallInfo = CALLED, tasks: int = 0) -> bytes:
        """A call whose handler takes `seconds` of the loop in two steps, and as many in each of `tasks`."""

        async def work() -> None:
            self.clock.busy_s += seconds / 2
            await asyncio.sleep(1e-6)
            self.clock.busy_s += seconds / 2

        async def handler(request: bytes, info: CallInfo) -> bytes:
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(counted(work()))
                await work()
            return b""

        return await self.gate.unary(method, handler, for_nodes=True)(b"", info)

    async def stream(self, method: str, count: int, seconds: float, *, sends: bool = True) -> list[bytes]:
        """Of `count` messages, each of which takes so much. Returns the responses."""
        peer = Messages(count)

        async def handler(stream: Any, info: CallInfo) -> None:
            while await stream.recv() is not None:
                self.clock.busy_s += seconds
                if info.pace is not None and info.pace.active:
                    await info.pace.wait()
                if sends:
                    await stream.send(b"")

        await self.gate.stream(method, handler, for_nodes=True)(peer, CALLED)
        return peer.sent


class Messages:
    def __init__(self, count: int) -> None:
        self._left = count
        self.sent: list[bytes] = []

    async def send(self, message: bytes) -> None:
        self.sent.append(message)

    async def recv(self) -> bytes | None:
        self._left -= 1
        return None if self._left < 0 else b"message"

    async def done_sending(self) -> None: ...


def broker(node: int) -> Broker:
    return Broker(
        broker_id=BrokerId(node),
        epoch=BrokerEpoch(1),
        incarnation_id=bytes(16),
        host=f"node{node}",
        port=9092,
        metadata_version_min=MetadataVersion(1),
        metadata_version_max=METADATA_VERSION_MAX,
        directory_ids=(),
        fenced=False,
    )


def story(work: Callable[[Setup], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        await work(Setup(loop))

    run(main, seed=0)


def test_calls_take_their_part_of_the_time_one_after_another_or_together() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(10)
        for _ in range(100):
            await setup.call(0.01)
        assert setup.clock.busy_s == pytest.approx(1.0)
        assert setup.clock.monotonic() == pytest.approx(10 - 1, abs=0.3), "a window's worth is free"
        began = setup.clock.monotonic()
        await asyncio.gather(*(setup.call(0.01) for _ in range(100)))
        assert setup.clock.monotonic() - began == pytest.approx(10, abs=0.5), "a hundred at once get no more than one"

    story(work)


def test_a_call_that_takes_more_than_usual_is_paid_by_those_after_it_and_less_is_given_back() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(10)
        await setup.call(0.5)
        await setup.call(0.0001)
        assert setup.clock.monotonic() == pytest.approx(5 - 1, abs=0.1)
        await asyncio.sleep(2)
        began = setup.clock.monotonic()
        for _ in range(200):
            await setup.call(0.0001)
        assert setup.clock.monotonic() - began < 0.1, "cheap calls are within the limit"

    story(work)


def test_the_tasks_of_a_call_count() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(10)
        await setup.call(0.1, tasks=4)
        (bucket,) = setup.limits.buckets.values()
        assert bucket.used == pytest.approx(50)
        await setup.call(0.001)
        assert setup.clock.monotonic() == pytest.approx(5 - 1, abs=0.1)

    story(work)


@pytest.mark.parametrize("method", [PRODUCE_STREAM, FETCH_STREAM])
def test_streams_share_the_limit_and_say_how_long_they_were_held_up(method: str) -> None:
    types: dict[str, Any] = {
        PRODUCE_STREAM: batches_pb2.ProduceStreamResponse,
        FETCH_STREAM: batches_pb2.FetchStreamResponse,
    }

    async def work(setup: Setup) -> None:
        setup.limit(10)
        answers = await asyncio.gather(*(setup.stream(method, 50, 0.01) for _ in range(4)))
        took = setup.clock.monotonic()
        assert took == pytest.approx(20 - 1, abs=0.5)
        for sent in answers:
            waited_ms = sum(types[method].FromString(one).throttle_time_ms for one in sent)
            assert took * 2 / 3 < waited_ms / 1000 <= took, "but for what it waited after its last message"

    story(work)


def test_an_open_stream_is_held_from_the_moment_on_at_which_there_is_a_limit() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(None)
        going = asyncio.ensure_future(setup.stream(MEMBERSHIP, 1_000, 0.001))
        await asyncio.sleep(0)
        await going
        assert setup.clock.monotonic() == pytest.approx(1.0)
        setup.limit(50, PRODUCER_BYTE_RATE)
        await setup.call(5.0)
        assert not setup.limits.counts_time
        gate = asyncio.Event()

        async def handler(stream: Any, info: CallInfo) -> None:
            while await stream.recv() is not None:
                setup.clock.busy_s += 0.1
                await gate.wait()

        stream = asyncio.ensure_future(setup.gate.stream(PRODUCE_STREAM, handler, for_nodes=True)(Messages(5), CALLED))
        await asyncio.sleep(0.001)  # the first message is in work
        setup.limit(10)
        setup.limit(None, PRODUCER_BYTE_RATE)
        gate.set()
        began = setup.clock.monotonic()
        await stream
        assert setup.clock.monotonic() - began == pytest.approx(4 - 1, abs=0.2), "of five, the first was before it"
        setup.limit(None)
        assert not setup.limits.counts_time

    story(work)


def test_the_time_before_the_turn_is_in_the_response_with_that_of_other_limits() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(10)
        setup.limit(1_000, PRODUCER_BYTE_RATE)
        setup.limit(1_000, "consumer_byte_rate")
        await setup.call(0.3)
        assert setup.clock.monotonic() == pytest.approx(0.3, abs=0.001)
        response = records_pb2.PublishResponse.FromString(await setup.call(0.2, PUBLISH))
        assert response.throttle_time_ms == pytest.approx(3_000 - 1_000 - 300, abs=20)
        fetched = batches_pb2.FetchResponse.FromString(await setup.call(0.1, FETCH))
        assert fetched.throttle_time_ms == pytest.approx(2_000 - 200, abs=20)

    story(work)


def test_a_turn_too_far_away_is_refused_with_the_time_to_retry_and_costs_nothing() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(1)
        await asyncio.gather(*(setup.call(1.0) for _ in range(3)))  # 33 s of the limit, as one counts 11 at most
        with pytest.raises(RpcError) as caught:
            await setup.call(0.0001)
        error = from_rpc(caught.value)
        assert isinstance(error, ThrottledError)
        assert "request_percentage=1 (percent of the time of each node's event loop)" in str(error)
        await asyncio.sleep(int(str(error.details["retry_after_ms"])) / 1000)
        began = setup.clock.monotonic()
        await setup.call(0.0001)
        assert setup.clock.monotonic() - began < 0.1

    story(work)


def test_heartbeats_wait_for_a_window_at_most_and_are_never_refused() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(1)
        await setup.call(1.0)
        began = setup.clock.monotonic()
        await asyncio.gather(*(setup.call(0.0001, HEARTBEAT) for _ in range(10)))
        assert setup.clock.monotonic() - began == pytest.approx(1, abs=0.1)
        await setup.stream(MEMBERSHIP, 5, 0.0001, sends=False)
        assert setup.clock.monotonic() - began == pytest.approx(1 + 6, abs=0.1)

    story(work)


def test_heartbeats_do_not_wait_where_no_more_bytes_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "HELD_BYTES_MAX", 2 * CALL_BYTES)

    async def work(setup: Setup) -> None:
        setup.limit(1)
        await setup.call(1.0)
        waiting = [asyncio.ensure_future(setup.call(0.1, HEARTBEAT)) for _ in range(10)]
        await asyncio.sleep(0.01)
        assert sum(not one.done() for one in waiting) == 2
        await asyncio.gather(*waiting)

    story(work)


def test_nodes_health_checks_and_those_without_a_limit_never_wait() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(1)
        await setup.call(1.0)
        began = setup.clock.monotonic()
        await setup.call(1.0, info=CallInfo(method="", peer="10.0.0.2:5000", identity="CN=n", names=(node_uri(1),)))
        await setup.call(1.0, "/grpc.health.v1.Health/Check")
        setup.limit(None)
        await setup.call(1.0)
        assert setup.clock.monotonic() - began == pytest.approx(3)

    story(work)


def test_each_node_has_all_of_the_limit() -> None:
    async def work(setup: Setup) -> None:
        setup.apply(*(BrokerRecord(broker=broker(number)) for number in (1, 2, 3)))
        setup.limit(10)
        for _ in range(100):
            await setup.call(0.01)
        assert setup.clock.monotonic() == pytest.approx(10 - 1, abs=0.3)
        assert setup.limits.take_use() == [], "nothing of it is reported to other nodes"
        setup.limits.divide(lambda known, limit: pytest.fail("divided"))

    story(work)


def test_a_call_that_is_cancelled_while_it_waits_or_works_counts_what_it_used() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(10)
        await setup.call(0.2)
        waiting = asyncio.ensure_future(setup.call(5.0))
        await asyncio.sleep(0.5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        async def handler(request: bytes, info: CallInfo) -> bytes:
            setup.clock.busy_s += 0.3
            await asyncio.Event().wait()
            return b""

        working = asyncio.ensure_future(_call(setup.gate, handler))
        await asyncio.sleep(2)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        began = setup.clock.monotonic()
        await setup.call(0.001)
        waited_s = setup.clock.monotonic() - began
        assert 0.5 < waited_s < 3, "for 0.3 s of work, and not for 5 s"

    story(work)


async def _call(gate: QuotaGate, handler: Any) -> bytes:
    return await gate.unary(METADATA, handler, for_nodes=True)(b"", CALLED)


def test_the_metrics_say_how_much_time_was_used() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(10)
        await setup.call(0.25)
        await setup.stream(PRODUCE_STREAM, 1, 0.25)
        found = {one.name: one for one in quota_families(setup.limits)}
        (sample,) = found["streamlog_quota_holder_request_time_seconds_total"].samples
        assert sample[0] == ("client-id=etl",)
        assert sample[1] == pytest.approx(0.5)

    story(work)


def test_a_task_of_a_call_that_is_cancelled_before_its_first_step_leaves_nothing_behind() -> None:
    async def work(setup: Setup) -> None:
        setup.limit(10)

        async def idle() -> None: ...

        async def handler(request: bytes, info: CallInfo) -> bytes:
            assert CALL_TIME.get() is not None
            task = asyncio.ensure_future(counted(idle()))
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            return b"done"

        assert await _call(setup.gate, handler) == b"done"

    story(work)
