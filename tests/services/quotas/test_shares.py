"""A limit holds for all nodes together: three nodes in virtual time that report to each other what they use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from streamlog.access.principals import PrincipalMapping
from streamlog.access.quotas import PRODUCER_BYTE_RATE, VALUE_MAX, QuotaEntity, QuotaHolder
from streamlog.api.convert.quota_use import USES_MAX, QuotaUse, report, reported
from streamlog.api.pb import coordination_pb2 as pb
from streamlog.api.service import Call
from streamlog.errors import BrokerNotAvailableError, InvalidRequestError
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import Broker, BrokerRecord, ClientQuotaRecord, MetadataVersion, MetadataVersionRecord
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, RaftIndex
from streamlog.ports import CallInfo, RpcError
from streamlog.services.quotas.gate import QuotaGate
from streamlog.services.quotas.limits import QuotaCaller, QuotaLimits
from streamlog.services.quotas.shares import SHARE_MIN, QuotaShares, share_of
from streamlog.sim import SimLoop, run
from streamlog.sim.clock import SimClock
from streamlog.tls.identity import node_uri

RATE = 30_000
SIZE = 500
ALICE = QuotaHolder("alice", None)
CALLER = QuotaCaller("alice", "etl")
INFO = CallInfo(method="", peer="")


def use(rate: float, *, held_up: bool = False) -> QuotaUse:
    return QuotaUse(PRODUCER_BYTE_RATE, ALICE, rate, held_up)


def test_those_where_someone_waits_share_equally_what_the_others_leave() -> None:
    assert share_of(90, []) == 90
    assert share_of(90, [use(20), use(10)]) == 60
    assert share_of(90, [use(20), use(10, held_up=True)]) == 35
    assert share_of(90, [use(1, held_up=True), use(50, held_up=True)]) == 30
    assert share_of(90, [use(200)]) == 90 * SHARE_MIN


class Nodes:
    """`reaches`: whether a report from the one node arrives at the other."""

    def __init__(self, loop: SimLoop, count: int) -> None:
        self.clock = SimClock(loop)
        self.reaches: Callable[[int, int], bool] = lambda sender, receiver: True
        self.view = MetadataView()
        ids = range(1, count + 1)
        self.apply(
            MetadataVersionRecord(level=METADATA_VERSION_MAX), *(BrokerRecord(broker=broker(node)) for node in ids)
        )
        self.limits = {node: QuotaLimits(self.view, self.clock, window_num=11, window_s=1) for node in ids}
        self.gates = {
            node: QuotaGate(self.limits[node], self.clock, PrincipalMapping(), self.view, lambda: 1) for node in ids
        }
        self.shares = {
            node: QuotaShares(BrokerId(node), self.view, self.limits[node], self.peers(node), self.clock)
            for node in ids
        }
        self.used: list[tuple[float, int]] = []

    def apply(self, *records: Any) -> None:
        self.view.machine.apply(RaftIndex(self.view.image.index + 1), encode_batch(records))

    def peers(self, sender: int) -> Any:
        class Peers:
            async def call(_, receiver: BrokerId, method: str, request: Any, *rest: object) -> None:
                if not self.reaches(sender, receiver):
                    raise BrokerNotAvailableError("it does not respond", node=receiver)
                await self.shares[receiver].receive(request, Call(INFO, self.clock))

        return Peers()

    async def write(self, node: int, until: float, pause_s: float = 0.0) -> None:
        while self.clock.monotonic() < until:
            await self.gates[node].admit(PRODUCER_BYTE_RATE, CALLER, SIZE, SIZE, INFO)
            self.used.append((self.clock.monotonic(), node))
            await asyncio.sleep(pause_s)

    def rate(self, begin: float, end: float, node: int | None = None) -> float:
        """Of one node; None: of all."""
        return SIZE * sum(begin <= at < end and node in (None, by) for at, by in self.used) / (end - begin)


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


def story(work: Callable[[Nodes], Awaitable[None]], count: int = 3) -> None:
    async def main(loop: SimLoop) -> None:
        nodes = Nodes(loop, count)
        nodes.apply(ClientQuotaRecord(entity=QuotaEntity(user="alice"), key=PRODUCER_BYTE_RATE, value=RATE))
        running = [asyncio.ensure_future(one.run()) for one in nodes.shares.values()]
        await work(nodes)
        for one in running:
            one.cancel()
        await asyncio.wait(running)

    run(main, seed=0)


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_writes_to_all_nodes_gets_the_limit_once(count: int) -> None:
    async def work(nodes: Nodes) -> None:
        await asyncio.gather(*(nodes.write(node, 35) for node in nodes.gates))
        assert nodes.rate(0, 30) == pytest.approx(RATE, rel=0.05)
        assert nodes.rate(5, 35) == pytest.approx(RATE, rel=0.05)
        assert nodes.rate(5, 35, node=1) == pytest.approx(RATE / count, rel=0.05)

    story(work, count)


def test_a_client_that_writes_to_one_node_gets_all_of_it() -> None:
    async def work(nodes: Nodes) -> None:
        await nodes.write(2, 30)
        assert nodes.rate(0, 30) == pytest.approx(RATE, rel=0.05)

    story(work)


def test_what_nodes_with_little_use_leave_goes_to_the_others() -> None:
    async def work(nodes: Nodes) -> None:
        await asyncio.gather(nodes.write(1, 30, pause_s=SIZE / 3_000), nodes.write(2, 30), nodes.write(3, 30))
        assert nodes.rate(0, 30) == pytest.approx(RATE, rel=0.05)
        assert nodes.rate(5, 30, node=1) == pytest.approx(3_000, rel=0.1)
        assert nodes.rate(5, 30, node=2) == pytest.approx(13_500, rel=0.1)

    story(work)


def test_a_node_that_comes_into_use_gets_its_share_soon() -> None:
    async def work(nodes: Nodes) -> None:
        async def later() -> None:
            await asyncio.sleep(10)
            await nodes.write(2, 30)

        await asyncio.gather(nodes.write(1, 30), later())
        assert nodes.rate(13, 30, node=2) == pytest.approx(RATE / 2, rel=0.1)
        assert nodes.rate(13, 30) == pytest.approx(RATE, rel=0.05)

    story(work)


def test_a_node_that_is_not_heard_from_is_not_counted() -> None:
    async def work(nodes: Nodes) -> None:
        writing = asyncio.gather(nodes.write(1, 30), nodes.write(3, 10))
        await asyncio.sleep(10)
        nodes.reaches = lambda sender, receiver: sender != 3
        await writing
        assert nodes.rate(15, 30) == pytest.approx(RATE, rel=0.05)

    story(work)


def test_a_report_is_bounded_and_has_the_largest_uses() -> None:
    uses = [QuotaUse("k", QuotaHolder(None, str(number)), float(number), number == 3) for number in range(USES_MAX + 5)]
    node, found = reported(report(BrokerId(7), uses))
    assert (node, len(found)) == (7, USES_MAX)
    assert found[0] == uses[3]
    assert {one.rate for one in found} >= {float(USES_MAX + 4), 100.0}


@pytest.mark.parametrize(
    "request_",
    [
        pb.ReportQuotaUseRequest(node_id=-1),
        pb.ReportQuotaUseRequest(uses=[pb.QuotaUse(rate=float("nan"))]),
        pb.ReportQuotaUseRequest(uses=[pb.QuotaUse(rate=-1)]),
        pb.ReportQuotaUseRequest(uses=[pb.QuotaUse(rate=2 * VALUE_MAX)]),
        pb.ReportQuotaUseRequest(uses=[pb.QuotaUse(user="x" * 1_000)]),
        pb.ReportQuotaUseRequest(uses=[pb.QuotaUse()] * (USES_MAX + 1)),
    ],
)
def test_a_wrong_report_is_refused(request_: pb.ReportQuotaUseRequest) -> None:
    with pytest.raises(InvalidRequestError):
        reported(request_)


def test_a_node_reports_for_itself_only() -> None:
    async def work(nodes: Nodes) -> None:
        info = CallInfo(method="", peer="", identity="CN=node", names=(node_uri(3),))
        with pytest.raises(RpcError):
            await nodes.shares[1].receive(report(BrokerId(2), [use(5)]), Call(info, nodes.clock))

    story(work)
