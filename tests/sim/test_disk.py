"""The page-cache model: what a power cut keeps, what a broken disk does. The port's contract: tests/ports."""

from __future__ import annotations

import collections
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import InvariantError
from streamlog.sim import DiskFaults, Machine
from streamlog.sim.files.image import PAGE, Image

MIB = 1 << 20


def machine(seed: int = 0, *, cold: float = 0.0, **faults: float) -> Machine:
    made = Machine(seed, faults=DiskFaults(cold=cold, **faults))  # type: ignore[arg-type]  # field by field
    made.fs.mkdir("/d")
    made.run(made.fs.sync_dir("/"))
    return made


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 3 * PAGE), st.binary(max_size=2 * PAGE)),
            st.tuples(st.just("resize"), st.integers(0, 5 * PAGE), st.just(b"")),
        ),
        max_size=12,
    )
)
@settings(deadline=None, max_examples=150)
def test_an_image_is_a_bytearray(operations: list[tuple[str, int, bytes]]) -> None:
    image, model = Image(), bytearray()
    for kind, at, data in operations:
        if kind == "resize":
            image.resize(at)
            del model[at:]
            model.extend(bytes(at - len(model)))
        else:
            image.write(data, at)
            if data:
                model.extend(bytes(max(0, at - len(model))))
                model[at : at + len(data)] = data
        assert image.size == len(model)
        assert image.read(image.size, 0) == model
        assert image.read(PAGE, PAGE // 2) == model[PAGE // 2 : PAGE // 2 + PAGE]
        assert all(not any(page[max(0, image.size - n * PAGE) :]) for n, page in image.pages.items())
    assert image.copy().read(image.size, 0) == model


def test_a_power_cut_keeps_what_was_synced_and_tears_the_rest() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(200):
        m = machine(seed)
        file = m.fs.open("/d/a", create=True)
        file.pwritev([b"S" * 1000], 0)
        m.run(file.sync())
        m.run(m.fs.sync_dir("/d"))
        file.pwritev([b"U" * 1500, b"U" * 500], 1000)
        assert file.pread(3000, 0) == b"S" * 1000 + b"U" * 2000
        m.power_cut()
        content = m.fs.open("/d/a").pread(9999, 0)
        assert content[:1000] == b"S" * 1000
        tail = content[1000:]
        assert not tail.strip(b"U\0")
        seen["none" if not tail else "all" if tail == b"U" * 2000 else "zeros" if not any(tail) else "torn"] += 1
        seen["zero tail"] += tail[-1:] == b"\0"
        m.close()
    assert all(seen[kind] for kind in ("none", "all", "torn", "zeros", "zero tail")), seen


def test_once_a_truncation_is_lost_all_after_it_is() -> None:
    seen = set()
    for seed in range(100):
        m = machine(seed)
        file = m.fs.open("/d/a", create=True)
        file.pwritev([b"old!" * 512], 0)
        m.run(m.fs.sync_all("/d"))
        file.truncate(1024)
        file.pwritev([b"new!" * 256], 1024)
        m.power_cut()
        content = m.fs.open("/d/a").pread(9999, 0)
        assert content[:1024] == b"old!" * 256
        seen.add((b"old!" in content[1024:], b"new!" in content[1024:]))
    assert seen == {(True, False), (False, True), (False, False)}


def test_names_need_a_sync_of_their_directory() -> None:
    seen = set()
    for seed in range(60):
        m = machine(seed)
        file = m.fs.open("/d/a", create=True)
        file.pwritev([b"1"], 0)
        m.run(m.fs.sync_all("/"))
        other = m.fs.open("/d/b", create=True)
        other.pwritev([b"2"], 0)
        m.run(other.sync())
        m.fs.rename("/d/b", "/d/a")
        m.power_cut()
        seen.add((m.fs.open("/d/a").pread(9, 0), m.fs.exists("/d/b")))
    assert seen == {(b"1", False), (b"1", True), (b"2", False)}


def test_a_directory_is_as_durable_as_its_own_name() -> None:
    seen = set()
    for seed in range(40):
        m = machine(seed)
        m.fs.mkdir("/d/topic-0")
        m.fs.open("/d/topic-0/log", create=True)
        m.run(m.fs.sync_dir("/d/topic-0"))
        m.fs.rename("/d/topic-0", "/d/topic-0-delete")
        m.power_cut()
        names = tuple(m.fs.list("/d"))
        seen.add(names)
        assert all(m.fs.list(f"/d/{name}") == ["log"] for name in names)
    assert seen == {(), ("topic-0",), ("topic-0-delete",)}


def test_a_rename_between_directories_is_kept_in_both_or_neither() -> None:
    seen = set()
    for seed in range(60):
        m = machine(seed)
        m.fs.mkdir("/e")
        m.fs.open("/d/a", create=True)
        m.run(m.fs.sync_all("/"))
        m.fs.open("/d/x", create=True)
        m.fs.rename("/d/a", "/e/b")
        m.fs.open("/e/y", create=True)
        if seed % 3 == 0:
            m.run(m.fs.sync_dir("/e"))
        m.power_cut()
        assert m.fs.exists("/d/a") != m.fs.exists("/e/b")
        assert m.fs.exists("/e/b") or not m.fs.exists("/e/y")
        assert m.fs.exists("/e/b") or seed % 3
        seen.add((m.fs.exists("/d/x"), m.fs.exists("/e/b"), m.fs.exists("/e/y")))
    assert len(seen) >= 3


def test_what_was_written_during_a_sync_is_not_promised() -> None:
    lost = 0
    for seed in range(40):
        m = machine(seed)
        file = m.fs.open("/d/a", create=True)
        m.run(m.fs.sync_dir("/d"))
        file.pwritev([b"A" * 512], 0)
        syncing = m.loop.create_task(file.sync(), context=m.process.context())
        m.sleep(1e-9)
        assert not syncing.done()
        file.pwritev([b"B" * 512], 512)
        m.sleep(1)
        syncing.result()
        m.power_cut()
        content = m.fs.open("/d/a").pread(1024, 0)
        assert content[:512] == b"A" * 512
        lost += content[512:] != b"B" * 512
    assert 0 < lost < 40


def test_a_failed_sync_lies_ever_after() -> None:
    m = machine()
    file = m.fs.open("/d/a", create=True)
    m.run(m.fs.sync_dir("/d"))
    file.pwritev([b"gone"], 0)
    m.disk.faults.sync_errors = 1
    with pytest.raises(OSError, match="Input/output"):
        m.run(file.sync())
    m.run(file.sync())
    assert file.pread(4, 0) == b"gone"
    m.crash()
    assert m.fs.open("/d/a").pread(4, 0) == b"gone"
    m.power_cut()
    assert m.fs.open("/d/a").pread(4, 0).strip(b"\0") == b""


def test_names_whose_sync_failed_are_not_mended_by_the_next() -> None:
    lost = 0
    for seed in range(20):
        m = machine(seed)
        m.fs.open("/d/a", create=True)
        m.disk.faults.sync_errors = 1
        with pytest.raises(OSError, match="Input/output"):
            m.run(m.fs.sync_dir("/d"))
        m.run(m.fs.sync_dir("/d"))
        m.power_cut()
        lost += not m.fs.exists("/d/a")
    assert lost


def test_a_full_disk_writes_short_first() -> None:
    sizes = set()
    for seed in range(30):
        m = machine(seed, capacity_bytes=3 * PAGE)
        file = m.fs.open("/d/a", create=True)
        file.pwritev([b"x" * PAGE], 0)
        assert m.fs.free_bytes("/d") == 2 * PAGE
        with pytest.raises(OSError, match="No space left"):
            file.pwritev([b"y" * 4 * PAGE], PAGE)
        assert file.pread(9 * PAGE, PAGE) == b"y" * (file.size() - PAGE)
        sizes.add(file.size())
        assert PAGE <= file.size() <= 3 * PAGE
        file.truncate(0)
        assert m.fs.free_bytes("/d") == 3 * PAGE
    assert len(sizes) > 10


def test_reserved_blocks_are_counted_and_written_without_more() -> None:
    m = machine(capacity_bytes=4 * PAGE)
    file = m.fs.open("/d/a", create=True)
    file.fallocate(3 * PAGE, keep_size=True)
    assert (file.size(), m.fs.free_bytes("/")) == (0, PAGE)
    with pytest.raises(OSError, match="No space left"):
        file.fallocate(5 * PAGE)
    assert file.size() == 0
    other = m.fs.open("/d/b", create=True)
    other.pwritev([b"x" * PAGE], 0)
    file.pwritev([b"y" * 3 * PAGE], 0)
    assert m.fs.free_bytes("/") == 0
    m.fs.unlink("/d/a")
    assert m.fs.free_bytes("/") == 3 * PAGE
    m.run(m.fs.sync_all("/"))
    m.power_cut()
    assert m.fs.free_bytes("/") == 4 * PAGE - m.fs.open("/d/b").size()


def test_reads_fail_on_demand_and_writes_after_a_prefix() -> None:
    m = machine()
    file = m.fs.open("/d/a", create=True)
    file.pwritev([b"x" * 100], 0)
    m.disk.faults.read_errors = 2
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.pread(1, 0)
    m.disk.faults.write_errors = 1
    with pytest.raises(OSError, match="Input/output"):
        file.pwritev([b"y" * 100], 0)
    assert not file.pread(100, 0).lstrip(b"y").lstrip(b"x")


def test_the_cache_is_cold_now_and_then() -> None:
    m = machine(cold=0.2)
    file = m.fs.open("/d/a", create=True)
    file.pwritev([b"x"], 0)
    answers = [file.try_pread(1, 0) for _ in range(200)]
    assert set(answers) == {None, b"x"}
    assert 10 < answers.count(None) < 90
    assert m.run(file.read(1, 0)) == b"x"


def test_a_mapping_of_a_dead_process_bars_no_truncation() -> None:
    m = machine()
    file = m.fs.open("/d/a", create=True)
    file.fallocate(10 * MIB)
    mapping = file.map(10 * MIB)
    with pytest.raises(InvariantError):
        file.truncate(MIB)
    m.crash()
    m.fs.open("/d/a").truncate(MIB)
    mapping.close()


def test_damage_is_seen_by_all_readers_and_stays() -> None:
    m = machine()
    file = m.fs.open("/d/a", create=True)
    file.pwritev([b"abc"], 0)
    m.run(m.fs.sync_all("/"))
    mapping = file.map(3)
    m.disk.damage("/d/a", 1, b"X")
    assert (file.pread(3, 0), bytes(mapping.view)) == (b"aXc", b"aXc")
    m.power_cut()
    assert m.fs.open("/d/a").pread(3, 0) == b"aXc"


def test_a_lock_dies_with_its_process() -> None:
    m = machine()
    m.fs.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        m.fs.lock("/d/.lock")
    m.crash()
    m.fs.lock("/d/.lock").release()


def test_large_preallocated_files_cost_nothing_until_written() -> None:
    m = machine()
    rng = random.Random(1)
    for i in range(200):
        file = m.fs.open(f"/d/{i}", create=True)
        file.fallocate(10 * MIB)
        mapping = file.map(10 * MIB)
        file.pwritev([rng.randbytes(8)], 8 * i)
        assert mapping.view[8 * i : 8 * i + 8] != bytes(8)
        m.run(file.sync())
    m.run(m.fs.sync_dir("/d"))
    m.power_cut()
    assert sum(m.fs.open(f"/d/{i}").size() for i in range(200)) == 2000 * MIB
