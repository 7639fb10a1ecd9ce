"""SimDisk: one machine's disk under a page cache. It outlives the processes that use it through SimFileSystem.

The tree of names hangs on `root`; what of names and bytes is durable is each node's own affair (inode.py). This class
owns the tree, the blocks (capacity, out of space), the faults that a test or a nemesis turns on, and the power cut.
Randomness comes from one stream of its own, so leaving a fault of another part out does not change its dice.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Protocol

from msgspec import Struct

from streamlog.sim.files.image import PAGE
from streamlog.sim.files.inode import DirectoryNode, FileNode, NameChange, Node, pages_of

NAME_MAX: Final = 255
SYNC_S: Final = (2e-4, 4e-3)
"""Seconds that a sync takes on a healthy disk: an NVMe drive with a journalling file system."""
_SYNC_MIN_S, _SYNC_RANGE_S = SYNC_S[0], SYNC_S[1] - SYNC_S[0]


class DiskFaults(Struct, kw_only=True):
    """Faults that can be enabled. By default the disk is healthy."""

    capacity_bytes: int = 1 << 40
    free_descriptors: int = 1 << 20  # what `SimFileSystem.free_descriptors` returns; opens do not consume them
    sync_errors: int = 0  # this many of the next syncs raise EIO and lose their data
    read_errors: int = 0  # this many of the next reads raise EIO
    write_errors: int = 0  # this many of the next writes raise EIO after a prefix
    slow: float = 1.0  # factor on the duration of syncs and awaited reads
    cold: float = 0.1  # share of try_pread that finds its pages out of the cache


class Lock(Protocol):
    def held(self) -> bool: ...


class DiskStats(Struct, kw_only=True):
    """How often random faults have occurred: a test of many seeds checks that it tested anything."""

    syncs: int = 0
    power_cuts: int = 0
    torn_files: int = 0
    lost_names: int = 0


class SimDisk:
    def __init__(self, rng: random.Random, *, faults: DiskFaults | None = None) -> None:
        self.rng = rng
        self.faults = faults or DiskFaults()
        self.stats = DiskStats()
        self.root = DirectoryNode(number=0)
        self._dirty_files: dict[int, FileNode] = {}  # by number, in the order in which they became dirty
        self._dirty_directories: dict[int, DirectoryNode] = {}
        self.locks: dict[str, Lock] = {}  # by path; the lock of a dead process is free
        self._used_pages = 0
        self._inodes = 0

    # Names.

    def find(self, path: str) -> Node:
        """FileNotFoundError, NotADirectoryError."""
        return self._walk(split(path), path)

    def _walk(self, names: Sequence[str], path: str) -> Node:
        node: Node = self.root
        for name in names:
            if not isinstance(node, DirectoryNode):
                raise os_error(errno.ENOTDIR, path)
            found = node.entries.get(name)
            if found is None:
                raise os_error(errno.ENOENT, path)
            node = found
        return node

    def directory(self, path: str) -> DirectoryNode:
        node = self.find(path)
        if not isinstance(node, DirectoryNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[DirectoryNode, str]:
        """The directory of `path`, which must exist, and the last name, which need not."""
        parts = split(path)
        if not parts:
            raise os_error(errno.EBUSY, path)
        if len(parts[-1].encode()) > NAME_MAX:
            raise os_error(errno.ENAMETOOLONG, path)
        above = "/" + "/".join(parts[:-1])
        node = self._walk(parts[:-1], above)
        if not isinstance(node, DirectoryNode):
            raise os_error(errno.ENOTDIR, above)
        return node, parts[-1]

    def _change(self, directory: DirectoryNode, change: NameChange) -> None:
        directory.change(change)
        self._dirty_directories[directory.number] = directory

    def make_file(self, path: str) -> None:
        self._inodes += 1
        node = FileNode(self._inodes)
        node.links = 1
        self._add(path, node)

    def make_directory(self, path: str) -> None:
        self._inodes += 1
        self._add(path, DirectoryNode(number=self._inodes))

    def _add(self, path: str, node: Node) -> None:
        directory, name = self.parent(path)
        self._change(directory, NameChange(added=name, node=node))

    def remove(self, path: str) -> None:
        directory, name = self.parent(path)
        self._release(directory.entries[name])
        self._change(directory, NameChange(removed=name))

    def move(self, source: str, target: str) -> None:
        """rename(2), its refusals included."""
        node = self.find(source)
        (from_directory, old), (to_directory, new) = self.parent(source), self.parent(target)
        replaced = to_directory.entries.get(new)
        if replaced is node:
            return
        self._check_move(node, source, replaced, target)
        if replaced is not None:
            self._release(replaced)
        if from_directory is to_directory:
            self._change(to_directory, NameChange(removed=old, added=new, node=node))
            return
        gone, come = NameChange(removed=old), NameChange(added=new, node=node)
        gone.twin, come.twin = (to_directory, come), (from_directory, gone)
        self._change(to_directory, come)
        self._change(from_directory, gone)

    @staticmethod
    def _check_move(node: Node, source: str, replaced: Node | None, target: str) -> None:
        if isinstance(node, DirectoryNode):
            if split(target)[: len(split(source))] == split(source):
                raise os_error(errno.EINVAL, target)
            if isinstance(replaced, FileNode):
                raise os_error(errno.ENOTDIR, target)
            if replaced is not None and replaced.entries:
                raise os_error(errno.ENOTEMPTY, target)
        elif isinstance(replaced, DirectoryNode):
            raise os_error(errno.EISDIR, target)

    # Blocks.

    def used_bytes(self) -> int:
        return self._used_pages * PAGE

    def free_bytes(self) -> int:
        return max(0, self.faults.capacity_bytes - self.used_bytes())

    def _charge(self, node: FileNode, pages: int) -> None:
        """`node` uses this many more pages. Unlinked files are not counted."""
        if node.links:
            self._used_pages += pages

    def _release(self, node: Node) -> None:
        if isinstance(node, FileNode):
            self._charge(node, -node.pages())
            node.links -= 1

    # Data.

    def write(self, node: FileNode, data: bytes, offset: int) -> None:
        """All of it, or OSError after a prefix that the seed chooses."""
        fresh = node.new_pages(len(data), offset)
        room = self.free_bytes() // PAGE
        if len(fresh) > room:
            fits = max(0, fresh[room] * PAGE - offset)
            self._write_prefix(node, data[:fits], offset)
            raise os_error(errno.ENOSPC, "write")
        if self.faults.write_errors:
            self.faults.write_errors -= 1
            self._write_prefix(node, data, offset)
            raise os_error(errno.EIO, "write")
        if data:
            self._write_whole(node, data, offset, len(fresh))

    def _write_prefix(self, node: FileNode, data: bytes, offset: int) -> None:
        prefix = data[: self.rng.randint(0, len(data))]
        if prefix:
            self._write_whole(node, prefix, offset, len(node.new_pages(len(prefix), offset)))

    def _write_whole(self, node: FileNode, data: bytes, offset: int, fresh_pages: int) -> None:
        node.write(data, offset)
        self._charge(node, fresh_pages)
        self._soil(node)

    def resize(self, node: FileNode, size: int) -> None:
        if size < 0:
            raise os_error(errno.EINVAL, "truncate")
        before = node.pages() if size < node.cache.size or node.reserved_pages else 0
        node.resize(size)
        if before:
            self._charge(node, node.pages() - before)
        self._soil(node)

    def allocate(self, node: FileNode, size: int, *, keep_size: bool) -> None:
        if size <= 0:
            raise os_error(errno.EINVAL, "fallocate")
        before, wanted = node.pages(), pages_of(size)
        taken = sum(number < wanted and number >= node.reserved_pages for number in node.cache.pages)
        missing = max(0, wanted - node.reserved_pages) - taken
        if missing * PAGE > self.free_bytes():
            raise os_error(errno.ENOSPC, "fallocate")
        node.reserved_pages = max(node.reserved_pages, wanted)
        self._charge(node, node.pages() - before)
        if not keep_size and size > node.cache.size:
            node.resize(size)
            self._soil(node)

    def _soil(self, node: FileNode) -> None:
        self._dirty_files[node.number] = node

    def check_readable(self) -> None:
        if self.faults.read_errors:
            self.faults.read_errors -= 1
            raise os_error(errno.EIO, "read")

    # Syncs: their effect when they end.

    def sync_s(self) -> float:
        """Duration of the next sync, in virtual seconds."""
        return (_SYNC_MIN_S + _SYNC_RANGE_S * self.rng.random()) * self.faults.slow  # as Random.uniform

    def sync_file(self, node: FileNode, upto: int) -> None:
        """Make the changes numbered up to `upto` durable. OSError(EIO): they are lost."""
        fails = self._sync_fails()
        self._settle_file(node, upto, fails=fails)
        if fails:
            raise os_error(errno.EIO, "sync")

    def sync_directory(self, node: DirectoryNode, last: NameChange | None) -> None:
        """Make the changes up to `last` durable. OSError(EIO): later changes of this directory are never durable."""
        fails = self._sync_fails()
        self._settle_directory(node, last, fails=fails)
        if fails:
            raise os_error(errno.EIO, "sync")

    def unsynced(self) -> tuple[list[tuple[FileNode, int]], list[tuple[DirectoryNode, NameChange]]]:
        """The argument of `sync_everything` that covers all changes so far."""
        files = [(node, node.changes) for node in self._dirty_files.values()]
        return files, [(node, node.pending[-1]) for node in self._dirty_directories.values() if node.pending]

    def sync_everything(self, files: list[tuple[FileNode, int]], names: list[tuple[DirectoryNode, NameChange]]) -> None:
        fails = self._sync_fails()
        for file, upto in files:
            self._settle_file(file, upto, fails=fails)
        for directory, last in names:
            self._settle_directory(directory, last, fails=fails)
        if fails:
            raise os_error(errno.EIO, "sync")

    def _sync_fails(self) -> bool:
        self.stats.syncs += 1
        if self.faults.sync_errors:
            self.faults.sync_errors -= 1
            return True
        return False

    def _settle_file(self, node: FileNode, upto: int, *, fails: bool) -> None:
        node.sync(upto, fails=fails)
        if not node.pending and not node.lost:
            self._dirty_files.pop(node.number, None)

    def _settle_directory(self, node: DirectoryNode, last: NameChange | None, *, fails: bool) -> None:
        node.lost |= fails
        if last in node.pending:
            node.sync(node.pending.index(last) + 1)
        if not node.pending:
            self._dirty_directories.pop(node.number, None)

    # Faults.

    def power_cut(self) -> None:
        """Keep what is durable and a random part of the rest. The processes must be dead."""
        self.stats.power_cuts += 1
        for directory in list(self._dirty_directories.values()):
            kept = self.rng.randint(0, len(directory.pending))
            self.stats.lost_names += len(directory.pending) - kept
            directory.sync(kept)
        self._dirty_directories.clear()
        self._dirty_files.clear()
        self.locks.clear()
        self._used_pages = 0
        for node in walk_durable(self.root):
            if isinstance(node, DirectoryNode):
                node.power_cut()
            else:
                self.stats.torn_files += node.power_cut(self.rng)
                node.links = 1
                self._used_pages += node.pages()

    def replace(self) -> None:
        """Replace the disk by an empty one. The processes must be dead."""
        self.root = DirectoryNode(number=0)
        self._dirty_files.clear()
        self._dirty_directories.clear()
        self.locks.clear()
        self._used_pages = self._inodes = 0

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes in the cache and on the platter, unnoticed: bit rot, a stray write."""
        node = self.find(path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        node.cache.write(data, offset)
        node.platter.write(data, offset)
        for window in node.windows:
            window.update(data, offset)


def walk_durable(root: DirectoryNode) -> Iterator[Node]:
    """Every node with a durable path, directories before their content, by name."""
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, DirectoryNode):
            pending.extend(node.durable[name] for name in sorted(node.durable, reverse=True))


@lru_cache(4096)
def split(path: str) -> tuple[str, ...]:
    """The names of an absolute path. ValueError for any other: paths come from node code, not from clients."""
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return tuple(name for name in path.split("/") if name not in ("", "."))


def os_error(number: int, path: str) -> OSError:
    """As of the kernel: the class follows from the number."""
    return OSError(number, os.strerror(number), path)
