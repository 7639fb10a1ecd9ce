"""grpc.health.v1: through the network port in both worlds."""

from __future__ import annotations

import pytest
from grpc_health.v1 import health_pb2 as pb

from streamlog.api.health import Health
from streamlog.errors import InvariantError, Status
from streamlog.ports import Channel, RpcError

from ..ports.networks import Net, on_both
from .services import LoopClock, serving

CHECK = "/grpc.health.v1.Health/Check"
LIST = "/grpc.health.v1.Health/List"
WATCH = "/grpc.health.v1.Health/Watch"
RECORDS, BATCHES = "streamlog.v1.Records", "streamlog.v1.Batches"
SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING
UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


async def check(channel: Channel, service: str) -> int:
    request = pb.HealthCheckRequest(service=service).SerializeToString()
    return int(pb.HealthCheckResponse.FromString(await channel.unary(CHECK, request, timeout_s=5)).status)


@on_both
async def test_each_service_has_its_own_health_and_the_whole_serves_when_all_do(net: Net) -> None:
    health = Health([RECORDS, BATCHES])
    async with serving(net, [health.service(LoopClock())]) as server:
        channel = net.client.connect(server.address)
        assert [await check(channel, name) for name in (RECORDS, BATCHES, "")] == [NOT_SERVING] * 3
        health.set_serving(RECORDS, True)
        assert [await check(channel, name) for name in (RECORDS, BATCHES, "")] == [SERVING, NOT_SERVING, NOT_SERVING]
        health.set_serving(BATCHES, True)
        assert [await check(channel, name) for name in (RECORDS, BATCHES, "")] == [SERVING] * 3
        listed = pb.HealthListResponse.FromString(await channel.unary(LIST, b"", timeout_s=5)).statuses
        assert {name: status.status for name, status in listed.items()} == dict.fromkeys(
            ("", RECORDS, BATCHES), SERVING
        )
        with pytest.raises(RpcError) as caught:
            await check(channel, "streamlog.v1.Nothing")
        assert caught.value.status is Status.NOT_FOUND


@on_both
async def test_watchers_are_notified_of_each_change(net: Net) -> None:
    health = Health([RECORDS])
    async with (
        serving(net, [health.service(LoopClock())]) as server,
        net.client.connect(server.address).stream(WATCH) as stream,
        net.client.connect(server.address).stream(WATCH) as stranger,
    ):

        async def response() -> int:
            data = await stream.recv()
            assert data is not None
            return int(pb.HealthCheckResponse.FromString(data).status)

        await stream.send(pb.HealthCheckRequest(service=RECORDS).SerializeToString())
        assert await response() == NOT_SERVING
        health.set_serving(RECORDS, True)
        assert await response() == SERVING
        health.set_serving(RECORDS, True)  # no change
        health.set_serving(RECORDS, False)
        assert await response() == NOT_SERVING
        health.set_serving(RECORDS, True)
        assert await response() == SERVING
        await stranger.send(pb.HealthCheckRequest(service="later").SerializeToString())
        data = await stranger.recv()
        assert data is not None
        assert pb.HealthCheckResponse.FromString(data).status == UNKNOWN
        health.stop()
        assert await response() == NOT_SERVING


def test_a_node_that_stops_serves_nothing_any_more() -> None:
    health = Health([RECORDS])
    health.set_serving(RECORDS, True)
    health.stop()
    health.set_serving(RECORDS, True)
    assert health.is_serving(RECORDS) is False
    assert health.is_serving("") is False


def test_a_node_without_services_serves_until_it_stops() -> None:
    health = Health([])
    assert health.is_serving("") is True
    health.stop()
    assert health.is_serving("") is False


def test_the_health_of_a_service_that_is_not_there_is_not_set() -> None:
    with pytest.raises(InvariantError):
        Health([RECORDS]).set_serving(BATCHES, True)
