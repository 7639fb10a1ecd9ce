"""Random transactions in a log, with cuts, power cuts and compaction, against a plain model (FAULTS I4).

The model is the list of batches that are in the log, and finds its answers by looking at all of them. A reader of
committed records knows nothing but what a client gets: batches below the last stable offset, and the aborted
transactions of the range that it reads.
"""

from __future__ import annotations

from operator import attrgetter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Struct

from streamlog.errors import DamagedFileError
from streamlog.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from streamlog.records import (
    EndTransactionMarker,
    decode_batch,
    decode_control,
    encode_end_transaction,
    read_header,
    scan_headers,
)
from streamlog.records.header import TRANSACTIONAL_BIT
from streamlog.sim.machine import Machine
from streamlog.sim.process import Killed
from streamlog.storage.cleaning.cleaner import Cleaner
from streamlog.storage.cleaning.key_map import ENTRY_BYTES
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from streamlog.storage.segments.transaction_index import AbortedTransaction
from tests.storage.batches import batch
from tests.storage.rig import Rig

PRODUCERS = st.integers(1, 4)
KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=4)


class Batch(Struct, frozen=True):
    first: int
    end: int
    producer: int  # 0: none
    epoch: int
    records: tuple[tuple[bytes, bytes], ...]  # key, value; of a marker none
    transactional: bool
    commit: bool | None  # of a marker


class Model:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def outcome(self, batch: Batch, below: int) -> bool | None:
        """Whether the batch is committed, by the markers below an offset; None: its transaction is open."""
        if not batch.transactional:
            return True
        for later in self.batches:
            if later.first >= batch.end and later.producer == batch.producer and later.commit is not None:
                return later.commit if later.first < below else None
        return None

    def last_stable(self, high_watermark: int, markers_below: int) -> int:
        """`markers_below`: those above it have ended nothing yet."""
        unsettled = (b.first for b in self.batches if b.records and self.outcome(b, markers_below) is None)
        return min([high_watermark, *unsettled])

    def committed(self, below: int) -> dict[int, tuple[bytes, bytes]]:
        """The records below an offset that some marker, be it above it, has committed."""
        return {
            batch.first + i: record
            for batch in self.batches
            if self.outcome(batch, self.batches[-1].end)
            for i, record in enumerate(batch.records)
            if batch.first + i < below
        }

    def is_open(self, producer: int) -> bool:
        own = [batch for batch in self.batches if batch.producer == producer]
        return bool(own) and own[-1].transactional

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= end]


class TransactionLives(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), compact=st.booleans(), segment_bytes=st.sampled_from([400, 900, 5000]))
    def start(self, seed: int, compact: bool, segment_bytes: int) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes,
            segment_index_bytes=1024,
            index_interval_bytes=100,
            cleanup_compact=compact,
            cleanup_delete=False,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=500,
            file_delete_delay_ms=0,
        )
        self.rig = Rig(Machine(seed), config)
        self.rig.sync()
        self.compact = compact
        self.model = Model()
        self.epochs = dict.fromkeys(range(1, 5), 0)
        self.sequences: dict[int, int] = {}
        self.high_watermark = self.synced = 0
        self.count = 0
        self.ever: dict[tuple[int, int], Batch] = {}  # by first offset and CRC
        self.removed = False  # compaction has taken something
        self.restored = False  # the producers' state was read again: markers above the high watermark count at once

    # -- what can happen

    @rule(keys=KEYS)
    def plain(self, keys: list[int]) -> None:
        self.write(keys, 0, transactional=False)

    @rule(writes=st.lists(st.tuples(PRODUCERS, KEYS), min_size=1, max_size=4))
    def transactional(self, writes: list[tuple[int, list[int]]]) -> None:
        for producer, keys in writes:
            self.write(keys, producer, transactional=True)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        """Also of transactions without a record here."""
        epoch = self.epochs[producer] + 1
        data = encode_end_transaction(
            EndTransactionMarker(commit=commit, coordinator_epoch=0),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(epoch),
            timestamp_ms=self.rig.now_ms,
        )
        self.epochs[producer] = epoch
        self.sequences.pop(producer, None)
        self.append(data, Batch(self.end_offset, self.end_offset + 1, producer, epoch, (), False, commit))

    @rule()
    def sync(self) -> None:
        if self.attempt(self.rig.sync):
            self.synced = self.end_offset

    @rule(part=st.floats(0, 1))
    def advance(self, part: float) -> None:
        """To the end of a batch, as it does."""
        ends = [one.end for one in self.model.batches if self.high_watermark < one.end <= self.synced]
        if ends:
            self.high_watermark = ends[round((len(ends) - 1) * part)]

    @rule(outcomes=st.lists(st.booleans(), min_size=4, max_size=4))
    def settle(self, outcomes: list[bool]) -> None:
        """All transactions end, and all of it is committed and in closed segments."""
        for producer, commit in zip(self.epochs, outcomes, strict=True):
            if self.model.is_open(producer):
                self.end(producer, commit)
        self.sync()
        self.high_watermark = self.synced
        self.roll()

    @rule()
    def checkpoint(self) -> None:
        self.attempt(lambda: self.rig.machine.run(self.rig.directory.checkpoint()))

    @rule()
    def roll(self) -> None:
        self.attempt(lambda: self.rig.do(self.rig.log.roll_now))

    @rule(back=st.integers(1, 9))
    def truncate(self, back: int) -> None:
        offset = max(self.high_watermark, self.end_offset - back)
        self.synced = min(self.synced, offset)
        if self.attempt(lambda: self.rig.machine.run(self.rig.log.truncate(Offset(offset)))):
            self.restored = True
            self.follow_log()
            self.synced = min(self.synced, self.end_offset)  # a batch that straddles the offset goes as a whole

    @rule(
        later_s=st.sampled_from([0.0, 0.6]), changes=st.none() | st.integers(0, 40), keys_max=st.sampled_from([4, 1000])
    )
    def clean(self, later_s: float, changes: int | None, keys_max: int) -> None:
        """Perhaps it dies on the way, or its map of keys is full."""
        self.rig.machine.sleep(later_s)
        self.rig.machine.cut_after(changes)
        self.removed = self.removed or self.compact
        if self.attempt(lambda: self.rig.machine.run(self.cleaner(keys_max).clean_filthiest(self.bound))):
            self.rig.machine.cut_after(None)
            self.rig.machine.run(self.rig.directory.reaper.remove_due())

    @rule(how=st.sampled_from(["crash", "power_cut", "stop"]))
    def restart(self, how: str) -> None:
        getattr(self.rig, how)()
        if how == "stop":
            self.rig.machine.crash()
            self.rig.start()
        self.came_back()

    @rule(size_max=st.integers(1, 2000), start=st.floats(0, 1))
    def read(self, size_max: int, start: float) -> None:
        """From anywhere, in pieces of any size: what is committed, all of it, and nothing else."""
        begin = round(self.high_watermark * start)
        stable = self.rig.log.last_stable_offset(Offset(self.high_watermark))
        found = self.read_committed(begin, stable, size_max)
        expected = {o: r for o, r in self.model.committed(stable).items() if begin <= o}
        assert found.items() <= expected.items(), "aborted, open, or never written"
        if not self.removed:
            assert found == expected
            return
        latest = {key: offset for offset, (key, _) in sorted(self.model.committed(self.high_watermark).items())}
        for key, offset in latest.items():
            if offset in expected:
                assert offset in found, f"the latest record of {key!r} is gone"

    @invariant()
    def last_stable_offset_is_right(self) -> None:
        if hasattr(self, "rig"):
            stable = self.rig.log.last_stable_offset(Offset(self.high_watermark))
            lowest = self.model.last_stable(self.high_watermark, markers_below=self.high_watermark)
            highest = self.model.last_stable(self.high_watermark, markers_below=self.end_offset)
            assert lowest <= stable <= highest if self.restored else stable == lowest

    # -- how it is carried out

    @property
    def end_offset(self) -> int:
        return self.model.batches[-1].end if self.model.batches else 0

    def write(self, keys: list[int], producer: int, *, transactional: bool) -> None:
        self.count += 1
        names = [b"k%d" % key for key in keys]
        values = [b"%d/%d" % (self.count, i) for i in range(len(keys))]
        epoch, sequence = self.epochs.get(producer, -1), self.sequences.get(producer, 0)
        fields = {"producer": (producer, epoch, sequence), "attributes": TRANSACTIONAL_BIT} if transactional else {}
        at, records = self.end_offset, tuple(zip(names, values, strict=True))
        data = batch(values, keys=names, **fields)  # type: ignore[arg-type]  # test shorthand
        if self.append(data, Batch(at, at + len(keys), producer, epoch, records, transactional, commit=None)):
            self.sequences[producer] = sequence + len(keys)

    def append(self, data: bytes, sent: Batch) -> bool:
        header = read_header(data, 0)
        self.ever[sent.first, header.crc] = sent
        log, now_ms = self.rig.log, self.rig.now_ms
        if self.attempt(lambda: self.rig.do(lambda: log.append_as_leader(data, [(0, header)], LeaderEpoch(0), now_ms))):
            self.model.batches.append(sent)
            return True
        return False

    def bound(self, log: Log) -> Offset:
        return Offset(self.high_watermark)

    def cleaner(self, keys_max: int) -> Cleaner:
        machine, size = self.rig.machine, keys_max * ENTRY_BYTES
        return Cleaner(
            machine.fs,
            self.rig.directory,
            machine.clock,
            machine.workers,
            self.rig.probe,
            dedupe_buffer_bytes=size,
        )

    def attempt(self, step) -> bool:  # type: ignore[no-untyped-def]  # any call without arguments
        try:
            step()
        except Killed:
            self.rig.power_cut()
            self.came_back()
            return False
        return True

    def came_back(self) -> None:
        assert self.rig.log.damage is None
        assert self.rig.log.log_end_offset >= self.synced
        self.follow_log()
        self.high_watermark = self.synced = self.end_offset  # all that recovery has found, it has synced

    def follow_log(self) -> None:
        """What was not synced may be there or not, cuts included: the model takes what it finds. Producers go on with
        what is left of theirs.
        """
        self.model.cut(self.synced)
        offset = Offset(self.end_offset)
        while data := self.rig.read(offset):
            for _, header in scan_headers(data, 0, len(data)):
                if header.base_offset >= self.end_offset:
                    self.model.batches.append(self.ever[header.base_offset, header.crc])
                offset = header.next_offset
        assert self.end_offset == self.rig.log.log_end_offset
        for producer in self.epochs:
            own = [batch for batch in self.model.batches if batch.producer == producer]
            self.epochs[producer] = own[-1].epoch if own else 0
            self.sequences[producer] = sum(
                len(batch.records) for batch in own if batch.transactional and batch.epoch == self.epochs[producer]
            )
        open_ones = [p.producer_id for p in self.rig.log.producers.in_transaction()]
        assert sorted(open_ones) == [p for p in self.epochs if self.model.is_open(p)]

    def read_committed(self, begin: int, stable: int, size_max: int) -> dict[int, tuple[bytes | None, bytes | None]]:
        """As a client does it: the list of the aborted, and one look at each batch."""
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        offset = begin
        while offset < stable and (data := self.rig.read(offset, size_max, stable)):
            batches = list(scan_headers(data, 0, len(data)))
            end = batches[-1][1].next_offset
            coming = self._aborted(offset, end)
            assert coming == sorted(coming, key=attrgetter("first_offset"))
            aborting: set[int] = set()
            for position, header in batches:
                while coming and coming[0].first_offset <= header.last_offset:
                    aborting.add(coming.pop(0).producer_id)
                if header.is_control:
                    for record in decode_batch(data, position):
                        marker = decode_control(record)
                        if isinstance(marker, EndTransactionMarker) and not marker.commit:
                            aborting.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborting):
                    found.update(
                        {r.offset: (r.key, r.value) for r in decode_batch(data, position) if r.offset >= begin}
                    )
            offset = end
        return found

    def _aborted(self, begin: int, end: Offset) -> list[AbortedTransaction]:
        """As the services ask: an index that a power cut has left without its checksum is found again first."""
        try:
            return self.rig.do(lambda: self.rig.log.aborted(Offset(begin), end))
        except DamagedFileError:
            self.rig.machine.run(self.rig.log.repair_transaction_indexes())
            return self.rig.do(lambda: self.rig.log.aborted(Offset(begin), end))

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.machine.cut_after(None)
            self.restart("power_cut")
            self.read(300, 0.0)
            self.rig.machine.close()


TransactionLives.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestTransactionLives = pytest.mark.filterwarnings("ignore")(TransactionLives.TestCase)
