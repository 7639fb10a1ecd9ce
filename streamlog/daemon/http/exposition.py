"""Renders families in Prometheus's text format, or as OpenMetrics if the scraper accepts that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from streamlog.metrics import Family, Histogram, MetricKind

_SUFFIXES = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}


_PROCESS = CollectorRegistry()
"""Metrics of the process. Made once: its collector reads the time of the machine's start from a page of many lines."""
ProcessCollector(registry=_PROCESS)
GCCollector(registry=_PROCESS)


class _Given(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def render(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """The page and its content type. `accept`: the request's header. Metrics of the process (CPU seconds, RSS, open
    files, garbage collections) are added.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given([*map(_metric, families), *_PROCESS.collect()]))
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # of a version that is not a number
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


def _metric(family: Family) -> Metric:
    suffix = _SUFFIXES.get(family.kind, "")
    metric = Metric(family.name.removesuffix(suffix), family.help, family.kind.value)
    for values, value in family.samples:
        labels = dict(zip(family.labels, values, strict=True))
        if isinstance(value, Histogram):
            _add_histogram(metric, labels, value)
        else:
            metric.add_sample(family.name, labels, value)
    return metric


def _add_histogram(metric: Metric, labels: dict[str, str], value: Histogram) -> None:
    rows = value.cumulative()
    for bound, count in rows:
        text = "+Inf" if bound == float("inf") else repr(float(bound))
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": text}, count)
    metric.add_sample(f"{metric.name}_count", labels, rows[-1][1])
    metric.add_sample(f"{metric.name}_sum", labels, value.sum)
