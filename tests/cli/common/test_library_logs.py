"""What the client warns of is shown by commands, although the client itself prints nothing."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
from streamlog.cli.common.library_logs import show_warnings

{before}
show_warnings()
show_warnings()
logging.getLogger("streamlog.client.groups").warning("group %s left", "\\x1b[31mred")
logging.getLogger("streamlog.client.groups").info("not worth a line")
"""


def printed(before: str) -> str:
    command = [sys.executable, "-c", PROGRAM.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr


def test_a_warning_is_one_line_and_escaped() -> None:
    (line,) = printed("").splitlines()
    assert line.startswith("group ")
    assert line.endswith("red left")
    assert "\x1b" not in line


def test_a_program_that_configures_logging_keeps_its_own() -> None:
    (line,) = printed("logging.basicConfig(format='mine: %(message)s')").splitlines()
    assert line.startswith("mine: group ")


def test_nodes_without_a_connection_are_left_to_the_error_of_the_command() -> None:
    log = "logging.getLogger('streamlog.client.connection.connection_log').warning('no connection to n1:9092')"
    program = PROGRAM.format(before="") + log
    command = [sys.executable, "-c", program]
    assert "n1" not in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
