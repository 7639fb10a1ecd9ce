"""The parts of the benchmark. A part is imported when it is run, so that one does not need another's packages."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from bench.figures import Figure

# Part -> module; each has `run() -> list[Figure]`.
PARTS = {
    "cluster": "bench.cluster",
    "groups": "bench.groups",
    "metadata": "bench.metadata",
    "monitoring": "bench.monitoring",
    "quorum": "bench.quorum",
    "records": "bench.records",
    "security": "bench.security",
    "services": "bench.services",
    "spark": "bench.spark",
    "storage": "bench.storage",
    "transactions": "bench.transactions",
    "validation": "bench.validation",
}


def run(part: str) -> Sequence[Figure]:
    figures: Sequence[Figure] = importlib.import_module(PARTS[part]).run()
    return figures
