"""Conformance of the network port: each case runs on SimNetwork and on grpc.aio."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.errors import InvariantError, OffsetOutOfRangeError, Status
from streamlog.ports import ANY_METHOD, CallInfo, RpcError, Stream
from streamlog.ports.network import CRASHED

from .network_cases import Blocker, M, call, double, echo, first_answer, serve
from .networks import MESSAGE_BYTES_MAX, Net, eventually, on_both, outcome

# One request, one reply.


@on_both
async def test_a_call_is_answered(net: Net) -> None:
    server = await serve(net, unary=echo)
    channel = net.client.connect(server.address)
    assert await call(channel, b"a") == b"a!"
    assert await call(channel, b"") == b"!"
    replies = await asyncio.gather(*(call(channel, b"%d" % i) for i in range(50)))
    assert replies == [b"%d!" % i for i in range(50)]


@on_both
async def test_a_handler_knows_its_caller(net: Net) -> None:
    seen: list[CallInfo] = []

    async def unary(request: bytes, info: CallInfo) -> bytes:
        seen.append(info)
        return b""

    async def streaming(stream: Stream, info: CallInfo) -> None:
        seen.append(info)

    server = await net.server.listen(net.bind, unary={M: unary}, streaming={M + "2": streaming})
    channel = net.client.connect(server.address)
    await channel.unary(M, b"", timeout_s=10, metadata={"X-Trace": "42"})
    async with channel.stream(M + "2", metadata={"authorization": "Bearer t"}) as stream:
        assert await stream.recv() is None
    one, many = seen
    assert (one.method, one.metadata["x-trace"], one.identity) == (M, "42", None)
    assert (many.method, many.metadata["authorization"], many.deadline) == (M + "2", "Bearer t", None)
    assert ":" in one.peer
    assert not one.peer.startswith("ipv")
    now = asyncio.get_running_loop().time()
    assert one.deadline is not None
    assert now + 8 < one.deadline <= now + 10.1


@on_both
async def test_a_refusal_carries_status_message_and_details(net: Net) -> None:
    details = bytes(range(256))

    async def refuse(request: bytes, info: CallInfo) -> bytes:
        raise RpcError(Status.FAILED_PRECONDITION, "not the leader: ü", details_bin=details)

    server = await serve(net, unary=refuse)
    with pytest.raises(RpcError) as refused:
        await call(net.client.connect(server.address))
    error = refused.value
    assert (error.status, error.message, error.details_bin) == (
        Status.FAILED_PRECONDITION,
        "not the leader: ü",
        details,
    )


@on_both
async def test_an_error_of_ours_is_answered_by_its_status(net: Net) -> None:
    async def refuse(request: bytes, info: CallInfo) -> bytes:
        raise OffsetOutOfRangeError("offset 9 is beyond the end", log_start=0, log_end=5)

    server = await serve(net, unary=refuse)
    assert await outcome(call(net.client.connect(server.address))) == ("OUT_OF_RANGE", "offset 9 is beyond the end")
    assert net.crashes == []


@on_both
async def test_a_bug_in_a_handler_is_reported_to_the_owner_and_not_to_the_caller(net: Net) -> None:
    async def unary(request: bytes, info: CallInfo) -> bytes:
        raise InvariantError("a secret of ours")

    async def streaming(stream: Stream, info: CallInfo) -> None:
        raise KeyError("another")

    server = await net.server.listen(net.bind, unary={M: unary}, streaming={M + "2": streaming})
    channel = net.client.connect(server.address)
    assert await outcome(call(channel)) == ("UNKNOWN", CRASHED)
    assert await outcome(first_answer(channel, M + "2")) == ("UNKNOWN", CRASHED)
    assert [type(error) for error in net.crashes] == [InvariantError, KeyError]


@on_both
async def test_an_unknown_method_is_unimplemented(net: Net) -> None:
    server = await serve(net, unary=echo)
    channel = net.client.connect(server.address)
    assert (await outcome(channel.unary("/test.Service/No", b"", timeout_s=10)))[0] == "UNIMPLEMENTED"
    assert (await outcome(first_answer(channel, "/test.Service/No")))[0] == "UNIMPLEMENTED"


@on_both
async def test_a_handler_of_any_method_serves_those_without_one(net: Net) -> None:
    async def anything(stream: Stream, info: CallInfo) -> None:
        raise RpcError(Status.UNIMPLEMENTED, f"no {info.method}", details_bin=b"details")

    server = await net.server.listen(net.bind, unary={M: echo}, streaming={ANY_METHOD: anything})
    channel = net.client.connect(server.address)
    assert await call(channel, b"a") == b"a!"
    expected = ("UNIMPLEMENTED", "no /test.Service/No")
    assert await outcome(channel.unary("/test.Service/No", b"", timeout_s=10)) == expected
    assert await outcome(first_answer(channel, "/test.Service/No")) == expected
    with pytest.raises(RpcError) as caught:
        await channel.unary("/test.Service/No", b"", timeout_s=10)
    assert caught.value.details_bin == b"details"


@on_both
async def test_a_deadline_ends_the_call_and_its_handler(net: Net) -> None:
    blocker = Blocker()
    server = await serve(net, unary=blocker.unary)
    channel = net.client.connect(server.address)
    assert (await outcome(call(channel, timeout_s=0.2)))[0] == "DEADLINE_EXCEEDED"
    await eventually(lambda: blocker.cancelled == 1)
    assert (await outcome(call(channel, timeout_s=0)))[0] == "DEADLINE_EXCEEDED"


@on_both
async def test_cancelling_a_call_cancels_its_handler(net: Net) -> None:
    blocker = Blocker()
    server = await serve(net, unary=blocker.unary)
    channel = net.client.connect(server.address)
    task = asyncio.get_running_loop().create_task(call(channel))
    await eventually(lambda: blocker.begun == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: blocker.cancelled == 1)


@on_both
async def test_messages_over_the_limit_are_refused_and_the_channel_lives(net: Net) -> None:
    async def grow(request: bytes, info: CallInfo) -> bytes:
        return request * 2

    server = await serve(net, unary=grow)
    channel = net.client.connect(server.address)
    whole = MESSAGE_BYTES_MAX
    assert len(await call(channel, b"x" * (whole // 2))) == whole
    assert (await outcome(call(channel, b"x" * (whole // 2 + 1))))[0] == "RESOURCE_EXHAUSTED"
    assert (await outcome(call(channel, b"x" * (whole + 1))))[0] == "RESOURCE_EXHAUSTED"
    assert await call(channel, b"x") == b"xx"


@on_both
async def test_a_message_over_the_limit_ends_a_stream(net: Net) -> None:
    server = await serve(net, streaming=double)
    channel = net.client.connect(server.address)
    for size in (MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX // 2 + 1):
        async with channel.stream(M) as stream:
            await stream.send(b"x" * size)
            assert (await outcome(stream.recv()))[0] == "RESOURCE_EXHAUSTED"


# Streams.


@on_both
async def test_a_stream_carries_messages_in_order_both_ways(net: Net) -> None:
    server = await serve(net, streaming=double)
    async with net.client.connect(server.address).stream(M) as stream:
        for i in range(30):
            await stream.send(b"%d" % i)
        assert [await stream.recv() for _ in range(30)] == [b"%d" % i * 2 for i in range(30)]
        await stream.send(b"")
        assert await stream.recv() == b""
        await stream.done_sending()
        assert await stream.recv() is None
        assert await stream.recv() is None


@on_both
async def test_a_stream_that_ends_with_an_error_first_gives_what_was_sent(net: Net) -> None:
    async def half(stream: Stream, info: CallInfo) -> None:
        await stream.send(b"1")
        await stream.send(b"2")
        raise RpcError(Status.RESOURCE_EXHAUSTED, "enough", details_bin=b"\x00why")

    server = await serve(net, streaming=half)
    async with net.client.connect(server.address).stream(M) as stream:
        assert [await stream.recv(), await stream.recv()] == [b"1", b"2"]
        for _ in range(2):
            with pytest.raises(RpcError) as ended:
                await stream.recv()
            assert (ended.value.status, ended.value.message) == (Status.RESOURCE_EXHAUSTED, "enough")
            assert ended.value.details_bin == b"\x00why"
        assert await outcome(stream.send(b"x")) == ("RESOURCE_EXHAUSTED", "enough")


@on_both
async def test_a_send_after_the_end_says_that_the_call_is_over(net: Net) -> None:
    async def leave(stream: Stream, info: CallInfo) -> None:
        await stream.send(b"bye")

    server = await serve(net, streaming=leave)
    async with net.client.connect(server.address).stream(M) as stream:
        assert [await stream.recv(), await stream.recv()] == [b"bye", None]
        assert await outcome(stream.send(b"x")) == ("UNAVAILABLE", "the call has ended")
        await stream.done_sending()


@on_both
async def test_leaving_the_block_cancels_the_handler(net: Net) -> None:
    blocker = Blocker()
    server = await serve(net, streaming=blocker.streaming)
    async with net.client.connect(server.address).stream(M):
        await eventually(lambda: blocker.begun == 1)
    await eventually(lambda: blocker.cancelled == 1)


@on_both
async def test_an_error_in_the_block_passes_through_and_cancels(net: Net) -> None:
    blocker = Blocker()
    server = await serve(net, streaming=blocker.streaming)

    async def fail() -> None:
        async with net.client.connect(server.address).stream(M):
            await eventually(lambda: blocker.begun == 1)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()
    await eventually(lambda: blocker.cancelled == 1)


@on_both
async def test_a_sender_waits_for_its_reader(net: Net) -> None:
    message, count = b"x" * 10_000, 3000  # 30 MB: beyond all that buffers may hold
    go, got, sent = asyncio.Event(), [], []

    async def sink(stream: Stream, info: CallInfo) -> None:
        await go.wait()
        while (received := await stream.recv()) is not None:
            got.append(len(received))

    async def flood(stream: Stream) -> None:
        for i in range(count):
            await stream.send(message)
            sent.append(i)
        await stream.done_sending()

    server = await serve(net, streaming=sink)
    async with net.client.connect(server.address).stream(M) as stream:
        flooding = asyncio.get_running_loop().create_task(flood(stream))
        stalled = -1
        while not sent or stalled != len(sent):
            stalled = len(sent)
            await asyncio.sleep(0.2)
        assert 0 < stalled < count // 2
        go.set()
        await flooding
        assert await stream.recv() is None
    assert got == [len(message)] * count


@on_both
async def test_a_server_waits_for_its_reader(net: Net) -> None:
    sent = []

    async def flood(stream: Stream, info: CallInfo) -> None:
        for i in range(3000):
            await stream.send(b"x" * 10_000)
            sent.append(i)

    server = await serve(net, streaming=flood)
    async with net.client.connect(server.address).stream(M) as stream:
        stalled = -1
        while not sent or stalled != len(sent):
            stalled = len(sent)
            await asyncio.sleep(0.2)
        assert 0 < stalled < 1500
        for _ in range(3000):
            assert await stream.recv() is not None
        assert await stream.recv() is None


@on_both
async def test_two_users_of_one_direction_are_a_bug(net: Net) -> None:
    blocker, waits = Blocker(), []

    async def receive(stream: Stream) -> bytes | None:
        waits.append(True)
        return await stream.recv()

    server = await serve(net, streaming=blocker.streaming)
    async with net.client.connect(server.address).stream(M) as stream:
        receiving = asyncio.get_running_loop().create_task(receive(stream))
        await eventually(lambda: bool(waits))
        with pytest.raises(InvariantError):
            await stream.recv()
        await stream.done_sending()
        with pytest.raises(InvariantError):
            await stream.send(b"late")
        blocker.open.set()
        assert await receiving is None


@on_both
async def test_a_cancelled_recv_ends_the_call(net: Net) -> None:
    blocker = Blocker()
    server = await serve(net, streaming=blocker.streaming)
    async with net.client.connect(server.address).stream(M) as stream:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.recv()
        await eventually(lambda: blocker.cancelled == 1)
        assert (await outcome(stream.recv()))[0] == "CANCELLED"


@on_both
async def test_a_handler_that_gave_up_on_a_recv_can_still_answer(net: Net) -> None:
    seen = []

    async def impatient(stream: Stream, info: CallInfo) -> None:
        try:
            async with asyncio.timeout(0.1):
                await stream.recv()
        except TimeoutError:
            seen.append(await outcome(stream.recv()))
            raise RpcError(Status.ABORTED, "too slow") from None

    server = await serve(net, streaming=impatient)
    async with net.client.connect(server.address).stream(M) as stream:
        assert await outcome(stream.recv()) == ("ABORTED", "too slow")
    assert seen == [("CANCELLED", "an earlier send or recv was cancelled")]
