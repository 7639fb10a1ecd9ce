"""The console of a cluster with access control lists, as a user with a password: with the rights that docs/console.md
lists it shows everything, and without them it says so. No browser: a page's texts are in its HTML.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from streamlog.access.acl import AclFilter
from streamlog.cli.main import main
from streamlog.client import Producer
from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.tls.settings_files import as_properties
from tests.console.access.running import RunningConsole

pytestmark = [pytest.mark.process]
DOCS = Path(__file__).parent.parent.parent / "docs" / "console.md"
PAGES = (
    "/",
    "/brokers",
    "/brokers/1",
    "/topics",
    "/topics/orders",
    "/records?topic=orders",
    "/groups",
    "/groups/billing",
    "/transactions",
    "/quorum",
    "/quotas",
    "/operations",
    "/alarms",
    "/audit",
)
WAIT_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("nodes"), nodes=1, secure=True) as found:
        found.create_topic("orders")
        with Producer(found.client_settings()) as producer:
            producer.send("orders", b"tea").result(WAIT_S)
        yield found


@pytest.fixture(scope="module")
def console(cluster: InProcessCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    password = cluster.with_admin(lambda admin: admin.create_user("console"))
    with running(cluster, tmp_path_factory.mktemp("console"), password) as found:
        yield found


def running(cluster: InProcessCluster, directory: Path, password: str) -> RunningConsole:
    """As user `console`; the listener requires a certificate besides, whose name is not looked at."""
    login = {"security.protocol": "SASL_SSL", "sasl.username": "console", "sasl.password": password}
    settings = directory / "console.properties"
    settings.write_text(as_properties({**cluster.client_settings("machine"), **login, "sasl.mechanism": "PLAIN"}))
    settings.chmod(0o600)
    return RunningConsole(directory / "data", "--command-config", str(settings), servers=cluster.bootstrap_servers)


def shown(console: RunningConsole, text: str, path: str = "/") -> None:
    """The page says so after some sample."""
    deadline = time.monotonic() + WAIT_S
    while text not in (body := console.request("GET", path).body):
        assert time.monotonic() < deadline, body
        time.sleep(2.0)  # less than a sample takes; each page that was requested counts as open for a while


def allow(cluster: InProcessCluster, tmp_path: Path, arguments: str) -> None:
    admin = tmp_path / "admin.properties"
    admin.write_text(as_properties(cluster.client_settings()))
    options = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(admin)]
    result = CliRunner().invoke(main, [*shlex.split(arguments), *options])
    assert result.exit_code == 0, result.output


def documented_rights() -> list[str]:
    found = re.findall(
        r"^    streamlogctl (acl add --allow-principal User:console .*)$", DOCS.read_text(), re.MULTILINE
    )
    assert len(found) == 4
    return found


def test_what_the_user_may_not_see_is_said_and_shown_once_it_is_allowed(
    cluster: InProcessCluster, console: RunningConsole, tmp_path: Path
) -> None:
    shown(console, "The cluster refuses the console")
    shown(console, "User:console may not DESCRIBE cluster")
    assert "No node of the cluster answers" not in console.request("GET", "/").body

    allow(cluster, tmp_path, "acl add --allow-principal User:console --operation Describe --cluster")
    shown(console, "1 of the topics are hidden from the console")

    for arguments in documented_rights():
        allow(cluster, tmp_path, arguments)
    shown(console, "Nothing: the cluster is healthy.")
    for path in PAGES:
        page = console.request("GET", path)
        assert page.status == 200
        assert "may not" not in page.body, path
    assert "Groups that read it" in console.request("GET", "/topics/orders").body

    cluster.with_admin(lambda admin: admin.delete_acls([AclFilter(principal="User:console")]))
    shown(console, "The cluster refuses the console")


def test_a_wrong_password_is_said_with_what_to_do(cluster: InProcessCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, "wrong") as console:
        shown(console, "wrong user name or password (sasl.username, sasl.password)")
        page = console.request("GET", "/").body
    assert "The cluster refuses the console" in page
    assert "--command-config, and restart it" in page
    assert "less and less often" in page
