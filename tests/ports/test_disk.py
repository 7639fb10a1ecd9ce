"""Conformance of the disk port: each case runs on SimFileSystem and on PosixFileSystem."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import InvariantError
from streamlog.ports import File

from .disks import Disk, PosixDisk, SimulatedDisk

PAGE = 4096


@pytest.fixture(params=["sim", "posix"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk = SimulatedDisk() if request.param == "sim" else PosixDisk(tmp_path)
    yield made
    made.close()


def make(disk: Disk, name: str = "a", content: bytes = b"") -> File:
    file = disk.fs.open(f"{disk.root}/{name}", create=True)
    file.pwritev([content], 0)
    return file


# Bytes.


def test_what_was_written_is_read(disk: Disk) -> None:
    file = make(disk)
    assert (file.size(), file.pread(10, 0), file.path) == (0, b"", f"{disk.root}/a")
    file.pwritev([b"abc", bytearray(b""), memoryview(b"_def_")[1:4]], 0)
    assert file.size() == 6
    assert file.pread(100, 0) == b"abcdef"
    assert file.pread(2, 3) == b"de"
    assert file.pread(0, 3) == file.pread(9, 6) == file.pread(9, 99) == b""
    file.pwritev([], 3)
    file.pwritev([b"XY"], 2)
    assert file.pread(100, 0) == b"abXYef"
    file.pwritev([b"end"], 10)
    assert file.pread(100, 5) == b"f\0\0\0\0end"


def test_many_buffers_make_one_write(disk: Disk) -> None:
    file = make(disk)
    rng = random.Random(1)
    buffers = [rng.randbytes(rng.randrange(200)) for _ in range(2500)]
    file.pwritev(buffers, 7)
    whole = b"".join(buffers)
    assert file.pread(len(whole) + 1, 7) == whole
    assert file.size() == 7 + len(whole)


def test_every_way_of_reading_gives_the_same(disk: Disk) -> None:
    content = random.Random(2).randbytes(3 * PAGE + 17)
    file = make(disk, content=content)
    for size, offset in [
        (10, 0),
        (len(content), 0),
        (PAGE, PAGE - 1),
        (100, len(content) - 3),
        (5, len(content)),
        (0, 9),
    ]:
        expected = content[offset : offset + size]
        assert file.pread(size, offset) == expected
        assert disk.run(file.read(size, offset)) == expected
        warm = {file.try_pread(size, offset) for _ in range(20)} - {None}
        assert warm <= {expected}


def test_two_handles_are_one_file(disk: Disk) -> None:
    one, two = make(disk), make(disk)
    one.pwritev([b"abc"], 0)
    assert two.pread(9, 0) == b"abc"
    two.truncate(1)
    assert one.size() == 1
    one.close()
    assert two.pread(9, 0) == b"a"


def test_truncate_cuts_and_extends_with_zeros(disk: Disk) -> None:
    file = make(disk, content=b"x" * (PAGE + 10))
    file.truncate(PAGE + 5)
    file.truncate(2 * PAGE)
    assert file.pread(9 * PAGE, PAGE) == b"x" * 5 + bytes(PAGE - 5)
    file.truncate(3)
    file.pwritev([b"y"], 5)
    assert file.pread(99, 0) == b"xxx\0\0y"
    file.truncate(0)
    assert file.size() == 0
    with pytest.raises(OSError) as refused:  # noqa: PT011  the number is looked at below
        file.truncate(-1)
    assert refused.value.errno == errno.EINVAL


def test_a_file_knows_when_its_bytes_last_changed(disk: Disk) -> None:
    file, other = make(disk, "a"), make(disk, "b", b"b")
    first = file.modified_ms()
    assert 0 <= other.modified_ms() - first < 60_000
    assert other.pread(1, 0) == b"b"
    assert file.modified_ms() == first > 1_600_000_000_000
    other.truncate(0)
    assert other.modified_ms() >= first


def test_fallocate_grows_unless_keep_size_is_set(disk: Disk) -> None:
    file = make(disk, content=b"abc")
    file.fallocate(10 * PAGE, keep_size=True)
    assert (file.size(), file.pread(99, 0)) == (3, b"abc")
    file.fallocate(2)
    assert file.size() == 3
    file.fallocate(2 * PAGE)
    assert (file.size(), file.pread(9, 0)) == (2 * PAGE, b"abc" + bytes(6))
    file.truncate(2)
    file.fallocate(5)
    assert file.pread(9, 0) == b"ab\0\0\0"


def test_a_mapping_sees_later_writes(disk: Disk) -> None:
    file = make(disk, content=b"x" * PAGE)
    file.fallocate(3 * PAGE)
    mapping = file.map(2 * PAGE)
    assert len(mapping.view) == 2 * PAGE
    assert mapping.view.readonly
    assert bytes(mapping.view[PAGE - 2 : PAGE + 2]) == b"xx\0\0"
    file.pwritev([b"new" * 5], 2 * PAGE - 3)
    assert bytes(mapping.view[-4:]) == b"\0new"
    make(disk, content=b"y")
    assert mapping.view[0] == ord("y")
    file.close()
    assert mapping.view[1] == ord("x")
    mapping.close()
    mapping.close()


def test_a_mapping_bars_truncation_below_it(disk: Disk) -> None:
    file = make(disk, content=b"x" * 2 * PAGE)
    mapping = file.map(PAGE)
    file.truncate(PAGE)
    with pytest.raises(InvariantError, match="below an open mapping"):
        file.truncate(PAGE - 1)
    mapping.close()
    file.truncate(0)
    for size in (0, 1, -1):
        with pytest.raises(ValueError, match="cannot be mapped"):
            file.map(size)


def test_a_mapping_with_a_slice_in_use_is_not_closed(disk: Disk) -> None:
    file = make(disk, content=b"x" * PAGE)
    mapping = file.map(PAGE)
    held = mapping.view[:5]
    with pytest.raises(BufferError):
        mapping.close()
    assert bytes(held) == b"xxxxx"
    held.release()
    mapping.close()


def test_a_closed_file_is_of_no_use(disk: Disk) -> None:
    file = make(disk)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        file.size,
        lambda: file.pread(1, 0),
        lambda: file.try_pread(1, 0),
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
        lambda: file.fallocate(1),
        lambda: disk.run(file.sync()),
        lambda: disk.run(file.read(1, 0)),
    ]
    for call in calls:
        with pytest.raises(OSError) as refused:  # noqa: PT011  the number is looked at below
            call()
        assert refused.value.errno == errno.EBADF


def test_a_file_opened_for_reading_is_not_written(disk: Disk) -> None:
    make(disk, content=b"abc").close()
    file = disk.fs.open_readonly(f"{disk.root}/a")
    assert (file.size(), file.pread(9, 0), disk.run(file.read(9, 1))) == (3, b"abc", b"bc")
    mapping = file.map(3)
    assert bytes(mapping.view) == b"abc"
    mapping.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwritev([b"x"], 0)
    assert file.pread(9, 0) == b"abc"


def test_syncs_overlap_and_a_close_does_not_disturb_them(disk: Disk) -> None:
    files = [make(disk, str(i), b"x" * 100_000) for i in range(5)]

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for file in files * 4:
                group.create_task(file.sync())
            group.create_task(disk.fs.sync_dir(disk.root))
            group.create_task(disk.fs.sync_all(disk.root))
            await asyncio.sleep(0)
            for file in files:
                file.close()

    disk.run(work())
    assert [disk.fs.open(f"{disk.root}/{i}").size() for i in range(5)] == [100_000] * 5


def test_a_cancelled_sync_leaves_the_file_in_use(disk: Disk) -> None:
    file = make(disk, content=b"x" * 1_000_000)

    async def work() -> None:
        syncing = asyncio.ensure_future(file.sync())
        await asyncio.sleep(0)
        syncing.cancel()
        await asyncio.wait([syncing])
        await file.sync()
        file.close()

    disk.run(work())
    assert disk.fs.open(f"{disk.root}/a").size() == 1_000_000


# Names.


def test_names_come_and_go(disk: Disk) -> None:
    fs, root = disk.fs, disk.root
    assert fs.list(root) == []
    fs.mkdir(f"{root}/d")
    make(disk, "b", b"1").close()
    make(disk, "d/x", b"2").close()
    assert fs.list(root) == ["b", "d"]
    assert (fs.exists(f"{root}/b"), fs.is_dir(f"{root}/b")) == (True, False)
    assert (fs.exists(f"{root}/d"), fs.is_dir(f"{root}/d")) == (True, True)
    assert (fs.exists(f"{root}/b/y"), fs.exists(f"{root}/no"), fs.is_dir(f"{root}/no")) == (False, False, False)
    fs.rename(f"{root}/b", f"{root}/d/y")
    assert (fs.list(root), fs.list(f"{root}/d")) == (["d"], ["x", "y"])
    fs.rename(f"{root}/d/y", f"{root}/d/x")
    assert fs.open(f"{root}/d/x").pread(9, 0) == b"1"
    fs.unlink(f"{root}/d/x")
    fs.rmdir(f"{root}/d")
    assert fs.list(root) == []
    disk.run(fs.sync_dir(root))


def test_a_directory_moves_with_what_is_in_it(disk: Disk) -> None:
    fs, root = disk.fs, disk.root
    fs.mkdir(f"{root}/topic-0")
    file = make(disk, "topic-0/log", b"abc")
    fs.rename(f"{root}/topic-0", f"{root}/topic-0-delete")
    assert fs.list(f"{root}/topic-0-delete") == ["log"]
    file.pwritev([b"X"], 0)
    assert fs.open(f"{root}/topic-0-delete/log").pread(9, 0) == b"Xbc"
    fs.mkdir(f"{root}/empty")
    fs.rename(f"{root}/topic-0-delete", f"{root}/empty")
    assert fs.list(root) == ["empty"]


def test_an_unlinked_file_lives_while_it_is_open(disk: Disk) -> None:
    file = make(disk, content=b"abc")
    disk.fs.unlink(f"{disk.root}/a")
    file.pwritev([b"d"], 3)
    assert file.pread(9, 0) == b"abcd"
    disk.run(file.sync())
    assert make(disk).size() == 0


def test_mkdir_with_parents_makes_the_whole_way(disk: Disk) -> None:
    fs, root = disk.fs, disk.root
    fs.mkdir(f"{root}/x/y/z", parents=True)
    fs.mkdir(f"{root}/x/y/z", parents=True)
    assert fs.is_dir(f"{root}/x/y/z")
    make(disk, "file").close()
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/file", parents=True)
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/file/below", parents=True)


REFUSALS: list[tuple[str, Callable[[Disk, str], object], type[OSError]]] = [
    ("open missing", lambda d, r: d.fs.open(f"{r}/no"), FileNotFoundError),
    ("open under missing", lambda d, r: d.fs.open(f"{r}/no/x", create=True), FileNotFoundError),
    ("open under file", lambda d, r: d.fs.open(f"{r}/file/x", create=True), NotADirectoryError),
    ("open directory", lambda d, r: d.fs.open(f"{r}/full"), IsADirectoryError),
    ("read directory", lambda d, r: d.fs.open_readonly(f"{r}/full"), IsADirectoryError),
    ("read missing", lambda d, r: d.fs.open_readonly(f"{r}/no"), FileNotFoundError),
    ("list missing", lambda d, r: d.fs.list(f"{r}/no"), FileNotFoundError),
    ("list file", lambda d, r: d.fs.list(f"{r}/file"), NotADirectoryError),
    ("rename missing", lambda d, r: d.fs.rename(f"{r}/no", f"{r}/x"), FileNotFoundError),
    ("rename file to directory", lambda d, r: d.fs.rename(f"{r}/file", f"{r}/full"), IsADirectoryError),
    ("rename directory to file", lambda d, r: d.fs.rename(f"{r}/full", f"{r}/file"), NotADirectoryError),
    ("rename to full directory", lambda d, r: d.fs.rename(f"{r}/other", f"{r}/full"), OSError),
    ("rename into itself", lambda d, r: d.fs.rename(f"{r}/full", f"{r}/full/x"), OSError),
    ("unlink missing", lambda d, r: d.fs.unlink(f"{r}/no"), FileNotFoundError),
    ("unlink directory", lambda d, r: d.fs.unlink(f"{r}/full"), IsADirectoryError),
    ("rmdir missing", lambda d, r: d.fs.rmdir(f"{r}/no"), FileNotFoundError),
    ("rmdir file", lambda d, r: d.fs.rmdir(f"{r}/file"), NotADirectoryError),
    ("rmdir full", lambda d, r: d.fs.rmdir(f"{r}/full"), OSError),
    ("mkdir existing", lambda d, r: d.fs.mkdir(f"{r}/full"), FileExistsError),
    ("mkdir under missing", lambda d, r: d.fs.mkdir(f"{r}/no/x"), FileNotFoundError),
    ("sync missing", lambda d, r: d.run(d.fs.sync_dir(f"{r}/no")), FileNotFoundError),
    ("sync all missing", lambda d, r: d.run(d.fs.sync_all(f"{r}/no")), FileNotFoundError),
    ("free of missing", lambda d, r: d.fs.free_bytes(f"{r}/no"), FileNotFoundError),
    ("size of missing", lambda d, r: d.fs.total_bytes(f"{r}/no"), FileNotFoundError),
    ("name too long", lambda d, r: d.fs.open(f"{r}/{'x' * 256}", create=True), OSError),
]


@pytest.mark.parametrize(("call", "error"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_what_cannot_be_done_says_so_and_changes_nothing(
    disk: Disk, call: Callable[[Disk, str], object], error: type[OSError]
) -> None:
    make(disk, "file").close()
    for name in ("full", "other"):
        disk.fs.mkdir(f"{disk.root}/{name}")
        make(disk, f"{name}/x").close()
    with pytest.raises(OSError) as refused:  # noqa: PT011  the class is looked at below
        call(disk, disk.root)
    assert type(refused.value) is error
    assert disk.fs.list(disk.root) == ["file", "full", "other"]
    assert disk.fs.list(f"{disk.root}/full") == ["x"]


@pytest.mark.parametrize("path", ["relative", "", "/a/../b", "/nul\0"])
def test_paths_are_absolute_and_straight(disk: Disk, path: str) -> None:
    with pytest.raises(ValueError, match="not an absolute path"):
        disk.fs.open(path, create=True)


def test_a_lock_excludes_the_second_taker(disk: Disk) -> None:
    path = f"{disk.root}/.lock"
    lock = disk.fs.lock(path)
    with pytest.raises(BlockingIOError):
        disk.fs.lock(path)
    lock.release()
    lock.release()
    second = disk.fs.lock(path)
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.fs.lock(path)
    second.release()
    assert disk.fs.list(disk.root) == [".lock"]


def test_what_is_free_is_a_part_of_the_file_system(disk: Disk) -> None:
    assert 1 << 20 < disk.fs.free_bytes(disk.root) <= disk.fs.total_bytes(disk.root)


# Random operations against a plain model, in both worlds at once.

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("abc"), st.integers(0, 2 * PAGE), st.binary(max_size=40)),
        st.tuples(st.just("truncate"), st.sampled_from("abc"), st.integers(0, 2 * PAGE), st.just(b"")),
        st.tuples(st.just("allocate"), st.sampled_from("abc"), st.integers(1, 2 * PAGE), st.just(b"")),
        st.tuples(st.just("rename"), st.sampled_from("abc"), st.integers(0, 2), st.just(b"")),
        st.tuples(st.just("unlink"), st.sampled_from("abc"), st.just(0), st.just(b"")),
    ),
    max_size=15,
)


def carry_out(disk: Disk, root: str, operations: list[tuple[str, str, int, bytes]]) -> dict[str, bytes | str]:
    """What stands in `root` afterwards, and the errors by the number of their operation."""
    fs, seen = disk.fs, {}
    for index, (kind, name, at, data) in enumerate(operations):
        path = f"{root}/{name}"
        try:
            if kind == "write":
                file = fs.open(path, create=True)
                file.pwritev([data], at)
                file.close()
            elif kind == "rename":
                fs.rename(path, f"{root}/{'abc'[at]}")
            elif kind == "unlink":
                fs.unlink(path)
            else:
                file = fs.open(path)
                file.truncate(at) if kind == "truncate" else file.fallocate(at)
                file.close()
        except OSError as error:
            seen[str(index)] = type(error).__name__
    contents: dict[str, bytes | str] = {name: fs.open(f"{root}/{name}").pread(1 << 20, 0) for name in fs.list(root)}
    return contents | seen


@given(OPERATIONS)
@settings(deadline=None, max_examples=100)
def test_both_worlds_do_the_same(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, int, bytes]]
) -> None:
    simulated, real = SimulatedDisk(), PosixDisk(tmp_path_factory.mktemp("both"))
    try:
        assert carry_out(simulated, simulated.root, operations) == carry_out(real, real.root, operations)
    finally:
        simulated.close()
        real.close()
