"""What a caller may know of the cluster."""

from __future__ import annotations

from msgspec import Struct


class Known(Struct, frozen=True, kw_only=True):
    """The topics and groups of the well-behaved client are not in it."""

    cluster_id: str
    node_ids: tuple[int, ...]
    topics: dict[str, bytes]  # of the fuzzer alone: name -> id
    groups: tuple[str, ...]
    config_names: tuple[str, ...] = ("retention.ms", "cleanup.policy", "min.insync.replicas", "segment.bytes", "x")
