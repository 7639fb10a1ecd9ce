"""Everything is read once in a while, at a rate, and a restart goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from streamlog.model import Offset
from streamlog.sim.machine import Machine
from streamlog.storage.integrity.scrubber import FIRST_AFTER_MS, Scrubber
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import DIRECTORY, PARTITION, Rig

WEEK_MS = 7 * 86_400_000
SEGMENT = f"{DIRECTORY}/topic-0/00000000000000000000.log"


@pytest.fixture
def rig() -> Iterator[Rig]:
    machine = Machine(1)
    rig = Rig(machine, LogConfig(segment_bytes=1500, segment_index_bytes=1024, index_interval_bytes=300))
    for number in range(40):
        rig.append(b"%03d" % number + bytes(57))
    rig.sync()
    rig.stop()
    rig.start()
    yield rig
    machine.close()


def scrubber_of(rig: Rig, rate: int = 1 << 20) -> Scrubber:
    return Scrubber(
        rig.machine.fs,
        rig.directory,
        rig.machine.clock,
        interval_ms=lambda: WEEK_MS,
        bytes_per_second=lambda: rate,
    )


def run_for(rig: Rig, scrubber: Scrubber, seconds: float) -> None:
    async def running() -> None:
        task = asyncio.ensure_future(scrubber.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait([task])

    rig.machine.run(running(), within_s=seconds + 1)


def test_it_finds_what_nobody_reads(rig: Rig) -> None:
    rig.machine.disk.damage(SEGMENT, 700, b"?!?!")
    scrubber = scrubber_of(rig)
    rig.machine.run(scrubber.round())
    assert scrubber.progress.damaged_ranges == 1
    assert scrubber.progress.read_bytes >= rig.log.size_bytes - 200
    assert scrubber.progress.ended_ms >= 0
    assert rig.directory.scrub is scrubber.progress
    assert [found.damages[0].path for found in rig.log.damaged_segments.values()] == [SEGMENT]
    assert [event for event, _ in rig.events].count("damage_found") == 1


def test_it_begins_after_an_hour_and_again_after_a_week(rig: Rig) -> None:
    scrubber = scrubber_of(rig)
    run_for(rig, scrubber, FIRST_AFTER_MS / 1000 - 100)
    assert scrubber.progress.started_ms == -1
    run_for(rig, scrubber, 300)
    first = scrubber.progress.started_ms
    assert scrubber.progress.ended_ms >= first > 0
    run_for(rig, scrubber, WEEK_MS / 1000 - 3600)
    assert scrubber.progress.started_ms == first
    run_for(rig, scrubber, 7200)
    assert scrubber.progress.started_ms > first


def test_it_keeps_to_the_rate(rig: Rig) -> None:
    scrubber = scrubber_of(rig, rate=1000)
    begun = rig.machine.clock.monotonic()
    rig.machine.run(scrubber.round())
    assert rig.machine.clock.monotonic() - begun >= rig.log.size_bytes / 1000 * 0.9


def test_a_restart_goes_on_where_it_was(rig: Rig) -> None:
    scrubber = scrubber_of(rig, rate=10)  # minutes a segment: what is done is saved in between
    task_s = 400.0

    async def some() -> None:
        task = asyncio.ensure_future(scrubber.round())
        await asyncio.sleep(task_s)
        task.cancel()
        await asyncio.wait([task])

    rig.machine.run(some())
    read = scrubber.progress.read_bytes
    assert 0 < read < rig.log.size_bytes
    rig.stop()
    rig.start()
    again = scrubber_of(rig)
    assert again.progress.started_ms == scrubber.progress.started_ms
    assert again.progress.ended_ms == -1
    rig.machine.run(again.round())
    assert again.progress.ended_ms > 0
    assert again.progress.read_bytes < rig.log.size_bytes + 4 * 1500, "it does not begin at the beginning"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 9}',
        b'{"version": 0, "done": 3}',
        b'{"version": 0, "started_ms": 1e999}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_checkpoint_is_forgotten(rig: Rig, content: bytes) -> None:
    path = f"{DIRECTORY}/scrub-checkpoint"

    def write() -> None:
        file = rig.machine.fs.open(path, create=True)
        file.pwritev((content,), 0)
        file.close()

    rig.do(write)
    scrubber = scrubber_of(rig)
    assert scrubber.progress.started_ms == -1
    rig.machine.run(scrubber.round())
    assert scrubber.progress.damaged_ranges == 0


def test_a_log_that_goes_meanwhile_is_left(rig: Rig) -> None:
    scrubber = scrubber_of(rig, rate=100)

    async def story() -> None:
        task = asyncio.ensure_future(scrubber.round())
        await asyncio.sleep(5)
        await rig.log.truncate(Offset(20))
        await asyncio.sleep(5)
        await rig.directory.remove_log(PARTITION)
        await task

    rig.machine.run(story())
    assert scrubber.progress.ended_ms > 0
