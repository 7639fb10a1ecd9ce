"""The well-behaved client beside the fuzzer: `python -m tests.fuzz.good SERVERS`, a process of its own.

Writes a record, waits for its acknowledgement, commits for its group, some fifty times a second, until a line comes on
standard input. Then it reads all of it back, and prints what it saw as JSON: latencies with their times (of the clock
that all processes share), errors, and what is not as it left it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from msgspec import Struct, field

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition

TOPIC = "well-behaved"
GROUP = "well-behaved"
PARTITIONS = 2
_PAUSE_S = 0.02
_COMMIT_EACH = 10
_READ_TIMEOUT_S = 30.0


class Seen(Struct):
    latencies: list[tuple[float, float]] = field(default_factory=list)  # monotonic time, seconds
    errors: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    written: int = 0
    read: int = 0


async def run(servers: str, ended: asyncio.Event) -> Seen:
    seen = Seen()
    acknowledged: dict[tuple[int, int], bytes] = {}
    committed: dict[TopicPartition, int] = {}
    async with (
        AsyncProducer(bootstrap_servers=servers) as producer,
        AsyncConsumer(bootstrap_servers=servers, group_id=GROUP) as committer,
    ):
        number = 0
        print("ready", flush=True)
        while not ended.is_set():
            number += 1
            value = b"record %d" % number
            begin = time.monotonic()
            try:
                sent = await producer.send(TOPIC, value, partition=number % PARTITIONS)
                seen.latencies.append((begin, time.monotonic() - begin))
                acknowledged[sent.partition, sent.offset] = value
                if number % _COMMIT_EACH == 0:
                    at = TopicPartition(TOPIC, PartitionId(sent.partition))
                    await committer.commit({at: sent.offset + 1})
                    committed[at] = sent.offset + 1
            except StreamlogError as error:
                seen.errors.append(f"record {number}: {error!r}"[:300])
            await asyncio.sleep(_PAUSE_S)
    seen.written = len(acknowledged)
    try:
        await _check(servers, acknowledged, committed, seen)
    except StreamlogError as error:
        seen.changed.append(f"cannot be read: {error!r}")
    return seen


async def _check(
    servers: str, acknowledged: dict[tuple[int, int], bytes], committed: dict[TopicPartition, int], seen: Seen
) -> None:
    found: dict[tuple[int, int], bytes | None] = {}
    partitions = [TopicPartition(TOPIC, PartitionId(number)) for number in range(PARTITIONS)]
    async with AsyncConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
        await consumer.assign(partitions, start=EARLIEST)
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while not acknowledged.keys() <= found.keys() and time.monotonic() < deadline:
            for record in await consumer.poll(timeout_s=1):
                found[record.partition, record.offset] = record.value
        stands = await consumer.committed(partitions)
    seen.read = len(found)
    for at, value in acknowledged.items():
        if found.get(at) != value:
            seen.changed.append(f"{at}: {value!r} was acknowledged, {found.get(at)!r} is there")
    values = [value for value in found.values() if value is not None]
    if len(set(values)) != len(values):
        seen.changed.append("records stand twice")
    # A record whose acknowledgement was lost may be there; one that was not sent may not.
    strangers = [value for value in values if not value.startswith(b"record ")]
    if strangers:
        seen.changed.append(f"{len(strangers)} records that it has not sent, such as {strangers[0]!r}")
    for one, offset in committed.items():
        found_at = stands[one]
        if found_at is None or found_at.offset < offset:
            seen.changed.append(f"{one}: {offset} was committed, {found_at} is there")


async def main() -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    seen = await run(sys.argv[1], ended)
    found: dict[str, Any] = {name: getattr(seen, name) for name in seen.__struct_fields__}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
