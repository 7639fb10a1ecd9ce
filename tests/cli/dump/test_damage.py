"""Damaged files: named with position and reason on standard error, exit code 1, and what is sound is printed."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from streamlog.cli.dump import command
from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.records import BatchFields, Codec, encode_batch
from streamlog.storage import dump as storage_dump
from streamlog.storage.dump import Item
from tests.cli.conftest import Dump
from tests.cli.dump.kafka_files import TARGET
from tests.cli.dump.logs import LOG, START_MS, one, write_log

SIZE = 86  # of each batch of `one`


def payloads(printed: str) -> list[str]:
    return [line.rpartition("payload: ")[2] for line in printed.splitlines() if "payload" in line]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def values(*ids: int) -> list[str]:
    return [f'{{"id":{n}}}' for n in ids]


def test_a_flipped_bit_in_a_value(tmp_path: Path, dump: Dump) -> None:
    """The record is still shown, as not valid: its batch can be unpacked."""
    log = write_log(tmp_path, [one(0), flipped(one(1), SIZE - 3), one(2)])
    done = dump(log)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{log}: position 86: the batch of offset 1 does not match its CRC 0x")
    lines = done.stdout.splitlines()[2:]
    assert ["isvalid: true" in line for line in lines] == [True, False, True]
    assert payloads(done.stdout)[::2] == values(0, 2)


def test_a_flipped_bit_in_a_compressed_batch(tmp_path: Path, dump: Dump) -> None:
    """Nothing can be unpacked, so nothing of it is shown; the line of the batch says that it is not valid."""
    bad = one(1, Codec.GZIP)
    log = write_log(tmp_path, [one(0), flipped(bad, 75), one(2)])
    done = dump(log)
    assert done.exit_code == 1
    assert payloads(done.stdout) == values(0, 2)
    shallow = dump("--shallow-iteration", log).stdout.splitlines()[2:]
    assert [line.rpartition(" ")[2] for line in shallow] == ["true", "false", "true"]


@pytest.mark.parametrize("length", [0, -1, 5, 73, 75, 2**31 - 1, -(2**31)])
def test_a_wrong_length(tmp_path: Path, dump: Dump, length: int) -> None:
    """The length leads nowhere; the next intact batch is found by searching."""
    bad = one(1)
    log = write_log(tmp_path, [one(0), bad[:8] + struct.pack(">i", length) + bad[12:], one(2), one(3)])
    done = dump(log)
    assert done.exit_code == 1
    assert f"{log}: position 86: " in done.stderr
    assert "the next intact batch begins at position 172" in done.stderr
    assert [p for p in payloads(done.stdout) if p in values(0, 2, 3)] == values(0, 2, 3)


def test_unknown_magic(tmp_path: Path, dump: Dump) -> None:
    bad = one(1)
    log = write_log(tmp_path, [one(0), bad[:16] + b"\x07" + bad[17:], one(2)])
    done = dump(log)
    assert done.stderr == f"{log}: position 86: unknown magic 7; the next intact batch begins at position 172\n"
    assert payloads(done.stdout) == values(0, 2)


@pytest.mark.parametrize("kept", [1, 11, 12, 16, 17, 60, 61, SIZE - 1])
def test_a_torn_tail(tmp_path: Path, dump: Dump, kept: int) -> None:
    log = write_log(tmp_path, [one(0), one(1)[:kept]])
    done = dump(log)
    assert done.exit_code == 1
    zeros = not any(one(1)[:kept])
    assert f"{log}: position 86: " in done.stderr
    assert (f"{kept} bytes of zeros" if zeros else "an incomplete batch") in done.stderr
    assert payloads(done.stdout) == values(0)


def test_zeros_at_the_end(tmp_path: Path, dump: Dump) -> None:
    log = write_log(tmp_path, [one(0), bytes(4096)])
    done = dump(log)
    assert done.exit_code == 1
    reason = "4096 bytes of zeros: preallocated, or never written; no intact batch follows"
    assert done.stderr == f"{log}: position 86: {reason}\n"


def test_a_lost_page_in_the_middle(tmp_path: Path, dump: Dump) -> None:
    sound = b"".join(one(n) for n in range(200))
    log = write_log(tmp_path, [sound[:4096], bytes(4096), sound[8192:]])
    done = dump(log)
    assert done.exit_code == 1
    whole = [n for n in range(200) if (n + 1) * SIZE <= 4096 or n * SIZE >= 8192]
    assert [p for p in payloads(done.stdout) if p in values(*whole)] == values(*whole)


def test_offsets_that_fall(tmp_path: Path, dump: Dump) -> None:
    """The CRC does not cover the base offset."""
    log = write_log(tmp_path, [one(5), one(4)])
    done = dump(log)
    assert done.stderr == f"{log}: position 86: base offset 4 comes after offset 5: offsets must rise\n"
    assert payloads(done.stdout) == values(5, 4)


def test_a_bomb(tmp_path: Path, dump: Dump) -> None:
    """A sound batch that unpacks to more than any broker takes is named, and the next one printed."""
    bomb = encode_batch([bytes(150 << 20)], timestamps=START_MS, fields=BatchFields(codec=Codec.ZSTD))
    log = write_log(tmp_path, [bomb, one(1)])
    done = dump(log)
    assert done.exit_code == 1
    assert f"{log}: position 0: the records cannot be read: the records unpack to more than 104857600" in done.stderr
    assert payloads(done.stdout) == values(1)


def test_an_index_that_does_not_rise(tmp_path: Path, dump: Dump) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">6i", 48, 4156, 40, 5000, 99, 9000))
    done = dump(index)
    assert done.exit_code == 1
    assert done.stderr == (
        f"{index}: position 8: offset 40, position 5000 comes after offset 48, position 4156: both must rise\n"
    )
    assert done.stdout.splitlines()[3] == "offset: 99 position: 9000"


def test_an_index_that_does_not_fit_its_log(tmp_path: Path, dump: Dump) -> None:
    write_log(tmp_path, [one(n) for n in range(6)])
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">6i", 1, 86, 2, 180, 4, 430))
    for option in ("--print-data-log", "--verify-index-only"):
        done = dump(option, index)
        assert done.exit_code == 1
        assert done.stderr.splitlines() == [
            f"{index}: position 8: no batch begins at position 180 of the log, as the entry of offset 2 says",
            f"{index}: position 16: index offset 4, but the batch at position 430 ends at 5",
        ]


def test_a_timeindex_that_does_not_fit_its_log(tmp_path: Path, dump: Dump) -> None:
    write_log(
        tmp_path,
        [
            one(0),
            one(1),
            encode_batch([b"a", b"b"], timestamps=START_MS + 9, fields=BatchFields(base_offset=Offset(2))),
        ],
    )
    index = tmp_path / "00000000000000000000.timeindex"
    index.write_bytes(struct.pack(">qiqiqi", START_MS + 1, 0, START_MS + 2, 2, START_MS + 9, 77))
    assert dump(index).stderr.splitlines() == [
        f"{index}: position 0: index timestamp {START_MS + 1}, log timestamp {START_MS}",
        f"{index}: position 12: indexed offset 2 is not the end of a batch: one ends at 3",
        f"{index}: position 24: indexed offset 77 is not in the log, which ends at 3",
    ]


def test_half_an_entry(tmp_path: Path, dump: Dump) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">ii", 48, 4156) + b"\0\0\1")
    assert dump(index).stderr == f"{index}: position 8: the last 3 bytes are not a whole entry\n"
    sane = dump("--index-sanity-check", index)
    assert (sane.exit_code, sane.stderr) == (1, f"{index}: position 11: its length 11 is not a multiple of 8\n")


def test_entries_behind_the_zeros(tmp_path: Path, dump: Dump) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">ii", 48, 4156) + bytes(80) + struct.pack(">ii", 99, 9000))
    assert dump(index).stderr == f"{index}: position 88: an entry follows unused ones\n"


def test_no_log_to_verify_an_index_against(tmp_path: Path, dump: Dump) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(struct.pack(">ii", 48, 4156))
    done = dump("--verify-index-only", index)
    assert done.exit_code == 1
    assert done.stderr == f"{index}: position 0: cannot be verified: {tmp_path}/00000000000000000000.log is missing\n"


def test_a_checkpoint(tmp_path: Path, dump: Dump) -> None:
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n3\na 0 12\nb zero 13\nc 1\n")
    done = dump(checkpoint)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{checkpoint}: position 11: ")
    assert done.stdout.splitlines()[1:] == ["topic: a partition: 0 offset: 12"]


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "leader-epoch-checkpoint"])
def test_a_checkpoint_with_a_number_that_is_none(tmp_path: Path, dump: Dump, name: str) -> None:
    checkpoint = tmp_path / name
    checkpoint.write_text(f"0\n1\n0 {'9' * 5000}\n")
    done = dump(checkpoint)
    assert (done.exit_code, done.stderr) == (1, f"{checkpoint}: position 6: a number of 5000 digits\n")


def test_a_snapshot(tmp_path: Path, dump: Dump) -> None:
    sound = next(TARGET.rglob("*.snapshot")).read_bytes()
    snapshot = tmp_path / "00000000000000000004.snapshot"
    snapshot.write_bytes(flipped(sound, 20))
    done = dump(snapshot)
    assert (done.exit_code, done.stdout.splitlines()[1:]) == (1, [])
    assert done.stderr == f"{snapshot}: position 2: the snapshot does not match its CRC\n"


def test_a_transaction_index(tmp_path: Path, dump: Dump) -> None:
    sound = next(TARGET.rglob("*.txnindex")).read_bytes()[:34]
    index = tmp_path / "00000000000000000004.txnindex"
    index.write_bytes(b"\0\7" + sound[2:] + sound + sound + sound[:10])
    done = dump(index)
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 3
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["position 0", "position 68", "position 102"]


def test_a_damaged_file_does_not_hide_the_next(tmp_path: Path, dump: Dump) -> None:
    bad = write_log(tmp_path, [one(0)[:50]])
    good = write_log(tmp_path, [one(1)], "00000000000000000001.log")
    done = dump(bad, good)
    assert done.exit_code == 1
    assert payloads(done.stdout) == values(1)


def test_a_file_that_a_running_node_deletes(tmp_path: Path, dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_log(tmp_path, [one(0)])
    deleted = write_log(tmp_path, [one(1)], "00000000000000000001.log")
    last = write_log(tmp_path, [one(2)], "00000000000000000002.log")

    def read(fs: FileSystem, path: str, **options: Any) -> Iterator[Item]:
        Path(deleted).unlink(missing_ok=True)
        yield from storage_dump.read(fs, path, **options)

    monkeypatch.setattr(command, "read", read)
    done = dump(first, deleted, last)
    assert done.exit_code == 1
    assert done.stderr == f"{deleted}: No such file or directory\n"
    assert payloads(done.stdout) == values(0, 2)


def test_memory_does_not_grow_with_the_file(tmp_path: Path, dump: Dump) -> None:
    """1 GiB with a hole, a length that claims all of it, and a sound batch at its end."""
    bad = one(0)
    log = write_log(tmp_path, [bad[:8] + struct.pack(">i", 2**30 - 12 - 86) + bad[12:]])
    with log.open("r+b") as file:
        file.seek(2**30 - SIZE)
        file.write(one(1))
    tracemalloc.start()
    try:
        done = dump(log)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert done.exit_code == 1
    assert payloads(done.stdout) == values(1)
    assert peak < 16 << 20


class TestWhatIsNoFileOfALog:
    """By its name it is one. Nothing is waited for, and nothing read without end."""

    def test_a_fifo(self, tmp_path: Path, dump: Dump) -> None:
        fifo = tmp_path / LOG
        os.mkfifo(fifo)
        done = dump(fifo)
        assert done.exit_code == 1
        assert done.stderr == f"{fifo}: is a FIFO, not a file\n"

    def test_a_fifo_beside_an_index(self, tmp_path: Path, dump: Dump) -> None:
        os.mkfifo(tmp_path / LOG)
        index = tmp_path / LOG.replace(".log", ".index")
        index.write_bytes(bytes(8))
        done = dump(index)
        assert done.exit_code == 1
        assert "is a FIFO, not a file" in done.stderr

    def test_a_device(self, tmp_path: Path, dump: Dump) -> None:
        for name in (LOG, "recovery-point-offset-checkpoint"):
            (tmp_path / name).symlink_to("/dev/zero")
            done = dump(tmp_path / name)
            assert done.exit_code == 1
            assert done.stderr == f"{tmp_path / name}: is a character device, not a file\n"

    @pytest.mark.parametrize("option", ["--deep-iteration", "--verify-index-only", "--index-sanity-check"])
    @pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
    def test_a_hole(self, tmp_path: Path, dump: Dump, suffix: str, option: str) -> None:
        """Ten gigabytes of nothing are seen to be nothing: what would be read is counted, not timed."""
        if suffix not in (".index", ".timeindex") and option != "--deep-iteration":
            pytest.skip("an option of indexes")
        path = tmp_path / LOG.replace(".log", suffix)
        path.touch()
        os.truncate(path, 10 << 30)
        done, read_bytes = counted(lambda: dump(option, path))
        assert read_bytes < 64 << 20
        if suffix == ".log":
            assert done.stderr == (
                f"{path}: position 0: {10 << 30} bytes of zeros: preallocated, or never written; "
                "no intact batch follows\n"
            )

    def test_a_hole_between_batches_and_behind_them(self, tmp_path: Path, dump: Dump) -> None:
        log = write_log(tmp_path, [one(0)])
        with log.open("r+b") as file:
            file.seek(5 << 30)
            file.write(one(1))
            file.truncate(10 << 30)
        done, read_bytes = counted(lambda: dump(log))
        assert read_bytes < 64 << 20
        assert payloads(done.stdout)[::2] == values(0, 1) or payloads(done.stdout) == values(0, 1)
        assert f"the next intact batch begins at position {5 << 30}" in done.stderr


def counted(run: Callable[[], Result]) -> tuple[Result, int]:
    """What it gives, and the bytes that this process has read meanwhile."""

    def read_bytes() -> int:
        first, _, _ = Path("/proc/self/io").read_text().partition("\n")
        return int(first.removeprefix("rchar: "))

    before = read_bytes()
    done = run()
    return done, read_bytes() - before
