"""The topic of the audit log: the events of three nodes, in virtual time."""

from __future__ import annotations

import asyncio

import msgspec

from streamlog.client import AsyncAdmin, AsyncConsumer
from streamlog.client.admin.values import NewTopic
from streamlog.ports import AuditEvent
from tests.node.kit import Nodes, run_story

SERVERS = "n1:9092,n2:9092,n3:9092"


def test_changes_on_any_node_are_records_of_the_topic() -> None:
    found: list[AuditEvent] = []

    async def story(nodes: Nodes) -> None:
        nodes.start(audit_log_topic="audit", default_replication_factor="3")
        await nodes.ready()
        ports = nodes.world.host("client").boot()

        async def change_and_read() -> None:
            for server in SERVERS.split(","):
                async with AsyncAdmin({"bootstrap.servers": server}, ports=ports) as admin:
                    await admin.create_topics([NewTopic(f"t-{server[:2]}", 1, 3)])
                    await admin.list_topics()
            how = {"bootstrap.servers": SERVERS, "auto.offset.reset": "earliest"}
            async with AsyncConsumer(how, ports=ports) as consumer:
                await consumer.assign([("audit", 0)])
                while len({name for event in found for name in _topics(event)}) < 4:
                    found.extend(
                        msgspec.json.decode(one.value or b"", type=AuditEvent)
                        for one in await consumer.poll(timeout_s=1.0)
                    )

        async with asyncio.timeout(60):
            await nodes.world.host("client").spawn(change_and_read())
        await nodes.stopped(2)

    run_story(story)
    assert {event.result for event in found} == {"allowed"}
    assert {name for event in found for name in _topics(event)} == {"t-n1", "t-n2", "t-n3", "audit"}
    assert {event.method for event in found} == {"streamlog.v1.Admin/CreateTopics"}
    assert {event.principal for event in found} == {"User:ANONYMOUS"}, "a PLAINTEXT listener knows no one"


def _topics(event: AuditEvent) -> list[str]:
    return [one.name for one in event.resources]
