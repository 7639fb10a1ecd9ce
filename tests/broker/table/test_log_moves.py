"""Replicas that move between the log directories of their node."""

from __future__ import annotations

from functools import partial

import pytest

from streamlog.errors import InvalidRequestError, StorageError
from streamlog.model import NO_BROKER, LeaderEpoch, Offset
from streamlog.sim.files.filesystem import SimFileSystem
from streamlog.storage.directories import log_move
from streamlog.storage.directories.log_move import LogMove
from streamlog.storage.directories.moving_logs import MovingLogs
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from tests.broker.rig import ME, OTHER, P0, Rig, append_to, topic_id
from tests.broker.table.moving import CONFIGS, T0, commit_inside, fill, move, resigning, slow, started, values, where
from tests.storage.batches import batch


def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs here are small: a copy takes many chunks, and a swap none."""
    monkeypatch.setattr(log_move, "CHUNK_BYTES", 50)
    monkeypatch.setattr(log_move, "SWAP_BYTES", 0)


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
    slow(rig, 100)
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


def test_segments_that_are_deleted_while_they_are_copied_are_not_in_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    small_steps(monkeypatch)
    rig = started()
    slow(rig, 100)
    fill(rig)
    move(rig)
    rig.rest(2)
    (copy,) = [name for name in rig.machine.fs.list("/data1") if name.endswith("-future")]
    assert "00000000000000000003.log" in rig.machine.fs.list(f"/data1/{copy}")
    rig.machine.run(rig.replicas.delete_records("t", None, P0, Offset(10), within_s=1.0))
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
    now_ms = rig.machine.clock.wall_ms()  # with old timestamps the last segment would be closed, and compacted, later
    for number in range(8):
        data = batch([bytes([number]) * 300_000], keys=[b"the same"], timestamp=now_ms)
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
    small_steps(monkeypatch)
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


@pytest.mark.parametrize("step", ["_copy_file", "note_moving"])
def test_a_follower_that_joins_the_isr_during_the_swap_is_complete_afterwards(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is removed from the files of a log that are being copied."""
    rig = started(replicas=(OTHER, ME))
    rig.change(1, leader=OTHER)
    rig.rest()
    copy = partial(rig.follower.on_batches, batch([b"a"], epoch=0), Offset(1), Offset(0))
    rig.do(copy)
    rig.machine.run(rig.follower.on_differing(Offset(0)))
    rig.do(copy)
    rig.change(1, isr=(OTHER,))
    owner = LogMove if step.startswith("_") else MovingLogs
    original = getattr(owner, step)
    joined = False

    async def joining(*given: object) -> None:
        nonlocal joined
        if not joined:
            joined = True
            commit_inside(rig, isr=(OTHER, ME))
        await original(*given)

    monkeypatch.setattr(owner, step, joining)
    move(rig)
    rig.rest(5)
    assert joined
    assert where(rig) == [1]
    assert not rig.follower.log.incomplete
    assert "incomplete" not in rig.machine.fs.list(rig.follower.log.directory)
    rig.change(1, isr=(ME,), leader=ME)
    rig.rest()
    assert rig.leader("t").log_end_offset == 1
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


def test_a_move_is_cancelled_and_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    small_steps(monkeypatch)
    rig = started()
    slow(rig, 10)
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


def test_a_deleted_topic_ends_its_move(monkeypatch: pytest.MonkeyPatch) -> None:
    small_steps(monkeypatch)
    rig = started()
    slow(rig, 10)
    fill(rig)
    move(rig)
    rig.rest(1)
    assert rig.names(1) == ["t-0-future"]
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
