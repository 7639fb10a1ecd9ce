"""A rule: what to watch, from which value on, for how long. Values; `rule_file` reads them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from streamlog.monitor import Severity


class RuleKind(enum.Enum):
    CLUSTER_UNREACHABLE = "cluster_unreachable"
    NODE_DOWN = "node_down"
    NO_QUORUM = "no_quorum"
    OFFLINE_PARTITIONS = "offline_partitions"
    UNDER_MIN_ISR = "under_min_isr"
    UNDER_REPLICATED = "under_replicated"
    LAG_RECORDS = "lag_records"
    LAG_SECONDS = "lag_seconds"
    NO_WRITES = "no_writes"
    DISK_USED = "disk_used"
    LOG_DIR_OFFLINE = "log_dir_offline"
    SYNC_LATENCY = "sync_latency"
    HANGING_TRANSACTION = "hanging_transaction"


class Unit(enum.Enum):
    """Of a rule's threshold."""

    NONE = "none"  # the kind has no threshold
    COUNT = "count"
    SECONDS = "seconds"
    SHARE = "share"  # 0 to 1


class KindDescription(Struct, frozen=True, kw_only=True):
    text: str
    remedy: str
    unit: Unit = Unit.NONE
    above: float | None = 0  # the default threshold; None: a rule must give it
    filters: tuple[str, ...] = ()  # of topics, groups, nodes: those that the kind has
    required: tuple[str, ...] = ()  # filters without a default


_TOPICS: Final = ("topics",)
_NODES: Final = ("nodes",)
_READERS: Final = ("groups", "topics")

KINDS: Final[Mapping[RuleKind, KindDescription]] = {
    RuleKind.CLUSTER_UNREACHABLE: KindDescription(
        text="no node of the cluster answers the console, or its user is refused",
        remedy="Start the nodes, or check the network between the console and the cluster, and the rights of its user.",
    ),
    RuleKind.NODE_DOWN: KindDescription(
        text="a registered node is not active",
        remedy="Start it; if it is running, its log has the reason.",
        filters=_NODES,
    ),
    RuleKind.NO_QUORUM: KindDescription(
        text="the metadata quorum has no leader",
        remedy="Start the voters that are down: streamlogctl cluster quorum.",
    ),
    RuleKind.OFFLINE_PARTITIONS: KindDescription(
        text="more than `above` partitions have no leader",
        remedy="Start the nodes of their replicas: streamlogctl topic describe --unavailable-partitions.",
        unit=Unit.COUNT,
        filters=_TOPICS,
    ),
    RuleKind.UNDER_MIN_ISR: KindDescription(
        text="more than `above` partitions have fewer in-sync replicas than min.insync.replicas",
        remedy="Start the nodes that are down: streamlogctl topic describe --under-min-isr-partitions.",
        unit=Unit.COUNT,
        filters=_TOPICS,
    ),
    RuleKind.UNDER_REPLICATED: KindDescription(
        text="more than `above` partitions have a replica out of sync",
        remedy="Start the nodes that are down: streamlogctl topic describe --under-replicated-partitions.",
        unit=Unit.COUNT,
        filters=_TOPICS,
    ),
    RuleKind.LAG_RECORDS: KindDescription(
        text="a group is more than `above` records behind on a topic",
        remedy="Members are too slow, too few, or have stopped: streamlogctl group describe GROUP --members.",
        unit=Unit.COUNT,
        above=None,
        filters=_READERS,
    ),
    RuleKind.LAG_SECONDS: KindDescription(
        text="the next record of a group in a topic was written more than `above` ago",
        remedy="Members are too slow, too few, or have stopped: streamlogctl group describe GROUP --members.",
        unit=Unit.SECONDS,
        above=None,
        filters=_READERS,
    ),
    RuleKind.NO_WRITES: KindDescription(
        text="nothing was written to a topic for `above`",
        remedy="Check the producers of this topic.",
        unit=Unit.SECONDS,
        above=None,
        filters=_TOPICS,
        required=_TOPICS,
    ),
    RuleKind.DISK_USED: KindDescription(
        text="more than `above` of the disk of a log directory is used",
        remedy="Lower the retention of large topics (streamlogctl cluster log-dirs), or move replicas away.",
        unit=Unit.SHARE,
        above=0.9,
        filters=_NODES,
    ),
    RuleKind.LOG_DIR_OFFLINE: KindDescription(
        text="a log directory is offline",
        remedy="If it is full, make space and restart the node. Otherwise see that its partitions have a leader "
        "(streamlogctl topic describe --unavailable-partitions), replace the disk and restart the node with an empty "
        "directory: it copies its replicas from the leaders.",
        filters=_NODES,
    ),
    RuleKind.SYNC_LATENCY: KindDescription(
        text="the 99th percentile of the syncs of a log directory takes longer than `above`",
        remedy="Check for other programs that use the disk.",
        unit=Unit.SECONDS,
        above=1.0,
        filters=_NODES,
    ),
    RuleKind.HANGING_TRANSACTION: KindDescription(
        text="a transaction is open that no coordinator will end",
        remedy="List them: streamlogctl transaction find-hanging; end them: streamlogctl transaction abort.",
        filters=_TOPICS,
    ),
}

KEEP_FIRING_FOR_S: Final = 15.0


class AlarmRule(Struct, frozen=True, kw_only=True):
    """Fires for a subject when its condition has held for `for_s`; resolves when it has not for `keep_firing_for_s`."""

    name: str
    kind: RuleKind
    severity: Severity = Severity.WARNING
    above: float = 0.0
    for_s: float = 60.0
    keep_firing_for_s: float = KEEP_FIRING_FOR_S
    topics: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ("*",)
    nodes: tuple[int, ...] = ()  # empty: all
    channels: tuple[str, ...] = ()  # empty: all
    enabled: bool = True


def _default(
    name: str, kind: RuleKind, for_s: float, *, critical: bool = False, above: float | None = None
) -> AlarmRule:
    threshold = KINDS[kind].above if above is None else above
    return AlarmRule(
        name=name,
        kind=kind,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        above=threshold or 0.0,
        for_s=for_s,
    )


DEFAULT_RULES: Final[Sequence[AlarmRule]] = (
    _default("cluster-unreachable", RuleKind.CLUSTER_UNREACHABLE, 30, critical=True),
    _default("node-down", RuleKind.NODE_DOWN, 30, critical=True),
    _default("no-quorum", RuleKind.NO_QUORUM, 30, critical=True),
    _default("offline-partitions", RuleKind.OFFLINE_PARTITIONS, 30, critical=True),
    _default("under-min-isr", RuleKind.UNDER_MIN_ISR, 30, critical=True),
    _default("under-replicated", RuleKind.UNDER_REPLICATED, 300),
    _default("lag-records", RuleKind.LAG_RECORDS, 300, above=100_000),
    _default("lag-seconds", RuleKind.LAG_SECONDS, 300, above=600),
    _default("disk-used", RuleKind.DISK_USED, 60),
    _default("log-dir-offline", RuleKind.LOG_DIR_OFFLINE, 0, critical=True),
    _default("sync-latency", RuleKind.SYNC_LATENCY, 300),
    _default("hanging-transaction", RuleKind.HANGING_TRANSACTION, 60),
)
"""A rule of the file with the same name replaces one of these. There is none for no_writes: idle topics are normal."""


def matches(patterns: Sequence[str], name: str) -> bool:
    """`*` and `?`; `!` before a pattern excludes. Only exclusions: all other names match."""
    # To fnmatch, `[` begins a set of characters: names have it.
    globs = [one.replace("[", "[[]") for one in patterns]
    wanted = [one for one in globs if not one.startswith("!")]
    excluded = [one[1:] for one in globs if one.startswith("!")]
    return (not wanted or any(fnmatchcase(name, one) for one in wanted)) and not any(
        fnmatchcase(name, one) for one in excluded
    )
