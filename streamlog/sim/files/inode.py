"""Files and directories as the simulated disk keeps them: each in two images, what is seen and what a power cut leaves.

A file (FileNode) has a `cache`, which reads see and kill -9 keeps, and a `platter`, which a power cut keeps. Between
them stand the `pending` changes, oldest first. A sync applies a prefix of these to the platter. A power cut applies
a seeded part: writes are kept or lost by the sector; changes of size are journalled in order, so once one is lost all
that came after it is lost too (ext4, XFS); and the file may keep its length, with zeros at the end.

A directory (DirectoryNode) has `entries`, which lookups see, and `durable`, with the changes between them in order.
`sync_dir` makes all of them durable, a power cut any prefix. A rename between two directories is one change in two
journals: it is kept in both or in neither.

After a failed sync the pages are clean but not written: the cache shows them, the next sync says OK, and only a
power cut shows (Linux). Names of a directory whose sync failed never become durable again.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from streamlog.sim.files.image import PAGE, Image
from streamlog.sim.process import Process

SECTOR: Final = 512
"""What a device writes whole or not at all."""

ZERO_TAIL_CHANCE: Final = 0.25
"""Of a power cut: the size was journalled, the data behind it was not."""


class Change(NamedTuple):
    """One unsynced change of a file: `data` written at `offset`, or, without data, the size set to `offset`."""

    number: int  # rises by one a change; what a sync promises is a number
    offset: int
    data: bytes | None


class FileNode:
    """One file, whatever its names and handles are."""

    __slots__ = (
        "cache",
        "changes",
        "links",
        "lost",
        "modified_ms",
        "number",
        "pending",
        "platter",
        "reserved_pages",
        "windows",
    )

    def __init__(self, number: int) -> None:
        self.number = number  # the inode number
        self.cache = Image()
        self.platter = Image()
        self.pending: list[Change] = []
        self.changes = 0  # number of the latest change
        self.lost = False  # a failed sync dropped changes: cache and platter differ permanently
        self.reserved_pages = 0  # pages [0, reserved_pages) have their blocks by fallocate
        self.modified_ms = 0  # by the wall clock of its machine
        self.links = 0  # names: 1, or 0 once unlinked
        self.windows: list[Window] = []

    def write(self, data: bytes, offset: int) -> None:
        self.cache.write(data, offset)
        self._note(offset, data)
        if self.windows:
            for window in self.live_windows():
                window.update(data, offset)

    def resize(self, size: int) -> None:
        if size < self.cache.size:
            self.reserved_pages = min(self.reserved_pages, pages_of(size))
        self.cache.resize(size)
        self._note(size, None)

    def _note(self, offset: int, data: bytes | None) -> None:
        self.changes += 1
        self.pending.append(Change(self.changes, offset, data))

    def pages(self) -> int:
        """Pages that this file takes of the disk."""
        return self.reserved_pages + sum(number >= self.reserved_pages for number in self.cache.pages)

    def live_windows(self) -> list[Window]:
        """Mappings of processes that are alive; those of dead ones are gone with them."""
        self.windows = [window for window in self.windows if window.process.alive]
        return self.windows

    def new_pages(self, size: int, offset: int) -> list[int]:
        """Pages without a block that a write of `size` bytes at `offset` needs, lowest first."""
        if not size:
            return []
        first = max(offset // PAGE, self.reserved_pages)
        return [n for n in range(first, (offset + size - 1) // PAGE + 1) if n not in self.cache.pages]

    def sync(self, upto: int, *, fails: bool) -> None:
        """Take the changes numbered up to `upto` (some may be gone already: syncs overlap)."""
        taken = 0
        for change in self.pending:
            if change.number > upto:
                break
            if not fails:
                apply(self.platter, change)
            taken += 1
        del self.pending[:taken]
        self.lost |= fails and taken > 0

    def power_cut(self, rng: random.Random) -> bool:
        """Come back with what the platter got. True if something was lost or torn."""
        self.windows.clear()
        if not self.pending and not self.lost:
            return False
        keep = rng.choice((0.0, 0.5, 0.9, 1.0))
        for change in self.pending:
            if change.data is None:
                if rng.random() >= keep:
                    break
                apply(self.platter, change)
            else:
                _write_some_sectors(self.platter, change.data, change.offset, keep, rng)
        if self.platter.size < self.cache.size and rng.random() < ZERO_TAIL_CHANCE:
            self.platter.resize(self.cache.size)
        self.cache = self.platter.copy()
        self.reserved_pages = min(self.reserved_pages, pages_of(self.cache.size))
        self.pending.clear()
        self.lost = False
        return True


def pages_of(size: int) -> int:
    """Pages that hold `size` bytes."""
    return -(-size // PAGE)


def apply(image: Image, change: Change) -> None:
    if change.data is None:
        image.resize(change.offset)
    else:
        image.write(change.data, change.offset)


def _write_some_sectors(image: Image, data: bytes, offset: int, keep: float, rng: random.Random) -> None:
    begin = 0
    while begin < len(data):
        end = min(len(data), begin + SECTOR - (offset + begin) % SECTOR)
        if rng.random() < keep:
            image.write(data[begin:end], offset + begin)
        begin = end


class Window:
    """The memory behind one mapping: a copy that every later write of the file is copied into."""

    __slots__ = ("buffer", "process", "size")

    def __init__(self, buffer: memoryview, process: Process) -> None:
        self.buffer = buffer
        self.process = process
        self.size = len(buffer)

    def fill(self, image: Image) -> None:
        for number, page in image.pages.items():
            self.update(bytes(page), number * PAGE)

    def update(self, data: bytes, offset: int) -> None:
        end = min(offset + len(data), self.size)
        if offset < end:
            self.buffer[offset:end] = data[: end - offset]


class NameChange(Struct, eq=False):
    """`removed` went from the directory, `added` came to it as `node`; both in a rename inside one directory."""

    removed: str | None = None
    added: str | None = None
    node: Node | None = None
    twin: tuple[DirectoryNode, NameChange] | None = None  # the other half of a rename between two directories


class DirectoryNode(Struct, eq=False):
    number: int
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)
    lost: bool = False  # a sync of it failed: nothing becomes durable any more

    def change(self, change: NameChange) -> None:
        _enter(self.entries, change)
        self.pending.append(change)

    def sync(self, count: int) -> None:
        """Make the first `count` pending changes durable, and what they are tied to in other directories."""
        if self.lost:
            return
        last = self.pending[count - 1] if count else None
        while last is not None and last in self.pending:
            change = self.pending.pop(0)
            _enter(self.durable, change)
            if change.twin is not None:
                other, half = change.twin
                if half in other.pending:
                    other.sync(other.pending.index(half) + 1)

    def power_cut(self) -> None:
        self.entries = dict(self.durable)
        self.pending.clear()
        self.lost = False


def _enter(table: dict[str, Node], change: NameChange) -> None:
    if change.removed is not None:
        table.pop(change.removed, None)
    if change.added is not None and change.node is not None:
        table[change.added] = change.node


Node: TypeAlias = FileNode | DirectoryNode
