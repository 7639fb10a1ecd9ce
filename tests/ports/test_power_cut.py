"""What the disk port promises across a power cut: on the simulated disk, and on a real ext4 that loses its power."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from .disks import Disk, SimulatedDisk
from .loopdev import LoopDisk, unavailable

SIM_SEEDS = 25


class CuttableDisk(Disk, Protocol):
    def power_cut(self) -> None: ...


@pytest.fixture(params=["sim", pytest.param("loopdev", marks=pytest.mark.loopdev)])
def new_disks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Iterator[CuttableDisk]]]:
    """Many simulated disks, each its own seed; one real."""
    made: list[CuttableDisk] = []
    if request.param == "loopdev" and (reason := unavailable()):
        pytest.skip(reason)

    def disks() -> Iterator[CuttableDisk]:
        if request.param == "loopdev":
            made.append(LoopDisk(tmp_path))
            yield made[-1]
        else:
            for seed in range(SIM_SEEDS):
                yield SimulatedDisk(seed)

    yield disks
    for disk in made:
        disk.close()


NewDisks = Callable[[], Iterator[CuttableDisk]]


def content(disk: Disk, name: str) -> bytes:
    file = disk.fs.open(f"{disk.root}/{name}")
    try:
        return file.pread(1 << 24, 0)
    finally:
        file.close()


def test_a_synced_file_of_a_synced_name_is_there(new_disks: NewDisks) -> None:
    for disk in new_disks():
        file = disk.fs.open(f"{disk.root}/a", create=True)
        file.pwritev([b"S" * 5000], 0)
        disk.run(file.sync())
        disk.run(disk.fs.sync_dir(disk.root))
        file.pwritev([b"U" * 5000], 5000)
        disk.power_cut()
        found = content(disk, "a")
        assert found[:5000] == b"S" * 5000
        assert not found[5000:].strip(b"U\0")


def test_a_replaced_file_is_whole_the_old_one_or_the_new(new_disks: NewDisks) -> None:
    """Write aside, sync, rename, sync the directory: checkpoints are written so."""
    for disk in new_disks():
        old, new = b"old" * 2000, b"newer" * 3000
        for generation, synced in ((old, True), (new, False)):
            file = disk.fs.open(f"{disk.root}/a.tmp", create=True)
            file.pwritev([generation], 0)
            disk.run(file.sync())
            disk.fs.rename(f"{disk.root}/a.tmp", f"{disk.root}/a")
            if synced:
                disk.run(disk.fs.sync_dir(disk.root))
        disk.power_cut()
        assert content(disk, "a") in (old, new)


def test_synced_names_stay_and_synced_removals_stay_gone(new_disks: NewDisks) -> None:
    for disk in new_disks():
        fs, root = disk.fs, disk.root
        fs.mkdir(f"{root}/topic-0")
        for name in ("topic-0/log", "unlinked"):
            fs.open(f"{root}/{name}", create=True).close()
        disk.run(fs.sync_all(root))
        fs.rename(f"{root}/topic-0", f"{root}/topic-0-delete")
        fs.unlink(f"{root}/unlinked")
        disk.run(fs.sync_dir(root))
        disk.power_cut()
        assert [name for name in disk.fs.list(root) if name != "lost+found"] == ["topic-0-delete"]
        assert disk.fs.list(f"{root}/topic-0-delete") == ["log"]


def test_sync_all_covers_every_file_and_name(new_disks: NewDisks) -> None:
    for disk in new_disks():
        names = [f"d{i}/{j}" for i in range(3) for j in range(3)]
        for i in range(3):
            disk.fs.mkdir(f"{disk.root}/d{i}")
        for name in names:
            file = disk.fs.open(f"{disk.root}/{name}", create=True)
            file.pwritev([name.encode() * 1000], 0)
        disk.run(disk.fs.sync_all(disk.root))
        disk.power_cut()
        assert [content(disk, name) for name in names] == [name.encode() * 1000 for name in names]


def test_synced_sizes_are_kept(new_disks: NewDisks) -> None:
    for disk in new_disks():
        cut, grown, kept = (disk.fs.open(f"{disk.root}/{name}", create=True) for name in ("cut", "grown", "kept"))
        cut.pwritev([b"x" * 10_000], 0)
        disk.run(disk.fs.sync_all(disk.root))
        cut.truncate(123)
        grown.fallocate(10_485_760)
        grown.pwritev([b"entry"], 0)
        kept.fallocate(1 << 20, keep_size=True)
        kept.pwritev([b"abc"], 0)
        for file in (cut, grown, kept):
            disk.run(file.sync())
        disk.power_cut()
        assert content(disk, "cut") == b"x" * 123
        assert content(disk, "grown") == b"entry" + bytes(10_485_755)
        assert content(disk, "kept") == b"abc"


def test_what_nobody_synced_may_be_lost(new_disks: NewDisks) -> None:
    """The test of the test: a disk that loses nothing proves nothing."""
    lost = set()
    for disk in new_disks():
        file = disk.fs.open(f"{disk.root}/synced", create=True)
        disk.run(disk.fs.sync_all(disk.root))
        file.pwritev([b"x" * 5000], 0)
        disk.fs.open(f"{disk.root}/unsynced", create=True).close()
        disk.power_cut()
        lost.add(("bytes", content(disk, "synced") != b"x" * 5000))
        lost.add(("name", not disk.fs.exists(f"{disk.root}/unsynced")))
    assert {("bytes", True), ("name", True)} <= lost


@pytest.mark.parametrize("seed", range(3))
def test_random_appends_and_syncs_keep_their_promise(new_disks: NewDisks, seed: int) -> None:
    for number, disk in enumerate(new_disks()):
        rng = random.Random(f"{seed}/{number}")
        names = ["a", "b", "c"]
        written = dict.fromkeys(names, b"")
        for name in names:
            disk.fs.open(f"{disk.root}/{name}", create=True).close()
        disk.run(disk.fs.sync_dir(disk.root))
        for _ in range(4):
            files = {name: disk.fs.open(f"{disk.root}/{name}") for name in names}
            promised = {name: len(written[name]) for name in names}
            for _ in range(rng.randrange(1, 20)):
                name = rng.choice(names)
                chunk = bytes([rng.randrange(1, 256)]) * rng.randrange(1, 3000)
                files[name].pwritev([chunk], len(written[name]))
                written[name] += chunk
                if rng.random() < 0.3:
                    disk.run(files[name].sync())
                    promised[name] = len(written[name])
                elif rng.random() < 0.05:
                    disk.run(disk.fs.sync_all(disk.root))
                    promised = {name: len(written[name]) for name in names}
            disk.power_cut()
            for name in names:
                found = content(disk, name)
                assert found[: promised[name]] == written[name][: promised[name]]
                assert len(found) <= len(written[name])
                assert all(byte in (0, was) for byte, was in zip(found, written[name], strict=False))
                with_cut = disk.fs.open(f"{disk.root}/{name}")
                with_cut.truncate(promised[name])
                disk.run(with_cut.sync())
                written[name] = written[name][: promised[name]]
