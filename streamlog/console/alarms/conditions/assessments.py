"""What conditions work on, and what they return. Values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from streamlog.console.alarms.conditions.tracks import SampleTracks
from streamlog.console.collection.sample import Sample

Subject = tuple[str, ...]
"""A path of words: ("node", "2"), ("group", "billing", "topic", "orders")."""
CLUSTER: Final[Subject] = ("cluster",)
PARTITIONS: Final[Subject] = ("partitions",)


class Breach(Struct, frozen=True):
    value: float
    summary: str  # a sentence


class View(Struct, frozen=True, kw_only=True):
    """All that conditions depend on."""

    sample: Sample
    tracks: SampleTracks
    syncs: Mapping[tuple[int, str], float] = field(default_factory=dict)  # (node id, directory): p99 in seconds
    syncs_known: frozenset[int] = frozenset()  # nodes that were scraped
    scrapes: bool = True  # False: there are no addresses of metrics


def none_unknown(_: Subject) -> bool:
    return False


def all_unknown(_: Subject) -> bool:
    return True


class Assessment(Struct, frozen=True):
    """`unknown`: subjects about which the sample has nothing."""

    breaches: Mapping[Subject, Breach] = field(default_factory=dict)
    unknown: Callable[[Subject], bool] = none_unknown
