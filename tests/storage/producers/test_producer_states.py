"""The producer states of one log: sequences, epochs, restarts (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streamlog.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from streamlog.model import Offset, ProducerId
from streamlog.ports import File
from streamlog.sim.machine import Machine
from streamlog.storage.log_config import LogConfig
from streamlog.storage.producers import state_replay
from streamlog.storage.producers.state_replay import restore_producers
from streamlog.storage.segments.header_scan import Scanned, scan_file
from tests.storage.rig import Rig


def test_a_producer_of_old_records_expires_once_it_writes_no_more(rig: Rig) -> None:
    """Their timestamps are the producer's: a backfill's were expired at once, and a retry was appended again."""
    day_ms, hour_s = 86_400_000, 3600.0
    rig.append(b"0", producer=(5, 0, 0), timestamp=1000)

    def expire(now_s: float) -> None:
        rig.do(lambda: rig.log.producers.expire(2 * day_ms, now_s, day_ms))

    expire(0)
    expire(hour_s - 1)
    assert rig.append(b"0", producer=(5, 0, 0), timestamp=1000).duplicate
    rig.append(b"1", producer=(5, 0, 1), timestamp=1000)
    for now_s in (hour_s, hour_s + 30, 2 * hour_s - 1):
        expire(now_s)
        assert rig.append(b"1", producer=(5, 0, 1), timestamp=1000).duplicate
    expire(2 * hour_s)
    assert not len(rig.log.producers)
    rig.now_ms = 2 * day_ms
    rig.append(b"new", producer=(6, 0, 0), timestamp=2 * day_ms)
    expire(9 * hour_s)
    assert len(rig.log.producers) == 1, "its timestamps are not old"


def test_idempotent_producer(rig: Rig) -> None:
    """SEMANTICS 6."""
    for i in range(7):
        rig.append(b"%d" % i, producer=(9, 0, i))
    retry = rig.append(b"4", producer=(9, 0, 4))
    assert retry.duplicate
    assert (retry.first_offset, retry.next_offset) == (4, 5)
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"gap", producer=(9, 0, 9))
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"0", producer=(9, 0, 0))  # older than the five that are kept
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"epoch", producer=(9, 1, 3))
    rig.append(b"epoch", producer=(9, 1, 0))
    with pytest.raises(ProducerFencedError):
        rig.append(b"zombie", producer=(9, 0, 7))
    assert len(rig.values()) == 8


def test_what_ends_before_the_expected_sequence_is_a_repeat(rig: Rig) -> None:
    """Of a batch that is no longer kept, or of several with other bounds."""
    rig.append(b"0", producer=(9, 0, 2**31 - 1))
    for i in range(5):
        rig.append(b"a", b"b", producer=(9, 0, 2 * i))
    for first, count, end_offset in ((2**31 - 1, 1, 1), (2**31 - 1, 2, 3), (0, 1, 3), (1, 8, 11), (9, 1, 11)):
        with pytest.raises(OutOfOrderSequenceError) as caught:
            rig.append(*[b"c"] * count, producer=(9, 0, first))
        assert (caught.value.is_repeat(first, count), caught.value.details["end_offset"]) == (True, end_offset)
    for epoch, first, count in ((0, 9, 2), (0, 11, 1), (1, 3, 1), (1, 2**31 - 5, 1)):
        with pytest.raises(OutOfOrderSequenceError) as caught:
            rig.append(*[b"c"] * count, producer=(9, epoch, first))
        assert not caught.value.is_repeat(first, count)


def test_sequences_wrap(rig: Rig) -> None:
    rig.append(b"a", b"b", producer=(9, 0, 2**31 - 2))
    rig.append(b"c", producer=(9, 0, 0))
    assert rig.append(b"a", b"b", producer=(9, 0, 2**31 - 2)).duplicate


@pytest.mark.parametrize("how", ["stop", "crash", "cut"])
def test_producers_are_remembered_over_a_restart(rig: Rig, how: str) -> None:
    rig.append(b"a", producer=(9, 0, 0))
    rig.append(b"b", producer=(9, 0, 1))
    rig.sync()
    if how == "stop":
        rig.stop()
        rig.start()
    elif how == "crash":
        rig.crash()
    else:
        rig.machine.run(rig.log.truncate(Offset(1)))
        rig.machine.run(rig.log.restore_producers())
        rig.append(b"b", producer=(9, 0, 1))
    assert rig.append(b"b", producer=(9, 0, 1)).duplicate


def test_segments_that_are_removed_while_the_states_are_restored_hide_no_later_ones() -> None:
    """Without a snapshot, from the first segment on: the next ones move up in the list."""
    rig = Rig(Machine(1), LogConfig(segment_bytes=200, file_delete_delay_ms=0))
    for producer in range(6):
        rig.append(b"x" * 90, producer=(producer, 0, 0))
    log = rig.log
    removed: list[File] = []

    async def removing(file: File, start: int, end: int, *, check_crc: bool) -> AsyncIterator[list[Scanned]]:
        async for batches in scan_file(file, start, end, check_crc=check_crc):
            yield batches
        if not removed:
            removed.append(file)
            log.remove_oldest(2)
            await rig.directory.reaper.remove_due()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_replay, "load_snapshot", lambda *_: None)
        patch.setattr(state_replay, "scan_file", removing)
        states = rig.machine.run(restore_producers(rig.machine.fs, log.directory, log.segments, log.log_end_offset))
    assert log.segments.first.base_offset == 2
    assert states.map_end_offset == 6
    assert [producer for producer in range(6) if states.get(ProducerId(producer)) is not None] == [0, 2, 3, 4, 5]
    rig.machine.close()
