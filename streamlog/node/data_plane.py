"""The logs of a node and what serves them, as one part of it."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from streamlog.api.service import Service
from streamlog.model import BrokerEpoch
from streamlog.storage.directories import LogDirectories


class DataPlane:
    def __init__(self, directories: LogDirectories) -> None:
        self._directories = directories

    async def open(self) -> None:
        """Open, and recover, the logs."""

    @property
    def clean_epoch(self) -> BrokerEpoch | None:
        return self._directories.clean_epoch

    async def run(self) -> None:
        """Until it is cancelled, or the last log directory has failed: StorageError."""

    def services(self) -> Sequence[Service]:
        return []

    async def close(self, broker_epoch: BrokerEpoch | None) -> None:
        await self._directories.close(broker_epoch)


def directory_ids(directories: LogDirectories) -> tuple[bytes, ...]:
    """As the metadata has them: 16 bytes each, ascending."""
    texts = [directory.meta.directory_id for directory in directories]
    return tuple(sorted(base64.urlsafe_b64decode(f"{text}==") for text in texts))
