"""The file of the audit log: lines, rotation, what is lost."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import msgspec
import pytest

from streamlog.config import load_node
from streamlog.daemon.logs import audit_file
from streamlog.daemon.logs.audit_file import AuditFile, open_audit
from streamlog.daemon.logs.log_file import LogFile
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.errors import InvalidConfigError
from streamlog.ports import AuditEvent, AuditResource


def event(name: str = "t") -> AuditEvent:
    return AuditEvent(
        time="2026-01-01T00:00:00.000Z",
        node=1,
        principal="User:alice",
        address="::1",
        method="streamlog.v1.Admin/CreateTopics",
        resources=(AuditResource("topic", name),),
        result="allowed",
    )


def opened(path: Path, *more: str) -> AuditFile:
    config = load_node(overrides=["node.id=1", f"audit.log.file={path}", *more]).config
    found = open_audit(config, LogLines(1, io.StringIO()))
    assert found is not None
    return found


@pytest.mark.parametrize("given", [(), ("audit.log.file=", "audit.log.topic=")])
def test_without_a_value_there_is_none(given: tuple[str, ...]) -> None:
    assert open_audit(load_node(overrides=["node.id=1", *given]).config, LogLines(1, io.StringIO())) is None


def test_an_event_is_a_line_of_json_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = opened(path)
    audit.write(event())
    audit.write(event("line\nend\u202e"))
    audit.close()
    lines = path.read_text().splitlines()
    assert [msgspec.json.decode(line, type=AuditEvent) for line in lines] == [event(), event("line\nend\u202e")]
    assert path.read_text().isascii(), "no control character reaches a terminal"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (audit.written, audit.dropped) == (2, 0)


def test_files_are_rotated_and_the_oldest_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = opened(path, "audit.log.max.bytes=1000", "audit.log.count=3")
    for number in range(50):
        audit.write(event(f"topic-{number}"))
    audit.close()
    files = sorted(os.listdir(tmp_path))
    assert files == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all((tmp_path / name).stat().st_size <= 1000 for name in files)
    assert "topic-49" in path.read_text()


def test_a_full_queue_drops_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "QUEUE_MAX", 0)
    audit = opened(tmp_path / "audit.log")
    audit.write(event())
    audit.close()
    assert (audit.written, audit.dropped) == (0, 1)


def test_a_disk_that_refuses_is_counted_and_reported_once(tmp_path: Path) -> None:
    log = io.StringIO()

    class Full(LogFile):
        def write(self, text: str) -> None:
            raise OSError(28, "No space left on device")

    audit = AuditFile(Full(tmp_path / "audit.log", max_bytes=0, kept=0), "audit.log", LogLines(1, log))
    audit.write(event())
    audit.write(event())
    audit.close()
    assert (audit.written, audit.dropped) == (0, 2)
    assert log.getvalue().count("No space left on device") == 1


def test_a_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"audit.log.file=.*cannot be written \(No such file or directory\)"):
        opened(tmp_path / "missing" / "audit.log")
