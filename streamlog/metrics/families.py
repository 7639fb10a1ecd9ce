"""One metric of a node at one moment, with all its label values."""

from __future__ import annotations

import enum

from msgspec import Struct

from streamlog.metrics.histogram import Histogram

Labels = tuple[str, ...]
Sample = tuple[Labels, "float | Histogram"]


class MetricKind(enum.Enum):
    COUNTER = "counter"  # rises for the life of the process; its name ends with `_total`
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"  # 1, with the information in its labels; its name ends with `_info`


class Family(Struct, frozen=True):
    """`samples`: values of the labels, in the order of `labels`, with a number (or a Histogram)."""

    name: str  # `streamlog_...`, with the unit: `_bytes`, `_seconds`; counters with `_total`
    kind: MetricKind
    help: str  # one sentence, for readers who do not know the code
    labels: Labels
    samples: list[Sample]


def counter(name: str, help_text: str, samples: list[Sample], labels: Labels = ()) -> Family:
    return Family(name, MetricKind.COUNTER, help_text, labels, samples)


def gauge(name: str, help_text: str, samples: list[Sample], labels: Labels = ()) -> Family:
    return Family(name, MetricKind.GAUGE, help_text, labels, samples)


def histogram(name: str, help_text: str, samples: list[Sample], labels: Labels = ()) -> Family:
    return Family(name, MetricKind.HISTOGRAM, help_text, labels, samples)


def info(name: str, help_text: str, values: dict[str, str]) -> Family:
    return Family(name, MetricKind.INFO, help_text, tuple(values), [(tuple(values.values()), 1)])


def single(value: float | Histogram) -> list[Sample]:
    """The samples of a metric without labels."""
    return [((), value)]
