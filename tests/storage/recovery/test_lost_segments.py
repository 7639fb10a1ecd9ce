"""Which segments without a `.log` are kept: those whose aborted transactions matter, and no rests of deletions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c

from streamlog.model import Offset, ProducerId
from streamlog.sim.machine import Machine
from streamlog.storage.files import names
from streamlog.storage.recovery.lost_segments import keep_lost_segments
from streamlog.storage.segments.transaction_index import AbortedTransaction, format_entry
from tests.storage.batches import batch

LOST = Offset(2)
ENTRY = format_entry(AbortedTransaction(0, ProducerId(1), Offset(1), Offset(3), Offset(4)))


class Scene:
    """Segments 0, 2 and 4 of two records each; the log of the one at 2 is missing."""

    def __init__(self) -> None:
        self.machine = Machine(1)
        self.machine.fs.mkdir("/log")
        self.sums = {Offset(0): 0, LOST: crc32c(ENTRY)}
        for base in (0, 4):
            self.write(base, names.LOG, batch([b"a", b"b"], base_offset=base))
        self.write(LOST, names.TXN_INDEX, ENTRY)

    def write(self, base: int, kind: str, content: bytes) -> None:
        file = self.machine.fs.open(f"/log/{names.file_name(Offset(base), kind)}", create=True)
        file.truncate(0)
        file.pwritev([content], 0)
        file.close()

    def unlink(self, base: int, kind: str) -> None:
        self.machine.fs.unlink(f"/log/{names.file_name(Offset(base), kind)}")

    def kept(self) -> list[str]:
        fs = self.machine.fs
        made = self.machine.run(keep_lost_segments(fs, "/log", fs.list("/log"), self.sums))
        assert set(made) <= set(fs.list("/log"))
        return made


def test_a_lost_segment_is_kept() -> None:
    assert Scene().kept() == [names.file_name(LOST, names.LOG)]


@pytest.mark.parametrize(
    "change",
    [
        lambda scene: scene.unlink(0, names.LOG),
        lambda scene: scene.unlink(4, names.LOG),
        lambda scene: scene.unlink(LOST, names.TXN_INDEX),
        lambda scene: scene.sums.pop(LOST),
        lambda scene: scene.write(LOST, names.TXN_INDEX, ENTRY[:-1] + b"\xff"),
        lambda scene: scene.write(0, names.LOG, batch([b"a", b"b", b"c"])),
        lambda scene: scene.write(0, names.LOG, b"\xff" * 100),
    ],
    ids=["of the start", "of the end", "no index", "truncated", "another index", "records are there", "damaged before"],
)
def test_what_may_be_a_rest_is_not_kept(change: Callable[[Scene], None]) -> None:
    scene = Scene()
    change(scene)
    assert scene.kept() == []
