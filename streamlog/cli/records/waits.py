"""Says why records are not acknowledged, while `produce` waits: a partition without a leader, too few in-sync replicas,
no metadata quorum that would elect another leader.

Sends that stay open for longer than a write takes are looked into: once, and again when the reason has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.cli.common.output import say
from streamlog.cli.common.session import lost_quorum, open_admin
from streamlog.cli.common.target import Target
from streamlog.client.admin.values import TopicDescription
from streamlog.errors import StreamlogError
from streamlog.monitor import min_insync_replicas

LOOK_S: Final = 1.0
_SHOWN_MAX: Final = 5  # partitions


async def report_waits(target: Target, topic: str, waiting_for: Callable[[], object]) -> None:
    """Runs until it is cancelled. `waiting_for`: the oldest send without a result; None: there is none."""
    said, last = "", None
    while True:
        await asyncio.sleep(LOOK_S)
        oldest = waiting_for()
        if oldest is not None and oldest is last:
            reason = await _reason(target, topic)
            if reason and reason != said:
                hint = "" if "streamlogctl" in reason else " (see: streamlogctl cluster health)"
                say(f"Waiting for acknowledgements: {reason}{hint}.", err=True)
            said = reason
        last = oldest


async def _reason(target: Target, topic: str) -> str:
    """Empty where none is found."""
    try:
        async with open_admin(target) as admin:
            found = await admin.describe_topics([topic])
            minima = await min_insync_replicas(admin, [one for one in found if one.error is None])
    except StreamlogError as error:
        return error.message
    return reason_of(found, minima.get(topic, 1)) or await lost_quorum(target)


def reason_of(found: Sequence[TopicDescription], minimum: int) -> str:
    """Why records of acks=all are not acknowledged; empty where nothing prevents it."""
    for one in found:
        without = [f"{one.name}-{at.partition}" for at in one.partitions if at.leader is None]
        if without:
            return f"{_listed(without)} without a leader"
        small = [f"{one.name}-{at.partition}" for at in one.partitions if len(at.isr) < minimum]
        if small:
            return f"{_listed(small)} with fewer in-sync replicas than min.insync.replicas={minimum}"
    return ""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
