"""Consumer groups that this node coordinates.

The lag of a partition that another node leads is unknown here: a recording rule of `deploy/prometheus` joins the
committed offset with the leader's high watermark.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import Final

from streamlog.broker.table.replicas import Replicas
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.groups.state import Group
from streamlog.metrics.families import Family, Sample, gauge, single

GROUPS_MAX: Final = 1_000
"""A commit is enough to make a group: those beyond are counted and have no series."""
OFFSETS_MAX: Final = 100_000
"""Series of each of the metrics by partition."""
GROUPS_AT_ONCE: Final = 512
OFFSETS_AT_ONCE: Final = 512


async def group_families(groups: GroupCoordinator, replicas: Replicas, *, per_partition: bool) -> list[Family]:
    states, own = await _counted(groups)
    families = [
        gauge(
            "streamlog_groups",
            "Consumer groups that this node coordinates, by state.",
            [((state,), states.get(state, 0)) for state in ("empty", "reconciling", "stable")],
            ("state",),
        ),
        gauge(
            "streamlog_group_members",
            "Members of a consumer group.",
            [((group.group_id,), len(group.members)) for group in own],
            ("group",),
        ),
        gauge(
            "streamlog_group_epoch",
            "Rises with every rebalance of the group.",
            [((group.group_id,), group.epoch) for group in own],
            ("group",),
        ),
        gauge(
            "streamlog_group_shards_loading",
            "Partitions of __consumer_offsets that this node leads and has not read completely yet.",
            single(groups.loading),
        ),
    ]
    return [*families, *await _offsets(own, replicas)] if per_partition else families


async def _counted(groups: GroupCoordinator) -> tuple[Counter[str], list[Group]]:
    """How many groups have each state; and the first by name that have members, then others, up to GROUPS_MAX."""
    states: Counter[str] = Counter()
    active: list[Group] = []
    empty: list[Group] = []
    start = ""
    while some := groups.own_groups(start, GROUPS_AT_ONCE):
        for group in some:
            states[state_of(group)] += 1
            alike = active if group.members else empty
            if len(alike) < GROUPS_MAX:
                alike.append(group)
        start = some[-1].group_id
        await asyncio.sleep(0)
    return states, [*active, *empty][:GROUPS_MAX]


async def _offsets(groups: list[Group], replicas: Replicas) -> list[Family]:
    high_watermarks = {
        (leader.partition.topic, leader.partition.partition): leader.high_watermark for leader in replicas.leaders()
    }
    committed: list[Sample] = []
    lags: list[Sample] = []
    for group in groups:
        for (topic, partition), value in list(islice(group.offsets.items(), OFFSETS_MAX - len(committed))):
            labels = (group.group_id, topic, str(partition))
            committed.append((labels, value.offset))
            high_watermark = high_watermarks.get((topic, partition))
            if high_watermark is not None:
                lags.append((labels, max(0, high_watermark - value.offset)))
            if len(committed) % OFFSETS_AT_ONCE == 0:
                await asyncio.sleep(0)
    own = ("group", "topic", "partition")
    return [
        gauge("streamlog_group_committed_offset", "Next offset that the group will read.", committed, own),
        gauge(
            "streamlog_group_lag_records",
            "Records between the committed offset and the high watermark; of partitions that this node leads too.",
            lags,
            own,
        ),
    ]


def state_of(group: Group) -> str:
    if not group.members:
        return "empty"
    return "stable" if group.is_settled else "reconciling"
