"""The web console of a local cluster: a process beside its nodes, in DIR/console/.

    DIR/console/console.log       what it prints: its address, and failures
    DIR/console/process           pid and start time of its process (`local_process`)
    DIR/console/data/             its history, users and alarm rules

It continues to run when the command that started it ends, as the nodes do.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from typing import Final

from streamlog.daemon.local_cluster import LocalCluster
from streamlog.daemon.local_process import ProcessId, load_process_id, save_process_id
from streamlog.daemon.text_file import private
from streamlog.errors import InvalidRequestError, RequestTimedOutError

PORT: Final = 8048
_PROGRAM: Final = "from streamlog.cli.main import main; main(prog_name='streamlogctl')"
_URL: Final = re.compile(r"^Console: (https?://\S+)", re.MULTILINE)
_LOOK_AGAIN_S: Final = 0.05
_LOG_BYTES_MAX: Final = 1 << 20
_FOLDER_MODE: Final = 0o700
_UMASK: Final = 0o077


class LocalConsole:
    """Commands hold `LocalCluster.locked`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.folder = cluster.directory / "console"
        self.log = self.folder / "console.log"
        self._process_file = self.folder / "process"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> ProcessId | None:
        """None if it does not run."""
        process = load_process_id(self._process_file)
        return process if process is not None and process.alive else None

    @property
    def url(self) -> str:
        """Empty while it does not serve."""
        if self.process is None or not self.log.exists():
            return ""
        found = _URL.search(self._log_text())
        return "" if found is None else found[1]

    def start(self, port: int, timeout_s: float) -> str:
        """Its address, when it serves; that of the running one. InvalidRequestError where it exits instead."""
        if self.process is not None:
            return self._wait_until_serving(timeout_s)
        self.folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
        command = [sys.executable, "-c", _PROGRAM]
        if self._cluster.client_file is not None:
            command += ["--command-config", str(self._cluster.client_file)]
        secure = self._cluster.client_file is not None
        servers = ",".join(node.admin_address(secure=secure) for node in self._cluster.nodes)
        command += ["console", "--bootstrap-server", servers, "--port", str(port), "--data", str(self.folder / "data")]
        self.log.unlink(missing_ok=True)  # of the last start: its address is not this one's
        with open(self.log, "ab", opener=private) as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                umask=_UMASK,
            )
        process = ProcessId.of(self._child.pid)
        if process is not None:
            save_process_id(process, self._process_file)
        return self._wait_until_serving(timeout_s)

    def _wait_until_serving(self, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while not (url := self.url):
            if self._has_ended():
                lines = [line for line in self._log_text().splitlines() if line.strip()]
                raise InvalidRequestError(f"the console has not started: {' '.join(lines[-3:])} (log: {self.log})")
            if time.monotonic() > deadline:
                raise RequestTimedOutError(
                    f"the console does not serve after {timeout_s:g} s: check its log, {self.log}, or wait longer with "
                    "--timeout-s"
                )
            time.sleep(_LOOK_AGAIN_S)
        return url

    def _has_ended(self) -> bool:
        if self._child is not None:
            return self._child.poll() is not None
        return self.process is None

    def stop(self, timeout_s: float) -> bool:
        """False if it does not run. RequestTimedOutError."""
        process = self.process
        if process is None:
            return False
        process.signal(signal.SIGTERM)
        if not process.wait_until_exited(timeout_s):
            raise RequestTimedOutError(f"the console, process {process.pid}, has not stopped after {timeout_s:g} s")
        self._process_file.unlink(missing_ok=True)
        return True

    def _log_text(self) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            return file.read(_LOG_BYTES_MAX).decode(errors="replace")
