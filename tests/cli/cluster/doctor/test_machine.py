"""What `streamlogctl doctor` finds wrong with a machine."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections import namedtuple
from importlib.metadata import requires
from pathlib import Path

import pytest

from streamlog.cli.cluster.doctor import machine
from streamlog.cli.cluster.doctor.machine import (
    directory_findings,
    installed_version,
    kernel_findings,
    limit_findings,
    package_findings,
)
from streamlog.monitor import Severity
from streamlog.records.checks import kernel

Usage = namedtuple("Usage", "total used free")


def test_the_installed_packages_are_those_that_are_needed() -> None:
    assert list(package_findings(requires("streamlog") or (), installed_version)) == []
    assert installed_version("no-such-package") is None


def test_packages_that_are_missing_or_too_old_are_named() -> None:
    versions = {"old": "1.9", "new": "2.0", "before": "2.0rc1"}
    needed = ["old>=2", "new>=2", "before>=1", "missing==3.1", "other>=1; python_version < '3'", "extra; extra == 'x'"]
    found = [(one.severity, one.problem) for one in package_findings(needed, versions.get)]
    assert found == [
        (Severity.CRITICAL, "Package old is version 1.9; streamlog needs old>=2."),
        (Severity.CRITICAL, "Package missing is not installed; streamlog needs missing==3.1."),
    ]


def test_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "valid_times", None)
    (one,) = kernel_findings()
    assert one.severity is Severity.WARNING
    monkeypatch.setattr(kernel, "valid_times", lambda *_: None)
    assert list(kernel_findings()) == []


def test_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def problems(hard: int) -> list[str]:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, hard))
        return [one.problem for one in limit_findings()]

    assert problems(4096) == ["A process may open 4096 files; 65536 are recommended for a node."]
    assert problems(65_536) == problems(resource.RLIM_INFINITY) == []


def test_a_directory_that_is_to_be_made_is_judged_by_the_one_that_it_will_be_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "sync_time_s", lambda _: 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 95, 5))
    (one,) = directory_findings(tmp_path / "data" / "1")
    assert one.problem == f"5.0% of the disk of {tmp_path} is free."


def test_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 5, 95))
    monkeypatch.setattr(machine, "sync_time_s", lambda _: 0.0351)
    (one,) = directory_findings(tmp_path)
    assert one.problem == f"A sync of 4096 bytes to the disk of {tmp_path} takes 35 ms (median of 20)."


def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    (one,) = directory_findings(file)
    assert (one.severity, one.problem) == (Severity.CRITICAL, f"{file} cannot be written: Not a directory.")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", full)
    (one,) = directory_findings(tmp_path)
    assert one.problem == f"{tmp_path} cannot be written: No space left on device."
    assert os.listdir(tmp_path) == ["file"]
