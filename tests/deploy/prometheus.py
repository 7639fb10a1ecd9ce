"""A real Prometheus on the rules of deploy/prometheus, with short times, for tests of them on real nodes."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from streamlog.daemon.free_ports import free_ports

RULES: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
LAG_LIMIT: Final = 100
"""Of StreamlogGroupLag, instead of the 100,000 of the shipped rule."""
SHORTER: Final = (
    (r"for: \w+", "for: 1s"),
    (r"\[\d+m\]", "[10s]"),  # five scrapes
    (r"> 100000$", f"> {LAG_LIMIT}"),
    (r"> 1000$", "> 5"),  # entries that a voter lags
    (r"> 3600$", "> 2"),  # age of a transaction
)
"""What the tests have no time for. Nothing else of the rules is changed."""
POLL_S: Final = 0.5
PATIENCE_S: Final = 90.0

Labels = Mapping[str, str]


class Prometheus:
    """Scrapes every two seconds; alerts fire after one second."""

    def __init__(self, directory: Path, targets: Sequence[str], explain: Callable[[], str] = str) -> None:
        """`targets`: host:port each. `explain`: what the targets say themselves, for failures."""
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._directory = directory
        self._explain = explain
        self._arguments = [
            "prometheus",
            f"--config.file={self._write(directory, targets)}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def _write(self, directory: Path, targets: Sequence[str]) -> Path:
        for path in RULES.glob("*.rules.yml"):
            text = path.read_text()
            for pattern, short in SHORTER:
                text = re.sub(pattern, short, text, flags=re.MULTILINE)
            (directory / path.name).write_text(text)
        config = {
            "global": {"scrape_interval": "2s", "evaluation_interval": "1s", "scrape_timeout": "2s"},
            "rule_files": [str(directory / path.name) for path in RULES.glob("*.rules.yml")],
            "scrape_configs": [{"job_name": "streamlog", "static_configs": [{"targets": list(targets)}]}],
        }
        path = directory / "prometheus.yml"
        path.write_text(json.dumps(config))
        return path

    def __enter__(self) -> Self:
        with open(self._directory / "prometheus.log", "wb") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    def query(self, expression: str) -> list[tuple[Labels, float]]:
        """ConnectionError while it starts."""
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=10) as response:
            found: dict[str, Any] = json.load(response)
        return [(row["metric"], float(row["value"][1])) for row in found["data"]["result"]]

    def firing(self) -> set[str]:
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}

    def wait_for_alerts(self, *alerts: str, meanwhile: Callable[[], object] = bool) -> None:
        """Each has fired, at the same time or not. `meanwhile` is called before each look."""
        missing = set(alerts)

        def firing() -> bool:
            meanwhile()
            missing.difference_update(self.firing())
            return not missing

        self.wait_until(f"firing {alerts}", firing)

    def wait_until_resolved(self) -> None:
        """No alert is firing."""
        self.wait_until("resolved", lambda: not self.firing())

    def _scrapes(self) -> str:
        """The last scrape of each target, and why it failed."""
        with urllib.request.urlopen(f"{self._url}/api/v1/targets", timeout=10) as response:
            targets: list[dict[str, Any]] = json.load(response)["data"]["activeTargets"]
        return "; ".join(
            f"{target['scrapeUrl']} {target['health']} {target['lastScrapeDuration']:.3f} s {target['lastError']}"
            for target in targets
        )

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """AssertionError if it does not come true, or Prometheus ends."""
        assert self._process is not None
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                if condition():
                    return
                seen = str(sorted(self.firing()))
            except OSError as error:  # it does not listen yet
                seen = str(error)
            assert time.monotonic() < deadline_s, (
                f"not {what} within {PATIENCE_S:g} s; firing: {seen}; {self._scrapes()}; {self._explain()}"
            )
            try:
                self._process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError((self._directory / "prometheus.log").read_text()[-2000:])
