"""Login, a viewer, and sessions that end, in a real browser. Skipped by name without playwright or Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.access.running import PASSWORD, RunningConsole, user

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)
pytestmark = [pytest.mark.process]
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("console")
    for role in ("viewer", "admin"):
        assert user(found, "add", role, "--role", role).returncode == 0
    return found


@pytest.fixture(scope="module")
def console(data: Path) -> Iterator[RunningConsole]:
    with RunningConsole(data) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, console: RunningConsole) -> Iterator[Any]:
    context = browser.new_context(base_url=console.url)
    found = context.new_page()
    found.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on("console", lambda line: errors.append(line.text) if "Content Security" in line.text else None)
    yield found
    assert errors == []
    context.close()


def log_in(page: Any, name: str, password: str = PASSWORD) -> None:
    page.get_by_label("User", exact=True).fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_login_leads_where_its_user_wanted_to_and_the_logout_back(page: Any) -> None:
    page.goto("/audit?x=1")
    log_in(page, "admin", "wrong password")
    page.get_by_text("The name or the password is wrong.").wait_for()
    log_in(page, "admin")
    page.wait_for_url("**/audit?x=1")
    page.get_by_role("cell", name="log in").first.wait_for()
    page.get_by_label("User", exact=True).first.wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as JSON lines").click()
    lines = Path(download.value.path()).read_text()
    assert '"action":"log in"' in lines
    assert PASSWORD not in lines
    assert "wrong password" not in lines
    page.locator('header button[aria-label="User"]').click()
    page.get_by_text("admin, admin").wait_for()
    page.get_by_text("Log out").click()
    page.wait_for_url("**/login")
    page.goto("/audit")
    page.wait_for_url("**/login?next=*")


def test_a_viewer_sees_no_audit_log(page: Any) -> None:
    page.goto("/")
    log_in(page, "viewer")
    page.get_by_role("link", name="Quorum").wait_for()
    assert page.get_by_role("link", name="Audit").count() == 0
    page.goto("/audit")
    page.get_by_text("it needs role admin").wait_for()


def test_an_open_page_goes_to_the_login_when_its_user_changes(page: Any, data: Path) -> None:
    assert user(data, "add", "short", "--role", "viewer").returncode == 0
    page.goto("/quorum")
    log_in(page, "short")
    page.get_by_role("link", name="Quorum").wait_for()
    page.get_by_text("No node of the cluster answers.").wait_for()
    assert user(data, "role", "short", "operator").returncode == 0
    page.wait_for_url("**/login")
    assert user(data, "delete", "short").returncode == 0
