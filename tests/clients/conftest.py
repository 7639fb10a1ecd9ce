"""A cluster for all cases, and the table of their results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.cases import CASES
from tests.clients.drivers import CLIENTS

RESULTS = pytest.StashKey[dict[tuple[str, str], str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    callspec = getattr(item, "callspec", None)
    if (
        callspec is not None
        and {"case", "client"} <= callspec.params.keys()
        and (report.when == "call" or not report.passed)
    ):
        word = {"passed": "ok", "skipped": "skipped"}.get(report.outcome, "FAILED")
        item.config.stash[RESULTS][callspec.params["case"], callspec.params["client"]] = word
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One table: the cases, the clients."""
    results = config.stash[RESULTS]
    if results:
        terminalreporter.section("conformance")
        rows = [("case", *CLIENTS), *((case, *(results.get((case, one), "-") for one in CLIENTS)) for case in CASES)]
        for row in rows:
            terminalreporter.write_line(
                "".join(f"{cell:<20}" if not at else f"{cell:<10}" for at, cell in enumerate(row))
            )
