"""Which nodes accept connections: seen from this machine, at this moment.

The metadata calls a node active until its session times out, seconds after it was killed; and voters that do not run
are why a change of the metadata is not answered. A name that this machine cannot resolve says nothing about its node.
Each address has a daemon thread of its own, since a resolver may take far longer than the user waits.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from typing import Final

from streamlog.client.admin.values import ClusterDescription

CONNECT_TIMEOUT_S: Final = 1.0
_RESOLVE_TIMEOUT_S: Final = 1.0


def not_answering(addresses: Iterable[str]) -> frozenset[str]:
    """Those (`host:port`) that refuse a connection, or do not accept one in time. Blocks; not on an event loop."""
    silent: set[str] = set()

    def look(address: str) -> None:
        if not _answers(address):
            silent.add(address)

    threads = [threading.Thread(target=look, args=(one,), daemon=True) for one in dict.fromkeys(addresses)]
    deadline = time.monotonic() + _RESOLVE_TIMEOUT_S + CONNECT_TIMEOUT_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return frozenset(silent)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except socket.gaierror:
        return True
    except OSError:
        return False
    return True


def voter_addresses(cluster: ClusterDescription) -> list[str]:
    """Of each voter, in their order: its address for clients; of one that is not registered, the quorum's."""
    known = {node.node_id: node.address for node in cluster.nodes}
    return [known.get(voter.node_id, voter.address) for voter in cluster.voters]


def no_quorum(addresses: Iterable[str], silent: frozenset[str]) -> str:
    """What to say where too few of the voters at `addresses` answer for a metadata quorum; empty if enough do."""
    voters = list(addresses)
    answering = sum(one not in silent for one in voters)
    if not voters or 2 * answering > len(voters):
        return ""
    verb = "answers" if answering == 1 else "answer"
    return f"No metadata quorum: {answering} of {len(voters)} voters {verb} (see: streamlogctl cluster quorum)"
