"""Damage on the node's disks: how far the scrubber has read, what was found, what was repaired."""

from __future__ import annotations

from streamlog.broker.table.replicas import Replicas
from streamlog.metrics.families import Family, Sample, counter, gauge, single
from streamlog.storage.directories.directories import LogDirectories


def integrity_families(directories: LogDirectories, replicas: Replicas) -> list[Family]:
    own = ("log_dir",)
    rounds = [((one.path,), one.scrub) for one in directories if one.scrub.started_ms >= 0]
    damaged: list[Sample] = [
        (
            (directory.path,),
            sum(len(found.damages) for log in directory.logs.values() for found in log.damaged_segments.values()),
        )
        for directory in directories
    ]
    return [
        gauge(
            "streamlog_scrub_read_bytes",
            "Bytes that the current round of the scrubber has read, or the last one.",
            [(label, one.read_bytes) for label, one in rounds],
            own,
        ),
        gauge(
            "streamlog_scrub_total_bytes",
            "Bytes that the round has to read: the size of all logs when it started.",
            [(label, one.total_bytes) for label, one in rounds],
            own,
        ),
        gauge(
            "streamlog_scrub_started_timestamp_seconds",
            "When the current or last round started; missing before the first one.",
            [(label, one.started_ms / 1000) for label, one in rounds],
            own,
        ),
        gauge(
            "streamlog_scrub_ended_timestamp_seconds",
            "When the last round ended; missing while one is running.",
            [(label, one.ended_ms / 1000) for label, one in rounds if one.ended_ms >= 0],
            own,
        ),
        gauge(
            "streamlog_damaged_ranges",
            "Ranges of logs that are known to be damaged, and not repaired.",
            damaged,
            own,
        ),
        counter(
            "streamlog_damaged_ranges_found_total",
            "Damaged ranges that reads, scrubber and operators have found.",
            [((directory.path,), directory.found_ranges) for directory in directories],
            own,
        ),
        counter(
            "streamlog_damaged_ranges_repaired_total",
            "Damaged ranges that were repaired from another replica.",
            single(replicas.repairs.repaired_ranges),
        ),
    ]
