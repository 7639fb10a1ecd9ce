"""Rules, dashboards and pages name metrics that are there, and the page names all that are there."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from streamlog.daemon.http.loop_delay import LoopDelay
from streamlog.daemon.http.process_metrics import process_families
from streamlog.daemon.tls import certificate_families
from streamlog.metrics import Family, MetricKind
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.posix_disk import PosixFileSystem
from tests.node.kit import Nodes, run_story
from tools import generate_dashboards as dashboards

ROOT = Path(__file__).parent.parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted(PROMETHEUS.glob("*.rules.yml"))
PAGE = ROOT / "docs" / "monitoring.md"
NAME = re.compile(r"\bstreamlog_[a-z0-9_]+\b")


@pytest.fixture(scope="module")
def families() -> dict[str, Family]:
    found: list[Family] = []

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        found.extend(await nodes.node(1).metrics.collect())

    run_story(story, voters=1)
    fs = PosixFileSystem()
    try:
        found += asyncio.run(of_process(fs))
    finally:
        fs.close()
    return {family.name: family for family in [*found, *LoopDelay().families(), *certificate_families(())]}


async def of_process(fs: PosixFileSystem) -> list[Family]:
    network = GrpcNetwork(on_crash=_fail)
    try:
        return process_families(network, fs)
    finally:
        await network.close()


def _fail(error: Exception) -> None:
    raise error


def series(families: dict[str, Family]) -> set[str]:
    parts = ("_bucket", "_count", "_sum")
    histograms = {name for name, family in families.items() if family.kind is MetricKind.HISTOGRAM}
    return families.keys() | {f"{name}{part}" for name in histograms for part in parts}


def test_the_page_names_every_metric_and_no_other(families: dict[str, Family]) -> None:
    named = set(NAME.findall(PAGE.read_text()))
    assert named == families.keys()


def test_the_page_gives_the_labels(families: dict[str, Family]) -> None:
    rows = dict(re.findall(r"^\| `(streamlog_\w+)` \| ([^|]*?) ?\|", PAGE.read_text(), re.MULTILINE))
    assert rows == {name: ", ".join(family.labels) for name, family in families.items()} | {
        "streamlog_build_info": "version, node_id"
    }


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_rules_name_metrics_that_are_there(families: dict[str, Family], path: Path) -> None:
    assert set(NAME.findall(path.read_text())) <= series(families)


def test_every_alert_has_its_runbook() -> None:
    text = (PROMETHEUS / "alerts.rules.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    assert re.findall(r"runbook: docs/monitoring.md#(\w+)", text) == [alert.lower() for alert in alerts]
    assert re.findall(r"^### (Streamlog\w+)$", PAGE.read_text(), re.MULTILINE) == alerts


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_takes_the_files() -> None:
    subprocess.run(["promtool", "check", "rules", *map(str, RULES)], check=True, capture_output=True)
    subprocess.run(["promtool", "check", "config", str(PROMETHEUS / "prometheus.yml")], check=True, capture_output=True)


def test_dashboards_name_metrics_and_rules_that_are_there(families: dict[str, Family]) -> None:
    recorded = set(re.findall(r"- record: (\S+)", (PROMETHEUS / "recording.rules.yml").read_text()))
    expressions = dashboards.expressions()
    for expression in expressions:
        assert set(NAME.findall(expression)) <= series(families), expression
        assert set(re.findall(r"\bstreamlog:[a-z0-9_:]+", expression)) <= recorded, expression
    assert len(expressions) > 40


def test_dashboards_are_as_generated() -> None:
    assert dashboards.main(["--check"]) == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_takes_the_expressions_of_dashboards(tmp_path: Path) -> None:
    rules = [{"record": f"test:{number}", "expr": one} for number, one in enumerate(dashboards.expressions())]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", str(path)], check=True, capture_output=True)
