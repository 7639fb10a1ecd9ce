"""Hosts under one seed: what a death, a pause, a cut or a jump of the clock looks like from the other side."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from streamlog.ports import CallInfo, Ports, RpcError, Stream
from streamlog.sim import Host, Order, SimError, SimLoop, World, run
from streamlog.sim.wires.fabric import KEEPALIVE_S
from streamlog.sim.world import TIMER_JITTER_S

from .sample_node import fingerprint

ECHO = "/test.Service/Echo"
SINK = "/test.Service/Sink"


class EchoNode:
    """Serves an echo, and a sink that keeps what it gets."""

    def __init__(self, address: str, ports: Ports) -> None:
        self._address = address
        self._ports = ports
        self.got: list[bytes] = []
        self.cancelled = 0

    async def run(self) -> None:
        await self._ports.network.listen(self._address, unary={ECHO: self._echo}, streaming={SINK: self._sink})
        await asyncio.Event().wait()

    async def _echo(self, request: bytes, info: CallInfo) -> bytes:
        self.got.append(request)
        return request

    async def _sink(self, stream: Stream, info: CallInfo) -> None:
        try:
            while (message := await stream.recv()) is not None:
                self.got.append(message)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Pair:
    """A client's host and a server's."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.world = World(loop, seed)
        self.server = self.world.host("server")
        self.client = self.world.host("client")
        self.channel = self.client.boot().network.connect("server:1")
        self.node = self.start()

    def start(self) -> EchoNode:
        self.node = self.server.start(lambda ports: EchoNode("server:1", ports))
        return self.node

    async def echo(self, message: bytes = b"x", timeout_s: float = 60.0) -> str:
        try:
            await self.channel.unary(ECHO, message, timeout_s=timeout_s)
        except RpcError as error:
            return error.status.name
        return "OK"

    async def until_up(self) -> None:
        while await self.echo() != "OK":  # noqa: ASYNC110  what is awaited is a success
            await asyncio.sleep(0.05)

    async def timed(self, work: Coroutine[Any, Any, object]) -> tuple[object, float]:
        """Its result, and how long it took in virtual seconds."""
        begin = self.loop.now
        return await work, self.loop.now - begin


Story = Callable[[Pair], Coroutine[Any, Any, None]]


def play(story: Story, seeds: int = 5) -> None:
    """With the client's part run as the client's process."""
    for seed in range(seeds):

        async def main(loop: SimLoop, seed: int = seed) -> None:
            pair = Pair(loop, seed)
            await asyncio.sleep(0.05)
            await pair.client.spawn(story(pair))
            pair.world.stop()

        order = Order.SHUFFLE if seed % 2 else Order.FIFO
        run(main, seed=seed, order=order, jitter_s=TIMER_JITTER_S, until_s=200)


def test_a_seed_is_a_run_in_every_process() -> None:
    seeds = ["1", "2"]
    root = Path(__file__).parent.parent.parent
    printed = {
        subprocess.run(
            [sys.executable, "-m", "tests.sim.sample_node", *seeds],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "77", "random")
    }
    here = [fingerprint(int(seed)) for seed in seeds]
    assert printed == {" ".join(map(str, here)) + "\n"}
    assert here[0] != here[1]


def test_a_crash_resets_connections_at_once_and_a_power_cut_does_not() -> None:
    async def wait(pair: Pair, strike: Callable[[Host], None]) -> None:
        async with pair.channel.stream(SINK) as stream:
            await stream.send(b"x")
            strike(pair.server)
            with pytest.raises(RpcError):
                await stream.recv()

    async def story(pair: Pair) -> None:
        _, crash_s = await pair.timed(wait(pair, Host.crash))
        pair.start()
        await pair.until_up()
        _, power_s = await pair.timed(wait(pair, Host.power_cut))
        assert crash_s < 0.2
        assert KEEPALIVE_S - 0.1 < power_s < KEEPALIVE_S + 0.5

    play(story)


def test_a_dark_host_does_not_even_refuse() -> None:
    async def story(pair: Pair) -> None:
        pair.server.crash()
        status, refused_s = await pair.timed(pair.echo())
        pair.server.power_cut()
        await asyncio.sleep(1)
        _, dark_s = await pair.timed(pair.echo())
        assert status == "UNAVAILABLE"
        assert refused_s < 0.2
        assert dark_s >= pair.world.fabric.connect_s
        await asyncio.sleep(1)
        assert await pair.echo(timeout_s=0.5) == "DEADLINE_EXCEEDED"

    play(story)


def test_a_frame_to_a_process_of_before_is_answered_by_a_reset() -> None:
    async def story(pair: Pair) -> None:
        async with pair.channel.stream(SINK) as stream:
            await stream.send(b"x")
            await asyncio.sleep(0.2)
            pair.server.power_cut()
            pair.start()
            await stream.send(b"y")
            with pytest.raises(RpcError):
                await stream.recv()
            assert pair.loop.now < 1
        assert b"y" not in pair.node.got

    play(story)


def test_frames_of_one_connection_keep_their_order_and_those_of_two_do_not() -> None:
    overtaken = []

    async def story(pair: Pair) -> None:
        other = pair.client.ports.network.connect("server:1")
        async with pair.channel.stream(SINK) as one, other.stream(SINK) as two:
            for i in range(50):
                await one.send(b"one %03d" % i)
                await two.send(b"two %03d" % i)
            for stream in (one, two):
                await stream.done_sending()
                assert await stream.recv() is None
        for name in (b"one", b"two"):
            mine = [message for message in pair.node.got if message.startswith(name)]
            assert mine == sorted(mine)
            assert len(mine) == 50
        numbers = [message[4:] for message in pair.node.got]
        overtaken.append(numbers != sorted(numbers))

    play(story)
    assert any(overtaken)


def test_a_link_cut_one_way_lets_the_request_through_and_not_the_answer() -> None:
    async def story(pair: Pair) -> None:
        assert await pair.echo(b"before") == "OK"
        pair.world.fabric.block("server", "client")
        assert await pair.echo(b"during", timeout_s=1) == "DEADLINE_EXCEEDED"
        assert pair.node.got == [b"before", b"during"]
        pair.world.fabric.heal([("server", "client")])
        assert await pair.echo(b"after") == "OK"

    play(story)


def test_a_cut_healed_and_made_again_counts_from_zero() -> None:
    async def story(pair: Pair) -> None:
        async with pair.channel.stream(SINK) as stream:
            await stream.send(b"x")
            for _ in range(3):
                pair.world.fabric.block("client", "server")
                await asyncio.sleep(KEEPALIVE_S * 0.7)
                pair.world.fabric.heal()
                await asyncio.sleep(0.01)
            await stream.done_sending()
            assert await stream.recv() is None

    play(story)


def test_a_stopped_process_is_given_up_and_goes_on_when_resumed() -> None:
    async def story(pair: Pair) -> None:
        async with pair.channel.stream(SINK) as stream:
            await stream.send(b"x")
            await asyncio.sleep(0.2)
            pair.server.pause()
            await stream.send(b"y")
            with pytest.raises(RpcError):
                await stream.recv()
            assert pair.node.got == [b"x"]
        assert await pair.echo() == "UNAVAILABLE"
        pair.server.resume()
        await asyncio.sleep(0.5)
        assert pair.node.cancelled == 1
        assert await pair.echo(b"z") == "OK"

    play(story)


def test_a_short_stop_is_not_noticed() -> None:
    async def story(pair: Pair) -> None:
        pair.server.pause()
        calling = asyncio.get_running_loop().create_task(pair.echo())
        await asyncio.sleep(1)
        pair.server.resume()
        assert await calling in ("OK", "UNAVAILABLE")  # an unanswered handshake times out
        assert await pair.echo() == "OK"
        pair.server.pause()
        calling = asyncio.get_running_loop().create_task(pair.echo())
        await asyncio.sleep(1)
        pair.server.resume()
        assert await calling == "OK"

    play(story)


def test_clock_and_disk_outlive_the_process() -> None:
    async def story(pair: Pair) -> None:
        before = pair.server.clock.wall_ms()
        pair.server.clock.jump_ms = -3_600_000
        file = pair.server.ports.fs.open("/a", create=True)
        file.pwritev([b"abc"], 0)
        pair.server.crash()
        pair.start()
        assert pair.server.ports.clock.wall_ms() < before
        assert pair.server.ports.clock.monotonic() == pair.loop.now
        assert pair.server.ports.fs.open("/a").pread(9, 0) == b"abc"
        assert pair.server.process is not None
        assert pair.server.process.incarnation == 2

    play(story)


def test_incarnations_throw_dice_of_their_own_and_parts_do_not_share() -> None:
    async def main(loop: SimLoop) -> list[float]:
        world = World(loop, 1)
        first = world.host("a").boot().random.random()
        world.host("a").crash()
        second = world.host("a").boot().random.random()
        other = world.host("b").boot().random.random()
        world.stop()
        return [first, second, other, world.stream("faults").random()]

    assert len(set(run(main))) == 4
    assert run(main) == run(main)


def test_a_bug_in_a_handler_fails_the_run() -> None:
    class Buggy(EchoNode):
        async def _echo(self, request: bytes, info: CallInfo) -> bytes:
            raise KeyError("a bug")

    async def main(loop: SimLoop) -> None:
        world = World(loop, 1)
        world.host("server").start(lambda ports: Buggy("server:1", ports))
        channel = world.host("client").boot().network.connect("server:1")

        async def call() -> None:
            await asyncio.sleep(0.05)
            with pytest.raises(RpcError):
                await channel.unary(ECHO, b"", timeout_s=5)

        await world.host("client").spawn(call())
        world.stop()

    with pytest.raises(SimError, match=r"a handler of server#1 failed.*a bug"):
        run(main)


def test_a_node_that_dies_in_a_call_takes_its_connections_with_it() -> None:
    async def story(pair: Pair) -> None:
        assert await pair.echo() == "OK"
        assert pair.server.process is not None
        pair.server.process.fuse = 0
        pair.server.spawn(make_directory(pair.server.ports))
        async with pair.channel.stream(SINK) as stream:
            with pytest.raises(RpcError):
                await stream.recv()
        assert not pair.server.alive
        assert pair.loop.now < 1

    async def make_directory(ports: Ports) -> None:
        ports.fs.mkdir("/never")

    play(story)
