"""A network of our own: a namespace for each node, all on one switch in user space (switch.c), clients on port 0.

Lives inside the sandbox's network namespace, where the clients' device is. A node's namespace is held by a process that
sleeps, so that it outlives the node's processes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CLIENTS: Final = 0
"""The port of all clients; node i is on port i."""
RESET_MS: Final = 300
_HELD_S: Final = 10.0


def address(port: int) -> str:
    return f"10.77.0.{port or 100}"


class Network:
    """Links are one way: (from port, to port)."""

    def __init__(self, switch: Path, nodes: int) -> None:
        taps = [f"nem{port}" for port in range(nodes + 1)]
        self._ports = range(nodes + 1)
        self._switch = subprocess.Popen(
            [str(switch), *taps], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        try:
            if self._line() != "ready":
                raise RuntimeError("the switch does not start")
            self._join(CLIENTS, taps[CLIENTS], ())
            _run("ip", "link", "set", "lo", "up")
            for port in range(1, nodes + 1):
                self._holders[port] = holder = _hold_namespace()
                _run("ip", "link", "set", taps[port], "netns", str(holder.pid))
                inside = self.inside(port)
                self._join(port, taps[port], inside)
                _run(*inside, "ip", "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def _join(self, port: int, tap: str, inside: Iterable[str]) -> None:
        _run(*inside, "ip", "link", "set", tap, "address", f"02:6e:65:6d:00:{port:02x}")
        _run(*inside, "ip", "addr", "add", f"{address(port)}/24", "dev", tap)
        _run(*inside, "ip", "link", "set", tap, "up")

    def inside(self, port: int) -> list[str]:
        """What to put before a command so that it runs in the node's namespace, under the same process id."""
        return ["nsenter", f"--net=/proc/{self._holders[port].pid}/ns/net"]

    def close(self) -> None:
        self._switch.kill()
        self._switch.wait()
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    # -- faults

    def cut(self, links: Iterable[tuple[int, int]], *, cut: bool = True) -> None:
        for a, b in links:
            self._send(f"cut {a} {b} {int(cut)}")

    def shape(
        self, links: Iterable[tuple[int, int]], *, delay_ms: int = 0, loss_permille: int = 0, kbit: int = 0
    ) -> None:
        for a, b in links:
            self._send(f"shape {a} {b} {delay_ms} {loss_permille} {kbit}")

    def reset(self, links: Iterable[tuple[int, int]]) -> None:
        """Break the connections; new ones can be made at once."""
        for a, b in links:
            self._send(f"reset {a} {b} {RESET_MS}")

    def clear(self) -> None:
        self._send("clear")

    def counts(self) -> tuple[int, int]:
        """Frames that were passed on, and dropped."""
        _, passed, dropped = self._send("count").split()
        return int(passed), int(dropped)

    def _send(self, command: str) -> str:
        assert self._switch.stdin is not None
        self._switch.stdin.write(command + "\n")
        self._switch.stdin.flush()
        answer = self._line()
        if not answer.startswith("ok"):
            raise RuntimeError(f"the switch answers {answer!r} to {command!r}")
        return answer

    def _line(self) -> str:
        assert self._switch.stdout is not None
        return self._switch.stdout.readline().strip()


def _hold_namespace() -> subprocess.Popen[bytes]:
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], start_new_session=True)
    ours, until = os.readlink("/proc/self/ns/net"), time.monotonic() + _HELD_S
    while os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
        if time.monotonic() > until:
            holder.kill()
            raise RuntimeError("no network namespace of a node comes up")
        time.sleep(0.005)  # until unshare has come to it
    return holder


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
