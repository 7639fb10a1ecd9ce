"""Transactions in one log: markers, the last stable offset, what was aborted (SEMANTICS 7, KIP-98, KIP-890)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from streamlog.errors import (
    DamagedFileError,
    InvalidRecordError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionCoordinatorFencedError,
)
from streamlog.model import Appended, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from streamlog.records import EndTransactionMarker, encode_end_transaction, read_header, scan_headers
from streamlog.records.header import TRANSACTIONAL_BIT
from streamlog.sim.machine import Machine
from streamlog.storage.cleaning.cleaner import Cleaner
from streamlog.storage.cleaning.key_map import ENTRY_BYTES
from streamlog.storage.log_config import LogConfig
from streamlog.storage.segments.transaction_index import ENTRY_SIZE, AbortedTransaction, TransactionIndex
from tests.cli.dump.kafka_files import TARGET
from tests.storage.batches import batch
from tests.storage.rig import Rig

KAFKA = TARGET / "transactions-0"


def send(rig: Rig, producer: int, epoch: int, sequence: int = 0, *values: bytes) -> Appended:
    fields: dict[str, Any] = {"producer": (producer, epoch, sequence), "attributes": TRANSACTIONAL_BIT}
    return rig.append(*(values or (b"v",)), **fields)


def end(rig: Rig, producer: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> Appended:
    data = encode_end_transaction(
        EndTransactionMarker(commit=commit, coordinator_epoch=coordinator_epoch),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        timestamp_ms=rig.now_ms,
    )
    found = [(0, read_header(data, 0))]
    return rig.do(lambda: rig.log.append_as_leader(data, found, LeaderEpoch(0), rig.now_ms))


def stable(rig: Rig, high_watermark: int) -> int:
    return rig.log.last_stable_offset(Offset(high_watermark))


def aborted(rig: Rig, start: int, stop: int) -> list[tuple[int, int, int]]:
    found = rig.do(lambda: rig.log.aborted(Offset(start), Offset(stop)))
    return [(one.producer_id, one.first_offset, one.last_offset) for one in found]


def content(rig: Rig, name: str) -> bytes:
    path = f"/data/topic-0/{name}"

    def read() -> bytes:
        file = rig.machine.fs.open_readonly(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    return rig.do(read)


def put(rig: Rig, name: str, data: bytes) -> None:
    def write() -> None:
        file = rig.machine.fs.open(f"/data/topic-0/{name}", create=True)
        file.truncate(0)
        file.pwritev((data,), 0)
        file.close()

    rig.do(write)


# -- the last stable offset


def test_the_oldest_open_transaction_holds_the_last_stable_offset(rig: Rig) -> None:
    rig.append(b"plain")
    assert stable(rig, 1) == 1
    send(rig, 7, 0)  # 1
    send(rig, 8, 0)  # 2
    rig.append(b"plain")  # 3
    assert stable(rig, 4) == 1
    end(rig, 7, 1, commit=True)  # 4
    assert stable(rig, 4) == 1  # the marker is not below the high watermark
    assert stable(rig, 5) == 2
    end(rig, 8, 1, commit=False)  # 5
    assert stable(rig, 5) == 2
    assert stable(rig, 6) == 6


def test_transactions_that_end_in_another_order_than_they_begin(rig: Rig) -> None:
    for producer in (1, 2, 3):
        send(rig, producer, 0)  # 0, 1, 2
    end(rig, 3, 1, commit=True)  # 3
    end(rig, 2, 1, commit=True)  # 4
    assert stable(rig, 5) == 0
    end(rig, 1, 1, commit=True)  # 5
    assert stable(rig, 5) == 0
    assert stable(rig, 6) == 6


def test_a_log_that_begins_behind_an_open_transaction_is_stable_up_to_its_beginning(rig: Rig) -> None:
    send(rig, 7, 0)
    for _ in range(3):
        rig.append(b"plain")
    rig.do(lambda: rig.log.advance_log_start(Offset(2)))
    assert stable(rig, 4) == 2


@pytest.mark.parametrize("how", ["crash", "power_cut", "stop"])
def test_what_is_open_is_so_after_a_restart(rig: Rig, how: str) -> None:
    rig.append(b"plain")
    send(rig, 7, 0)
    rig.append(b"plain")
    rig.sync()
    getattr(rig, how)()
    if how == "stop":
        rig.start()
    assert stable(rig, 3) == 1
    assert [(p.producer_id, p.transaction_start) for p in rig.log.producers.in_transaction()] == [(7, 1)]
    end(rig, 7, 1, commit=False)
    assert aborted(rig, 0, 4) == [(7, 1, 3)]


# -- what a leader refuses


def test_a_repeated_marker_is_a_success_and_written_once(rig: Rig) -> None:
    send(rig, 7, 0)
    first = end(rig, 7, 1, commit=True)
    again = end(rig, 7, 1, commit=True)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.next_offset == rig.log.log_end_offset == 2


def test_a_late_marker_does_not_end_the_next_transaction(rig: Rig) -> None:
    """Both have the same epoch: that of the marker is the next transaction's (KIP-890)."""
    send(rig, 7, 0)
    end(rig, 7, 1, commit=False)
    send(rig, 7, 1)
    assert end(rig, 7, 1, commit=False).duplicate
    assert stable(rig, 3) == 2
    end(rig, 7, 2, commit=True)
    assert stable(rig, 4) == 4
    assert aborted(rig, 0, 4) == [(7, 0, 1)]


def test_a_late_batch_does_not_get_behind_the_marker(rig: Rig) -> None:
    send(rig, 7, 0)
    end(rig, 7, 1, commit=True)
    with pytest.raises(ProducerFencedError):
        send(rig, 7, 0, 1)
    with pytest.raises(ProducerFencedError):
        end(rig, 7, 0, commit=False)


def test_a_marker_fences_where_its_transaction_has_no_record(rig: Rig) -> None:
    assert not end(rig, 7, 4, commit=False).duplicate
    assert end(rig, 7, 4, commit=False).duplicate
    assert aborted(rig, 0, 1) == []
    with pytest.raises(ProducerFencedError):
        send(rig, 7, 3)


def test_a_deposed_coordinator_is_fenced(rig: Rig) -> None:
    send(rig, 7, 0)
    end(rig, 7, 1, commit=True, coordinator_epoch=5)
    send(rig, 7, 1)
    with pytest.raises(TransactionCoordinatorFencedError):
        end(rig, 7, 2, commit=False, coordinator_epoch=4)
    end(rig, 7, 2, commit=True, coordinator_epoch=5)
    rig.sync()
    rig.crash()
    with pytest.raises(TransactionCoordinatorFencedError):
        end(rig, 7, 3, commit=False, coordinator_epoch=4)


def test_nothing_else_of_the_producer_gets_into_an_open_transaction(rig: Rig) -> None:
    send(rig, 7, 0)
    with pytest.raises(InvalidTransactionStateError):
        rig.append(b"plain", producer=(7, 0, 1))
    with pytest.raises(InvalidTransactionStateError):
        send(rig, 7, 1)
    assert send(rig, 7, 0).duplicate
    end(rig, 7, 1, commit=True)
    rig.append(b"plain", producer=(7, 1, 0))


@pytest.mark.parametrize("known", [True, False])
def test_a_transaction_begins_with_sequence_0(rig: Rig, known: bool) -> None:
    """Or the batch that was sent before it would be refused for ever, and the transaction be torn."""
    if known:
        end(rig, 7, 1, commit=True)
    with pytest.raises(OutOfOrderSequenceError):
        send(rig, 7, 1, 3)
    send(rig, 7, 1, 0)


def test_a_control_batch_that_ends_nothing_is_refused(rig: Rig) -> None:
    data = batch([b""], keys=[b"\0\0\0\7"], producer=(7, 0, -1), attributes=0x30)
    with pytest.raises(InvalidRecordError):
        rig.do(lambda: rig.log.append_as_leader(data, [(0, read_header(data, 0))], LeaderEpoch(0), 0))


# -- what was aborted


def test_aborted_transactions_of_a_range(rig: Rig) -> None:
    for number in range(4):
        send(rig, 7, number, 0, b"a", b"b")
        end(rig, 7, number + 1, commit=number % 2 == 0)
    assert aborted(rig, 0, 12) == [(7, 3, 5), (7, 9, 11)]
    assert aborted(rig, 0, 3) == []
    assert aborted(rig, 0, 4) == [(7, 3, 5)]
    assert aborted(rig, 5, 9) == [(7, 3, 5)]
    assert aborted(rig, 6, 10) == [(7, 9, 11)]


def test_a_marker_some_segments_behind_the_records_is_found(rig: Rig) -> None:
    send(rig, 7, 0)
    send(rig, 8, 0)
    for _ in range(5):
        rig.do(rig.log.roll_now)
        rig.append(b"plain")
    end(rig, 8, 1, commit=False)  # 7
    rig.do(rig.log.roll_now)
    end(rig, 7, 1, commit=False)  # 8
    rig.do(rig.log.roll_now)
    assert aborted(rig, 0, 1) == [(7, 0, 8)]
    assert aborted(rig, 1, 2) == [(7, 0, 8), (8, 1, 7)]
    rig.sync()
    rig.machine.run(rig.directory.checkpoint())
    for restart in (rig.crash, rig.power_cut):
        restart()
        assert aborted(rig, 1, 2) == [(7, 0, 8), (8, 1, 7)]


def test_a_cut_takes_back_what_was_aborted_above_it(rig: Rig) -> None:
    for number in range(3):
        send(rig, 7, number)
        end(rig, 7, number + 1, commit=False)
    rig.machine.run(rig.log.truncate(Offset(3)))
    assert aborted(rig, 0, 3) == [(7, 0, 1)]
    assert stable(rig, 3) == 2
    assert len(content(rig, "00000000000000000000.txnindex")) == ENTRY_SIZE
    end(rig, 7, 2, commit=True)
    assert aborted(rig, 0, 4) == [(7, 0, 1)]
    assert stable(rig, 4) == 4


def test_a_log_that_is_removed_or_recreated_leaves_no_index(rig: Rig) -> None:
    send(rig, 7, 0)
    end(rig, 7, 1, commit=False)
    rig.machine.run(rig.log.restart_at(Offset(0)))
    assert aborted(rig, 0, 1) == []
    send(rig, 7, 0)
    assert stable(rig, 1) == 0


def test_an_index_file_is_made_for_the_first_aborted_transaction_only(rig: Rig) -> None:
    send(rig, 7, 0)
    end(rig, 7, 1, commit=True)
    names = rig.do(lambda: rig.machine.fs.list("/data/topic-0"))
    assert not [name for name in names if name.endswith(".txnindex")]


# -- Kafka's bytes


def kafka_file(name: str) -> bytes:
    return (KAFKA / name).read_bytes()


def test_a_follower_of_kafkas_batches_writes_kafkas_files() -> None:
    rig = Rig(Machine(1), LogConfig(segment_bytes=1 << 20))
    first, second = kafka_file("00000000000000000000.log"), kafka_file("00000000000000000004.log")
    rig.do(lambda: rig.log.append_as_follower(first))
    rig.do(rig.log.roll_now)
    for position, header in scan_headers(second, 0, len(second)):
        one = second[position : position + header.size_bytes]
        rig.do(partial(rig.log.append_as_follower, one))
    for path in sorted(KAFKA.iterdir()):
        if path.suffix in (".log", ".txnindex", ".snapshot"):
            ours, kafkas = content(rig, path.name), path.read_bytes()
            if path.suffix == ".snapshot":  # behind what Kafka reads there is more, which the CRC covers too
                ours, kafkas = ours[6 : len(kafkas)], kafkas[6:]
            assert ours == kafkas, path.name
    rig.machine.close()


@pytest.mark.parametrize("index", ["kept", "lost", "wrong"])
def test_recovery_builds_kafkas_index_from_the_batches(index: str) -> None:
    rig = Rig(Machine(1))
    rig.crash()
    rig.machine.crash()
    for path in KAFKA.iterdir():
        if path.suffix == ".log" or (path.suffix == ".txnindex" and index == "kept"):
            put(rig, path.name, path.read_bytes())
        elif path.suffix == ".txnindex" and index == "wrong":
            put(rig, path.name, path.read_bytes() * 3)
    rig.start()
    assert content(rig, "00000000000000000004.txnindex") == kafka_file("00000000000000000004.txnindex")
    assert aborted(rig, 0, 20) == [(5, 5, 9), (5, 15, 19)]
    assert stable(rig, 20) == 20
    rig.machine.close()


def test_the_index_finds_what_touches_a_range_and_knows_when_to_stop() -> None:
    machine = Machine(1)

    async def story() -> None:
        index = TransactionIndex(machine.fs, "/00000000000000000000.txnindex")
        entries = [
            AbortedTransaction(0, ProducerId(2), Offset(5), Offset(10), Offset(0)),  # 1 is open since 0
            AbortedTransaction(0, ProducerId(3), Offset(11), Offset(12), Offset(0)),
            AbortedTransaction(0, ProducerId(1), Offset(0), Offset(20), Offset(21)),
            AbortedTransaction(0, ProducerId(2), Offset(22), Offset(30), Offset(31)),
        ]
        for entry in entries:
            index.append(entry)
        assert index.touching(Offset(0), Offset(5)) == ([entries[2]], True)
        assert index.touching(Offset(11), Offset(12)) == ([entries[1], entries[2]], True)
        assert index.touching(Offset(21), Offset(22)) == ([], True)
        assert index.touching(Offset(25), Offset(40)) == ([entries[3]], False)
        assert index.touching(Offset(31), Offset(40)) == ([], False)
        index.close()
        again = TransactionIndex(machine.fs, "/00000000000000000000.txnindex")
        assert again.entries() == entries
        again.close()

    machine.run(story())
    machine.close()


@pytest.mark.parametrize("how", ["flipped", "cut", "removed", "emptied"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_of_a_closed_segment_is_found_again(how: str, clean: bool) -> None:
    machine = Machine(1)
    rig = Rig(machine, LogConfig(segment_bytes=900, segment_index_bytes=1024))
    for epoch in range(0, 16, 2):
        send(rig, 5, epoch)
        end(rig, 5, epoch + 1, commit=bool(epoch % 4))
    rig.sync()
    whole = aborted(rig, 0, 100)
    machine.run(rig.directory.checkpoint())
    if clean:
        rig.stop()
    else:
        machine.crash()
    disk, path = machine.disk, f"/data/topic-0/{0:020d}.txnindex"
    size = len(disk.find(path).cache.read(10_000, 0))  # type: ignore[union-attr]  # it is a file
    match how:
        case "flipped":
            disk.damage(path, 9, b"\x77")
        case "removed":
            disk.remove(path)
        case _:
            left = 0 if how == "emptied" else size - ENTRY_SIZE - 3
            disk.find(path).cache.resize(left)  # type: ignore[union-attr]
            disk.find(path).platter.resize(left)  # type: ignore[union-attr]
    rig.start()
    with pytest.raises(DamagedFileError, match=r"txnindex"):
        aborted(rig, 0, 100)
    machine.run(rig.log.repair_transaction_indexes())
    assert aborted(rig, 0, 100) == whole
    assert [event for event, _ in rig.events if event == "index_rebuilt"]
    machine.run(rig.directory.checkpoint())
    machine.crash()
    rig.start()
    assert aborted(rig, 0, 100) == whole
    machine.close()


def test_a_transaction_above_what_a_cleanings_key_map_holds_stays_aborted() -> None:
    config = LogConfig(
        segment_bytes=4000, segment_index_bytes=1024, cleanup_compact=True, min_cleanable_dirty_ratio=0.0
    )
    rig = Rig(Machine(1), config)
    for i in range(20):
        rig.append(b"plain", keys=[b"k%d" % i])
    rig.append(b"aborted", keys=[b"aborted"], producer=(7, 0, 0), attributes=TRANSACTIONAL_BIT)
    end(rig, 7, 1, commit=False)
    rig.do(rig.log.roll_now)
    rig.sync()
    machine = rig.machine
    machine.run(rig.directory.checkpoint())
    cleaner = Cleaner(
        machine.fs, rig.directory, machine.clock, machine.workers, rig.probe, dedupe_buffer_bytes=15 * ENTRY_BYTES
    )
    done = machine.run(cleaner.clean_filthiest(lambda log: log.durability.synced_end))
    assert done is not None
    assert done.end_offset < 20
    assert aborted(rig, 0, 22) == [(7, 20, 21)]
    assert b"aborted" not in [value for _, value in rig.values()]
