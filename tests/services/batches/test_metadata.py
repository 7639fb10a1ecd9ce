"""Metadata, in pages and as a watch, over the simulated network."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.errors import StreamlogError
from tests.services.world import BATCHES, Calls, Cluster, simulate


async def metadata(cluster: Cluster, *names: str, node: int = 1, **fields: object) -> pb.MetadataResponse:
    request = pb.MetadataRequest(topics=names, **fields)  # type: ignore[arg-type]  # fields of the message
    return await cluster.call(BATCHES + "Metadata", request, pb.MetadataResponse, node=node)


def test_nodes_topics_and_leaders() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create("b", partitions=2, replicas=(1, 2))
        await cluster.create("a", replicas=(3,))
        answered = await metadata(cluster, all_topics=True)
        assert [(node.node_id, node.host, node.port) for node in answered.nodes] == [
            (n, f"node{n}", 9092) for n in (1, 2, 3)
        ]
        assert answered.controller == 1
        assert [(topic.topic, topic.partition_count) for topic in answered.topics] == [("a", 1), ("b", 2)]
        assert [(p.leader, list(p.replicas), list(p.isr)) for p in answered.topics[1].partitions] == [
            (1, [1, 2], [1, 2])
        ] * 2
        assert answered.metadata_version == cluster.rig.image.index
        only_nodes = await metadata(cluster)
        assert (len(only_nodes.nodes), len(only_nodes.topics)) == (3, 0)

    simulate(story)


def test_topics_are_named_by_name_and_id_and_each_has_its_error() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create("a")
        own_id = cluster.rig.topic("a").topic_id
        answered = await metadata(cluster, "zz", "a", topic_ids=[own_id, bytes(16)])
        assert [(topic.topic, topic.error.code) for topic in answered.topics] == [
            ("", "UNKNOWN_TOPIC_ID"),
            ("a", ""),
            ("zz", "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        assert "streamlogctl topic create zz" in answered.topics[2].error.message

    simulate(story)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_pages_hold_everything_once_in_order(size: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        for name, count in (("a.b", 3), ("a1", 1), ("a-c", 4), ("B", 2)):
            await cluster.create(name, partitions=count)
        found: list[tuple[str, int]] = []
        token = ""
        while True:
            page = await metadata(cluster, all_topics=True, page_size=size, page_token=token)
            assert bool(page.nodes) == (token == "")
            assert sum(len(topic.partitions) for topic in page.topics) <= size
            found += [(topic.topic, part.partition) for topic in page.topics for part in topic.partitions]
            token = page.next_page_token
            if not token:
                break
        expected = [(name, i) for name, count in (("B", 2), ("a-c", 4), ("a.b", 3), ("a1", 1)) for i in range(count)]
        assert found == expected

    simulate(story)


@pytest.mark.parametrize("token", ["x", "1:zz:a", "-1::a", "9" * 600, "²::a"])
def test_a_token_that_nobody_gave_is_refused(token: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        with pytest.raises(StreamlogError) as caught:
            await metadata(cluster, all_topics=True, page_token=token)
        assert (caught.value.code, caught.value.details["field"]) == ("INVALID_REQUEST", "page_token")

    simulate(story)


@pytest.mark.parametrize(
    ("request_", "code", "path"),
    [
        (pb.MetadataRequest(topics=["a/b"]), "INVALID_TOPIC", "topics[0]"),
        (pb.MetadataRequest(topics=["a", "a"]), "INVALID_REQUEST", "topics[1]"),
        (pb.MetadataRequest(topic_ids=[b"x"]), "INVALID_REQUEST", "topic_ids[0]"),
        (pb.MetadataRequest(topics=["a"], all_topics=True), "INVALID_REQUEST", "all_topics"),
        (pb.MetadataRequest(page_size=-1), "INVALID_REQUEST", "page_size"),
    ],
)
def test_bad_requests(request_: pb.MetadataRequest, code: str, path: str) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        with pytest.raises(StreamlogError) as caught:
            await cluster.call(BATCHES + "Metadata", request_, pb.MetadataResponse)
        assert (caught.value.code, caught.value.details["field"]) == (code, path)

    simulate(story)


def test_topics_come_into_being_where_the_setting_allows_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2, auto_create_topics_enable="true")
        answered = await metadata(cluster, "new", node=2)
        assert [(topic.topic, topic.error.code, topic.partition_count) for topic in answered.topics] == [("new", "", 1)]
        assert cluster.nodes[2].passed_on == ["/streamlog.v1.Admin/CreateTopics"]
        clash = await metadata(cluster, "new", "a.b", "__consumer_offsets")
        assert [topic.error.code for topic in clash.topics] == ["UNKNOWN_TOPIC_OR_PARTITION", "", ""]
        assert (await metadata(cluster, "a_b")).topics[0].error.code == "INVALID_TOPIC"

    simulate(story)


# -- the watch


async def answered(calls: Calls[pb.WatchMetadataResponse]) -> pb.WatchMetadataResponse:
    response = await asyncio.wait_for(calls.recv(), 30)
    assert response is not None
    return response


async def watch(calls: Calls[pb.WatchMetadataResponse], *names: str) -> list[pb.WatchMetadataResponse]:
    """The first picture."""
    await calls.send(pb.WatchMetadataRequest(topics=names))
    await calls.done_sending()
    messages = [await answered(calls)]
    while not messages[-1].complete:
        messages.append(await answered(calls))
    return messages


def test_a_watch_tells_the_picture_and_then_what_changes() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create("a", partitions=3, replicas=(1, 2))
        async with cluster.stream(BATCHES + "WatchMetadata", pb.WatchMetadataResponse) as calls:
            (first,) = await watch(calls)
            assert [topic.topic for topic in first.topics] == ["a"]
            assert (len(first.nodes.nodes), first.controller) == (3, 1)
            assert first.cluster_id
            await cluster.move_leader(2, "a", 1)
            change = await answered(calls)
            assert [(t.topic, [(p.partition, p.leader) for p in t.partitions]) for t in change.topics] == [
                ("a", [(1, 2)])
            ]
            assert not change.HasField("nodes")
            assert not change.HasField("controller")
            await cluster.create("b")
            assert [topic.topic for topic in (await answered(calls)).topics] == ["b"]
            await cluster.delete("a")
            assert len((await answered(calls)).removed_topic_ids) == 1

    simulate(story)


def test_a_watch_of_some_topics_tells_of_no_others() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        async with cluster.stream(BATCHES + "WatchMetadata", pb.WatchMetadataResponse) as calls:
            (first,) = await watch(calls, "later")
            assert not first.topics
            await cluster.create("other")
            await cluster.create("later")
            topics: list[str] = []
            while not topics:
                topics += [topic.topic for topic in (await answered(calls)).topics]
            assert topics == ["later"]

    simulate(story)


def test_a_watch_tells_of_nodes_that_go_and_of_replicas_that_are_offline() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create("a", replicas=(1, 2))
        async with cluster.stream(BATCHES + "WatchMetadata", pb.WatchMetadataResponse) as calls:
            await watch(calls)
            cluster.rig.fence(2)
            await cluster.spread()
            nodes, partitions = None, []
            while nodes is None or not partitions:
                change = await answered(calls)
                nodes = change.nodes if change.HasField("nodes") else nodes
                partitions += [part for topic in change.topics for part in topic.partitions]
            assert [node.node_id for node in nodes.nodes] == [1, 3]
            assert (list(partitions[-1].isr), list(partitions[-1].offline)) == ([1], [2])

    simulate(story)


def test_a_watch_tells_of_another_controller() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        async with cluster.stream(BATCHES + "WatchMetadata", pb.WatchMetadataResponse) as calls:
            await watch(calls)
            await cluster.on(lambda: cluster.node.view.set_controller(None, None))
            assert (await answered(calls)).controller == -1

    simulate(story)


def test_what_a_watcher_has_missed_it_gets_as_it_is_now() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create("a", replicas=(1, 2))
        async with cluster.stream(BATCHES + "WatchMetadata", pb.WatchMetadataResponse) as calls:
            await watch(calls)
            for turn in range(300):
                await cluster.move_leader(1 + turn % 2, "a")
            last = None
            while last is None or last.topics[0].partitions[0].leader_epoch < 300:
                last = await answered(calls)
            assert last.topics[0].partitions[0].leader == 2

    simulate(story)
