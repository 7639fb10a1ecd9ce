"""deploy/grafana/*.json from tools/dashboards: dashboards of the cluster, of a topic, of a group and of a node.

    python -m tools.generate_dashboards            writes them (`make dashboards`)
    python -m tools.generate_dashboards --check    exit code 1 where a file is not what it would write

Their expressions are Prometheus', over the metrics that docs/monitoring.md lists and the recording rules in
deploy/prometheus; a test checks that each metric exists.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.dashboards.cluster import CLUSTER
from tools.dashboards.drawing import text_of
from tools.dashboards.group import GROUP
from tools.dashboards.node import NODE
from tools.dashboards.topic import TOPIC

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "deploy" / "grafana"
PAGES: Final = (CLUSTER, TOPIC, GROUP, NODE)


def expressions() -> list[str]:
    """All of them, as Prometheus reads them: with a name for each variable."""
    found = []
    for page in PAGES:
        for section in page.sections:
            found += [number.expression for number in section.numbers]
            found += [query.expression for chart in section.charts for query in chart.queries]
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a file differs")
    check = parser.parse_args(arguments).check
    stale = []
    for page in PAGES:
        path = FOLDER / f"{page.name}.json"
        text = text_of(page)
        if check and (not path.exists() or path.read_text() != text):
            stale.append(str(path.relative_to(ROOT)))
        elif not check:
            path.write_text(text)
    if stale:
        print(f"{', '.join(stale)}: not what tools/generate_dashboards.py writes; run make dashboards", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
