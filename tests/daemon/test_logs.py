"""The node's own log: JSON lines, levels, rotation, and what libraries log."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.daemon.free_ports import free_ports
from streamlog.daemon.logs.library_logs import TEXT_LENGTH_MAX, install
from streamlog.daemon.logs.log_file import LogFile
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.ports.log_levels import LOGGERS, REQUESTS, ROOT, LogLevel, LogLevels, resolved

KEYS = ["time", "level", "node", "logger", "event", "message", "fields"]
HOSTILE = 'a"b\\c\x1b[2J\x9b31m\u202e\n{"level":"ERROR"}\ud800'


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


class TestJson:
    def test_one_object_a_line_with_the_same_keys(self) -> None:
        out = io.StringIO()
        lines = LogLines(3, out, as_json=True)
        lines.event("registered", {"broker": 3, "epoch": 17}, module="streamlog.node.registration")
        lines.event("fenced", {"epoch": 17}, module="streamlog.node.registration")
        lines.write("ERROR", "stopped by an internal error\nTraceback\n  File x\n")
        found = json_lines(out.getvalue())
        assert [list(one) for one in found] == [KEYS] * 3
        assert found[0]["message"] == "registered with broker epoch 17"
        assert found[0]["fields"] == {"broker": 3, "epoch": 17}
        assert [one["level"] for one in found] == ["INFO", "WARN", "ERROR"]
        assert found[0]["logger"] == "streamlog.node"
        assert found[2]["message"] == "stopped by an internal error\nTraceback\n  File x"
        assert str(found[0]["time"]).endswith("Z")

    @pytest.mark.parametrize("as_json", [True, False])
    def test_control_characters_are_escaped_in_each_format(self, as_json: bool) -> None:
        out = io.StringIO()
        levels = LogLevels()
        levels.alter({"root": LogLevel.DEBUG})
        lines = LogLines(1, out, as_json=as_json, levels=levels)
        lines.event("client", {"peer": HOSTILE, "version": HOSTILE})
        lines.event("registered", {"epoch": HOSTILE})
        lines.write("WARN", HOSTILE, logger=f"x{HOSTILE}")
        text = out.getvalue()
        assert not set(text) & set("\x1b\x9b\u202e\ud800\r")
        text.encode()
        if as_json:
            found = json_lines(text)
            assert len(found) == 3
            assert not set("".join(json.dumps(one, ensure_ascii=False) for one in found)) & set("\x1b\x9b\u202e")


class TestLevels:
    def test_a_logger_has_the_level_of_the_one_above_it(self) -> None:
        levels = LogLevels()
        levels.alter({ROOT: LogLevel.ERROR, "streamlog": LogLevel.WARN})
        assert levels.level("streamlog.raft") is LogLevel.WARN
        assert levels.level("asyncio") is LogLevel.ERROR
        levels.alter({"streamlog.raft": LogLevel.DEBUG, "streamlog": None})
        assert levels.level("streamlog.raft") is LogLevel.DEBUG
        assert levels.level("streamlog.node") is LogLevel.ERROR
        assert [one.name for one in levels.loggers() if one.is_set] == [ROOT, "streamlog.raft"]

    def test_events_below_the_level_are_not_logged(self) -> None:
        out, levels = io.StringIO(), LogLevels()
        lines = LogLines(1, out, levels=levels)
        levels.alter({"streamlog.raft": LogLevel.WARN})
        lines.event("leadership", {"leader": 1, "term": 2}, module="streamlog.raft.runner")
        lines.event("request_served", {"method": "m", "peer": "p", "status": "OK", "ms": 1})
        assert out.getvalue() == ""
        lines.event(
            "quorum_peer_dropped", {"peer": 2, "address": "x", "reason": "y"}, module="streamlog.raft.transport"
        )
        levels.alter({REQUESTS: LogLevel.DEBUG})
        lines.event("request_served", {"method": "m", "peer": "p", "status": "OK", "ms": 1})
        assert levels.requests
        assert [line.split()[2] for line in out.getvalue().splitlines()] == ["WARN", "DEBUG"]

    def test_why_a_node_stopped_is_always_logged(self) -> None:
        out, levels = io.StringIO(), LogLevels()
        levels.alter(dict.fromkeys(LOGGERS, LogLevel.ERROR))
        LogLines(1, out, levels=levels).write("ERROR", "stopped: disk full")
        assert "disk full" in out.getvalue()

    def test_each_package_that_reports_events_has_a_logger(self) -> None:
        root = Path(__file__).parents[2]
        for path in (root / "streamlog").rglob("*.py"):
            calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            if names & {"probe", "_probe"} and not module.startswith(("streamlog.sim", "streamlog.pytest_plugin")):
                assert resolved(module) not in ("streamlog", ROOT), module


class TestLinesWithinAWrite:
    """The garbage collector may run within a write, and what it collects may log."""

    def test_it_follows_the_line_that_is_written(self) -> None:
        written: list[str] = []

        class Collecting(io.StringIO):
            def write(self, text: str) -> int:
                if not written:
                    lines.write("WARN", "second")
                    lines.write("WARN", "third")
                written.append(text)
                return len(text)

        lines = LogLines(1, Collecting())
        thread = threading.Thread(target=lines.write, args=("INFO", "first"), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        assert [line.split()[-1] for line in written] == ["first", "second", "third"]

    def test_it_is_written_although_the_other_one_is_lost(self) -> None:
        written: list[str] = []

        class Failing(io.StringIO):
            def write(self, text: str) -> int:
                if "first" in text:
                    lines.write("WARN", "second")
                    raise OSError(28, "no space")
                written.append(text)
                return len(text)

        lines = LogLines(1, Failing())
        thread = threading.Thread(target=lines.write, args=("INFO", "first"), daemon=True)
        thread.start()
        thread.join(10)
        assert lines.lost_lines == 1
        assert [line.split()[-1] for line in written] == ["second"]


class TestRotation:
    def test_files_are_kept_up_to_the_count_and_the_size(self, tmp_path: Path) -> None:
        out = LogFile(tmp_path / "n.log", max_bytes=1_000, kept=2)
        lines = LogLines(1, out)
        for number in range(100):
            lines.write("INFO", f"line {number:03}")
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["n.log", "n.log.1", "n.log.2"]
        assert all(0 < file.stat().st_size <= 1_000 and file.stat().st_mode & 0o777 == 0o600 for file in files)
        text = "".join(file.read_text() for file in (files[2], files[1], files[0]))
        numbers = [int(line.rsplit(" ", 1)[1]) for line in text.splitlines()]
        assert numbers == list(range(numbers[0], 100))
        out.close()

    @pytest.mark.parametrize(("max_bytes", "kept"), [(0, 4), (10, 0)])
    def test_it_can_be_off(self, tmp_path: Path, max_bytes: int, kept: int) -> None:
        out = LogFile(tmp_path / "n.log", max_bytes=max_bytes, kept=kept)
        for _ in range(10):
            LogLines(1, out).write("INFO", "x" * 100)
        assert len(list(tmp_path.iterdir())) == 1
        assert len((tmp_path / "n.log").read_text().splitlines()) == 10
        out.close()

    def test_descriptors_follow(self, tmp_path: Path) -> None:
        other = os.open(os.devnull, os.O_WRONLY)
        out = LogFile(tmp_path / "n.log", max_bytes=100, kept=1)
        out.redirect(other)
        out.write("a" * 90 + "\n")
        out.write("b" * 90 + "\n")
        out.flush()
        os.write(other, b"from a library\n")
        os.close(other)
        assert (tmp_path / "n.log").read_text() == "b" * 90 + "\nfrom a library\n"
        out.close()

    def test_no_line_is_lost_where_a_rotation_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        out = LogFile(tmp_path / "n.log", max_bytes=100, kept=1)

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "rename", refuse)
        lines = LogLines(1, out)
        for number in range(10):
            lines.write("INFO", f"line {number} {'x' * 50}")
        assert lines.lost_lines == 0
        assert len((tmp_path / "n.log").read_text().splitlines()) == 10
        out.close()


class TestLibraries:
    @pytest.fixture
    def out(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
        root, out = logging.getLogger(), io.StringIO()
        level, handlers = root.level, list(root.handlers)
        monkeypatch.setattr(threading, "excepthook", threading.excepthook)
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        self.levels = LogLevels()
        install(LogLines(1, out, levels=self.levels, as_json=True), self.levels)
        yield out
        logging.captureWarnings(False)
        root.setLevel(level)
        root.handlers[:] = handlers
        for name in LOGGERS:
            if name != ROOT:
                logging.getLogger(name).setLevel(logging.NOTSET)

    def test_their_records_are_lines(self, out: io.StringIO) -> None:
        logging.getLogger("asyncio").error("lost %s", "x\x1b[2J")
        logging.getLogger("asyncio").debug("not logged")
        unfit = logging.LogRecord("asyncio", logging.ERROR, "", 0, "%d %d", ("no number",), None)
        logging.getLogger().handlers[0].handle(unfit)
        try:
            raise ValueError("deep " * TEXT_LENGTH_MAX)
        except ValueError:
            logging.getLogger("grpc.aio").exception("failed")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        first, second, third, *_ = found = json_lines(out.getvalue())
        assert (first["logger"], first["level"], first["message"]) == ("asyncio", "ERROR", "asyncio: lost x\\x1b[2J")
        assert "when it was formatted" in str(second["message"])
        assert (third["logger"], len(str(third["message"])) < TEXT_LENGTH_MAX + 100) == ("grpc.aio", True)
        assert all(list(one) == KEYS for one in found)

    def test_their_levels_follow(self, out: io.StringIO) -> None:
        self.levels.alter({"grpc": LogLevel.ERROR})
        logging.getLogger("grpc.x").warning("hidden")
        self.levels.alter({"grpc": LogLevel.DEBUG})
        logging.getLogger("grpc.x").debug("shown")
        assert [one["message"] for one in json_lines(out.getvalue())] == ["grpc.x: shown"]

    def test_a_record_waits_for_no_other_that_is_being_written(self, out: io.StringIO) -> None:
        handler = logging.getLogger().handlers[0]
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "lost", (), None)
        with handler.lock or threading.RLock():  # another thread is in the handler, and waits for the log
            thread = threading.Thread(target=handler.handle, args=(record,), daemon=True)
            thread.start()
            thread.join(10)
            assert not thread.is_alive()
        assert [one["message"] for one in json_lines(out.getvalue())] == ["asyncio: lost"]

    def test_a_failed_thread_is_a_line(self, out: io.StringIO) -> None:
        thread = threading.Thread(target=lambda: 1 // 0, name="worker")
        thread.start()
        thread.join()
        [found] = json_lines(out.getvalue())
        assert found["level"] == "ERROR"
        assert "thread worker failed: ZeroDivisionError" in str(found["message"])


def test_a_node_without_metrics_loads_no_http_server() -> None:
    names = "('uvicorn', 'prometheus_client', 'streamlog.daemon.http.listener')"
    code = f"import streamlog.daemon.serving, sys; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.process
def test_a_daemon_logs_json_and_rotates(tmp_path: Path) -> None:
    [port] = free_ports(1)
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/data\nhttp.listeners=\n"
        "log.format=json\ndaemon.log.max.bytes=1000\ndaemon.log.count=50\n"
    )
    command = [sys.executable, "-m", "streamlog.daemon.main", "-daemon", str(properties)]
    assert subprocess.run(command, check=False).returncode == 0
    pid = int((tmp_path / "data" / "streamlogd-1.pid").read_text())
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    poll = select.poll()
    poll.register(watched)
    ended = poll.poll(60_000)
    os.close(watched)
    assert ended
    files = sorted((tmp_path / "data").glob("streamlogd-1.log*"), key=lambda path: int(path.suffix.strip(".log") or 0))
    assert len(files) > 1
    found = json_lines("".join(path.read_text() for path in reversed(files)))
    events = [one["event"] for one in found]
    assert events.index("node_starting") < events.index("listening")
    assert found[-1]["message"] == "stopped"
    assert {one["logger"] for one in found} >= {"streamlog.node", "streamlog.daemon"}
