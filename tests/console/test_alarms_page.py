"""A node fails: the alarm fires on the page and by webhook, once; the node returns: both are resolved. In a browser."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.client import Producer
from streamlog.client.admin.sync_admin import Admin
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.model import PartitionId, TopicPartition
from tests.console.alarms.receivers import WebhookReceiver, webhook_receiver

for module in ("nicegui", "sqlalchemy", "aiosmtplib", "httpx", "tomlkit"):
    pytest.importorskip(module, reason="streamlog[console] is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)

COMMAND = str(Path(sys.executable).with_name("streamlogctl"))
pytestmark = [pytest.mark.process]
WAIT_MS = 120_000
RULES = """
# reviewed by the operators
[rules.node-down]
kind = "node_down"
severity = "critical"
for = "3s"
keep_firing_for = "1s"

[rules.under-replicated]
kind = "under_replicated"
enabled = false

[channels.hook]
type = "webhook"
url = "%s/alarms?token=${env:HOOK_TOKEN}"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    found = LocalCluster(tmp_path_factory.mktemp("cluster"))
    found.create(3, 0, {"broker.session.timeout.ms": "3000"})
    start(found)
    yield found
    for node in found.nodes:
        found.kill(node)


def start(cluster: LocalCluster) -> None:
    command = [COMMAND, "local", "start", "--dir", str(cluster.directory), "--timeout-s", "180"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def hook() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as found:
        yield found


class Console:
    """Its process, and a page of it."""

    def __init__(self, cluster: LocalCluster, data: Path, page: Any) -> None:
        servers = ",".join(node.address for node in cluster.nodes)
        self._command = [COMMAND, "console", "--port", "0", "--data", str(data), "--bootstrap-server", servers]
        self.page = page
        self.start()

    def start(self) -> None:
        environment = {"PATH": "/usr/bin:/bin", "HOOK_TOKEN": "s3cret", "HOME": "/nonexistent"}
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        found = re.search(r"http://\S+/", self._process.stdout.readline())
        assert found is not None
        self.url = found[0]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(120) in (0, 130, -signal.SIGINT)

    def show(self, address: str) -> Any:
        self.page.goto(self.url.rstrip("/") + address)
        return self.page


@pytest.fixture
def console(cluster: LocalCluster, hook: WebhookReceiver, tmp_path: Path) -> Iterator[Console]:
    (tmp_path / "alarms.toml").write_text(RULES % hook.url)
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        found = Console(cluster, tmp_path, page)
        yield found
        found.stop()
        browser.close()


def test_a_node_that_fails_fires_once_and_resolves(
    console: Console, cluster: LocalCluster, hook: WebhookReceiver
) -> None:
    with Admin(bootstrap_servers=cluster.nodes[0].address) as admin:
        admin.create_topic("orders", partitions=3)
    page = console.show("/alarms")
    page.get_by_text("None.").first.wait_for()
    hook.taken.clear()
    cluster.kill(cluster.node(2))
    page.get_by_text(re.compile(r"Node 2 .* is fenced")).first.wait_for()
    page.get_by_role("button", name="Acknowledge").wait_for()
    fired = hook.wait_for(1, 60)[0]
    assert fired.path == "/alarms?token=s3cret"
    assert fired.json["status"] == "firing"
    assert [one["subject"] for one in fired.json["alarms"]] == ["node 2"]
    console.show("/")
    page.get_by_role("link", name="1 alarm", exact=True).wait_for()
    assert page.get_by_text(re.compile(r"Node 2 .* is fenced")).count() == 1, "not as an alarm too"

    console.stop()
    console.start()
    console.show("/alarms")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("acknowledged by").wait_for()
    page.get_by_role("button", name="Silence", exact=True).click()
    page.get_by_label("Comment").fill("a planned test")
    page.get_by_role("dialog").get_by_role("button", name="Silence").click()
    page.get_by_text("acknowledged by local, silenced").wait_for()
    assert "s3cret" not in page.content()
    assert len(hook.taken) == 1, "a restart does not fire again"

    start(cluster)
    page.get_by_text("None.").first.wait_for()
    resolved = hook.wait_for(2, 60)[1]
    assert resolved.json["status"] == "resolved"
    assert resolved.json["alarms"][0]["id"] == fired.json["alarms"][0]["id"]
    console.show("/alarms?view=history")
    for change in ("fired", "acknowledged by local", "resolved"):
        page.get_by_role("cell", name=change, exact=True).wait_for()
    console.show("/alarms?view=channels")
    page.get_by_role("button", name="Send a test").click()
    page.get_by_text("hook took the test.").wait_for()
    assert hook.wait_for(3, 60)[2].json["status"] == "test"
    assert "s3cret" not in page.content()
    page.get_by_text("127.0.0.1").first.wait_for()


def test_rules_are_changed_in_the_page_and_in_the_file(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "alarms.toml"
    page = console.show("/alarms?view=rules")
    page.get_by_role("button", name="lag-records", exact=True).press("Enter")
    page.get_by_label("Above (a number)").fill("x")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Rule lag-records: above: 'x' is not a number.").wait_for()
    page.get_by_label("Above (a number)").fill("1234")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The rule is saved.").wait_for()
    assert "above = 1234" in file.read_text()
    assert "# reviewed by the operators" in file.read_text()
    file.write_text(file.read_text() + '\n[rules.idle]\nkind = "no_writes"\ntopics = ["orders"]\nabove = "1d"\n')
    page.reload()
    page.get_by_role("cell", name="idle", exact=True).wait_for()
    file.write_text(file.read_text() + '\n[rules.wrong]\nkind = "no_writes"\nabove = 5\n')
    page.get_by_text("The file of rules is not valid").wait_for()
    page.get_by_text(re.compile("rule wrong: topics: no_writes needs patterns")).wait_for()
    page.get_by_role("cell", name="idle", exact=True).wait_for()


FOCUSED = "document.activeElement.innerText"


def test_a_view_that_changes_leaves_the_focus_where_it_is(
    console: Console, cluster: LocalCluster, tmp_path: Path
) -> None:
    """What is built again loses the keyboard's focus, and a click during that."""
    file = tmp_path / "alarms.toml"
    page = console.show("/alarms?view=rules")
    page.get_by_role("button", name="lag-records", exact=True).focus()
    file.write_text(
        file.read_text() + '\n[rules.behind]\nkind = "lag_records"\ntopics = ["behind"]\nabove = 5\nfor = "0s"\n'
    )
    page.get_by_role("cell", name="behind", exact=True).wait_for()
    assert page.evaluate(FOCUSED) == "lag-records"
    page.keyboard.press("Enter")
    page.get_by_label("Above (a number)").wait_for()

    servers = cluster.nodes[0].address
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topic("behind", partitions=1)
        producer.send_many("behind", [b"x"] * 10, partition=0).result(60)
        (committed,) = admin.alter_group_offsets("slow", {TopicPartition("behind", PartitionId(0)): 0})
        assert committed.error is None
        page = console.show("/alarms")
        page.get_by_text(re.compile("Group slow .* 10 ")).wait_for()
        page.get_by_role("button", name="Silence", exact=True).focus()
        producer.send_many("behind", [b"x"] * 10, partition=0).result(60)
        page.get_by_text(re.compile("Group slow .* 20 ")).wait_for()
        assert page.evaluate(FOCUSED) == "Silence"
        (committed,) = admin.alter_group_offsets("fast", {TopicPartition("behind", PartitionId(0)): 0})
        assert committed.error is None
        page.get_by_text(re.compile("Group fast .* 20 ")).wait_for()
        assert page.evaluate(FOCUSED) == "Silence"
        page.keyboard.press("Enter")
        page.get_by_role("dialog").get_by_label("Subject (* matches all)").wait_for()
        assert "slow" in page.get_by_role("dialog").get_by_label("Subject (* matches all)").input_value()
