"""Retention, compaction and scrubbing of one log directory, by the node's configuration. The work is storage's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.config.settings import log_settings
from streamlog.errors import StorageError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.model import Offset
from streamlog.ports import Ports
from streamlog.storage.cleaning.cleaner import Cleaner
from streamlog.storage.cleaning.maintenance import Maintenance, MaintenanceConfig
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.integrity.scrubber import Scrubber
from streamlog.storage.log.log import Log


async def upkeep_of(
    directory: LogDirectory,
    configs: NodeConfigs,
    ports: Ports,
    bound_of: Callable[[Log], Offset],
    on_deleted: Callable[[Log], None],
    may_delete_by_time: Callable[[], bool],
) -> None:
    """Runs until the directory goes offline; the directory reports that to its owner."""
    config = configs.node
    cleaner = Cleaner(
        ports.fs,
        directory,
        ports.clock,
        ports.workers,
        ports.probe,
        dedupe_buffer_bytes=config[log_settings.LOG_CLEANER_DEDUPE_BUFFER_SIZE],
    )
    intervals = MaintenanceConfig(
        retention_check_interval_ms=config[log_settings.LOG_RETENTION_CHECK_INTERVAL_MS],
        cleaner_backoff_ms=config[log_settings.LOG_CLEANER_BACKOFF_MS],
    )
    maintenance = Maintenance(
        directory,
        cleaner,
        ports.clock,
        bound_of,
        intervals,
        on_deleted=on_deleted,
        may_delete_by_time=may_delete_by_time,
    )
    scrubber = Scrubber(
        ports.fs,
        directory,
        ports.clock,
        interval_ms=lambda: configs.node[log_settings.LOG_SCRUB_INTERVAL_MS],
        bytes_per_second=lambda: configs.node[log_settings.LOG_SCRUB_MAX_BYTES_PER_SECOND],
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(maintenance.run())
            tasks.create_task(scrubber.run())
    except* StorageError:
        pass  # `LogDirectories.run` reports it
