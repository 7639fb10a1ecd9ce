"""Random lives of a log against a plain model (issue: what was synced is there, what is there is right).

The model knows what is at each offset now, what has ever been written there, and below which offset everything is
synced. After each restart the log must hold exactly the model's records below that offset, and above it only records
that were written there once, without a gap.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamlog.errors import InvariantError
from streamlog.model import Offset
from streamlog.records import scan_headers
from streamlog.records.decode import decode_batch
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed
from streamlog.storage.log_config import LogConfig
from tests.storage.rig import Rig

SIZES = st.sampled_from([0, 1, 20, 150, 700])


class LogMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([800, 1000, 5000, 100_000]),
        index_bytes=st.sampled_from([24, 96, 1024]),
        interval=st.sampled_from([1, 200, 4096]),
    )
    def start(self, seed: int, segment_bytes: int, index_bytes: int, interval: int) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes,
            segment_index_bytes=index_bytes,
            index_interval_bytes=interval,
            retention_ms=1000,
            file_delete_delay_ms=0,
        )
        self.rig = Rig(Machine(seed), config)
        self.rig.machine.run(self.rig.directory.group_commit.sync_now())
        self.epoch = 0
        self.counter = 0
        self.clock_ms = 1_000_000
        self.now: dict[int, bytes] = {}  # offset -> value, as far as the log goes
        self.ever: dict[int, set[bytes]] = {}
        self.end = 0
        self.start_offset = 0  # nothing below it must be there, everything above must
        self.synced = 0
        self.fuse = False

    # -- what can happen

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=4), new_epoch=st.booleans())
    def append(self, sizes: list[int], new_epoch: bool) -> None:
        self.epoch += new_epoch
        self.counter += 1
        self.clock_ms += 10
        values = [b"%d/%d/" % (self.counter, i) + b"x" * size for i, size in enumerate(sizes)]
        values = [value[:150] for value in values]
        for i, value in enumerate(values):
            self.ever.setdefault(self.end + i, set()).add(value)

        def step() -> None:
            done = self.rig.append(*values, epoch=self.epoch, timestamp=self.clock_ms, producer=(3, self.counter, 0))
            assert done.first_offset == self.end

        if self.attempt(step):
            self.now.update({self.end + i: value for i, value in enumerate(values)})
            self.end += len(values)

    @rule()
    def sync(self) -> None:
        if self.attempt(self.rig.sync):
            self.synced = self.end
            assert self.rig.log.ackable_end == self.end

    @rule()
    def checkpoint(self) -> None:
        self.attempt(lambda: self.rig.machine.run(self.rig.directory.checkpoint()))

    @rule()
    def roll(self) -> None:
        self.attempt(lambda: self.rig.do(self.rig.log.roll_now))

    @rule(back=st.integers(1, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.start_offset, self.end - back)
        self.synced = min(self.synced, offset)
        if self.attempt(lambda: self.rig.machine.run(self.rig.log.truncate(Offset(offset)))):
            self.cut_model(self.rig.log.log_end_offset)
            assert self.end <= offset
            self.rig.machine.run(self.rig.log.restore_producers())

    @rule(ahead=st.integers(0, 5))
    def restart_at(self, ahead: int) -> None:
        offset = self.end + ahead
        self.synced = 0
        self.start_offset = offset
        if self.attempt(lambda: self.rig.machine.run(self.rig.log.restart_at(Offset(offset)))):
            self.now.clear()
            self.end = offset
            self.rig.machine.run(self.rig.log.restore_producers())

    @rule(count=st.integers(1, 5))
    def delete_records(self, count: int) -> None:
        offset = min(self.start_offset + count, self.synced)
        if offset > self.start_offset:
            self.rig.do(lambda: self.rig.log.advance_log_start(Offset(offset)))
            self.start_offset = offset

    @rule(later=st.sampled_from([0, 500, 2000]))
    def retention(self, later: int) -> None:
        self.clock_ms += later
        before = self.start_offset
        self.start_offset = max(before, self.synced)  # if it dies on the way, up to here may be gone

        def step() -> None:
            self.rig.retain(self.clock_ms, self.synced)
            self.rig.machine.run(self.rig.directory.reaper.remove_due())

        if self.attempt(step):
            self.start_offset = max(before, self.rig.log.log_start_offset)
            assert self.start_offset <= max(self.synced, before)

    @rule(changes=st.integers(0, 12))
    @precondition(lambda self: not self.fuse)
    def light_the_fuse(self, changes: int) -> None:
        """The next steps die at a write boundary."""
        self.rig.machine.cut_after(changes)
        self.fuse = True

    @rule()
    def stop_in_order(self) -> None:
        if self.attempt(self.rig.stop):
            self.synced = self.end
            self.rig.machine.crash()
            self.come_back()
            assert self.rig.directory.clean_epoch == 7

    @rule(power=st.booleans())
    def die(self, power: bool) -> None:
        self.restart(power)

    # -- how it is carried out

    def attempt(self, step) -> bool:  # type: ignore[no-untyped-def]  # any call without arguments
        """True if it came to its end; False if the fuse burnt out on the way, and the log is back since."""
        try:
            step()
        except Killed:
            self.restart(power=True)
            return False
        return True

    def restart(self, power: bool) -> None:
        if power:
            self.rig.machine.power_cut()
        else:
            self.rig.machine.crash()
        self.come_back()

    def come_back(self) -> None:
        self.fuse = False
        self.rig.start()
        log = self.rig.log
        assert log.damage is None, log.damage
        assert log.log_start_offset <= self.start_offset or not self.now
        if self.synced > self.start_offset:  # else no record was promised
            assert log.log_end_offset >= self.synced
        found = self.read_all()
        for offset in range(max(self.start_offset, log.log_start_offset), self.synced):
            assert found[offset] == self.now[offset], f"synced record {offset} is not what it was"
        for offset, value in found.items():
            assert value in self.ever[offset], f"record {offset} was never written"
        offsets = sorted(found)
        assert offsets == list(range(log.log_start_offset, log.log_end_offset)), "a gap"
        # What the restart has shown is what there is from now on, and recovery has synced it.
        self.now = found
        self.start_offset, self.end = log.log_start_offset, log.log_end_offset
        self.synced = self.end
        self.epoch = max(self.epoch, log.epochs.latest)

    def cut_model(self, end: int) -> None:
        self.end = end
        self.now = {offset: value for offset, value in self.now.items() if offset < end}
        self.synced = min(self.synced, end)

    def read_all(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = self.rig.log.log_start_offset
        while data := self.rig.read(offset, 600):
            for position, header in scan_headers(data, 0, len(data)):
                for record in decode_batch(data, position):
                    if record.offset >= self.rig.log.log_start_offset:
                        assert record.value is not None
                        found[record.offset] = record.value
                offset = header.next_offset
        return found

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "rig"):
            return
        log = self.rig.log
        if log.log_end_offset != self.end:
            raise InvariantError(f"the log ends at {log.log_end_offset}, the model at {self.end}")
        assert log.log_start_offset <= log.log_end_offset
        assert log.durability.synced_end <= log.log_end_offset
        assert log.durability.synced_end >= self.synced or self.synced <= self.start_offset
        epochs = log.epochs.entries
        assert all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in pairwise(epochs))

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.machine.cut_after(None)
            self.restart(power=True)
            self.rig.machine.close()


# 250 lives of up to 50 steps: at least 10,000 steps.
LogMachine.TestCase.settings = settings(
    max_examples=250,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLog = pytest.mark.filterwarnings("ignore")(LogMachine.TestCase)
