"""Conformance of the network port, continued: addresses, and connections that come, break and are silent."""

from __future__ import annotations

import asyncio
import errno

import pytest

from streamlog.errors import Status
from streamlog.ports import NoListenerError

from .network_cases import Blocker, M, call, double, echo, serve
from .networks import Net, eventually, on_both, outcome


@on_both
async def test_an_address_where_nobody_listens_refuses_at_once(net: Net) -> None:
    channel = net.client.connect(net.closed_address)
    begin = asyncio.get_running_loop().time()
    for _ in range(3):
        with pytest.raises(NoListenerError) as caught:
            await call(channel, timeout_s=9)
        assert caught.value.status is Status.UNAVAILABLE

    async def enter() -> None:
        async with channel.stream(M):
            pass

    assert (await outcome(enter()))[0] == "UNAVAILABLE"
    assert asyncio.get_running_loop().time() - begin < 5


@on_both
async def test_an_address_is_served_once(net: Net) -> None:
    server = await serve(net, unary=echo)
    with pytest.raises(OSError, match="in use") as refused:
        await serve(net, unary=echo, address=server.address)
    assert refused.value.errno == errno.EADDRINUSE
    assert await call(net.client.connect(server.address), b"a") == b"a!"
    await server.close()
    again = await serve(net, unary=echo, address=server.address)
    assert again.address == server.address


@on_both
async def test_a_channel_comes_back_by_itself(net: Net) -> None:
    server = await serve(net, unary=echo)
    channel = net.client.connect(server.address)
    assert await call(channel, b"1") == b"1!"
    await server.close()
    assert (await outcome(call(channel)))[0] == "UNAVAILABLE"
    await serve(net, unary=echo, address=server.address)
    begin = asyncio.get_running_loop().time()
    while (await outcome(call(channel)))[0] != "OK":  # noqa: ASYNC110  what is awaited is a success
        await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - begin < 2


@on_both
async def test_a_closing_server_waits_for_its_grace_and_no_longer(net: Net) -> None:
    patient, hopeless = Blocker(), Blocker()
    server = await net.server.listen(net.bind, unary={M: patient.unary, M + "2": hopeless.unary}, streaming={})
    channel = net.client.connect(server.address)
    spawn = asyncio.get_running_loop().create_task
    good = spawn(call(channel))
    bad = spawn(outcome(channel.unary(M + "2", b"", timeout_s=30)))
    await eventually(lambda: (patient.begun, hopeless.begun) == (1, 1))
    closing = spawn(server.close(grace_s=2))
    await asyncio.sleep(0.05)
    assert not closing.done()
    patient.open.set()
    assert await good == b"late"
    await closing
    assert (await bad)[0] in ("UNAVAILABLE", "CANCELLED")
    await eventually(lambda: hopeless.cancelled == 1)
    assert (await outcome(call(channel, timeout_s=5)))[0] == "UNAVAILABLE"


@on_both
async def test_closing_a_channel_ends_its_calls_without_cancelling_their_tasks(net: Net) -> None:
    blocker = Blocker()
    server = await net.server.listen(net.bind, unary={M: blocker.unary}, streaming={M + "2": blocker.streaming})
    channel = net.client.connect(server.address)
    spawn = asyncio.get_running_loop().create_task

    async def read() -> None:
        async with channel.stream(M + "2") as stream:
            await stream.recv()

    calls = [spawn(outcome(call(channel))), spawn(outcome(read()))]
    await eventually(lambda: blocker.begun == 2)
    await channel.close()
    assert [(await one)[0] for one in calls] == ["CANCELLED", "CANCELLED"]
    await eventually(lambda: blocker.cancelled == 2)
    assert (await outcome(call(channel)))[0] == "UNAVAILABLE"
    await channel.close()


@on_both
async def test_a_reset_ends_both_sides_and_nothing_is_resent(net: Net) -> None:
    blocker = Blocker()
    server = await serve(net, unary=blocker.unary)
    channel = net.client.connect(await net.through_link(server.address))
    task = asyncio.get_running_loop().create_task(outcome(call(channel)))
    await eventually(lambda: blocker.begun == 1)
    net.reset()
    assert (await task)[0] == "UNAVAILABLE"
    await eventually(lambda: blocker.cancelled == 1)
    assert blocker.begun == 1


@on_both
async def test_a_silent_peer_is_found_out_on_both_sides(net: Net) -> None:
    blocker = Blocker()
    server = await serve(net, streaming=blocker.streaming)
    channel = net.client.connect(await net.through_link(server.address))
    async with channel.stream(M) as stream:
        await eventually(lambda: blocker.begun == 1)
        net.block()
        begin = asyncio.get_running_loop().time()
        assert (await outcome(stream.recv()))[0] == "UNAVAILABLE"
        assert asyncio.get_running_loop().time() - begin < 5
        await eventually(lambda: blocker.cancelled == 1)
        assert asyncio.get_running_loop().time() - begin < 15
    assert (await outcome(channel.unary(M, b"", timeout_s=0.3)))[0] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    net.heal()


@on_both
async def test_a_short_silence_loses_nothing(net: Net) -> None:
    server = await serve(net, streaming=double)
    async with net.client.connect(await net.through_link(server.address)).stream(M) as stream:
        await stream.send(b"1")
        assert await stream.recv() == b"11"
        net.block()
        for i in range(5):
            await stream.send(b"%d" % i)
        receiving = asyncio.get_running_loop().create_task(stream.recv())
        await asyncio.wait([receiving], timeout=0.1)
        assert not receiving.done()
        net.heal()
        assert await receiving == b"00"
        assert [await stream.recv() for _ in range(4)] == [b"%d" % i * 2 for i in range(1, 5)]
