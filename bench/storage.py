"""Benchmark part "storage": the log engine on the real disk, each figure beside the same bytes through plain writes."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import Figure
from bench.scratch import scratch
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports import no_probe
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.system import SystemClock, system_random
from streamlog.ports.system import run as run_loop
from streamlog.records import ProduceLimits, encode_batch, validate
from streamlog.records.batch import BatchFields
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import NEVER, LogConfig
from streamlog.storage.segments.scan import run as run_scan

PARTITION = TopicPartition("bench", PartitionId(0))
LIMITS = ProduceLimits(message_bytes_max=4 << 20)
MIB = 1 << 20
ROUNDS = 7


def run() -> list[Figure]:
    _raise_descriptor_limit()
    with scratch("storage") as base:
        return [
            *run_loop(_appends(base)),
            *run_loop(_recovery(base, 1 << 30)),
            *run_loop(_lookups(base, 10 << 30)),
            *_opening(base),
        ]


def _raise_descriptor_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _batch(records: int, size: int) -> bytes:
    return encode_batch([os.urandom(size)] * records, timestamps=[0] * records, fields=BatchFields())


async def _opened(fs: PosixFileSystem, path: Path, config: LogConfig) -> LogDirectory:
    directory = await LogDirectory.open(
        fs, str(path), clock=SystemClock(), random=system_random(), probe=no_probe, node_id=BrokerId(1)
    )
    await directory.open_logs(lambda _: config)
    return directory


def _append(log: Log, data: bytes) -> Offset:
    return log.append_as_leader(data, validate(data, 0, len(data), LIMITS, 0), LeaderEpoch(0), 0).next_offset


def _raw_seconds(path: Path, pieces: int, data: bytes, *, sync_each: bool) -> float:
    """The yardstick: os.write, and fdatasync after each piece or once at the end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    begin = time.perf_counter()
    for _ in range(pieces):
        os.write(descriptor, data)
        if sync_each:
            os.fdatasync(descriptor)
    os.fdatasync(descriptor)
    taken = time.perf_counter() - begin
    os.close(descriptor)
    return taken


async def _appends(base: Path) -> list[Figure]:
    fs = PosixFileSystem()
    directory = await _opened(fs, base / "appends", LogConfig())
    log = await directory.create_log(PARTITION, LogConfig())
    raw = base / "raw"
    large, small = _batch(1023, 1000), _batch(1, 100)
    shares: dict[str, list[tuple[float, float]]] = {"one": [], "four": [], "many": []}
    commits: list[tuple[float, int]] = []
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(directory.run())
        for _ in range(ROUNDS):
            raw_large = _raw_seconds(raw, 64, large, sync_each=True)
            shares["one"].append((await _large_appends(log, large, 64, window=1), raw_large))
            shares["four"].append((await _large_appends(log, large, 64, window=4), raw_large))
            raw_small = _raw_seconds(raw, 1000, small, sync_each=False)
            shares["many"].append((await _small_appends(log, small, 1000), raw_small))
            commits.append(await _writers(directory, log, small, 64))
        running.cancel()
    await directory.close(BrokerEpoch(1))
    fs.close()

    def share(name: str) -> float:
        return statistics.median(raw / ours for ours, raw in shares[name])

    def seconds(name: str) -> float:
        return statistics.median(ours for ours, _ in shares[name])

    mb = 64 * len(large) / 1e6
    rate, syncs = statistics.median(c for c, _ in commits), statistics.median(s for _, s in commits)
    raw_large_name, raw_small_name = "write + fdatasync of the same bytes", "1,000 writes + 1 fdatasync"
    return [
        Figure(name="append 1 MiB batches, 4 in flight, synced", value=mb / seconds("four"), unit="MB/s"),
        Figure(name="  as a share of raw writes", value=share("four"), unit="x", target=0.85, yardstick=raw_large_name),
        Figure(
            name="append 1 MiB batches, 1 in flight, synced",
            value=mb / seconds("one"),
            unit="MB/s",
            ratio=share("one"),
            yardstick=raw_large_name,
        ),
        Figure(
            name="1,000 batches of 100 B, one commit",
            value=seconds("many") * 1e3,
            unit="ms",
            less_is_better=True,
            ratio=share("many"),
            yardstick=raw_small_name,
        ),
        Figure(name="64 writers, each batch synced", value=rate, unit="commits/s"),
        Figure(name="  syncs for 6,400 commits", value=syncs, unit="syncs", less_is_better=True),
    ]


async def _large_appends(log: Log, data: bytes, count: int, *, window: int) -> float:
    begin = time.perf_counter()
    ends: list[Offset] = []
    for _ in range(count):
        ends.append(_append(log, data))
        if len(ends) >= window:
            await log.durability.wait_until_synced(ends[-window])
    await log.durability.wait_until_synced(ends[-1])
    return time.perf_counter() - begin


async def _small_appends(log: Log, data: bytes, count: int) -> float:
    begin = time.perf_counter()
    end = Offset(0)
    for _ in range(count):
        end = _append(log, data)
    await log.durability.wait_until_synced(end)
    return time.perf_counter() - begin


async def _writers(directory: LogDirectory, log: Log, data: bytes, writers: int) -> tuple[float, int]:
    async def write() -> None:
        for _ in range(100):
            await log.durability.wait_until_synced(_append(log, data))

    syncs, begin = directory.group_commit.syncs, time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(writers):
            tasks.create_task(write())
    return writers * 100 / (time.perf_counter() - begin), directory.group_commit.syncs - syncs


async def _recovery(base: Path, size: int) -> list[Figure]:
    """One segment of batches of 16 KiB, left without a clean stop, from the page cache."""
    fs = PosixFileSystem()
    config = LogConfig(segment_bytes=2**31 - 1)
    path = base / "recovery"
    directory = await _opened(fs, path, config)
    log = await directory.create_log(PARTITION, config)
    data = _batch(150, 100)
    while log.size_bytes < size:
        for _ in range(1_000):
            _append(log, data)
        await directory.group_commit.sync_now()
    end = log.log_end_offset
    fs.close()
    rates = []
    for _ in range(3):
        fs = PosixFileSystem()
        begin = time.perf_counter()
        directory = await _opened_unlocked(fs, path, config)
        rates.append(size / (time.perf_counter() - begin) / 1e9)
        assert directory.logs[PARTITION].log_end_offset == end
        fs.close()
    shutil.rmtree(path)
    rate = statistics.median(rates)
    return [Figure(name=f"recover an unclean segment of {size >> 20} MiB", value=rate, unit="GB/s", target=1.0)]


async def _opened_unlocked(fs: PosixFileSystem, path: Path, config: LogConfig) -> LogDirectory:
    """As after a crash: the lock of the life before is gone with its process, which here is the same one."""
    lock = path / ".lock"
    lock.unlink()
    return await _opened(fs, path, config)


async def _lookups(base: Path, large: int) -> list[Figure]:
    small = 10 * MIB
    taken = {size: await _lookup_micros(base / f"lookup-{size}", size) for size in (small, large)}
    ratio = taken[large] / taken[small]
    large_name = f"look up an offset in {large >> 30} GiB"
    return [
        Figure(name="look up an offset in 10 MiB", value=taken[small], unit="us", less_is_better=True),
        Figure(name=large_name, value=taken[large], unit="us", less_is_better=True),
        Figure(name="  times that in 10 MiB", value=ratio, unit="x", target=2, less_is_better=True),
    ]


async def _lookup_micros(path: Path, size: int) -> float:
    fs = PosixFileSystem()
    config = LogConfig(flush_messages=NEVER)
    log = await (await _opened(fs, path, config)).create_log(PARTITION, config)
    data = _batch(600, 100)
    while log.size_bytes < size:
        _append(log, data)
    for segment in log.segments:
        segment.tail = None  # measure the files, not what is remembered of the last appends
    chance = random.Random(1)
    offsets = [Offset(chance.randrange(log.log_end_offset)) for _ in range(5000)]

    def look() -> None:
        for offset in offsets:
            segment = log.segments.at(log.segments.index_of(offset))
            run_scan(segment.file, segment.seek(offset))

    look()
    taken = min(_seconds(look) for _ in range(5)) / len(offsets) * 1e6
    log.close()
    fs.close()
    shutil.rmtree(path)
    return taken


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _opening(base: Path) -> list[Figure]:
    """Opens 2,000 partitions after a clean stop, in a new process, to measure its memory."""
    path = base / "opening"
    run_loop(_make_partitions(path, 2000))
    rounds = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-m", "bench.storage", str(path)], capture_output=True, check=True)
        rounds.append([float(part) for part in done.stdout.split()])
    seconds = statistics.median(taken for taken, _ in rounds)
    kilobytes = statistics.median(memory for _, memory in rounds)
    return [
        Figure(name="open 2,000 partitions, clean", value=seconds, unit="s", target=1, less_is_better=True),
        Figure(name="  memory of an idle one", value=kilobytes, unit="KiB", target=20, less_is_better=True),
    ]


async def _make_partitions(path: Path, count: int) -> None:
    fs = PosixFileSystem()
    config = LogConfig()
    directory = await _opened(fs, path, config)
    data = _batch(5, 100)
    for i in range(count):
        log = await directory.create_log(TopicPartition("bench", PartitionId(i)), config)
        _append(log, data)
    await directory.close(BrokerEpoch(1))
    fs.close()


async def _open_and_measure(path: Path) -> None:
    """Prints seconds and KiB of memory a partition."""
    fs = PosixFileSystem()
    gc.collect()
    before, begin = _resident_bytes(), time.perf_counter()
    directory = await _opened(fs, path, LogConfig())
    taken = time.perf_counter() - begin
    gc.collect()
    print(taken, (_resident_bytes() - before) / len(directory.logs) / 1024)
    await directory.close(BrokerEpoch(1))
    fs.close()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    _raise_descriptor_limit()
    run_loop(_open_and_measure(Path(sys.argv[1])))
