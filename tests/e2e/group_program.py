"""A member of a group as a program of its own, which says on its standard output what happens, a JSON object a line.

python -m tests.e2e.group_program BOOTSTRAP_SERVERS GROUP TOPIC

    {"at": s, "event": "assigned" | "revoked" | "lost", "partitions": [...], "epoch": of the member}
    {"at": s, "event": "given" | "committed", "partition": ..., "offset": of the record, or the next one to read}

`at`: the machine's monotonic clock, so that lines of several programs can be compared. Ends in order when its standard
input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from streamlog.client import AsyncConsumer
from streamlog.errors import StreamlogError
from streamlog.model import TopicPartition

POLL_S = 0.1


def say(event: str, **facts: object) -> None:
    print(json.dumps({"at": time.monotonic(), "event": event, **facts}), flush=True)


async def main(bootstrap_servers: str, group: str, topic: str) -> None:
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    consumer = AsyncConsumer(
        bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )

    def printing(event: str) -> Callable[[Sequence[TopicPartition]], None]:
        return lambda partitions: say(event, partitions=[p.partition for p in partitions], epoch=consumer.member_epoch)

    async with consumer:
        consumer.subscribe(
            [topic], on_assigned=printing("assigned"), on_revoked=printing("revoked"), on_lost=printing("lost")
        )
        while not ended.done():
            records = await consumer.poll(timeout_s=POLL_S)
            for record in records:
                say("given", partition=record.partition, offset=record.offset)
            if records:
                await commit(consumer, {record.partition: record.offset + 1 for record in records})


async def commit(consumer: AsyncConsumer, ends: Mapping[int, int]) -> None:
    """A refused commit is no failure here: the present owner of the partition reads it again."""
    try:
        await consumer.commit()
    except StreamlogError:
        return
    for partition, offset in ends.items():
        say("committed", partition=partition, offset=offset)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
