"""Options of `streamlogctl console`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamlog.cli.console.commands import console, origin_of


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://console.example/", "https://console.example"),
        ("HTTPS://Console.Example:443", "https://console.example"),
        ("http://console.example:80", "http://console.example"),
        ("http://console.example:443", "http://console.example:443"),
        ("https://[2001:DB8::1]:8443", "https://[2001:db8::1]:8443"),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
    ],
)
def test_the_public_address_is_compared_as_browsers_send_it(given: str, origin: str) -> None:
    assert origin_of(given) == origin


@pytest.mark.parametrize(
    "given",
    [
        "https://[x",
        "https://console.example:abc",
        "https://console.example:65536",
        "https://console..example",
        "https://console.example/#x",
        "https://a:b@console.example",
        "https://",
        "ftp://console.example",
    ],
)
def test_an_address_that_no_browser_sends_is_wrong_usage(given: str) -> None:
    with pytest.raises(click.UsageError, match="give scheme and host alone"):
        origin_of(given)


def test_a_console_needs_no_standard_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = pytest.importorskip("streamlog.console.server", reason="streamlog[console] is not installed")
    served: list[str] = []

    def serve(_settings: object, _options: object, on_ready: Callable[[str], None]) -> None:
        on_ready("http://127.0.0.1:1/")
        served.append("still")

    def closed(text: str) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(click, "echo", closed)
    ended = CliRunner().invoke(console, ["--data", str(tmp_path)])
    assert (ended.exit_code, served) == (0, ["still"])
