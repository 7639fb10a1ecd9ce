"""What many watches cost together: a command once a node, and each watch what it has to send, in turn."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec import Struct

from streamlog.api.convert import view as convert
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.service import Call, Responses
from streamlog.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import CallInfo
from streamlog.services.batches.watch_metadata import CHANGES_PER_MESSAGE, SMALL_MESSAGE, WatchMetadata
from streamlog.services.common.paging import TopicNames
from tests.metadata.rig import Rig


class Client(Responses[pb.WatchMetadataResponse]):
    """What it was sent, and what it knows from that."""

    def __init__(self, node: Node, *names: str) -> None:
        self.names = names
        self.node = node
        self.messages: list[pb.WatchMetadataResponse] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.nodes = pb.NodeList()
        self.topics: dict[bytes, tuple[str, dict[int, bytes]]] = {}

    async def send(self, message: pb.WatchMetadataResponse) -> None:
        await self.reads.wait()
        self.messages.append(message)
        self.node.sends[self.node.turn] += 1
        if message.HasField("nodes"):
            self.nodes = message.nodes
        for topic_id in message.removed_topic_ids:
            del self.topics[topic_id]
        for topic in message.topics:
            _, partitions = self.topics.setdefault(topic.topic_id, (topic.topic, {}))
            partitions.update({one.partition: one.SerializeToString() for one in topic.partitions})

    def check(self) -> None:
        """It knows what the node does."""
        image, shown = self.node.view.image, dict[bytes, tuple[str, dict[int, bytes]]]()
        for topic in image.topics.values():
            if not self.names or topic.name in self.names:
                message = convert.topic_metadata(topic, image, range(len(topic.partitions)))
                partitions = {one.partition: one.SerializeToString() for one in message.partitions}
                shown[topic.topic_id] = (topic.name, partitions)
        assert self.topics == shown
        assert list(self.nodes.nodes) == convert.live_nodes(image, "")
        assert self.messages[-1].complete


class Node:
    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.start_all(1, 2, 3)
        self.view = MetadataView()
        self.spread()
        self.watches = WatchMetadata(self.view, TopicNames())
        self.calls: list[asyncio.Task[None]] = []
        self.turn = 0
        self.sends = Counter[int]()  # messages in each turn of the loop

    def spread(self) -> None:
        for index, command in self.rig.log:
            self.view.machine.apply(index, command)

    async def watch(self, *names: str) -> Client:
        """A client that has the initial state."""
        client = Client(self, *names)
        request = pb.WatchMetadataRequest(topics=names)
        call = Call(info=CallInfo(method="", peer="", metadata={}), clock=None)  # type: ignore[arg-type]  # unused
        self.calls.append(asyncio.ensure_future(self.watches.watch_metadata(request, client, call)))
        await self.settle(1)
        return client

    async def settle(self, turns: int = 50) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
            self.turn += 1

    def move_leaders(self, name: str, count: int) -> None:
        topic = self.rig.topic(name)
        self.rig.commit(
            [
                PartitionChangeRecord(
                    topic_id=topic.topic_id, partition_id=self.rig.key(name, i)[1], leader=BrokerId(1)
                )
                for i in range(count)
            ]
        )

    async def stop(self) -> None:
        for call in self.calls:
            call.cancel()
        await asyncio.wait(self.calls)


def story(work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        node = Node()
        await work(node)
        await node.stop()
        assert not node.view._listeners

    asyncio.run(main())


class Calls(Struct):
    python: int = 0

    def __enter__(self) -> Calls:
        def on_event(_frame: object, event: str, _argument: object) -> None:
            self.python += event == "call"

        sys.setprofile(on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


@pytest.mark.parametrize("what", ["one topic", "all topics"])
def test_a_node_that_is_fenced_costs_a_watch_only_what_it_has_to_send(what: str) -> None:
    async def work(node: Node) -> None:
        node.rig.create("own", 1, assignments=((BrokerId(1),),))
        for number in range(20):
            node.rig.create(f"t{number}", assignments=((BrokerId(2), BrokerId(1)),) * 20)
        node.spread()
        await node.watch("own")
        node.rig.fence(3)
        with Calls() as alone:
            node.spread()
        node.rig.start(3)
        node.spread()
        clients = [await node.watch(*(("own",) if what == "one topic" else ())) for _ in range(100)]
        node.rig.fence(2)
        with Calls() as together:
            node.spread()
        # 400 partitions, of which a watch is not concerned until it sends.
        assert together.python < alone.python + 400 * 200 + 100 * 10
        with Calls() as sending:
            await node.settle(30 if what == "one topic" else 500)
        if what == "one topic":
            assert sending.python < 100 * 150
        for client in clients:
            client.check()

    story(work)


def test_a_command_of_other_topics_is_not_sent() -> None:
    async def work(node: Node) -> None:
        node.rig.create("own", 1, 1)
        node.rig.create("other", 1, 1)
        node.spread()
        client = await node.watch("own")
        before = len(client.messages)
        node.move_leaders("other", 1)
        node.spread()
        await node.settle()
        assert len(client.messages) == before
        node.move_leaders("own", 1)
        node.spread()
        await node.settle()
        assert [topic.topic for topic in client.messages[-1].topics] == ["own"]
        assert client.messages[-1].metadata_version == node.view.image.index

    story(work)


def test_watches_that_wake_together_send_in_turn() -> None:
    async def work(node: Node) -> None:
        node.rig.create("t", 1, 1)
        node.spread()
        clients = [await node.watch("t") for _ in range(300)]
        node.sends.clear()
        node.move_leaders("t", 1)
        node.spread()
        await node.settle()
        assert sum(node.sends.values()) == 300
        # The end of one turn and the beginning of the next may have the same number.
        assert max(node.sends.values()) <= 2 * CHANGES_PER_MESSAGE // SMALL_MESSAGE
        for client in clients:
            client.check()

    story(work)


def test_a_large_change_is_several_messages_and_the_last_completes_it() -> None:
    async def work(node: Node) -> None:
        count = 2 * CHANGES_PER_MESSAGE + 10
        node.rig.create("t", count, 1)
        node.spread()
        client, named = await node.watch(), await node.watch("t")
        for one in (client, named):
            one.messages.clear()
        node.move_leaders("t", count)
        node.spread()
        await node.settle()
        for one in (client, named):
            counts = [sum(len(topic.partitions) for topic in message.topics) for message in one.messages]
            assert counts == [CHANGES_PER_MESSAGE, CHANGES_PER_MESSAGE, 10]
            assert [message.complete for message in one.messages] == [False, False, True]
            assert {message.metadata_version for message in one.messages} == {node.view.image.index}
            one.check()

    story(work)


def test_a_topic_that_came_and_went_while_a_client_did_not_read_is_not_reported() -> None:
    async def work(node: Node) -> None:
        node.rig.create("t", 1, 1)
        node.spread()
        client, named = await node.watch(), await node.watch("t", "u")
        for one in (client, named):
            one.messages.clear()
            one.reads.clear()
        node.move_leaders("t", 1)
        node.spread()
        await node.settle(5)  # it sends, and waits
        brief = node.rig.create("u", 1, 1).topic_id
        first = node.rig.topic("t").topic_id
        for topic_id in (brief, first):
            node.rig.commit([RemoveTopicRecord(topic_id=topic_id)])
        second = node.rig.create("t", 2, 1).topic_id
        node.spread()
        for one in (client, named):
            one.reads.set()
        await node.settle()
        for one in (client, named):
            _, last = one.messages
            assert list(last.removed_topic_ids) == [first]
            assert [(topic.topic_id, len(topic.partitions)) for topic in last.topics] == [(second, 2)]
            one.check()

    story(work)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_and_however_slowly_they_read_clients_know_it_in_the_end(seed: int) -> None:
    async def work(node: Node) -> None:
        rng = random.Random(seed)
        names = [f"t{number}" for number in range(6)]
        fenced: set[int] = set()

        def step() -> None:
            name = rng.choice(names)
            topic = node.rig.image.topic_named(name)
            match rng.randrange(5):
                case 0 if topic is not None:
                    node.rig.commit([RemoveTopicRecord(topic_id=topic.topic_id)])
                case 1 if topic is not None:
                    node.move_leaders(name, rng.randint(1, len(topic.partitions)))
                case 2 if fenced:
                    node.rig.start(fenced.pop())
                case 3 if not fenced:
                    fenced.add(rng.choice((2, 3)))
                    node.rig.fence(*fenced)
                case _ if topic is None:
                    replicas = (BrokerId(1), BrokerId(next(iter({2, 3} - fenced))))
                    node.rig.create(name, assignments=(replicas,) * rng.randint(1, 30))

        clients = [await node.watch()]
        for _ in range(300):
            step()
            if rng.random() < 0.1:  # as a snapshot
                node.view.machine.install(RaftIndex(node.rig.index), node.rig.image)
            else:
                node.spread()
            if rng.random() < 0.05:
                clients.append(await node.watch(*rng.sample(names, rng.choice((0, 1, 3)))))
            for client in clients:
                if rng.random() < 0.2:
                    client.reads.clear() if client.reads.is_set() else client.reads.set()
            await node.settle(rng.choice((0, 1, 5)))
        for client in clients:
            client.reads.set()
        await node.settle()
        for client in clients:
            client.check()

    story(work)


def test_a_controller_that_changes_while_a_watch_begins_is_sent() -> None:
    async def work(node: Node) -> None:
        node.rig.create("own", 1, 1)
        node.spread()
        node.view.set_controller(BrokerId(1), "n1:9092")

        async def another_one_leads() -> None:
            node.view.set_controller(BrokerId(2), "n2:9092")

        watching = asyncio.ensure_future(node.watch("own"))
        await asyncio.sleep(0)
        await asyncio.ensure_future(another_one_leads())  # right behind the first step of the call
        client = await watching
        await node.settle()
        assert [message.controller for message in client.messages if message.HasField("controller")][-1] == 2

    story(work)
