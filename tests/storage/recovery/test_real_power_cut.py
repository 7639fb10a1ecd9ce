"""A real process, a real ext4 that loses its power: what was reported as synced is there (FAULTS: crash, power cut)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.model import Offset
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.records import decode_batch, scan_headers
from tests.ports.loopdev import LoopDisk, unavailable
from tests.storage.recovery.writer_process import PARTITION, open_directory

ROUNDS = 6
ACKNOWLEDGED_A_ROUND = 150


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    if reason := unavailable():
        pytest.skip(reason)
    made = LoopDisk(tmp_path, size_bytes=64 << 20)
    yield made
    made.close()


def acknowledged_until_killed(directory: str) -> dict[int, bytes]:
    """Start the writer, let it acknowledge some records, kill -9 it: offset -> value of what it reported."""
    command = [sys.executable, "-m", "tests.storage.recovery.writer_process", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(ACKNOWLEDGED_A_ROUND)]
        writer.kill()
        lines += writer.stdout.read().splitlines(keepends=True)
    whole = [line.split() for line in lines if line.endswith(b"\n")]
    return {int(offset): value for offset, value in whole}


async def read_all(directory: str) -> tuple[dict[int, bytes], object]:
    fs = PosixFileSystem()
    opened = await open_directory(fs, directory)
    log = opened.logs[PARTITION]
    found: dict[int, bytes] = {}
    offset = Offset(0)
    while data := await log.read(offset, 1 << 20):
        for position, header in scan_headers(data, 0, len(data)):
            found.update({record.offset: record.value or b"" for record in decode_batch(data, position)})
            offset = header.next_offset
    await opened.close()
    fs.close()
    return found, log.damage


@pytest.mark.loopdev
@pytest.mark.process
def test_synced_records_survive_the_power_cut_of_a_real_disk(disk: LoopDisk) -> None:
    directory = f"{disk.root}/data"
    acknowledged: dict[int, bytes] = {}
    for _ in range(ROUNDS):
        acknowledged.update(acknowledged_until_killed(directory))
        disk.power_cut()
        found, damage = asyncio.run(read_all(directory))
        assert damage is None
        assert acknowledged.items() <= found.items()
        assert sorted(found) == list(range(len(found)))
        acknowledged = found
