"""The tests of the simulation, tested: each of these defects, planted into a model or an adapter, is found by one."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlog.ports import posix_disk
from streamlog.ports.posix_disk import PosixFile, PosixFileSystem
from streamlog.ports.threads.syncs import Ended
from streamlog.sim.files import inode
from streamlog.sim.files.disk import SimDisk
from streamlog.sim.files.inode import DirectoryNode, FileNode
from streamlog.sim.loop import SimLoop
from streamlog.sim.process import Process
from streamlog.sim.task import SimTask
from streamlog.sim.wires import call, fabric
from streamlog.sim.wires.call import CallEnd, ServerEnd
from streamlog.sim.wires.fabric import Fabric, SimConnection, Wire

from ..ports import test_disk as disk_suite
from ..ports import test_network as network_suite
from ..ports import test_network_connections as connection_suite
from ..ports import test_posix_disk as posix_suite
from ..ports import test_power_cut as power_suite
from ..ports.disks import Disk, PosixDisk, SimulatedDisk
from ..ports.loopdev import LoopDisk, unavailable
from . import test_disk as disk_tests
from . import test_loop as loop_tests
from . import test_world as world_tests

Patch = pytest.MonkeyPatch


def is_found_by(test: Callable[[], None]) -> bool:
    try:
        test()
    except (Exception, pytest.fail.Exception):  # noqa: BLE001  any failure of the test is what we want
        return True
    return False


def sim_disks() -> Iterator[power_suite.CuttableDisk]:
    for seed in range(power_suite.SIM_SEEDS):
        yield SimulatedDisk(seed)


def over_seeds(case: Callable[[str], None]) -> Callable[[], None]:
    def test() -> None:
        for seed in range(6):
            case(f"sim-{seed}")

    return test


# The disk.


def keep_unsynced_names(patch: Patch) -> None:
    patch.setattr(DirectoryNode, "power_cut", lambda self: self.pending.clear())
    patch.setattr(random.Random, "randint", lambda self, low, high: high)


def lose_synced_names(patch: Patch) -> None:
    patch.setattr(DirectoryNode, "sync", lambda self, count: self.pending.clear())


def keep_unsynced_bytes(patch: Patch) -> None:
    patch.setattr(FileNode, "power_cut", lambda self, rng: False)


def write_no_torn_sectors(patch: Patch) -> None:
    patch.setattr(inode, "SECTOR", 1 << 20)


def repair_a_failed_sync(patch: Patch) -> None:
    honest = FileNode.sync
    patch.setattr(FileNode, "sync", lambda self, upto, *, fails: None if fails else honest(self, upto, fails=False))


def sync_what_came_later(patch: Patch) -> None:
    honest = FileNode.sync
    patch.setattr(FileNode, "sync", lambda self, upto, *, fails: honest(self, self.changes, fails=fails))


def split_a_rename(patch: Patch) -> None:
    honest = DirectoryNode.change

    def change(self: DirectoryNode, entry: inode.NameChange) -> None:
        entry.twin = None
        honest(self, entry)

    patch.setattr(DirectoryNode, "change", change)


def forget_windows(patch: Patch) -> None:
    patch.setattr(inode.Window, "update", lambda self, data, offset: None)


def allow_truncation_below_a_window(patch: Patch) -> None:
    patch.setattr(FileNode, "live_windows", lambda self: [])


def write_all_or_nothing(patch: Patch) -> None:
    patch.setattr(SimDisk, "_write_prefix", lambda self, node, data, offset: None)


def let_locks_outlive_processes(patch: Patch) -> None:
    patch.setattr("streamlog.sim.files.filesystem.SimLock.held", lambda self: True)


def leave_files_long(patch: Patch) -> None:
    patch.setattr(posix_disk, "_write_all", lambda descriptor, buffers, offset: offset)


def drop_buffers_beyond_the_limit(patch: Patch) -> None:
    honest = PosixFile.pwritev
    patch.setattr(PosixFile, "pwritev", lambda self, buffers, offset: honest(self, buffers[:1024], offset))


def close_under_a_thread(patch: Patch) -> None:
    patch.setattr(PosixFile, "close", lambda self: os.close(self._descriptor))
    patch.setattr(PosixFile, "_release", lambda self: None)


def outlives(disk: PosixDisk) -> None:
    system = PosixFileSystem(sync_threads=1, read_threads=1)
    try:
        posix_suite.test_a_descriptor_outlives_its_close_while_a_thread_works_on_it(system, Path(disk.root))
    finally:
        system.close()


def on_sim(case: Callable[[Disk], None]) -> Callable[[], None]:
    return lambda: case(SimulatedDisk())


DISK = [
    (keep_unsynced_names, disk_tests.test_names_need_a_sync_of_their_directory),
    (keep_unsynced_names, lambda: power_suite.test_what_nobody_synced_may_be_lost(sim_disks)),
    (lose_synced_names, lambda: power_suite.test_synced_names_stay_and_synced_removals_stay_gone(sim_disks)),
    (keep_unsynced_bytes, lambda: power_suite.test_what_nobody_synced_may_be_lost(sim_disks)),
    (write_no_torn_sectors, disk_tests.test_a_power_cut_keeps_what_was_synced_and_tears_the_rest),
    (repair_a_failed_sync, disk_tests.test_a_failed_sync_lies_ever_after),
    (sync_what_came_later, disk_tests.test_what_was_written_during_a_sync_is_not_promised),
    (split_a_rename, disk_tests.test_a_rename_between_directories_is_kept_in_both_or_neither),
    (forget_windows, on_sim(disk_suite.test_a_mapping_sees_later_writes)),
    (allow_truncation_below_a_window, on_sim(disk_suite.test_a_mapping_bars_truncation_below_it)),
    (write_all_or_nothing, disk_tests.test_a_full_disk_writes_short_first),
    (let_locks_outlive_processes, disk_tests.test_a_lock_dies_with_its_process),
]


@pytest.mark.parametrize(("plant", "test"), DISK, ids=[plant.__name__ for plant, _ in DISK])
def test_defects_of_the_simulated_disk_are_found(
    monkeypatch: Patch, plant: Callable[[Patch], None], test: Callable[[], None]
) -> None:
    assert not is_found_by(test)
    plant(monkeypatch)
    assert is_found_by(test)


POSIX = [
    (leave_files_long, disk_suite.test_what_was_written_is_read),
    (drop_buffers_beyond_the_limit, disk_suite.test_many_buffers_make_one_write),
    (close_under_a_thread, outlives),
]


@pytest.mark.parametrize(("plant", "test"), POSIX, ids=[plant.__name__ for plant, _ in POSIX])
def test_defects_of_the_posix_adapter_are_found(
    monkeypatch: Patch, tmp_path: Path, plant: Callable[[Patch], None], test: Callable[[PosixDisk], None]
) -> None:
    disk = PosixDisk(tmp_path)
    plant(monkeypatch)
    assert is_found_by(lambda: test(disk))
    monkeypatch.undo()
    disk.close()


class NoSyncs:
    """They end at once, and have done nothing."""

    def start(self, descriptor: int, ended: Ended, *, file_system: bool = False) -> None:
        asyncio.get_running_loop().call_soon(ended, None)

    def close(self) -> None:
        """There are no threads."""


@pytest.mark.loopdev
@pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "-")
@pytest.mark.parametrize("skipped", ["file", "directory"])
def test_a_sync_that_does_nothing_is_found_by_the_power_cut(monkeypatch: Patch, tmp_path: Path, skipped: str) -> None:
    if skipped == "file":
        monkeypatch.setattr(posix_disk, "new_syncs", lambda threads: NoSyncs())
    else:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    disk = LoopDisk(tmp_path)
    try:
        test = (
            power_suite.test_synced_sizes_are_kept
            if skipped == "file"
            else power_suite.test_synced_names_stay_and_synced_removals_stay_gone
        )
        assert is_found_by(lambda: test(lambda: iter([disk])))
    finally:
        disk.close()


# The network.


def send_without_bound(patch: Patch) -> None:
    patch.setattr(call, "WINDOW_BYTES", 1 << 40)


def forget_the_deadline_at_the_server(patch: Patch) -> None:
    patch.setattr(ServerEnd, "_cancel_handler", lambda self: None)


def deliver_in_any_order(patch: Patch) -> None:
    def put(self: Wire, deliver: Callable[[], None]) -> None:
        self._fabric.after(self._fabric.delay_s(), deliver)

    patch.setattr(Wire, "put", put)


def lose_what_a_cut_holds(patch: Patch) -> None:
    honest = Wire.put

    def put(self: Wire, deliver: Callable[[], None]) -> None:
        if self.link not in self._fabric.blocked:
            honest(self, deliver)

    patch.setattr(Wire, "put", put)


def never_time_out(patch: Patch) -> None:
    patch.setattr(fabric, "KEEPALIVE_S", 1e9)
    patch.setattr(Fabric, "_expire", lambda self, link, since: None)


def cut_both_ways(patch: Patch) -> None:
    patch.setattr(Wire, "arm", arm_if_no_way_is_cut)


def arm_if_no_way_is_cut(self: Wire) -> None:
    if self._frames and not self._armed and not self._fabric.blocked:
        self._armed = True
        self._fabric.at(max(self._frames[0][0], self._fabric.loop.now), self._pump)


def reset_at_a_power_cut(patch: Patch) -> None:
    patch.setattr(Fabric, "died", lambda self, process, host: self._reset_of(process, "reset"))


def refuse_nothing(patch: Patch) -> None:
    patch.setattr(SimConnection, "refuse", lambda self, host: not self.server.process.alive)


def bury_the_cause_with_the_crash(patch: Patch) -> None:
    patch.setattr(SimLoop, "call_exception_handler", lambda self, context: None)


def take_two_readers(patch: Patch) -> None:
    honest = CallEnd.recv

    async def recv(self: CallEnd) -> bytes | None:
        self._receiving = False
        return await honest(self)

    patch.setattr(CallEnd, "recv", recv)


NETWORK = [
    (send_without_bound, over_seeds(network_suite.test_a_sender_waits_for_its_reader)),
    (forget_the_deadline_at_the_server, over_seeds(network_suite.test_a_deadline_ends_the_call_and_its_handler)),
    (deliver_in_any_order, over_seeds(network_suite.test_a_stream_carries_messages_in_order_both_ways)),
    (lose_what_a_cut_holds, over_seeds(connection_suite.test_a_short_silence_loses_nothing)),
    (never_time_out, over_seeds(connection_suite.test_a_silent_peer_is_found_out_on_both_sides)),
    (take_two_readers, over_seeds(network_suite.test_two_users_of_one_direction_are_a_bug)),
    (cut_both_ways, world_tests.test_a_link_cut_one_way_lets_the_request_through_and_not_the_answer),
    (reset_at_a_power_cut, world_tests.test_a_crash_resets_connections_at_once_and_a_power_cut_does_not),
    (refuse_nothing, world_tests.test_a_frame_to_a_process_of_before_is_answered_by_a_reset),
    (bury_the_cause_with_the_crash, world_tests.test_a_bug_in_a_handler_fails_the_run),
]


@pytest.mark.parametrize(("plant", "test"), NETWORK, ids=[plant.__name__ for plant, _ in NETWORK])
def test_defects_of_the_simulated_network_are_found(
    monkeypatch: Patch, plant: Callable[[Patch], None], test: Callable[[], None]
) -> None:
    plant(monkeypatch)
    assert is_found_by(test)


# The loop.


def run_finally_at_death(patch: Patch) -> None:
    honest = Process.kill

    def kill(self: Process) -> None:
        for task in list(TASKS):
            if task.process is self and not task.done():
                coro = task.get_coro()
                assert coro is not None
                coro.close()
        honest(self)

    patch.setattr(Process, "kill", kill)
    made = SimTask.__init__

    def remember(self: SimTask[object], *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)  # type: ignore[arg-type]  # handed on as they came
        TASKS.append(self)

    patch.setattr(SimTask, "__init__", remember)


TASKS: list[SimTask[object]] = []


def hash_tasks_by_address(patch: Patch) -> None:
    """As asyncio's do; made certain here, for addresses may happen to rise."""
    patch.setattr(SimTask, "__hash__", lambda self: -2 - self._number)


LOOP = [
    (run_finally_at_death, loop_tests.test_a_kill_runs_no_finally_and_a_pause_keeps_all),
    (hash_tasks_by_address, loop_tests.test_a_failing_task_of_a_group_cancels_the_others),
]


@pytest.mark.parametrize(("plant", "test"), LOOP, ids=[plant.__name__ for plant, _ in LOOP])
def test_defects_of_the_loop_are_found(
    monkeypatch: Patch, plant: Callable[[Patch], None], test: Callable[[], None]
) -> None:
    plant(monkeypatch)
    assert is_found_by(test)
