"""Consume, transform and produce, as a program of its own: each poll's records, what is made of them, and the offset
that the group goes on at are one transaction.

    python -m tests.e2e.transform_program BOOTSTRAP_SERVERS TRANSACTIONAL_ID SOURCE TARGET TARGET_PARTITIONS

The group is the transactional id. Number n becomes `n!`, in partition n modulo TARGET_PARTITIONS. On its standard
output it prints events, a JSON object a line: {"event": "committed", "numbers": [...]}, "aborted" or "failed" with
the error's code, and "fenced" when another one has the id: then it does no more. Ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer, ConsumerRecord, GroupMetadata
from streamlog.errors import ProducerFencedError, StreamlogError
from streamlog.model import PartitionId, TopicPartition

POLL_S = 0.1
AGAIN_S = 0.1
RECORDS_MAX = 10
"""Of one transaction, so that there are many."""
TRANSACTION_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 6_000
"""As low as nodes allow: a program that dies with its coordinator is missed by its silence alone."""


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


class Transform:
    def __init__(self, consumer: AsyncConsumer, producer: AsyncProducer, group: str, target: str, count: int) -> None:
        self._consumer = consumer
        self._producer = producer
        self._group = group
        self._target = target
        self._count = count

    async def turn(self) -> None:
        """One poll. ProducerFencedError: another one goes on."""
        records = await self._consumer.poll(RECORDS_MAX, timeout_s=POLL_S)
        if not records:
            return
        try:
            async with self._producer.transaction():
                await self._write(records)
        except ProducerFencedError:
            raise
        except StreamlogError as error:
            say("aborted", code=error.code)
            await self._go_back()
        else:
            say("committed", numbers=[int(record.value or b"-1") for record in records])

    async def _write(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            number = int(record.value or b"-1")
            self._producer.send(self._target, b"%d!" % number, partition=number % self._count)
        ends = {TopicPartition(one.topic, PartitionId(one.partition)): one.offset + 1 for one in records}
        member_id, epoch = self._consumer.member_id, self._consumer.member_epoch
        await self._producer.send_offsets(ends, GroupMetadata(self._group, member_id or "none", epoch or 0))

    async def _go_back(self) -> None:
        """To where the group stands, in what is still this member's."""
        for partition, at in (await self._consumer.committed(self._consumer.assignment)).items():
            if partition in self._consumer.assignment:
                self._consumer.seek(partition, EARLIEST if at is None else at.offset)


async def main(bootstrap_servers: str, transactional_id: str, source: str, target: str, count: str) -> None:
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    consumer = AsyncConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=transactional_id,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AsyncProducer(
        bootstrap_servers=bootstrap_servers,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        linger_ms=0,
    )
    async with consumer, producer:
        await producer.init_transactions()  # what a dead one has left open holds the group's offsets
        consumer.subscribe([source])
        transform = Transform(consumer, producer, transactional_id, target, int(count))
        while not ended.done():
            try:
                await transform.turn()
            except ProducerFencedError:
                say("fenced")
                return
            except StreamlogError as error:
                say("failed", code=error.code)
                await asyncio.sleep(AGAIN_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:6]))
