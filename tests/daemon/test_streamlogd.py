"""streamlogd as a user meets it: arguments, refusals in one sentence, signals, the background."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from streamlog.config import PropertiesFile, load_node
from streamlog.daemon.arguments import parse_arguments
from streamlog.daemon.background import DaemonFiles, StartReport
from streamlog.daemon.free_ports import free_ports
from streamlog.daemon.logs.log_lines import VALUE_LENGTH_MAX, LogLines
from streamlog.daemon.main import (
    INTERNAL_ERROR,
    STOPPED,
    TRACEBACK_LINES_MAX,
    USAGE_ERROR,
    _exit,
    _traceback_tail,
    load,
    main,
)
from streamlog.ports.log_levels import LogLevel, LogLevels
from streamlog.release import RELEASE


def write_properties(directory: Path, *lines: str) -> str:
    path = directory / "server.properties"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


class TestArguments:
    def test_kafkas_way_of_asking(self) -> None:
        found = parse_arguments(["-daemon", "a.properties", "--override", "node.id=1", "--override", "broker.rack=r"])
        assert found.daemon
        assert found.properties == "a.properties"
        assert found.overrides == ("node.id=1", "broker.rack=r")
        assert parse_arguments(["--daemon", "a.properties"]).daemon

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            parse_arguments(["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"streamlogd {RELEASE}\n"

    def test_what_is_not_understood(self) -> None:
        with pytest.raises(SystemExit) as ended:
            parse_arguments(["--overide", "node.id=1"])
        assert ended.value.code == USAGE_ERROR

    def test_directories_become_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        config = load(parse_arguments(["--override", "node.id=1", "--override", "log.dirs=a,/b"]))
        assert config.given["log.dirs"] == f"{tmp_path}/a,/b"
        config = load(parse_arguments(["--override", "node.id=1", "--override", "metadata.log.dir=m"]))
        assert config.given["metadata.log.dir"] == f"{tmp_path}/m"
        assert config.given["log.dirs"] == f"{tmp_path}/streamlog-data"


class TestRefusals:
    def test_settings(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write_properties(tmp_path, "node.id=x", "log.segment.bytes=-1")
        assert main([path]) == USAGE_ERROR
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2
        assert all(line.startswith(f"streamlogd: {path}:") for line in lines)

    def test_a_file_that_is_not_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(tmp_path / "no.properties")]) == USAGE_ERROR
        assert capsys.readouterr().err == f"streamlogd: {tmp_path}/no.properties: No such file or directory\n"

    def test_protection_that_is_not_there_is_not_passed_over(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([write_properties(tmp_path, "node.id=1", "ssl.client.auth=requested")]) == USAGE_ERROR
        assert "ssl.client.auth=requested is not supported" in capsys.readouterr().err

    def test_access_control_needs_tls(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write_properties(tmp_path, "node.id=1", "authorizer.class.name=StandardAuthorizer")
        assert main([path]) == USAGE_ERROR
        found = capsys.readouterr().err
        assert "authorizer.class.name" in found
        assert "listeners must be SSL://" in found

    def test_keys_and_certificates_are_checked_before_the_start(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write_properties(
            tmp_path,
            "node.id=1",
            "listeners=SSL://127.0.0.1:9092",
            "ssl.keystore.location=/no/k.pem",
            "ssl.truststore.location=/no/t.pem",
        )
        assert main([path]) == USAGE_ERROR
        assert "ssl.keystore.location=/no/k.pem: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed(tmp_path: Path, closed: str) -> None:
    path = write_properties(tmp_path, "node.id=7", f"log.dirs={tmp_path}/data")
    command = [sys.executable, "-m", "streamlog.daemon.main", "--print-config", path]
    assert subprocess.run(["bash", "-c", f'"$@" {closed}', "bash", *command], check=False, timeout=60).returncode == 0


def test_print_config_can_be_loaded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_properties(tmp_path, "node.id=7", f"log.dirs={tmp_path}/data", "num.partitions=3")
    assert main(["--print-config", path]) == STOPPED
    printed = capsys.readouterr().out
    again = load_node(PropertiesFile("printed", printed))
    assert again.config.table.get("num.partitions") is not None
    assert again.given["num.partitions"] == "3"
    assert again.given["node.id"] == "7"


def test_lines_are_sentences_of_a_bounded_length(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w+") as out:
        lines = LogLines(3, out)
        lines("registered", broker=3, epoch=17)
        lines("fenced", broker=3, epoch=17)
        lines("follower_connected", follower=4, broker_epoch=9)
        lines("heartbeat_unanswered", reason="x\n" * VALUE_LENGTH_MAX)
        out.seek(0)
        written = [line.rstrip("\n")[24:] for line in out]
    assert written[:3] == [
        "INFO  node 3: registered with broker epoch 17",
        "WARN  node 3: is fenced, epoch 17",
        "INFO  node 3: follower 4 is connected, epoch 9",
    ]
    assert len(written) == 4
    assert len(written[3]) < VALUE_LENGTH_MAX + 120


def test_notices_of_each_partition_and_client_are_logged_at_debug() -> None:
    out, levels = io.StringIO(), LogLevels()
    lines = LogLines(3, out, levels=levels)

    def notices() -> None:
        lines.event("leading", {"partition": "t-0", "leader_epoch": 2}, module="streamlog.broker.table.replica")
        lines.event(
            "following", {"partition": "t-1", "leader": 4, "leader_epoch": 2}, module="streamlog.broker.table.replica"
        )
        lines.event("coordinator_loaded", {"partition": "t-2"}, module="streamlog.coordinator.shard_log")
        lines.event("client", {"peer": "p", "version": "1"}, module="streamlog.services.admin.cluster")

    notices()
    assert out.getvalue() == ""
    levels.alter({"streamlog.broker": LogLevel.DEBUG})
    notices()
    written = [line[24:] for line in out.getvalue().splitlines()]
    assert written == [
        "DEBUG node 3: leads t-0, leader epoch 2",
        "DEBUG node 3: follows node 4 for t-1, leader epoch 2",
    ]


# Real processes.


def free_port() -> int:
    [port] = free_ports(1)
    return port


def one_node(directory: Path, port: int, data: str = "data") -> str:
    return write_properties(
        directory, "node.id=1", f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={directory / data}"
    )


@contextmanager
def streamlogd(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "streamlog.daemon.main", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_line(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"it ended without {words!r}: {''.join(seen)}")


@pytest.mark.process
def test_a_node_starts_refuses_a_twin_and_stops(tmp_path: Path) -> None:
    port = free_port()
    with streamlogd(one_node(tmp_path, port)) as node:
        assert f"127.0.0.1:{port}" in wait_for_line(node, "ready at")
        pid_file = tmp_path / "data" / "streamlogd-1.pid"
        assert pid_file.read_text() == f"{node.pid}\n"
        with streamlogd(one_node(tmp_path, free_port())) as twin:
            assert "is in use by another process" in wait_for_line(twin, "ERROR")
            assert twin.wait() == 1
        with streamlogd(one_node(tmp_path, port, data="other")) as twin:
            assert f"cannot listen on 127.0.0.1:{port}" in wait_for_line(twin, "ERROR")
            assert twin.wait() == 1
        assert pid_file.exists()
        node.send_signal(signal.SIGTERM)
        wait_for_line(node, "clean stop: True")
        assert node.wait() == STOPPED
        assert not pid_file.exists()


@pytest.mark.process
def test_a_node_in_the_background(tmp_path: Path) -> None:
    properties = one_node(tmp_path, free_port())
    command = [sys.executable, "-m", "streamlog.daemon.main", "-daemon", properties]
    started = subprocess.run(command, capture_output=True, text=True, check=False)
    pid = int((tmp_path / "data" / "streamlogd-1.pid").read_text())
    log = tmp_path / "data" / "streamlogd-1.log"
    assert (started.returncode, started.stdout) == (0, f"streamlogd: started, pid {pid}, log {log}\n")
    watched = os.pidfd_open(pid)
    try:
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        assert again.returncode == 1
        assert again.stderr.startswith("streamlogd: ")
        assert "is in use by another process" in again.stderr
    finally:
        os.kill(pid, signal.SIGTERM)
        poll = select.poll()  # select() takes no descriptor above 1,023
        poll.register(watched, select.POLLIN)
        ended = poll.poll(60_000)
        os.close(watched)
    assert ended
    assert not (tmp_path / "data" / "streamlogd-1.pid").exists()
    assert "node 1: stopped" in log.read_text()


def test_a_node_starts_although_the_process_that_waited_for_it_has_ended() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    report = StartReport(writing)
    report.send()
    report.send("stopped: disk full")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)


def test_why_a_start_failed_is_reported_whatever_it_quotes() -> None:
    reading, writing = os.pipe()
    StartReport(writing).send("/data/\udcff: no such directory")
    with open(reading, "rb") as opened:
        assert opened.read() == b"/data/?: no such directory"


class FailingOutput(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def flush(self) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class TestOnAFailedDisk:
    def test_it_leaves_though_the_pid_file_cannot_be_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left: list[int] = []

        def fails(path: Path, *_: object, **__: object) -> str:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        monkeypatch.setattr(Path, "read_text", fails)
        monkeypatch.setattr(os, "_exit", left.append)
        _exit(INTERNAL_ERROR, DaemonFiles(str(tmp_path / "data"), 1), sys.stderr)
        assert left == [INTERNAL_ERROR]

    def test_it_leaves_though_its_log_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        left: list[int] = []
        monkeypatch.setattr(os, "_exit", left.append)
        out = FailingOutput()
        lines = LogLines(1, out)
        lines("node_stopping")
        assert lines.lost_lines == 1
        with suppress(OSError):
            _exit(INTERNAL_ERROR, DaemonFiles(str(tmp_path / "data"), 1), out)
        assert left == [INTERNAL_ERROR]

    def test_a_traceback_is_bounded(self) -> None:
        error = ValueError("at the bottom")
        for number in range(50):
            above = ValueError(f"error {number}")
            above.__context__ = error
            error = above
        text = _traceback_tail(error)
        assert len(text.splitlines()) <= TRACEBACK_LINES_MAX + 1
        assert "lines before" in text


class TestSettingsThatAreNoFileOfSettings:
    """Refused in a sentence, and no more is read than a file of settings can have."""

    def refused(self, path: Path | str, capsys: pytest.CaptureFixture[str]) -> str:
        assert main([str(path)]) == USAGE_ERROR
        problem = capsys.readouterr().err
        assert problem.startswith(f"streamlogd: {path}")
        assert problem.count("\n") == 1
        return problem

    def test_an_endless_device(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "has more than 4194304 bytes" in self.refused("/dev/zero", capsys)

    def test_a_file_that_is_too_long(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "server.properties"
        path.touch()
        os.truncate(path, 10 << 30)
        assert "has more than 4194304 bytes" in self.refused(path, capsys)

    @pytest.mark.parametrize(("content", "why"), [(b"a=\xff", "byte 2 is not UTF-8"), (b"a=b\0", "byte 3 is NUL")])
    def test_no_text(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, why: str) -> None:
        path = tmp_path / "server.properties"
        path.write_bytes(content)
        assert f"is not a text file: {why}" in self.refused(path, capsys)

    def test_a_directory(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "Is a directory" in self.refused(tmp_path, capsys)

    def test_a_fifo_of_a_shell_is_read(self, tmp_path: Path) -> None:
        reading, writing = os.pipe()
        os.write(writing, b"node.id=7\n")
        os.close(writing)
        try:
            assert load(parse_arguments([f"/dev/fd/{reading}"])).given["node.id"] == "7"
        finally:
            os.close(reading)

    def test_what_a_warning_quotes_does_nothing_to_the_terminal(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write_properties(tmp_path, "node.id=1", "x\x1b[2J=1", "listeners=SSL://127.0.0.1:1")
        assert main([path]) == USAGE_ERROR
        assert "\x1b" not in capsys.readouterr().err


class TestLinesOfTheLog:
    def test_nobody_forges_one(self) -> None:
        out = io.StringIO()
        levels = LogLevels()
        levels.alter({"root": LogLevel.DEBUG})
        lines = LogLines(1, out, levels=levels)
        forged = "1.0\n2026-11-23 08:00:00.000 ERROR node 1: FORGED LINE\x1b[2J"
        lines("client", peer="ipv4:127.0.0.1", version=forged)
        lines("registered", epoch=forged)
        lines.write("ERROR", f"stopped by a defect: {forged}\nTraceback\n  File x\n")
        text = out.getvalue()
        assert "\x1b" not in text
        assert [line for line in text.splitlines() if "FORGED" in line and line.startswith("2026-11-23 08")] == []
        assert len(text.splitlines()) == 6  # a defect's own lines are indented
        assert text.splitlines()[3].startswith("    2026-11-23")
