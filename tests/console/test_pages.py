"""The console in a real browser, on a cluster of real processes. Skipped by name without playwright or Chromium."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamlog.access.quotas import ADDRESS_KEYS, KEYS, QuotaEntity
from streamlog.client import Consumer, Producer
from streamlog.client.admin.sync_admin import Admin
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition

for module in ("nicegui", "sqlalchemy"):
    pytest.importorskip(module, reason="streamlog[console] is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)

COMMAND = str(Path(sys.executable).with_name("streamlogctl"))
pytestmark = [pytest.mark.process]
WAIT_MS = 60_000
ADDRESSES = (
    "/",
    "/brokers",
    "/brokers/1",
    "/topics",
    "/groups",
    "/groups/unknown",
    "/transactions",
    "/quorum",
    "/quotas",
    "/operations",
)

MORE = (
    "/topics/orders",
    "/records?topic=orders",
    "/groups/steppers",
    "/alarms",
    "/alarms?view=history",
    "/alarms?view=rules",
    "/alarms?view=silences",
    "/alarms?view=channels",
    "/audit",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    found = LocalCluster(tmp_path_factory.mktemp("cluster"))
    found.create(3, 0, {"broker.session.timeout.ms": "3000"})
    start(found)
    yield found
    for node in found.nodes:
        found.kill(node)


def start(cluster: LocalCluster) -> None:
    subprocess.run(
        [COMMAND, "local", "start", "--dir", str(cluster.directory), "--timeout-s", "180"],
        check=True,
        capture_output=True,
    )


def servers(cluster: LocalCluster) -> str:
    return ",".join(node.address for node in cluster.nodes)


def committed(admin: Admin, group: str, at: TopicPartition, offset: int) -> None:
    (result,) = admin.alter_group_offsets(group, {at: offset})
    assert result.error is None, result


class Console:
    def __init__(self, cluster: LocalCluster, data: Path) -> None:
        self._command = [COMMAND, "console", "--port", "0", "--data", str(data)]
        self._command += ["--bootstrap-server", servers(cluster)]
        self.url = ""

    def __enter__(self) -> Console:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = re.search(r"http://\S+", self._process.stdout.readline())
        assert found is not None
        self.url = found[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(120) in (0, 130, -signal.SIGINT)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="module")
def console(cluster: LocalCluster, data: Path) -> Iterator[Console]:
    with Console(cluster, data) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, console: Console) -> Iterator[Any]:
    context = browser.new_context(base_url=console.url)
    found = context.new_page()
    found.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on("dialog", lambda dialog: errors.append(f"a script ran: {dialog.message}"))
    yield found
    assert errors == []
    context.close()


def test_a_topic_is_created_and_a_record_written_and_found(page: Any) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("cell", name="orders").wait_for()
    page.goto("/records?topic=orders")
    page.get_by_text("Write a record").click()
    page.get_by_label("Value", exact=True).fill("<script>alert(1)</script>")
    page.get_by_role("button", name="Write", exact=True).click()
    page.get_by_text(re.compile(r"The record was written to orders-\d at offset 0")).wait_for()
    page.get_by_label("Containing", exact=True).fill("alert")
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("1 records shown, 1 looked at.").wait_for()
    page.get_by_role("cell", name="<script>alert(1)</script>").wait_for()
    page.get_by_role("button", name="0", exact=True).click()
    page.get_by_role("dialog").get_by_text("<script>alert(1)</script>").wait_for()


def test_bytes_of_any_kind_are_shown_as_text(page: Any, cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        admin.create_topic("odd")
    with Producer(bootstrap_servers=servers(cluster)) as producer:
        producer.send("odd", b"\xff\x00\x1b[31m", key=b"<b>k</b>", headers=(("<i>", b"\xfe"),))
        producer.send("odd", b"x" * 900_000)
        producer.flush()
    page.goto("/records?topic=odd")
    page.get_by_text("2 records shown").wait_for()
    page.get_by_role("cell", name="<b>k</b>").wait_for()
    assert page.locator("td b").count() == 0


def test_what_is_written_is_followed_and_does_not_move_the_form(page: Any, cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        admin.create_topic("followed", partitions=1)
    page.goto("/records?topic=followed")
    page.get_by_text("0 records shown, 0 looked at.").wait_for()
    page.get_by_text("Write a record").click()
    page.get_by_role("button", name="Follow", exact=True).click()
    page.get_by_text("Following: 0 new records").wait_for()
    write = page.get_by_role("button", name="Write", exact=True)
    in_page = "element => element.getBoundingClientRect().y + window.scrollY"
    before = write.evaluate(in_page)
    for offset in range(3):
        page.get_by_label("Value", exact=True).fill(f"value {offset}")
        write.click()
        page.get_by_role("cell", name=f"value {offset}").wait_for()
    page.get_by_text("The record was written to followed-0 at offset 2.").wait_for()
    assert write.evaluate(in_page) == before


def test_a_wrong_name_is_refused_with_a_sentence(page: Any) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name", exact=True).fill("../x")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text(re.compile(r"topic.*name", re.IGNORECASE)).last.wait_for()


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_view_has_its_address_and_says_something(page: Any, address: str) -> None:
    assert page.goto(address).ok
    page.get_by_role("heading").first.wait_for()
    assert "Traceback" not in page.content()


def test_quotas_are_set_changed_and_deleted(page: Any, cluster: LocalCluster) -> None:
    page.goto("/quotas")
    page.get_by_text("There are no limits.").wait_for()
    page.get_by_role("button", name="Set limits").click()
    dialog = page.get_by_role("dialog")
    for key in KEYS:
        dialog.get_by_label(key, exact=True).wait_for()
    dialog.get_by_label("producer_byte_rate").fill("1500000")
    dialog.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("Give whose limit it is: a user, a client id, or both; or an address.").wait_for()
    dialog.get_by_role("combobox", name="User").click()
    page.get_by_role("option", name="Named").click()
    dialog.get_by_label("User: name").fill("bob")
    dialog.get_by_role("button", name="Set", exact=True).click()
    page.get_by_role("cell", name="1,500,000").wait_for()

    page.get_by_role("button", name="Change").click()
    page.get_by_text("Limits of user bob").wait_for()
    dialog.get_by_label("producer_byte_rate").fill("")
    dialog.get_by_label("consumer_byte_rate").fill("7")
    dialog.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("Delete producer_byte_rate of user bob?").wait_for()
    page.get_by_role("dialog").last.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("cell", name="1,500,000").wait_for(state="detached")
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        assert admin.describe_client_quotas() == {QuotaEntity(user="bob"): {"consumer_byte_rate": 7.0}}

    page.get_by_role("button", name="Set limits").click()
    dialog.get_by_role("combobox", name="Limits of").click()
    page.get_by_role("option", name="Addresses").click()
    dialog.get_by_role("combobox", name="Address").click()
    page.get_by_role("option", name="Each without its own").click()
    for key in ADDRESS_KEYS:
        dialog.get_by_label(key, exact=True).fill("20")
    assert not dialog.get_by_label("producer_byte_rate").is_visible()
    dialog.get_by_role("button", name="Set", exact=True).click()
    page.get_by_role("cell", name="(default)").first.wait_for()
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        assert admin.describe_client_quotas()[QuotaEntity(ip="")] == dict.fromkeys(ADDRESS_KEYS, 20.0)
        admin.alter_client_quotas({QuotaEntity(ip=""): dict.fromkeys(ADDRESS_KEYS)})

    page.goto("/quotas")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("There are no limits.").wait_for()
    page.goto("/audit")
    page.get_by_role("cell", name="quotas of user bob: producer_byte_rate, consumer_byte_rate").wait_for()


def test_a_topic_is_deleted_when_its_name_is_typed(page: Any, cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        admin.create_topic("gone")
    page.goto("/topics/gone")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("other")
    page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    page.get_by_text("Type gone to confirm.").wait_for()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("gone")
    page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    page.wait_for_url("**/topics")
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        assert "gone" not in [one.name for one in admin.list_topics()]


def test_offsets_are_reset_after_a_preview_and_not_while_the_group_has_members(
    page: Any, cluster: LocalCluster
) -> None:
    at = TopicPartition("steps", PartitionId(0))
    with Admin(bootstrap_servers=servers(cluster)) as admin, Producer(bootstrap_servers=servers(cluster)) as producer:
        admin.create_topic("steps", partitions=1)
        for _ in range(5):
            producer.send("steps", b"x")
        producer.flush()
        committed(admin, "steppers", at, 5)
        with Consumer(bootstrap_servers=servers(cluster), group_id="steppers", enable_auto_commit=False) as consumer:
            consumer.subscribe(["steps"])
            consumer.poll(timeout_s=10)
            page.goto("/groups/steppers")
            page.get_by_role("button", name="Reset offsets").click()
            page.get_by_role("button", name="Preview").click()
            page.get_by_text(re.compile("Refused: Group 'steppers' has 1 active member; stop it first")).wait_for()
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("dialog").get_by_role("cell", name="-5").wait_for()
        assert admin.list_group_offsets("steppers")[at].offset == 5, "a preview changes nothing"
        page.get_by_role("dialog").get_by_role("button", name="Reset", exact=True).click()
        page.get_by_text("1 offsets of group steppers are reset.").wait_for()
        assert admin.list_group_offsets("steppers")[at].offset == 0


def test_names_with_html_are_text_and_have_a_page(page: Any, cluster: LocalCluster) -> None:
    name = "<img src=x onerror=alert(1)>/<script>alert(2)</script>"
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        admin.create_topic("names", partitions=1)
        committed(admin, name, TopicPartition("names", PartitionId(0)), 0)
    page.goto("/groups")
    page.get_by_role("link", name=name).click()
    page.get_by_role("heading", name=f"Group {name}").wait_for()
    page.get_by_role("cell", name="names-0").wait_for()
    assert page.locator("img[src=x]").count() == 0


DRAWN = """async ([title, wait_ms]) => {
    const {echarts} = await import('nicegui-echart');
    for (const end = Date.now() + wait_ms; Date.now() < end; await new Promise(done => setTimeout(done, 250))) {
        const charts = [...document.querySelectorAll('.nicegui-echart')].map(echarts.getInstanceByDom);
        const shown = charts.map(one => one && one.getOption()).find(one => one && one.title[0].text.startsWith(title));
        const points = shown ? shown.series.flatMap(one => one.data) : [];
        const values = points.map(one => one[1]);
        if (%s) return points;
    }
}"""


def until_drawn(page: Any, title: str, wanted: str) -> list[list[float]]:
    """The points of a chart, [time in ms, value], once `wanted`, JavaScript about its `values`, is true."""
    points = page.evaluate(DRAWN % wanted, [title, 2 * WAIT_MS])
    assert points is not None, f"{title}: not {wanted} within {2 * WAIT_MS} ms"
    return [list(one) for one in points]


def test_a_lag_grows_on_the_chart_while_the_group_is_stopped_and_shrinks_when_it_is_started(
    page: Any, cluster: LocalCluster
) -> None:
    at = TopicPartition("queue", PartitionId(0))
    with Admin(bootstrap_servers=servers(cluster)) as admin, Producer(bootstrap_servers=servers(cluster)) as producer:
        admin.create_topic("queue", partitions=1)
        producer.send_many("queue", [b"x"] * 10, partition=0).result(WAIT_MS / 1000)
        committed(admin, "workers", at, 10)
        page.goto("/groups/workers")
        until_drawn(page, "Lag by topic", "values.at(-1) === 0")
        producer.send_many("queue", [b"x"] * 40, partition=0).result(WAIT_MS / 1000)
        until_drawn(page, "Lag by topic", "values.at(-1) === 40")
        with Consumer(bootstrap_servers=servers(cluster), group_id="workers", enable_auto_commit=False) as consumer:
            consumer.subscribe(["queue"])
            read = 0
            while read < 40:
                read += len(consumer.poll(timeout_s=10))
            consumer.commit()
            page.get_by_role("cell", name="queue-0").first.wait_for()
            drawn = until_drawn(page, "Lag by topic", "values.at(-1) === 0")
    values = [value for _, value in drawn if value is not None]
    assert values.index(40) > 0, f"it grew and shrank: {values}"


def test_an_open_transaction_is_seen_and_aborted(page: Any, cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        admin.create_topic("payments", partitions=1)
    producer = Producer(bootstrap_servers=servers(cluster), transactional_id="pay-1")
    producer.init_transactions()

    def pay() -> None:
        with producer.transaction():
            producer.send("payments", b"open")
            producer.flush()
            page.goto("/transactions")
            page.get_by_role("row", name="payments-0").get_by_role("button", name="Abort").first.click()
            page.get_by_role("button", name="Abort the transaction").click()
            page.get_by_text("The transaction of pay-1 is aborted.").wait_for()

    with pytest.raises(StreamlogError, match="PRODUCER_FENCED"):
        pay()
    producer.close()


FOCUSED = """() => {
    const at = document.activeElement, style = getComputedStyle(at);
    const name = at.getAttribute('aria-label') || at.innerText || '';
    return [name.trim(), style.outlineStyle !== 'none' || style.boxShadow !== 'none' || !!at.closest('.q-field')];
}"""


def test_a_keyboard_reaches_everything_and_its_focus_is_seen(page: Any, cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=servers(cluster)) as admin:
        admin.create_topic("keyboard", partitions=1)
    page.goto("/topics?filter=keyboard")
    page.get_by_role("link", name="keyboard").wait_for()
    reached: list[str] = []
    while "keyboard" not in reached and len(reached) < 60:
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate(FOCUSED)
        assert is_seen, name
        reached.append(name)
    assert {"Overview", "Alarms", "Light or dark", "Internal topics", "Filter topics", "Topic"} <= set(reached)
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/keyboard")


MARK = "() => { for (const one of document.querySelectorAll('a, button, input')) one.isMarked = true; }"
UNMARKED = """() => [...document.querySelectorAll('a, button, input')]
    .filter(one => !one.isMarked).map(one => one.outerHTML.slice(0, 200))"""
SAMPLED = """() => {
    const age = Number(document.querySelector('header').innerText.match(/(\\d+) s ago/)?.[1] ?? NaN);
    const before = window.ageBefore;
    window.ageBefore = age;
    return age < before;
}"""


def test_controls_are_not_built_again_while_the_values_beside_them_change(
    browser: Any, console: Console, cluster: LocalCluster
) -> None:
    """What is built again loses the keyboard's focus, and a click that is under way."""
    at = TopicPartition("changing", PartitionId(0))
    context = browser.new_context(base_url=console.url)
    with Admin(bootstrap_servers=servers(cluster)) as admin, Producer(bootstrap_servers=servers(cluster)) as producer:
        admin.create_topic("changing", partitions=1)
        producer.send_many("changing", [b"x"] * 10, partition=0).result(WAIT_MS / 1000)
        committed(admin, "changer", at, 1)
        pages = {}
        for address in (*ADDRESSES, *MORE, "/topics/changing", "/groups/changer", "/records?topic=changing"):
            pages[address] = context.new_page()
            pages[address].set_default_timeout(WAIT_MS)
            pages[address].goto(address)
            pages[address].get_by_role("heading", level=1).wait_for()
        pages["/groups"].get_by_role("cell", name="changer").wait_for()
        for page in pages.values():
            page.evaluate(MARK)
        producer.send_many("changing", [b"x"] * 20, partition=0).result(WAIT_MS / 1000)
        pages["/groups"].get_by_role("row", name="changer").get_by_role("cell", name="29").wait_for()
        for page in pages.values():
            page.wait_for_function(SAMPLED, polling=100)
        built = {address: found for address, page in pages.items() if (found := page.evaluate(UNMARKED))}
    context.close()
    assert built == {}


AXE = """axe.run({resultTypes: ['violations']}).then(
    found => found.violations.map(one => [one.impact, one.id, one.nodes[0].html]))"""
"""Only what the test looks at: all that axe returns is megabytes a page."""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_no_page_has_a_serious_finding_of_axe(browser: Any, console: Console, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    source = (Path(axe.__file__).parent / "axe.min.js").read_text()
    size = {"width": width, "height": 800}
    context = browser.new_context(base_url=console.url, color_scheme=scheme, viewport=size)
    found = context.new_page()
    found.set_default_timeout(WAIT_MS)
    serious: list[tuple[str, str, str, str]] = []
    for address in (*ADDRESSES, *MORE):
        found.goto(address)
        found.get_by_role("heading", level=1).wait_for()
        found.evaluate(source)
        serious += [(address, *one) for one in found.evaluate(AXE) if one[0] in ("serious", "critical")]
    context.close()
    assert serious == []


def test_what_goes_wrong_is_seen_without_a_reload_and_what_comes_back_too(page: Any, cluster: LocalCluster) -> None:
    page.goto("/")
    page.get_by_text("Nothing: the cluster is healthy.").wait_for()
    cluster.kill(cluster.node(2))
    page.get_by_text(re.compile(r"Node 2 .* is fenced")).wait_for()
    for node in cluster.nodes:
        cluster.kill(node)
    page.get_by_text("No node of the cluster answers.").wait_for()
    start(cluster)
    page.get_by_text("Nothing: the cluster is healthy.").wait_for()


def test_a_history_that_cannot_be_written_is_shown_until_it_can(page: Any, data: Path) -> None:
    with closing(sqlite3.connect(data / "history.db", timeout=60, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        page.goto("/")
        warning = page.get_by_role("img", name=re.compile("The history cannot be written: database is locked"))
        warning.wait_for()
        other.execute("ROLLBACK")
    warning.wait_for(state="hidden")


def test_history_outlives_the_console(browser: Any, cluster: LocalCluster, tmp_path: Path) -> None:
    from streamlog.console.collection.history import SAMPLED, SampleHistory

    database = f"sqlite:///{tmp_path / 'history.db'}"
    drawn: list[list[list[float]]] = []  # of each console
    for _ in range(2):
        with Console(cluster, tmp_path) as console:
            found = browser.new_page()
            found.goto(console.url)
            found.get_by_text("3 of 3").wait_for(timeout=WAIT_MS)
            found.get_by_text(re.compile(r"^History on disk: [0-9.]+ [KM]iB of at most 512.0 MiB")).wait_for(
                timeout=WAIT_MS
            )
            drawn.append(until_drawn(found, "Active nodes", "values.length > 0"))
            found.close()
        history = SampleHistory.open(database)
        assert not history.database.moved_aside
        assert history.read(SAMPLED, time.time() - 600, time.time() + 10)
        history.close()
    assert drawn[0][0] in drawn[1], "the first console's points are on the chart of the second"


def test_pages_of_strangers_are_refused(console: Console) -> None:
    import http.client
    from urllib.parse import urlsplit

    where = urlsplit(console.url)
    assert where.hostname == "127.0.0.1"
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        connection = http.client.HTTPConnection("127.0.0.1", where.port, timeout=30)
        connection.request("GET", "/", headers=headers)
        assert connection.getresponse().status == 403
