"""What the log of a program says of its clients: what they wait for, and what they skip."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from streamlog.client.connection.connection_log import ConnectionLog
from streamlog.client.log_lines import REPEAT_S
from streamlog.client.producer.async_producer import AsyncProducer
from streamlog.errors import RequestTimedOutError, UnknownTopicIdError
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports import CallInfo, NoListenerError, RpcError
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.system import SystemClock
from streamlog.sim import SimLoop, run
from tests.node.kit import Nodes, run_story

from .groups.group_stage import GroupStage, perform
from .stage import Stage, fill, lines, play, take

T0 = TopicPartition("t", PartitionId(0))
ECHO = "/test.Service/Echo"


@pytest.fixture(autouse=True)
def informed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "streamlog.client"):
        yield


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name.startswith("streamlog.client")]


class HandClock(SystemClock):
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_node_that_cannot_be_reached_is_named_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    log = ConnectionLog(clock)
    reason = "no connection to n1:9092: connection refused"
    for _ in range(10):
        log.failed("n1:9092", reason)
        clock.now += REPEAT_S / 10
    assert logged(caplog) == [("WARNING", reason)]
    log.failed("n2:9092", "no connection to n2:9092: it\ndoes not answer")
    log.failed("n1:9092", reason)
    clock.now += 20
    log.connected("n1:9092")
    log.connected("n1:9092")
    clock.now += 9_000
    log.failed("n2:9092", "no connection to n2:9092: the name is not known")
    log.lost("n1:9092", "the peer has closed the connection")
    log.connected("n1:9092")
    assert logged(caplog)[1:] == [
        ("WARNING", "no connection to n2:9092: it\\ndoes not answer"),
        ("WARNING", f"{reason}, for 30 s now"),
        ("INFO", "connected to n1:9092, after 50 s"),
        ("WARNING", "no connection to n2:9092: the name is not known"),
        ("INFO", "lost the connection to n1:9092: the peer has closed the connection"),
        ("INFO", "connected to n1:9092 again"),
    ]


class Events:
    def __init__(self) -> None:
        self.all: list[str] = []
        self.has_connected = asyncio.Event()

    def connected(self, address: str) -> None:
        self.all.append("connected")
        self.has_connected.set()

    def failed(self, address: str, reason: str) -> None:
        assert address in reason
        self.all.append("failed")

    def lost(self, address: str, reason: str) -> None:
        self.all.append(f"lost: {reason}")


async def test_what_happens_to_connections_is_passed_on_once() -> None:
    async def echo(request: bytes, info: CallInfo) -> bytes:
        return request

    def crash(error: Exception) -> None:
        raise error

    events = Events()
    node, client = GrpcNetwork(on_crash=crash), GrpcNetwork(on_crash=crash, events=events)
    server = await node.listen("127.0.0.1:0", unary={ECHO: echo}, streaming={})
    channel = client.connect(server.address)
    for _ in range(2):
        assert await channel.unary(ECHO, b"x", timeout_s=9) == b"x"
    assert events.all == ["connected"]
    await server.close()
    while events.all[-1] != "failed":
        with pytest.raises(RpcError):
            await channel.unary(ECHO, b"x", timeout_s=9)
    with pytest.raises(NoListenerError):  # at once, without an attempt
        await channel.unary(ECHO, b"x", timeout_s=9)
    assert events.all[-1] == "failed"
    server = await node.listen(server.address, unary={ECHO: echo}, streaming={})
    while events.all[-1] != "connected":
        await asyncio.gather(channel.unary(ECHO, b"x", timeout_s=9), return_exceptions=True)
    before = list(events.all)
    await client.close()  # this end's own wish
    await node.close()
    assert events.all == before


def test_a_connection_that_breaks_is_lost() -> None:
    events = Events()

    async def main() -> None:
        async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\0\0\0\4\0\0\0\0\0")  # SETTINGS
            await reader.readuntil(b"SM\r\n\r\n")
            asked.set_result(None)
            await may_end
            writer.write_eof()  # close(), with bytes of the call still unread, would reset the connection
            await reader.read()
            writer.close()

        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        may_end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(hangs_up, "127.0.0.1", 0)
        network = GrpcNetwork(on_crash=lambda _: None, events=events)
        channel = network.connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        call = asyncio.ensure_future(channel.unary(ECHO, b"x", timeout_s=9))
        await asked
        await events.has_connected.wait()
        may_end.set_result(None)
        with pytest.raises(RpcError):
            await call
        server.close()
        await network.close()

    asyncio.run(main())
    assert events.all == ["connected", "lost: the peer has closed the connection"]


def test_records_that_wait_are_warned_of_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        caplog.clear()
        logs = stage.cluster.create("t", 3)
        async with stage.producer(linger_ms=2_000) as producer:
            for partition in range(3):
                await producer.send("t", b"before", partition=partition)
            for log in logs[:2]:
                stage.cluster.move(log, -1)
            await asyncio.sleep(1)
            waiting = [producer.send("t", b"x", partition=partition) for partition in range(3)]
            await asyncio.sleep(11)
            assert logged(caplog) == []
            await asyncio.sleep(45)
            reason = "the partition has no known leader"
            assert [level for level, _ in logged(caplog)] == ["WARNING", "WARNING"]
            assert all(reason in text and " and 1 more partition " in text for _, text in logged(caplog))
            for log in logs[:2]:
                stage.cluster.move(log, 1)
            await asyncio.gather(*waiting)
            await asyncio.sleep(5)
            await producer.send("t", b"x")
            await asyncio.sleep(5)
            assert logged(caplog)[2:] == [("INFO", "no record has waited for 12 s to be acknowledged any more")]

    play(story)


def test_a_handler_that_raises_or_sends_does_not_stop_the_producer() -> None:
    """The deadline of records holds all the same; and the line is written without the lock of `send`."""

    class Sends(logging.Handler):
        def __init__(self, send: Callable[[], object]) -> None:
            super().__init__()
            self.send = send
            self.texts: list[str] = []
            self.lock_is_held = False

        def emit(self, record: logging.LogRecord) -> None:
            self.texts.append(record.getMessage())
            other = threading.Thread(target=self.send, daemon=True)
            other.start()
            other.join(5)
            self.lock_is_held |= other.is_alive()
            raise ZeroDivisionError

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        guard = threading.RLock()

        def send() -> None:
            with guard:
                pass

        handler = Sends(send)
        config = {"bootstrap.servers": stage.cluster.bootstrap, "delivery.timeout.ms": 40_000}
        logger = logging.getLogger("streamlog.client.producer")
        logger.addHandler(handler)
        try:
            async with AsyncProducer(config, ports=stage.ports, guard=guard) as producer:
                await producer.send("t", b"before")
                stage.cluster.move(log, -1)
                await asyncio.sleep(1)
                begun = stage.loop.now
                with pytest.raises(RequestTimedOutError):
                    await producer.send("t", b"x")
                assert stage.loop.now - begun < 45
        finally:
            logger.removeHandler(handler)
        assert "have waited for" in handler.texts[0]
        assert not handler.lock_is_held

    async def main(loop: SimLoop) -> None:
        stage = Stage(loop, 0)
        await stage.client.spawn(story(stage))
        stage.world.stop()

    run(main, seed=0, until_s=400)


def test_a_record_of_a_topic_that_is_deleted_is_not_late_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        caplog.clear()
        [log] = stage.cluster.create("t")
        async with stage.producer() as producer:
            await producer.send("t", b"before")
            stage.cluster.move(log, -1)
            await asyncio.sleep(1)
            waiting = producer.send("t", b"x")
            await asyncio.sleep(15)
            stage.cluster.delete("t")
            with pytest.raises(UnknownTopicIdError):
                await waiting
            await asyncio.sleep(60)
            assert [level for level, _ in logged(caplog)] == ["WARNING", "INFO"]

    play(story, seeds=1)


def test_records_that_are_skipped_or_read_again_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        caplog.clear()
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(50))
        log.start = 20
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0], start=5)
            assert await take(consumer, 30) == lines(50)[20:]
            [(level, skipped)] = logged(caplog)
            assert level == "WARNING"
            assert "reading goes on at earliest (auto.offset.reset)" in skipped
            caplog.clear()
            log.truncate(40)
            stage.cluster.move(log, 1)
            fill(stage.cluster, log, lines(20))
            assert await take(consumer, 20) == lines(20)
            assert logged(caplog) == [
                (
                    "WARNING",
                    "t-0: the log was truncated below what was read: 10 offsets from 40 on are read again, and may be"
                    " other records",
                )
            ]

    play(story)


def test_what_a_member_of_a_group_reads_is_said_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: GroupStage) -> None:
        caplog.clear()
        a = stage.reader("a").start()
        await stage.shared(a)
        b = stage.reader("b").start()
        await stage.shared(a, b)
        said = [text for level, text in logged(caplog) if level == "INFO" and ": member " in text]
        assert len(said) == 3
        assert all("group g: member " in text for text in said)
        first, revoked, assigned = (text.split(") ", 1)[1] for text in said)
        assert first == "reads t-0, t-1; 2 in all"
        assert re.fullmatch("no longer reads t-[01]; 1 in all", revoked)
        assert re.fullmatch("reads t-[01]; 1 in all", assigned)

    perform(story)


def test_partitions_that_are_not_fetched_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        caplog.clear()
        logs = stage.cluster.create("t", 3)
        for log in logs:
            fill(stage.cluster, log, lines(5))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition("t", PartitionId(number)) for number in range(3)])
            assert len(await take(consumer, 15)) == 15
            consumer.pause([T0])
            for log in logs:
                stage.cluster.move(log, -1)
            await asyncio.sleep(8)
            assert logged(caplog) == []
            await asyncio.sleep(42)
            assert [level for level, _ in logged(caplog)] == ["WARNING", "WARNING"]
            for _, text in logged(caplog):
                assert re.fullmatch(r"t-[12] and 1 more have not been fetched for [\d.]+ s: t-[12] has no leader", text)
            for log in logs:
                stage.cluster.move(log, 2)
            await asyncio.sleep(5)
            assert logged(caplog)[2:] == [("INFO", "no partition has waited for 10 s to be fetched any more")]

    play(story)


def test_a_coordinator_that_does_not_answer_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: GroupStage) -> None:
        a = stage.reader("a").start()
        await stage.shared(a)
        caplog.clear()
        for number in range(1, stage.nodes.voters + 1):
            stage.nodes.host(number).crash()
        await asyncio.sleep(50)
        silent = "no answer from its coordinator"
        said = [text for level, text in logged(caplog) if level == "WARNING" and silent in text]
        assert said
        assert all(re.match(r"group g: no answer from its coordinator for [\d.]+ s: [A-Z_]+: ", text) for text in said)
        for number in range(1, stage.nodes.voters + 1):
            stage.nodes.start(number)
        await stage.nodes.until(
            lambda: ("INFO", "group g: its coordinator answers again") in logged(caplog), within_s=60
        )

    perform(story)


def test_topics_that_do_not_exist_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[tuple[str, str]]:
        return [line for line in logged(caplog) if "exist" in line[1]]

    who = "group g: this member is subscribed to"

    async def story(stage: GroupStage) -> None:
        a = stage.reader("a").start(["t", "typo", "later"])
        await stage.nodes.until(lambda: len(a.owned) == 2)
        await asyncio.sleep(12)
        assert said() == []
        await asyncio.sleep(10)
        both = ("WARNING", f"{who} topics that do not exist, later, typo: each is read once it is created")
        assert said() == [both]
        await asyncio.sleep(60)
        assert said() == [both] * 3
        await stage.create("later", 1)
        await asyncio.sleep(35)
        one = ("WARNING", f"{who} a topic that does not exist, typo: it is read once it is created")
        assert said()[3:] == [one]
        await stage.create("typo", 1)
        await stage.nodes.until(lambda: len(a.owned) == 4)
        await asyncio.sleep(6)
        assert said()[4:] == [("INFO", "group g: all its topics exist now")]
        await stage.delete("t")
        await asyncio.sleep(20)
        assert said()[5:] == [("WARNING", f"{who} a topic that does not exist, t: it is read once it is created")]
        caplog.clear()
        b = stage.reader("b", group_id="h").start(["later"])
        c = stage.reader("c", group_id="h").start(["later"])
        await stage.nodes.until(lambda: bool(b.owned or c.owned))
        await asyncio.sleep(60)
        assert [text for _, text in said() if "group h" in text] == []  # the other member reads it

    perform(story)


def test_the_look_for_topics_that_do_not_exist_creates_none(caplog: pytest.LogCaptureFixture) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start(auto_create_topics_enable="true")
        await nodes.ready()
        stage = GroupStage(nodes)
        await stage.create("t", 1)
        a = stage.reader("a").start(["t", "typo"])
        await nodes.until(lambda: bool(a.owned))
        await asyncio.sleep(25)
        assert any("does not exist, typo" in text for _, text in logged(caplog))
        assert nodes.node(1).view.image.topic_named("typo") is None
        a.host.crash()

    run_story(story, voters=1)


def test_a_filter_that_raises_does_not_end_a_consumer(caplog: pytest.LogCaptureFixture) -> None:
    class Raises(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            seen.append(record.getMessage())
            raise ZeroDivisionError

    seen: list[str] = []
    strict = Raises()
    loggers = [
        logging.getLogger(f"streamlog.client.{name}")
        for name in ("consumer.unfetched_watch", "connection.connection_log", "groups.coordinator_watch")
    ]

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        fill(stage.cluster, log, lines(5))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            stage.cluster.move(log, -1)
            await asyncio.sleep(50)
            stage.cluster.move(log, 1)
            assert await take(consumer, 5) == lines(5)

    for logger in loggers:
        logger.addFilter(strict)
    try:
        play(story, seeds=1)
        ConnectionLog(HandClock()).failed("n1:9092", "no connection to n1:9092")
    finally:
        for logger in loggers:
            logger.removeFilter(strict)
    assert [text for text in seen if "not been fetched for" in text]
    assert seen[-1] == "no connection to n1:9092"
