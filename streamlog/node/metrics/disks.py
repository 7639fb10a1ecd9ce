"""Log directories: space, whether they work, and how long their syncs take."""

from __future__ import annotations

from streamlog.metrics.families import Family, Sample, counter, gauge, histogram
from streamlog.ports import FileSystem
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory


def disk_families(fs: FileSystem, directories: LogDirectories) -> list[Family]:
    online: list[Sample] = []
    total: list[Sample] = []
    free: list[Sample] = []
    for directory in directories:
        label = (directory.path,)
        works = directory.failure is None
        online.append((label, int(works)))
        space = _space(fs, directory) if works else None
        if space is not None:
            total.append((label, space[0]))
            free.append((label, space[1]))
    known = {directory.path for directory in directories}
    online += [((path,), 0) for path in directories.offline if path not in known]
    own = ("log_dir",)
    commits = [((directory.path,), directory.group_commit) for directory in directories]
    return [
        gauge("streamlog_log_dir_online", "1 while the log directory works, 0 after its disk failed.", online, own),
        gauge("streamlog_log_dir_total_bytes", "Size of the directory's file system.", total, own),
        gauge(
            "streamlog_log_dir_free_bytes",
            "Free bytes of the directory's file system that the node may use.",
            free,
            own,
        ),
        counter(
            "streamlog_log_syncs_total",
            "Group commits: each covers everything that was written before it began.",
            [(label, commit.syncs) for label, commit in commits],
            own,
        ),
        histogram(
            "streamlog_log_sync_duration_seconds",
            "How long a group commit took.",
            [(label, commit.latency_s) for label, commit in commits],
            own,
        ),
        histogram(
            "streamlog_log_sync_logs",
            "Logs that one group commit covered.",
            [(label, commit.logs_at_once) for label, commit in commits],
            own,
        ),
    ]


def _space(fs: FileSystem, directory: LogDirectory) -> tuple[int, int] | None:
    """Total and free bytes; None on an error. A scrape takes no directory offline."""
    try:
        return fs.total_bytes(directory.path), fs.free_bytes(directory.path)
    except OSError:
        return None
