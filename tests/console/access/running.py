"""A console as a process of its own, without a cluster: pages say that no node answers."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

from msgspec import Struct

COMMAND = str(Path(sys.executable).with_name("streamlogctl"))
PASSWORD = "correct horse battery"


def user(data: Path, *arguments: str, stdin: str = f"{PASSWORD}\n") -> subprocess.CompletedProcess[str]:
    """`streamlogctl console user ...`"""
    command = [COMMAND, "console", "user", *arguments, "--data", str(data)]
    return subprocess.run(command, input=stdin, text=True, capture_output=True, check=False, timeout=60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


class Answer(Struct):
    status: int
    headers: dict[str, str]
    cookies: list[str]
    body: str


class RunningConsole:
    """`servers`: of the cluster; empty: an address where nothing listens."""

    def __init__(self, data: Path, *options: str, servers: str = "") -> None:
        servers = servers or f"127.0.0.1:{free_port()}"
        self._port = free_port()
        self._command = [
            COMMAND,
            "console",
            "--port",
            str(self._port),
            "--data",
            str(data),
            "--bootstrap-server",
            servers,
            *options,
        ]
        self.url = ""

    def __enter__(self) -> RunningConsole:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = re.search(r"https?://\S+", self._process.stdout.readline())
        assert found is not None
        self.url = found[0]
        self.host = f"127.0.0.1:{self._port}"  # the URL may be that of a proxy
        self.request("GET", "/")  # waits until it serves
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(120) in (0, 130, -signal.SIGINT)

    def request(
        self, method: str, path: str, *, cookie: str = "", body: str = "", headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        sent = {"Cookie": cookie} if cookie else {}
        if method == "POST":
            sent |= {"Origin": f"http://{self.host}", "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body=body or None, headers={**sent, **(headers or {})})
        answer = connection.getresponse()
        cookies = [value for name, value in answer.getheaders() if name.lower() == "set-cookie"]
        found = {name.lower(): value for name, value in answer.getheaders()}
        text = answer.read().decode(errors="replace")
        connection.close()
        return Answer(answer.status, found, cookies, text)

    def log_in(self, name: str, password: str = PASSWORD, target: str = "/") -> Answer:
        form = self.request("GET", "/login")
        token = SimpleCookie(form.cookies[0])["streamlog_login"].value
        fields = urlencode({"token": token, "name": name, "password": password, "next": target})
        return self.request("POST", "/login", cookie=f"streamlog_login={token}", body=fields)

    def session(self, name: str) -> str:
        """The cookie of a new session."""
        answer = self.log_in(name)
        assert answer.status == 303, answer.body
        return next(one for one in answer.cookies if one.startswith("streamlog_session=")).split(";")[0]
