"""`streamlogctl` itself: help, usage errors, exit codes, and that it starts without loading every command."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.model import Offset
from streamlog.records import BatchFields, encode_batch
from tests.cli.conftest import Dump
from tests.cli.dump.logs import one, write_log

USAGE = 2


def test_help_names_every_command() -> None:
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    for name in ("topic", "config", "cluster", "partition", "dump", "completion"):
        assert f"\n  {name} " in done.stdout
    assert "Print the files of a log" in done.stdout


def test_help_of_dump_has_examples(dump: Dump) -> None:
    done = dump("--help")
    assert done.exit_code == 0
    assert "streamlogctl dump orders-0/00000000000000000000.log" in done.stdout
    assert "Exit code: 0 all files are intact" in done.stdout


def test_listing_commands_loads_none() -> None:
    script = (
        "import sys; from streamlog.cli.main import main; main(['-h'], standalone_mode=False); print([*sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "streamlog.cli.main" in printed
    assert "streamlog.cli.dump.command" not in printed
    assert "numpy" not in printed


def test_an_unknown_command() -> None:
    done = CliRunner().invoke(main, ["dumb"])
    assert done.exit_code == USAGE
    assert "No such command 'dumb'. Did you mean 'dump'?" in done.stderr
    done = CliRunner().invoke(main, ["frobnicate"])
    assert done.exit_code == USAGE
    assert "No such command 'frobnicate'." in done.stderr


@pytest.mark.parametrize("arguments", [["--file", "f.txt"], ["f.txt"], ["f.txt", "g.txt"]])
def test_produce_names_standard_input_to_those_who_give_a_file(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["produce", "orders", *arguments])
    assert done.exit_code == 2
    assert "records are lines of standard input, streamlogctl produce TOPIC < FILE." in done.stderr


@pytest.mark.parametrize("arguments", [["list"], ["alter", "--user", "carl", "--set", "producer_byte_rate=1"]])
def test_a_verb_that_is_none_is_named_with_those_that_are(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["quota", *arguments])
    assert done.exit_code == 2
    assert f"No such command '{arguments[0]}'. The commands are: set, describe, delete." in done.stderr


@pytest.mark.parametrize("option", [["--bootstrap-server", "127.0.0.1:1"], ["--bootstrap-server=127.0.0.1:1"]])
def test_where_the_cluster_is_may_be_said_before_the_command(option: list[str]) -> None:
    found = CliRunner().invoke(main, [*option, "topic", "list"])
    assert "no node answers at 127.0.0.1:1" in found.output


def test_the_help_of_a_noun_has_whole_sentences() -> None:
    for noun in ("group", "partition", "cluster", "transaction"):
        assert "..." not in CliRunner().invoke(main, [noun, "--help"]).output.partition("Commands:")[2]


def test_no_file(dump: Dump) -> None:
    assert dump().exit_code == USAGE


def test_a_file_that_is_not_there(tmp_path: Path, dump: Dump) -> None:
    done = dump(tmp_path / "00000000000000000000.log")
    assert done.exit_code == USAGE
    assert "does not exist" in done.stderr


def test_a_directory(tmp_path: Path, dump: Dump) -> None:
    done = dump(tmp_path)
    assert done.exit_code == USAGE
    assert "is a directory" in done.stderr


@pytest.mark.parametrize("name", ["meta.properties", "notes.txt", "some.index", "noname"])
def test_a_file_that_is_no_file_of_a_log(tmp_path: Path, dump: Dump, name: str) -> None:
    (tmp_path / name).write_text("x")
    done = dump(tmp_path / name)
    assert done.exit_code == USAGE
    assert "does not have the name of a log's file: give .log, .index" in done.stderr


def test_other_files_among_those_of_a_partition_are_left_out(tmp_path: Path, dump: Dump) -> None:
    log = write_log(tmp_path, [one(0)])
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    done = dump(*sorted(tmp_path.iterdir()))
    assert done.exit_code == 0
    assert done.stderr == f"Ignoring {tmp_path}/partition.metadata: it does not have the name of a log's file.\n"
    assert done.stdout.splitlines()[0] == f"Dumping {log}"


def test_checks_that_exclude_each_other(tmp_path: Path, dump: Dump) -> None:
    log = write_log(tmp_path, [one(0)])
    done = dump("--verify-index-only", "--index-sanity-check", log)
    assert done.exit_code == USAGE
    assert "are mutually exclusive" in done.stderr


def test_a_check_of_indexes_without_an_index(tmp_path: Path, dump: Dump) -> None:
    done = dump("--verify-index-only", write_log(tmp_path, [one(0)]))
    assert done.exit_code == USAGE
    assert "there is no .index or .timeindex among the files" in done.stderr


def test_a_reader_that_stops_reading(tmp_path: Path) -> None:
    """As `| head -1` does: no traceback, and no claim that the file is damaged."""
    log = write_log(tmp_path, [one(n) for n in range(20_000)])
    command = [sys.executable, "-c", "from streamlog.cli.main import main; main()", "dump", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"Dumping {log}\n"
        process.stdout.close()
        assert process.stderr.read() == ""


def dump_before_a_terminal(log: Path, lines: Path | None) -> bytes:
    """What a terminal on standard error shows. The lines go to a file, or to the terminal as well."""
    terminal, its_other_end = pty.openpty()
    try:
        command = [sys.executable, "-c", "from streamlog.cli.main import main; main()", "dump", "--shallow-iteration"]
        with open(lines or os.devnull, "wb") as file:
            subprocess.run(
                [*command, str(log)],
                stdout=file if lines else its_other_end,
                stderr=its_other_end,
                env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
                check=True,
            )
        os.set_blocking(terminal, False)
        try:
            return os.read(terminal, 1 << 16)
        except BlockingIOError:
            return b""
    finally:
        os.close(terminal)
        os.close(its_other_end)


def test_a_bar_on_a_terminal_for_a_long_file_only(tmp_path: Path) -> None:
    batches = [
        encode_batch([bytes(1 << 20)], timestamps=0, fields=BatchFields(base_offset=Offset(n))) for n in range(10)
    ]
    long, short = write_log(tmp_path, batches), write_log(tmp_path, batches[:1], "copy.log")
    lines = tmp_path / "lines"
    shown = dump_before_a_terminal(long, lines)
    assert b"/10.5 MB" in shown
    assert b"baseOffset" not in shown
    assert lines.read_bytes().count(b"baseOffset") == len(batches)
    assert dump_before_a_terminal(short, lines) == b""
    assert b"MB" not in dump_before_a_terminal(long, None), "the lines have the terminal to themselves"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_every_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_STREAMLOGCTL_COMPLETE" in done.stdout
