"""Which nodes accept connections: seen from this machine, at this moment.

The metadata calls a node active until its session times out, seconds after it was killed; and voters that do not run
are why a change of the metadata is not answered. A name that this machine cannot resolve says nothing about its node.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

CONNECT_TIMEOUT_S: Final = 1.0


async def not_answering(addresses: Iterable[str]) -> frozenset[str]:
    """Those (`host:port`) that refuse a connection, or do not accept one in time."""
    asked = list(dict.fromkeys(addresses))
    answers = await asyncio.gather(*map(_answers, asked))
    return frozenset(address for address, answers_now in zip(asked, answers, strict=True) if not answers_now)


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except socket.gaierror:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def no_quorum(addresses: Iterable[str], silent: frozenset[str]) -> str:
    """What to say where too few of the voters at `addresses` answer for a metadata quorum; empty if enough do."""
    voters = list(addresses)
    answering = sum(one not in silent for one in voters)
    if 2 * answering > len(voters):
        return ""
    verb = "answers" if answering == 1 else "answer"
    return f"No metadata quorum: {answering} of {len(voters)} voters {verb} (see: streamlogctl cluster quorum)"
