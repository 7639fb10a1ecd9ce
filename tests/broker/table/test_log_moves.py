"""Replicas that move between the log directories of their node, and crashes at every moment of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from streamlog.errors import DamagedFileError, InconsistentClusterError, InvalidRequestError, StorageError
from streamlog.model import NO_BROKER, LeaderEpoch, Offset, TopicPartition
from streamlog.ports import File
from streamlog.records import scan_headers
from streamlog.sim.files.filesystem import SimFileSystem
from streamlog.storage.directories import log_move
from streamlog.storage.directories.log_move import LogMove
from streamlog.storage.directories.moving_logs import MovingLogs
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from tests.broker.rig import ME, OTHER, P0, Rig, append_to, topic_id, values_in
from tests.storage.batches import batch

T0 = TopicPartition("t", P0)
CONFIGS = {"file.delete.delay.ms": "1000"}


def started(seed: int | str = 1, *, replicas: tuple[int, ...] = (ME,)) -> Rig:
    """A leader of t-0, which is in /data0."""
    rig = Rig(seed, directories=2)
    rig.start()
    rig.create(replicas=replicas, configs=CONFIGS)  # type: ignore[arg-type]  # test shorthand
    rig.rest()
    resigning(rig)
    return rig


def resigning(rig: Rig, leader: int = ME) -> None:
    """The controller gives the partition a new leader epoch."""

    def resign() -> None:
        rig.commands.append(b"")
        rig.commands.pop()
        commit_inside(rig, leader)

    rig.controller.on_resigned = resign


def commit_inside(rig: Rig, leader: int) -> None:
    """`Rig.change`, from inside the node's process."""
    before = rig.do
    rig.do = lambda call: call()  # type: ignore[method-assign]  # it is there already
    try:
        rig.change(1, leader=leader)
    finally:
        rig.do = before  # type: ignore[method-assign]


def fill(rig: Rig) -> list[bytes]:
    """Three segments, after the first one was deleted. Returns the values, from offset 5 on."""
    written = [b"value %03d" % number for number in range(12)]
    log = rig.leader("t").log
    for number, value in enumerate(written):
        if number % 3 == 0:
            rig.do(log.roll_now)
        rig.produce(value)
    rig.machine.run(rig.replicas.delete_records("t", None, P0, Offset(5)))
    rig.do(lambda: log.remove_oldest(1))
    rig.rest()
    return written[5:]


def move(rig: Rig, path: str = "/data1") -> None:
    rig.do(lambda: rig.replicas.move_log("t", None, P0, path))


def values(rig: Rig) -> list[bytes | None]:
    leader = rig.leader("t")
    found: list[bytes | None] = []
    offset = leader.log_start_offset
    while offset < leader.high_watermark:
        data = rig.read(offset)
        for position, header in scan_headers(data, 0, len(data)):
            records = values_in(data[position : position + header.size_bytes])
            found += records[max(0, offset - header.base_offset) :]
            offset = header.next_offset
    return found


def where(rig: Rig) -> list[int]:
    return [index for index, directory in enumerate(rig.directories) if T0 in directory.logs]


def test_a_leader_moves_in_a_new_leader_epoch_and_keeps_everything() -> None:
    rig = started()
    kept = fill(rig)
    move(rig)
    rig.rest(5)
    assert rig.probed("log_moved") == [{"partition": "t-0", "source": "/data0", "target": "/data1"}]
    assert rig.controller.resigned == [((topic_id(1), P0), 0)]
    assert (where(rig), rig.names(0), rig.names(1)) == ([1], [], ["t-0"])
    leader = rig.leader("t")
    assert (leader.leader_epoch, leader.log_start_offset) == (1, 5)
    assert values(rig) == kept
    rig.produce(b"later")
    for again in (rig.restart, rig.crash, rig.power_cut):
        again()
        rig.rest()
        assert (where(rig), values(rig), rig.leader("t").log_start_offset) == ([1], [*kept, b"later"], 5)
    rig.stop()
    rig.machine.close()


def test_appends_go_on_while_the_copy_waits_for_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_move, "SWAP_BYTES", 0)
    rig = started()
    rig.static["replica.alter.log.dirs.io.max.bytes.per.second"] = "100"
    rig.restart()
    rig.rest()
    resigning(rig)
    kept = fill(rig)
    move(rig)
    rig.rest(2)
    (future,) = rig.replicas.describe_log_dirs()[1].future_replicas
    assert (future.partition, future.error) == (T0, None)
    assert 0 < future.offset_lag <= len(kept)
    assert rig.replicas.describe_log_dirs()[1].replicas == ()
    for number in range(20):
        kept.append(b"meanwhile %d" % number)
        rig.produce(kept[-1])
    rig.rest(60)
    assert where(rig) == [1]
    assert values(rig) == kept
    assert rig.replicas.describe_log_dirs()[1].future_replicas == ()
    rig.stop()
    rig.machine.close()


def test_little_is_left_to_do_while_the_replica_has_no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to copy nor to verify, however large the active segment is."""
    monkeypatch.setattr(log_move, "SWAP_BYTES", 100)
    left: list[int] = []
    swap = LogMove.swap

    async def swapped(move: LogMove, config: LogConfig) -> Log:
        left.append(sum(one.size_bytes - move.verified_bytes(one) for one in move.log.segments))
        return await swap(move, config)

    monkeypatch.setattr(LogMove, "swap", swapped)
    rig = started()
    for number in range(20):
        rig.produce(b"value %03d" % number)
    move(rig)
    rig.rest(5)
    assert where(rig) == [1]
    assert left == [0]
    rig.stop()
    rig.machine.close()


def slow(rig: Rig, rate: int) -> None:
    """Moves copy so many bytes a second from now on."""
    rig.static["replica.alter.log.dirs.io.max.bytes.per.second"] = str(rate)
    rig.restart()
    rig.rest()
    resigning(rig)


def test_segments_that_are_deleted_while_they_are_copied_are_not_in_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_move, "SWAP_BYTES", 0)
    monkeypatch.setattr(log_move, "CHUNK_BYTES", 50)
    rig = started()
    slow(rig, 100)
    fill(rig)
    move(rig)
    rig.rest(2)
    (copy,) = [name for name in rig.machine.fs.list("/data1") if name.endswith("-future")]
    assert "00000000000000000003.log" in rig.machine.fs.list(f"/data1/{copy}")
    rig.machine.run(rig.replicas.delete_records("t", None, P0, Offset(10)))
    rig.do(lambda: rig.leader("t").log.remove_oldest(2))
    rig.rest(60)
    assert where(rig) == [1]
    logs = [name for name in rig.machine.fs.list("/data1/t-0") if name.endswith(".log")]
    assert min(logs) == "00000000000000000009.log"
    for again in (rig.rest, rig.power_cut):
        again()
        rig.rest()
        assert rig.leader("t").log_start_offset == 10
        assert values(rig) == [b"value 010", b"value 011"]
    rig.stop()
    rig.machine.close()


def test_a_log_that_is_compacted_while_it_is_copied_arrives_compacted() -> None:
    rig = Rig(1, directories=2)
    rig.start()
    rig.create(configs={"cleanup.policy": "compact", "segment.bytes": "1048576", **CONFIGS})
    rig.rest()
    slow(rig, 5_000)
    for number in range(8):
        data = batch([bytes([number]) * 300_000], keys=[b"the same"], timestamp=number)
        rig.do(lambda data=data: append_to(rig.leader("t"), data))  # type: ignore[misc]
    size = rig.leader("t").log.size_bytes
    move(rig)
    rig.rest(100)  # the cleaner has its turn
    assert where(rig) == [0]
    log = rig.leader("t").log
    assert log.size_bytes < size / 2
    kept = values(rig)
    rig.rest(600)
    assert where(rig) == [1]
    assert rig.leader("t").log.size_bytes <= size / 2
    assert values(rig) == kept
    rig.power_cut()
    rig.rest()
    assert values(rig) == kept
    rig.stop()
    rig.machine.close()


def test_a_truncation_restarts_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_move, "SWAP_BYTES", 0)
    monkeypatch.setattr(log_move, "CHUNK_BYTES", 50)
    rig = started(replicas=(OTHER, ME))
    slow(rig, 50)
    rig.change(1, leader=OTHER)
    rig.rest()
    for number in range(6):
        data = batch([b"old %d" % number], base_offset=number, epoch=0)
        rig.do(lambda data=data: rig.follower.on_batches(data, Offset(0), Offset(0)))  # type: ignore[misc]
    rig.rest()
    move(rig)
    rig.rest(5)
    assert where(rig) == [0]
    rig.machine.run(rig.follower.on_diverging(LeaderEpoch(0), Offset(2)))
    data = batch([b"new"], base_offset=2, epoch=0)
    rig.do(lambda: rig.follower.on_batches(data, Offset(3), Offset(0)))
    rig.rest(120)
    assert where(rig) == [1]
    rig.change(1, leader=ME)
    rig.rest()
    assert values(rig) == [b"old 0", b"old 1", b"new"]
    rig.stop()
    rig.machine.close()


def test_a_follower_moves_and_follows_on() -> None:
    rig = started(replicas=(OTHER, ME))
    rig.change(1, leader=OTHER)
    rig.rest()
    before = rig.follower
    rig.do(lambda: before.on_batches(batch([b"a"], epoch=0), Offset(1), Offset(0)))
    rig.rest()
    move(rig)
    rig.rest(5)
    after = rig.follower
    assert before.ended
    assert where(rig) == [1]
    assert (after.leader_epoch, after.log.log_end_offset, after.high_watermark) == (before.leader_epoch, 1, 1)
    rig.do(lambda: after.on_batches(batch([b"b"], base_offset=1, epoch=0), Offset(2), Offset(0)))
    rig.rest()
    assert after.log.ackable_end == 2
    assert rig.controller.resigned == []
    rig.stop()
    rig.machine.close()


def test_a_replica_without_a_leader_moves_too() -> None:
    rig = started()
    rig.produce(b"a")
    rig.change(1, leader=NO_BROKER)
    move(rig)
    rig.rest(5)
    assert where(rig) == [1]
    rig.change(1, leader=ME)
    assert values(rig) == [b"a"]
    rig.stop()
    rig.machine.close()


def test_a_leader_leads_on_while_the_controller_does_not_answer() -> None:
    rig = started()
    kept = fill(rig)
    rig.controller.on_resigned = lambda: None
    move(rig)
    rig.rest(30)
    assert where(rig) == [0]
    assert len(rig.controller.resigned) > 1
    assert rig.leader("t").leader_epoch == 0
    resigning(rig)
    rig.rest(30)
    assert (where(rig), values(rig)) == ([1], kept)
    rig.stop()
    rig.machine.close()


def test_a_move_is_cancelled_and_goes_elsewhere() -> None:
    rig = started()
    rig.static["replica.alter.log.dirs.io.max.bytes.per.second"] = "10"
    rig.restart()
    rig.rest()
    fill(rig)
    move(rig)
    rig.rest(1)
    assert rig.names(1) == ["t-0-future"]
    move(rig, "/data0")
    rig.rest(10)
    assert (rig.names(0), rig.names(1), where(rig)) == (["t-0"], [], [0])
    assert rig.probed("log_move_ended")[0]["reason"] == "cancelled by a later request"
    assert rig.replicas.describe_log_dirs()[1].future_replicas == ()
    with pytest.raises(InvalidRequestError, match="no log directory '/elsewhere'; it has /data0, /data1"):
        move(rig, "/elsewhere")
    rig.stop()
    rig.machine.close()


def test_a_deleted_topic_ends_its_move() -> None:
    rig = started()
    rig.static["replica.alter.log.dirs.io.max.bytes.per.second"] = "10"
    rig.restart()
    rig.rest()
    fill(rig)
    move(rig)
    rig.rest(1)
    rig.delete()
    rig.rest(30)
    assert (rig.names(0), rig.names(1)) == ([], [])
    with pytest.raises(InvalidRequestError, match="no replica of t-0"):
        rig.do(lambda: rig.replicas.moves.request(T0, "/data1"))
    rig.stop()
    rig.machine.close()


def test_a_full_disk_ends_the_move_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = started()
    kept = fill(rig)
    monkeypatch.setattr(SimFileSystem, "free_bytes", lambda *_: 1000)
    move(rig)
    rig.rest(5)
    described = rig.replicas.describe_log_dirs()[1]
    (future,) = described.future_replicas
    assert described.error is None
    assert isinstance(future.error, StorageError)
    assert "make room there" in str(future.error)
    monkeypatch.undo()
    assert (where(rig), values(rig)) == ([0], kept)
    move(rig)
    rig.rest(5)
    assert (where(rig), values(rig)) == ([1], kept)
    rig.stop()
    rig.machine.close()


def test_damage_in_the_source_ends_the_move() -> None:
    rig = started()
    fill(rig)
    log = rig.leader("t").log
    segment = log.segments.closed()[0]
    file = rig.machine.fs.open(segment.path(".log"))
    rig.do(lambda: file.pwritev([b"\xff"], segment.size_bytes - 1))
    move(rig)
    rig.rest(5)
    (future,) = rig.replicas.describe_log_dirs()[1].future_replicas
    assert "CRC mismatch" in str(future.error)
    assert "partition repair t-0" in str(future.error)
    assert (where(rig), rig.names(1)) == ([0], [])
    rig.stop()
    rig.machine.close()


@pytest.mark.parametrize("step", ["_complete_copy", "expect", "note_moving", "_rename"])
def test_a_swap_that_fails_before_the_rename_leaves_the_log_where_it_is(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = started()
    kept = fill(rig)

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    async def failing(*_: object) -> None:
        full()

    owner = LogMove if step.startswith("_") else MovingLogs
    monkeypatch.setattr(owner, step, full if step == "_rename" else failing)
    move(rig)
    rig.rest(5)
    (future,) = rig.replicas.describe_log_dirs()[1].future_replicas
    assert str(future.error) == "the disk is full"
    assert (where(rig), rig.names(0), rig.names(1)) == ([0], ["t-0"], [])
    rig.produce(b"later")
    assert values(rig) == [*kept, b"later"]
    rig.restart()
    rig.rest()
    assert (where(rig), values(rig)) == ([0], [*kept, b"later"])
    rig.stop()
    rig.machine.close()


# -- starts


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


# -- crashes

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
