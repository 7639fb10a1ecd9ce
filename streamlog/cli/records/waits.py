"""Says why records are not acknowledged while a producer waits, or do not arrive while a consumer does: a partition
without a leader, too few in-sync replicas, no metadata quorum that would elect another leader, no node that answers.

Sends that stay open for longer than a write takes are looked into, and consumers that receive nothing; a reason is said
once, and again when it has changed. For a consumer silence is usual: the longer it lasts, the rarer it is looked into.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from streamlog.cli.common.library_logs import leave_out_waits
from streamlog.cli.common.output import say
from streamlog.cli.common.session import lost_quorum, open_admin
from streamlog.cli.common.target import Target
from streamlog.client.admin.values import TopicDescription
from streamlog.errors import StreamlogError
from streamlog.monitor import min_insync_replicas

LOOK_S: Final = 1.0
SILENCE_S: Final = 3.0
SILENCE_MAX_S: Final = 15.0
_SHOWN_MAX: Final = 5  # partitions


async def report_waits(target: Target, topic: str, waiting_for: Callable[[], object]) -> None:
    """Runs until it is cancelled. `waiting_for`: the oldest send without a result; None: there is none."""
    said, last = "", None
    while True:
        await asyncio.sleep(LOOK_S)
        oldest = waiting_for()
        if oldest is not None and oldest is last:
            reason = await _reason_of_writes(target, topic)
            if reason and reason != said:
                _say("acknowledgements", reason)
            said = reason
        last = oldest


@asynccontextmanager
async def reporting_silence(
    target: Target, topics: Sequence[str], received: Callable[[], int | None]
) -> AsyncIterator[None]:
    """Meanwhile says why no records of these topics arrive. `received`: how many have; None: output is being
    written, so that none is awaited.
    """
    leave_out_waits()
    notices = asyncio.create_task(report_silence(target, topics, received))
    try:
        yield
    finally:
        notices.cancel()


async def report_silence(target: Target, topics: Sequence[str], received: Callable[[], int | None]) -> None:
    """Runs until it is cancelled."""
    said, last, pause_s = "", received(), SILENCE_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, SILENCE_MAX_S)
        if (count := received()) is None or count != last:
            said, last, pause_s = "", count, SILENCE_S
            continue
        reason = await _reason_of_reads(target, topics)
        if reason and reason != said and received() == last:
            _say("records", reason)
        said = reason


def _say(awaited: str, reason: str) -> None:
    hint = "" if "streamlogctl" in reason else " (see: streamlogctl cluster health)"
    say(f"Waiting for {awaited}: {reason}{hint}.", err=True)


async def _reason_of_writes(target: Target, topic: str) -> str:
    """Empty where none is found."""
    try:
        async with open_admin(target) as admin:
            found = await admin.describe_topics([topic])
            minima = await min_insync_replicas(admin, [one for one in found if one.error is None])
    except StreamlogError as error:
        return error.message
    return reason_of(found, minima.get(topic, 1)) or await lost_quorum(target)


async def _reason_of_reads(target: Target, topics: Sequence[str]) -> str:
    """Empty where none is found."""
    try:
        async with open_admin(target) as admin:
            found = await admin.describe_topics(topics)
    except StreamlogError as error:
        return error.message
    missing = next((one.error.message for one in found if one.error is not None), "")
    return missing or reason_of(found, minimum=0) or await lost_quorum(target)


def reason_of(found: Sequence[TopicDescription], minimum: int) -> str:
    """Why records of acks=all are not acknowledged, or with a `minimum` of 0 in-sync replicas not read; empty where
    nothing prevents it.
    """
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
