"""Secrets are planted in every secret setting, and no output has them: messages, --print-config, descriptions, texts of
objects, warnings, the list of processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamlog.cli.common.target import Target
from streamlog.cli.main import main as streamlogctl
from streamlog.client import AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.config import PropertiesFile, Source, load_admin, load_consumer, load_node, load_producer, print_config
from streamlog.config.effective import Layer
from streamlog.config.setting import Setting
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config.settings.node_settings import NODE
from streamlog.config_providers import read_reference
from streamlog.daemon.main import main as streamlogd
from streamlog.errors import StreamlogError
from streamlog.tls.material import MaterialFiles

SECRET = "hunter2-planted"
TABLES = {"node": NODE, "producer": PRODUCER, "consumer": CONSUMER, "admin": ADMIN}
SENSITIVE = [(title, setting) for title, table in TABLES.items() for setting in table if setting.sensitive]
CLIENTS: list[Any] = [AsyncAdmin, AsyncProducer, AsyncConsumer]

every_secret = pytest.mark.parametrize(
    ("title", "setting"), SENSITIVE, ids=[f"{title} {setting.name}" for title, setting in SENSITIVE]
)


def load(title: str, text: str) -> Any:
    file = PropertiesFile("f", text)
    if title == "node":
        return load_node(PropertiesFile("f", f"node.id=1\n{text}"), read=read_reference)
    return {"producer": load_producer, "consumer": load_consumer, "admin": load_admin}[title](file=file)


def outcome(title: str, text: str) -> str:
    """All that can be seen of loading these settings."""
    try:
        loaded = load(title, text)
    except StreamlogError as error:
        return f"{error!r} {error} {error.details} {''.join(traceback.format_exception(error))}"
    shown = [repr(loaded), str(loaded), repr(loaded.config), *loaded.warnings, print_config(loaded.config)]
    return " ".join([*shown, *map(repr, loaded.config), repr(Layer(Source.STATIC_BROKER_CONFIG, loaded.given))])


def test_objects_that_hold_the_texts_do_not_show_them() -> None:
    held = [
        PropertiesFile("f", SECRET),
        Target(servers=("a:1",), request_timeout_ms=1, from_file={"sasl.password": SECRET}),
        MaterialFiles(keystore=None, key=SECRET, chain=None, truststore=None, roots=None),
    ]
    assert SECRET not in repr(held) + str(held)


def test_there_are_secret_settings_of_each_kind() -> None:
    assert {setting.name for _, setting in SENSITIVE} >= {"ssl.keystore.key", "sasl.password"}


@every_secret
def test_settings(title: str, setting: Setting[Any]) -> None:
    for text in (
        f"{setting.name}={SECRET}",
        f"{setting.name}={SECRET}\\u0007",  # not valid
        f"{setting.name}={SECRET}\n{setting.name}=other",
        f"{setting.name}={SECRET}\nclient.id=\\u0007\nnum.partitions=x",
    ):
        assert SECRET not in outcome(title, text)


def secret_settings(title: str) -> dict[str, str]:
    return {setting.name: SECRET for found, setting in SENSITIVE if found == title}


def test_a_node_that_does_not_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"key={SECRET}\n")
    secrets.chmod(0o600)
    file = tmp_path / "server.properties"
    for value in (SECRET, f"${{file:{secrets}:key}}"):
        names = "".join(f"{name}={value}\n" for name in secret_settings("node"))
        file.write_text(f"node.id=1\nlisteners=SSL://127.0.0.1:0\nlog.dirs={tmp_path}/data\n{names}")
        assert streamlogd(["--print-config", str(file)]) == 2, "without a certificate"
        file.write_text(f"{file.read_text()}ssl.keystore.certificate.chain=x\nssl.truststore.certificates=y\n")
        assert streamlogd(["--print-config", str(file)]) == 0
        assert streamlogd([str(file)]) == 2
    output = "".join(capfd.readouterr())
    assert "ssl.keystore.key" in output
    assert SECRET not in output


def test_a_reference_keeps_a_secret_out_of_the_list_of_processes(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"key={SECRET}\n")
    secrets.chmod(0o600)
    overrides = [f"--override={name}=${{file:{secrets}:key}}" for name in secret_settings("node")]
    command = [sys.executable, "-m", "streamlog.daemon.main", "--print-config", "--override=node.id=1", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=120)
    assert done.returncode == 0, done.stderr
    assert SECRET not in "".join([*command, done.stdout, done.stderr])


def test_a_command_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = "".join(f"{name}={SECRET}\n" for name in secret_settings("admin"))
    file.write_text(f"{lines}default.api.timeout.ms=x\nsecurity.protocol=SASL_SSL\n")
    file.chmod(0o600)
    for arguments in (["topic", "list"], ["cluster", "describe"], ["user", "list"]):
        found = CliRunner().invoke(
            streamlogctl, ["--command-config", str(file), *arguments, "--bootstrap-server", "127.0.0.1:1"]
        )
        assert found.exit_code != 0
        assert SECRET not in found.output + found.stderr + repr(found.exception)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    title = {AsyncAdmin: "admin", AsyncProducer: "producer", AsyncConsumer: "consumer"}[client]
    seen: list[str] = []

    async def attempt(settings: dict[str, object]) -> None:
        try:
            made = client({"bootstrap.servers": "127.0.0.1:1", **settings})
            seen.append(repr(made))
            async with made:
                seen.append(repr(made))
        except StreamlogError as error:
            seen.append("".join(traceback.format_exception(error)) + repr(error.details))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for more in ({}, {"security.protocol": "SASL_SSL", "sasl.username": "alice"}, {"linger.mss": 1}):
            asyncio.run(attempt({**secret_settings(title), **more}))
    seen += [str(one.message) for one in caught]
    assert SECRET not in "".join(seen) + caplog.text
