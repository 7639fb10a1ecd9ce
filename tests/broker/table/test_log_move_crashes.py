"""Starts, crashes and stops of a node in the middle of a move to another log directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from streamlog.errors import DamagedFileError, InconsistentClusterError, StorageError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import File
from streamlog.storage.directories import log_move
from streamlog.storage.directories.log_move import LogMove
from streamlog.storage.directories.moving_logs import MovingLogs
from streamlog.storage.log.log import Log
from tests.broker.rig import P0, Rig, topic_id
from tests.broker.table.moving import fill, move, resigning, started, values, where


def halfway(rig: Rig, *, copied: bool) -> list[bytes]:
    """A node that was killed around the rename: `copied` after it, while both directories have the log."""
    kept = fill(rig)
    rig.stop()
    fs, identity = rig.machine.fs, next(one for one in rig.directories if one.path == "/data1").meta.directory_id

    async def write() -> None:
        file = fs.open("/data0/t-0/moving-to", create=True)
        file.pwritev([identity.encode()], 0)
        await file.sync()
        file.close()
        if copied:
            fs.mkdir("/data1/t-0")
            for name in fs.list("/data0/t-0"):
                if name != "moving-to":
                    source, copy = fs.open_readonly(f"/data0/t-0/{name}"), fs.open(f"/data1/t-0/{name}", create=True)
                    copy.pwritev([source.pread(1 << 20, 0)], 0)
                    source.close()
                    copy.close()
        await fs.sync_all("/")

    rig.machine.run(write())
    return kept


def test_a_move_that_was_not_decided_waits_for_the_directory_that_is_away() -> None:
    rig = started()
    kept = halfway(rig, copied=False)
    with_target_away(rig)
    assert where(rig) == []
    assert rig.controller.reported == [(topic_id(1), P0)]
    assert rig.names(0) == ["t-0"]
    rig.stop()
    rig.paths = ["/data0", "/data1"]
    rig.start()
    rig.rest()
    assert (where(rig), values(rig)) == ([0], kept)
    assert not rig.machine.fs.exists("/data0/t-0/moving-to")
    rig.stop()
    rig.machine.close()


def with_target_away(rig: Rig) -> None:
    """Start with a second directory that cannot be opened."""
    rig.paths = ["/data0", "/data0/.lock/away"]
    rig.start()
    rig.rest()


def test_of_two_directories_the_one_that_was_moved_to_is_used() -> None:
    rig = started()
    halfway(rig, copied=True)
    rig.start()
    rig.rest()
    assert (where(rig), rig.names(0), rig.names(1)) == ([1], [], ["t-0"])
    assert len(rig.probed("log_move_completed")) == 1
    rig.stop()
    rig.machine.close()


def test_a_directory_that_was_replaced_meanwhile_leaves_an_incomplete_log() -> None:
    rig = started()
    kept = halfway(rig, copied=False)
    rig.paths = ["/data0", "/data2"]
    rig.start()
    rig.rest()
    assert rig.machine.fs.exists("/data0/t-0/00000000000000000003.log")
    assert (where(rig), values(rig)) == ([0], kept)
    assert not rig.machine.fs.exists("/data0/t-0/moving-to")
    rig.stop()
    rig.machine.close()


MOMENTS = 50
"""A move of this log takes about 130 ms of simulated time, each of its some 40 syncs about two."""


def cut_at(moment: int, end: str = "power cut") -> Iterator[str]:
    """Move, and end the node in this way `moment` times 3 ms later. What is wrong after that."""
    rig = started(f"cut {moment}")
    kept = fill(rig)
    move(rig)
    rig.rest(moment * 0.003)
    moved = bool(rig.probed("log_moved"))
    {"power cut": rig.machine.power_cut, "kill": rig.machine.crash, "clean stop": rig.stop}[end]()
    try:
        try:
            rig.start()
        except InconsistentClusterError as error:
            yield str(error)
            return
        rig.rest()
        resigning(rig)
        if end == "clean stop" and rig.replicas.clean_epoch is None:
            yield "the stop was not clean"
        if len(where(rig)) != 1:
            yield f"the log is in {where(rig)}"
            return
        if moved and where(rig) != [1]:
            yield "a move that had ended is undone"
        try:
            if values(rig) != kept or rig.leader("t").log_start_offset != 5:
                yield f"{values(rig)} from {rig.leader('t').log_start_offset}"
        except (StorageError, DamagedFileError) as error:
            yield str(error)
            return
        with suppress(IndexError):
            yield str(rig.probed("log_damaged")[0])
        # It can be moved again, and back.
        rig.produce(b"later")
        for path in ("/data1", "/data0"):
            move(rig, path)
            rig.rest(5)
            if values(rig) != [*kept, b"later"]:
                yield f"{values(rig)} after another move"
        if (rig.names(0), rig.names(1)) != (["t-0"], []):
            yield f"left behind: {rig.names(0)}, {rig.names(1)}"
        rig.stop()
    finally:
        rig.machine.crash()
        rig.machine.close()


@pytest.mark.parametrize(("end", "step"), [("power cut", 1), ("kill", 2), ("clean stop", 1)])
def test_no_end_of_the_node_at_any_moment_of_a_move_loses_a_record(end: str, step: int) -> None:
    for moment in range(0, MOMENTS, step):
        assert list(cut_at(moment, end)) == [], moment


async def _no_checkpoint(self: MovingLogs, frozen: Log, compacted_until: Offset) -> None:
    """Planted: the copy takes the name before the checkpoints know it."""


async def _no_note(self: MovingLogs, partition: TopicPartition, directory_id: str) -> None:
    """Planted: nothing says that the log may have moved."""


class _Unsynced:
    """Planted: a file that is never synced."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    async def sync(self) -> None:
        """Missing."""


def _unsynced(create: Callable[[LogMove, str], File], move: LogMove, name: str) -> object:
    return _Unsynced(create(move, name))


_note_moving, _drop_frozen = MovingLogs.note_moving, MovingLogs.drop_frozen


async def _drop_first(self: MovingLogs, partition: TopicPartition, directory_id: str) -> None:
    """Planted: the source goes before the copy has the name."""
    await _note_moving(self, partition, directory_id)
    frozen = self.frozen[partition]
    await _drop_frozen(self, partition)
    self.frozen[partition] = frozen


async def _dropped(self: MovingLogs, partition: TopicPartition) -> None:
    del self.frozen[partition]


@pytest.mark.parametrize("planted", ["rename before checkpoints", "no note", "no sync", "source first"])
def test_planted_errors_are_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match planted:
        case "rename before checkpoints":
            monkeypatch.setattr(MovingLogs, "expect", _no_checkpoint)
        case "no note":
            monkeypatch.setattr(MovingLogs, "note_moving", _no_note)
        case "no sync":
            create = LogMove._create
            monkeypatch.setattr(log_move.LogMove, "_create", lambda move, name: _unsynced(create, move, name))
        case _:
            monkeypatch.setattr(MovingLogs, "note_moving", _drop_first)
            monkeypatch.setattr(MovingLogs, "drop_frozen", _dropped)
    assert any(next(cut_at(moment), "") for moment in reversed(range(MOMENTS)))
