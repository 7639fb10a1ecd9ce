"""One leadership of the controller: what is decided ahead, committed together, answered, and reported when lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.controller import controller_term
from streamlog.errors import (
    NotControllerError,
    OutcomeUnknownError,
    StaleBrokerEpochError,
    StreamlogError,
    ThrottledError,
)
from streamlog.metadata.brokers.liveness import BrokerHeartbeat, FenceBroker
from streamlog.metadata.controller import decide
from streamlog.metadata.convert import decode_batch, encode_batch
from streamlog.metadata.records import TopicRecord
from streamlog.model import BrokerEpoch, BrokerId
from streamlog.sim import SimLoop, run
from tests.metadata.examples import EXAMPLES

from .kit import CLUSTER, Rule, heartbeat_of, registration, topic

NODE = BrokerId(1)


def run_story(story: Callable[[Rule], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        async with Rule() as rule:
            await story(rule)

    run(main, seed=3)


def heartbeat(rule: Rule, node: int = 1) -> BrokerHeartbeat:
    return heartbeat_of(rule.view, node)


async def join(rule: Rule, *nodes: int) -> None:
    for node in nodes or (1,):
        await rule.term.ask(registration(node=node))
        await rule.term.ask(heartbeat(rule, node))


def test_the_first_term_bootstraps_and_takes_over() -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        assert rule.view.image.cluster_id == CLUSTER
        assert rule.events == ["controller_active"]

    run_story(story)


def test_batches_joined_are_the_batch_of_all_their_records() -> None:
    """What a group relies on: a batch is a message with one repeated field (protobuf: concatenation merges)."""
    records = list(EXAMPLES.values())
    for cut in range(len(records) + 1):
        joined = (encode_batch(records[:cut]) if cut else b"") + encode_batch(records[cut:])
        assert joined == encode_batch(records)
        assert decode_batch(joined) == records


def test_under_load_decisions_share_commands_of_the_quorum() -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        before = len(rule.quorum.commands)
        rule.quorum.held = True
        asked = [rule.ask(topic(f"t{number}")) for number in range(100)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert 1 < rule.quorum.in_flight <= controller_term.IN_FLIGHT_MAX
        rule.quorum.held = False
        rule.quorum.release()
        results = await asyncio.gather(*asked)
        assert [one.error for (one,) in results] == [None] * 100
        assert len(rule.view.image.topics) == 100
        assert len(rule.quorum.commands) - before < 10

    run_story(story)


def test_decisions_that_take_long_let_the_loop_run_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)

        def slow(*what: Any) -> Any:
            loop.now += controller_term.GROUP_S / 2
            return decide(*what)

        monkeypatch.setattr(controller_term, "decide", slow)
        before = len(rule.quorum.commands)
        await asyncio.gather(*(rule.ask(topic(f"t{number}")) for number in range(10)))
        groups = [decode_batch(command) for command in rule.quorum.commands[before:]]
        assert [sum(isinstance(record, TopicRecord) for record in group) for group in groups] == [2] * 5

    run_story(story)


def test_a_refusal_waits_for_what_it_rests_on() -> None:
    """The second topic of a name is refused because of the first, which is not committed yet."""

    async def story(rule: Rule) -> None:
        await join(rule)
        rule.quorum.held = True
        first, second = rule.ask(topic("t")), rule.ask(topic("t"))
        await asyncio.sleep(1)
        assert not first.done()
        assert not second.done()
        rule.quorum.release()
        assert (await first)[0].error is None
        assert (await second)[0].error is not None

    run_story(story)


def test_answers_keep_the_order_of_the_decisions() -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        rule.quorum.held = True
        made, beaten = rule.ask(topic("t")), rule.ask(heartbeat(rule))
        await asyncio.sleep(1)
        assert not beaten.done()  # nothing to write, but decided on an image with the topic
        rule.quorum.held = False
        rule.quorum.release()
        await asyncio.gather(made, beaten)

    run_story(story)


def test_nothing_is_decided_ahead_of_a_registration() -> None:
    async def story(rule: Rule) -> None:
        await join(rule, 1, 2)
        rule.quorum.held = True
        coming = rule.ask(registration(node=3))
        after = rule.ask(topic("t"))
        await asyncio.sleep(1)
        assert rule.quorum.in_flight == 1
        rule.quorum.held = False
        rule.quorum.release()
        await asyncio.gather(coming, after)
        assert rule.view.image.brokers[BrokerId(3)].epoch == len(rule.quorum.commands) - 1

    run_story(story)


def test_all_who_wait_are_notified_of_a_lost_leadership() -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        rule.quorum.held = True
        in_flight = [rule.ask(topic(f"t{number}")) for number in range(controller_term.IN_FLIGHT_MAX)]
        await asyncio.sleep(1)
        queued = rule.ask(registration(node=2))
        behind = rule.ask(topic("u"))
        await asyncio.sleep(1)
        rule.quorum.lose()
        assert isinstance(await rule.ended(), OutcomeUnknownError)
        for task in in_flight:
            assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], OutcomeUnknownError)
        for task in (queued, behind):
            with pytest.raises((NotControllerError, OutcomeUnknownError)):
                await task
        with pytest.raises(NotControllerError):
            await rule.term.ask(topic("v"))

    run_story(story)


def test_nothing_is_decided_in_another_term() -> None:
    """This node leads again, and what was looked ahead in the old term is gone: that must not be built upon."""

    async def story(rule: Rule) -> None:
        await join(rule)
        commands = len(rule.quorum.commands)
        rule.quorum.term = type(rule.quorum.term)(2)
        with pytest.raises(NotControllerError):
            await rule.term.ask(topic("t"))
        assert isinstance(await rule.ended(), NotControllerError)
        assert len(rule.quorum.commands) == commands

    run_story(story)


def test_silence_ends_a_session_and_a_heartbeat_renews_it() -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        for _ in range(5):
            await asyncio.sleep(2.9)
            await rule.term.ask(heartbeat(rule))
        assert not rule.view.image.brokers[NODE].fenced
        await asyncio.sleep(3.1)
        assert rule.view.image.brokers[NODE].fenced
        await rule.term.ask(heartbeat(rule))
        assert not rule.view.image.brokers[NODE].fenced

    run_story(story)


def test_a_node_whose_image_is_older_than_its_session_is_fenced() -> None:
    """It sends heartbeats but applies nothing: its source was removed as a voter, and does not say so."""

    async def story(rule: Rule) -> None:
        await join(rule)
        frozen = heartbeat(rule)
        await rule.ask(topic("t"))
        for _ in range(5):
            await asyncio.sleep(0.5)
            assert not (await rule.term.ask(frozen)).fenced
        await asyncio.sleep(1.5)
        assert (await rule.term.ask(frozen)).fenced
        assert rule.view.image.brokers[NODE].fenced
        assert not (await rule.term.ask(heartbeat(rule))).fenced

    run_story(story)


def test_a_heartbeat_that_waits_beside_the_end_of_its_session_counts() -> None:
    """The old session has expired while the heartbeat waits for commits before it: the node lives."""

    async def story(rule: Rule) -> None:
        await join(rule)
        rule.quorum.held = True
        blocked = [rule.ask(topic("t"))]
        await asyncio.sleep(2.5)
        beaten = rule.ask(heartbeat(rule))
        await asyncio.sleep(1.5)
        rule.quorum.held = False
        rule.quorum.release()
        await asyncio.gather(*blocked, beaten)
        await asyncio.sleep(1)
        assert not rule.view.image.brokers[NODE].fenced

    run_story(story)


async def beat(rule: Rule, heartbeat: BrokerHeartbeat, for_s: float) -> None:
    """As a node does: a caller gives up after a third of the session."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + for_s
    while loop.time() < end_s:
        with contextlib.suppress(TimeoutError, StreamlogError):
            async with asyncio.timeout(1):
                await rule.term.ask(heartbeat)
        await asyncio.sleep(0.5)


def test_heartbeats_that_are_not_answered_in_time_renew_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit takes longer than a session, and the queue is full: the node was fenced, though it sends heartbeats."""
    monkeypatch.setattr(controller_term, "QUEUE_MAX", 3)

    async def story(rule: Rule) -> None:
        await join(rule)
        rule.quorum.held = True
        blocked = []
        for number in range(controller_term.IN_FLIGHT_MAX + 3):
            blocked.append(rule.ask(topic(f"t{number}")))
            await asyncio.sleep(0.1)
        await beat(rule, heartbeat(rule), 10)
        rule.quorum.held = False
        rule.quorum.release()
        await asyncio.gather(*blocked)
        await asyncio.sleep(1)
        assert not rule.view.image.brokers[NODE].fenced
        assert "controller_timer" not in rule.events

    run_story(story)


def test_what_does_not_prove_that_the_registered_node_lives_renews_no_session() -> None:
    """The heartbeats of a fenced node, of an earlier registration, and of a node that does not apply the metadata."""

    async def story(rule: Rule) -> None:
        await join(rule, 1, 2, 3)
        fenced, stale, lagging = (heartbeat(rule, node) for node in (1, 2, 3))
        await rule.term.ask(FenceBroker(broker_id=NODE, broker_epoch=fenced.broker_epoch))
        await rule.term.ask(topic("t"))
        await asyncio.sleep(2.9)
        for node in (2, 3):
            await rule.term.ask(heartbeat(rule, node))
        rule.quorum.held = True
        blocked = []
        for number in range(controller_term.IN_FLIGHT_MAX):  # so that no heartbeat is decided
            blocked.append(rule.ask(topic(f"t{number}")))
            await asyncio.sleep(0.1)
        stale = replace(stale, broker_epoch=BrokerEpoch(stale.broker_epoch - 1), applied_index=rule.view.image.index)
        await asyncio.gather(*(beat(rule, one, 10) for one in (fenced, stale, lagging)))
        assert rule.events.count("controller_timer") == 2
        await asyncio.sleep(5)
        assert rule.events.count("controller_timer") == 2
        for task in blocked:
            task.cancel()

    run_story(story)


def test_a_new_controller_restarts_the_sessions() -> None:
    async def story(rule: Rule) -> None:
        await join(rule, 1, 2)
        await rule.term.ask(FenceBroker(broker_id=BrokerId(2), broker_epoch=rule.view.image.brokers[BrokerId(2)].epoch))
        second = rule.another()
        ruling = asyncio.create_task(second.run())
        await second.ask(topic("t"))
        assert list(rule.sessions) == [NODE]
        ruling.cancel()
        await asyncio.wait([ruling])

    run_story(story)


def test_a_refused_command_ends_nothing() -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        with pytest.raises(StaleBrokerEpochError):
            await rule.term.ask(FenceBroker(broker_id=NODE, broker_epoch=BrokerEpoch(99)))
        assert (await rule.term.ask(topic("t")))[0].error is None

    run_story(story)


def test_a_full_queue_refuses_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_term, "QUEUE_MAX", 3)

    async def story(rule: Rule) -> None:
        await join(rule)
        rule.quorum.held = True
        blocked = []
        for number in range(controller_term.IN_FLIGHT_MAX + 3):
            blocked.append(rule.ask(topic(f"t{number}")))
            await asyncio.sleep(0.1)
        with pytest.raises(ThrottledError):
            await rule.term.ask(topic("u"))
        rule.quorum.held = False
        rule.quorum.release()
        await asyncio.gather(*blocked)

    run_story(story)


def test_the_command_of_a_caller_that_has_gone_is_not_decided() -> None:
    async def story(rule: Rule) -> None:
        await join(rule)
        rule.quorum.held = True
        blocked = []
        for number in range(controller_term.IN_FLIGHT_MAX):
            blocked.append(rule.ask(topic(f"t{number}")))
            await asyncio.sleep(0.1)
        gone = rule.ask(topic("gone"))
        await asyncio.sleep(0.1)
        gone.cancel()
        await asyncio.sleep(0.1)
        rule.quorum.held = False
        rule.quorum.release()
        await asyncio.gather(*blocked)
        await rule.term.ask(topic("last"))
        assert rule.view.image.topic_named("gone") is None

    run_story(story)
