"""Processes remembered by pid and birth: never a stranger is signalled."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.daemon.local_process import ProcessId, load_process_id, save_process_id

WAITS = "import sys; print('up', flush=True); sys.stdin.read()"

ENDS_ITS_FIRST_THREAD = """
import ctypes, os, sys, threading

def stays():
    while open(f"/proc/self/task/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    print("alone", flush=True)
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=stays).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Runs until it is stopped."""
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_process_is_known_again(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    process = ProcessId.of(child.pid)
    assert process is not None
    save_process_id(process, tmp_path / "process")
    again = load_process_id(tmp_path / "process")
    assert again == process
    assert again.alive


def test_a_signal_reaches_it_and_its_end_is_seen(child: subprocess.Popen[bytes]) -> None:
    process = ProcessId.of(child.pid)
    assert process is not None
    assert not process.wait_until_exited(0.05)
    assert process.signal(signal.SIGTERM)
    assert process.wait_until_exited(30)
    assert not process.alive, "though its parent has not buried it"
    assert not process.signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGTERM


def test_a_wait_of_more_than_poll_can_count(child: subprocess.Popen[bytes]) -> None:
    process = ProcessId.of(child.pid)
    assert process is not None
    child.kill()
    assert process.wait_until_exited(3_000_000)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process has one state")
def test_it_is_there_until_its_last_thread_has_ended() -> None:
    """Which may be in the middle of an fsync, and holds the port until then."""
    command = [sys.executable, "-c", ENDS_ITS_FIRST_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"alone\n"
        child = ProcessId.of(process.pid)
        assert child is not None
        assert not child.wait_until_exited(0.05)
        process.stdin.close()
        assert child.wait_until_exited(30)


def test_another_process_of_the_same_number_is_a_stranger(child: subprocess.Popen[bytes]) -> None:
    stranger = ProcessId(child.pid, "another birth")
    assert not stranger.alive
    assert not stranger.signal(signal.SIGKILL)
    assert stranger.wait_until_exited(0)
    assert child.poll() is None


def test_a_process_that_is_gone_and_buried(child: subprocess.Popen[bytes]) -> None:
    process = ProcessId.of(child.pid)
    assert process is not None
    child.kill()
    child.wait()
    assert not process.alive
    assert not process.signal(signal.SIGKILL)
    assert process.wait_until_exited(0)
    assert ProcessId.of(child.pid) is None


@pytest.mark.parametrize("text", ["", "17", "{}", '{"pid": "x", "born": "y"}', "\x00\xff"])
def test_what_is_no_memory_of_a_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "process").write_text(text)
    assert load_process_id(tmp_path / "process") is None


def test_nothing_remembered(tmp_path: Path) -> None:
    assert load_process_id(tmp_path / "process") is None
