"""The snapshot's files: replaced whole, received piece by piece, read by several while another takes its place."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.errors import CorruptMessageError
from streamlog.model import RaftIndex, RaftTerm
from streamlog.raft.protocol.messages import SnapshotRequest
from streamlog.raft.protocol.stored import SnapshotHead
from streamlog.raft.storage import snapshot_file
from streamlog.raft.storage.snapshot_file import SnapshotContent
from streamlog.raft.storage.snapshot_store import SnapshotStore
from streamlog.sim import Killed, Machine

from ..kit import voters


def make(machine: Machine) -> SnapshotStore:
    machine.fs.mkdir("/q")
    machine.run(machine.fs.sync_dir("/"))
    return SnapshotStore(machine.fs, machine.workers, "/q", remedy="")


def head_at(index: int) -> SnapshotHead:
    return SnapshotHead(
        last_index=RaftIndex(index), last_term=RaftTerm(1), voters_index=RaftIndex(0), voters=voters(1, 2, 3)
    )


def pieces(index: int) -> list[bytes]:
    return snapshot_file.encode(head_at(index), [], [b"state %d" % index])


async def as_it_is(content: SnapshotContent) -> None:
    """There is nothing to decode."""


def chunk(index: int, offset: int, length: int = 1 << 20, *, spoil: bool = False) -> SnapshotRequest:
    data = b"".join(pieces(index))
    some = bytearray(data[offset : offset + length])
    if spoil:
        some[-1] ^= 1
    return SnapshotRequest(
        term=RaftTerm(1),
        round=1,
        last_index=RaftIndex(index),
        last_term=RaftTerm(1),
        size=len(data),
        offset=offset,
        data=bytes(some),
    )


def test_a_reader_keeps_its_file() -> None:
    machine = Machine()
    machine.disk.faults.cold = 0.0
    store = make(machine)
    machine.run(store.write(head_at(5), pieces(5)))
    reader = store.open_reader()
    machine.run(store.write(head_at(9), pieces(9)))
    assert reader.head == head_at(5)
    assert reader.try_read(0, 1 << 20) == b"".join(pieces(5))
    assert store.open_reader().try_read(0, 1 << 20) == b"".join(pieces(9))


def test_what_is_not_in_the_cache_is_fetched() -> None:
    machine = Machine()
    machine.disk.faults.cold = 1.0
    store = make(machine)
    machine.run(store.write(head_at(5), pieces(5)))
    reader = store.open_reader()
    assert reader.try_read(0, 10) is None
    assert reader.try_read(0, 10) is None  # asked for once
    (fetch,) = store.fetches
    machine.run(fetch.run())
    assert reader.try_read(0, 10) == b"".join(pieces(5))[:10]


def test_a_reader_may_be_closed_while_it_fetches() -> None:
    machine = Machine()
    machine.disk.faults.cold = 1.0
    store = make(machine)
    machine.run(store.write(head_at(5), pieces(5)))
    reader = store.open_reader()
    assert reader.try_read(0, 10) is None

    async def close_meanwhile() -> None:
        fetching = asyncio.create_task(store.fetches[0].run())
        await asyncio.sleep(0)
        reader.close()
        await fetching

    machine.run(close_meanwhile())
    machine.close()


def test_chunks_come_in_order_and_repeated_ones_do_no_harm() -> None:
    machine = Machine()
    store = make(machine)
    size = len(b"".join(pieces(5)))
    assert store.receive(chunk(5, 10, 10)) == 0  # not the first: begin at the beginning
    assert store.receive(chunk(5, 0, 10)) == 10
    assert store.receive(chunk(5, 0, 10)) == 10
    assert store.receive(chunk(5, 30, 10)) == 10
    assert store.receive(chunk(5, 10)) == size
    assert store.has_received()
    received = machine.run(store.finish_receiving(as_it_is))
    assert received is not None
    content, _ = received
    assert (content.head, content.machine) == (head_at(5), [b"state 5"])
    machine.power_cut()
    again = SnapshotStore(machine.fs, machine.workers, "/q", remedy="")
    loaded = machine.run(again.load())
    assert loaded is not None
    assert loaded.head == head_at(5)


def test_another_snapshot_takes_the_place_of_one_under_way() -> None:
    machine = Machine()
    store = make(machine)
    store.receive(chunk(5, 0, 10))
    assert store.receive(chunk(9, 0)) == len(b"".join(pieces(9)))
    received = machine.run(store.finish_receiving(as_it_is))
    assert received is not None
    content, _ = received
    assert content.head == head_at(9)


def test_what_is_put_in_place_is_left_alone() -> None:
    machine = Machine()
    store = make(machine)
    store.receive(chunk(5, 0))

    async def receive_meanwhile() -> None:
        finishing = asyncio.create_task(store.finish_receiving(as_it_is))
        for _ in range(50):
            await asyncio.sleep(0.0002)
            if not finishing.done():
                assert store.receive(chunk(9, 0, 10)) is None
        assert (await finishing) is not None

    machine.run(receive_meanwhile())
    assert store.head == head_at(5)


def test_an_unsound_or_older_one_is_refused() -> None:
    machine = Machine()
    store = make(machine)
    store.receive(chunk(5, 0, spoil=True))
    assert machine.run(store.finish_receiving(as_it_is)) is None
    assert not store.has_received()
    machine.run(store.write(head_at(9), pieces(9)))
    store.receive(chunk(5, 0))
    assert machine.run(store.finish_receiving(as_it_is)) is None
    assert store.head == head_at(9)


def test_one_that_cannot_be_used_is_not_put_in_place() -> None:
    machine = Machine()
    store = make(machine)
    store.receive(chunk(5, 0))

    async def refuse(content: SnapshotContent) -> None:
        raise CorruptMessageError("not a state")

    with pytest.raises(CorruptMessageError):
        machine.run(store.finish_receiving(refuse))
    assert not store.has_received()
    machine.power_cut()
    assert machine.run(SnapshotStore(machine.fs, machine.workers, "/q", remedy="").load()) is None


def test_a_write_that_is_cut_short_leaves_the_old_one() -> None:
    for changes in range(1, 12):
        machine = Machine(changes)
        store = make(machine)
        machine.run(store.write(head_at(5), pieces(5)))
        machine.cut_after(changes)
        try:
            machine.run(store.write(head_at(9), pieces(9)))
        except Killed:
            pass
        machine.power_cut()
        loaded = machine.run(SnapshotStore(machine.fs, machine.workers, "/q", remedy="").load())
        assert loaded is not None
        assert loaded.head in (head_at(5), head_at(9))
