"""`streamlogctl debug bundle`: every part is there, or its error; no secret is."""

from __future__ import annotations

import errno
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from streamlog.api.pb import admin_pb2 as pb
from streamlog.cli.cluster.debug import masked
from tests.cli.served import USAGE, ServedCluster, refused

SECRET = "hunter2"


def parts(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return {
            name: json.loads(archive.read(name)) if name.endswith(".json") else archive.read(name).decode()
            for name in archive.namelist()
        }


def test_the_parts_and_what_is_masked(served: ServedCluster, tmp_path: Path) -> None:
    served.run("topic", "create", "orders", "--partitions", "2")
    served.cluster.entries[pb.CONFIG_RESOURCE_TYPE_BROKER, "1"] = [
        pb.ConfigEntry(name="sasl.password", value=SECRET, source=pb.CONFIG_SOURCE_STATIC_BROKER),
        pb.ConfigEntry(name="log.retention.hours", value="24", source=pb.CONFIG_SOURCE_STATIC_BROKER),
    ]
    log = tmp_path / "streamlogd.log"
    log.write_text(f"INFO a line\nWARN sasl.password={SECRET} is short\n")
    path = tmp_path / "bundle.zip"
    done = served.run("debug", "bundle", "--file", str(path), "--log-file", str(log))
    assert done.exit_code == 0, done.output
    assert path.stat().st_mode & 0o777 == 0o600
    found = parts(path)
    assert {"tool.json", "cluster.json", "topics.json", "configs.json", "groups.json", "health.json"} <= found.keys()
    assert [node["node_id"] for node in found["cluster.json"]["nodes"]] == [1, 2, 3]
    assert [len(topic["partitions"]) for topic in found["topics.json"]] == [2]
    configs = found["configs.json"]["broker 1"]
    assert configs["log.retention.hours"]["value"] == "24"
    assert configs["sasl.password"]["value"] == "(masked)"
    assert found["groups.json"]["error"]["code"] == "UNSUPPORTED_VERSION", "this cluster has no groups"
    assert "Warning: groups: " in done.stderr
    assert "INFO a line" in found["logs/1-streamlogd.log"]
    with zipfile.ZipFile(path) as archive:
        assert all(SECRET.encode() not in archive.read(name) for name in archive.namelist())
    again = served.run("debug", "bundle", "--file", str(path))
    assert again.exit_code == 1
    assert "exists: give another name with --file." in again.stderr
    assert served.run("debug", "bundle", "--log-file", str(tmp_path / "missing")).exit_code == USAGE


def test_a_bundle_that_cannot_be_written_whole_is_removed(
    served: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fails)
    path = tmp_path / "bundle.zip"
    assert "cannot be written: No space left on device" in refused(served.run("debug", "bundle", "--file", str(path)))
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.password={SECRET}",
        f"password : {SECRET} and more",
        f"authorization: Basic {SECRET}",
        f"client_secret={SECRET}",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n",
        f"password = 'two {SECRET}'",
        f'{{"password": "two\\" {SECRET}", "x": 1}}',
        f'{{"message": "{{\\"password\\": \\"two {SECRET}\\"}}"}}',
        f'PlainLoginModule required username="u" password="two {SECRET}";',
    ],
)
def test_secrets_are_masked(text: str) -> None:
    assert SECRET not in masked(text)
    assert "(masked)" in masked(text)


def test_other_text_stays() -> None:
    text = "INFO node 1 leads orders-0 in epoch 4; 3 partitions\n"
    assert masked(text) == text
