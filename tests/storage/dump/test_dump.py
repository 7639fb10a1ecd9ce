"""The reading side of the dump tool: opens for reading only, and finds what is sound around any damage."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.model import Offset
from streamlog.ports import File
from streamlog.records import BatchFields, Codec, encode_batch
from streamlog.sim.machine import Machine
from streamlog.storage.dump import Damage, Item, LogRecord, read
from tests.cli.dump.kafka_files import TARGET, dumped_files

PATH = "/00000000000000000000.log"
RECORDS_A_BATCH = 3


class ReadOnly:
    """A file system that cannot be written: everything but reading is an AttributeError."""

    def __init__(self, machine: Machine) -> None:
        self._fs = machine.fs

    def open_readonly(self, path: str) -> File:
        return self._fs.open_readonly(path)

    def exists(self, path: str) -> bool:
        return self._fs.exists(path)


def batches() -> list[bytes]:
    made = []
    for number, codec in enumerate([*Codec, *Codec]):
        fields = BatchFields(base_offset=Offset(number * RECORDS_A_BATCH), codec=codec)
        values = [b"value %d of batch %d" % (n, number) for n in range(RECORDS_A_BATCH)]
        made.append(encode_batch(values, timestamps=1000 + number, fields=fields))
    return made


BATCHES = batches()


def dumped(content: bytes, path: str = PATH) -> list[Item]:
    machine = Machine(1)
    try:
        file = machine.fs.open(path, create=True)
        file.pwritev((content,), 0)
        file.close()
        return list(read(ReadOnly(machine), path))  # type: ignore[arg-type]  # what it must not call is not there
    finally:
        machine.close()


def values(items: list[Item]) -> list[bytes | None]:
    return [item.value for item in items if isinstance(item, LogRecord) and item.batch.is_valid]


def test_needs_nothing_but_reading() -> None:
    items = dumped(b"".join(BATCHES))
    assert not [item for item in items if isinstance(item, Damage)]
    assert len(values(items)) == len(BATCHES) * RECORDS_A_BATCH


@settings(max_examples=150, deadline=None)
@given(
    victim=st.integers(0, len(BATCHES) - 1),
    at=st.integers(0, 2**16),
    junk=st.binary(min_size=1, max_size=40),
)
def test_the_other_batches_are_found_whatever_happens_to_one(victim: int, at: int, junk: bytes) -> None:
    broken = bytearray(BATCHES[victim])
    at %= len(broken)
    broken[at : at + len(junk)] = junk[: len(broken) - at]
    items = dumped(b"".join([*BATCHES[:victim], bytes(broken), *BATCHES[victim + 1 :]]))
    found = values(items)
    others = [n for n in range(len(BATCHES)) if n != victim]
    assert all(b"value %d of batch %d" % (n, other) in found for other in others for n in range(RECORDS_A_BATCH))


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, len(b"".join(BATCHES))), inserted=st.binary(max_size=200))
def test_batches_are_found_behind_bytes_that_do_not_belong(cut: int, inserted: bytes) -> None:
    log = b"".join(BATCHES)
    items = dumped(log[:cut] + inserted + log[cut:])
    ends = [sum(map(len, BATCHES[: n + 1])) for n in range(len(BATCHES))]
    whole = [n for n, end in enumerate(ends) if end <= cut or end - len(BATCHES[n]) >= cut]
    found = values(items)
    assert all(b"value %d of batch %d" % (n, batch) in found for batch in whole for n in range(RECORDS_A_BATCH))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_file_of_a_real_kafka_can_be_broken_so_that_reading_fails(data: st.DataObject) -> None:
    """Damage is a value in the stream; whatever else is raised would be a bug."""
    file = data.draw(st.sampled_from([f for f in dumped_files(TARGET) if f.stat().st_size]))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(content)))
    dumped(bytes(content[:cut] if data.draw(st.booleans()) else content), f"/{file.name}")


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".log", ".index", ".timeindex", ".txnindex"]))
def test_any_bytes_can_be_read(content: bytes, suffix: str) -> None:
    dumped(content, f"/00000000000000000007{suffix}")


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(st.text("0123456789- ax²\n", max_size=12), max_size=6))
def test_any_text_can_be_read_as_a_checkpoint(lines: list[str]) -> None:
    content = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
    dumped(content, "/leader-epoch-checkpoint")
    dumped(content, "/recovery-point-offset-checkpoint")


def test_hostile_headers_end_the_search() -> None:
    """Each 61 bytes claim a batch to the end of the file: the search gives up instead of being quadratic."""
    size = 1 << 20
    header = bytearray(BATCHES[0][:61])
    hostile = bytearray()
    while len(hostile) + 61 <= size:
        header[8:12] = (size - len(hostile) - 12).to_bytes(4, "big")
        hostile += header
    items = dumped(b"\xff" * 61 + bytes(hostile))
    assert [type(item) for item in items[1:]] == [Damage]
