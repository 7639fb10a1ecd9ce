"""A port that was given stays the node's while it is down."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamlog.daemon.free_ports import HOST, free_ports, is_free

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_each_is_free_and_given_once() -> None:
    given = free_ports(20) + free_ports(20)
    assert len(set(given)) == 40
    assert all(is_free(HOST, port) for port in given)


def test_one_that_somebody_has_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as taken:
        assert not is_free(HOST, taken.getsockname()[1])


OTHER = """
import sys
from streamlog.daemon import free_ports
free_ports._PORTS = [int(text) for text in sys.argv[1:]]
print(*free_ports.free_ports(1))
"""


def test_no_other_process_is_given_it_though_nobody_listens() -> None:
    [mine] = free_ports(1)
    with socket.create_server((HOST, 0)) as taken:
        other = taken.getsockname()[1]
    command = [sys.executable, "-c", OTHER, str(mine), str(other)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [str(other)]


@pytest.mark.skipif(not EPHEMERAL.exists(), reason="only Linux has its ephemeral ports there")
def test_none_is_one_that_the_kernel_gives_to_connections() -> None:
    first = int(EPHEMERAL.read_text().split()[0])
    if first < 32_768:
        pytest.skip(f"this machine's ephemeral ports begin at {first}")
    assert max(free_ports(20)) < first
