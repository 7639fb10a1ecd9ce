"""A real process that appends to a log and reports each record that is on stable storage: `python -m ... DIRECTORY`."""

from __future__ import annotations

import asyncio
import sys

from streamlog.model import BrokerId, LeaderEpoch, PartitionId, TopicPartition
from streamlog.ports import no_probe
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.system import SystemClock, run, system_random
from streamlog.records import ProduceLimits, validate
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from tests.storage.batches import batch

PARTITION = TopicPartition("real", PartitionId(0))
CONFIG = LogConfig(segment_bytes=20_000, segment_index_bytes=4096)
LIMITS = ProduceLimits(message_bytes_max=1 << 20)


async def open_directory(fs: PosixFileSystem, path: str) -> LogDirectory:
    directory = await LogDirectory.open(
        fs, path, clock=SystemClock(), random=system_random(), probe=no_probe, node_id=BrokerId(1)
    )
    await directory.open_logs(lambda _: CONFIG)
    return directory


async def main(path: str) -> None:
    directory = await open_directory(PosixFileSystem(), path)
    log = directory.logs.get(PARTITION) or await directory.create_log(PARTITION, CONFIG)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(directory.run())
        for writer in range(8):
            tasks.create_task(write(log, writer))


async def write(log: Log, writer: int) -> None:
    count = 0
    while True:
        count += 1
        value = b"%d/%d/%d/" % (log.epochs.latest, writer, count) + b"x" * (count * 37 % 700)
        data = batch([value])
        done = log.append_as_leader(data, validate(data, 0, len(data), LIMITS, 0), LeaderEpoch(0), 0)
        await log.durability.wait_until_synced(done.next_offset)
        print(done.first_offset, value.decode(), flush=True)


if __name__ == "__main__":
    run(main(sys.argv[1]))
