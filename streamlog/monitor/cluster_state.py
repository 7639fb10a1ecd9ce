"""Reads the state that a cluster's health depends on. Parts that cannot be read are listed in it, not raised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct, field

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.transaction_values import OpenTransaction, OpenTransactions
from streamlog.client.admin.values import (
    ClusterDescription,
    ConfigResource,
    NodeLogDirs,
    NodeState,
    TopicDescription,
)
from streamlog.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    SaslAuthenticationError,
    StreamlogError,
    ThrottledError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from streamlog.model import BrokerId

T = TypeVar("T")

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
CLOCK_SKEW_MAX: Final = "clock.skew.max.ms"
CLOCK_SKEW_READ_MS: Final = 100
"""The least value of that: the setting of a node whose clock is nearer to most nodes' need not be read."""
TOPICS_AT_ONCE: Final = 500
"""Topics whose configs are read in one request."""
SLOW_S: Final = 30.0
"""How long a sampler may keep the parts that change seldom. A transaction counts as hanging after minutes."""


REFUSALS: Final = (
    SaslAuthenticationError,
    ClusterAuthorizationError,
    TopicAuthorizationError,
    GroupAuthorizationError,
    TransactionalIdAuthorizationError,
)


def is_refusal(error: StreamlogError) -> bool:
    """The caller lacks a right, or its login fails: another try has the same result."""
    return isinstance(error, REFUSALS)


class ClusterState(Struct, frozen=True, kw_only=True):
    """The state at one moment, as far as it could be read."""

    cluster: ClusterDescription | None
    topics: Sequence[TopicDescription] = ()  # internal ones included
    min_insync_replicas: Mapping[str, int] = field(default_factory=dict)  # by topic, bounded by its replicas
    log_dirs: Sequence[NodeLogDirs] = ()
    log_dirs_at_s: float | None = None  # monotonic time at which they, and the offsets in them, were read; None: not
    # of nodes whose clock differs by more than CLOCK_SKEW_READ_MS
    clock_skew_max_ms: Mapping[BrokerId, int] = field(default_factory=dict)
    hanging: Sequence[OpenTransaction] = ()
    # of nodes that did not answer; while there is one, `hanging` is empty: none is reported as hanging by mistake
    transaction_errors: Mapping[BrokerId, StreamlogError] = field(default_factory=dict)
    # monotonic time at which `min_insync_replicas` and the transactions were read; None: not
    slow_at_s: float | None = None
    missing: Mapping[str, StreamlogError] = field(default_factory=dict)  # parts that could not be read -> the error

    @property
    def is_refused(self) -> bool:
        """Nodes answer, but this caller may see nothing."""
        return self.cluster is None and any(is_refusal(error) for error in self.missing.values())

    @property
    def is_throttled(self) -> bool:
        """Nodes answer, but this caller has to wait, as after failed logins."""
        return self.cluster is None and any(isinstance(one, ThrottledError) for one in self.missing.values())

    @property
    def is_login_refused(self) -> bool:
        """The password or token of this caller is wrong."""
        return self.cluster is None and any(isinstance(one, SaslAuthenticationError) for one in self.missing.values())

    @property
    def hidden_topic_count(self) -> int:
        """Topics that this caller may not DESCRIBE. One that is created or deleted meanwhile counts for a moment."""
        if self.cluster is None or "topics" in self.missing:
            return 0
        return max(0, self.cluster.topic_count - len(self.topics))


async def read_cluster_state(admin: AsyncAdmin, earlier: ClusterState | None = None) -> ClusterState:
    """Never raises a StreamlogError: a cluster that does not answer is a state as well. From `earlier`, if it is given
    and has the same topics, the parts that change seldom are taken for `SLOW_S`: a third of the calls.
    """
    missing: dict[str, StreamlogError] = {}
    cluster = await _part("the cluster's description", admin.describe_cluster(), missing)
    if cluster is None:
        return ClusterState(cluster=None, missing=missing)
    topics, log_dirs, skew_limits = await asyncio.gather(
        _part("topics", _all_topics(admin), missing),
        _part("log directories", _timed(admin.describe_log_dirs()), missing),
        _part("configs of nodes", _clock_skew_limits(admin, cluster), missing),
    )
    slow = _kept(earlier, topics or ())
    if slow is None:
        slow = await _read_slow(admin, topics or (), missing)
    return ClusterState(
        cluster=cluster,
        topics=topics or (),
        min_insync_replicas=slow.min_insync_replicas,
        log_dirs=() if log_dirs is None else log_dirs[0],
        log_dirs_at_s=None if log_dirs is None else log_dirs[1],
        clock_skew_max_ms=skew_limits or {},
        hanging=slow.transactions.transactions,
        transaction_errors=slow.transactions.errors,
        slow_at_s=slow.at_s,
        missing=missing,
    )


class _Slow(Struct, frozen=True):
    """The parts that change seldom. `at_s` None: they could not all be read."""

    min_insync_replicas: Mapping[str, int]
    transactions: OpenTransactions
    at_s: float | None


def _kept(earlier: ClusterState | None, topics: Sequence[TopicDescription]) -> _Slow | None:
    if earlier is None or earlier.slow_at_s is None or time.monotonic() - earlier.slow_at_s >= SLOW_S:
        return None
    if [one.name for one in topics] != [one.name for one in earlier.topics]:
        return None
    transactions = OpenTransactions(transactions=tuple(earlier.hanging), errors=earlier.transaction_errors)
    return _Slow(earlier.min_insync_replicas, transactions, earlier.slow_at_s)


async def _read_slow(
    admin: AsyncAdmin, topics: Sequence[TopicDescription], missing: dict[str, StreamlogError]
) -> _Slow:
    began_s = time.monotonic()
    hanging, minima = await asyncio.gather(
        _part("open transactions", admin.find_hanging_transactions(), missing),
        _part("configs of topics", min_insync_replicas(admin, topics), missing),
    )
    complete = hanging is not None and minima is not None
    nothing = OpenTransactions(transactions=(), errors={})
    return _Slow(minima or {}, hanging or nothing, began_s if complete else None)


async def _part(what: str, question: Awaitable[T], missing: dict[str, StreamlogError]) -> T | None:
    try:
        return await question
    except StreamlogError as error:
        missing[what] = error
        return None


async def _timed(question: Awaitable[T]) -> tuple[T, float]:
    """With the time of the answer: what comes before, such as connecting, takes longer than what the nodes do."""
    found = await question
    return found, time.monotonic()


async def _all_topics(admin: AsyncAdmin) -> tuple[TopicDescription, ...]:
    named = await admin.list_topics(include_internal=True)
    found = await admin.describe_topics([one.name for one in named]) if named else ()
    return tuple(one for one in found if one.error is None)  # the others were deleted meanwhile


async def _clock_skew_limits(admin: AsyncAdmin, cluster: ClusterDescription) -> dict[BrokerId, int]:
    """Without those that this caller may not see. StreamlogError."""
    nodes = [
        node.node_id
        for node in cluster.nodes
        if node.state is not NodeState.FENCED and abs(node.clock_skew_ms or 0) > CLOCK_SKEW_READ_MS
    ]
    if not nodes:
        return {}
    try:
        described = await admin.describe_configs([ConfigResource.broker(one) for one in nodes], names=[CLOCK_SKEW_MAX])
    except REFUSALS:
        return {}
    return {
        node: int(found.entries[0].value)
        for node, found in zip(nodes, described, strict=True)
        if found.error is None and found.entries and found.entries[0].value
    }


async def min_insync_replicas(admin: AsyncAdmin, topics: Sequence[TopicDescription]) -> dict[str, int]:
    """Effective ones, by topic. StreamlogError."""
    minima = {}
    for begin in range(0, len(topics), TOPICS_AT_ONCE):
        some = topics[begin : begin + TOPICS_AT_ONCE]
        described = await admin.describe_configs(
            [ConfigResource.topic(one.name) for one in some], names=[MIN_INSYNC_REPLICAS]
        )
        for topic, found in zip(some, described, strict=True):
            if found.error is None and found.entries:
                minima[topic.name] = effective_min_isr(found.entries[0].value, topic.replication_factor)
    return minima


def effective_min_isr(text: str | None, replication_factor: int) -> int:
    """`text`: the setting's value; None: it is not set, so 2 of three or more replicas, else 1 (SEMANTICS 5.5)."""
    wanted = int(text) if text else (2 if replication_factor >= 3 else 1)
    return min(wanted, replication_factor)
