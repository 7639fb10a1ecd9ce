"""A cluster of streamlogd processes on this machine, for development, in one directory.

    DIR/lock                      held while a command works on the cluster
    DIR/node-1/server.properties  written at the first start, changed only by the user afterwards
    DIR/node-1/streamlogd.log     the node's log
    DIR/node-1/process            pid and start time of the node's process (`local_process`)
    DIR/node-1/data/              the log directory
    DIR/certs/                    with --secure: an authority, the nodes' certificates, one for an administrator

Settings may hold secrets, logs hold records: folders are 0700 and files 0600, whatever the umask.

The nodes continue to run when the command that started them ends. Whether they serve is not known here: ask them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from streamlog.config import Config, load_node
from streamlog.config.listeners import client_listener, listeners_of
from streamlog.config.properties import escape_value, parse_properties
from streamlog.config.settings import node_settings as settings
from streamlog.config.settings.security_settings import AUDIT_LOG_FILE
from streamlog.config_providers import read_reference
from streamlog.daemon.free_ports import HOST, free_ports, is_free
from streamlog.daemon.local_process import ProcessId, load_process_id, save_process_id
from streamlog.daemon.text_file import private, read_properties, write_private
from streamlog.errors import InvalidRequestError, RequestTimedOutError
from streamlog.tls.authority import Authority
from streamlog.tls.settings_files import ADMINISTRATOR, node_settings, write_client_properties

NODES_MAX: Final = 20
PORT: Final = 9092
PORT_0: Final = re.compile(r":0(?=\s*(?:,|\Z))")
"""In a list of addresses."""
VOTERS_MAX: Final = 3  # one of them may fail; more would only slow every change of the metadata
_FOLDER: Final = re.compile(r"node-([0-9]+)")
_TAIL_BYTES: Final = 4096
_KILL_WAIT_S: Final = 10.0
_FOLDER_MODE: Final = 0o700
_UMASK: Final = 0o077


class LocalNode(Struct, frozen=True):
    node_id: int
    folder: Path

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        return self.folder / "streamlogd.log"

    @property
    def process_file(self) -> Path:
        return self.folder / "process"

    @property
    def process(self) -> ProcessId | None:
        """None if it does not run."""
        process = load_process_id(self.process_file)
        return process if process is not None and process.alive else None

    @property
    def address(self) -> str:
        """host:port for clients, from its server.properties. InvalidConfigError."""
        return str(client_listener(self._config).bind)

    def admin_address(self, *, secure: bool) -> str:
        """host:port where an administrator is known: over TLS (`secure`), where clients' certificates are required.
        InvalidConfigError.
        """
        found = [one for one in listeners_of(self._config) if one.secure is secure and one.client_auth == "required"]
        preferred = sorted(found, key=lambda one: not one.for_clients)
        return str(preferred[0].bind) if preferred else self.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of all its listeners. InvalidConfigError."""
        return tuple(str(one.bind) for one in listeners_of(self._config))

    @property
    def http(self) -> str:
        """The URL of its metrics and health; empty if it serves none. InvalidConfigError."""
        addresses = self._config[settings.HTTP_LISTENERS]
        return addresses[0].url if addresses else ""

    @property
    def _config(self) -> Config:
        return load_node(read_properties(str(self.properties)), read=read_reference).config

    def last_log_line(self) -> str:
        """Empty if there is none."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class LocalCluster:
    """The cluster of one directory. Concurrent commands take turns (`locked`)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        # Children of this process, which it has to reap.
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def nodes(self) -> tuple[LocalNode, ...]:
        """All that were ever started here, by ascending id."""
        if not self.directory.is_dir():
            return ()
        found = [(_FOLDER.fullmatch(folder.name), folder) for folder in self.directory.iterdir()]
        nodes = [LocalNode(int(match[1]), folder) for match, folder in found if match is not None]
        return tuple(sorted(nodes, key=lambda node: node.node_id))

    def node(self, node_id: int) -> LocalNode:
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        known = ", ".join(str(node.node_id) for node in self.nodes) or "none"
        raise InvalidRequestError(
            f"there is no node {node_id} in {self.directory}: there are {known}", field="node_id", limit=known
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One command at a time. OSError. What is made for it is removed at its end, unless there is a cluster then."""
        made = [one for one in (self.directory, *self.directory.parents) if not one.exists()]
        lock = self._lock()
        try:
            yield
        finally:
            self._remove_if_unused(made)
            os.close(lock)

    def _lock(self) -> int:
        """The locked file's descriptor."""
        while True:
            self.directory.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            try:
                lock = private(str(self._lock_file), os.O_WRONLY | os.O_CREAT)
            except FileNotFoundError:
                if self._lock_file.is_symlink():
                    raise
                continue  # the command before has just removed its directory
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._is_lock_file(lock):
                return lock
            os.close(lock)  # that command has just removed it

    def _is_lock_file(self, lock: int) -> bool:
        try:
            return os.path.samestat(os.fstat(lock), self._lock_file.stat())
        except FileNotFoundError:
            return False

    def _remove_if_unused(self, made: Sequence[Path]) -> None:
        """`made`: the directories that did not exist before, the innermost first. Called with the lock."""
        try:
            if [one.name for one in self.directory.iterdir()] != [self._lock_file.name]:
                return
            self._lock_file.unlink()
            for one in made:
                one.rmdir()
        except OSError:
            return  # it is in use by now, or was removed

    @property
    def _lock_file(self) -> Path:
        return self.directory / "lock"

    @property
    def client_file(self) -> Path | None:
        """The settings that a client needs; None: none but the address."""
        path = self._certificates / f"{ADMINISTRATOR}.properties"
        return path if path.exists() else None

    @property
    def client_settings(self) -> dict[str, str]:
        """InvalidConfigError, OSError."""
        path = self.client_file
        if path is None:
            return {}
        file = read_properties(str(path))
        return {entry.key: entry.value for entry in parse_properties(file.text, file.name)}

    @property
    def _certificates(self) -> Path:
        return self.directory / "certs"

    def create(self, count: int, port: int | None, overrides: Mapping[str, str], *, secure: bool = False) -> None:
        """Write the settings of nodes 1 to `count`, which listen on ports from `port` on (0: on free ones; None: 9092,
        or as they are). `secure`: over TLS, with certificates of an authority made for it. Existing nodes are not
        changed; a count, port or security other than theirs is refused. InvalidConfigError, before anything is written,
        for a setting that is not valid.
        """
        if not 1 <= count <= NODES_MAX:
            raise InvalidRequestError(f"{count} nodes: 1 to {NODES_MAX} can be started", field="nodes", limit=NODES_MAX)
        if self.nodes:
            if len(self.nodes) != count:
                raise InvalidRequestError(
                    f"{self.directory} holds a cluster of {len(self.nodes)} nodes, not of {count}: start it with "
                    f"--nodes {len(self.nodes)}, or start another cluster with another --dir",
                    field="nodes",
                    limit=len(self.nodes),
                )
            if secure and self.client_file is None:
                raise InvalidRequestError(
                    f"{self.directory} holds a cluster without TLS: start it without --secure, or start another one "
                    "with another --dir",
                    field="secure",
                )
            kept_port = int(self.nodes[0].address.rpartition(":")[2])
            if port not in (None, 0, kept_port):
                raise InvalidRequestError(
                    f"--port {port}: the nodes in {self.directory} listen on ports from {kept_port} on: start them "
                    "without --port, or start another cluster with another --dir",
                    field="port",
                    limit=kept_port,
                )
            return
        port = PORT if port is None else port
        ports = free_ports(count) if port == 0 else range(port, port + count)
        for number in ports:
            _check_free(HOST, number)
        addresses = {node_id: f"{HOST}:{number}" for node_id, number in enumerate(ports, start=1)}
        made = {
            LocalNode(node_id, self.directory / f"node-{node_id}"): address for node_id, address in addresses.items()
        }
        values = {node: self._settings(node, address, addresses, overrides, secure) for node, address in made.items()}
        for one in values.values():
            load_node(overrides=[f"{name}={value}" for name, value in one.items()], read=read_reference)
        self._write(values, secure=secure)

    def _write(self, values: Mapping[LocalNode, Mapping[str, str]], *, secure: bool) -> None:
        """The certificates and the nodes' folders: all, or none of what is new. OSError."""
        made = [one for one in (self._certificates, *(node.folder for node in values)) if not one.exists()]
        try:
            authority = None
            if secure:
                authority = Authority.create(self._certificates)
                authority.add_client(ADMINISTRATOR)
                write_client_properties(self._certificates, ADMINISTRATOR)
            for node in values:
                node.folder.mkdir(parents=True, mode=_FOLDER_MODE)
                if authority is not None:
                    authority.add_node(node.node_id, [HOST, "localhost"])
                write_private(node.properties, _properties(values[node]))
        except BaseException:  # Ctrl-C, too: a later start would take a part of them for the cluster
            for folder in made:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def _settings(
        self, node: LocalNode, address: str, addresses: Mapping[int, str], overrides: Mapping[str, str], secure: bool
    ) -> dict[str, str]:
        values = _values(node, address, addresses)
        if secure:
            values |= node_settings(self._certificates, node.node_id, address)
            values[AUDIT_LOG_FILE.name] = str((node.folder / "audit.log").absolute())
        values |= overrides
        values[settings.HTTP_LISTENERS.name] = _with_ports(overrides.get(settings.HTTP_LISTENERS.name, f"{HOST}:0"))
        return values

    def start(self, node: LocalNode) -> bool:
        """False if it runs already. Does not wait until it serves. InvalidRequestError if another process listens on
        its port, which would answer in its place.
        """
        self._reap()
        if node.process is not None:
            return False
        for address in node.addresses:
            host, _, port = address.rpartition(":")
            _check_free(host.strip("[]"), int(port))
        command = [sys.executable, "-m", "streamlog.daemon.main", str(node.properties)]
        node.folder.chmod(_FOLDER_MODE)  # an older release left it open to all
        with open(node.log, "ab", opener=private) as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=node.folder,
                start_new_session=True,
                umask=_UMASK,
            )
        self._children.append(child)
        process = ProcessId.of(child.pid)
        if process is not None:
            save_process_id(process, node.process_file)
        return True

    def stop(self, nodes: Sequence[LocalNode], timeout_s: float) -> list[LocalNode]:
        """Shut down (SIGTERM) all of them at once. Returns those that have not stopped in time."""
        processes = [(node, node.process) for node in nodes]
        for _, process in processes:
            if process is not None:
                process.signal(signal.SIGTERM)
        slow = [node for node, process in processes if process is not None and not process.wait_until_exited(timeout_s)]
        self._remove_process_files(node for node in nodes if node not in slow)
        return slow

    def kill(self, node: LocalNode) -> bool:
        """As kill -9 does. False if it does not run."""
        process = node.process
        killed = process is not None and process.signal(signal.SIGKILL)
        if process is not None and not process.wait_until_exited(_KILL_WAIT_S):
            raise RequestTimedOutError(
                f"node {node.node_id}, process {process.pid}, has not ended {_KILL_WAIT_S:g} s after SIGKILL: it may "
                "wait for a disk; see `ps` for its state"
            )
        self._remove_process_files([node])
        return killed

    def _remove_process_files(self, nodes: Iterator[LocalNode] | Sequence[LocalNode]) -> None:
        self._reap()
        for node in nodes:
            node.process_file.unlink(missing_ok=True)

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _check_free(host: str, port: int) -> None:
    if not is_free(host, port):
        raise InvalidRequestError(
            f"another process listens on {host}:{port}: stop it, or start a new cluster with another --port",
            field="port",
        )


def _with_ports(http_listeners: str) -> str:
    """With free ports where the system would choose them at each start: commands show the addresses from the file."""
    return PORT_0.sub(lambda _: f":{free_ports(1)[0]}", http_listeners)


def _values(node: LocalNode, address: str, addresses: Mapping[int, str]) -> dict[str, str]:
    voters = [f"{node_id}@{where}" for node_id, where in addresses.items()]
    if len(voters) > VOTERS_MAX:
        voters = voters[:VOTERS_MAX]
    return {
        "node.id": str(node.node_id),
        "listeners": f"PLAINTEXT://{address}",
        "controller.quorum.voters": ",".join(voters),
        "log.dirs": str(node.folder / "data"),
    }


def _properties(values: Mapping[str, str]) -> str:
    lines = [f"{name}={escape_value(value)}" for name, value in values.items()]
    head = "# Made by `streamlogctl local start`; yours to change. Every setting: streamlogd --print-config\n"
    return head + "\n".join(lines) + "\n"
