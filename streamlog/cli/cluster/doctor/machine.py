"""What may be wrong with this machine: its packages, limits and disks, as findings like those of a cluster's health."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from streamlog.daemon.file_limit import FILES_WANTED
from streamlog.monitor import HealthFinding, Severity
from streamlog.records.checks import kernel

FREE_MIN: Final = 0.1
"""Minimum share of free bytes of a directory's file system."""
SYNC_SLOW_S: Final = 0.02
"""A sync of 4 KiB that takes longer delays each acknowledgement: disks with a write-back cache that survives a power
loss take a hundredth, a spinning disk half."""
_SYNCS: Final = 20
_SYNC_BYTES: Final = 4096


def machine_findings(directories: Iterable[Path]) -> list[HealthFinding]:
    """`directories`: log directories, which exist or are to be made."""
    found = [*package_findings(requires("streamlog") or (), installed_version), *kernel_findings(), *limit_findings()]
    for directory in directories:
        found += directory_findings(directory)
    return found


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def package_findings(requirements: Iterable[str], version_of: Callable[[str], str | None]) -> Iterator[HealthFinding]:
    """The requirements of the package itself, without extras."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = version_of(requirement.name)
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            wanted = f"{requirement.name}{requirement.specifier}"
            have = "not installed" if found is None else f"version {found}"
            yield HealthFinding(
                severity=Severity.CRITICAL,
                subject=f"package {requirement.name}",
                problem=f"Package {requirement.name} is {have}; streamlog needs {wanted}.",
                cause="Another program's requirements replaced it, or it was installed without its dependencies.",
                remedy=f"Install it: pip install '{wanted}', or give streamlog a virtual environment of its own.",
            )


def kernel_findings() -> Iterator[HealthFinding]:
    if kernel.valid_times is None:
        yield HealthFinding(
            severity=Severity.WARNING,
            subject="streamlog-kernel",
            problem="The optional C code (streamlog-kernel) is not used: checking, reading and syncing takes more CPU.",
            cause="The package is not installed, or is of another release.",
            remedy="Install it for a busy node or consumer: pip install ./kernel of the source, or make kernel.",
        )


def limit_findings() -> Iterator[HealthFinding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_WANTED:
        yield HealthFinding(
            severity=Severity.WARNING,
            subject="open files",
            problem=f"A process may open {hard} files; {FILES_WANTED} are recommended for a node.",
            cause="A segment of a log has four open files, a connection one.",
            remedy=f"Raise the hard limit: LimitNOFILE of the service, or ulimit -Hn {FILES_WANTED} before the start.",
        )


def directory_findings(directory: Path) -> Iterator[HealthFinding]:
    """Its file system: can be written, has space, syncs fast enough. A file is written in it, and removed."""
    place = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    subject = f"directory {directory}"
    try:
        sync_s = sync_time_s(place)
        usage = shutil.disk_usage(place)
    except OSError as error:
        yield HealthFinding(
            severity=Severity.CRITICAL,
            subject=subject,
            problem=f"{place} cannot be written: {error.strerror}.",
            cause="The user of this command has no right to it, it is read-only or no directory, or its disk is full.",
            remedy="Make the directory writable for the node's user, or set another one in log.dirs.",
        )
        return
    if usage.free < FREE_MIN * usage.total:
        yield HealthFinding(
            severity=Severity.WARNING,
            subject=subject,
            problem=f"{usage.free / usage.total:.1%} of the disk of {place} is free.",
            cause="Records, or other programs, fill the disk; a full disk takes the log directory offline.",
            remedy="Make space, keep less (retention.bytes, retention.ms), or use a larger disk.",
        )
    if sync_s > SYNC_SLOW_S:
        yield HealthFinding(
            severity=Severity.WARNING,
            subject=subject,
            problem=f"A sync of {_SYNC_BYTES} bytes to the disk of {place} takes {sync_s * 1000:,.0f} ms (median of "
            f"{_SYNCS}).",
            cause="The disk is busy, or of a slow kind; each acknowledged write waits for such a sync.",
            remedy="Use a local SSD for log.dirs and metadata.log.dir, and check what else writes to it.",
        )


def sync_time_s(directory: Path) -> float:
    """Median. OSError."""
    times = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".streamlog-doctor-") as file:
        for _ in range(_SYNCS):
            file.write(bytes(_SYNC_BYTES))
            file.flush()
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    return statistics.median(times)
