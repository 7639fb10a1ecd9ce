"""The examples in deploy/ are what a node of this release takes, and point at what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from streamlog.config import PropertiesFile, load_node
from streamlog.config.addresses import VoterAddress
from streamlog.config.listeners import inter_broker_listener
from streamlog.config.settings import log_settings, node_settings

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.rglob("*.properties"))


def loaded(path: Path) -> tuple[VoterAddress, ...]:
    found = load_node(PropertiesFile(path.name, path.read_text()))
    assert found.warnings == ()
    return found.config[node_settings.CONTROLLER_QUORUM_VOTERS]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_settings_are_known_and_allowed(path: Path) -> None:
    loaded(path)


@pytest.mark.parametrize("folder", ["three-nodes", "secure-nodes"])
def test_the_three_nodes_are_one_cluster(folder: str) -> None:
    paths = sorted((DEPLOY / folder).glob("*.properties"))
    assert len(paths) == 3
    [voters] = {loaded(path) for path in paths}
    for number, path in enumerate(paths, start=1):
        config = load_node(PropertiesFile(path.name, path.read_text())).config
        assert config[node_settings.NODE_ID] == number
        listener = inter_broker_listener(config)
        assert listener.advertised == voters[number - 1].address
        assert listener.secure is (folder == "secure-nodes")
        assert config[log_settings.LOG_DIRS][0].startswith("/var/lib/streamlog")


def test_the_commands_that_are_run_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {"streamlogd", "streamlogctl"} <= scripts.keys()
    assert 'ENTRYPOINT ["streamlogd"]' in (DEPLOY / "Dockerfile").read_text()
    assert "/bin/streamlogd /etc/streamlog/server.properties" in (DEPLOY / "systemd/streamlogd.service").read_text()


def test_the_containers_mount_and_copy_what_is_there() -> None:
    mounts = re.findall(r"- \./(\S+):/etc/streamlog/server\.properties:ro", (DEPLOY / "compose.yaml").read_text())
    assert [(DEPLOY / mount).is_file() for mount in mounts] == [True] * 3
    copied = re.findall(r"^COPY (?!--from)(.+) /\S*$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert copied == ["kernel", "pyproject.toml README.md", "streamlog"]
    assert all((ROOT / name).exists() for names in copied for name in names.split())


def test_the_image_has_the_kernel() -> None:
    """Built where there is a compiler, and copied to where it is installed."""
    build, image = re.split(r"^FROM .*$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    assert re.search(r"install .*\bgcc\b", build)
    assert "pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /kernel" in build
    assert "COPY --from=kernel /wheels /src/wheels" in image
    assert re.search(r"pip install .*/src /src/wheels/\*\.whl", image)


def test_the_readme_names_what_is_there() -> None:
    text = (DEPLOY / "README.md").read_text()
    for name in re.findall(r"deploy/(\S+?\.(?:properties|service|yaml))", text):
        assert (DEPLOY / name).is_file(), name
