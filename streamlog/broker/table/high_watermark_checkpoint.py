"""`replication-offset-checkpoint`: recent high watermarks. Kafka's file, one a log directory.

A replica starts from this value after a restart. An old value is safe: the replica only waits until it receives the
current one. The value of another log under the same name is not safe: so a partition is removed from the file before
its log is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from streamlog.errors import DamagedFileError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import FileSystem, Probe
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.files import names
from streamlog.storage.files.checkpoints import format_offsets, read_offsets
from streamlog.storage.files.replace_file import replace_file


class HighWatermarks:
    """Owned by `Replicas`. `of(directory)`: its current high watermarks, called when the file is written."""

    def __init__(
        self,
        fs: FileSystem,
        directories: LogDirectories,
        probe: Probe,
        of: Callable[[LogDirectory], Mapping[TopicPartition, Offset]],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._probe = probe
        self._of = of
        self._written: dict[str, dict[TopicPartition, Offset]] = {}  # by directory, as on disk
        self._writing = asyncio.Lock()

    def read(self) -> dict[TopicPartition, Offset]:
        """Of all online directories. A damaged file counts as empty."""
        found: dict[TopicPartition, Offset] = {}
        for directory in self._directories.online:
            try:
                offsets = read_offsets(self._fs, _path(directory))
            except DamagedFileError as e:
                self._probe("checkpoint_ignored", path=e.path, position=e.position, reason=e.reason)
                continue
            self._written[directory.path] = offsets
            found.update(offsets)
        return found

    async def write(self) -> None:
        """The files of all directories with changes. A directory that fails goes offline, the others go on."""
        async with self._writing:
            await self._write()

    async def _write(self) -> None:
        for directory in self._directories.online:
            offsets = dict(self._of(directory))
            if directory.failure is not None or self._written.get(directory.path) == offsets:
                continue
            try:
                await replace_file(self._fs, _path(directory), format_offsets(offsets))
            except OSError as e:
                directory.fail(e)
                continue
            self._written[directory.path] = offsets

    async def forget(self, partition: TopicPartition) -> None:
        """Durably, before the partition's log is removed. `of` must not return the partition any more. One write is for
        all whose removal began before it.
        """
        async with self._writing:
            if any(partition in offsets for offsets in self._written.values()):
                await self._write()


def _path(directory: LogDirectory) -> str:
    return names.join(directory.path, names.HIGH_WATERMARKS)
