"""What the processes of the nodes use, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

from bench.cluster import Cluster, resident_bytes


def memory_mb(cluster: Cluster) -> float:
    """Of the largest node."""
    return max(resident_bytes(pid) for pid in cluster.pids().values()) / 1e6


def descriptors(cluster: Cluster) -> int:
    """Of the node with most."""
    return max(len(os.listdir(f"/proc/{pid}/fd")) for pid in cluster.pids().values())


def read_mb(cluster: Cluster) -> float:
    """What all nodes have read from the disk itself; what was in the page cache is not counted."""
    return sum(_read_bytes(pid) for pid in cluster.pids().values()) / 1e6


def _read_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    raise RuntimeError(f"/proc/{pid}/io has no read_bytes")


def log_files(cluster: Cluster, topic: str) -> list[Path]:
    """The segments of all replicas."""
    nodes = cluster.local.nodes
    return [file for node in nodes for file in (node.folder / "data").glob(f"{topic}-*/*.log")]


def drop_from_cache(files: list[Path]) -> None:
    """Out of the page cache: the next read is from the disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
