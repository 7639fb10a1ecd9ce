"""A test of a page that fails says what the page showed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    page: Any = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and page is not None:
        report.sections.append(("the page", _shown(page)))
    return report


def _shown(page: Any) -> str:
    try:
        return f"{page.url}\n{page.locator('body').inner_text()}"
    except Exception as error:  # noqa: BLE001  the test's own failure is what counts
        return f"could not be read: {error}"
