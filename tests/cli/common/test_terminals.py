"""What others have written does nothing to the terminal of who looks at it; a pipe gets it as it is."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamlog import errors
from streamlog.cli.cluster.health import show_findings
from streamlog.cli.common.failures import sentence
from streamlog.cli.common.output import Cell, Output, on_terminal, show_facts, show_json, show_rows
from streamlog.cli.main import main
from streamlog.cli.records.output_format import OutputFormat
from streamlog.model import Offset
from streamlog.monitor import HealthFinding, Severity
from streamlog.records import BatchFields, TimestampType, encode_batch
from tests.cli.dump.logs import START_MS, write_log
from tests.cli.served import ServedCluster

HOSTILE = "\x1b[2Jx\n2026 ERROR forged\x9b\u202e"
CREATE = TimestampType.CREATE_TIME


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


class TestRecords:
    RECORD = (0, 1, b"k\x1b[2J", b"v\n\xff", (("h\r", b"\x07"),))

    def test_escaped_for_a_terminal(self) -> None:
        assert OutputFormat.of({}, escape=True).lines(0, CREATE, [self.RECORD]) == b"v\\n\\xff\n"
        form = OutputFormat.of({"print.key": "true", "print.headers": "true"}, escape=True)
        assert form.lines(0, CREATE, [self.RECORD]) == b"h\\r:\\x07\tk\\x1b[2J\tv\\n\\xff\n"

    def test_as_they_are_for_a_pipe(self) -> None:
        form = OutputFormat.of({"print.key": "true", "print.headers": "true"})
        assert form.lines(0, CREATE, [self.RECORD]) == b"h\r:\x07\tk\x1b[2J\tv\n\xff\n"


class TestTables:
    ROWS: tuple[dict[str, Cell], ...] = ({"name": HOSTILE, "configs": {"a": HOSTILE}},)

    @pytest.mark.parametrize("kind", list(Output))
    def test_on_a_terminal(
        self, kind: Output, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        show_rows(kind, self.ROWS, columns=("name", "configs"), title=f"[red]{HOSTILE}")
        show_facts(kind, self.ROWS[0])
        text = printed(capsys)
        assert "[2Jx" in text
        assert not [one for one in ("\x1b[2J", "\x9b", "\u202e", "\n2026") if one in text]

    def test_text_in_a_pipe_is_as_it_is(self, capsys: pytest.CaptureFixture[str]) -> None:
        """But for colours, which click takes out of what goes into a pipe."""
        show_rows(Output.TEXT, [{"name": "a\x9b\u202e\x07"}], columns=("name",))
        assert printed(capsys) == "a\x9b\u202e\x07\n"

    def test_json_means_the_same_everywhere(self, capsys: pytest.CaptureFixture[str]) -> None:
        show_json({"name": HOSTILE})
        text = printed(capsys)
        assert json.loads(text) == {"name": HOSTILE}
        assert "\x9b" not in text


@pytest.mark.parametrize("width", [10, 40, 60, 200])
def test_a_narrow_terminal_shows_every_name_and_number_whole(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    row: dict[str, Cell] = {"node": 1, "address": "127.0.0.1:9092", "size_bytes": 15145584, "total_bytes": 270553174016}
    show_rows(Output.TABLE, [row, row], columns=tuple(row), title="nodes")
    text = printed(capsys)
    assert text.startswith("nodes")
    for value in row.values():
        assert text.count(str(value)) >= 2
    assert text.count("size_bytes") == (2 if width < 60 else 1)  # blocks, or one table


def test_health_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of topics, paths and messages of nodes stand in findings."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    finding = HealthFinding(severity=Severity.WARNING, subject=HOSTILE, problem=HOSTILE, cause=HOSTILE, remedy=HOSTILE)
    for output in Output:
        show_findings(output, [finding])
        text = printed(capsys)
        assert "[2Jx" in text
        assert not [one for one in ("\x1b[2J", "\x9b", "\u202e", "\n2026") if one in text]


@pytest.mark.parametrize(("value", "coloured"), [("1", False), ("", True)])
def test_no_color(served: ServedCluster, value: str, *, coloured: bool) -> None:
    environment = {"STREAMLOG_BOOTSTRAP_SERVERS": served.address, "NO_COLOR": value}
    done = CliRunner().invoke(main, ["cluster", "health", "-o", "table"], env=environment, color=True)
    assert done.stdout
    assert ("\x1b" in done.stdout) == coloured


class TestErrors:
    def test_one_sentence_is_one_line(self) -> None:
        text = sentence(errors.UnknownTopicOrPartitionError(f"there is no topic {HOSTILE}"))
        assert text.startswith("there is no topic \\x1b[2Jx\\n2026 ERROR forged\\x9b\\u202e: ")

    def test_settings_keep_their_lines(self) -> None:
        assert sentence(errors.InvalidConfigError("a=\x07\nb")).startswith("a=\\x07\nb")

    def test_whatever_a_command_ends_with(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise click.ClickException(HOSTILE)

        monkeypatch.setattr("streamlog.cli.local.commands.LocalCluster", fail)
        done = CliRunner().invoke(main, ["local", "status"])
        assert done.exit_code == 1
        assert "\x1b" not in done.output
        assert "\\x1b[2Jx" in done.output

    def test_standard_error_is_escaped_wherever_it_goes(self) -> None:
        assert on_terminal("a\tb\x1b\nc", err=True) == "a\tb\\x1b\nc"
        assert on_terminal("a\x1b") == "a\x1b"


def test_dump_on_a_real_terminal_and_in_a_pipe(tmp_path: Path) -> None:
    """A log whose only record holds a terminal's commands."""
    fields = BatchFields(base_offset=Offset(0), base_sequence=0)
    log = write_log(tmp_path, [encode_batch([b"v\xc2\x9b"], [b"k\x1b[2J"], timestamps=START_MS, fields=fields)])
    command = [sys.executable, "-c", "from streamlog.cli.main import main; main()", "dump", str(log)]
    assert b"k\x1b[2J" in subprocess.run(command, capture_output=True, check=True).stdout
    assert b"k\\x1b[2J" in (shown := on_a_terminal(command))
    assert b"\x1b" not in shown
    assert b"k\x1b[2J" in on_a_terminal([*command, "--raw"])


def on_a_terminal(command: list[str]) -> bytes:
    main_end, terminal_end = pty.openpty()
    try:
        subprocess.run(command, stdout=terminal_end, check=True)  # a line or two: a terminal takes that much unread
        return os.read(main_end, 1 << 16)
    finally:
        os.close(terminal_end)
        os.close(main_end)
