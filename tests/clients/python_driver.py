"""Driver of the conformance suite for streamlog.client: commands and results as JSON lines (docs/conformance.md)."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from streamlog.client import (
    EARLIEST,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
)
from streamlog.errors import StreamlogError, TransactionAbortableError
from streamlog.model import PartitionId, TopicPartition

Json = dict[str, Any]
JOIN_AGAIN = {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"}
"""Offsets that are refused with these abort their transaction."""


class Member:
    """A consumer of a group, and what its listeners were called with since the last poll."""

    def __init__(self, consumer: AsyncConsumer, group: str) -> None:
        self.consumer = consumer
        self.group = group
        self.identity = GroupMetadata(group, "", 0)
        self.changes: dict[str, list[tuple[str, int]]] = {"assigned": [], "revoked": [], "lost": []}

    def note(self, kind: str, partitions: Iterable[TopicPartition]) -> None:
        self.changes[kind] += [(one.topic, one.partition) for one in partitions]

    async def poll(self, timeout_s: float) -> Json:
        for kind in self.changes:
            self.changes[kind] = []
        deadline = time.monotonic() + timeout_s
        records: list[ConsumerRecord] = []
        while not records and not any(self.changes.values()) and time.monotonic() < deadline:
            records = await self.consumer.poll(500, timeout_s=min(0.25, max(0.0, deadline - time.monotonic())))
        self.identity = GroupMetadata(self.group, self.consumer.member_id or "", self.consumer.member_epoch or 0)
        return {"records": [received(one) for one in records], **self.changes}


class Driver:
    def __init__(self) -> None:
        self._servers = ""
        self._producers: dict[str, AsyncProducer] = {}
        self._open: set[str] = set()
        self._members: dict[str, Member] = {}

    async def connect(self, command: Json) -> Json:
        self._servers = command["servers"]
        async with AsyncAdmin(bootstrap_servers=self._servers) as admin:
            return {"version": (await admin.describe_cluster()).cluster_id}

    async def produce(self, command: Json) -> Json:
        name, topic = command["producer"], command["topic"]
        if name not in self._producers:
            self._producers[name] = await AsyncProducer(bootstrap_servers=self._servers).start()
        sent = await self._send(self._producers[name], topic, command["records"])
        return {"offsets": [offset(topic, one.partition, one.offset) for one in sent]}

    async def _send(self, producer: AsyncProducer, topic: str, records: Iterable[Json]) -> list[Any]:
        sent = [
            await producer.enqueue(
                topic,
                one["value"].encode(),
                key=one["key"].encode() if "key" in one else None,
                partition=one.get("partition"),
            )
            for one in records
        ]
        return list(await asyncio.gather(*sent))

    async def read(self, command: Json) -> Json:
        partition = TopicPartition(command["topic"], PartitionId(command["partition"]))
        async with AsyncConsumer(
            bootstrap_servers=self._servers, auto_offset_reset="none", isolation_level=isolation(command)
        ) as consumer:
            await consumer.assign([partition], start=command.get("start", EARLIEST))
            end = (await consumer.end_offsets([partition]))[partition]
            records: list[Json] = []
            records += [received(one) for one in await consumer.poll(500, timeout_s=0.25)]
            while (position := await consumer.position(partition)) < end:
                records += [received(one) for one in await consumer.poll(500, timeout_s=0.25)]
        return {"records": records, "position": position}

    async def join(self, command: Json) -> Json:
        settings: dict[str, object] = {}
        if "processing_timeout_ms" in command:
            settings["max_poll_interval_ms"] = command["processing_timeout_ms"]
        consumer = await AsyncConsumer(
            bootstrap_servers=self._servers,
            group_id=command["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=isolation(command),
            **settings,  # type: ignore[arg-type]
        ).start()
        member = self._members[command["member"]] = Member(consumer, command["group"])
        consumer.subscribe(
            command["topics"],
            on_assigned=lambda partitions: member.note("assigned", partitions),
            on_revoked=lambda partitions: member.note("revoked", partitions),
            on_lost=lambda partitions: member.note("lost", partitions),
        )
        return {}

    async def poll(self, command: Json) -> Json:
        return await self._members[command["member"]].poll(command["timeout_ms"] / 1000)

    async def commit(self, command: Json) -> Json:
        member = self._members[command["member"]]
        try:
            offsets: dict[TopicPartition | tuple[str, int], OffsetAndMetadata | int] = {}
            for place, at in positions(command).items():
                offsets[place] = at
            await member.consumer.commit(offsets, timeout_s=command["timeout_ms"] / 1000)
        except StreamlogError as error:
            if error.code in JOIN_AGAIN:
                return {"committed": []}
            raise
        return {"committed": command["offsets"]}

    async def leave(self, command: Json) -> Json:
        await self._members.pop(command["member"]).consumer.close()
        return {}

    async def open_transactions(self, command: Json) -> Json:
        producer = await AsyncProducer(
            bootstrap_servers=self._servers,
            transactional_id=command["transactional_id"],
            transaction_timeout_ms=command["transaction_timeout_ms"],
        ).start()
        self._producers[command["producer"]] = producer
        await producer.init_transactions()
        return {}

    async def transact(self, command: Json) -> Json:
        name, end = command["producer"], command.get("end", "")
        producer = self._producers[name]
        refused = ""
        if name not in self._open:
            await producer.begin_transaction()
            self._open.add(name)
        try:
            await self._send(producer, command["topic"], command.get("records", []))
            if command.get("offsets"):
                await producer.send_offsets(positions(command), self._members[command["member"]].identity)
            if end == "commit":
                await producer.commit_transaction()
        except StreamlogError as error:
            if not isinstance(error, TransactionAbortableError) and error.code not in JOIN_AGAIN | {
                "MESSAGE_TOO_LARGE"
            }:
                raise
            refused = str(error.details.get("cause_code", error.code))
        if end == "abort" or (end and refused):
            await producer.abort_transaction()
        if end:
            self._open.discard(name)
        return {
            "outcome": "" if not end else "aborted" if end == "abort" or refused else "committed",
            "refused": refused,
        }


def isolation(command: Json) -> str:
    return "read_committed" if command.get("read_committed") else "read_uncommitted"


def positions(command: Json) -> dict[TopicPartition, int | OffsetAndMetadata]:
    return {TopicPartition(one["topic"], PartitionId(one["partition"])): one["offset"] for one in command["offsets"]}


def offset(topic: str, partition: int, at: int) -> Json:
    return {"topic": topic, "partition": partition, "offset": at}


def received(record: ConsumerRecord) -> Json:
    return {
        **offset(record.topic, record.partition, record.offset),
        "key": None if record.key is None else record.key.decode(),
        "value": None if record.value is None else record.value.decode(),
    }


async def main() -> None:
    driver = Driver()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        answer: Json = {"id": command["id"]}
        try:
            async with asyncio.timeout(command["timeout_ms"] / 1000 + 5):
                answer["result"] = await getattr(driver, command["command"])(command)
        except StreamlogError as error:
            answer["error"] = {"code": error.code, "message": str(error)}
        except TimeoutError:
            answer["error"] = {
                "code": "DEADLINE_EXCEEDED",
                "message": "not done within the time that the command allows",
            }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
