"""Numbers that a node keeps about itself, as plain values: counters are integers at their owners, and these types.

Owners count on the event loop, without locks and without a metrics library; for each scrape `streamlog.node.metrics`
collects all of it into `Family` values, and the daemon's HTTP listener renders them for Prometheus.
"""

from streamlog.metrics.families import Family, MetricKind, Sample
from streamlog.metrics.histogram import LATENCY_BOUNDS_S, Histogram
from streamlog.metrics.traffic import TopicTraffic, Traffic

__all__ = ["LATENCY_BOUNDS_S", "Family", "Histogram", "MetricKind", "Sample", "TopicTraffic", "Traffic"]
